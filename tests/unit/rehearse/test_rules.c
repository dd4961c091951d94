/* SPDX-License-Identifier: MIT */
/* The rules of a pretended device, chosen by its kind, generation and the engine's build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <memtally/error.h>

#include "rehearse/rules.h"

static struct mt_pretend_rules choose(const char *kind, const char *generation, const char *version)
{
    struct mt_pretend_rules rules;
    struct mt_error error = {0};
    int status = mt_pretend_rules_choose(kind, generation, version, &rules, &error);
    if (status < 0)
        print_error("%s\n", error.text);
    assert_int_equal(status, 0);
    return rules;
}

static void test_nothing_said_is_the_newest_of_cuda(void **state)
{
    (void)state;
    struct mt_pretend_rules rules = choose(NULL, NULL, NULL);
    assert_string_equal(rules.kind, "cuda");
    assert_string_equal(rules.registry, "CUDA");
    assert_string_equal(rules.device_prefix, "CUDA");
    assert_string_equal(rules.host_buffer, "CUDA_Host");
    assert_string_equal(rules.generation, "blackwell");
    assert_int_equal(rules.alignment, 128);
    assert_int_equal(rules.host_alignment, 32);
    assert_int_equal(rules.row_padding, 512);
    assert_int_equal(rules.offload_batch, 32);
    assert_int_equal(rules.flash_attention, MT_PRETEND_FLASH_F16_COPIES);
    assert_true(rules.has_async && rules.has_events && !rules.is_unified);
}

static void test_a_generation_is_called_by_name_or_number(void **state)
{
    (void)state;
    assert_int_equal(choose("cuda", "Turing", NULL).capability, 750);
    struct mt_pretend_rules card = choose("cuda", "8.6", NULL);
    assert_string_equal(card.generation, "ampere");
    assert_int_equal(card.capability, 860);
    card = choose("rocm", "gfx1151", NULL);
    assert_string_equal(card.generation, "rdna3");
    assert_int_equal(card.capability, 0x1001151);
}

static void test_builds_differ(void **state)
{
    (void)state;
    struct mt_pretend_rules old = choose("cuda", "ampere", "9840");
    struct mt_pretend_rules new = choose("cuda", "ampere", "b11434");
    assert_true(old.has_split_buffers && !new.has_split_buffers);
    assert_int_equal(old.flash_types, MT_PRETEND_FLASH_TYPES_PAIRS);
    assert_int_equal(new.flash_types, MT_PRETEND_FLASH_TYPES_ANY);
    assert_int_equal(old.graph_dependencies, 0);
    assert_int_equal(old.build, 9840);
    assert_int_equal(choose("cuda", "ampere", "v0.5.0").build, 11149);
}

static void test_kinds_differ(void **state)
{
    (void)state;
    struct mt_pretend_rules metal = choose("metal", NULL, NULL);
    assert_string_equal(metal.device_prefix, "MTL");
    assert_string_equal(metal.host_buffer, "");
    assert_true(metal.is_reordered);
    assert_int_equal(metal.flash_attention, MT_PRETEND_FLASH_METAL);
    assert_true(metal.is_unified && !metal.row_padding && !metal.has_split_buffers);
    struct mt_pretend_rules vulkan = choose("vulkan", NULL, NULL);
    assert_string_equal(vulkan.host_buffer, "Vulkan_Host");
    assert_int_equal(vulkan.host_extra_bytes, 32);
    assert_int_equal(vulkan.buffer_bytes_max, UINT64_C(1) << 30);
    assert_int_equal(vulkan.flash_attention, MT_PRETEND_FLASH_PLAIN);
    assert_string_equal(choose("rocm", NULL, NULL).device_prefix, "ROCm");
}

/* Published logs of NVIDIA's cards name a build that can be rehearsed, its model and settings
 * (tests/conformance/ground_truth.csv); none of AMD's does. */
static void test_kinds_without_a_log_are_unconfirmed(void **state)
{
    (void)state;
    assert_false(choose("cuda", "ampere", NULL).is_unconfirmed);
    assert_true(choose("rocm", "rdna3", NULL).is_unconfirmed);
    assert_true(choose("rocm", "gfx1100", "9840").is_unconfirmed);
    assert_true(choose("metal", "m4", NULL).is_unconfirmed);
}

static void test_what_is_not_known_is_answered_by_what_is(void **state)
{
    struct mt_pretend_rules rules = {.build = 7};
    struct mt_error error = {0};
    (void)state;
    assert_int_equal(mt_pretend_rules_choose("tpu", NULL, NULL, &rules, &error), MT_EARG);
    assert_non_null(strstr(error.text, "cuda rocm vulkan metal"));
    assert_int_equal(mt_pretend_rules_choose("cuda", "kepler", NULL, &rules, &error), MT_EARG);
    assert_non_null(strstr(error.text, "turing ampere ada"));
    assert_int_equal(mt_pretend_rules_choose("cuda", "3.5", NULL, &rules, &error), MT_EARG);
    assert_int_equal(mt_pretend_rules_choose("cuda", NULL, "latest", &rules, &error), MT_EARG);
    assert_int_equal(rules.build, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_said_is_the_newest_of_cuda),
        cmocka_unit_test(test_a_generation_is_called_by_name_or_number),
        cmocka_unit_test(test_builds_differ),
        cmocka_unit_test(test_kinds_differ),
        cmocka_unit_test(test_kinds_without_a_log_are_unconfirmed),
        cmocka_unit_test(test_what_is_not_known_is_answered_by_what_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
