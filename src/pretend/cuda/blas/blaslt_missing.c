/* SPDX-License-Identifier: MIT */
/* What nothing stands behind of this library. */
#define LIBRARY "libcublasLt"
#define STATUS  15
#define LIST    "pretend/cuda/blas/blaslt.def"
#include "pretend/cuda/missing.h"
