/* SPDX-License-Identifier: MIT */
/* What nothing stands behind of this library. */
#define LIBRARY "libnvidia-ml"
#define STATUS  3
#define LIST    "rehearse/cuda/nvml/nvml.def"
#define ABSENT(...)
#include "rehearse/cuda/missing.h"
