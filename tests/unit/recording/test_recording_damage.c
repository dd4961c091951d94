/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "scribe.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"

/* Two streams; the first has three blocks, the second one, in the order 0 0 1 0. */
static void write_four_blocks(const char *path)
{
    struct scribe scribe;
    scribe_begin(&scribe, path, 2);
    fill_block(&scribe.writer[0], 2000);
    fill_block(&scribe.writer[0], 3000);
    put_event(&scribe.writer[0], MT_EVENT_LOOK, 3500, 1, (uint64_t)1);
    fill_block(&scribe.writer[0], 3600);
    put_alloc(&scribe.writer[1], 2500, 0x1000, 64);
    put_event(&scribe.writer[0], MT_EVENT_LOOK, 4000, 1, (uint64_t)2);
    scribe_end(&scribe);
}

/* A sealed block of a few events of many kinds. */
static void write_small(const char *path)
{
    struct scribe scribe;
    const uint64_t frames[] = {0x401000, 0x402000, 0x7f0000001000};
    scribe_begin(&scribe, path, 1);
    struct mt_writer *writer = &scribe.writer[0];
    uint64_t name = mt_write_string(writer, 2000, "CPU", 3);
    uint64_t stack = mt_write_stack(writer, 2010, frames, 3, 1);
    put_alloc(writer, 2020, 0x10000, 128);
    put_event(writer, MT_EVENT_MMAP, 2030, 7, (uint64_t)0x7f0000000000, (uint64_t)4096, (uint64_t)3,
              (uint64_t)34, (uint64_t)0, (uint64_t)0, stack);
    put_event(writer, MT_EVENT_BUFFER_ALLOC, 2040, 7, (uint64_t)9, (uint64_t)0x20000, (uint64_t)512,
              (uint64_t)1, (uint64_t)1, name, stack);
    mt_write_bytes(writer, MT_EVENT_PICTURE_TEXT, 2050, MT_TEXT_MAPS, "00400000-00401000\n", 18);
    put_free(writer, 2060, 0x10000);
    scribe_end(&scribe);
}

static int open_code(const char *path, struct mt_error *error)
{
    struct mt_record_file *file = NULL;
    int result = mt_record_file_open(path, &file, error);
    assert_true((result == 0) == (file != NULL));
    mt_record_file_close(file);
    return result;
}

static void assert_refused(const char *path, int code, const char *words)
{
    struct mt_error error = {0};
    struct mt_file_header header = {.pid = 77};
    assert_int_equal(open_code(path, &error), code);
    assert_int_equal(error.code, code);
    assert_non_null(strstr(error.text, path));
    if (!strstr(error.text, words))
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
    assert_int_equal(mt_record_header_read(path, &header, &error), code);
    assert_int_equal(header.pid, 77);
    assert_int_equal(open_code(path, NULL), code);
}

static void save_text(const char *path, const void *text, size_t length)
{
    const struct image image = {(uint8_t *)(uintptr_t)text, length};
    save_image(path, &image, length);
}

static void test_foreign_files_are_refused(void **state)
{
    (void)state;
    static const char text[] = "MEMTALL is not MEMTALLY, and this is a text.\n";
    const char *path = in_folder("a.mtr");
    save_text(path, text, 5);
    assert_refused(path, MT_EFORMAT, "not a memtally recording");
    save_text(path, text, sizeof text - 1);
    assert_refused(path, MT_EFORMAT, "not a memtally recording");
    remove_file(path);
    struct mt_error error;
    assert_int_equal(open_code("/proc/self/exe", &error), MT_EFORMAT);
    assert_int_equal(open_code("/dev/zero", &error), MT_EFORMAT);
    assert_int_equal(open_code("/proc/self/maps", &error), MT_EFORMAT);
}

/* Large, and not read whole before it is refused. */
static void test_a_huge_foreign_file_is_refused_at_its_beginning(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "no tally", 8), 8);
    assert_int_equal(ftruncate(fd, (off_t)1 << 42), 0);
    close(fd);
    assert_refused(path, MT_EFORMAT, "not a memtally recording");
    remove_file(path);
}

/* A process that is killed while it begins has made the file, or given it its size, or written all
 * of the header but the magic. */
static void test_a_file_that_was_never_written_is_told_from_a_foreign_one(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    struct scribe scribe;
    scribe_begin(&scribe, path, 1);
    scribe_end(&scribe);
    struct image image = load_image(path);
    memset(image.bytes, 0, 8);
    save_image(path, &image, image.length);
    assert_refused(path, MT_ETRUNCATED, "before it recorded anything");
    save_text(path, "", 0);
    assert_refused(path, MT_ETRUNCATED, "before it recorded anything");
    assert_int_equal(truncate(path, (off_t)1 << 36), 0);
    assert_refused(path, MT_ETRUNCATED, "before it recorded anything");
    assert_true(mt_record_file_is_blank(path));
    assert_int_equal(mt_record_file_pack(path, NULL), 0);
    assert_int_equal(count_in_folder(), 0);
    free(image.bytes);
}

static void test_what_is_no_regular_file_is_refused_without_waiting(void **state)
{
    (void)state;
    const char *fifo = in_folder("fifo.mtr");
    const char *folder = in_folder("folder.mtr");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_refused(fifo, MT_EFORMAT, "not a regular file");
    remove_file(fifo);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_refused(folder, MT_EFORMAT, "not a regular file");
    assert_int_equal(rmdir(folder), 0);
    assert_refused(in_folder("none.mtr"), MT_ENOTFOUND, "cannot open");
}

static void test_another_version_or_byte_order_is_named(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    write_small(path);
    struct image image = load_image(path);
    header_of(&image)->version = MT_FILE_VERSION + 1;
    save_image(path, &image, image.length); /* its checksum may be anything */
    assert_refused(path, MT_EVERSION, "version 4");
    header_of(&image)->version = MT_FILE_VERSION;
    header_of(&image)->byte_order = 0x04030201;
    save_image(path, &image, image.length);
    assert_refused(path, MT_EFORMAT, "byte order");
    free(image.bytes);
    remove_file(path);
}

static void test_the_version_without_devices_is_read(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    struct mt_file_header header;
    write_small(path);
    struct image image = load_image(path);
    header_of(&image)->version = MT_FILE_OLDEST;
    header_of(&image)->crc32c = mt_crc32c(0, image.bytes, offsetof(struct mt_file_header, crc32c));
    save_image(path, &image, image.length);
    assert_int_equal(mt_record_header_read(path, &header, NULL), 0);
    assert_int_equal(header.version, 2);
    free(image.bytes);
    remove_file(path);
}

static void test_sizes_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    write_small(path);
    struct image image = load_image(path);
    struct mt_file_header *header = header_of(&image);
    uint32_t *const fields[] = {&header->header_bytes, &header->block_bytes, &header->page_bytes};
    static const uint32_t wrong[] = {0, 1, 100, 4097, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        uint32_t right = *fields[i];
        for (size_t j = 0; j < sizeof wrong / sizeof *wrong; j++) {
            *fields[i] = wrong[j];
            repair_header(&image);
            save_image(path, &image, image.length);
            assert_refused(path, MT_EFORMAT, "make no sense");
        }
        *fields[i] = right;
    }
    free(image.bytes);
    remove_file(path);
}

/* Whether each line of `part` is in `whole`, in that order. */
static int is_part_of(const char *part, const char *whole)
{
    while (*part) {
        size_t length = strcspn(part, "\n") + 1;
        const char *found = whole;
        while (*found && strncmp(found, part, length) != 0)
            found += strcspn(found, "\n") + 1;
        if (!*found)
            return 0;
        part += length;
        whole = found + length;
    }
    return 1;
}

/* A damaged copy of a file: what is read of it is right, and what is not read is told of. */
static void assert_honest(const char *path, const char *whole, const char *what, size_t at)
{
    struct mt_record_file *file;
    struct mt_error error = {0};
    if (mt_record_file_open(path, &file, &error) < 0) {
        assert_true(error.code < 0);
        return;
    }
    char *text = transcript(file);
    if (strcmp(text, whole) != 0 && file->blocks_bad == 0)
        fail_msg("%s at %zu: events differ and nothing is called bad", what, at);
    if (!is_part_of(text, whole))
        fail_msg("%s at %zu: events that nobody wrote", what, at);
    free(text);
    mt_record_file_close(file);
}

static void test_a_file_cut_anywhere_gives_what_is_left(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    write_four_blocks(path);
    char *whole = transcript_of(path);
    struct image image = load_image(path);
    for (size_t length = 0; length < image.length;) {
        save_image(path, &image, length);
        assert_honest(path, whole, "cut", length);
        size_t in_block = (length + MT_BLOCK_BYTES - MT_HEADER_BYTES) % MT_BLOCK_BYTES;
        int interesting = length < 300 || in_block < 100 || in_block > MT_BLOCK_BYTES - 30;
        length += interesting ? 1 : 61;
        if (length > MT_HEADER_BYTES + 100 && !interesting && in_block < MT_BLOCK_BYTES - 2000)
            length += 977;
    }
    free(image.bytes);
    free(whole);
    remove_file(path);
}

static void test_a_file_cut_between_blocks_is_noticed(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    write_four_blocks(path);
    struct image image = load_image(path);
    assert_int_equal(image.length, MT_HEADER_BYTES + 4 * MT_BLOCK_BYTES);
    for (size_t n = 0; n < 4; n++) {
        save_image(path, &image, MT_HEADER_BYTES + n * MT_BLOCK_BYTES);
        struct mt_record_file *file = must_open(path);
        assert_int_equal(file->n_blocks, n);
        assert_int_equal(file->blocks_bad, 1);
        assert_int_equal(file->first_bad_offset, MT_HEADER_BYTES + n * MT_BLOCK_BYTES);
        mt_record_file_close(file);
    }
    save_image(path, &image, 200);
    assert_refused(path, MT_ETRUNCATED, "ends too early");
    free(image.bytes);
    remove_file(path);
}

static void test_no_flipped_bit_gives_events_that_nobody_wrote(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    write_small(path);
    char *whole = transcript_of(path);
    struct image image = load_image(path);
    size_t end = MT_HEADER_BYTES + sizeof(struct mt_block_header) + block_of(&image, 0)->used + 16;
    for (size_t at = 0; at < end; at++) {
        if (at == sizeof(struct mt_file_header) + 8)
            at = MT_HEADER_BYTES - 8;
        for (int bit = 0; bit < 8; bit++) {
            image.bytes[at] ^= (uint8_t)(1 << bit);
            save_image(path, &image, image.length);
            assert_honest(path, whole, "bit flipped", at);
            image.bytes[at] ^= (uint8_t)(1 << bit);
        }
    }
    free(image.bytes);
    free(whole);
    remove_file(path);
}

static void test_a_sealed_block_with_a_wrong_checksum_is_left_out(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    write_four_blocks(path);
    struct image image = load_image(path);
    block_of(&image, 1)->crc32c ^= 1;
    save_image(path, &image, image.length);
    struct mt_record_file *file = must_open(path);
    assert_int_equal(file->n_blocks, 3);
    assert_int_equal(file->blocks_bad, 1);
    assert_int_equal(file->first_bad_offset, MT_HEADER_BYTES + MT_BLOCK_BYTES);
    mt_record_file_close(file);
    free(image.bytes);
    remove_file(path);
}

static void test_an_unfinished_block_is_read_as_far_as_it_was_written(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    struct scribe scribe;
    scribe_begin(&scribe, path, 2);
    for (uint64_t i = 0; i < 10; i++) {
        put_event(&scribe.writer[i % 2], MT_EVENT_LOOK, 2000 + i, 1, i);
        struct mt_record_file *file = must_open(path);
        assert_int_equal(count_events(file), i + 1);
        assert_int_equal(count_open(file), i == 0 ? 1 : 2);
        assert_int_equal(file->blocks_bad, 0);
        assert_int_equal(file->last_ticks, 2000 + i);
        mt_record_file_close(file);
    }
    /* Half of an event that was being written is not part of the recording. */
    mt_event_begin(&scribe.writer[0], MT_EVENT_LOOK, 3000);
    scribe_kill(&scribe);
    struct mt_record_file *file = must_open(path);
    assert_int_equal(count_events(file), 10);
    assert_int_equal(file->blocks_bad, 0);
    mt_record_file_close(file);
    remove_file(path);
}

/* Block 1 of stream 0 never reached the disk of a machine that crashed. */
static void test_a_block_that_is_all_zeros_leaves_a_gap_that_is_noticed(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    write_four_blocks(path);
    struct image image = load_image(path);
    memset(block_of(&image, 1), 0, MT_BLOCK_BYTES);
    save_image(path, &image, image.length);
    struct mt_record_file *file = must_open(path);
    assert_int_equal(file->n_blocks, 3);
    assert_int_equal(file->blocks_bad, 1);
    assert_int_equal(file->first_bad_offset, MT_HEADER_BYTES + MT_BLOCK_BYTES);
    mt_record_file_close(file);
    free(image.bytes);
    remove_file(path);
}

static void test_a_block_that_was_claimed_and_never_begun_is_no_damage(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    write_four_blocks(path);
    struct image image = load_image(path);
    image.bytes = realloc(image.bytes, image.length + MT_BLOCK_BYTES);
    assert_non_null(image.bytes);
    memset(image.bytes + image.length, 0, MT_BLOCK_BYTES);
    image.length += MT_BLOCK_BYTES;
    header_of(&image)->next_block = header_of(&image)->blocks_backed = 5;
    block_of(&image, 4)->magic = MT_BLOCK_MAGIC;
    save_image(path, &image, image.length);
    for (int state_of_it = 0; state_of_it < 3; state_of_it++) { /* begun, not begun, cut short */
        struct mt_record_file *file = must_open(path);
        assert_int_equal(file->n_blocks, 4);
        assert_int_equal(file->blocks_bad, 0);
        assert_int_equal(count_open(file), 0);
        mt_record_file_close(file);
        block_of(&image, 4)->magic = 0;
        if (state_of_it == 1)
            block_of(&image, 4)->tid = 7;
        save_image(path, &image, image.length);
    }
    free(image.bytes);
    remove_file(path);
}

static void test_pages_of_zeros_in_a_block_are_noticed(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    write_four_blocks(path);
    char *whole = transcript_of(path);
    struct image image = load_image(path);
    uint8_t page[4096];
    for (size_t at = MT_HEADER_BYTES; at < MT_HEADER_BYTES + MT_BLOCK_BYTES; at += sizeof page) {
        memcpy(page, image.bytes + at, sizeof page);
        memset(image.bytes + at, 0, sizeof page);
        save_image(path, &image, image.length);
        struct mt_record_file *file = must_open(path);
        assert_int_equal(file->blocks_bad, 1);
        assert_int_equal(file->first_bad_offset, MT_HEADER_BYTES);
        mt_record_file_close(file);
        assert_honest(path, whole, "page of zeros", at);
        memcpy(image.bytes + at, page, sizeof page);
    }
    free(whole);
    free(image.bytes);
    remove_file(path);
}

/* The header's page may be older on disk than the blocks. */
static void test_blocks_are_found_whatever_the_header_says_of_their_number(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    write_four_blocks(path);
    char *whole = transcript_of(path);
    struct image image = load_image(path);
    static const uint32_t numbers[] = {0, 1, 3, 4, 5, 1u << 22, UINT32_MAX};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        header_of(&image)->next_block = numbers[i];
        header_of(&image)->blocks_backed = numbers[i];
        save_image(path, &image, image.length);
        struct mt_record_file *file = must_open(path);
        char *text = transcript(file);
        assert_string_equal(text, whole);
        assert_int_equal(file->blocks_bad, numbers[i] > 4);
        free(text);
        mt_record_file_close(file);
    }
    free(whole);
    free(image.bytes);
    remove_file(path);
}

static void test_absurd_lengths_are_refused(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    write_small(path);
    struct image image = load_image(path);
    static const uint32_t lengths[] = {MT_BLOCK_BYTES - sizeof(struct mt_block_header) + 1,
                                       MT_BLOCK_BYTES, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        for (uint32_t sealed = 0; sealed < 2; sealed++) {
            block_of(&image, 0)->used = lengths[i];
            block_of(&image, 0)->sealed = sealed;
            save_image(path, &image, image.length);
            struct mt_record_file *file = must_open(path);
            assert_int_equal(file->n_blocks, 0);
            assert_int_equal(file->blocks_bad, 1);
            mt_record_file_close(file);
        }
    }
    free(image.bytes);
    remove_file(path);
}

/* Blocks whose events say more than is there, with a checksum that holds. */
static void test_events_that_break_the_grammar_end_their_block(void **state)
{
    (void)state;
    static const struct {
        uint8_t bytes[8];
        uint32_t length;
    } wrong[] = {
        {{0}, 1},                                    /* no op */
        {{63, 0, 0, 0}, 4},                          /* an op that is not known */
        {{128, 0, 0, 0}, 4},                         /* past the ops */
        {{MT_EVENT_LOOK}, 1},                        /* no delta */
        {{MT_EVENT_LOOK, 0}, 2},                     /* no field */
        {{MT_EVENT_LOOK, 0, 0x80}, 3},               /* half a field */
        {{MT_EVENT_STRING, 0, 1, 5, 'a', 'b'}, 6},   /* bytes that are not there */
        {{MT_EVENT_STACK, 0, 1, 1, 65}, 5},          /* too many frames */
        {{MT_EVENT_STACK, 0, 1, 1, 3, 1, 1}, 7},     /* frames that are not there */
        {{MT_EVENT_PICTURE_RUNS, 0, 2, 1, 1, 0}, 6}, /* runs that are not there */
        {{MT_EVENT_PICTURE_RUNS, 0, 0xff, 0xff, 0xff, 0xff, 0xf}, 7}, /* far too many */
        {{70, 0, 9, 1}, 4},                                           /* a skipped op too long */
    };
    const char *path = in_folder("a.mtr");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct scribe scribe;
        scribe_begin(&scribe, path, 1);
        put_event(&scribe.writer[0], MT_EVENT_LOOK, 2000, 1, (uint64_t)5);
        memcpy(scribe.writer[0].cursor, wrong[i].bytes, wrong[i].length);
        mt_event_end(&scribe.writer[0], scribe.writer[0].cursor + wrong[i].length);
        scribe_end(&scribe);
        struct mt_record_file *file = must_open(path);
        struct mt_cursor cursor;
        struct mt_event event;
        mt_cursor_init(&cursor, file, 0, file->n_blocks);
        assert_int_equal(mt_cursor_next(&cursor, &event), 1);
        assert_int_equal(event.field[0], 5);
        if (mt_cursor_next(&cursor, &event) || cursor.blocks_bad != 1)
            fail_msg("wrong[%zu] was taken for an event", i);
        mt_cursor_finish(&cursor);
        mt_record_file_close(file);
        remove_file(path);
    }
}

static void test_time_that_overflows_breaks_the_grammar(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    struct scribe scribe;
    struct mt_cursor cursor;
    struct mt_event event;
    scribe_begin(&scribe, path, 1);
    put_event(&scribe.writer[0], MT_EVENT_LOOK, 2000, 1, (uint64_t)5);
    scribe.writer[0].last_ticks = 0;
    put_event(&scribe.writer[0], MT_EVENT_LOOK, UINT64_MAX - 10, 1, (uint64_t)6);
    scribe_end(&scribe);
    struct mt_record_file *file = must_open(path);
    mt_cursor_init(&cursor, file, 0, file->n_blocks);
    assert_int_equal(mt_cursor_next(&cursor, &event), 1);
    assert_int_equal(mt_cursor_next(&cursor, &event), 0);
    assert_int_equal(cursor.blocks_bad, 1);
    assert_int_equal(file->last_ticks, 2000);
    mt_cursor_finish(&cursor);
    mt_record_file_close(file);
    remove_file(path);
}

static void test_of_two_blocks_with_one_number_the_sealed_one_is_read(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    write_four_blocks(path);
    char *whole = transcript_of(path);
    struct image image = load_image(path);
    image.bytes = realloc(image.bytes, image.length + MT_BLOCK_BYTES);
    assert_non_null(image.bytes);
    memcpy(image.bytes + image.length, block_of(&image, 0), MT_BLOCK_BYTES);
    image.length += MT_BLOCK_BYTES;
    for (size_t open = 0; open < 2; open++) {
        block_of(&image, 4)->sealed = open == 0;
        block_of(&image, 0)->sealed = open == 1;
        save_image(path, &image, image.length);
        struct mt_record_file *file = must_open(path);
        char *text = transcript(file);
        assert_string_equal(text, whole);
        assert_int_equal(file->n_blocks, 4);
        assert_int_equal(file->blocks_bad, 1);
        assert_int_equal(count_open(file), 0);
        free(text);
        mt_record_file_close(file);
    }
    free(whole);
    free(image.bytes);
    remove_file(path);
}

/* A picture whose runs span three blocks, the second of which is lost. */
static void write_long_pictures(const char *path)
{
    struct scribe scribe;
    scribe_begin(&scribe, path, 1);
    struct mt_writer *writer = &scribe.writer[0];
    put_event(writer, MT_EVENT_PICTURE_BEGIN, 2000, 4, (uint64_t)0, (uint64_t)2, (uint64_t)2000,
              (uint64_t)0);
    while (writer->sequence < 3)
        put_event(writer, MT_EVENT_PICTURE_RUNS, 2000, 4, (uint64_t)1, (uint64_t)1, (uint64_t)1,
                  (uint64_t)0);
    put_event(writer, MT_EVENT_LOOK, 2001, 1, (uint64_t)5);
    put_event(writer, MT_EVENT_PICTURE_END, 2001, 3, (uint64_t)1, (uint64_t)10, (uint64_t)1);
    put_event(writer, MT_EVENT_PICTURE_BEGIN, 2002, 4, (uint64_t)0, (uint64_t)2, (uint64_t)2002,
              (uint64_t)0);
    put_event(writer, MT_EVENT_PICTURE_END, 2002, 3, (uint64_t)1, (uint64_t)10, (uint64_t)1);
    scribe_end(&scribe);
}

static void test_the_rest_of_a_torn_picture_is_passed_over(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    write_long_pictures(path);
    struct image image = load_image(path);
    block_of(&image, 1)->crc32c ^= 1;
    save_image(path, &image, image.length);
    struct mt_record_file *file = must_open(path);
    struct mt_cursor cursor;
    struct mt_event event;
    assert_int_equal(file->n_blocks, 2);
    mt_cursor_init(&cursor, file, 1, 2);
    assert_int_equal(mt_cursor_next(&cursor, &event), 1);
    assert_int_equal(event.op,
                     MT_EVENT_PICTURE_RUNS); /* a cursor that begins there knows no better */
    mt_cursor_move(&cursor, 0, 2);
    while (mt_cursor_next(&cursor, &event) && event.op != MT_EVENT_LOOK)
        assert_int_equal(cursor.block, 1);
    static const enum mt_event_op expected[] = {MT_EVENT_PICTURE_BEGIN, MT_EVENT_PICTURE_END};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(mt_cursor_next(&cursor, &event), 1);
        assert_int_equal(event.op, expected[i]);
        assert_int_equal(event.ticks, 2002);
    }
    assert_int_equal(mt_cursor_next(&cursor, &event), 0);
    mt_cursor_finish(&cursor);
    mt_record_file_close(file);
    free(image.bytes);
    remove_file(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_foreign_files_are_refused),
        cmocka_unit_test(test_a_huge_foreign_file_is_refused_at_its_beginning),
        cmocka_unit_test(test_a_file_that_was_never_written_is_told_from_a_foreign_one),
        cmocka_unit_test(test_what_is_no_regular_file_is_refused_without_waiting),
        cmocka_unit_test(test_another_version_or_byte_order_is_named),
        cmocka_unit_test(test_the_version_without_devices_is_read),
        cmocka_unit_test(test_sizes_that_make_no_sense_are_refused),
        cmocka_unit_test(test_a_file_cut_anywhere_gives_what_is_left),
        cmocka_unit_test(test_a_file_cut_between_blocks_is_noticed),
        cmocka_unit_test(test_no_flipped_bit_gives_events_that_nobody_wrote),
        cmocka_unit_test(test_a_sealed_block_with_a_wrong_checksum_is_left_out),
        cmocka_unit_test(test_an_unfinished_block_is_read_as_far_as_it_was_written),
        cmocka_unit_test(test_a_block_that_is_all_zeros_leaves_a_gap_that_is_noticed),
        cmocka_unit_test(test_a_block_that_was_claimed_and_never_begun_is_no_damage),
        cmocka_unit_test(test_pages_of_zeros_in_a_block_are_noticed),
        cmocka_unit_test(test_blocks_are_found_whatever_the_header_says_of_their_number),
        cmocka_unit_test(test_absurd_lengths_are_refused),
        cmocka_unit_test(test_events_that_break_the_grammar_end_their_block),
        cmocka_unit_test(test_time_that_overflows_breaks_the_grammar),
        cmocka_unit_test(test_of_two_blocks_with_one_number_the_sealed_one_is_read),
        cmocka_unit_test(test_the_rest_of_a_torn_picture_is_passed_over),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
