/* SPDX-License-Identifier: MIT */
/* What nothing stands behind of this library. */
#define LIBRARY "libcublasLt"
#define STATUS  15
#define LIST    "rehearse/cuda/blas/blaslt.def"
#include "rehearse/cuda/missing.h"
