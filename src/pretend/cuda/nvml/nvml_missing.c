/* SPDX-License-Identifier: MIT */
/* What nothing stands behind of this library. */
#define LIBRARY "libnvidia-ml"
#define STATUS  3
#define LIST    "pretend/cuda/nvml/nvml.def"
#define ABSENT(...)
#include "pretend/cuda/missing.h"
