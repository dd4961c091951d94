/* SPDX-License-Identifier: MIT */
/* Names and texts of error codes. */
#include "runtime.h"

static const struct text {
    int code;
    const char *name, *text;
} texts[] = {
#define ERROR(code, driver, runtime, text) {code, #runtime, text},
#define RUNTIME_ERROR(code, runtime, text) {code, #runtime, text},
#include "pretend/cuda/abi/errors.def"
};

static const struct text *find(int code)
{
    static const struct text none = {-1, "unrecognized error code", "unrecognized error code"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].code == code)
            return &texts[i];
    return &none;
}

PRETEND_CALL const char *cudaGetErrorName(cudaError_t code);
PRETEND_CALL const char *cudaGetErrorName(cudaError_t code)
{
    return find(code)->name;
}

PRETEND_CALL const char *cudaGetErrorString(cudaError_t code);
PRETEND_CALL const char *cudaGetErrorString(cudaError_t code)
{
    return find(code)->text;
}
