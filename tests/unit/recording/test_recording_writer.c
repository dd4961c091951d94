/* SPDX-License-Identifier: MIT */
#include "tests/support/emulated.h"
#include "tests/support/unit.h"

#include "scribe.h"
#include "watch/watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The real outside world, of which each call can be made to fail. */
static int open_fails, resize_fails, back_fails, map_fails;
static int open_descriptors;

static int fake_open(const char *path, int flags, int mode)
{
    int fd = open_fails ? -EMFILE : mt_watch_os.open(path, flags, mode);
    open_descriptors += fd >= 0;
    return fd;
}

static int fake_close(int fd)
{
    open_descriptors--;
    return mt_watch_os.close(fd);
}

static int fake_resize(int fd, uint64_t bytes)
{
    return resize_fails ? -resize_fails : mt_watch_os.resize(fd, bytes);
}

static int fake_back(void *address, size_t length)
{
    return back_fails ? -ENOSPC : mt_watch_os.back(address, length);
}

static void *fake_map(int fd, size_t length)
{
    return map_fails ? NULL : mt_watch_os.map(fd, length);
}

static void *fake_map_on(void *page, size_t length)
{
    return map_fails ? NULL : mt_watch_os.map_on(page, length);
}

/* As a program's limit on the size of files would: nothing above 2.5 blocks. */
static int limited_resize(int fd, uint64_t bytes)
{
    if (bytes > MT_HEADER_BYTES + 5 * MT_BLOCK_BYTES / 2)
        return -EFBIG;
    return mt_watch_os.resize(fd, bytes);
}

/* The rest is never asked for by a writer. */
static struct mt_record_os fake_os(void)
{
    return (struct mt_record_os){
        .open = fake_open,
        .close = fake_close,
        .resize = fake_resize,
        .map = fake_map,
        .map_on = fake_map_on,
        .keep_from_children = mt_watch_os.keep_from_children,
        .back = fake_back,
        .unmap = mt_watch_os.unmap,
        .lock = mt_watch_os.lock,
        .unlock = mt_watch_os.unlock,
        .monotonic_ns = mt_watch_os.monotonic_ns,
    };
}

static int begin(struct mt_file *file, const struct mt_record_os *os, const char *path)
{
    const struct mt_file_header header = test_header();
    *file = (struct mt_file){0};
    return mt_file_create(file, os, path, &header);
}

static void look(struct mt_writer *writer, uint64_t value)
{
    put_event(writer, MT_EVENT_LOOK, 2000, 1, value);
}

static void test_a_new_file_has_its_header_and_no_block(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    struct mt_file file;
    struct stat status;
    struct mt_file_header header;
    assert_int_equal(begin(&file, &mt_watch_os, path), 0);
    assert_int_equal(stat(path, &status), 0);
    assert_true(status.st_size >= (off_t)1 << 30);
    assert_true(status.st_blocks * 512 < 65536); /* nearly all of it is a hole */
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(mt_record_header_read(path, &header, NULL), 0);
    assert_memory_equal(header.magic, "MEMTALLY", 8);
    assert_int_equal(header.version, MT_FILE_VERSION);
    assert_int_equal(header.pid, 4321);
    assert_int_equal(header.next_block, 0);
    mt_file_close(&file);
    mt_file_close(&file);
    remove_file(path);
}

static void test_a_file_that_exists_is_not_taken(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    char too_long[MT_PATH_BYTES + 1];
    struct mt_file file;
    assert_int_equal(begin(&file, &mt_watch_os, path), 0);
    mt_file_close(&file);
    assert_int_equal(begin(&file, &mt_watch_os, path), -EEXIST);
    assert_null(file.header);
    memset(too_long, 'a', sizeof too_long - 1);
    too_long[sizeof too_long - 1] = '\0';
    assert_int_equal(begin(&file, &mt_watch_os, too_long), -ENAMETOOLONG);
    remove_file(path);
}

static void test_a_file_that_cannot_be_begun_says_why(void **state)
{
    (void)state;
    const struct mt_record_os os = fake_os();
    struct mt_file file;
    open_fails = 1;
    assert_int_equal(begin(&file, &os, in_folder("a.mtr")), -EMFILE);
    open_fails = 0;
    back_fails = 1;
    assert_int_equal(begin(&file, &os, in_folder("b.mtr")), -ENOSPC);
    back_fails = 0;
    map_fails = 1;
    assert_int_equal(begin(&file, &os, in_folder("c.mtr")), -ENOMEM);
    map_fails = 0;
    resize_fails = EIO;
    assert_int_equal(begin(&file, &os, in_folder("d.mtr")), -EIO);
    resize_fails = EFBIG;
    assert_int_equal(begin(&file, &os, in_folder("e.mtr")), -EFBIG);
    resize_fails = 0;
    assert_null(file.header);
    assert_int_equal(open_descriptors, 0);
    remove_file(in_folder("b.mtr"));
    remove_file(in_folder("c.mtr"));
    remove_file(in_folder("d.mtr"));
    remove_file(in_folder("e.mtr"));
}

static void test_a_limit_on_files_is_kept_and_filled(void **state)
{
    (void)state;
    struct mt_record_os os = fake_os();
    const char *path = in_folder("a.mtr");
    struct mt_file file;
    struct mt_writer writer;
    os.resize = limited_resize;
    assert_int_equal(begin(&file, &os, path), 0);
    assert_in_range(file.room_bytes, MT_HEADER_BYTES + MT_BLOCK_BYTES,
                    MT_HEADER_BYTES + 5 * MT_BLOCK_BYTES / 2);
    uint64_t n_blocks = (file.room_bytes - MT_HEADER_BYTES) / MT_BLOCK_BYTES;
    mt_writer_init(&writer, &file, 0, 1);
    for (uint64_t i = 0; i < 100000; i++)
        look(&writer, i);
    assert_int_equal(file.header->next_block, n_blocks);
    assert_true(file.header->events_lost > 0);
    mt_writer_finish(&writer);
    mt_file_close(&file);
    struct mt_record_file *read = must_open(path);
    assert_int_equal(read->n_blocks, n_blocks);
    assert_int_equal(count_events(read) + read->header.events_lost, 100000);
    mt_record_file_close(read);
    remove_file(path);
}

static void *map_on_nothing(void *page, size_t length)
{
    (void)page;
    (void)length;
    return NULL;
}

/* As in qemu's user mode: 1024 blocks are mapped at once, or as many as the file may have. */
static void test_without_a_way_from_page_to_page_the_beginning_is_mapped(void **state)
{
    (void)state;
    static int (*const resize[])(int, uint64_t) = {fake_resize, limited_resize};
    static const uint64_t most[] = {1024, 2};
    for (size_t i = 0; i < 2; i++) {
        struct mt_record_os os = fake_os();
        const char *path = in_folder("a.mtr");
        struct mt_file file;
        struct mt_writer writer;
        os.map_on = map_on_nothing;
        os.resize = resize[i];
        assert_int_equal(begin(&file, &os, path), 0);
        mt_writer_init(&writer, &file, 0, 1);
        while (mt_writer_next_block(&writer, 2000))
            look(&writer, 1);
        assert_int_equal(file.header->next_block, most[i]);
        mt_writer_finish(&writer);
        mt_file_close(&file);
        struct mt_record_file *read = must_open(path);
        assert_int_equal(read->n_blocks, most[i]);
        assert_int_equal(read->blocks_bad, 0);
        mt_record_file_close(read);
        remove_file(path);
    }
}

static size_t machine_page;

static void *aligned_map_on(void *page, size_t length)
{
    assert_int_equal(length % machine_page, 0);
    return mt_watch_os.map_on(page, length);
}

static int aligned_back(void *address, size_t length)
{
    assert_int_equal(length % machine_page, 0);
    return mt_watch_os.back(address, length);
}

/* Machines with pages of 16 and 64 KiB map nothing else: blocks begin after one. */
static void test_blocks_lie_where_pages_of_any_size_begin(void **state)
{
    const char *path = in_folder("a.mtr");
    struct mt_record_os os = fake_os();
    (void)state;
    os.map_on = aligned_map_on;
    os.back = aligned_back;
    for (machine_page = 4096; machine_page <= 65536; machine_page *= 4) {
        struct mt_file_header header = test_header();
        struct mt_file file = {0};
        struct mt_writer writer;
        header.page_bytes = (uint32_t)machine_page;
        assert_int_equal(mt_file_create(&file, &os, path, &header), 0);
        mt_writer_init(&writer, &file, 0, 1);
        for (uint64_t i = 0; i < 50000; i++)
            look(&writer, i);
        assert_true(file.header->next_block >= 3);
        mt_writer_finish(&writer);
        mt_file_close(&file);
        struct image image = load_image(path);
        assert_int_equal(header_of(&image)->header_bytes, machine_page);
        assert_memory_equal(image.bytes + machine_page, "MTBK", 4);
        assert_memory_equal(image.bytes + machine_page + MT_BLOCK_BYTES, "MTBK", 4);
        free(image.bytes);
        char *expected = transcript_of(path);
        assert_int_equal(mt_record_file_pack(path, NULL), 0);
        char *packed = transcript_of(in_folder("a.mtz"));
        assert_string_equal(packed, expected);
        free(packed);
        free(expected);
        remove_file(in_folder("a.mtz"));
    }
}

/* Each way in which a block cannot be had. */
static void assert_losing(int *failing)
{
    const struct mt_record_os os = fake_os();
    const char *path = in_folder("a.mtr");
    struct mt_file file;
    struct mt_writer writer;
    assert_int_equal(begin(&file, &os, path), 0);
    mt_writer_init(&writer, &file, 0, 1);
    look(&writer, 1);
    unsigned whole = 1 + fill_block(&writer, 2000);
    *failing = 1;
    for (uint64_t i = 0; i < 100; i++)
        look(&writer, i);
    assert_int_equal(mt_write_string(&writer, 2000, "x", 1), 0);
    assert_int_equal(mt_write_stack(&writer, 2000, NULL, 0, 1), 0);
    assert_int_equal(writer.lost, 102);
    assert_true(writer.failed);
    assert_int_equal(file.header->events_lost, 102);
    *failing = 0;
    /* What there is room for again is recorded again, at the latest after 1024 events. */
    for (uint64_t i = 0; i < 1024; i++)
        look(&writer, i);
    assert_false(writer.failed);
    assert_int_equal(writer.lost, 1024);
    assert_int_equal(mt_write_string(&writer, 2000, "x", 1), 1);
    mt_writer_finish(&writer);
    mt_file_close(&file);
    assert_int_equal(open_descriptors, 0);
    struct mt_record_file *read = must_open(path);
    assert_int_equal(read->header.events_lost, 1024);
    assert_int_equal(read->blocks_bad, 0);
    assert_int_equal(read->n_blocks, 2);
    assert_int_equal(count_events(read), whole + 1024 + 102 - 1024 + 1);
    mt_record_file_close(read);
    remove_file(path);
}

static void test_events_without_room_are_counted_and_recording_goes_on(void **state)
{
    (void)state;
    struct mt_file file;
    const char *path = in_folder("a.mtr");
    assert_losing(&back_fails);
    assert_int_equal(begin(&file, &mt_watch_os, path), 0);
    int has_window = file.window != NULL; /* as under qemu: nothing more is mapped */
    mt_file_close(&file);
    remove_file(path);
    if (!has_window)
        assert_losing(&map_fails);
}

/* A block that the disk had no room for is the next that is asked for. */
static void test_a_full_disk_leaves_no_gap_in_the_file(void **state)
{
    (void)state;
    const struct mt_record_os os = fake_os();
    const char *path = in_folder("a.mtr");
    struct mt_file file;
    struct mt_writer writer;
    assert_int_equal(begin(&file, &os, path), 0);
    mt_writer_init(&writer, &file, 0, 1);
    look(&writer, 1);
    fill_block(&writer, 2000);
    back_fails = 1;
    for (uint64_t i = 0; i < 5000; i++)
        look(&writer, i);
    back_fails = 0;
    assert_int_equal(file.header->next_block, 1);
    assert_int_equal(file.header->blocks_backed, 1);
    mt_writer_finish(&writer);
    mt_file_close(&file);
    remove_file(path);
}

static unsigned unmappings;
static size_t mapped_bytes, most_mapped;

static void *counting_map_on(void *page, size_t length)
{
    mapped_bytes += length;
    most_mapped = mapped_bytes > most_mapped ? mapped_bytes : most_mapped;
    return mt_watch_os.map_on(page, length);
}

static void counting_unmap(void *address, size_t length)
{
    unmappings++;
    mapped_bytes -= length;
    mt_watch_os.unmap(address, length);
}

/* Who writes much maps several blocks at a time and unmaps them together. What is left of them at
 * the end is a hole, which nobody takes for damage. */
static void test_blocks_are_mapped_some_at_a_time(void **state)
{
    enum { BLOCKS = 61 };
    struct mt_record_os os = fake_os();
    const char *path = in_folder("a.mtr");
    struct mt_file file;
    struct mt_writer writers[2];
    uint64_t events = 0;
    (void)state;
    os.map_on = counting_map_on;
    os.unmap = counting_unmap;
    assert_int_equal(begin(&file, &os, path), 0);
    for (uint32_t i = 0; i < 2; i++)
        mt_writer_init(&writers[i], &file, i, 1);
    unmappings = 0;
    for (unsigned block = 0; block < BLOCKS; block++)
        for (unsigned i = 0; i < 2; i++) {
            look(&writers[i], 1);
            events += 1 + fill_block(&writers[i], 2000);
        }
    assert_true(file.window || unmappings < 2 * BLOCKS);
    assert_true(file.window || mapped_bytes >= 2 * MT_BLOCK_BYTES);
    for (unsigned i = 0; i < 2; i++)
        mt_writer_finish(&writers[i]);
    assert_true(file.window || mapped_bytes == file.page_bytes); /* before the next block */
    assert_in_range(most_mapped, 0, 20 * MT_BLOCK_BYTES);
    assert_int_equal(file.header->next_block, 2 * BLOCKS);
    mt_file_close(&file);
    struct mt_record_file *read = must_open(path);
    assert_int_equal(read->n_blocks, 2 * BLOCKS);
    assert_int_equal(read->blocks_bad, 0);
    assert_int_equal(count_events(read), events);
    mt_record_file_close(read);
    remove_file(path);
}

static void test_a_writer_without_a_file_stays_silent(void **state)
{
    (void)state;
    struct mt_file closed = {0};
    struct mt_writer writer;
    mt_writer_init(&writer, NULL, 0, 1);
    look(&writer, 1);
    mt_writer_finish(&writer);
    mt_writer_init(&writer, &closed, 0, 1);
    look(&writer, 1);
    mt_writer_finish(&writer);
    assert_null(writer.block);
}

#define N_THREADS       4
#define EVENTS_OF_EACH  60000
#define BYTES_OF_EVENTS 12

static void *write_many(void *argument)
{
    struct mt_writer *writer = argument;
    for (uint64_t i = 0; i < EVENTS_OF_EACH; i++)
        put_event(writer, MT_EVENT_LOOK, 2000 + i, 1, UINT64_MAX - i);
    return NULL;
}

static void assert_whole_stream(const struct mt_record_file *file, size_t first, size_t end)
{
    struct mt_cursor cursor;
    struct mt_event event;
    mt_cursor_init(&cursor, file, first, end);
    for (uint64_t i = 0; i < EVENTS_OF_EACH; i++) {
        assert_int_equal(mt_cursor_next(&cursor, &event), 1);
        assert_int_equal(event.field[0], UINT64_MAX - i);
    }
    assert_int_equal(mt_cursor_next(&cursor, &event), 0);
    mt_cursor_finish(&cursor);
}

/* Reads the file over and over while threads write it: what is there is right and grows. */
static void read_meanwhile(const char *path)
{
    size_t last = 0;
    for (int turn = 0; turn < 20; turn++) {
        struct mt_record_file *file = must_open(path);
        struct mt_cursor cursor;
        struct mt_event event;
        uint64_t next[N_THREADS] = {0};
        size_t n = 0;
        mt_cursor_init(&cursor, file, 0, file->n_blocks);
        for (; mt_cursor_next(&cursor, &event); n++)
            assert_int_equal(event.field[0], UINT64_MAX - next[event.stream]++);
        assert_int_equal(cursor.blocks_bad, 0);
        assert_true(n >= last);
        last = n;
        mt_cursor_finish(&cursor);
        mt_record_file_close(file);
    }
}

static void test_threads_share_a_file_and_it_can_be_read_meanwhile(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    struct mt_file file;
    struct mt_writer writers[N_THREADS];
    pthread_t threads[N_THREADS];
    assert_int_equal(begin(&file, &mt_watch_os, path), 0);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        mt_writer_init(&writers[i], &file, i, 100 + i);
        assert_int_equal(pthread_create(&threads[i], NULL, write_many, &writers[i]), 0);
    }
    read_meanwhile(path);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        mt_writer_finish(&writers[i]);
    }
    mt_file_close(&file);
    struct mt_record_file *read = must_open(path);
    assert_int_equal(count_open(read), 0);
    assert_int_equal(read->blocks_bad, 0);
    assert_true(read->n_blocks >= N_THREADS * EVENTS_OF_EACH * BYTES_OF_EVENTS / MT_BLOCK_BYTES);
    size_t first = 0;
    for (uint32_t i = 0; i < N_THREADS; i++) {
        size_t end = first;
        while (end < read->n_blocks && read->blocks[end].header.stream == i)
            end++;
        assert_whole_stream(read, first, end);
        first = end;
    }
    assert_int_equal(first, read->n_blocks);
    mt_record_file_close(read);
    remove_file(path);
}

#define FEW 8000 /* events in two blocks */
static int few_are_written;

static void *write_few(void *argument)
{
    struct mt_writer *writer = argument;
    for (uint64_t i = 0; i < FEW; i++)
        put_event(writer, MT_EVENT_LOOK, 2000 + i, 1, UINT64_MAX - i);
    __atomic_store_n(&few_are_written, 1, __ATOMIC_RELEASE);
    return NULL;
}

static int is_right_so_far(const char *path)
{
    struct mt_record_file *file = must_open(path);
    struct mt_cursor cursor;
    struct mt_event event;
    int is_right = 1;
    mt_cursor_init(&cursor, file, 0, file->n_blocks);
    for (uint64_t n = 0; mt_cursor_next(&cursor, &event); n++)
        is_right = is_right && event.field[0] == UINT64_MAX - n;
    is_right = is_right && cursor.blocks_bad == 0 && file->blocks_bad == 0;
    mt_cursor_finish(&cursor);
    mt_record_file_close(file);
    return is_right;
}

/* A small file is read whole at once, by a copy that has its bytes in no order. */
static void test_a_small_file_can_be_read_while_it_is_written(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    NOT_EMULATED(); /* no block has its pages before they are written */
    for (int round = 0; round < 100; round++) {
        struct mt_file file;
        struct mt_writer writer;
        pthread_t thread;
        assert_int_equal(begin(&file, &mt_watch_os, path), 0);
        mt_writer_init(&writer, &file, 0, 100);
        assert_int_equal(pthread_create(&thread, NULL, write_few, &writer), 0);
        size_t wrong = 0;
        while (!__atomic_load_n(&few_are_written, __ATOMIC_ACQUIRE))
            wrong += !is_right_so_far(path);
        assert_int_equal(pthread_join(thread, NULL), 0);
        few_are_written = 0;
        mt_writer_finish(&writer);
        mt_file_close(&file);
        remove_file(path);
        assert_int_equal(wrong, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_new_file_has_its_header_and_no_block),
        cmocka_unit_test(test_a_file_that_exists_is_not_taken),
        cmocka_unit_test(test_a_file_that_cannot_be_begun_says_why),
        cmocka_unit_test(test_a_limit_on_files_is_kept_and_filled),
        cmocka_unit_test(test_without_a_way_from_page_to_page_the_beginning_is_mapped),
        cmocka_unit_test(test_blocks_lie_where_pages_of_any_size_begin),
        cmocka_unit_test(test_events_without_room_are_counted_and_recording_goes_on),
        cmocka_unit_test(test_a_full_disk_leaves_no_gap_in_the_file),
        cmocka_unit_test(test_blocks_are_mapped_some_at_a_time),
        cmocka_unit_test(test_a_writer_without_a_file_stays_silent),
        cmocka_unit_test(test_threads_share_a_file_and_it_can_be_read_meanwhile),
        cmocka_unit_test(test_a_small_file_can_be_read_while_it_is_written),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
