/* SPDX-License-Identifier: MIT */
/* The cuBLAS adapter, as seen by the dlsym hook, and what it remembers. */
#ifndef MT_RECORDER_BLAS_H
#define MT_RECORDER_BLAS_H

#include "recorder/recorder.h"

#define BLAS_CALLERS 4u

typedef int (*blas_set_workspace)(void *handle, void *workspace, size_t bytes);

/* What a caller's module is bound to. `sequence` is odd while the entry is being written. */
struct blas_caller {
    uint32_t sequence;
    uint64_t generation; /* of the list of modules that it was looked up in; 0: empty */
    uintptr_t low, high;
    blas_set_workspace real;
};

struct blas {
    struct blas_caller callers[BLAS_CALLERS];
    uint64_t n_told, last_told_ticks, last_told;
};

/* The adapter's function called `name`, or NULL. *unfindable is a name that reads the same and that
 * no library has. */
HIDDEN void *blas_hook_by_name(const char *name, const char **unfindable);

#endif
