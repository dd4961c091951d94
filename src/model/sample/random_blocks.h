/* SPDX-License-Identifier: MIT */
/* Random weights as blocks of a tensor type: valid blocks with finite scales, spread about 0. */
#ifndef MT_MODEL_RANDOM_BLOCKS_H
#define MT_MODEL_RANDOM_BLOCKS_H

#include "model/ggml_type.h"

#define MT_RANDOM_LEVELS 4096
#define MT_RANDOM_SCALES 64

/* The state of one tensor's blocks, 16 KiB. */
struct mt_random_blocks {
    const struct mt_ggml_type *type;
    uint64_t state;
    union {
        uint32_t words[MT_RANDOM_LEVELS];  /* f32 */
        uint16_t halves[MT_RANDOM_LEVELS]; /* f16, bf16 */
        struct {
            uint16_t
                scale[MT_RANDOM_SCALES]; /* f16; every other one is negative but for q4_k, q5_k */
            uint16_t minimum[MT_RANDOM_SCALES]; /* f16 */
        } quantised;
    } table;
};

/* Weights of standard deviation `deviation`, from a bell with tails; those of `stream` are
 * independent of any other stream of the same seed. Returns 0, or MT_EUNSUPPORTED for a type other
 * than f32, f16, bf16, q4_0, q5_0, q8_0, q4_k, q5_k, q6_k. */
int mt_random_blocks_init(struct mt_random_blocks *blocks, const struct mt_ggml_type *type,
                          double deviation, uint64_t seed, uint64_t stream);

/* All weights equal to `value`, for f32 only. */
void mt_random_blocks_init_constant(struct mt_random_blocks *blocks, float value);

/* Writes `n_blocks` blocks at `at`. Any division into calls gives the same bytes, as long as all
 * calls but the last are for a multiple of 4 blocks. */
void mt_random_blocks_fill(struct mt_random_blocks *blocks, uint8_t *at, size_t n_blocks);

/* The nearest IEEE half-precision number, as bits; infinity where it is too large. */
uint16_t mt_half_of_float(float value);

#endif
