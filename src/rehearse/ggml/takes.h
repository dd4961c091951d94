/* SPDX-License-Identifier: MIT */
/* A question that the tables of operations answer: does this device compute this operation? */
#ifndef MT_REHEARSE_GGML_TAKES_H
#define MT_REHEARSE_GGML_TAKES_H

#include "rehearse/ggml/world.h"

struct pretend_ask {
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

#endif
