/* SPDX-License-Identifier: MIT */
/* What nothing stands behind of this library. */
#define LIBRARY "libcublas"
#define STATUS  15
#define LIST    "pretend/cuda/blas/blas.def"
#define WORK(...)
#define INFO(...)
#define DOT(...)
#define REDUCE(...)
#define FACTORS(...)
#define LEAST(...)
#define SOLVE(...)
#include "pretend/cuda/missing.h"
