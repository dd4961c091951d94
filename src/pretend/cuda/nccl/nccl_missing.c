/* SPDX-License-Identifier: MIT */
/* What nothing stands behind of this library. */
#define LIBRARY "libnccl"
#define STATUS  5
#define LIST    "pretend/cuda/nccl/nccl.def"
#include "pretend/cuda/missing.h"
