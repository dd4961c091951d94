/* SPDX-License-Identifier: MIT */
/* What nothing stands behind of this library, and what computes. */
#define LIBRARY   "libcudnn"
#define STATUS    3000
#define NO_HANDLE 2000
#define LIST      "pretend/cuda/dnn/dnn.def"
#include "pretend/cuda/missing.h"
