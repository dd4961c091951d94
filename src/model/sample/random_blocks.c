/* SPDX-License-Identifier: MIT */
/* Makes blocks as fast as a disk takes them: a random word picks entries of a small table, or is
 * itself the quantised weights. What a block means is in the comment of its maker; d, m and s are
 * its scales. Knows nothing of files. */
#include "random_blocks.h"

#include <math.h>
#include <memtally/error_code.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensor data are little-endian and are written as they lie in memory"
#endif

/* Root mean square of uniformly random quants, times that of the block's integer scales. */
#define SPREAD_Q4_0 4.61           /* -8 … 7 */
#define SPREAD_Q5_0 9.23           /* -16 … 15 */
#define SPREAD_Q8_0 73.9           /* -127 … 127 */
#define SPREAD_Q4_K (4.61 * 48.4)  /* 0 … 15 less 7.5, scales 32 … 63 */
#define SPREAD_Q5_K (9.23 * 48.4)  /* 0 … 31 less 15.5, scales 32 … 63 */
#define SPREAD_Q6_K (18.47 * 97.3) /* -32 … 31, scales 64 … 127 */

/* SplitMix64 (Steele, Lea and Flood, 2014). */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

static uint64_t next(uint64_t *state)
{
    return mix(*state += 0x9e3779b97f4a7c15U);
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

uint16_t mt_half_of_float(float value)
{
    uint16_t sign = (uint16_t)((bits_of(value) >> 16) & 0x8000);
    double magnitude = fabs((double)value);
    if (magnitude >= 65520.0)
        return (uint16_t)(sign | 0x7c00);
    /* Below 2^-14 halves are multiples of 2^-24; above, a carry of the rounded fraction into the
     * exponent is what is wanted. */
    int exponent = magnitude < 0x1p-14 ? -14 : ilogb(magnitude);
    int fraction = (int)lrint(ldexp(magnitude, 10 - exponent));
    int biased = (exponent + 14) << 10;
    return (uint16_t)(sign | (uint16_t)(biased + fraction));
}

static uint16_t bfloat_of_float(float value)
{
    uint32_t bits = bits_of(value);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* The level at `index` of a logistic bell, which resembles trained weights in having tails. */
static float level(int index, double deviation)
{
    double share = (index + 0.5) / MT_RANDOM_LEVELS;
    return (float)(deviation * log(share / (1 - share)) * 0.5513288954217921); /* sqrt(3) / pi */
}

static void fill_levels(struct mt_random_blocks *blocks, double deviation)
{
    for (int i = 0; i < MT_RANDOM_LEVELS; i++) {
        float value = level(i, deviation);
        if (blocks->type->number == MT_GGML_F32)
            blocks->table.words[i] = bits_of(value);
        else if (blocks->type->number == MT_GGML_F16)
            blocks->table.halves[i] = mt_half_of_float(value);
        else
            blocks->table.halves[i] = bfloat_of_float(value);
    }
}

/* Scales differ from block to block by a quarter either way. Quants that are not symmetric about 0
 * get scales of either sign, so that the weights are. */
static void fill_scales(struct mt_random_blocks *blocks, double unit)
{
    int is_five = blocks->type->number == MT_GGML_Q5_K;
    int may_be_negative = !is_five && blocks->type->number != MT_GGML_Q4_K;
    double middle = is_five ? 15.5 : 7.5;
    for (int i = 0; i < MT_RANDOM_SCALES; i++) {
        double scale = unit * (0.75 + i * (0.5 / (MT_RANDOM_SCALES - 1)));
        int negative = may_be_negative && i % 2;
        blocks->table.quantised.scale[i] = mt_half_of_float((float)(negative ? -scale : scale));
        blocks->table.quantised.minimum[i] = mt_half_of_float((float)(middle * scale));
    }
}

int mt_random_blocks_init(struct mt_random_blocks *blocks, const struct mt_ggml_type *type,
                          double deviation, uint64_t seed, uint64_t stream)
{
    blocks->type = type;
    blocks->state = mix(mix(seed) ^ (stream * 0x9e3779b97f4a7c15U));
    switch (type->number) {
    case MT_GGML_F32:
    case MT_GGML_F16:
    case MT_GGML_BF16:
        fill_levels(blocks, deviation);
        return 0;
    case MT_GGML_Q4_0:
        fill_scales(blocks, deviation / SPREAD_Q4_0);
        return 0;
    case MT_GGML_Q5_0:
        fill_scales(blocks, deviation / SPREAD_Q5_0);
        return 0;
    case MT_GGML_Q8_0:
        fill_scales(blocks, deviation / SPREAD_Q8_0);
        return 0;
    case MT_GGML_Q4_K:
        fill_scales(blocks, deviation / SPREAD_Q4_K);
        return 0;
    case MT_GGML_Q5_K:
        fill_scales(blocks, deviation / SPREAD_Q5_K);
        return 0;
    case MT_GGML_Q6_K:
        fill_scales(blocks, deviation / SPREAD_Q6_K);
        return 0;
    default:
        return MT_EUNSUPPORTED;
    }
}

void mt_random_blocks_init_constant(struct mt_random_blocks *blocks, float value)
{
    blocks->type = mt_ggml_type_by_number(MT_GGML_F32);
    blocks->state = 0;
    for (int i = 0; i < MT_RANDOM_LEVELS; i++)
        blocks->table.words[i] = bits_of(value);
}

static void put_random(uint64_t *state, uint8_t *at, size_t length)
{
    for (size_t i = 0; i < length; i += 8) {
        uint64_t word = next(state);
        memcpy(at + i, &word, length - i < 8 ? length - i : 8);
    }
}

static void put_half(uint8_t *at, uint16_t half)
{
    memcpy(at, &half, sizeof half);
}

static void fill_words(struct mt_random_blocks *blocks, uint8_t *at, size_t n)
{
    uint64_t random = 0;
    for (size_t i = 0; i < n; i++, random >>= 16) {
        if (i % 4 == 0)
            random = next(&blocks->state);
        memcpy(at + 4 * i, &blocks->table.words[random % MT_RANDOM_LEVELS], 4);
    }
}

static void fill_halves(struct mt_random_blocks *blocks, uint8_t *at, size_t n)
{
    uint64_t random = 0;
    for (size_t i = 0; i < n; i++, random >>= 16) {
        if (i % 4 == 0)
            random = next(&blocks->state);
        memcpy(at + 2 * i, &blocks->table.halves[random % MT_RANDOM_LEVELS], 2);
    }
}

/* q4_0, q5_0: d, then unsigned quants less half their range. */
static void make_plain(struct mt_random_blocks *blocks, uint8_t *at)
{
    uint64_t pick = next(&blocks->state) % MT_RANDOM_SCALES;
    put_half(at, blocks->table.quantised.scale[pick]);
    put_random(&blocks->state, at + 2, blocks->type->block_bytes - 2);
}

/* q8_0: d, then signed bytes, of which quantisers never write -128. */
static void make_q8_0(struct mt_random_blocks *blocks, uint8_t *at)
{
    make_plain(blocks, at);
    for (size_t i = 2; i < 34; i++)
        at[i] = at[i] == 0x80 ? 0x81 : at[i];
}

/* q4_k: d, m, then s[8] and t[8] of 6 bits each in 12 bytes, then 4-bit quants: the weight is
 * d s q - m t. With t = s and m = 7.5 d it is symmetric about 0. */
static void make_k_scales(struct mt_random_blocks *blocks, uint8_t *at)
{
    uint64_t pick = next(&blocks->state) % MT_RANDOM_SCALES;
    uint64_t random = next(&blocks->state);
    put_half(at, blocks->table.quantised.scale[pick]);
    put_half(at + 2, blocks->table.quantised.minimum[pick]);
    for (int j = 0; j < 4; j++) {
        uint8_t low = (uint8_t)(32 + ((random >> (8 * j)) & 31));
        uint8_t high = (uint8_t)(32 + ((random >> (8 * j + 32)) & 31));
        at[4 + j] = at[8 + j] = (uint8_t)(low | ((high >> 4) << 6));
        at[12 + j] = (uint8_t)((high & 15) | ((high & 15) << 4));
    }
}

static void make_q4_k(struct mt_random_blocks *blocks, uint8_t *at)
{
    make_k_scales(blocks, at);
    put_random(&blocks->state, at + 16, 128);
}

/* The same with a fifth bit of each weight between. */
static void make_q5_k(struct mt_random_blocks *blocks, uint8_t *at)
{
    make_k_scales(blocks, at);
    put_random(&blocks->state, at + 16, 32 + 128);
}

/* q6_k: 4 low bits and 2 high bits of unsigned quants less 32, s[16] signed bytes, d. */
static void make_q6_k(struct mt_random_blocks *blocks, uint8_t *at)
{
    uint64_t pick = next(&blocks->state) % MT_RANDOM_SCALES;
    put_random(&blocks->state, at, 208);
    for (size_t i = 192; i < 208; i++) {
        uint8_t scale = (uint8_t)(64 + (at[i] & 63));
        at[i] = at[i] & 0x80 ? (uint8_t)(256 - scale) : scale;
    }
    put_half(at + 208, blocks->table.quantised.scale[pick]);
}

static void fill_blocks(struct mt_random_blocks *blocks, uint8_t *at, size_t n_blocks,
                        void (*make)(struct mt_random_blocks *, uint8_t *))
{
    for (size_t i = 0; i < n_blocks; i++)
        make(blocks, at + i * blocks->type->block_bytes);
}

void mt_random_blocks_fill(struct mt_random_blocks *blocks, uint8_t *at, size_t n_blocks)
{
    switch (blocks->type->number) {
    case MT_GGML_F32:
        fill_words(blocks, at, n_blocks);
        break;
    case MT_GGML_F16:
    case MT_GGML_BF16:
        fill_halves(blocks, at, n_blocks);
        break;
    case MT_GGML_Q8_0:
        fill_blocks(blocks, at, n_blocks, make_q8_0);
        break;
    case MT_GGML_Q4_K:
        fill_blocks(blocks, at, n_blocks, make_q4_k);
        break;
    case MT_GGML_Q5_K:
        fill_blocks(blocks, at, n_blocks, make_q5_k);
        break;
    case MT_GGML_Q6_K:
        fill_blocks(blocks, at, n_blocks, make_q6_k);
        break;
    default:
        fill_blocks(blocks, at, n_blocks, make_plain);
        break;
    }
}
