/* SPDX-License-Identifier: MIT */
/* The status codes of cuBLAS in words. */
#include <stddef.h>

#include "pretend/cuda/pretend_cuda.h"

#ifdef PRETEND_BLASLT
#define NAME_OF  cublasLtGetStatusName
#define WORDS_OF cublasLtGetStatusString
#else
#define NAME_OF  cublasGetStatusName
#define WORDS_OF cublasGetStatusString
#endif

static const struct {
    int value;
    const char *name;
    const char *words;
} table[] = {
#define STATUS(name, value, words) {value, #name, words},
#include "status.def"
};

const char *NAME_OF(int status);
const char *WORDS_OF(int status);

PRETEND_CALL const char *NAME_OF(int status)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].value == status)
            return table[i].name;
    return "unknown status code";
}

PRETEND_CALL const char *WORDS_OF(int status)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].value == status)
            return table[i].words;
    return "unknown status code";
}
