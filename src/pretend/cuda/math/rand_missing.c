/* SPDX-License-Identifier: MIT */
/* The functions of curand that its list describes. */
#define LIBRARY   "libcurand"
#define STATUS    999
#define NO_HANDLE 101
#define NO_MEMORY 2
#define NO_VALUE  3
#define LIST      "pretend/cuda/math/rand.def"
#include "table.h"
