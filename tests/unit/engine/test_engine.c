/* SPDX-License-Identifier: MIT */
/* Engine tables: finding one, choosing values by version, refusing bad ones. */
#include "engine/engine.h"

#include <memtally/error.h>
#include <memtally/settings.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/tables.h"

static const char dotted[] = "# a comment\n"
                             "engine thing\n"
                             "title The Thing\n"
                             "versions dotted\n"
                             "newest 0.29.0\n"
                             "share 0 0.90 ; its documentation\n"
                             "share 0.22 0.92 ; release notes of 0.22\n"
                             "share 0.21.5 0.91\n"
                             "reserve 0 512M\n"
                             "kv.types 0 f16 bf16  fp8 ; a list\n";

static struct mt_engine engine_at(const char *version)
{
    struct mt_engine engine;
    struct mt_error error;
    assert_int_equal(mt_engine_parse(dotted, sizeof dotted - 1, version, &engine, &error), 0);
    return engine;
}

static void test_the_latest_line_that_is_not_after_the_version_is_taken(void **state)
{
    (void)state;
    const struct {
        const char *version;
        double share;
    } cases[] = {{"0.1", 0.90},     {"0.21", 0.90},      {"0.21.5", 0.91}, {"0.22.0", 0.92},
                 {"0.22rc1", 0.92}, {"v0.23.1.2", 0.92}, {"1", 0.92}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mt_engine engine = engine_at(cases[i].version);
        assert_true(mt_engine_real(&engine, "share", 0) == cases[i].share);
    }
}

static void test_without_a_version_the_newest_is_meant(void **state)
{
    (void)state;
    struct mt_engine engine = engine_at(NULL);
    assert_string_equal(engine.version_text, "0.29.0");
    assert_string_equal(engine.name, "thing");
}

static void test_a_value_has_its_source_and_since_when_it_holds(void **state)
{
    (void)state;
    struct mt_engine engine = engine_at("0.25");
    struct mt_engine_value value;
    assert_int_equal(mt_engine_value(&engine, "share", &value), 0);
    assert_int_equal(value.length, 4);
    assert_memory_equal(value.text, "0.92", 4);
    assert_int_equal(value.source_length, strlen("release notes of 0.22"));
    assert_memory_equal(value.source, "release notes of 0.22", value.source_length);
    assert_string_equal(value.since, "0.22");
}

static void test_sizes_words_and_what_is_missing(void **state)
{
    (void)state;
    struct mt_engine engine = engine_at("0.25");
    assert_int_equal(mt_engine_number(&engine, "reserve", 0), 512u << 20);
    assert_int_equal(mt_engine_number(&engine, "nothing", 7), 7);
    assert_true(mt_engine_has(&engine, "kv.types", "fp8"));
    assert_false(mt_engine_has(&engine, "kv.types", "fp"));
    assert_false(mt_engine_has(&engine, "kv.types", "list"));
    assert_false(mt_engine_has(&engine, "nothing", "fp8"));
}

static void test_what_is_no_version_is_refused(void **state)
{
    (void)state;
    const char *const wrong[] = {
        "", "x", "b", "latest", "99999999999999999999", "1111111111111111111111111111111111111111"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct mt_engine engine = {.name = "untouched"};
        struct mt_error error;
        assert_int_equal(mt_engine_parse(dotted, sizeof dotted - 1, wrong[i], &engine, &error),
                         MT_EARG);
        assert_string_equal(engine.name, "untouched");
    }
}

static void test_a_release_is_another_name_of_a_build(void **state)
{
    (void)state;
    static const char builds[] =
        "engine b\nversions build\nnewest 20\nrelease v0.5.0 15\nkey 15 new\n";
    struct mt_engine engine;
    assert_int_equal(mt_engine_parse(builds, sizeof builds - 1, "v0.5.0", &engine, NULL), 0);
    assert_int_equal(engine.version.parts[0], 15);
    assert_string_equal(engine.version_text, "15");
    assert_true(mt_engine_has(&engine, "key", "new"));
    assert_int_equal(mt_engine_parse(builds, sizeof builds - 1, "0.5.0", &engine, NULL), 0);
    assert_int_equal(engine.version.parts[0], 15);
}

static void test_a_bad_line_is_named_by_its_offset(void **state)
{
    (void)state;
    const struct {
        const char *text;
        uint64_t offset;
    } cases[] = {{"engine a\nnewest 1\nkey\n", 18},
                 {"engine a\nnewest 1\nkey x 1\n", 18},
                 {"engine a\nnewest 1\nkey 0 ; only a source", 18},
                 {"engine a\nKEY 0 1\n", 9},
                 {"engine a\n", 0},
                 {"newest 1\n", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mt_engine engine;
        struct mt_error error;
        assert_int_equal(
            mt_engine_parse(cases[i].text, strlen(cases[i].text), NULL, &engine, &error),
            MT_EFORMAT);
        assert_int_equal(error.offset, cases[i].offset);
    }
}

static void test_every_built_in_table_is_valid_and_found_by_its_name(void **state)
{
    (void)state;
    size_t n = 0;
    for (; mt_engine_name_at(n); n++) {
        struct mt_engine engine;
        struct mt_error error = {.text = ""};
        int result = mt_engine_find(mt_engine_name_at(n), &engine, &error);
        if (result < 0)
            fail_msg("%s: %s", mt_engine_name_at(n), error.text);
        assert_string_equal(engine.name, mt_engine_name_at(n));
    }
    assert_int_equal(n, 9);
}

static void test_an_engine_may_be_named_with_a_version(void **state)
{
    (void)state;
    struct mt_engine engine;
    assert_int_equal(mt_engine_find("llama.cpp@b9840", &engine, NULL), 0);
    assert_int_equal(engine.version.parts[0], 9840);
    assert_string_equal(engine.version_text, "b9840");
    assert_int_equal(mt_engine_find("vLLM@0.11.0", &engine, NULL), 0);
    assert_int_equal(engine.version.parts[1], 11);
}

static void test_an_unknown_engine_is_answered_with_the_known_ones(void **state)
{
    (void)state;
    struct mt_engine engine;
    struct mt_error error;
    assert_int_equal(mt_engine_find("lama.cpp", &engine, &error), MT_ENOTFOUND);
    assert_non_null(strstr(error.text, "llama.cpp, ik_llama.cpp"));
    assert_int_equal(mt_engine_find("vllm@next", &engine, &error), MT_EARG);
    assert_non_null(strstr(error.text, "next is no version of vllm"));
}

static void test_parts_of_a_word_are_counted_and_an_empty_one_is_a_part(void **state)
{
    static const char text[] = "engine e\nversions dotted\nnewest 1.0\n"
                               "flags 0 context=-c|--ctx-size none= only=-o\n";
    struct mt_engine engine;
    char part[16];
    (void)state;
    assert_int_equal(mt_engine_parse(text, sizeof text - 1, NULL, &engine, NULL), 0);
    assert_int_equal(mt_engine_part_at(&engine, "flags", "context", 1, part, sizeof part), 0);
    assert_string_equal(part, "--ctx-size");
    assert_int_equal(mt_engine_part_at(&engine, "flags", "context", 2, part, sizeof part),
                     MT_ENOTFOUND);
    assert_int_equal(mt_engine_part_at(&engine, "flags", "none", 0, part, sizeof part), 0);
    assert_string_equal(part, "");
    assert_int_equal(mt_engine_part_at(&engine, "flags", "only", 1, part, sizeof part),
                     MT_ENOTFOUND);
    assert_int_equal(mt_engine_part_at(&engine, "flags", "other", 0, part, sizeof part),
                     MT_ENOTFOUND);
}

/* Headings are no keys; a key of three lines is met once. */
static void test_keys_and_versions_are_walked_over(void **state)
{
    (void)state;
    struct mt_engine engine = engine_at("0.21");
    const struct mt_engine last = engine_at("0.25");
    static const char *const keys[] = {"share", "reserve", "kv.types"};
    static const char *const versions[] = {"0.21.5", "0.22"};
    char key[16];
    size_t at = 0;
    for (size_t i = 0; i < 3; i++) {
        assert_true(mt_engine_next_key(&engine, &at, key, sizeof key));
        assert_string_equal(key, keys[i]);
    }
    assert_false(mt_engine_next_key(&engine, &at, key, sizeof key));
    for (size_t i = 0; i < 2; i++) {
        assert_true(mt_engine_next_version(&engine, &last.version, &engine));
        assert_string_equal(engine.version_text, versions[i]);
    }
    assert_true(mt_engine_real(&engine, "share", 0) == 0.92);
    assert_false(mt_engine_next_version(&engine, &last.version, &engine));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_latest_line_that_is_not_after_the_version_is_taken),
        cmocka_unit_test(test_without_a_version_the_newest_is_meant),
        cmocka_unit_test(test_a_value_has_its_source_and_since_when_it_holds),
        cmocka_unit_test(test_sizes_words_and_what_is_missing),
        cmocka_unit_test(test_what_is_no_version_is_refused),
        cmocka_unit_test(test_a_release_is_another_name_of_a_build),
        cmocka_unit_test(test_a_bad_line_is_named_by_its_offset),
        cmocka_unit_test(test_every_built_in_table_is_valid_and_found_by_its_name),
        cmocka_unit_test(test_an_engine_may_be_named_with_a_version),
        cmocka_unit_test(test_an_unknown_engine_is_answered_with_the_known_ones),
        cmocka_unit_test(test_keys_and_versions_are_walked_over),
        cmocka_unit_test(test_parts_of_a_word_are_counted_and_an_empty_one_is_a_part),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
