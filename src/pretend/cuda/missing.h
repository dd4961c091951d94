/* SPDX-License-Identifier: MIT */
/* A function for each name of a library's list that nothing stands behind. A file that includes
 * this says which list, which library and which status:
 *
 *     #define LIBRARY "libcufft"
 *     #define STATUS  16
 *     #define LIST    "pretend/cuda/math/fft.def"
 *     #include "pretend/cuda/missing.h"
 *
 * It must include no other header of that library's functions: here they take no arguments. */
#include "pretend_cuda.h"

#ifndef CALL
#define CALL(...)
#endif
#ifndef WORK
/* What computes is left undone and succeeds; its first argument is the library's handle. */
#ifndef NO_HANDLE
#define NO_HANDLE 1
#endif
#define WORK(name, ...)                                                                            \
    PRETEND_CALL int name(const void *handle);                                                     \
    PRETEND_CALL int name(const void *handle)                                                      \
    {                                                                                              \
        return handle ? 0 : NO_HANDLE;                                                             \
    }
#endif
#ifndef MISSING
#define MISSING(name, ...)                                                                         \
    PRETEND_CALL int name(void);                                                                   \
    PRETEND_CALL int name(void)                                                                    \
    {                                                                                              \
        static int told;                                                                           \
        return pretend_cuda_missing(LIBRARY, #name, &told, STATUS);                                \
    }
#endif
#include LIST
