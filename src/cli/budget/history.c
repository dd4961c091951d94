/* SPDX-License-Identifier: MIT */
/* What tests took in the last run, and which passed: {"schema": "memtally-tests/1", "run": 3,
 * "tests": {NAME: {"run": 3, "outcome": "passed", …}}}. */
#include <string.h>

#include "base/error.h"
#include "cli/budget/suite.h"
#include "cli/state_file.h"

#define SCHEMA "memtally-tests/1"

static json_t *read_document(const char *path, struct mt_error *error)
{
    struct mt_strbuf text = {0};
    if (cli_state_read(path, &text, error) < 0) {
        mt_strbuf_finish(&text);
        return NULL;
    }
    json_t *document = text.data ? json_loads(text.data, 0, NULL) : json_object();
    const char *schema = json_string_value(json_object_get(document, "schema"));
    int is_ours = document && (!text.data || (schema && strcmp(schema, SCHEMA) == 0));
    mt_strbuf_finish(&text);
    if (is_ours)
        return document;
    json_decref(document);
    mt_fail(error, MT_EFORMAT, MT_NO_OFFSET,
            "%.200s is no history of tests; name another file with --history", path);
    return NULL;
}

static uint64_t count_of(const json_t *entry, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(entry, key));
    return value > 0 ? (uint64_t)value : 0;
}

int budget_history_read(struct budget_suite *suite, struct mt_error *error)
{
    json_t *document = suite->history ? read_document(suite->history, error) : json_object();
    if (!document)
        return MT_EFORMAT;
    json_int_t run = json_integer_value(json_object_get(document, "run"));
    const json_t *tests = json_object_get(document, "tests");
    suite->number = (int)run + 1;
    for (size_t i = 0; i < suite->tests->n; i++) {
        const json_t *entry = json_object_get(tests, suite->tests->items[i].name);
        const char *outcome = json_string_value(json_object_get(entry, "outcome"));
        struct budget_result *result = &suite->results[i];
        if (!outcome)
            continue;
        result->passed_last = strcmp(outcome, "passed") == 0 &&
                              json_integer_value(json_object_get(entry, "run")) == run;
        result->last_seconds = json_number_value(json_object_get(entry, "seconds"));
        result->last_host_bytes = count_of(entry, "host_peak_bytes");
        result->last_device_bytes = count_of(entry, "device_peak_bytes");
        result->was_measured = result->last_host_bytes > 0;
    }
    json_decref(document);
    return 0;
}

/* What was ended early took no less; what is left out in this run passed in the last one. */
static void put_test(json_t *tests, const struct budget_suite *suite, size_t i)
{
    const struct budget_result *result = &suite->results[i];
    const char *name = suite->tests->items[i].name;
    int was_left_out = result->outcome == BUDGET_SKIPPED && result->passed_last;
    int ran = result->outcome != BUDGET_WAITS && result->outcome != BUDGET_CANNOT &&
              result->outcome != BUDGET_SKIPPED;
    if (was_left_out)
        json_object_set_new(json_object_get(tests, name), "run", json_integer(suite->number));
    if (ran)
        json_object_set_new(tests, name,
                            json_pack("{si ss sf sI sI}", "run", suite->number, "outcome",
                                      budget_outcome_name(result->outcome), "seconds",
                                      result->seconds, "host_peak_bytes",
                                      (json_int_t)result->host_peak_bytes, "device_peak_bytes",
                                      (json_int_t)result->device_peak_bytes));
}

int budget_history_write(const struct budget_suite *suite, struct mt_error *error)
{
    if (!suite->history)
        return 0;
    json_t *document = read_document(suite->history, error);
    if (!document)
        return MT_EFORMAT;
    json_t *tests = json_object_get(document, "tests");
    if (!json_is_object(tests)) {
        tests = json_object();
        json_object_set_new(document, "tests", tests);
    }
    json_object_set_new(document, "schema", json_string(SCHEMA));
    json_object_set_new(document, "run", json_integer(suite->number));
    for (size_t i = 0; i < suite->tests->n; i++)
        put_test(tests, suite, i);
    int status = cli_state_save(suite->history, document, error);
    json_decref(document);
    return status;
}
