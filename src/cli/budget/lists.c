/* SPDX-License-Identifier: MIT */
/* What ctest --show-only=json-v1, meson introspect --tests and pytest --collect-only -q print. */
#include "cli/budget/lists.h"

#include <memtally/job.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

#define SLOT_MIB 256

/* ---- asking ---- */

static int read_back(int fd, struct mt_strbuf *text)
{
    char bytes[8192];
    ssize_t n;
    if (lseek(fd, 0, SEEK_SET) < 0)
        return MT_EIO;
    while ((n = read(fd, bytes, sizeof bytes)) > 0)
        mt_strbuf_append(text, bytes, (size_t)n);
    mt_strbuf_append(text, "", 0);
    return n < 0 || mt_strbuf_failed(text) ? MT_EIO : 0;
}

int budget_ask_tool(enum budget_list list, const char *folder, struct mt_strbuf *text,
                    struct mt_error *error)
{
    char *copy = strdup(folder);
    const char *const ctest[] = {"ctest", "--test-dir", copy, "--show-only=json-v1", NULL};
    const char *const meson[] = {"meson", "introspect", "--tests", copy, NULL};
    const char *const pytest[] = {"python3",        "-m", "pytest", "--rootdir", ".",
                                  "--collect-only", "-q", copy,     NULL};
    const char *const *argv = list == BUDGET_LIST_CTEST   ? ctest
                              : list == BUDGET_LIST_MESON ? meson
                                                          : pytest;
    FILE *file = tmpfile();
    struct mt_job *job;
    struct mt_job_result result;
    if (!copy || !file) {
        free(copy);
        if (file)
            fclose(file);
        return mt_fail(error, MT_EIO, MT_NO_OFFSET, "no temporary file for a list of tests");
    }
    const struct mt_job_options options = {.argv = (char *const *)(uintptr_t)argv,
                                           .environment = environ,
                                           .cap = MT_JOB_CAP_NONE,
                                           .is_apart = 1,
                                           .stdout_fd = fileno(file),
                                           .stderr_fd = -1};
    int status = mt_job_start(&options, &job, error);
    if (status == 0) {
        mt_job_finish(job, &result);
        if (result.exit_code != 0)
            status = mt_fail(error, MT_ECHILD, MT_NO_OFFSET,
                             "%s cannot list the tests of %.200s: it ended with status %d", argv[0],
                             folder, result.exit_code);
        else if (read_back(fileno(file), text) < 0)
            status = mt_fail(error, MT_EIO, MT_NO_OFFSET, "cannot read the list of tests");
    }
    fclose(file);
    free(copy);
    return status;
}

/* ---- ctest ---- */

static int is_property(const json_t *property, const char *name)
{
    const char *found = json_string_value(json_object_get(property, "name"));
    return found && strcmp(found, name) == 0;
}

/* "A=b" into {"A": "b"}. */
static void put_environment(json_t *test, const json_t *list)
{
    json_t *table = json_object();
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
    {
        const char *text = json_string_value(item);
        const char *sign = text ? strchr(text, '=') : NULL;
        char *name = sign ? strndup(text, (size_t)(sign - text)) : NULL;
        if (name)
            json_object_set_new(table, name, json_string(sign + 1));
        free(name);
    }
    json_object_set_new(test, "environment", table);
}

/* RESOURCE_GROUPS in slots, as the file says that memtally writes. */
static void put_resources(json_t *test, const json_t *groups)
{
    struct mt_strbuf need = {0};
    size_t i;
    size_t k;
    json_t *group;
    json_t *requirement;
    long long host = 0;
    json_array_foreach(groups, i, group)
        json_array_foreach(json_object_get(group, "requirements"), k, requirement)
    {
        const char *type = json_string_value(json_object_get(requirement, ".type"));
        long long slots = json_integer_value(json_object_get(requirement, "slots"));
        if (type && strcmp(type, "host") == 0)
            host += slots * SLOT_MIB;
        else if (type && strcmp(type, "gpus") == 0 && slots > 0)
            mt_strbuf_printf(&need, "%sgpu=%lldMiB", need.length ? "," : "", slots * SLOT_MIB);
    }
    if (host > 0)
        mt_strbuf_printf(&need, "%shost=%lldMiB", need.length ? "," : "", host);
    if (need.length)
        json_object_set_new(test, "need", json_string(mt_strbuf_text(&need)));
    mt_strbuf_finish(&need);
}

static void put_turns(json_t *test, const json_t *property, json_t *value)
{
    static const char *const keys[][2] = {{"RESOURCE_LOCK", "locks"},
                                          {"DEPENDS", "after"},
                                          {"FIXTURES_REQUIRED", "requires"},
                                          {"FIXTURES_SETUP", "sets_up"},
                                          {"FIXTURES_CLEANUP", "cleans_up"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (is_property(property, keys[i][0]) && json_is_array(value))
            json_object_set(test, keys[i][1], value);
}

static void put_property(json_t *test, const json_t *property)
{
    json_t *value = json_object_get(property, "value");
    if (is_property(property, "WORKING_DIRECTORY"))
        json_object_set(test, "directory", value);
    else if (is_property(property, "ENVIRONMENT"))
        put_environment(test, value);
    else if (is_property(property, "TIMEOUT") && json_number_value(value) >= 1)
        json_object_set_new(test, "timeout", json_integer((json_int_t)json_number_value(value)));
    else if (is_property(property, "WILL_FAIL"))
        json_object_set(test, "should_fail", value);
    else if (is_property(property, "SKIP_RETURN_CODE"))
        json_object_set(test, "skip_status", value);
    else if (is_property(property, "RESOURCE_GROUPS"))
        put_resources(test, value);
    else if (is_property(property, "RUN_SERIAL"))
        json_object_set(test, "alone", value);
    else
        put_turns(test, property, value);
}

static int is_disabled(const json_t *properties)
{
    size_t i;
    json_t *property;
    json_array_foreach(properties, i,
                       property) if (is_property(property, "DISABLED") &&
                                     json_is_true(json_object_get(property, "value"))) return 1;
    return 0;
}

/* One without a command was not built. */
static json_t *take_ctest(const json_t *given)
{
    const json_t *properties = json_object_get(given, "properties");
    json_t *command = json_object_get(given, "command");
    size_t i;
    json_t *property;
    if (is_disabled(properties) || !command)
        return NULL;
    json_t *test = json_object();
    json_object_set(test, "name", json_object_get(given, "name"));
    json_object_set(test, "command", command);
    json_array_foreach(properties, i, property) put_property(test, property);
    return test;
}

/* ---- meson and pytest ---- */

static json_t *take_meson(const json_t *given)
{
    json_t *test = json_object();
    json_t *directory = json_object_get(given, "workdir");
    json_t *timeout = json_object_get(given, "timeout");
    json_object_set(test, "name", json_object_get(given, "name"));
    json_object_set(test, "command", json_object_get(given, "cmd"));
    json_object_set(test, "environment", json_object_get(given, "env"));
    if (json_is_string(directory))
        json_object_set(test, "directory", directory);
    if (json_integer_value(timeout) > 0)
        json_object_set(test, "timeout", timeout);
    if (json_is_false(json_object_get(given, "is_parallel")))
        json_object_set_new(test, "alone", json_true());
    json_object_set_new(test, "skip_status", json_integer(77));
    return test;
}

/* Names are paths from the root, which is where memtally is. */
static json_t *take_pytest(const char *line, size_t length)
{
    json_t *test = json_object();
    json_t *name = json_stringn(line, length);
    json_object_set_new(test, "command",
                        json_pack("[sssssssO]", "python3", "-m", "pytest", "--rootdir", ".", "-q",
                                  "--no-header", name));
    json_object_set_new(test, "name", name);
    return test;
}

static void read_pytest(const char *text, json_t *tests)
{
    while (*text) {
        size_t length = strcspn(text, "\n");
        const char *mark = strstr(text, "::");
        if (mark && mark < text + length && *text != ' ')
            json_array_append_new(tests, take_pytest(text, length));
        text += length + (text[length] == '\n');
    }
}

json_t *budget_read_list(enum budget_list list, const char *text, struct mt_error *error)
{
    json_error_t wrong;
    json_t *tests = json_array();
    size_t i;
    json_t *given;
    if (list == BUDGET_LIST_PYTEST) {
        read_pytest(text, tests);
        return json_pack("{so}", "test", tests);
    }
    json_t *document = json_loads(text, 0, &wrong);
    json_t *listed = list == BUDGET_LIST_CTEST ? json_object_get(document, "tests") : document;
    json_array_foreach(listed, i, given)
    {
        json_t *test = list == BUDGET_LIST_CTEST ? take_ctest(given) : take_meson(given);
        if (test)
            json_array_append_new(tests, test);
    }
    if (!json_is_array(listed)) {
        mt_fail(error, MT_EFORMAT, MT_NO_OFFSET, "the list of tests is not what %s prints",
                list == BUDGET_LIST_CTEST ? "ctest --show-only=json-v1"
                                          : "meson introspect --tests");
        json_decref(tests);
        tests = NULL;
    }
    json_decref(document);
    return tests ? json_pack("{so}", "test", tests) : NULL;
}
