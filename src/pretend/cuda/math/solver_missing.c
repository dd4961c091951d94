/* SPDX-License-Identifier: MIT */
/* The functions of cuSOLVER that its list describes. */
#define LIBRARY   "libcusolver"
#define STATUS    9
#define NO_HANDLE 1
#define NO_MEMORY 2
#define NO_VALUE  3
#define LIST      "pretend/cuda/math/solver.def"
#include "table.h"
