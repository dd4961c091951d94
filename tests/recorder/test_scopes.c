/* SPDX-License-Identifier: MIT */
/* scope.h in programs of every kind, with the recorder and without. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/harness.h"

static char *program(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", program_path("MEMTALLY_TEST_PROGRAMS"), name);
    return path;
}

/* The scopes and marks of a file, a word each, with their names. */
static char *story_of(const struct mt_record_file *file)
{
    size_t n_events, length;
    struct mt_event *events = events_of(file, &n_events);
    char *text = NULL;
    FILE *to = open_memstream(&text, &length);
    for (size_t i = 0; i < n_events; i++) {
        const struct mt_event *event = &events[i];
        if (event->op == MT_EVENT_SCOPE_BEGIN)
            fprintf(to, "begin %llu %s; ", (unsigned long long)event->field[0],
                    name_of(file, event, event->field[1]));
        else if (event->op == MT_EVENT_SCOPE_END)
            fputs("end; ", to);
        else if (event->op == MT_EVENT_LABEL)
            fprintf(to, "label %llu bytes %llu %s; ", (unsigned long long)event->field[1],
                    (unsigned long long)event->field[2], name_of(file, event, event->field[3]));
        else if (event->op == MT_EVENT_UNLABEL)
            fputs("unlabel; ", to);
        else if (event->op == MT_EVENT_MARK)
            fprintf(to, "mark %s; ", name_of(file, event, event->field[0]));
    }
    fclose(to);
    free(events);
    return text;
}

static void tells(const char *name, const char *out, const char *story)
{
    const struct how recorded = {.depth = DEPTH_DEFAULT};
    const struct how unrecorded = {.unrecorded = 1};
    struct ran *with = RUN(&recorded, program(name));
    struct ran *without = RUN(&unrecorded, program(name));
    assert_true(exited(with, 0));
    assert_true(exited(without, 0));
    assert_string_equal(with->out, out);
    assert_string_equal(without->out, out);
    assert_string_equal(with->err, "");
    assert_int_equal(without->n_files, 0);
    char *seen = story_of(the_file(with));
    assert_string_equal(seen, story);
    free(seen);
    ran_free(with);
    ran_free(without);
}

static const char of_c[] = "begin 2 from C; label 64 bytes 1 of C; unlabel; end; mark of C; ";

static void test_scopes_work_in_c_programs_of_every_kind(void **state)
{
    (void)state;
    tells("scope_pie", "5 calls\n", of_c);
    tells("scope_no_pie", "5 calls\n", of_c);
    tells("scope_in_library", "5 calls\n", of_c);
}

static void test_scopes_of_cpp_end_with_their_objects(void **state)
{
    (void)state;
    tells("scope_cpp", "out of the scope\n",
          "begin 2 outer; begin 1 inner; end; mark of C++; end; ");
    tells("scope_cpp_no_pie", "out of the scope\n",
          "begin 2 outer; begin 1 inner; end; mark of C++; end; ");
}

static void test_a_static_program_with_scopes_runs_unrecorded(void **state)
{
    const struct how recorded = {.depth = DEPTH_DEFAULT};
    (void)state;
    struct ran *ran = RUN(&recorded, program("scope_static"));
    assert_true(exited(ran, 0));
    assert_string_equal(ran->out, "5 calls\n");
    assert_string_equal(ran->err, "");
    assert_int_equal(ran->n_files, 0);
    ran_free(ran);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scopes_work_in_c_programs_of_every_kind),
        cmocka_unit_test(test_scopes_of_cpp_end_with_their_objects),
        cmocka_unit_test(test_a_static_program_with_scopes_runs_unrecorded),
    };
    return RUN_TESTS(tests);
}
