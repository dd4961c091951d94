/* SPDX-License-Identifier: MIT */
/* The functions of CUPTI that its list describes. IGNORE(name) succeeds: it starts or ends the
 * telling of what never comes. */
#define LIBRARY "libcupti"
#define STATUS  27
#define LIST    "pretend/cuda/other/cupti.def"
#define IGNORE(name)                                                                               \
    PRETEND_CALL int name(void);                                                                   \
    PRETEND_CALL int name(void)                                                                    \
    {                                                                                              \
        return 0;                                                                                  \
    }
#include "pretend/cuda/missing.h"
