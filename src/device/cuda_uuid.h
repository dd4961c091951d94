/* SPDX-License-Identifier: MIT */
/* Which device CUDA means by a number in this process: it leaves out and reorders devices by the
 * environment (CUDA_VISIBLE_DEVICES), the driver's own library does not. */
#ifndef MT_DEVICE_CUDA_UUID_H
#define MT_DEVICE_CUDA_UUID_H

#include "base/gpu_uuid.h"

struct mt_error; /* <memtally/error.h> */

/* The UUID of CUDA's device `index`. Initialises CUDA where the process has not; libcuda.so.1 then
 * stays open. Errors: MT_ENOTFOUND (no driver, or no such device), MT_EUNSUPPORTED (a driver that
 * is too old), MT_EIO. */
int mt_cuda_uuid(int index, char uuid[MT_GPU_UUID_TEXT_BYTES], struct mt_error *error);

#endif
