/* SPDX-License-Identifier: MIT */
/* Kernels of flash attention, by reading ggml_cuda_get_best_fattn_kernel of build 11434 for each
 * card. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/flash_kernel.h"
#include "engine/row_padding.h"

/* Llama 3's attention: heads of 128, four to a head of keys, a cache of whole steps. */
static struct mt_flash_attention llama(uint32_t capability, uint64_t rows, int is_quantised)
{
    return (struct mt_flash_attention){.capability = capability,
                                       .build = 11434,
                                       .head = 128,
                                       .rows = rows,
                                       .batches = 1,
                                       .ratio = 4,
                                       .cells = 8192,
                                       .is_grouped = 1,
                                       .is_quantised = is_quantised};
}

static enum mt_flash_kernel kernel(uint32_t capability, uint64_t rows, int is_quantised)
{
    struct mt_flash_attention a = llama(capability, rows, is_quantised);
    return mt_flash_choose(&a);
}

static enum mt_flash_kernel of_amd(uint32_t number, uint64_t head, uint64_t rows, uint64_t ratio)
{
    struct mt_flash_attention a = llama(MT_FLASH_AMD + number, rows, 1);
    a.head = head;
    a.ratio = ratio;
    a.is_grouped = ratio >= 2;
    return mt_flash_choose(&a);
}

/* "cc >= ADA_LOVELACE: Q->ne[1] <= 2", else 1, of a quantised cache. */
static void test_a_quantised_cache_is_read_by_vectors_for_few_rows(void **state)
{
    (void)state;
    assert_int_equal(kernel(890, 2, 1), MT_FLASH_VECTOR);
    assert_int_equal(kernel(890, 3, 1), MT_FLASH_MATRIX);
    assert_int_equal(kernel(860, 1, 1), MT_FLASH_VECTOR);
    assert_int_equal(kernel(860, 2, 1), MT_FLASH_MATRIX);
    assert_int_equal(kernel(1200, 2, 1), MT_FLASH_VECTOR);
    assert_int_equal(kernel(610, 2, 1), MT_FLASH_VECTOR);
    assert_int_equal(kernel(610, 3, 1), MT_FLASH_TILE);
}

/* Volta: vectors for at most 2 rows of a group, 4 of which are one token here; tiles up to 16. */
static void test_volta_counts_the_rows_of_a_group(void **state)
{
    (void)state;
    assert_int_equal(kernel(700, 1, 1), MT_FLASH_TILE);
    assert_int_equal(kernel(700, 4, 1), MT_FLASH_TILE);
    assert_int_equal(kernel(700, 5, 1), MT_FLASH_MATRIX);
}

/* MFMA (CDNA): heads of 64 from 9 rows of a group on, 128 from 17, 256 from 65. WMMA (RDNA 3 and
 * 4): up to 128 from 9, 256 from 17, and groups only. */
static void test_generations_of_amd_differ(void **state)
{
    (void)state;
    assert_int_equal(of_amd(0x942, 128, 2, 4), MT_FLASH_VECTOR);
    assert_int_equal(of_amd(0x942, 64, 2, 8), MT_FLASH_MATRIX);
    assert_int_equal(of_amd(0x942, 256, 9, 8), MT_FLASH_MATRIX);
    assert_int_equal(of_amd(0x942, 256, 8, 8), MT_FLASH_TILE);
    assert_int_equal(of_amd(0x950, 128, 3, 8), MT_FLASH_MATRIX);
    assert_int_equal(of_amd(0x1100, 128, 2, 8), MT_FLASH_MATRIX);
    assert_int_equal(of_amd(0x1100, 128, 2, 4), MT_FLASH_VECTOR);
    assert_int_equal(of_amd(0x1100, 128, 512, 1), MT_FLASH_TILE);
    assert_int_equal(of_amd(0x1201, 256, 2, 8), MT_FLASH_VECTOR);
    assert_int_equal(of_amd(0x1201, 256, 3, 8), MT_FLASH_MATRIX);
    assert_int_equal(of_amd(0x1030, 128, 512, 8), MT_FLASH_TILE);
    assert_int_equal(of_amd(0x906, 64, 512, 8), MT_FLASH_TILE);
}

/* GGML_CUDA_CC_IS_GCN_APU: numbers between CDNA's that are none of it. */
static void test_processors_with_graphics_have_no_matrix_kernels(void **state)
{
    (void)state;
    assert_int_equal(of_amd(0x90c, 64, 512, 8), MT_FLASH_TILE);
    assert_int_equal(of_amd(0x90a, 64, 512, 8), MT_FLASH_MATRIX);
}

/* launch_fattn of ggml-cuda/fattn-common.cuh: copies of keys, then of values, each from a whole
 * step on; values that are a part of the keys are copied with them. */
static void test_copies_lie_behind_the_output_each_from_a_whole_step_on(void **state)
{
    (void)state;
    struct mt_flash_cache cache = {.k = MT_FLASH_Q8_0,
                                   .v = MT_FLASH_Q8_0,
                                   .k_elements = 1000,
                                   .v_elements = 500,
                                   .has_any_pair = 1};
    assert_int_equal(mt_flash_bytes(&cache, MT_FLASH_MATRIX, 100, 128), 2176 + 1000);
    cache.values_are_keys = 1;
    assert_int_equal(mt_flash_bytes(&cache, MT_FLASH_MATRIX, 100, 128), 128 + 2000);
    cache.values_are_keys = 0;
    assert_int_equal(mt_flash_bytes(&cache, MT_FLASH_VECTOR, 100, 128), 100);
    cache.v = MT_FLASH_OTHER; /* a pair that no kernel was compiled for */
    assert_int_equal(mt_flash_bytes(&cache, MT_FLASH_VECTOR, 100, 128), 2176 + 1000);
    cache.has_any_pair = 0;
    assert_int_equal(mt_flash_bytes(&cache, MT_FLASH_VECTOR, 100, 128), 100);
    cache.k = MT_FLASH_F16;
    cache.v = MT_FLASH_F32; /* which no vector kernel reads */
    assert_int_equal(mt_flash_bytes(&cache, MT_FLASH_VECTOR, 100, 128), 128 + 1000);
}

/* MATRIX_ROW_PADDING is 512. */
static void test_a_row_is_padded_to_whole_steps(void **state)
{
    (void)state;
    assert_int_equal(mt_row_padding(576, 512), 448);
    assert_int_equal(mt_row_padding(4096, 512), 0);
    assert_int_equal(mt_row_padding(576, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_lie_behind_the_output_each_from_a_whole_step_on),
        cmocka_unit_test(test_a_row_is_padded_to_whole_steps),
        cmocka_unit_test(test_a_quantised_cache_is_read_by_vectors_for_few_rows),
        cmocka_unit_test(test_volta_counts_the_rows_of_a_group),
        cmocka_unit_test(test_generations_of_amd_differ),
        cmocka_unit_test(test_processors_with_graphics_have_no_matrix_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
