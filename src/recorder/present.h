/* SPDX-License-Identifier: MIT */
#ifndef MT_RECORDER_PRESENT_H
#define MT_RECORDER_PRESENT_H

#include "recorder/recorder.h"

/* Whether an object defines `name`; with `behind_us`, one that was loaded after the recorder. */
HIDDEN int is_defined(const char *name, int behind_us);

#endif
