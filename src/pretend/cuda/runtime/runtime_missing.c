/* SPDX-License-Identifier: MIT */
/* What nothing stands behind of the runtime of this version. */
#define LIBRARY "libcudart"
#define STATUS  801
#define LIST    "pretend/cuda/runtime/runtime.def"
#define CALL_12(...)
#define CALL_13(...)
#if RUNTIME_VERSION < 13000
#define MISSING_12(name) MISSING(name)
#define MISSING_13(...)
#else
#define MISSING_12(...)
#define MISSING_13(name) MISSING(name)
#endif
#include "pretend/cuda/missing.h"
