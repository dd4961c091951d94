/* SPDX-License-Identifier: MIT */
/* What the lists of the math libraries stand on. */
#include "math.h"

#include <stdlib.h>
#include <string.h>

#include "pretend/cuda/unknown.h"

__attribute__((weak)) CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count,
                                                CUstream stream);

int pretend_math_create(void **made, int no_memory)
{
    void *object = calloc(1, sizeof(struct pretend_math_object));
    if (!object)
        return no_memory;
    *made = object;
    return 0;
}

void pretend_math_destroy(void *object)
{
    free(object);
}

void *pretend_math_argument(va_list arguments, int n)
{
    void *argument = NULL;
    int i;
    for (i = 2; i <= n; i++)
        argument = va_arg(arguments, void *);
    return argument;
}

void pretend_math_arguments(va_list arguments, int n, void **argument)
{
    int i;
    for (i = 2; i <= n; i++)
        argument[i] = va_arg(arguments, void *);
}

void pretend_math_unknown(void *size, size_t bytes, const char *name, int *told)
{
    if (size)
        memset(size, 0, bytes);
    pretend_unknown(name, told);
}

static void set_integers(const struct pretend_math_object *handle, void *at, int value,
                         int64_t count)
{
    if (cuMemsetD32Async && count > 0)
        cuMemsetD32Async((CUdeviceptr)(uintptr_t)at, (unsigned)value, (size_t)count,
                         handle->stream);
}

void pretend_math_success(const struct pretend_math_object *handle, void *info, int64_t count)
{
    set_integers(handle, info, 0, count);
}

/* A note of what was answered in place of what a device counts, once. */
static void note_answer(const char *name, int64_t value, int *told)
{
    struct mt_account_cuda *account = pretend_cuda_account();
    char text[MT_ACCOUNT_NOTE_BYTES + 1];
    if (account)
        __atomic_fetch_add(&account->n_read_back, 1, __ATOMIC_RELAXED);
    if (__atomic_exchange_n(told, 1, __ATOMIC_RELAXED))
        return;
    snprintf(text, sizeof text, "%s counts on the device; %lld was answered.", name,
             (long long)value);
    pretend_cuda_note(text);
}

enum { RANGE_PLACES = 1002, RANGE_INTERVAL = 1003 };

int64_t pretend_math_eigenvalues(int range, int64_t n, int64_t first, int64_t last,
                                 const char *name, int *told)
{
    if (range == RANGE_PLACES)
        return last - first + 1;
    if (range == RANGE_INTERVAL)
        note_answer(name, n, told);
    return n;
}

void pretend_math_residuals(double *at, int count)
{
    if (at && count > 0)
        memset(at, 0, (size_t)count * sizeof *at);
}

void pretend_math_answer(const struct pretend_math_object *handle, void *at, int value,
                         const char *name, int *told)
{
    if (handle->pointer_mode != 0)
        set_integers(handle, at, value, 1);
    else
        memcpy(at, &value, sizeof value);
    note_answer(name, value, told);
}
