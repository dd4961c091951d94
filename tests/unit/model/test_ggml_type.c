/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "model/ggml_type.h"

#include <memtally/error.h>
#include <string.h>

/* Bits a weight, as the makers of the types state them. */
static void test_types_take_the_published_bits_per_weight(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double bits;
    } published[] = {
        {"f32", 32},        {"f16", 16},       {"bf16", 16},        {"q8_0", 8.5},
        {"q4_0", 4.5},      {"q4_1", 5},       {"q5_0", 5.5},       {"q5_1", 6},
        {"q2_K", 2.625},    {"q3_K", 3.4375},  {"q4_K", 4.5},       {"q5_K", 5.5},
        {"q6_K", 6.5625},   {"iq1_s", 1.5625}, {"iq1_m", 1.75},     {"iq2_xxs", 2.0625},
        {"iq2_xs", 2.3125}, {"iq2_s", 2.5625}, {"iq3_xxs", 3.0625}, {"iq3_s", 3.4375},
        {"iq4_nl", 4.5},    {"iq4_xs", 4.25},  {"tq1_0", 1.6875},   {"tq2_0", 2.0625},
        {"mxfp4", 4.25},    {"nvfp4", 4.5},
    };
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        const struct mt_ggml_type *type = mt_ggml_type_by_name(published[i].name);
        assert_non_null(type);
        double bits = 8.0 * type->block_bytes / type->block_elements;
        assert_true(bits == published[i].bits);
        assert_ptr_equal(mt_ggml_type_by_number(type->number), type);
    }
}

static void test_withdrawn_and_future_numbers_have_no_type(void **state)
{
    (void)state;
    static const uint32_t none[] = {4, 5, 31, 32, 33, 36, 37, 38, 1000, UINT32_MAX};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_null(mt_ggml_type_by_number(none[i]));
    assert_null(mt_ggml_type_by_name("q9_9"));
}

/* The titles of ik_llama.cpp's pull requests 83, 85, 89, 422 and 616 state 4.25, 2.1875, 4, 5.25
 * and 1.75 bits a weight; the others are by the assertions on blocks in its ggml-common.h, and what
 * a row takes beside is row_meta_size in ggml.c. */
static void test_types_of_ik_take_the_bits_that_their_author_states(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t number;
        double bits;
        uint32_t row_bytes;
    } stated[] = {
        {"iq2_k", 137, 2.375, 0},   {"iq3_k", 138, 3.4375, 0},  {"iq4_k", 139, 4.5, 0},
        {"iq5_k", 140, 5.5, 0},     {"iq6_k", 141, 6.625, 0},   {"iq4_ks", 144, 4.25, 4},
        {"iq2_ks", 145, 2.1875, 2}, {"iq4_kss", 146, 4.0, 4},   {"iq5_ks", 152, 5.25, 4},
        {"iq2_kt", 153, 2.125, 4},  {"iq3_kt", 154, 3.125, 4},  {"iq4_kt", 155, 4.0, 4},
        {"iq3_ks", 156, 3.1875, 2}, {"iq2_kl", 157, 2.6875, 2}, {"iq1_kt", 158, 1.75, 4},
        {"iq1_s_r4", 219, 1.5, 2},  {"iq1_m_r4", 229, 1.75, 2},
    };
    for (size_t i = 0; i < sizeof stated / sizeof *stated; i++) {
        const struct mt_ggml_type *type = mt_ggml_type_by_number(stated[i].number);
        assert_non_null(type);
        assert_string_equal(type->name, stated[i].name);
        assert_true(8.0 * type->block_bytes / type->block_elements == stated[i].bits);
        assert_int_equal(type->row_bytes, stated[i].row_bytes);
        assert_true(type->is_ik);
    }
}

/* ggml_row_size() of ik_llama.cpp: what a row takes beside its blocks, and the blocks. */
static void test_rows_with_a_scale_of_their_own_are_counted_with_it(void **state)
{
    (void)state;
    const struct mt_ggml_type *type = mt_ggml_type_by_name("iq4_ks");
    uint64_t elements = 0, bytes = 0;
    assert_int_equal(mt_ggml_tensor_size(type, (uint64_t[]){512, 3, 2}, 3, &elements, &bytes), 0);
    assert_int_equal(elements, 3072);
    assert_int_equal(bytes, 6 * (4 + 2 * 136));
}

/* A file in a type that is repacked in memory has the same size as without. */
static void test_interleaved_rows_take_what_plain_ones_do(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"q4_0_r8", "q4_0"},  {"q8_0_r8", "q8_0"},     {"q4_k_r4", "q4_k"},
        {"q6_k_r4", "q6_k"},  {"iq4_xs_r8", "iq4_xs"}, {"iq2_xxs_r4", "iq2_xxs"},
        {"bf16_r16", "bf16"}, {"iq4_ks_r4", "iq4_ks"}, {"iq3_s_r4", "iq3_s"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const struct mt_ggml_type *one = mt_ggml_type_by_name(pairs[i][0]);
        const struct mt_ggml_type *other = mt_ggml_type_by_name(pairs[i][1]);
        assert_non_null(one);
        assert_int_equal(one->block_bytes, other->block_bytes);
        assert_int_equal(one->block_elements, other->block_elements);
        assert_int_equal(one->row_bytes, other->row_bytes);
    }
}

static void test_a_tensor_is_counted_in_whole_blocks(void **state)
{
    (void)state;
    const struct mt_ggml_type *q4_k = mt_ggml_type_by_name("q4_k");
    uint64_t elements = 0, bytes = 0;
    assert_int_equal(mt_ggml_tensor_size(q4_k, (uint64_t[]){512, 3, 2}, 3, &elements, &bytes), 0);
    assert_int_equal(elements, 3072);
    assert_int_equal(bytes, 12 * 144);
}

static void test_what_cannot_be_counted_is_refused_and_leaves_the_outputs_alone(void **state)
{
    (void)state;
    const struct mt_ggml_type *q4_k = mt_ggml_type_by_name("q4_k");
    const struct mt_ggml_type *f32 = mt_ggml_type_by_name("f32");
    const uint64_t half = (uint64_t)1 << 32;
    uint64_t elements = 7, bytes = 8;
    assert_int_equal(mt_ggml_tensor_size(q4_k, (uint64_t[]){300}, 1, &elements, &bytes), MT_EARG);
    assert_int_equal(mt_ggml_tensor_size(f32, (uint64_t[]){3, 0}, 2, &elements, &bytes), MT_EARG);
    assert_int_equal(mt_ggml_tensor_size(f32, NULL, 0, &elements, &bytes), MT_EARG);
    assert_int_equal(mt_ggml_tensor_size(f32, (uint64_t[]){half, half}, 2, &elements, &bytes),
                     MT_ELIMIT);
    assert_int_equal(mt_ggml_tensor_size(f32, (uint64_t[]){half, half / 4}, 2, &elements, &bytes),
                     MT_ELIMIT);
    assert_int_equal(elements, 7);
    assert_int_equal(bytes, 8);
}

static void assert_stored_as(const char *wanted, uint64_t row, const char *expected)
{
    assert_string_equal(mt_ggml_type_for_row(mt_ggml_type_by_name(wanted), row)->name, expected);
}

static void test_rows_that_do_not_divide_take_the_quantisers_next_best_type(void **state)
{
    (void)state;
    assert_stored_as("q4_k", 512, "q4_k");
    assert_stored_as("q4_k", 576, "q5_0");
    assert_stored_as("q5_k", 576, "q5_1");
    assert_stored_as("q6_k", 576, "q8_0");
    assert_stored_as("q3_k", 576, "q4_0");
    assert_stored_as("iq4_xs", 576, "iq4_nl");
    assert_stored_as("q4_k", 100, "f16");
    assert_stored_as("q8_0", 100, "f16");
    assert_stored_as("bf16", 101, "bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types_take_the_published_bits_per_weight),
        cmocka_unit_test(test_withdrawn_and_future_numbers_have_no_type),
        cmocka_unit_test(test_types_of_ik_take_the_bits_that_their_author_states),
        cmocka_unit_test(test_rows_with_a_scale_of_their_own_are_counted_with_it),
        cmocka_unit_test(test_interleaved_rows_take_what_plain_ones_do),
        cmocka_unit_test(test_a_tensor_is_counted_in_whole_blocks),
        cmocka_unit_test(test_what_cannot_be_counted_is_refused_and_leaves_the_outputs_alone),
        cmocka_unit_test(test_rows_that_do_not_divide_take_the_quantisers_next_best_type),
    };
    return RUN_TESTS(tests);
}
