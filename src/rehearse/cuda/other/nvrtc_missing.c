/* SPDX-License-Identifier: MIT */
/* What nothing stands behind of this library. */
#define LIBRARY "libnvrtc"
#define STATUS  11
#define LIST    "rehearse/cuda/other/nvrtc.def"
#include "rehearse/cuda/missing.h"
