/* SPDX-License-Identifier: MIT */
/* What tells one architecture's layers from another's, and the checking of a shape against it. */
#ifndef MT_MODEL_ARCHITECTURE_H
#define MT_MODEL_ARCHITECTURE_H

#include <memtally/model.h>

#include "model/families.h"

enum mt_architecture_trait {
    MT_TRAIT_QKV_BIAS = 1 << 0,       /* biases on query, key and value */
    MT_TRAIT_QK_NORM = 1 << 1,        /* query and key are normalised per head */
    MT_TRAIT_POST_NORMS = 1 << 2,     /* norms after attention and after the feed-forward too */
    MT_TRAIT_WINDOW = 1 << 3,         /* most layers attend to a sliding window */
    MT_TRAIT_EXPERTS = 1 << 4,        /* layers may have experts */
    MT_TRAIT_EXPERTS_ONLY = 1 << 5,   /* and must */
    MT_TRAIT_EXPERT_LENGTH = 1 << 6,  /* experts have a feed-forward length of their own */
    MT_TRAIT_LATENT = 1 << 7,         /* multi-head latent attention */
    MT_TRAIT_SHARED_EXPERTS = 1 << 8, /* shared experts and leading dense layers */
    MT_TRAIT_ROPE_FACTORS = 1 << 9,   /* the file may hold rope frequency factors */
    MT_TRAIT_SQUARE_OUTPUT = 1 << 10, /* heads times head size is the embedding length */
};

struct mt_architecture {
    enum mt_arch arch;
    unsigned traits;
};

/* Puts defaults in place of what `shape` leaves open, checks it, and fills *full and *architecture.
 * After success: every count is at most 2^24, heads times head size at most 2^32, heads are a
 * multiple of kv_heads, head_size is even, and there are no experts where the architecture has
 * none. Errors: MT_EARG, MT_ELIMIT; the text names the field. */
int mt_model_shape_complete(const struct mt_model_shape *shape, struct mt_model_shape *full,
                            const struct mt_architecture **architecture, struct mt_error *error);

#endif
