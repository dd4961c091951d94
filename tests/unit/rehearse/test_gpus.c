/* SPDX-License-Identifier: MIT */
/* The table of GPUs: what it says of cards, and by which names they are found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "rehearse/gpus.h"

static const uint64_t mib = UINT64_C(1) << 20;

static struct mt_gpu_row find(const char *name)
{
    struct mt_gpu_row row;
    struct mt_error error = {0};
    if (mt_gpu_find(name, &row, &error) < 0)
        fail_msg("%s", error.text);
    return row;
}

/* NVIDIA's white paper of the H100 and the programming guide's table of capability 9.0. */
static void test_an_h100_is_as_its_papers_say(void **state)
{
    (void)state;
    struct mt_gpu_row row = find("H100-80GB");
    assert_string_equal(row.gpu.name, "NVIDIA H100 80GB HBM3");
    assert_int_equal(row.gpu.capability, 90);
    assert_int_equal(row.gpu.multiprocessors, 132);
    assert_int_equal(row.gpu.shared_bytes, 228 * 1024);
    assert_int_equal(row.gpu.shared_block_bytes, 227 * 1024);
    assert_int_equal(row.gpu.threads_most, 2048);
    assert_int_equal(row.gpu.blocks_most, 32);
    assert_int_equal(row.gpu.l2_bytes, 50 * mib);
    assert_int_equal(row.gpu.clock_khz, 1980000);
    assert_int_equal(row.gpu.memory_bus_bits, 5120);
    assert_int_equal(row.gpu.link, MT_GPU_LINK_NVLINK);
    assert_int_equal(row.gpu.is_ecc, 1);
    /* 79.18 GiB in the logs of vLLM. */
    assert_in_range(row.memory_bytes * 100 >> 30, 7917, 7918);
    assert_int_equal(row.gpu.context_bytes, 502 * mib);
    assert_int_equal(row.context_low_bytes, 480 * mib);
    assert_int_equal(row.context_high_bytes, 620 * mib);
}

static void test_a_name_is_found_however_it_is_written(void **state)
{
    (void)state;
    static const char *const names[] = {"h100", "H100-80GB", "h100 80g", "NVIDIA H100 80GB HBM3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_string_equal(find(names[i]).key, "H100-80GB");
    assert_string_equal(find("RTX 3090").key, "RTX3090");
    assert_string_equal(find("4090").key, "RTX4090");
}

static void test_the_cards_that_were_asked_for_are_there(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t capability;
        uint32_t multiprocessors;
    } cards[] = {
        {"A10", 86, 72},     {"A100-40GB", 80, 108}, {"A100-80GB", 80, 108}, {"L4", 89, 58},
        {"L40S", 89, 142},   {"H100-80GB", 90, 132}, {"H200", 90, 132},      {"B200", 100, 148},
        {"RTX3090", 86, 82}, {"RTX4090", 89, 128},   {"RTX5090", 120, 170},  {"T4", 75, 40},
    };
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        struct mt_gpu_row row = find(cards[i].name);
        assert_int_equal(row.gpu.capability, cards[i].capability);
        assert_int_equal(row.gpu.multiprocessors, cards[i].multiprocessors);
    }
}

static void test_every_card_has_every_value_and_bands_in_order(void **state)
{
    (void)state;
    struct mt_gpu_row row;
    size_t n = 0;
    for (; mt_gpu_row_at(n, &row); n++) {
        const struct mt_account_gpu *gpu = &row.gpu;
        assert_true(*gpu->name && gpu->capability && gpu->multiprocessors && gpu->clock_khz);
        assert_true(gpu->shared_bytes >= gpu->shared_block_bytes && gpu->shared_block_bytes);
        assert_true(gpu->threads_most && gpu->blocks_most && gpu->l2_bytes);
        assert_true(gpu->memory_clock_khz && gpu->memory_bus_bits && gpu->is_ecc <= 1);
        assert_true(row.memory_bytes > UINT64_C(14) << 30);
        assert_true(row.context_low_bytes <= gpu->context_bytes && row.context_low_bytes);
        assert_true(gpu->context_bytes <= row.context_high_bytes);
        assert_true(row.module_low_bytes <= gpu->module_bytes && row.module_low_bytes);
        assert_true(gpu->module_bytes <= row.module_high_bytes);
        assert_true(row.communication_low_bytes <= gpu->communication_bytes);
        assert_true(gpu->communication_bytes <= row.communication_high_bytes);
        assert_string_equal(find(row.key).key, row.key);
    }
    assert_true(n >= 12);
}

static void test_a_size_is_the_card_nearest_to_it(void **state)
{
    (void)state;
    static const struct {
        uint64_t gib;
        const char *key;
    } sizes[] = {{16, "T4"}, {1, "T4"}, {80, "H100-80GB"}, {141, "H200"}, {1000, "B200"}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct mt_gpu_row row;
        mt_gpu_nearest(sizes[i].gib << 30, &row);
        assert_string_equal(row.key, sizes[i].key);
    }
}

/* A10 and A10G answer the same size, 22600 MiB. */
static void test_of_cards_of_one_size_the_first_is_taken(void **state)
{
    (void)state;
    struct mt_gpu_row row;
    mt_gpu_nearest(UINT64_C(22600) << 20, &row);
    assert_string_equal(row.key, "A10");
}

static void test_a_name_that_is_none_says_which_are_near(void **state)
{
    (void)state;
    struct mt_gpu_row row;
    struct mt_error error = {0};
    assert_int_equal(mt_gpu_find("rtx40", &row, &error), MT_EARG);
    assert_non_null(strstr(error.text, "RTX4090"));
    assert_null(strstr(error.text, "H100"));
    assert_int_equal(mt_gpu_find("", &row, &error), MT_EARG);
}

static void test_the_public_list_has_the_same_cards(void **state)
{
    (void)state;
    struct mt_rehearse_gpu gpu;
    struct mt_gpu_row row;
    size_t n = 0;
    for (; mt_rehearse_gpu_at(n, &gpu) == 0; n++) {
        assert_true(mt_gpu_row_at(n, &row));
        assert_string_equal(gpu.key, row.key);
        assert_int_equal(gpu.memory_bytes, row.memory_bytes);
    }
    assert_false(mt_gpu_row_at(n, &row));
    assert_int_equal(mt_rehearse_gpu_find("a100", &gpu, NULL), 0);
    assert_string_equal(gpu.key, "A100-80GB");
    assert_int_equal(gpu.capability, 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_h100_is_as_its_papers_say),
        cmocka_unit_test(test_a_name_is_found_however_it_is_written),
        cmocka_unit_test(test_the_cards_that_were_asked_for_are_there),
        cmocka_unit_test(test_every_card_has_every_value_and_bands_in_order),
        cmocka_unit_test(test_a_size_is_the_card_nearest_to_it),
        cmocka_unit_test(test_of_cards_of_one_size_the_first_is_taken),
        cmocka_unit_test(test_a_name_that_is_none_says_which_are_near),
        cmocka_unit_test(test_the_public_list_has_the_same_cards),
    };
    return cmocka_run_group_tests_name("gpus", tests, NULL, NULL);
}
