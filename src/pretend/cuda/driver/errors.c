/* SPDX-License-Identifier: MIT */
/* The names and the words of errors. */
#include <stddef.h>

#include <memtally/error.h>

#include "pretend/cuda/abi/driver_calls.h"

struct error {
    int code;
    const char *name, *text;
};

static const struct error errors[] = {
#define ERROR(code, driver, runtime, text) {code, #driver, text},
#define RUNTIME_ERROR(...)
#include "pretend/cuda/abi/errors.def"
};

static const struct error *find(CUresult code)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == (int)code)
            return &errors[i];
    return NULL;
}

PRETEND_CALL CUresult cuGetErrorString(CUresult code, const char **text)
{
    const struct error *error = find(code);
    if (!text)
        return CUDA_ERROR_INVALID_VALUE;
    *text = error ? error->text : NULL;
    return error ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

PRETEND_CALL CUresult cuGetErrorName(CUresult code, const char **name)
{
    const struct error *error = find(code);
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    *name = error ? error->name : NULL;
    return error ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
