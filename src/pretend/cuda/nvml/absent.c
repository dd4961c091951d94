/* SPDX-License-Identifier: MIT */
/* What a device need not have, and pretended ones do not: NVML says so of a true device, too. */
#include "nvml.h"

#define CALL(...)
#define MISSING(...)
#define ABSENT(name)                                                                               \
    PRETEND_CALL int name(void);                                                                   \
    PRETEND_CALL int name(void)                                                                    \
    {                                                                                              \
        return nvml_enter() == NVML_SUCCESS ? NVML_NOT_SUPPORTED : NVML_UNINITIALIZED;             \
    }
#include "nvml.def"
