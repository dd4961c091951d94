/* SPDX-License-Identifier: MIT */
/* What nothing stands behind of the driver. */
#define LIBRARY "libcuda"
#define STATUS  CUDA_ERROR_NOT_SUPPORTED
#define LIST    "pretend/cuda/driver/driver.def"
#define TWIN(...)
#define ALSO(...)
#include "pretend/cuda/missing.h"
