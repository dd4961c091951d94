/* SPDX-License-Identifier: MIT */
/* Which build a program is taken for by what its ggml says of itself. Versions and builds are those
 * of llama.cpp's own ggml/CMakeLists.txt at the builds that stand in the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/fused.h"
#include "pretend/ggml/build.h"
#include "rehearse/rules.h"

static struct mt_account *account;

/* An account of CUDA devices; `told` is the build that was asked for, or NULL. */
static void prepare(const char *told)
{
    memset(&account->builds, 0, sizeof account->builds);
    assert_int_equal(mt_pretend_rules_choose("cuda", "8.6", told, &account->rules, NULL), 0);
    assert_int_equal(mt_pretend_builds_fill(&account->rules, &account->builds, NULL), 0);
    account->builds.is_told = told != NULL;
}

static void test_a_version_seen_at_one_build_has_the_rules_of_that_build(void **state)
{
    (void)state;
    prepare(NULL);
    assert_int_equal(account->rules.flash_types, MT_PRETEND_FLASH_TYPES_ANY);
    pretend_choose_build(account, "0.15.3", 2, 0);
    assert_int_equal(account->rules.build, 9840);
    assert_int_equal(account->rules.flash_types, MT_PRETEND_FLASH_TYPES_PAIRS);
    assert_int_equal(account->rules.graph_dependencies, 0);
    assert_true(account->rules.has_split_buffers);
    assert_int_equal(account->rules.capability, 860);
    assert_string_equal(account->rules.device_prefix, "CUDA");
    /* 0.14.0 was seen at 9568, 0.17.0 at 10088. */
    assert_int_equal(account->builds.low, 9569);
    assert_int_equal(account->builds.high, 10087);
    assert_int_equal(account->builds.doubts, 0);
}

static void test_a_version_of_several_builds_has_the_rules_of_the_last(void **state)
{
    (void)state;
    prepare(NULL);
    pretend_choose_build(account, "0.25.1", 2, 0);
    assert_int_equal(account->rules.build, 11160);
    assert_int_equal(account->builds.low, 11139);
    assert_int_equal(account->builds.high, 11199);
    assert_int_equal(account->builds.doubts, 0);
    assert_string_equal(account->builds.ggml_version, "0.25.1");
}

static void test_what_builds_of_one_version_differ_in_is_a_doubt_where_it_is_met(void **state)
{
    (void)state;
    prepare(NULL);
    /* Flash attention takes mixed types from 10878 on, within 0.23.0. */
    pretend_choose_build(account, "0.23.0", 2, 0);
    assert_int_equal(account->builds.doubts, MT_PRETEND_DOUBT_FLASH_TYPES);
    pretend_meet_doubt(account, MT_KEEP_SHARED);
    assert_int_equal(account->builds.doubts_met, 0);
    pretend_meet_doubt(account, MT_PRETEND_DOUBT_FLASH_TYPES);
    assert_int_equal(account->builds.doubts_met, MT_PRETEND_DOUBT_FLASH_TYPES);
}

static void test_the_newest_version_may_be_of_later_builds(void **state)
{
    (void)state;
    prepare(NULL);
    pretend_choose_build(account, "0.26.0-dev", 3, 0);
    assert_int_equal(account->rules.build, 11434);
    assert_int_equal(account->builds.low, 11402);
    assert_int_equal(account->builds.high, 0);
    assert_int_equal(account->builds.doubts, MT_KEEP_SHARED);
    prepare(NULL);
    pretend_choose_build(account, "0.31.0", 3, 0);
    assert_int_equal(account->rules.build, 11434);
    assert_int_equal(account->builds.low, 11435);
    assert_int_equal(account->builds.doubts, 0);
}

static void test_the_interface_tells_builds_of_one_version_apart(void **state)
{
    (void)state;
    prepare(NULL);
    pretend_choose_build(account, "0.25.3", 2, 0);
    assert_int_equal(account->builds.low, 11161);
    assert_int_equal(account->builds.high, 11367);
    prepare(NULL);
    pretend_choose_build(account, "0.25.3", 3, 0);
    assert_int_equal(account->builds.low, 11350);
    assert_int_equal(account->rules.build, 11401);
    prepare(NULL);
    pretend_choose_build(account, NULL, 2, 0);
    assert_int_equal(account->builds.low, 0);
    assert_int_equal(account->builds.high, 11367);
    assert_true(account->builds.doubts & MT_PRETEND_DOUBT_FLASH_TYPES);
}

static void test_a_build_that_is_told_or_said_is_taken(void **state)
{
    (void)state;
    prepare("9840");
    pretend_choose_build(account, "0.26.0", 3, 0);
    assert_int_equal(account->rules.build, 9840);
    assert_int_equal(account->rules.flash_types, MT_PRETEND_FLASH_TYPES_PAIRS);
    assert_int_equal(account->builds.low, 11402);
    assert_int_equal(account->builds.doubts, 0);
    prepare(NULL);
    pretend_choose_build(account, "0.23.0", 2, 10840);
    assert_int_equal(account->rules.build, 10840);
    assert_int_equal(account->rules.flash_types, MT_PRETEND_FLASH_TYPES_PAIRS);
    assert_int_equal(account->builds.doubts, 0);
    /* Nobody knows whether 11401 keeps what shared experts read. */
    prepare("11401");
    pretend_choose_build(account, "0.25.3", 3, 0);
    assert_int_equal(account->builds.doubts, MT_KEEP_SHARED);
}

static void test_what_contradicts_itself_says_nothing(void **state)
{
    (void)state;
    prepare(NULL);
    pretend_choose_build(account, "0.15.3", 3, 0);
    assert_int_equal(account->rules.build, 9840);
    assert_int_equal(account->builds.low, 0);
    assert_int_equal(account->builds.high, 0);
    assert_true(account->builds.doubts & MT_KEEP_REDUCTION);
}

static void test_versions_are_numbers_that_grow(void **state)
{
    (void)state;
    assert_int_equal(mt_pretend_ggml_number("0.26.0-dev"), mt_pretend_ggml_number("0.26.0"));
    assert_true(mt_pretend_ggml_number("0.9.12") < mt_pretend_ggml_number("0.10.0"));
    assert_true(mt_pretend_ggml_number("0.26.0") < mt_pretend_ggml_number("1.0.0"));
    assert_int_equal(mt_pretend_ggml_number("0.26"), 0);
    assert_int_equal(mt_pretend_ggml_number("unknown"), 0);
    assert_int_equal(mt_pretend_ggml_number("0.99999999999.1"), 0);
}

static int make_account(void **state)
{
    (void)state;
    account = calloc(1, sizeof *account);
    return account ? 0 : -1;
}

static int free_account(void **state)
{
    (void)state;
    free(account);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_version_seen_at_one_build_has_the_rules_of_that_build),
        cmocka_unit_test(test_a_version_of_several_builds_has_the_rules_of_the_last),
        cmocka_unit_test(test_what_builds_of_one_version_differ_in_is_a_doubt_where_it_is_met),
        cmocka_unit_test(test_the_newest_version_may_be_of_later_builds),
        cmocka_unit_test(test_the_interface_tells_builds_of_one_version_apart),
        cmocka_unit_test(test_a_build_that_is_told_or_said_is_taken),
        cmocka_unit_test(test_what_contradicts_itself_says_nothing),
        cmocka_unit_test(test_versions_are_numbers_that_grow),
    };
    return cmocka_run_group_tests(tests, make_account, free_account);
}
