/* SPDX-License-Identifier: MIT */
/* The ggml adapter, as seen by the dlsym hook. */
#ifndef MT_RECORDER_GGML_H
#define MT_RECORDER_GGML_H

#include "recorder/recorder.h"

/* The adapter's function called `name`, or NULL. */
HIDDEN void *ggml_hook_by_name(const char *name);

/* The function called `name` in any loaded library but the recorder, or NULL. */
HIDDEN void *ggml_find_anywhere(const char *name);

#endif
