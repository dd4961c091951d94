/* SPDX-License-Identifier: MIT */
/* A question that the tables of operations answer: does this device compute this operation? */
#ifndef MT_REHEARSAL_GGML_TAKES_H
#define MT_REHEARSAL_GGML_TAKES_H

#include <string.h>

#include "world.h"

#define HALVES (TYPES(F16) | TYPES(BF16))
#define FLOATS (TYPES(F32) | HALVES)
#define LEGACY (TYPES(Q4_0) | TYPES(Q4_1) | TYPES(Q5_0) | TYPES(Q5_1) | TYPES(Q8_0))
#define FROM_K (TYPES(Q2_K) | TYPES(Q3_K) | TYPES(Q4_K) | TYPES(Q5_K) | TYPES(Q6_K))
#define FROM_I                                                                                     \
    (TYPES(IQ1_S) | TYPES(IQ1_M) | TYPES(IQ2_XXS) | TYPES(IQ2_XS) | TYPES(IQ2_S) |                 \
     TYPES(IQ3_XXS) | TYPES(IQ3_S) | TYPES(IQ4_XS))

struct pretend_ask {
    const struct pretend_device *device;
    struct pretend_world *world;
    struct pretend_ggml *ggml;
    const struct mt_pretend_rules *rules;
    const struct ggml_tensor *op, *a, *b; /* a, b: the first sources, or NULL */
    uint64_t ta, tb, tr;                  /* TYPES() of a, b and the result; 0 where NULL */
    enum pretend_op what;
};

typedef int pretend_answer(const struct pretend_ask *ask);

/* Answers by operation; NULL is no. takes_cuda.c, takes_vulkan.c, takes_metal.c */
pretend_answer *pretend_answer_cuda(enum pretend_op what);
pretend_answer *pretend_answer_vulkan(enum pretend_op what);
pretend_answer *pretend_answer_metal(enum pretend_op what);

static inline int pretend_is_one_of(uint64_t type, uint64_t types)
{
    return (type & types) != 0;
}

static inline int pretend_yes(const struct pretend_ask *ask)
{
    (void)ask;
    return 1;
}

static inline int pretend_is_contiguous(const struct pretend_ask *ask)
{
    return pretend_is_whole_from(ask->ggml, ask->a, 0);
}

static inline int pretend_are_contiguous(const struct pretend_ask *ask)
{
    return pretend_is_contiguous(ask) && ask->b && pretend_is_whole_from(ask->ggml, ask->b, 0);
}

static inline int pretend_has_whole_rows(const struct pretend_ask *ask)
{
    return pretend_is_contiguous_rows(ask->ggml, ask->a);
}

static inline int pretend_all_f32(const struct pretend_ask *ask)
{
    for (int i = 0; i < 4; i++)
        if (ask->op->src[i] && pretend_types_of(ask->ggml, ask->op->src[i]) != TYPES(F32))
            return 0;
    return ask->tr == TYPES(F32);
}

static inline int pretend_is_word_of(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return 1;
    return 0;
}

#endif
