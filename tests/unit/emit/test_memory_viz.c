/* SPDX-License-Identifier: MIT */
/* A snapshot is read back as a pickle and held against what PyTorch's viewer asks of one: the
 * blocks of a segment fill it from its beginning to its end, and the trace goes by time. */
#include "tests/support/unit.h"

#include <string.h>

#include "emit/memory_viz.h"
#include "pytorch/pickle.h"

static struct mt_strbuf out;
static struct mt_pickle *pickle;

static const struct mt_pickle_value *write_and_read(const struct mt_viz_device *devices, size_t n)
{
    struct mt_error error;
    out = (struct mt_strbuf){0};
    mt_memory_viz(&out, devices, n);
    assert_false(mt_strbuf_failed(&out));
    assert_int_equal(mt_pickle_read(mt_strbuf_text(&out), out.length, "x", &pickle, &error), 0);
    return mt_pickle_root(pickle);
}

static int forget(void **state)
{
    (void)state;
    mt_pickle_destroy(pickle);
    pickle = NULL;
    mt_strbuf_finish(&out);
    return 0;
}

static const struct mt_pickle_value *item(const struct mt_pickle_value *list, size_t index)
{
    const struct mt_pickle_list *items = mt_pickle_as_list(list);
    assert_non_null(items);
    assert_true(index < items->n);
    return &items->items[index];
}

static size_t count(const struct mt_pickle_value *list)
{
    return mt_pickle_as_list(list)->n;
}

static uint64_t number(const struct mt_pickle_value *of, const char *key)
{
    return mt_pickle_as_integer(mt_pickle_get(of, key), UINT64_MAX - 1);
}

static void assert_block(const struct mt_pickle_value *segment, size_t index, uint64_t address,
                         uint64_t bytes, const char *state)
{
    const struct mt_pickle_value *block = item(mt_pickle_get(segment, "blocks"), index);
    assert_int_equal(number(block, "address"), address);
    assert_int_equal(number(block, "size"), bytes);
    assert_true(mt_pickle_is_text(mt_pickle_get(block, "state"), state));
}

#define STAYED UINT64_MAX

static void test_blocks_and_what_is_free_fill_a_segment(void **state)
{
    const struct mt_viz_span spans[] = {
        {.address = 1500, .bytes = 300, .end_ns = STAYED, .label = "kv"},
        {.address = 1000, .bytes = 1000, .end_ns = STAYED, .is_segment = 1},
        {.address = 1100, .bytes = 200, .end_ns = STAYED, .label = "weights"},
        {.address = 1300, .bytes = 100, .end_ns = 7}};
    const struct mt_viz_device device = {"gpu:0", spans, 4};
    (void)state;
    const struct mt_pickle_value *segments = mt_pickle_get(write_and_read(&device, 1), "segments");
    assert_int_equal(count(segments), 1);
    const struct mt_pickle_value *segment = item(segments, 0);
    assert_int_equal(number(segment, "address"), 1000);
    assert_int_equal(number(segment, "total_size"), 1000);
    assert_int_equal(number(segment, "allocated_size"), 500);
    assert_int_equal(count(mt_pickle_get(segment, "blocks")), 5);
    assert_block(segment, 0, 1000, 100, "inactive");
    assert_block(segment, 1, 1100, 200, "active_allocated");
    assert_block(segment, 2, 1300, 200, "inactive");
    assert_block(segment, 3, 1500, 300, "active_allocated");
    assert_block(segment, 4, 1800, 200, "inactive");
    const struct mt_pickle_value *kv = item(mt_pickle_get(segment, "blocks"), 3);
    const struct mt_pickle_value *frame = item(mt_pickle_get(kv, "frames"), 0);
    assert_true(mt_pickle_is_text(mt_pickle_get(frame, "name"), "kv"));
}

static void test_pieces_side_by_side_are_one_segment(void **state)
{
    const struct mt_viz_span spans[] = {
        {.address = 3000, .bytes = 500, .end_ns = STAYED, .is_segment = 1},
        {.address = 1000, .bytes = 500, .end_ns = STAYED, .is_segment = 1},
        {.address = 1500, .bytes = 500, .end_ns = STAYED, .is_segment = 1},
        {.address = 1400, .bytes = 200, .end_ns = STAYED}};
    const struct mt_viz_device device = {"gpu:0", spans, 4};
    (void)state;
    const struct mt_pickle_value *segments = mt_pickle_get(write_and_read(&device, 1), "segments");
    assert_int_equal(count(segments), 2);
    assert_int_equal(number(item(segments, 0), "total_size"), 1000);
    assert_block(item(segments, 0), 1, 1400, 200, "active_allocated");
    assert_int_equal(number(item(segments, 1), "address"), 3000);
    assert_int_equal(number(item(segments, 1), "allocated_size"), 0);
}

/* Blocks that lie in each other, or stick out of their segment, would draw a picture with more
 * than there is. */
static void test_what_does_not_fit_into_its_segment_is_left_out(void **state)
{
    const struct mt_viz_span spans[] = {
        {.address = 1000, .bytes = 1000, .end_ns = STAYED, .is_segment = 1},
        {.address = 1000, .bytes = 400, .end_ns = STAYED},
        {.address = 1200, .bytes = 100, .end_ns = STAYED},
        {.address = 1900, .bytes = 200, .end_ns = STAYED},
        {.address = 1800, .bytes = UINT64_MAX, .end_ns = STAYED}};
    const struct mt_viz_device device = {"gpu:0", spans, 5};
    (void)state;
    const struct mt_pickle_value *segments = mt_pickle_get(write_and_read(&device, 1), "segments");
    assert_int_equal(number(item(segments, 0), "allocated_size"), 400);
    assert_int_equal(count(mt_pickle_get(item(segments, 0), "blocks")), 2);
    assert_block(item(segments, 0), 1, 1400, 600, "inactive");
}

static void test_the_trace_begins_with_segments_and_ends_with_them(void **state)
{
    const struct mt_viz_span spans[] = {
        {.address = 1000, .bytes = 10, .begin_ns = 5000, .end_ns = 9000},
        {.address = 1000, .bytes = 100, .begin_ns = 5000, .end_ns = 9000, .is_segment = 1},
        {.address = 1020, .bytes = 10, .begin_ns = 9000, .end_ns = STAYED}};
    static const struct {
        const char *action;
        uint64_t address, time_us;
    } expected[] = {{"segment_alloc", 1000, 5},  {"alloc", 1000, 5},
                    {"free_requested", 1000, 9}, {"free_completed", 1000, 9},
                    {"segment_free", 1000, 9},   {"alloc", 1020, 9}};
    const struct mt_viz_device devices[] = {{"gpu:0", NULL, 0}, {"gpu:1", spans, 3}};
    (void)state;
    const struct mt_pickle_value *traces =
        mt_pickle_get(write_and_read(devices, 2), "device_traces");
    assert_int_equal(count(traces), 2);
    assert_int_equal(count(item(traces, 0)), 0);
    assert_int_equal(count(item(traces, 1)), 6);
    for (size_t i = 0; i < 6; i++) {
        const struct mt_pickle_value *entry = item(item(traces, 1), i);
        assert_true(mt_pickle_is_text(mt_pickle_get(entry, "action"), expected[i].action));
        assert_int_equal(number(entry, "addr"), expected[i].address);
        assert_int_equal(number(entry, "time_us"), expected[i].time_us);
    }
}

/* Addresses of the upper half of the space are positive in Python too. */
static void test_numbers_are_positive_and_texts_utf8(void **state)
{
    const uint64_t high = UINT64_C(0xffff800000000000);
    const struct mt_viz_span spans[] = {
        {.address = high, .bytes = 4096, .end_ns = STAYED, .is_segment = 1},
        {.address = high, .bytes = 4096, .end_ns = STAYED, .label = "\xff"}};
    const struct mt_viz_device device = {"gpu:0", spans, 2};
    (void)state;
    const struct mt_pickle_value *root = write_and_read(&device, 1);
    const struct mt_pickle_value *segment = item(mt_pickle_get(root, "segments"), 0);
    assert_int_equal(number(segment, "address"), high);
    const struct mt_pickle_value *frames =
        mt_pickle_get(item(mt_pickle_get(segment, "blocks"), 0), "frames");
    assert_true(mt_pickle_is_text(mt_pickle_get(item(frames, 0), "name"), "\xef\xbf\xbd"));
    /* LONG1 of nine bytes, the last of which is 0: in eight bytes the number would be negative. */
    static const char long1[] = "\x8a\x09\x00\x00\x00\x00\x00\x80\xff\xff\x00";
    assert_non_null(memmem(mt_strbuf_text(&out), out.length, long1, sizeof long1 - 1));
}

#define TEST(name) cmocka_unit_test_teardown(name, forget)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_blocks_and_what_is_free_fill_a_segment),
        TEST(test_pieces_side_by_side_are_one_segment),
        TEST(test_what_does_not_fit_into_its_segment_is_left_out),
        TEST(test_the_trace_begins_with_segments_and_ends_with_them),
        TEST(test_numbers_are_positive_and_texts_utf8),
    };
    return RUN_TESTS(tests);
}
