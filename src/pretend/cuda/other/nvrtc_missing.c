/* SPDX-License-Identifier: MIT */
/* What nothing stands behind of this library. */
#define LIBRARY "libnvrtc"
#define STATUS  11
#define LIST    "pretend/cuda/other/nvrtc.def"
#include "pretend/cuda/missing.h"
