/* SPDX-License-Identifier: MIT */
/* The ggml adapter, as seen by the dlsym hook. */
#ifndef MT_RECORDER_GGML_H
#define MT_RECORDER_GGML_H

#include "recorder/recorder.h"

/* The adapter's function called `name`, or NULL. *unfindable, where it is asked for, is a name that
 * reads the same and that no library has. */
HIDDEN void *ggml_hook_by_name(const char *name, const char **unfindable);

#endif
