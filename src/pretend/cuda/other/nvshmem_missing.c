/* SPDX-License-Identifier: MIT */
/* The functions of NVSHMEM that its list describes. NOTHING(name) answers no memory. */
#define LIBRARY "libnvshmem_host"
#define STATUS  6
#define LIST    "pretend/cuda/other/nvshmem.def"
#define NOTHING(name)                                                                              \
    PRETEND_CALL void *name(void);                                                                 \
    PRETEND_CALL void *name(void)                                                                  \
    {                                                                                              \
        static int told;                                                                           \
        pretend_cuda_missing(LIBRARY, #name, &told, 0);                                            \
        return NULL;                                                                               \
    }
#include "pretend/cuda/missing.h"
