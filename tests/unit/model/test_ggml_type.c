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
        cmocka_unit_test(test_a_tensor_is_counted_in_whole_blocks),
        cmocka_unit_test(test_what_cannot_be_counted_is_refused_and_leaves_the_outputs_alone),
        cmocka_unit_test(test_rows_that_do_not_divide_take_the_quantisers_next_best_type),
    };
    return RUN_TESTS(tests);
}
