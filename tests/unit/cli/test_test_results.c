/* SPDX-License-Identifier: MIT */
/* Results as TAP 14 and as JUnit's XML, which a suite's history keeps, and whose turn it is. */
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/budget/suite.h"
#include "cli/budget/turns.h"
#include "drive/stage.h"

#define N 4

static struct budget_test items[N];
static struct budget_result results[N];
static struct budget_tests tests;
static struct budget_suite suite;

static int setup(void **state)
{
    static const char *const names[N] = {"first", "second", "third", "fourth"};
    (void)state;
    memset(items, 0, sizeof items);
    memset(results, 0, sizeof results);
    for (size_t i = 0; i < N; i++)
        items[i].name = names[i];
    tests = (struct budget_tests){.items = items, .n = N};
    suite = (struct budget_suite){.tests = &tests, .results = results, .number = 1};
    return 0;
}

static void assert_tap(size_t test, const char *expected)
{
    struct mt_strbuf out = {0};
    budget_put_tap(&suite, test, test + 1, &out);
    assert_string_equal(mt_strbuf_text(&out), expected);
    mt_strbuf_finish(&out);
}

static void test_tap_has_figures_in_yaml(void **state)
{
    (void)state;
    results[0] = (struct budget_result){.outcome = BUDGET_PASSED,
                                        .n_tries = 2,
                                        .seconds = 1.25,
                                        .host_peak_bytes = 1 << 20,
                                        .device_peak_bytes = 7,
                                        .needs = {.n = 2,
                                                  .items = {{.place = "host", .bytes = 2 << 20},
                                                            {.place = "gpu*", .bytes = 1 << 20}}}};
    assert_tap(0, "ok 1 - first\n"
                  "  ---\n"
                  "  outcome: passed\n"
                  "  seconds: 1.250\n"
                  "  tries: 2\n"
                  "  host_peak_bytes: 1048576\n"
                  "  device_peak_bytes: 7\n"
                  "  needs: \"host=2.00 MiB, gpu=1.00 MiB\"\n"
                  "  ...\n");
}

/* Output is comments: a line of it that says "ok 1" is none of TAP. */
static void test_tap_of_a_failure_has_its_reason_and_output(void **state)
{
    static char why[] = "it was killed\nfor memory";
    static char output[] = "ok 1 - nothing\n\nlast";
    (void)state;
    items[1].name = "a #skip\\b\nc";
    results[1] = (struct budget_result){.outcome = BUDGET_MEMORY, .why = why, .output = output};
    assert_tap(1, "not ok 2 - a \\#skip\\\\b c\n"
                  "  ---\n"
                  "  outcome: failed for memory\n"
                  "  seconds: 0.000\n"
                  "  tries: 0\n"
                  "  host_peak_bytes: 0\n"
                  "  device_peak_bytes: 0\n"
                  "  needs: \"\"\n"
                  "  message: |\n"
                  "    it was killed\n"
                  "    for memory\n"
                  "  ...\n"
                  "# ok 1 - nothing\n"
                  "# \n"
                  "# last\n");
}

static void test_tap_of_a_skipped_test_is_one_line(void **state)
{
    static char why[] = "no device\nmore";
    (void)state;
    results[2] = (struct budget_result){.outcome = BUDGET_SKIPPED, .why = why};
    assert_tap(2, "ok 3 - third # SKIP no device\n");
    results[2].why = NULL;
    assert_tap(2, "ok 3 - third # SKIP \n");
}

static void test_junit_counts_and_escapes(void **state)
{
    static char why[] = "a \"b\" < c & d\n";
    static char output[] = "x\x1b[0m > y\nz";
    struct mt_strbuf out = {0};
    (void)state;
    items[1].name = "a<b>";
    results[0] =
        (struct budget_result){.outcome = BUDGET_PASSED, .seconds = 1, .host_peak_bytes = 5};
    results[1] = (struct budget_result){
        .outcome = BUDGET_TIMEOUT, .seconds = 0.5, .why = why, .output = output};
    results[2].outcome = BUDGET_SKIPPED;
    results[3].outcome = BUDGET_WAITS; /* the run was broken off */
    budget_put_junit(&suite, &out);
    const char *text = mt_strbuf_text(&out);
    assert_non_null(strstr(text, "tests=\"4\" failures=\"1\" errors=\"0\" skipped=\"2\" "
                                 "time=\"1.500\">"));
    assert_non_null(strstr(text, "name=\"first\" time=\"1.000\">"));
    assert_non_null(strstr(text, "<property name=\"host_peak_bytes\" value=\"5\"/>"));
    assert_non_null(strstr(text, "name=\"a&lt;b&gt;\""));
    assert_non_null(strstr(text, "<failure type=\"timeout\" "
                                 "message=\"a &quot;b&quot; &lt; c &amp; d \"/>"));
    assert_non_null(strstr(text, "<system-out>x?[0m &gt; y\nz</system-out>"));
    const char *skipped = strstr(text, "<skipped/>");
    assert_non_null(skipped);
    assert_non_null(strstr(skipped + 1, "<skipped/>"));
    mt_strbuf_finish(&out);
}

/* A history in a folder of its own: what passed in the last run is known in the next. */
static void test_a_history_says_what_passed_and_what_it_took(void **state)
{
    char folder[] = "/tmp/memtally-history-XXXXXX";
    char path[64];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/history", folder);
    suite.history = path;
    assert_int_equal(budget_history_read(&suite, NULL), 0);
    assert_int_equal(suite.number, 1);
    results[0] = (struct budget_result){
        .outcome = BUDGET_PASSED, .seconds = 2.5, .host_peak_bytes = 100, .device_peak_bytes = 200};
    results[1] = (struct budget_result){.outcome = BUDGET_FAILED, .host_peak_bytes = 300};
    results[2].outcome = BUDGET_CANNOT;
    assert_int_equal(budget_history_write(&suite, NULL), 0);
    memset(results, 0, sizeof results);
    assert_int_equal(budget_history_read(&suite, NULL), 0);
    assert_int_equal(suite.number, 2);
    assert_true(results[0].passed_last && results[0].was_measured);
    assert_true(results[0].last_seconds == 2.5);
    assert_int_equal(results[0].last_host_bytes, 100);
    assert_int_equal(results[0].last_device_bytes, 200);
    assert_false(results[1].passed_last);
    assert_int_equal(results[1].last_host_bytes, 300);
    assert_false(results[2].was_measured || results[3].was_measured);
    mt_drive_folder_remove(folder);
}

/* --resume leaves out what passed: it still counts as passed in the run after. */
static void test_what_was_left_out_because_it_passed_stays_passed(void **state)
{
    char folder[] = "/tmp/memtally-history-XXXXXX";
    char path[64];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/history", folder);
    suite.history = path;
    results[0] = (struct budget_result){.outcome = BUDGET_PASSED, .host_peak_bytes = 1};
    results[1] = (struct budget_result){.outcome = BUDGET_PASSED, .host_peak_bytes = 1};
    assert_int_equal(budget_history_write(&suite, NULL), 0);
    memset(results, 0, sizeof results);
    assert_int_equal(budget_history_read(&suite, NULL), 0);
    results[0].outcome = BUDGET_SKIPPED; /* as --resume does */
    results[1].outcome = BUDGET_WAITS;   /* broken off before its turn */
    assert_int_equal(budget_history_write(&suite, NULL), 0);
    memset(results, 0, sizeof results);
    assert_int_equal(budget_history_read(&suite, NULL), 0);
    assert_int_equal(suite.number, 3);
    assert_true(results[0].passed_last);
    assert_false(results[1].passed_last);
    assert_true(results[1].was_measured);
    mt_drive_folder_remove(folder);
}

static void test_another_programs_file_is_no_history(void **state)
{
    char path[] = "/tmp/memtally-history-XXXXXX";
    struct mt_error error = {0};
    int fd = mkstemp(path);
    (void)state;
    suite.history = path;
    assert_int_equal(dprintf(fd, "{\"schema\": \"other\"}"), 19);
    assert_int_equal(budget_history_read(&suite, &error), MT_EFORMAT);
    assert_non_null(strstr(error.text, "name another file with --history"));
    assert_int_equal(budget_history_write(&suite, &error), MT_EFORMAT);
    close(fd);
    unlink(path);
}

static enum budget_turn turn_beside(size_t test, size_t running)
{
    struct mt_strbuf why = {0};
    enum budget_turn turn = budget_turn_of(&suite, test, &running, 1, &why);
    mt_strbuf_finish(&why);
    return turn;
}

static void test_a_lock_and_being_alone_keep_tests_apart(void **state)
{
    json_t *port = json_pack("[s]", "port");
    json_t *both = json_pack("[ss]", "disk", "port");
    (void)state;
    assert_int_equal(turn_beside(0, 1), BUDGET_TURN_NOW);
    items[0].locks = port;
    assert_int_equal(turn_beside(0, 1), BUDGET_TURN_NOW);
    items[1].locks = both;
    assert_int_equal(turn_beside(0, 1), BUDGET_TURN_LATER);
    items[2].is_alone = 1;
    assert_int_equal(turn_beside(2, 3), BUDGET_TURN_LATER);
    assert_int_equal(turn_beside(3, 2), BUDGET_TURN_LATER);
    json_decref(port);
    json_decref(both);
}

/* ctest's fixtures: set up before, cleaned up after all who require them; one that failed to be
 * set up keeps others from ever running. */
static void test_fixtures_come_before_and_after_who_requires_them(void **state)
{
    json_t *db = json_pack("[s]", "db");
    struct mt_strbuf why = {0};
    (void)state;
    items[0].sets_up = db;
    items[1].required = db;
    items[2].cleans_up = db;
    assert_true(budget_is_fixture(&items[0]) && budget_is_fixture(&items[2]));
    assert_false(budget_is_fixture(&items[1]));
    assert_int_equal(budget_turn_of(&suite, 0, NULL, 0, &why), BUDGET_TURN_NOW);
    assert_int_equal(budget_turn_of(&suite, 1, NULL, 0, &why), BUDGET_TURN_LATER);
    results[0].outcome = BUDGET_PASSED;
    assert_int_equal(budget_turn_of(&suite, 1, NULL, 0, &why), BUDGET_TURN_NOW);
    assert_int_equal(budget_turn_of(&suite, 2, NULL, 0, &why), BUDGET_TURN_LATER);
    results[1].outcome = BUDGET_FAILED;
    assert_int_equal(budget_turn_of(&suite, 2, NULL, 0, &why), BUDGET_TURN_NOW);
    results[0].outcome = BUDGET_FAILED;
    assert_int_equal(why.length, 0);
    assert_int_equal(budget_turn_of(&suite, 1, NULL, 0, &why), BUDGET_TURN_NEVER);
    assert_string_equal(mt_strbuf_text(&why), "its fixture 'db' was not set up by 'first'\n");
    mt_strbuf_finish(&why);
    json_decref(db);
}

static void test_what_comes_after_another_test_waits_for_its_end_however_it_ended(void **state)
{
    json_t *first = json_pack("[s]", "first");
    struct mt_strbuf why = {0};
    (void)state;
    items[3].after = first;
    assert_int_equal(budget_turn_of(&suite, 3, NULL, 0, &why), BUDGET_TURN_LATER);
    results[0].outcome = BUDGET_FAILED;
    assert_int_equal(budget_turn_of(&suite, 3, NULL, 0, &why), BUDGET_TURN_NOW);
    mt_strbuf_finish(&why);
    json_decref(first);
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
    const struct CMUnitTest all[] = {
        TEST(test_tap_has_figures_in_yaml),
        TEST(test_tap_of_a_failure_has_its_reason_and_output),
        TEST(test_tap_of_a_skipped_test_is_one_line),
        TEST(test_junit_counts_and_escapes),
        TEST(test_a_history_says_what_passed_and_what_it_took),
        TEST(test_what_was_left_out_because_it_passed_stays_passed),
        TEST(test_another_programs_file_is_no_history),
        TEST(test_a_lock_and_being_alone_keep_tests_apart),
        TEST(test_fixtures_come_before_and_after_who_requires_them),
        TEST(test_what_comes_after_another_test_waits_for_its_end_however_it_ended),
    };
    return RUN_TESTS(all);
}
