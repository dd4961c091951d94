/* SPDX-License-Identifier: MIT */
/* What nothing stands behind of this library. */
#define LIBRARY "libcufile"
#define STATUS  5001
#define LIST    "rehearse/cuda/other/file.def"
#include "rehearse/cuda/missing.h"
