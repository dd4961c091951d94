/* SPDX-License-Identifier: MIT */
/* What the lists of the math libraries (table.h) stand on. */
#ifndef MT_CUDA_MATH_MATH_H
#define MT_CUDA_MATH_MATH_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "pretend/cuda/pretend_cuda.h"

/* A handle, and any other object that nothing is known of: what a program may set on it lies where
 * the library's own files put it. */
struct pretend_math_object {
    CUstream stream;
    int pointer_mode; /* 1: scalars lie on the device */
    int values[32];
    double reals[4];
};

int pretend_math_create(void **made, int no_memory);
void pretend_math_destroy(void *object);

/* Argument `n` of a function whose first one is a handle. */
void *pretend_math_argument(va_list arguments, int n);

/* Arguments 2 to `n`, each in its place. */
void pretend_math_arguments(va_list arguments, int n, void **argument);

/* How many of `n` eigenvalues lie in what is asked for: all, the places `first` to `last`, or an
 * interval, of which it is said that it was taken to have all. */
int64_t pretend_math_eigenvalues(int range, int64_t n, int64_t first, int64_t last,
                                 const char *name, int *told);

/* Sets `count` residuals on the host to 0; `at` may be NULL. */
void pretend_math_residuals(double *at, int count);

/* Sets a size of `bytes` bytes to 0 and says that it is not known. */
void pretend_math_unknown(void *size, size_t bytes, const char *name, int *told);

/* Sets `count` integers on the device to 0, in the order of the handle's stream. */
void pretend_math_success(const struct pretend_math_object *handle, void *info, int64_t count);

/* Sets a count or place that the device would compute to `value` and says so. */
void pretend_math_answer(const struct pretend_math_object *handle, void *at, int value,
                         const char *name, int *told);

#endif
