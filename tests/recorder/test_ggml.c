/* SPDX-License-Identifier: MIT */
/* The ggml adapter with a fake ggml of which two copies are open at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/harness.h"

static const char *program(const char *name, char path[600])
{
    snprintf(path, 600, "%s/%s", program_path("MEMTALLY_TEST_PROGRAMS"), name);
    return path;
}

static struct ran *run_engines(const struct how *how)
{
    char user[600], first[600], second[600];
    struct ran *ran = RUN(how, program("ggml_user", user), program("libengine_1.so", first),
                          program("libengine_2.so", second));
    assert_true(exited(ran, 0));
    return ran;
}

static void print_buffer(FILE *to, const struct mt_record_file *file, const struct mt_event *event)
{
    const uint64_t *field = event->field;
    switch (event->op) {
    case MT_EVENT_BUFFER_ALLOC:
        fprintf(to, "BUFFER_ALLOC %p %p %zu %d %d %s\n", (void *)(uintptr_t)field[0],
                (void *)(uintptr_t)field[1], (size_t)field[2], (int)field[3], (int)field[4],
                name_of(file, event, field[5]));
        break;
    case MT_EVENT_BUFFER_USAGE:
        fprintf(to, "BUFFER_USAGE %p %d\n", (void *)(uintptr_t)field[0], (int)field[1]);
        break;
    case MT_EVENT_BUFFER_FREE:
        fprintf(to, "BUFFER_FREE %p\n", (void *)(uintptr_t)field[0]);
        break;
    default:
        break;
    }
}

static void test_both_copies_are_told_apart_and_recorded(void **state)
{
    const struct how how = {.depth = DEPTH_DEFAULT};
    struct ran *ran = run_engines(&how);
    const struct mt_record_file *file = the_file(ran);
    size_t n_events, length;
    char *seen = NULL;
    (void)state;
    struct mt_event *events = events_of(file, &n_events);
    FILE *to = open_memstream(&seen, &length);
    for (size_t i = 0; i < n_events; i++)
        print_buffer(to, file, &events[i]);
    fclose(to);
    *strstr(ran->out, "by handle") = '\0';
    assert_string_equal(seen, ran->out);
    free(seen);
    free(events);
    ran_free(ran);
}

static void test_symbols_by_handle_are_of_the_handle(void **state)
{
    const struct how recorded = {.depth = DEPTH_DEFAULT};
    const struct how unrecorded = {.unrecorded = 1};
    struct ran *with = run_engines(&recorded);
    struct ran *without = run_engines(&unrecorded);
    const char *expected = "by handle: 4711\nby handle: 4711\nby default: none\nclosed: none\n";
    (void)state;
    assert_string_equal(strstr(without->out, "by handle"), expected);
    assert_string_equal(strstr(with->out, "by handle"), expected);
    ran_free(with);
    ran_free(without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_copies_are_told_apart_and_recorded),
        cmocka_unit_test(test_symbols_by_handle_are_of_the_handle),
    };
    return RUN_TESTS(tests);
}
