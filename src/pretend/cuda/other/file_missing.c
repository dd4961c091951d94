/* SPDX-License-Identifier: MIT */
/* What nothing stands behind of this library. */
#define LIBRARY "libcufile"
#define STATUS  5001
#define LIST    "pretend/cuda/other/file.def"
#include "pretend/cuda/missing.h"
