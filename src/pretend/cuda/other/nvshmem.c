/* SPDX-License-Identifier: MIT */
/* NVSHMEM: it is there, is not initialised, and has no memory to give. Programs ask for its state
 * before they use it. */
#include <stddef.h>

#include "pretend/cuda/call.h"

CALL(nvshmemx_init_status, (void), return 0;)
CALL(nvshmemid_init_status, (void), return 0;)

PRETEND_CALL void nvshmem_info_get_version(int *major, int *minor);
PRETEND_CALL void nvshmem_info_get_version(int *major, int *minor)
{
    if (major)
        *major = 1;
    if (minor)
        *minor = 3;
}
