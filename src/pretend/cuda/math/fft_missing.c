/* SPDX-License-Identifier: MIT */
/* The functions of cufft that its list describes. */
#define LIBRARY   "libcufft"
#define STATUS    16
#define NO_HANDLE 1
#define NO_MEMORY 2
#define NO_VALUE  3
#define LIST      "pretend/cuda/math/fft.def"
#include "table.h"
