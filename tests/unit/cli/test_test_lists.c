/* SPDX-License-Identifier: MIT */
/* Lists of tests as ctest, meson and pytest print them, by their manuals, and manifests with every
 * key. */
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/budget/tests.h"
#include "drive/stage.h"

static char folder[64];
static char file[96];
static struct budget_tests tests;

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/memtally-lists-XXXXXX");
    snprintf(file, sizeof file, "%s/list", mkdtemp(folder));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    budget_tests_finish(&tests);
    mt_drive_folder_remove(folder);
    return 0;
}

static int load(enum budget_list list, const char *text, struct mt_error *error)
{
    FILE *stream = fopen(file, "w");
    assert_non_null(stream);
    fputs(text, stream);
    fclose(stream);
    return budget_tests_load(&tests, list, file, error);
}

static const char *value_of(const struct budget_test *test, const char *name)
{
    size_t length = strlen(name);
    for (char **each = test->environment; *each; each++)
        if (strncmp(*each, name, length) == 0 && (*each)[length] == '=')
            return *each + length + 1;
    return NULL;
}

static void assert_names(const json_t *list, const char *first, const char *second)
{
    assert_int_equal(json_array_size(list), second ? 2 : first ? 1 : 0);
    if (first)
        assert_string_equal(json_string_value(json_array_get(list, 0)), first);
    if (second)
        assert_string_equal(json_string_value(json_array_get(list, 1)), second);
}

/* The properties of CMake's manual, cmake-properties(7), in the form of ctest --show-only=json-v1.
 */
static const char ctest[] =
    "{\"kind\": \"ctestInfo\", \"tests\": [\n"
    "{\"name\": \"db\", \"command\": [\"/b/db\", \"-x\"], \"properties\": [\n"
    "  {\"name\": \"WORKING_DIRECTORY\", \"value\": \"/b\"},\n"
    "  {\"name\": \"ENVIRONMENT\", \"value\": [\"A=1\", \"B=x=y\", \"bad\"]},\n"
    "  {\"name\": \"TIMEOUT\", \"value\": 90.5},\n"
    "  {\"name\": \"WILL_FAIL\", \"value\": true},\n"
    "  {\"name\": \"SKIP_RETURN_CODE\", \"value\": 42},\n"
    "  {\"name\": \"RUN_SERIAL\", \"value\": true},\n"
    "  {\"name\": \"RESOURCE_LOCK\", \"value\": [\"port\"]},\n"
    "  {\"name\": \"DEPENDS\", \"value\": [\"make\", \"fetch\"]},\n"
    "  {\"name\": \"FIXTURES_REQUIRED\", \"value\": [\"disk\"]},\n"
    "  {\"name\": \"FIXTURES_SETUP\", \"value\": [\"db\"]},\n"
    "  {\"name\": \"FIXTURES_CLEANUP\", \"value\": [\"old\"]},\n"
    "  {\"name\": \"LABELS\", \"value\": [\"slow\"]},\n"
    "  {\"name\": \"RESOURCE_GROUPS\", \"value\": [\n"
    "    {\"requirements\": [{\".type\": \"gpus\", \"slots\": 4}, {\".type\": \"host\", \"slots\": "
    "2}]},\n"
    "    {\"requirements\": [{\".type\": \"gpus\", \"slots\": 8}, {\".type\": \"host\", \"slots\": "
    "1},\n"
    "                      {\".type\": \"licences\", \"slots\": 1}, {\".type\": \"gpus\", "
    "\"slots\": 0}]}]}]},\n"
    "{\"name\": \"off\", \"command\": [\"/b/off\"], \"properties\": [{\"name\": \"DISABLED\", "
    "\"value\": true}]},\n"
    "{\"name\": \"unbuilt\"},\n"
    "{\"name\": \"on\", \"command\": [\"/b/on\"], \"properties\": [{\"name\": \"DISABLED\", "
    "\"value\": false},\n"
    "  {\"name\": \"TIMEOUT\", \"value\": 0}]}]}\n";

static void test_properties_of_ctest_are_taken(void **state)
{
    (void)state;
    assert_int_equal(load(BUDGET_LIST_CTEST, ctest, NULL), 0);
    assert_int_equal(tests.n, 2);
    const struct budget_test *db = &tests.items[0];
    assert_string_equal(db->name, "db");
    assert_string_equal(db->argv[1], "-x");
    assert_null(db->argv[2]);
    assert_string_equal(db->directory, "/b");
    assert_string_equal(value_of(db, "A"), "1");
    assert_string_equal(value_of(db, "B"), "x=y");
    assert_int_equal(db->timeout_ns, UINT64_C(90000000000));
    assert_true(db->fails_well && db->is_alone);
    assert_int_equal(db->skip_status, 42);
    assert_names(db->locks, "port", NULL);
    assert_names(db->after, "make", "fetch");
    assert_names(db->required, "disk", NULL);
    assert_names(db->sets_up, "db", NULL);
    assert_names(db->cleans_up, "old", NULL);
}

/* A slot is 256 MiB, as the file says that memtally writes for ctest. Devices are asked for one
 * by one, the host once. */
static void test_resources_of_ctest_are_slots(void **state)
{
    (void)state;
    assert_int_equal(load(BUDGET_LIST_CTEST, ctest, NULL), 0);
    const struct budget_needs *needs = &tests.items[0].needs;
    assert_int_equal(needs->n, 3);
    assert_string_equal(needs->items[0].place, "gpu*");
    assert_int_equal(needs->items[0].bytes, UINT64_C(1) << 30);
    assert_string_equal(needs->items[1].place, "gpu*");
    assert_int_equal(needs->items[1].bytes, UINT64_C(2) << 30);
    assert_int_equal(budget_host_bytes(needs), UINT64_C(768) << 20);
}

static void test_disabled_and_unbuilt_tests_of_ctest_are_left_out(void **state)
{
    (void)state;
    assert_int_equal(load(BUDGET_LIST_CTEST, ctest, NULL), 0);
    const struct budget_test *on = &tests.items[1];
    assert_string_equal(on->name, "on");
    /* A timeout of 0 is none of its own: memtally's ten minutes. */
    assert_int_equal(on->timeout_ns, UINT64_C(600000000000));
    assert_false(on->fails_well || on->is_alone || on->skip_status);
    assert_int_equal(on->needs.n, 0);
}

/* meson introspect --tests; a test that ends with 77 was skipped, by GNU's standard. */
static void test_tests_of_meson_are_taken(void **state)
{
    static const char meson[] = "[{\"name\": \"a\", \"cmd\": [\"/b/a\", \"1\"], \"env\": {\"A\": "
                                "\"1\"}, \"workdir\": null,\n"
                                "  \"timeout\": 30, \"is_parallel\": true, \"suite\": [\"x\"]},\n"
                                " {\"name\": \"b\", \"cmd\": [\"/b/b\"], \"env\": {}, \"workdir\": "
                                "\"/w\", \"timeout\": 0,\n"
                                "  \"is_parallel\": false}]\n";
    (void)state;
    assert_int_equal(load(BUDGET_LIST_MESON, meson, NULL), 0);
    assert_int_equal(tests.n, 2);
    assert_string_equal(tests.items[0].argv[0], "/b/a");
    assert_string_equal(value_of(&tests.items[0], "A"), "1");
    assert_int_equal(tests.items[0].timeout_ns, UINT64_C(30000000000));
    assert_int_equal(tests.items[0].skip_status, 77);
    assert_null(tests.items[0].directory);
    assert_false(tests.items[0].is_alone);
    assert_string_equal(tests.items[1].directory, "/w");
    assert_true(tests.items[1].is_alone);
}

static void test_lines_of_pytest_with_two_colons_are_tests(void **state)
{
    (void)state;
    assert_int_equal(load(BUDGET_LIST_PYTEST,
                          "tests/test_a.py::test_one\n"
                          "tests/test_a.py::TestB::test_two[a b]\n"
                          "  warning in x::y\n"
                          "\n2 tests collected in 0.01s\n",
                          NULL),
                     0);
    assert_int_equal(tests.n, 2);
    assert_string_equal(tests.items[0].name, "tests/test_a.py::test_one");
    assert_string_equal(tests.items[1].argv[7], "tests/test_a.py::TestB::test_two[a b]");
    assert_null(tests.items[1].argv[8]);
}

static void test_a_manifest_has_every_key(void **state)
{
    (void)state;
    assert_int_equal(setenv("MEMTALLY_TEST_OLD", "old", 1), 0);
    assert_int_equal(load(BUDGET_LIST_TOML,
                          "[defaults]\n"
                          "need = \"host=3GiB\"\n"
                          "timeout = \"2m\"\n"
                          "[[test]]\n"
                          "name = \"line\"\n"
                          "command = \"echo $HOME | wc\"\n"
                          "[[test]]\n"
                          "name = \"words\"\n"
                          "command = [\"run\", \"a b\"]\n"
                          "need = {host = \"1GiB\", gpu0 = \"2GiB\"}\n"
                          "environment = {MEMTALLY_TEST_OLD = \"new\"}\n"
                          "directory = \"sub\"\n"
                          "timeout = 5\n"
                          "should_fail = true\n"
                          "skip_status = 3\n"
                          "alone = true\n"
                          "locks = [\"port\"]\n"
                          "after = [\"line\"]\n"
                          "requires = [\"disk\"]\n",
                          NULL),
                     0);
    const struct budget_test *line = &tests.items[0];
    const struct budget_test *words = &tests.items[1];
    assert_int_equal(budget_host_bytes(&tests.fallback), UINT64_C(3) << 30);
    assert_string_equal(line->argv[0], "sh");
    assert_string_equal(line->argv[2], "echo $HOME | wc");
    assert_int_equal(line->timeout_ns, UINT64_C(120000000000));
    assert_string_equal(value_of(line, "MEMTALLY_TEST_OLD"), "old");
    assert_string_equal(words->argv[1], "a b");
    assert_int_equal(words->needs.n, 2);
    assert_string_equal(value_of(words, "MEMTALLY_TEST_OLD"), "new");
    assert_int_equal(words->timeout_ns, UINT64_C(5000000000));
    assert_string_equal(words->directory, "sub");
    assert_int_equal(words->skip_status, 3);
    assert_true(words->fails_well && words->is_alone);
    assert_names(words->after, "line", NULL);
    unsetenv("MEMTALLY_TEST_OLD");
}

#define COMMAND "name = \"a\"\ncommand = \"x\"\n"

static void test_what_is_wrong_in_a_manifest_is_named(void **state)
{
    static const struct {
        const char *text;
        const char *words;
    } cases[] = {
        {"", "there are no tests in it"},
        {"[[test]]\ncommand = \"x\"\n", "each test needs a name"},
        {"[[test]]\nname = \"\"\n", "each test needs a name"},
        {"[[test]]\nname = \"a\"\n", "test 'a': its command is no text and no array of texts"},
        {"[[test]]\nname = \"a\"\ncommand = []\n", "its command is no text"},
        {"[[test]]\nname = \"a\"\ncommand = [\"x\", 1]\n", "its command is no text"},
        {"[[test]]\n" COMMAND "needs = \"host=1GiB\"\n", "test 'a' has no key 'needs'"},
        {"[[test]]\n" COMMAND "need = \"host\"\n", "'host' is no PLACE=SIZE"},
        {"[[test]]\n" COMMAND "need = {host = 1}\n", "test 'a': '?' is no size"},
        {"[[test]]\n" COMMAND "need = 1\n", "its need is no text such as \"host=2GiB\""},
        {"[[test]]\n" COMMAND "timeout = \"soon\"\n", "its timeout is no number of seconds"},
        {"[[test]]\n" COMMAND "timeout = 0\n", "its timeout is no number of seconds"},
        {"[[test]]\n" COMMAND "environment = {A = 1}\n", "values that are no texts"},
        {"[[test]]\n" COMMAND "locks = \"port\"\n", "its key 'locks' is no array of texts"},
        {"[[test]]\n" COMMAND "sets_up = [1]\n", "its key 'sets_up' is no array of texts"},
        {"[[test]]\n" COMMAND "[[test]]\n" COMMAND, "test 'a': there are two of this name"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mt_error error = {0};
        assert_int_equal(load(BUDGET_LIST_TOML, cases[i].text, &error), MT_EFORMAT);
        if (!strstr(error.text, cases[i].words) || !strstr(error.text, file))
            fail_msg("'%s' does not say '%s'", error.text, cases[i].words);
        assert_int_equal(tests.n, 0);
    }
}

static void test_a_list_of_anything_else_names_the_tool(void **state)
{
    struct mt_error error = {0};
    (void)state;
    assert_int_equal(load(BUDGET_LIST_CTEST, "[]", &error), MT_EFORMAT);
    assert_non_null(strstr(error.text, "ctest --show-only=json-v1"));
    assert_int_equal(load(BUDGET_LIST_MESON, "{\"tests\": []}", &error), MT_EFORMAT);
    assert_non_null(strstr(error.text, "meson introspect --tests"));
    assert_int_equal(load(BUDGET_LIST_MESON, "x", &error), MT_EFORMAT);
    assert_int_equal(load(BUDGET_LIST_PYTEST, "no tests collected\n", &error), MT_EFORMAT);
    assert_int_equal(budget_tests_load(&tests, BUDGET_LIST_TOML, "/nowhere/list", &error),
                     MT_ENOTFOUND);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest all[] = {
        TEST(test_properties_of_ctest_are_taken),
        TEST(test_resources_of_ctest_are_slots),
        TEST(test_disabled_and_unbuilt_tests_of_ctest_are_left_out),
        TEST(test_tests_of_meson_are_taken),
        TEST(test_lines_of_pytest_with_two_colons_are_tests),
        TEST(test_a_manifest_has_every_key),
        TEST(test_what_is_wrong_in_a_manifest_is_named),
        TEST(test_a_list_of_anything_else_names_the_tool),
    };
    return RUN_TESTS(all);
}
