/* SPDX-License-Identifier: MIT */
/* A document is read as JSON and held against speedscope's schema: frames are shared, a sample
 * lists the numbers of frames from the outermost on, and a weight stands beside each sample. */
#include "tests/support/unit.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "emit/speedscope.h"

static json_t *document_of(const struct mt_speedscope_stack *stacks, size_t n)
{
    struct mt_strbuf out = {0};
    mt_speedscope(&out, "held at the peak", stacks, n);
    assert_false(mt_strbuf_failed(&out));
    json_t *document = json_loads(mt_strbuf_text(&out), 0, NULL);
    assert_non_null(document);
    mt_strbuf_finish(&out);
    return document;
}

static const json_t *profile_of(const json_t *document)
{
    return json_array_get(json_object_get(document, "profiles"), 0);
}

static const json_t *frame_at(const json_t *document, size_t number)
{
    return json_array_get(json_object_get(json_object_get(document, "shared"), "frames"), number);
}

/* Writes the names of a sample's frames, "a;b;c". */
static const char *sample_of(const json_t *document, size_t index)
{
    static char text[256];
    const json_t *sample = json_array_get(json_object_get(profile_of(document), "samples"), index);
    text[0] = '\0';
    for (size_t i = 0; i < json_array_size(sample); i++) {
        size_t number = (size_t)json_integer_value(json_array_get(sample, i));
        size_t length = strlen(text);
        snprintf(text + length, sizeof text - length, "%s%s", i ? ";" : "",
                 json_string_value(json_object_get(frame_at(document, number), "name")));
    }
    return text;
}

static json_int_t weight_of(const json_t *document, size_t index)
{
    return json_integer_value(
        json_array_get(json_object_get(profile_of(document), "weights"), index));
}

static void test_samples_go_from_the_outermost_frame_in_and_share_frames(void **state)
{
    const char *first[] = {"malloc", "load", "main"};
    const char *second[] = {"mmap", "load", "main"};
    const struct mt_speedscope_stack stacks[] = {
        {.place = "host", .frames = first, .n_frames = 3, .complete = 1, .bytes = 100},
        {.place = "host", .frames = second, .n_frames = 3, .complete = 1, .bytes = 11}};
    json_t *document = document_of(stacks, 2);
    (void)state;
    assert_string_equal(sample_of(document, 0), "host;main;load;malloc");
    assert_string_equal(sample_of(document, 1), "host;main;load;mmap");
    assert_int_equal(weight_of(document, 0), 100);
    assert_int_equal(weight_of(document, 1), 11);
    /* host, main, load, malloc and mmap. */
    assert_non_null(frame_at(document, 4));
    assert_null(frame_at(document, 5));
    const json_t *profile = profile_of(document);
    assert_int_equal(json_integer_value(json_object_get(profile, "endValue")), 111);
    assert_string_equal(json_string_value(json_object_get(profile, "type")), "sampled");
    assert_string_equal(json_string_value(json_object_get(profile, "unit")), "bytes");
    json_decref(document);
}

static void test_file_and_line_are_parts_of_a_frame(void **state)
{
    static const struct {
        const char *frame;
        const char *name;
        const char *file;
        json_int_t line;
    } cases[] = {
        {"step (train.py:17)", "step", "train.py", 17},
        {"f<void (*)(int)>(x) (a b.cpp:3)", "f<void (*)(int)>(x)", "a b.cpp", 3},
        {"step (/my models (1)/train.py:17)", "step", "/my models (1)/train.py", 17},
        {"f(int (a.c:3)", "f(int", "a.c", 3},
        {"f(a.c:3)", "f(a.c:3)", NULL, 0},
        {"f(int)", "f(int)", NULL, 0},
        {"f (nowhere)", "f (nowhere)", NULL, 0},
        {"f (a.c:)", "f (a.c:)", NULL, 0},
        {"(a.c:1)", "(a.c:1)", NULL, 0},
        {")", ")", NULL, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct mt_speedscope_stack stack = {
            .frames = &cases[i].frame, .n_frames = 1, .complete = 1, .bytes = 1};
        json_t *document = document_of(&stack, 1);
        const json_t *frame = frame_at(document, 0);
        assert_string_equal(json_string_value(json_object_get(frame, "name")), cases[i].name);
        const json_t *file = json_object_get(frame, "file");
        assert_int_equal(file != NULL, cases[i].file != NULL);
        if (file)
            assert_string_equal(json_string_value(file), cases[i].file);
        assert_int_equal(json_integer_value(json_object_get(frame, "line")), cases[i].line);
        json_decref(document);
    }
}

static void test_what_was_cut_off_or_is_unknown_says_so(void **state)
{
    const char *frames[] = {"malloc", NULL, "bad \xff"};
    const struct mt_speedscope_stack stacks[] = {
        {.frames = frames, .n_frames = 2, .complete = 0, .bytes = 1},
        {.frames = frames + 2, .n_frames = 1, .complete = 1, .bytes = 2}};
    json_t *document = document_of(stacks, 2);
    (void)state;
    assert_string_equal(sample_of(document, 0), "[truncated];[unknown];malloc");
    assert_string_equal(sample_of(document, 1), "bad \xef\xbf\xbd");
    json_decref(document);
}

static void test_nothing_is_a_document_with_no_sample(void **state)
{
    json_t *document = document_of(NULL, 0);
    (void)state;
    assert_int_equal(json_array_size(json_object_get(profile_of(document), "samples")), 0);
    assert_int_equal(json_integer_value(json_object_get(profile_of(document), "endValue")), 0);
    json_decref(document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples_go_from_the_outermost_frame_in_and_share_frames),
        cmocka_unit_test(test_file_and_line_are_parts_of_a_frame),
        cmocka_unit_test(test_what_was_cut_off_or_is_unknown_says_so),
        cmocka_unit_test(test_nothing_is_a_document_with_no_sample),
    };
    return RUN_TESTS(tests);
}
