/* SPDX-License-Identifier: MIT */
/* The functions of cuSPARSE that its list describes. */
#define LIBRARY   "libcusparse"
#define STATUS    10
#define NO_HANDLE 1
#define NO_MEMORY 2
#define NO_VALUE  3
#define LIST      "pretend/cuda/math/sparse.def"
#include "table.h"
