/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "scribe.h"

#include <stdlib.h>

static void test_streams_are_merged_by_time(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    struct scribe scribe;
    struct mt_merge *merge;
    struct mt_event event;
    uint64_t seed = 88172645463325252u;
    size_t n[3] = {0};
    uint64_t last[3] = {0};
    uint64_t latest = 0;
    scribe_begin(&scribe, path, 3);
    /* Each stream rises by steps of its own; one spans several blocks. */
    for (uint64_t i = 0; i < 40000; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        size_t stream = seed % 16 < 12 ? 0 : 1 + seed % 2;
        last[stream] += seed % 1000;
        put_event(&scribe.writer[stream], MT_EVENT_LOOK, 2000 + last[stream], 1, n[stream]++);
    }
    scribe_end(&scribe);
    struct mt_record_file *file = must_open(path);
    assert_true(file->n_blocks > 4);
    size_t seen[3] = {0};
    assert_int_equal(mt_merge_create(file, &merge), 0);
    while (mt_merge_next(merge, &event)) {
        assert_true(event.ticks >= latest);
        assert_true(event.stream < 3);
        latest = event.ticks;
        /* None is left out, doubled or out of its stream's order. */
        assert_int_equal(event.field[0], seen[event.stream]++);
    }
    assert_memory_equal(seen, n, sizeof n);
    assert_int_equal(mt_merge_next(merge, &event), 0);
    mt_merge_destroy(merge);
    mt_record_file_close(file);
    remove_file(path);
}

/* An address is freed by one thread and given to another in one tick. */
static void test_at_one_time_what_ends_comes_before_what_begins(void **state)
{
    (void)state;
    static const enum mt_event_op ends[] = {MT_EVENT_FREE, MT_EVENT_SAMPLE_FREE, MT_EVENT_MUNMAP,
                                            MT_EVENT_BUFFER_FREE};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const char *path = in_folder("a.mtr");
        struct scribe scribe;
        struct mt_merge *merge;
        struct mt_event event;
        scribe_begin(&scribe, path, 3);
        put_alloc(&scribe.writer[0], 5000, 0x1000, 64);
        put_event(&scribe.writer[1], MT_EVENT_LOOK, 5000, 1, (uint64_t)7);
        mt_write_event(&scribe.writer[2], ends[i], 5000, (const uint64_t[]){0x200, 64},
                       ends[i] == MT_EVENT_MUNMAP ? 2 : 1);
        scribe_end(&scribe);
        struct mt_record_file *file = must_open(path);
        assert_int_equal(mt_merge_create(file, &merge), 0);
        assert_int_equal(mt_merge_next(merge, &event), 1);
        assert_int_equal(event.op, ends[i]);
        assert_int_equal(mt_merge_next(merge, &event), 1);
        assert_int_equal(event.op, MT_EVENT_ALLOC);
        assert_int_equal(mt_merge_next(merge, &event), 1);
        assert_int_equal(event.op, MT_EVENT_LOOK);
        assert_int_equal(mt_merge_next(merge, &event), 0);
        mt_merge_destroy(merge);
        mt_record_file_close(file);
        remove_file(path);
    }
}

static void test_a_stream_keeps_its_own_order_at_one_time(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    struct scribe scribe;
    struct mt_merge *merge;
    struct mt_event event;
    scribe_begin(&scribe, path, 1);
    put_alloc(&scribe.writer[0], 5000, 0x1000, 64);
    put_free(&scribe.writer[0], 5000, 0x1000);
    put_alloc(&scribe.writer[0], 5000, 0x1000, 65);
    scribe_end(&scribe);
    struct mt_record_file *file = must_open(path);
    assert_int_equal(mt_merge_create(file, &merge), 0);
    static const enum mt_event_op expected[] = {MT_EVENT_ALLOC, MT_EVENT_FREE, MT_EVENT_ALLOC};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(mt_merge_next(merge, &event), 1);
        assert_int_equal(event.op, expected[i]);
    }
    mt_merge_destroy(merge);
    mt_record_file_close(file);
    remove_file(path);
}

static void test_a_file_without_events_merges_to_nothing(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    struct scribe scribe;
    struct mt_merge *merge;
    struct mt_event event;
    scribe_begin(&scribe, path, 2);
    scribe_end(&scribe);
    struct mt_record_file *file = must_open(path);
    assert_int_equal(file->n_blocks, 0);
    assert_int_equal(file->blocks_bad, 0);
    assert_int_equal(file->last_ticks, 1000);
    assert_int_equal(mt_merge_create(file, &merge), 0);
    assert_int_equal(mt_merge_next(merge, &event), 0);
    mt_merge_destroy(merge);
    mt_merge_destroy(NULL);
    mt_record_file_close(file);
    mt_record_file_close(NULL);
    remove_file(path);
}

/* What tells of the rate of the counter, beside the header's start. */
enum told { BY_HEADER, BY_EVENTS, BY_BLOCK };

/* A file of a counter that ticks three times a nanosecond. */
static struct mt_record_file *open_counted(const char *path, enum told told)
{
    struct scribe scribe;
    scribe_begin(&scribe, path, 1);
    struct mt_writer *writer = &scribe.writer[0];
    put_event(writer, MT_EVENT_LOOK, 3900, 1, (uint64_t)1);
    if (told == BY_EVENTS) {
        put_event(writer, MT_EVENT_CLOCK, 6000, 1, (uint64_t)1500);
        put_event(writer, MT_EVENT_PICTURE_BEGIN, 3003000, 4, (uint64_t)0, (uint64_t)2,
                  (uint64_t)1000500, (uint64_t)0);
        put_event(writer, MT_EVENT_PICTURE_BEGIN, 3004000, 4, (uint64_t)0, (uint64_t)1, (uint64_t)0,
                  (uint64_t)0);
    }
    scribe_end(&scribe);
    struct image image = load_image(path);
    struct mt_file_header *header = header_of(&image);
    header->clock_kind = MT_CLOCK_TSC;
    header->start_ticks = 3000;
    header->start_monotonic_ns = 500;
    block_of(&image, 0)->clock_ticks = 3900;
    block_of(&image, 0)->clock_monotonic_ns = 800;
    repair_block(&image, 0);
    header->end_ticks = 30003000; /* of a process that was killed between its last two words */
    header->end_monotonic_ns = told == BY_HEADER ? 10000500 : 0;
    repair_header(&image);
    save_image(path, &image, image.length);
    free(image.bytes);
    return must_open(path);
}

static void assert_thirds(const struct mt_record_file *file)
{
    struct mt_clock clock;
    mt_clock_of_file(file, &clock);
    assert_int_equal(mt_clock_ns(&clock, 3000), 500);
    assert_int_equal(mt_clock_ns(&clock, 3300), 600);
    assert_int_equal(mt_clock_ns(&clock, 0), 500);
    assert_int_equal(mt_clock_ticks(&clock, 600), 3300);
    assert_int_equal(mt_clock_ticks(&clock, 0), 3000);
}

static void test_the_counter_is_read_by_the_pairs_of_start_and_end(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    struct mt_record_file *file = open_counted(path, BY_HEADER);
    assert_thirds(file);
    mt_record_file_close(file);
    remove_file(path);
}

static void test_a_killed_process_is_timed_by_its_last_pair(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    for (int told = BY_EVENTS; told <= BY_BLOCK; told++) {
        struct mt_record_file *file = open_counted(path, (enum told)told);
        assert_thirds(file);
        mt_record_file_close(file);
        remove_file(path);
    }
}

static void test_times_that_cannot_be_stay_within_range(void **state)
{
    (void)state;
    const struct mt_clock fast = {1000, UINT64_MAX - 10, 1e9};
    const struct mt_clock slow = {UINT64_MAX - 10, 1000, 1e-9};
    assert_int_equal(mt_clock_ns(&fast, UINT64_MAX), UINT64_MAX);
    assert_int_equal(mt_clock_ticks(&slow, UINT64_MAX), UINT64_MAX);
    assert_int_equal(mt_clock_ticks(&fast, UINT64_MAX), 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams_are_merged_by_time),
        cmocka_unit_test(test_at_one_time_what_ends_comes_before_what_begins),
        cmocka_unit_test(test_a_stream_keeps_its_own_order_at_one_time),
        cmocka_unit_test(test_a_file_without_events_merges_to_nothing),
        cmocka_unit_test(test_the_counter_is_read_by_the_pairs_of_start_and_end),
        cmocka_unit_test(test_a_killed_process_is_timed_by_its_last_pair),
        cmocka_unit_test(test_times_that_cannot_be_stay_within_range),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
