/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "scribe.h"

#include <stdlib.h>
#include <string.h>

/* Where a varint grows by a byte, and the ends. */
static const uint64_t edges[] = {0,
                                 1,
                                 127,
                                 128,
                                 16383,
                                 16384,
                                 ((uint64_t)1 << 32) - 1,
                                 (uint64_t)1 << 32,
                                 ((uint64_t)1 << 56) - 1,
                                 (uint64_t)1 << 56,
                                 ((uint64_t)1 << 63) - 1,
                                 (uint64_t)1 << 63,
                                 UINT64_MAX};
#define N_EDGES (sizeof edges / sizeof *edges)

/* An op and its fields as the list of the format describes them in words. */
struct described {
    const char *name;
    enum mt_event_op op;
    const char *words;
};

static const struct described ops[] = {
#define DESCRIBED(NAME, value, words) {#NAME, MT_EVENT_##NAME, words},
    MT_EVENT_LIST(DESCRIBED)
#undef DESCRIBED
};
#define N_OPS (sizeof ops / sizeof *ops)

/* The words up to a comma or to what is no plain number. */
static size_t n_plain_fields(const char *words)
{
    size_t n = 0;
    for (;;) {
        size_t length = strcspn(words, " ");
        int ends = length && words[length - 1] == ',';
        if (!length || words[0] == '(' || strncmp(words, "frame*", 6) == 0 ||
            (length == 5 && strncmp(words, "bytes", 5) == 0))
            return n;
        n++;
        if (ends || !words[length])
            return n;
        words += length + 1;
    }
}

static int is_heap(enum mt_event_op op)
{
    return op >= MT_EVENT_ALLOC && op <= MT_EVENT_SAMPLE_FREE;
}

static int has_bytes(enum mt_event_op op)
{
    return op == MT_EVENT_STRING || op == MT_EVENT_PICTURE_TEXT || op == MT_EVENT_MACHINE;
}

/* Writes an event of any op, whose fields are different edges. */
static void write_any(struct mt_writer *writer, const struct described *described, size_t turn,
                      uint64_t fields[MT_EVENT_FIELDS], size_t n)
{
    for (size_t i = 0; i < n; i++)
        fields[i] = edges[(turn + i) % N_EDGES];
    if (is_heap(described->op)) {
        fields[0] &= ~(uint64_t)7;
        assert_true(mt_writer_room(writer, 60, 2000));
        uint8_t *at = mt_event_begin(writer, described->op, 2000);
        at = mt_put_heap_address(writer, at, fields[0]);
        for (size_t i = 1; i < n; i++)
            at = mt_varint_put(at, fields[i]);
        mt_event_end(writer, at);
    } else if (has_bytes(described->op)) {
        fields[1] = 3;
        mt_write_bytes(writer, described->op, 2000, fields[0], "a\0b", 3);
    } else {
        if (described->op == MT_EVENT_STACK)
            fields[2] = 0;
        if (described->op == MT_EVENT_PICTURE_RUNS)
            fields[0] = 0;
        mt_write_event(writer, described->op, 2000, fields, n);
    }
}

static void assert_event_is(const struct mt_event *event, const struct described *described,
                            const uint64_t fields[MT_EVENT_FIELDS], size_t n)
{
    assert_int_equal(event->op, described->op);
    assert_int_equal(event->ticks, 2000);
    for (size_t i = 0; i < n; i++)
        if (event->field[i] != fields[i])
            fail_msg("%s: field %zu is %llx, not %llx", described->name, i,
                     (unsigned long long)event->field[i], (unsigned long long)fields[i]);
    for (size_t i = n; i < MT_EVENT_FIELDS; i++)
        assert_int_equal(event->field[i], 0);
    if (has_bytes(described->op)) {
        assert_int_equal(event->length, 3);
        assert_memory_equal(event->bytes, "a\0b", 3);
    }
}

static void test_every_op_of_the_list_comes_back_as_it_was_written(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    for (size_t i = 0; i < N_OPS; i++) {
        size_t n = n_plain_fields(ops[i].words);
        uint64_t fields[N_EDGES][MT_EVENT_FIELDS] = {0};
        struct scribe scribe;
        scribe_begin(&scribe, path, 1);
        for (size_t turn = 0; turn < N_EDGES; turn++)
            write_any(&scribe.writer[0], &ops[i], turn, fields[turn], n);
        scribe_end(&scribe);
        struct mt_record_file *file = must_open(path);
        struct mt_cursor cursor;
        struct mt_event event;
        mt_cursor_init(&cursor, file, 0, file->n_blocks);
        for (size_t turn = 0; turn < N_EDGES; turn++) {
            if (!mt_cursor_next(&cursor, &event))
                fail_msg("%s cannot be read", ops[i].name);
            assert_event_is(&event, &ops[i], fields[turn], n);
        }
        assert_int_equal(mt_cursor_next(&cursor, &event), 0);
        assert_int_equal(cursor.blocks_bad, 0);
        mt_cursor_finish(&cursor);
        mt_record_file_close(file);
        remove_file(path);
    }
}

static void test_the_list_describes_what_it_should(void **state)
{
    (void)state;
    assert_int_equal(n_plain_fields("address size stack"), 3);
    assert_int_equal(n_plain_fields(""), 0);
    assert_int_equal(n_plain_fields("number length bytes"), 2);
    assert_int_equal(n_plain_fields("count (gap length flags)*count, in pages"), 1);
    assert_int_equal(n_plain_fields("resident_bytes"), 1);
    assert_int_equal(n_plain_fields("allocs frees, over all streams"), 2);
    for (size_t i = 0; i < N_OPS; i++)
        assert_true(ops[i].op > 0 && ops[i].op < MT_EVENT_SKIPPED_FROM);
}

static void test_heap_addresses_come_back_whatever_came_before(void **state)
{
    (void)state;
    static const uint64_t addresses[] = {
        0x7f0000000000, 0x7f0000000008, 0x10, 0xfffffffffffffff8, 0x10, 0x555500001000, 0x0,
    };
    const size_t n = sizeof addresses / sizeof *addresses;
    const char *path = in_folder("a.mtr");
    struct scribe scribe;
    scribe_begin(&scribe, path, 1);
    for (size_t i = 0; i < n; i++) {
        put_alloc(&scribe.writer[0], 2000 + i, addresses[i], i);
        put_free(&scribe.writer[0], 2000 + i, addresses[n - 1 - i]);
    }
    scribe_end(&scribe);
    struct mt_record_file *file = must_open(path);
    struct mt_cursor cursor;
    struct mt_event event;
    mt_cursor_init(&cursor, file, 0, file->n_blocks);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(mt_cursor_next(&cursor, &event), 1);
        assert_int_equal(event.op, MT_EVENT_ALLOC);
        assert_int_equal(event.field[0], addresses[i]);
        assert_int_equal(mt_cursor_next(&cursor, &event), 1);
        assert_int_equal(event.op, MT_EVENT_FREE);
        assert_int_equal(event.field[0], addresses[n - 1 - i]);
    }
    mt_cursor_finish(&cursor);
    mt_record_file_close(file);
    remove_file(path);
}

/* No allocator gives out such an address; that a block and its free agree is what matters. */
static void test_an_unaligned_heap_address_loses_its_lowest_bits(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    struct scribe scribe;
    struct mt_event event;
    struct mt_cursor cursor;
    scribe_begin(&scribe, path, 1);
    put_alloc(&scribe.writer[0], 2000, 0x1005, 3);
    put_free(&scribe.writer[0], 2001, 0x1005);
    scribe_end(&scribe);
    struct mt_record_file *file = must_open(path);
    mt_cursor_init(&cursor, file, 0, file->n_blocks);
    while (mt_cursor_next(&cursor, &event))
        assert_int_equal(event.field[0], 0x1000);
    mt_cursor_finish(&cursor);
    mt_record_file_close(file);
    remove_file(path);
}

static void test_a_small_block_and_its_free_take_few_bytes(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    struct scribe scribe;
    scribe_begin(&scribe, path, 1);
    put_alloc(&scribe.writer[0], 2000, 0x1000, 100);
    uint32_t before = scribe.writer[0].block->used;
    put_alloc(&scribe.writer[0], 2100, 0x1100, 100);
    uint32_t alloc = scribe.writer[0].block->used;
    put_free(&scribe.writer[0], 2200, 0x1000);
    assert_int_equal(alloc - before, 1 + 1 + 1 + 1 + 1);
    assert_int_equal(scribe.writer[0].block->used - alloc, 1 + 1 + 1);
    scribe_end(&scribe);
    remove_file(path);
}

static void test_strings_are_numbered_and_cut_at_their_limit(void **state)
{
    (void)state;
    static char text[MT_MAX_STRING + 10];
    const char *path = in_folder("a.mtr");
    struct scribe scribe;
    struct mt_event event;
    struct mt_cursor cursor;
    memset(text, 'x', sizeof text);
    scribe_begin(&scribe, path, 1);
    assert_int_equal(mt_write_string(&scribe.writer[0], 2000, "weights", 7), 1);
    assert_int_equal(mt_write_string(&scribe.writer[0], 2000, "", 0), 2);
    assert_int_equal(mt_write_string(&scribe.writer[0], 2000, text, sizeof text), 3);
    scribe_end(&scribe);
    struct mt_record_file *file = must_open(path);
    mt_cursor_init(&cursor, file, 0, file->n_blocks);
    for (uint64_t number = 1; number <= 3; number++) {
        static const size_t lengths[] = {7, 0, MT_MAX_STRING};
        assert_int_equal(mt_cursor_next(&cursor, &event), 1);
        assert_int_equal(event.op, MT_EVENT_STRING);
        assert_int_equal(event.field[0], number);
        assert_int_equal(event.length, lengths[number - 1]);
    }
    assert_memory_equal(event.bytes, text, MT_MAX_STRING);
    mt_cursor_finish(&cursor);
    mt_record_file_close(file);
    remove_file(path);
}

static void write_stacks(struct mt_writer *writer, const uint64_t *frames, size_t n)
{
    assert_int_equal(mt_write_stack(writer, 2000, frames, 3, 1), 1);
    assert_int_equal(mt_write_stack(writer, 2000, frames, 0, 0), 2);
    assert_int_equal(mt_write_stack(writer, 2000, frames, n, 7), 3);
}

static void test_stacks_come_back_and_are_cut_at_their_limit(void **state)
{
    (void)state;
    uint64_t frames[MT_MAX_FRAMES + 6];
    uint64_t read[MT_MAX_FRAMES];
    const char *path = in_folder("a.mtr");
    struct scribe scribe;
    struct mt_event event;
    struct mt_cursor cursor;
    for (size_t i = 0; i < MT_MAX_FRAMES + 6; i++)
        frames[i] = edges[i % N_EDGES] - i;
    scribe_begin(&scribe, path, 1);
    write_stacks(&scribe.writer[0], frames, MT_MAX_FRAMES + 6);
    scribe_end(&scribe);
    struct mt_record_file *file = must_open(path);
    mt_cursor_init(&cursor, file, 0, file->n_blocks);
    static const size_t expected[] = {3, 0, MT_MAX_FRAMES};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(mt_cursor_next(&cursor, &event), 1);
        assert_int_equal(event.field[0], i + 1);
        assert_int_equal(event.field[1], i != 1);
        assert_int_equal(event.field[2], expected[i]);
        assert_int_equal(mt_event_frames(&event, read), expected[i]);
        assert_memory_equal(read, frames, expected[i] * sizeof *read);
    }
    mt_cursor_finish(&cursor);
    mt_record_file_close(file);
    remove_file(path);
}

static void test_text_comes_in_pieces_of_the_format(void **state)
{
    (void)state;
    static char text[MT_TEXT_PIECE + 1];
    const char *path = in_folder("a.mtr");
    struct scribe scribe;
    struct mt_event event;
    struct mt_cursor cursor;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 7);
    scribe_begin(&scribe, path, 1);
    mt_write_bytes(&scribe.writer[0], MT_EVENT_PICTURE_TEXT, 2000, MT_TEXT_MAPS, text, sizeof text);
    mt_write_bytes(&scribe.writer[0], MT_EVENT_MACHINE, 2000, MT_MACHINE_OTHERS, text, 1);
    scribe_end(&scribe);
    struct mt_record_file *file = must_open(path);
    mt_cursor_init(&cursor, file, 0, file->n_blocks);
    assert_int_equal(mt_cursor_next(&cursor, &event), 1);
    assert_int_equal(event.field[0], MT_TEXT_MAPS);
    assert_int_equal(event.length, MT_TEXT_PIECE);
    assert_memory_equal(event.bytes, text, MT_TEXT_PIECE);
    assert_int_equal(mt_cursor_next(&cursor, &event), 1);
    assert_int_equal(event.field[0], MT_MACHINE_OTHERS);
    assert_int_equal(event.length, 1);
    mt_cursor_finish(&cursor);
    mt_record_file_close(file);
    remove_file(path);
}

static void put_runs(struct mt_writer *writer, const uint64_t *numbers, size_t n_runs)
{
    uint64_t fields[1 + 3 * 4];
    fields[0] = n_runs;
    memcpy(fields + 1, numbers, n_runs * 3 * sizeof *numbers);
    mt_write_event(writer, MT_EVENT_PICTURE_RUNS, 2000, fields, 1 + 3 * n_runs);
}

static void test_runs_of_pages_carry_on_from_piece_to_piece(void **state)
{
    (void)state;
    static const uint64_t first[] = {16, 4, 0, 0, 1, MT_RUN_FILE};
    static const uint64_t second[] = {100, 512, MT_RUN_HUGE};
    static const struct mt_run_pages expected[] = {{16, 4, 0}, {20, 1, 1}, {121, 512, 2}};
    const char *path = in_folder("a.mtr");
    struct scribe scribe;
    struct mt_event event;
    struct mt_cursor cursor;
    struct mt_runs runs;
    struct mt_run_pages run;
    uint64_t page = 0;
    size_t n = 0;
    scribe_begin(&scribe, path, 1);
    put_event(&scribe.writer[0], MT_EVENT_PICTURE_BEGIN, 2000, 4, (uint64_t)0, (uint64_t)2,
              (uint64_t)2000, (uint64_t)0);
    put_runs(&scribe.writer[0], first, 2);
    put_runs(&scribe.writer[0], second, 1);
    scribe_end(&scribe);
    struct mt_record_file *file = must_open(path);
    mt_cursor_init(&cursor, file, 0, file->n_blocks);
    while (mt_cursor_next(&cursor, &event)) {
        if (event.op != MT_EVENT_PICTURE_RUNS)
            continue;
        mt_runs_init(&runs, &event);
        while (mt_runs_next(&runs, &page, &run))
            assert_memory_equal(&run, &expected[n++], sizeof run);
    }
    assert_int_equal(n, 3);
    mt_cursor_finish(&cursor);
    mt_record_file_close(file);
    remove_file(path);
}

static void test_runs_past_any_address_space_end_the_list(void **state)
{
    (void)state;
    uint8_t bytes[3 * MT_VARINT_MAX];
    struct mt_event event = {.op = MT_EVENT_PICTURE_RUNS, .field = {1}, .bytes = bytes};
    for (size_t wrong = 0; wrong < 3; wrong++) {
        const uint64_t most = (uint64_t)1 << 52;
        uint64_t page = wrong == 2 ? most : 7;
        uint8_t *at = mt_varint_put(bytes, wrong == 0 ? most : 1);
        at = mt_varint_put(at, wrong == 1 ? UINT64_MAX : 1);
        at = mt_varint_put(at, 0);
        event.length = (size_t)(at - bytes);
        struct mt_runs runs;
        struct mt_run_pages run;
        mt_runs_init(&runs, &event);
        assert_int_equal(mt_runs_next(&runs, &page, &run), 0);
    }
}

static void test_ops_of_a_later_minor_version_are_passed_over(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    struct scribe scribe;
    struct mt_event event;
    struct mt_cursor cursor;
    scribe_begin(&scribe, path, 1);
    for (int op = MT_EVENT_SKIPPED_FROM; op <= MT_EVENT_SKIPPED_TO; op++) {
        struct mt_writer *writer = &scribe.writer[0];
        assert_true(mt_writer_room(writer, 100, 2000));
        uint8_t *at = mt_event_begin(writer, (enum mt_event_op)op, 2000);
        *at++ = 2;
        *at++ = 0xff;
        *at++ = 0xff;
        mt_event_end(writer, at);
        put_event(writer, MT_EVENT_LOOK, 2001, 1, (uint64_t)op);
    }
    scribe_end(&scribe);
    struct mt_record_file *file = must_open(path);
    mt_cursor_init(&cursor, file, 0, file->n_blocks);
    for (int op = MT_EVENT_SKIPPED_FROM; op <= MT_EVENT_SKIPPED_TO; op++) {
        assert_int_equal(mt_cursor_next(&cursor, &event), 1);
        assert_int_equal(event.op, op);
        assert_int_equal(event.length, 2);
        assert_int_equal(mt_cursor_next(&cursor, &event), 1);
        assert_int_equal(event.op, MT_EVENT_LOOK);
        assert_int_equal(event.field[0], op);
    }
    assert_int_equal(cursor.blocks_bad, 0);
    mt_cursor_finish(&cursor);
    mt_record_file_close(file);
    remove_file(path);
}

static void test_a_full_block_is_sealed_and_the_next_begins(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    struct scribe scribe;
    struct mt_event event;
    struct mt_cursor cursor;
    const uint64_t n = 30000;
    scribe_begin(&scribe, path, 1);
    for (uint64_t i = 0; i < n; i++)
        put_alloc(&scribe.writer[0], 2000 + 300 * i, 16 * i * i, i);
    scribe_end(&scribe);
    struct mt_record_file *file = must_open(path);
    assert_true(file->n_blocks > 3);
    assert_int_equal(count_open(file), 0);
    assert_int_equal(file->header.blocks_backed, file->n_blocks);
    assert_int_equal(file->header.next_block, file->n_blocks);
    for (size_t i = 0; i < file->n_blocks; i++) {
        assert_int_equal(file->blocks[i].header.sequence, i);
        assert_int_equal(file->blocks[i].header.tid, 100);
        /* Only what one more event could need stays unused. */
        if (i + 1 < file->n_blocks)
            assert_true(file->blocks[i].header.used > MT_BLOCK_BYTES - 88 - 41);
    }
    mt_cursor_init(&cursor, file, 0, file->n_blocks);
    for (uint64_t i = 0; i < n; i++) {
        assert_int_equal(mt_cursor_next(&cursor, &event), 1);
        assert_int_equal(event.ticks, 2000 + 300 * i);
        assert_int_equal(event.field[0], 16 * i * i);
        assert_int_equal(event.field[1], i);
    }
    assert_int_equal(mt_cursor_next(&cursor, &event), 0);
    assert_int_equal(file->last_ticks, 2000 + 300 * (n - 1));
    mt_cursor_finish(&cursor);
    mt_record_file_close(file);
    remove_file(path);
}

static void test_a_sealed_block_holds_the_running_totals(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    struct scribe scribe;
    scribe_begin(&scribe, path, 1);
    put_free(&scribe.writer[0], 2000, 0x1000);
    scribe.writer[0].small_allocs = 5;
    scribe.writer[0].small_alloc_bytes = 500;
    scribe.writer[0].small_frees = 3;
    scribe.writer[0].small_free_bytes = 300;
    scribe_end(&scribe);
    struct mt_record_file *file = must_open(path);
    const struct mt_block_header *header = &file->blocks[0].header;
    assert_int_equal(header->small_allocs, 5);
    assert_int_equal(header->small_alloc_bytes, 500);
    assert_int_equal(header->small_frees, 3);
    assert_int_equal(header->small_free_bytes, 300);
    mt_record_file_close(file);
    remove_file(path);
}

static void test_time_never_goes_back_in_a_stream(void **state)
{
    (void)state;
    static const uint64_t written[] = {5000, 4000, 5001, 0, 9000};
    static const uint64_t expected[] = {5000, 5000, 5001, 5001, 9000};
    const char *path = in_folder("a.mtr");
    struct scribe scribe;
    struct mt_event event;
    struct mt_cursor cursor;
    scribe_begin(&scribe, path, 1);
    for (size_t i = 0; i < 5; i++)
        put_event(&scribe.writer[0], MT_EVENT_LOOK, written[i], 1, (uint64_t)i);
    fill_block(&scribe.writer[0], 9000);
    put_event(&scribe.writer[0], MT_EVENT_LOOK, 100, 1, UINT64_MAX);
    scribe_end(&scribe);
    struct mt_record_file *file = must_open(path);
    assert_int_equal(file->n_blocks, 2);
    mt_cursor_init(&cursor, file, 0, file->n_blocks);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(mt_cursor_next(&cursor, &event), 1);
        assert_int_equal(event.ticks, expected[i]);
    }
    while (mt_cursor_next(&cursor, &event))
        assert_int_equal(event.ticks, 9000);
    mt_cursor_finish(&cursor);
    mt_record_file_close(file);
    remove_file(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_list_describes_what_it_should),
        cmocka_unit_test(test_every_op_of_the_list_comes_back_as_it_was_written),
        cmocka_unit_test(test_heap_addresses_come_back_whatever_came_before),
        cmocka_unit_test(test_an_unaligned_heap_address_loses_its_lowest_bits),
        cmocka_unit_test(test_a_small_block_and_its_free_take_few_bytes),
        cmocka_unit_test(test_strings_are_numbered_and_cut_at_their_limit),
        cmocka_unit_test(test_stacks_come_back_and_are_cut_at_their_limit),
        cmocka_unit_test(test_text_comes_in_pieces_of_the_format),
        cmocka_unit_test(test_runs_of_pages_carry_on_from_piece_to_piece),
        cmocka_unit_test(test_runs_past_any_address_space_end_the_list),
        cmocka_unit_test(test_ops_of_a_later_minor_version_are_passed_over),
        cmocka_unit_test(test_a_full_block_is_sealed_and_the_next_begins),
        cmocka_unit_test(test_a_sealed_block_holds_the_running_totals),
        cmocka_unit_test(test_time_never_goes_back_in_a_stream),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
