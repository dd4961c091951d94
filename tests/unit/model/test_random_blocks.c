/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "model/sample/random_blocks.h"

#include <math.h>
#include <memtally/error.h>
#include <string.h>

/* A half-precision number from its definition. */
static double half(const uint8_t *at)
{
    unsigned bits = at[0] | (unsigned)at[1] << 8;
    int exponent = (int)((bits >> 10) & 31);
    double fraction = bits & 1023;
    double value = exponent == 31  ? INFINITY
                   : exponent == 0 ? ldexp(fraction, -24)
                                   : ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -value : value;
}

static void test_halves_are_the_nearest(void **state)
{
    (void)state;
    static const struct {
        float value;
        uint16_t bits;
    } known[] = {
        {0.0F, 0x0000},         {-0.0F, 0x8000},           {1.0F, 0x3c00},
        {-2.0F, 0xc000},        {65504.0F, 0x7bff},        {65520.0F, 0x7c00},
        {0x1p-14F, 0x0400},     {0x1p-24F, 0x0001},        {0x1p-26F, 0x0000},
        {0.1F, 0x2e66},         {1.0F + 0x1p-11F, 0x3c00}, {1.0F + 0x3p-11F, 0x3c02},
        {0x1.ff8p-15F, 0x03ff}, {0x1.ffcp-15F, 0x0400},    {1.9999F, 0x4000},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(mt_half_of_float(known[i].value), known[i].bits);
    for (unsigned bits = 0; bits < 0x7c00; bits++) {
        uint8_t bytes[2] = {(uint8_t)bits, (uint8_t)(bits >> 8)};
        assert_int_equal(mt_half_of_float((float)half(bytes)), bits);
    }
}

/* The weights of one block, each type from its own definition. */
static void read_floats(uint32_t type, const uint8_t *at, double *weights)
{
    uint32_t bits = type == MT_GGML_BF16 ? (uint32_t)at[0] << 16 | (uint32_t)at[1] << 24 : 0;
    float value;
    if (type == MT_GGML_F32)
        memcpy(&bits, at, 4);
    memcpy(&value, &bits, 4);
    weights[0] = type == MT_GGML_F16 ? half(at) : (double)value;
}

static void read_small_blocks(uint32_t type, const uint8_t *at, double *weights)
{
    double d = half(at);
    for (int i = 0; i < 32; i++) {
        int quant = 0;
        if (type == MT_GGML_Q8_0) {
            quant = (int8_t)at[2 + i];
            assert_int_not_equal(quant, -128);
        } else if (type == MT_GGML_Q4_0) {
            quant = (at[2 + i % 16] >> (i < 16 ? 0 : 4) & 15) - 8;
        } else {
            int high = at[2 + i / 8] >> (i % 8) & 1;
            quant = (at[6 + i % 16] >> (i < 16 ? 0 : 4) & 15) + 16 * high - 16;
        }
        weights[i] = d * quant;
    }
}

/* Each weight of q5_k has a fifth bit, in a byte for every eighth of the block. */
static void read_q4_or_q5_k(const uint8_t *at, int has_fifth, double *weights)
{
    double d = half(at), m = half(at + 2);
    const uint8_t *packed = at + 4, *fifth = at + 16, *quants = at + (has_fifth ? 48 : 16);
    for (int j = 0; j < 8; j++) {
        int scale = j < 4 ? packed[j] & 63 : (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
        int minimum = j < 4 ? packed[j + 4] & 63 : packed[j + 4] >> 4 | (packed[j] >> 6) << 4;
        for (int i = 0; i < 32; i++) {
            int quant = quants[j / 2 * 32 + i] >> (j % 2 * 4) & 15;
            quant += has_fifth && (fifth[i] >> j & 1) ? 16 : 0;
            weights[32 * j + i] = d * scale * quant - m * minimum;
        }
    }
}

static void read_q6_k(const uint8_t *at, double *weights)
{
    double d = half(at + 208);
    for (int n = 0; n < 256; n++) {
        int part = n / 128, group = n % 128 / 32, i = n % 32;
        int low = at[part * 64 + group % 2 * 32 + i] >> (group / 2 * 4) & 15;
        int high = at[128 + part * 32 + i] >> (group * 2) & 3;
        weights[n] = d * (int8_t)at[192 + n / 16] * ((low | high << 4) - 32);
    }
}

static void read_block(uint32_t type, const uint8_t *at, double *weights)
{
    if (type == MT_GGML_Q4_K || type == MT_GGML_Q5_K)
        read_q4_or_q5_k(at, type == MT_GGML_Q5_K, weights);
    else if (type == MT_GGML_Q6_K)
        read_q6_k(at, weights);
    else if (type == MT_GGML_Q8_0 || type == MT_GGML_Q4_0 || type == MT_GGML_Q5_0)
        read_small_blocks(type, at, weights);
    else
        read_floats(type, at, weights);
}

static const uint32_t all_types[] = {MT_GGML_F32,  MT_GGML_F16,  MT_GGML_BF16,
                                     MT_GGML_Q4_0, MT_GGML_Q5_0, MT_GGML_Q8_0,
                                     MT_GGML_Q4_K, MT_GGML_Q5_K, MT_GGML_Q6_K};

#define N_TYPES   (sizeof all_types / sizeof *all_types)
#define N_WEIGHTS 262144

static uint8_t bytes[N_WEIGHTS * 4], again[N_WEIGHTS * 4];

static size_t fill(const struct mt_ggml_type *type, double deviation, uint64_t seed,
                   uint64_t stream, uint8_t *at)
{
    struct mt_random_blocks blocks;
    size_t n = N_WEIGHTS / type->block_elements;
    assert_int_equal(mt_random_blocks_init(&blocks, type, deviation, seed, stream), 0);
    mt_random_blocks_fill(&blocks, at, n);
    return n;
}

static void assert_spread(const struct mt_ggml_type *type, double deviation)
{
    double sum = 0, squares = 0, largest = 0;
    size_t n = fill(type, deviation, 42, 3, bytes);
    for (size_t b = 0; b < n; b++) {
        double weights[256];
        read_block(type->number, bytes + b * type->block_bytes, weights);
        for (size_t i = 0; i < type->block_elements; i++) {
            assert_true(isfinite(weights[i]));
            sum += weights[i];
            squares += weights[i] * weights[i];
            largest = fmax(largest, fabs(weights[i]));
        }
    }
    double measured = sqrt(squares / N_WEIGHTS);
    if (fabs(sum / N_WEIGHTS) > deviation / 50 || fabs(measured / deviation - 1) > 0.05 ||
        largest > 8 * deviation)
        fail_msg("%s: mean %g, deviation %g for %g, largest %g", type->name, sum / N_WEIGHTS,
                 measured, deviation, largest);
}

static void test_weights_of_every_type_are_finite_and_spread_as_asked(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_TYPES; t++) {
        const struct mt_ggml_type *type = mt_ggml_type_by_number(all_types[t]);
        assert_spread(type, 1 / sqrt(576));
        assert_spread(type, 1 / sqrt(28672));
        assert_spread(type, 1);
    }
}

static void test_a_seed_and_a_stream_give_their_own_bytes(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_TYPES; t++) {
        const struct mt_ggml_type *type = mt_ggml_type_by_number(all_types[t]);
        size_t length = fill(type, 0.02, 1, 5, bytes) * type->block_bytes;
        fill(type, 0.02, 1, 5, again);
        assert_memory_equal(bytes, again, length);
        fill(type, 0.02, 2, 5, again);
        assert_memory_not_equal(bytes, again, length);
        fill(type, 0.02, 1, 6, again);
        assert_memory_not_equal(bytes, again, length);
    }
}

static void test_pieces_give_the_same_as_the_whole(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_TYPES; t++) {
        const struct mt_ggml_type *type = mt_ggml_type_by_number(all_types[t]);
        size_t n = fill(type, 0.02, 9, 0, bytes), done = 0;
        struct mt_random_blocks blocks;
        mt_random_blocks_init(&blocks, type, 0.02, 9, 0);
        for (size_t piece = 4; done < n; piece += 4) {
            size_t now = piece < n - done ? piece : n - done;
            mt_random_blocks_fill(&blocks, again + done * type->block_bytes, now);
            done += now;
        }
        assert_memory_equal(bytes, again, n * type->block_bytes);
    }
}

static void test_types_without_a_maker_are_refused(void **state)
{
    (void)state;
    struct mt_random_blocks blocks;
    assert_int_equal(mt_random_blocks_init(&blocks, mt_ggml_type_by_name("iq2_xs"), 0.02, 0, 0),
                     MT_EUNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_halves_are_the_nearest),
        cmocka_unit_test(test_weights_of_every_type_are_finite_and_spread_as_asked),
        cmocka_unit_test(test_a_seed_and_a_stream_give_their_own_bytes),
        cmocka_unit_test(test_pieces_give_the_same_as_the_whole),
        cmocka_unit_test(test_types_without_a_maker_are_refused),
    };
    return RUN_TESTS(tests);
}
