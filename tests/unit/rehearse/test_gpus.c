/* SPDX-License-Identifier: MIT */
/* The table of GPUs: what it says of cards, and by which names they are found. */
#include <memtally/gpu.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <memtally/error.h>

#include "gpu/gpus.h"

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
    /* 502 (vLLM), 527 (llama.cpp) and 543 MiB (vLLM) were measured. */
    assert_int_equal(row.gpu.context_bytes, 527 * mib);
    assert_in_range(row.context.low_bytes, 500 * mib, 502 * mib); /* 5 % */
    assert_in_range(row.context.high_bytes, 553 * mib, 554 * mib);
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

static void assert_band(const struct mt_gpu_band *band)
{
    assert_true(band->low_bytes <= band->bytes && band->bytes <= band->high_bytes);
    assert_true(band->bytes && band->high_bytes > band->bytes);
}

static void test_every_card_has_every_value_and_bands_in_order(void **state)
{
    (void)state;
    struct mt_gpu_row row;
    size_t n = 0;
    for (; mt_gpu_row_at(n, &row) && !strcmp(row.kind, "cuda"); n++) {
        const struct mt_gpu_spec *gpu = &row.gpu;
        assert_true(*gpu->name && gpu->capability && gpu->multiprocessors && gpu->clock_khz);
        assert_true(gpu->shared_bytes >= gpu->shared_block_bytes && gpu->shared_block_bytes);
        assert_true(gpu->threads_most && gpu->blocks_most && gpu->l2_bytes);
        assert_true(gpu->memory_clock_khz && gpu->memory_bus_bits && gpu->is_ecc <= 1);
        assert_in_range(row.memory_bytes, UINT64_C(3) << 30, UINT64_C(300) << 30);
        assert_band(&row.context);
        assert_band(&row.modules);
        assert_band(&row.communication);
        assert_band(&row.communication_many);
        assert_band(&row.graph_node);
        assert_int_equal(gpu->context_bytes, row.context.bytes);
        assert_true(*mt_gpu_generation(gpu->capability));
    }
    assert_true(n >= 70);
}

static const char *of_size(double gib, const char *generation)
{
    static struct mt_gpu_row row;
    struct mt_error error = {0};
    if (mt_gpu_of_size((uint64_t)(gib * (double)(UINT64_C(1) << 30)), generation, &row, &error) < 0)
        fail_msg("%s", error.text);
    return row.key;
}

/* A card that is usual in that size, and of a generation that today's engines still run on. */
static void test_a_size_is_a_usual_card_of_it(void **state)
{
    (void)state;
    assert_string_equal(of_size(8, NULL), "RTX3070");
    assert_string_equal(of_size(12, NULL), "RTX3060");
    assert_string_equal(of_size(16, NULL), "RTX4060Ti-16GB");
    assert_string_equal(of_size(24, NULL), "RTX3090");
    assert_string_equal(of_size(80, NULL), "H100-80GB");
    assert_string_equal(of_size(141, NULL), "H200");
    assert_string_equal(of_size(1000, NULL), "B200");
}

static void test_a_generation_chooses_among_its_own_cards(void **state)
{
    (void)state;
    struct mt_gpu_row row;
    struct mt_error error = {0};
    assert_string_equal(of_size(16, "turing"), "T4");
    assert_string_equal(of_size(24, "Ada"), "RTX4090");
    assert_string_equal(of_size(80, "8.0"), "A100-80GB");
    assert_string_equal(of_size(32, "volta"), "V100-32GB");
    assert_int_equal(mt_gpu_of_size(mib, "ada love", &row, &error), MT_EARG);
    assert_non_null(strstr(error.text, "blackwell"));
}

/* 1.85 KiB for each of 40 x 1024 threads of a T4, of which no context was measured. */
static void test_a_card_that_was_not_measured_has_the_context_of_the_law(void **state)
{
    (void)state;
    struct mt_gpu_row row = find("T4");
    assert_false(row.is_measured);
    assert_in_range(row.context.bytes, 106 * mib, 107 * mib);
    assert_in_range(row.context.low_bytes, 81 * mib, 82 * mib);
    row = find("B200");
    assert_in_range(row.context.bytes, 580 * mib, 581 * mib);
    assert_in_range(row.context.high_bytes, 626 * mib, 628 * mib); /* 8 % */
    assert_in_range(row.modules.bytes, 108 * mib, 109 * mib);      /* 148 x 0.73 */
}

static void test_a_name_of_two_sizes_has_another(void **state)
{
    (void)state;
    struct mt_gpu_row row = find("A100"), other;
    assert_true(mt_gpu_has_other_size("A100", &row, &other));
    assert_string_equal(other.key, "A100-40GB");
    row = find("RTX 3080");
    assert_false(mt_gpu_has_other_size("RTX 3080", &row, &other));
    row = find("A100-80GB");
    assert_false(mt_gpu_has_other_size("A100-80GB", &row, &other));
}

static void test_cards_of_amd_and_apple_have_a_size_and_no_context(void **state)
{
    (void)state;
    struct mt_gpu_row row = find("RX 7900 XTX");
    assert_string_equal(row.kind, "rocm");
    assert_int_equal(row.memory_bytes, 24560 * mib);
    assert_string_equal(mt_gpu_generation(row.gpu.capability), "rdna3"); /* gfx1100 */
    assert_string_equal(mt_gpu_generation(find("MI355X").gpu.capability), "cdna4");
    assert_string_equal(mt_gpu_generation(MT_GPU_AMD + 0x1036), "rdna2");
    assert_string_equal(mt_gpu_generation(MT_GPU_AMD + 0x803), "");
    assert_int_equal(row.context.bytes, 0);
    row = find("apple-16gb"); /* 11453.25 MB by Metal's own word */
    assert_string_equal(row.kind, "metal");
    assert_in_range(row.memory_bytes, 11453000000 - mib, 11453500000 + mib);
}

static void test_no_two_cards_have_a_name_in_common(void **state)
{
    (void)state;
    struct mt_gpu_row row;
    for (const char *at = NULL; (at = mt_gpu_next(at, &row)) != NULL;) {
        char also[sizeof row.also];
        assert_string_equal(find(row.key).key, row.key);
        assert_string_equal(find(row.gpu.name).gpu.name, row.gpu.name);
        memcpy(also, row.also, sizeof also);
        for (char *name = strtok(also, " "); name; name = strtok(NULL, " "))
            assert_string_equal(find(name).key, row.key);
    }
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
    struct mt_rehearsal_gpu gpu;
    struct mt_gpu_row row;
    size_t n = 0;
    for (; mt_rehearsal_gpu_at(n, &gpu) == 0; n++) {
        assert_true(mt_gpu_row_at(n, &row));
        assert_string_equal(gpu.key, row.key);
        assert_int_equal(gpu.memory_bytes, row.memory_bytes);
    }
    assert_false(mt_gpu_row_at(n, &row));
    assert_int_equal(mt_rehearsal_gpu_find("a100", &gpu, NULL), 0);
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
        cmocka_unit_test(test_a_size_is_a_usual_card_of_it),
        cmocka_unit_test(test_a_generation_chooses_among_its_own_cards),
        cmocka_unit_test(test_a_card_that_was_not_measured_has_the_context_of_the_law),
        cmocka_unit_test(test_a_name_of_two_sizes_has_another),
        cmocka_unit_test(test_cards_of_amd_and_apple_have_a_size_and_no_context),
        cmocka_unit_test(test_no_two_cards_have_a_name_in_common),
        cmocka_unit_test(test_a_name_that_is_none_says_which_are_near),
        cmocka_unit_test(test_the_public_list_has_the_same_cards),
    };
    return cmocka_run_group_tests_name("gpus", tests, NULL, NULL);
}
