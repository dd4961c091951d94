/* SPDX-License-Identifier: MIT */
/* A manifest's keys. Knows no schedule. */
#include "cli/budget/tests.h"

#include <memtally/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "cli/budget/lists.h"
#include "cli/budget/toml.h"
#include "cli/state_file.h"

#define TIMEOUT_NS 600000000000u

static const char *const known_keys[] = {"name",      "command",   "need",        "environment",
                                         "directory", "timeout",   "should_fail", "skip_status",
                                         "alone",     "locks",     "after",       "requires",
                                         "sets_up",   "cleans_up", NULL};

static int refuse(struct mt_error *error, const char *name, const char *why)
{
    return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET, "test '%.100s': %s", name ? name : "?", why);
}

static int check_keys(const json_t *test, const char *name, struct mt_error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)test, key, value)
    {
        size_t i = 0;
        while (known_keys[i] && strcmp(known_keys[i], key) != 0)
            i++;
        if (!known_keys[i])
            return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET, "test '%.100s' has no key '%.60s'",
                           name, key);
    }
    return 0;
}

/* A text is a line for the shell. */
static int take_command(struct budget_test *test, const json_t *command, struct mt_error *error)
{
    static char shell[] = "sh";
    static char option[] = "-c";
    size_t n = json_array_size(command);
    test->argv = calloc(n + 4, sizeof *test->argv);
    if (!test->argv)
        return mt_out_of_memory(error);
    if (json_is_string(command)) {
        test->argv[0] = shell;
        test->argv[1] = option;
        test->argv[2] = (char *)(uintptr_t)json_string_value(command);
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        test->argv[i] = (char *)(uintptr_t)json_string_value(json_array_get(command, i));
        if (!test->argv[i])
            n = 0;
    }
    return n ? 0 : refuse(error, test->name, "its command is no text and no array of texts");
}

static int take_needs(struct budget_needs *needs, const json_t *need, const char *name,
                      struct mt_error *error)
{
    struct mt_error why = {.text = "its need is no text such as \"host=2GiB\", and no table"};
    const char *place;
    json_t *size;
    int status = json_is_string(need)   ? budget_parse_needs(json_string_value(need), needs, &why)
                 : json_is_object(need) ? 0
                                        : MT_EFORMAT;
    json_object_foreach((json_t *)need, place, size)
    {
        char text[128];
        snprintf(text, sizeof text, "%.40s=%.60s", place,
                 json_is_string(size) ? json_string_value(size) : "?");
        if (status == 0)
            status = budget_parse_needs(text, needs, &why);
    }
    return status < 0 ? refuse(error, name, why.text) : 0;
}

static int take_environment(struct budget_test *test, const json_t *table, struct mt_error *error)
{
    size_t n = 0;
    size_t kept = 0;
    const char *name;
    json_t *value;
    while (environ[n])
        n++;
    test->environment = calloc(n + json_object_size(table) + 1, sizeof *test->environment);
    if (!test->environment)
        return mt_out_of_memory(error);
    for (size_t i = 0; i < n; i++) {
        size_t length = strcspn(environ[i], "=");
        char own[256];
        snprintf(own, sizeof own, "%.*s", (int)length, environ[i]);
        if (length >= sizeof own || !json_object_get(table, own))
            test->environment[kept++] = strdup(environ[i]);
    }
    json_object_foreach((json_t *)table, name, value)
    {
        char *text = NULL;
        if (!json_is_string(value) || asprintf(&text, "%s=%s", name, json_string_value(value)) < 0)
            return refuse(error, test->name, "its environment has values that are no texts");
        test->environment[kept++] = text;
    }
    return 0;
}

static int take_timeout(struct budget_test *test, const json_t *timeout, struct mt_error *error)
{
    test->timeout_ns = TIMEOUT_NS;
    if (json_is_integer(timeout) && json_integer_value(timeout) > 0)
        test->timeout_ns = (uint64_t)json_integer_value(timeout) * 1000000000u;
    else if (timeout && (!json_is_string(timeout) ||
                         budget_parse_time(json_string_value(timeout), &test->timeout_ns) < 0))
        return refuse(error, test->name, "its timeout is no number of seconds and no \"10m\"");
    return 0;
}

static int take_names(const json_t *given, const char *key, const json_t **names,
                      struct mt_error *error)
{
    const json_t *list = json_object_get(given, key);
    int is_right = !list || json_is_array(list);
    for (size_t i = 0; i < json_array_size(list); i++)
        is_right = is_right && json_is_string(json_array_get(list, i));
    *names = list;
    char why[80];
    snprintf(why, sizeof why, "its key '%s' is no array of texts", key);
    return is_right ? 0 : refuse(error, json_string_value(json_object_get(given, "name")), why);
}

static int take_turns(struct budget_test *test, const json_t *given, struct mt_error *error)
{
    int status = take_names(given, "locks", &test->locks, error);
    status = status ? status : take_names(given, "after", &test->after, error);
    status = status ? status : take_names(given, "requires", &test->required, error);
    status = status ? status : take_names(given, "sets_up", &test->sets_up, error);
    status = status ? status : take_names(given, "cleans_up", &test->cleans_up, error);
    test->is_alone = json_is_true(json_object_get(given, "alone"));
    return status;
}

static int take_test(struct budget_test *test, const json_t *given, const json_t *defaults,
                     struct mt_error *error)
{
    test->name = json_string_value(json_object_get(given, "name"));
    if (!test->name || !*test->name)
        return refuse(error, "?", "each test needs a name");
    const json_t *timeout = json_object_get(given, "timeout");
    const json_t *need = json_object_get(given, "need");
    int status = check_keys(given, test->name, error);
    if (status == 0)
        status = take_command(test, json_object_get(given, "command"), error);
    if (status == 0)
        status = take_environment(test, json_object_get(given, "environment"), error);
    if (status == 0 && need)
        status = take_needs(&test->needs, need, test->name, error);
    if (status == 0)
        status =
            take_timeout(test, timeout ? timeout : json_object_get(defaults, "timeout"), error);
    if (status == 0)
        status = take_turns(test, given, error);
    test->directory = json_string_value(json_object_get(given, "directory"));
    test->fails_well = json_is_true(json_object_get(given, "should_fail"));
    test->skip_status = (int)json_integer_value(json_object_get(given, "skip_status"));
    return status;
}

/* What was measured is kept by name. */
static int check_names(const struct budget_tests *tests, struct mt_error *error)
{
    json_t *names = json_object();
    int status = 0;
    for (size_t i = 0; status == 0 && i < tests->n; i++) {
        if (json_object_get(names, tests->items[i].name))
            status = refuse(error, tests->items[i].name, "there are two of this name");
        json_object_set_new(names, tests->items[i].name, json_true());
    }
    json_decref(names);
    return status;
}

static int take_document(struct budget_tests *tests, struct mt_error *error)
{
    const json_t *listed = json_object_get(tests->document, "test");
    const json_t *defaults = json_object_get(tests->document, "defaults");
    const json_t *need = json_object_get(defaults, "need");
    size_t n = json_array_size(listed);
    if (n == 0)
        return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET, "there are no tests in it");
    tests->items = calloc(n, sizeof *tests->items);
    if (!tests->items)
        return mt_out_of_memory(error);
    int status = need ? take_needs(&tests->fallback, need, "defaults", error)
                      : budget_parse_needs("host=1GiB", &tests->fallback, error);
    for (; status == 0 && tests->n < n; tests->n++)
        status =
            take_test(&tests->items[tests->n], json_array_get(listed, tests->n), defaults, error);
    return status == 0 ? check_names(tests, error) : status;
}

static int is_folder(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

int budget_tests_load(struct budget_tests *tests, enum budget_list list, const char *path,
                      struct mt_error *error)
{
    struct mt_strbuf text = {0};
    struct mt_error why = {.text = ""};
    memset(tests, 0, sizeof *tests);
    int asks = list != BUDGET_LIST_TOML &&
               (is_folder(path) || (list == BUDGET_LIST_PYTEST && strstr(path, ".py")));
    int status =
        asks ? budget_ask_tool(list, path, &text, &why) : cli_state_read(path, &text, &why);
    if (status == 0 && !text.data)
        status = mt_fail(&why, MT_ENOTFOUND, MT_NO_OFFSET, "there is no such file");
    if (status == 0) {
        tests->document = list == BUDGET_LIST_TOML ? budget_parse_toml(text.data, &why)
                                                   : budget_read_list(list, text.data, &why);
        status = tests->document ? take_document(tests, &why) : why.code ? why.code : MT_ENOMEM;
    }
    mt_strbuf_finish(&text);
    if (status < 0) {
        budget_tests_finish(tests);
        mt_fail(error, status, MT_NO_OFFSET, "%.200s: %s", path, why.text);
    }
    return status;
}

void budget_tests_finish(struct budget_tests *tests)
{
    for (size_t i = 0;
         tests->items && i < json_array_size(json_object_get(tests->document, "test")); i++) {
        char **environment = tests->items[i].environment;
        for (size_t k = 0; environment && environment[k]; k++)
            free(environment[k]);
        free(environment);
        free(tests->items[i].argv);
    }
    free(tests->items);
    json_decref(tests->document);
    memset(tests, 0, sizeof *tests);
}
