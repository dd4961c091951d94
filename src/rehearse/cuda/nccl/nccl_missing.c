/* SPDX-License-Identifier: MIT */
/* What nothing stands behind of this library. */
#define LIBRARY "libnccl"
#define STATUS  5
#define LIST    "rehearse/cuda/nccl/nccl.def"
#include "rehearse/cuda/missing.h"
