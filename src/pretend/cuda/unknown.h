/* SPDX-License-Identifier: MIT */
/* Workspaces whose size is not documented: they count as nothing, and a note says so. */
#ifndef MT_CUDA_UNKNOWN_H
#define MT_CUDA_UNKNOWN_H

#include <stdio.h>

#include "pretend/cuda/pretend_cuda.h"
#include "rehearse/account.h"

/* Says once that nobody knows the size of the workspace of `name`. `told` is the caller's. */
static inline void pretend_unknown(const char *name, int *told)
{
    char text[MT_ACCOUNT_NOTE_BYTES + 1];

    if (__atomic_exchange_n(told, 1, __ATOMIC_RELAXED))
        return;
    snprintf(text, sizeof text, "The size that %s answers is not known and counts as nothing.",
             name);
    pretend_cuda_note(text);
}

/* The same, for one that has at least the bytes that are counted. */
static inline void pretend_at_least(const char *name, int *told)
{
    char text[MT_ACCOUNT_NOTE_BYTES + 1];

    if (__atomic_exchange_n(told, 1, __ATOMIC_RELAXED))
        return;
    snprintf(text, sizeof text, "What %s answers is not known: at least what was counted.", name);
    pretend_cuda_note(text);
}

#endif
