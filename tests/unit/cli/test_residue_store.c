/* SPDX-License-Identifier: MIT */
/* The file of what was learnt, in a state folder of the test's own. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <memtally/category.h>
#include <memtally/residue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memtally/settings.h>

#include "cli/residue_store.h"

static char folder[64];
static char file[128];

static const struct cli_residue_key key = {"llama.cpp", "b11434", "cpu", "llama"};

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/memtally-residues-XXXXXX");
    snprintf(file, sizeof file, "%s/memtally/residues.json", mkdtemp(folder));
    return setenv("XDG_STATE_HOME", folder, 1);
}

static int teardown(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

static void put_file(const char *text)
{
    char inner[128];
    snprintf(inner, sizeof inner, "%s/memtally", folder);
    mkdir(inner, 0700);
    FILE *stream = fopen(file, "w");
    assert_non_null(stream);
    fputs(text, stream);
    fclose(stream);
}

/* Learns one figure for the runtime; returns the result. */
static int learn(const char *run, int64_t bytes, int *is_new, struct mt_error *error)
{
    const struct mt_residue residue = {.place_kind = "host",
                                       .category = MT_CATEGORY_RUNTIME,
                                       .low_bytes = bytes,
                                       .mean_bytes = bytes,
                                       .high_bytes = bytes,
                                       .n = 1};
    struct mt_residue *after = NULL;
    size_t n = 0;
    int result = cli_residues_learn(&key, &residue, 1, run, is_new, &after, &n, error);
    free(after);
    return result;
}

static size_t load(const char *version, const char *family, struct mt_residue *first)
{
    struct mt_residue *residues = NULL;
    size_t n = 0;
    assert_int_equal(cli_residues_load("llama.cpp", version, "cpu", family, &residues, &n, NULL),
                     0);
    if (n)
        *first = residues[0];
    free(residues);
    return n;
}

static void test_nothing_is_known_at_first(void **state)
{
    (void)state;
    struct mt_residue residue;
    assert_int_equal(load("b11434", "llama", &residue), 0);
    assert_int_not_equal(access(file, F_OK), 0);
}

static void test_runs_are_added_up_under_their_key(void **state)
{
    (void)state;
    struct mt_residue residue;
    int is_new = 0;
    assert_int_equal(learn("run 1", 100, &is_new, NULL), 0);
    assert_int_equal(learn("run 2", 300, &is_new, NULL), 0);
    assert_true(is_new);
    assert_int_equal(load("b11434", "llama", &residue), 1);
    assert_int_equal(residue.n, 2);
    assert_int_equal(residue.low_bytes, 100);
    assert_int_equal(residue.mean_bytes, 200);
    assert_int_equal(residue.high_bytes, 300);
    assert_int_equal(residue.category, MT_CATEGORY_RUNTIME);
    assert_string_equal(residue.place_kind, "host");
    assert_int_equal(load("b9840", "llama", &residue), 0);
    assert_int_equal(load("b11434", "qwen3", &residue), 0);
}

static void test_a_run_counts_once(void **state)
{
    (void)state;
    struct mt_residue residue;
    int is_new = 0;
    assert_int_equal(learn("run 1", 100, &is_new, NULL), 0);
    assert_int_equal(learn("run 1", 900, &is_new, NULL), 0);
    assert_false(is_new);
    assert_int_equal(load("b11434", "llama", &residue), 1);
    assert_int_equal(residue.n, 1);
    assert_int_equal(residue.high_bytes, 100);
}

static void test_forgetting_by_engine_and_version(void **state)
{
    (void)state;
    struct mt_residue residue;
    size_t n = 0;
    int is_new = 0;
    assert_int_equal(learn("run 1", 100, &is_new, NULL), 0);
    assert_int_equal(cli_residues_forget("llama.cpp@b1", &n, NULL), 0);
    assert_int_equal(n, 0);
    assert_int_equal(cli_residues_forget("llama", &n, NULL), 0);
    assert_int_equal(n, 0);
    assert_int_equal(load("b11434", "llama", &residue), 1);
    assert_int_equal(cli_residues_forget("llama.cpp@b11434", &n, NULL), 0);
    assert_int_equal(n, 1);
    assert_int_equal(load("b11434", "llama", &residue), 0);
    /* The run may be learnt again. */
    assert_int_equal(learn("run 1", 100, &is_new, NULL), 0);
    assert_true(is_new);
    assert_int_equal(cli_residues_forget(NULL, &n, NULL), 0);
    assert_int_equal(n, 1);
}

static void test_a_damaged_file_is_named_and_kept_aside(void **state)
{
    (void)state;
    struct mt_error error;
    struct mt_residue *residues = NULL;
    char aside[160];
    size_t n = 0;
    int is_new = 0;
    const char *text = "{\"schema\": \"memtally-residues/1\", \"entries\": [";
    put_file(text);
    assert_int_equal(
        cli_residues_load("llama.cpp", "b11434", "cpu", "llama", &residues, &n, &error),
        MT_EFORMAT);
    assert_int_equal(error.offset, strlen(text));
    assert_non_null(strstr(error.text, file));
    assert_int_equal(access(file, F_OK), 0);
    assert_int_equal(learn("run 1", 100, &is_new, &error), MT_EFORMAT);
    snprintf(aside, sizeof aside, "%s.damaged", file);
    assert_non_null(strstr(error.text, aside));
    assert_int_equal(access(aside, F_OK), 0);
    assert_int_equal(learn("run 1", 100, &is_new, &error), 0);
    /* A second damaged file does not take the place of the first. */
    put_file("");
    assert_int_equal(learn("run 1", 100, &is_new, &error), MT_EFORMAT);
    snprintf(aside, sizeof aside, "%s.damaged.2", file);
    assert_int_equal(access(aside, F_OK), 0);
}

#define ENTRY(category, n, low, high)                                                              \
    "{\"schema\": \"memtally-residues/1\", \"runs\": [], \"entries\": [{\"engine\": "              \
    "\"llama.cpp\", "                                                                              \
    "\"version\": \"b11434\", \"device\": \"cpu\", \"family\": \"llama\", \"place\": \"host\", "   \
    "\"category\": " category ", \"n\": " n ", \"low_bytes\": " low ", \"mean_bytes\": 5, "        \
    "\"high_bytes\": " high "}]}"

static void test_values_that_nothing_writes_are_refused_where_they_stand(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *key;
    } cases[] = {
        {ENTRY("\"weights\"", "1", "5", "5"), "category"},
        {ENTRY("\"runtime\"", "0", "5", "5"), "n"},
        {ENTRY("\"runtime\"", "-1", "5", "5"), "n"},
        {ENTRY("\"runtime\"", "1.5", "5", "5"), "n"},
        {ENTRY("\"runtime\"", "1", "9", "9"), "mean_bytes"},
        {ENTRY("\"runtime\"", "1", "5", "9000000000000000000"), "high_bytes"},
        {ENTRY("\"runtime\"", "1", "\"5\"", "5"), "low_bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mt_residue *residues = NULL;
        struct mt_error error;
        size_t n = 0;
        put_file(cases[i].text);
        assert_int_equal(
            cli_residues_load("llama.cpp", "b11434", "cpu", "llama", &residues, &n, &error),
            MT_EFORMAT);
        assert_non_null(strstr(error.text, cases[i].key));
        /* The offset is that of the value. */
        const char *value = strstr(cases[i].text, cases[i].key);
        while (strstr(value + 1, cases[i].key))
            value = strstr(value + 1, cases[i].key);
        size_t start = (size_t)(value - cases[i].text) + strlen(cases[i].key) + strlen("\": ");
        if (strcmp(cases[i].key, "n") != 0)
            assert_int_equal(error.offset, start);
    }
    struct mt_residue residue;
    put_file(ENTRY("\"runtime\"", "1", "5", "5"));
    assert_int_equal(load("b11434", "llama", &residue), 1);
}

static void test_writers_at_the_same_time_lose_nothing(void **state)
{
    (void)state;
    enum { WRITERS = 8, RUNS = 5 };
    pid_t children[WRITERS];
    struct mt_residue residue;
    for (int i = 0; i < WRITERS; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            int failed = 0;
            for (int j = 0; j < RUNS; j++) {
                char run[32];
                int is_new;
                snprintf(run, sizeof run, "%d-%d", i, j);
                failed |= learn(run, i * RUNS + j, &is_new, NULL);
            }
            _exit(failed != 0);
        }
    }
    for (int i = 0; i < WRITERS; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(load("b11434", "llama", &residue), 1);
    assert_int_equal(residue.n, WRITERS * RUNS);
    assert_int_equal(residue.low_bytes, 0);
    assert_int_equal(residue.high_bytes, WRITERS * RUNS - 1);
}

static void test_without_a_home_nothing_was_learnt(void **state)
{
    (void)state;
    struct mt_residue residue;
    struct mt_error error;
    int is_new = 0;
    unsetenv("XDG_STATE_HOME");
    unsetenv("HOME");
    assert_int_equal(load("b11434", "llama", &residue), 0);
    assert_int_equal(learn("run 1", 1, &is_new, &error), MT_ENOTFOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing_is_known_at_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_runs_are_added_up_under_their_key, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_run_counts_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_forgetting_by_engine_and_version, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_damaged_file_is_named_and_kept_aside, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_values_that_nothing_writes_are_refused_where_they_stand, setup, teardown),
        cmocka_unit_test_setup_teardown(test_writers_at_the_same_time_lose_nothing, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_without_a_home_nothing_was_learnt, setup, teardown),
    };
    return RUN_TESTS(tests);
}
