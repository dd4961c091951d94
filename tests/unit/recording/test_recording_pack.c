/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "base/crc32c.h"
#include "recording/frame.h"
#include "scribe.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

/* Two streams of several blocks each, with texts; the last blocks stay open where `killed`. */
static void write_file(const char *path, int killed)
{
    struct scribe scribe;
    char text[3000];
    scribe_begin(&scribe, path, 2);
    for (uint64_t i = 0; i < 60000; i++) {
        struct mt_writer *writer = &scribe.writer[i % 3 == 0];
        uint64_t noise = i * 0x9e3779b97f4a7c15u >> 20;
        put_alloc(writer, 2000 + 100 * i, noise, noise % 5000);
        if (i % 5000 == 0) {
            memset(text, 'a' + (int)(i / 5000), sizeof text);
            mt_write_bytes(writer, MT_EVENT_MACHINE, 2000 + 100 * i, 1, text, sizeof text);
        }
    }
    if (killed)
        scribe_kill(&scribe);
    else
        scribe_end(&scribe);
}

static void must_pack(const char *path)
{
    struct mt_error error = {0};
    if (mt_record_file_pack(path, &error) < 0)
        fail_msg("%s", error.text);
}

static int next_other(struct mt_merge *merge, struct mt_event *event, int *n_passed)
{
    while (mt_merge_next(merge, event)) {
        if (event->op != MT_EVENT_ALLOC)
            return 1;
        ++*n_passed;
    }
    return 0;
}

static void test_what_is_left_without_blocks_is_the_same_with_its_times(void **state)
{
    (void)state;
    const char *raw = in_folder("7-0.mtr");
    const char *packed = in_folder("7-0.mtz");
    struct mt_merge *all, *others;
    struct mt_event event, same;
    int n = 0, n_passed = 0, n_unwanted = 0;
    write_file(raw, 0);
    must_pack(raw);
    struct mt_record_file *file = must_open(packed);
    assert_int_equal(mt_merge_create(file, &all), 0);
    assert_int_equal(mt_merge_create(file, &others), 0);
    mt_merge_skip_blocks(others);
    while (next_other(all, &event, &n_passed)) {
        assert_true(next_other(others, &same, &n_unwanted));
        assert_int_equal(same.op, event.op);
        assert_int_equal(same.ticks, event.ticks);
        assert_int_equal(same.stream, event.stream);
        assert_int_equal(same.length, event.length);
        assert_memory_equal(same.bytes, event.bytes, event.length);
        n++;
    }
    assert_false(next_other(others, &same, &n_unwanted));
    assert_in_range(n, 12, 60000); /* a text every 5000 allocations, of 60000 */
    assert_int_equal(n_passed, 60000);
    assert_int_equal(n_unwanted, 0);
    mt_merge_destroy(all);
    mt_merge_destroy(others);
    mt_record_file_close(file);
    remove_file(packed);
}

static void test_a_packed_file_holds_the_same_events(void **state)
{
    (void)state;
    const char *raw = in_folder("7-0.mtr");
    const char *packed = in_folder("7-0.mtz");
    for (int killed = 0; killed < 2; killed++) {
        struct stat before, after;
        write_file(raw, killed);
        char *expected = transcript_of(raw);
        assert_int_equal(stat(raw, &before), 0);
        must_pack(raw);
        assert_int_equal(count_in_folder(), 1);
        char *text = transcript_of(packed);
        assert_string_equal(text, expected);
        assert_int_equal(stat(packed, &after), 0);
        assert_true(after.st_size < before.st_blocks * 512);
        struct mt_record_file *file = must_open(packed);
        assert_true(file->header.flags & MT_FILE_PACKED);
        assert_int_equal(file->header.pid, 4321);
        assert_int_equal(count_open(file), killed ? 2 : 0);
        assert_int_equal(file->blocks_bad, 0);
        mt_record_file_close(file);
        free(text);
        free(expected);
        remove_file(packed);
    }
}

static void test_packing_a_packed_file_leaves_it_alone(void **state)
{
    (void)state;
    const char *packed = in_folder("7-0.mtz");
    write_file(in_folder("7-0.mtr"), 0);
    must_pack(in_folder("7-0.mtr"));
    struct image before = load_image(packed);
    must_pack(packed);
    struct image after = load_image(packed);
    assert_int_equal(after.length, before.length);
    assert_memory_equal(after.bytes, before.bytes, before.length);
    assert_int_equal(count_in_folder(), 1);
    free(before.bytes);
    free(after.bytes);
    remove_file(packed);
}

static void test_a_file_without_blocks_packs_too(void **state)
{
    (void)state;
    struct scribe scribe;
    scribe_begin(&scribe, in_folder("odd name"), 1);
    scribe_end(&scribe);
    must_pack(in_folder("odd name"));
    struct mt_record_file *file = must_open(in_folder("odd name.mtz"));
    assert_int_equal(file->n_blocks, 0);
    assert_int_equal(file->blocks_bad, 0);
    mt_record_file_close(file);
    remove_file(in_folder("odd name.mtz"));
}

static void test_what_was_damaged_before_packing_stays_known(void **state)
{
    (void)state;
    const char *raw = in_folder("7-0.mtr");
    write_file(raw, 0);
    struct image image = load_image(raw);
    block_of(&image, 1)->crc32c ^= 1;
    memset(block_of(&image, 2), 0, MT_BLOCK_BYTES);
    save_image(raw, &image, image.length);
    struct mt_record_file *file = must_open(raw);
    size_t n_blocks = file->n_blocks;
    assert_int_equal(file->blocks_bad, 2);
    mt_record_file_close(file);
    must_pack(raw);
    file = must_open(in_folder("7-0.mtz"));
    assert_int_equal(file->n_blocks, n_blocks);
    assert_int_equal(file->blocks_bad, 2);
    mt_record_file_close(file);
    free(image.bytes);
    remove_file(in_folder("7-0.mtz"));
}

static void test_a_file_that_is_no_recording_is_not_packed(void **state)
{
    (void)state;
    struct mt_error error;
    const char *path = in_folder("7-0.mtr");
    struct image text = {(uint8_t *)(uintptr_t) "hello", 5};
    save_image(path, &text, 5);
    assert_int_equal(mt_record_file_pack(path, &error), MT_EFORMAT);
    assert_int_equal(mt_record_file_pack(in_folder("none"), &error), MT_ENOTFOUND);
    assert_int_equal(count_in_folder(), 1);
    remove_file(path);
}

/* Whether each line of `text` is one of `whole`, in the same order. */
static int is_part_of(const char *text, const char *whole)
{
    while (*text) {
        size_t length = strcspn(text, "\n") + 1;
        while (*whole && strncmp(whole, text, length) != 0)
            whole += strcspn(whole, "\n") + 1;
        if (!*whole)
            return 0;
        text += length;
        whole += length;
    }
    return 1;
}

/* How many of the whole file's events a cut one has; none of them may be another's. */
static size_t count_of_cut(const char *path, const char *whole)
{
    struct mt_record_file *file = must_open(path);
    char *text = transcript(file);
    size_t n = count_events(file);
    assert_in_range(file->blocks_bad, 1, 4); /* the frames of the file */
    assert_true(is_part_of(text, whole));
    free(text);
    mt_record_file_close(file);
    return n;
}

/* A frame has at most 16384 of 60012 events. */
static void test_a_cut_packed_file_gives_what_came_before(void **state)
{
    (void)state;
    const char *packed = in_folder("7-0.mtz");
    write_file(in_folder("7-0.mtr"), 0);
    must_pack(in_folder("7-0.mtr"));
    char *whole = transcript_of(packed);
    struct image image = load_image(packed);
    size_t last = 0;
    for (size_t eighth = 1; eighth < 8; eighth++) {
        save_image(packed, &image, image.length * eighth / 8);
        size_t n = count_of_cut(packed, whole);
        assert_true(n >= last);
        last = n;
    }
    assert_true(last > 30000);
    save_image(packed, &image, image.length - 1);
    assert_in_range(count_of_cut(packed, whole), 60012 - 16384, 3 * 16384);
    save_image(packed, &image, MT_HEADER_BYTES);
    struct mt_error error;
    struct mt_record_file *file;
    assert_int_equal(mt_record_file_open(packed, &file, &error), MT_ETRUNCATED);
    assert_non_null(strstr(error.text, "nothing after the header"));
    free(image.bytes);
    free(whole);
    remove_file(packed);
}

static size_t must_open_and_count(const char *path)
{
    struct mt_record_file *file = must_open(path);
    size_t n = count_events(file);
    mt_record_file_close(file);
    return n;
}

static void test_damage_to_one_frame_leaves_the_others(void **state)
{
    (void)state;
    const char *packed = in_folder("7-0.mtz");
    write_file(in_folder("7-0.mtr"), 0);
    must_pack(in_folder("7-0.mtr"));
    struct image image = load_image(packed);
    size_t whole = must_open_and_count(packed);
    for (size_t quarter = 1; quarter < 4; quarter++) {
        image.bytes[image.length * quarter / 4] ^= 0x10;
        save_image(packed, &image, image.length);
        struct mt_record_file *file = must_open(packed);
        size_t n = count_events(file);
        assert_true(file->blocks_bad > 0);
        assert_true(n < whole);
        /* A frame is one of several, and each holds much the same. */
        assert_true(n > whole / 4);
        mt_record_file_close(file);
        image.bytes[image.length * quarter / 4] ^= 0x10;
    }
    free(image.bytes);
    remove_file(packed);
}

static void test_bytes_behind_the_frame_are_noticed(void **state)
{
    (void)state;
    const char *packed = in_folder("7-0.mtz");
    write_file(in_folder("7-0.mtr"), 0);
    must_pack(in_folder("7-0.mtr"));
    struct image image = load_image(packed);
    image.bytes[image.length] = 0;
    save_image(packed, &image, image.length + 1);
    struct mt_record_file *file = must_open(packed);
    assert_int_equal(count_events(file), 60012);
    assert_int_equal(file->blocks_bad, 1);
    mt_record_file_close(file);
    free(image.bytes);
    remove_file(packed);
}

static void test_no_flipped_bit_of_a_packed_file_goes_unnoticed(void **state)
{
    (void)state;
    const char *packed = in_folder("7-0.mtz");
    struct scribe scribe;
    scribe_begin(&scribe, in_folder("7-0.mtr"), 1);
    for (uint64_t i = 0; i < 40; i++)
        put_alloc(&scribe.writer[0], 2000 + i * i, 0x10000 + 64 * (i * 7 % 40), i * i);
    scribe_end(&scribe);
    must_pack(in_folder("7-0.mtr"));
    char *whole = transcript_of(packed);
    struct image image = load_image(packed);
    for (size_t at = 0; at < image.length; at++) {
        if (at == sizeof(struct mt_file_header))
            at = MT_HEADER_BYTES; /* what follows the header says nothing */
        for (int bit = 0; bit < 8; bit++) {
            struct mt_record_file *file;
            image.bytes[at] ^= (uint8_t)(1 << bit);
            save_image(packed, &image, image.length);
            image.bytes[at] ^= (uint8_t)(1 << bit);
            if (mt_record_file_open(packed, &file, NULL) < 0)
                continue;
            char *text = transcript(file);
            if (strcmp(text, whole) != 0 && !file->blocks_bad)
                fail_msg("byte %zu, bit %d: events differ and nothing is called bad", at, bit);
            if (*text && strcmp(text, whole) != 0)
                fail_msg("byte %zu, bit %d: events that nobody wrote", at, bit);
            free(text);
            mt_record_file_close(file);
        }
    }
    free(whole);
    free(image.bytes);
    remove_file(packed);
}

/* The header of a packed file does not change, so that all of it is under a checksum. */
static void test_the_end_of_a_packed_header_is_checked(void **state)
{
    (void)state;
    const char *packed = in_folder("7-0.mtz");
    write_file(in_folder("7-0.mtr"), 0);
    must_pack(in_folder("7-0.mtr"));
    struct image image = load_image(packed);
    header_of(&image)->end_monotonic_ns ^= 1;
    save_image(packed, &image, image.length);
    assert_int_equal(mt_record_file_open(packed, &(struct mt_record_file *){NULL}, NULL),
                     MT_ECORRUPT);
    free(image.bytes);
    remove_file(packed);
}

/* A hundred megabytes of zeros in some kilobytes. */
static void test_a_frame_that_swells_is_refused(void **state)
{
    (void)state;
    const uint32_t swollen = 100u << 20;
    const char *packed = in_folder("7-0.mtz");
    write_file(in_folder("7-0.mtr"), 0);
    must_pack(in_folder("7-0.mtr"));
    struct image image = load_image(packed);
    size_t whole = must_open_and_count(packed);
    void *zeros = calloc(1, swollen);
    uint8_t *frame = malloc(ZSTD_compressBound(swollen));
    assert_true(zeros && frame);
    struct mt_frame_header header = {.magic = MT_FRAME_MAGIC};
    size_t length = ZSTD_compress(frame, ZSTD_compressBound(swollen), zeros, swollen, 1);
    header.column[MT_COLUMN_OTHER].bytes = swollen;
    header.column[MT_COLUMN_OTHER].packed_bytes = (uint32_t)length;
    header.crc32c = mt_crc32c(0, &header.number, sizeof header - 8);
    header.crc32c = mt_crc32c(header.crc32c, frame, length);
    image.bytes = realloc(image.bytes, image.length + sizeof header + length);
    assert_non_null(image.bytes);
    memcpy(image.bytes + image.length, &header, sizeof header);
    memcpy(image.bytes + image.length + sizeof header, frame, length);
    save_image(packed, &image, image.length + sizeof header + length);
    struct mt_record_file *file = must_open(packed);
    assert_int_equal(file->n_frames, file->header.blocks_backed);
    assert_int_equal(count_events(file), whole);
    assert_int_equal(file->blocks_bad, 1);
    mt_record_file_close(file);
    free(zeros);
    free(frame);
    free(image.bytes);
    remove_file(packed);
}

/* What is merged before and after packing, of the heap: op, stream, size and stack of each event,
 * whether its address is the same, and by how much its time differs. */
struct kept {
    size_t n;
    size_t n_moved;
    uint64_t most_early;
    uint64_t most_late;
};

static struct kept compare_order(const char *raw, const char *packed)
{
    struct kept kept = {0};
    struct mt_event a, b;
    struct mt_merge *merges[2];
    struct mt_record_file *files[] = {must_open(raw), must_open(packed)};
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(mt_merge_create(files[i], &merges[i]), 0);
    while (mt_merge_next(merges[0], &a)) {
        assert_int_equal(mt_merge_next(merges[1], &b), 1);
        assert_int_equal(a.op, b.op);
        assert_int_equal(a.stream, b.stream);
        assert_true(a.field[1] == b.field[1] && a.field[2] == b.field[2]);
        kept.n++;
        kept.n_moved += a.field[0] != b.field[0];
        if (a.ticks > b.ticks && a.ticks - b.ticks > kept.most_early)
            kept.most_early = a.ticks - b.ticks;
        if (b.ticks > a.ticks && b.ticks - a.ticks > kept.most_late)
            kept.most_late = b.ticks - a.ticks;
    }
    assert_int_equal(mt_merge_next(merges[1], &b), 0);
    for (size_t i = 0; i < 2; i++) {
        mt_merge_destroy(merges[i]);
        mt_record_file_close(files[i]);
    }
    return kept;
}

/* Two threads take turns of one to four events; in the full depth each event is one of the heap. A
 * slot's block is replaced on each visit, by either thread. */
static void write_full_file(const char *path, uint64_t look_at)
{
    enum { SLOTS = 300 };
    struct scribe scribe;
    uint64_t address[SLOTS] = {0};
    uint64_t random = 88172645463325252u;
    scribe_begin_full(&scribe, path, 2);
    for (uint64_t i = 0; i < 100000; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        struct mt_writer *writer = &scribe.writer[random >> 40 & 1];
        uint64_t *slot = &address[random % SLOTS];
        if (*slot)
            put_free(writer, 2000 + 40 * i, *slot);
        *slot = 0x7f0000000000u + i * 0x9e3779b1u % (1u << 25) * 16; /* each its own */
        uint64_t size = random % 9 ? random >> 50 : 48;
        if (i == 777 || i == 778)
            size = i == 777 ? 65536 : 65535;
        put_alloc(writer, 2000 + 40 * i + 11, *slot, size);
        if (i == look_at)
            put_event(writer, MT_EVENT_MARK, 2000 + 40 * i + 20, 1, 0);
    }
    scribe_end(&scribe);
}

static void test_packing_the_full_depth_keeps_order_sizes_and_stacks(void **state)
{
    (void)state;
    const char *raw = in_folder("8-0.mtr");
    write_full_file(raw, UINT64_MAX);
    must_pack(raw);
    write_full_file(raw, UINT64_MAX);
    struct kept kept = compare_order(raw, in_folder("8-0.mtz"));
    assert_int_equal(kept.n, 2 * 100000 - 300);
    /* Times are kept to 4096 ns; another stream's event is put a tick later than the one before. */
    assert_true(kept.most_early < 4096);
    assert_true(kept.most_late < 4096);
    assert_true(kept.n_moved > 100000);
    remove_file(raw);
    remove_file(in_folder("8-0.mtz"));
}

/* Blocks that are alive when something else happens, or when the frame ends, keep their address,
 * and so do those from 64 KiB on. */
static void test_packing_the_full_depth_keeps_the_addresses_that_matter(void **state)
{
    (void)state;
    const char *raw = in_folder("8-0.mtr");
    struct mt_event event;
    struct mt_merge *merge;
    write_full_file(raw, 50000);
    must_pack(raw);
    struct mt_record_file *file = must_open(in_folder("8-0.mtz"));
    assert_int_equal(mt_merge_create(file, &merge), 0);
    int marked = 0;
    size_t n_placed = 0, n_freed_after = 0;
    while (mt_merge_next(merge, &event)) {
        int is_placed = event.field[0] < MT_UNPLACED_FROM;
        marked |= event.op == MT_EVENT_MARK;
        n_placed += event.op == MT_EVENT_ALLOC && is_placed;
        n_freed_after += marked && event.op == MT_EVENT_FREE && is_placed;
    }
    assert_int_equal(n_placed, 300 + 300 + 1);
    assert_int_equal(n_freed_after, 300);
    mt_merge_destroy(merge);
    mt_record_file_close(file);
    remove_file(in_folder("8-0.mtz"));
}

static void assert_only_raw(const char *raw, const struct image *before)
{
    struct image after = load_image(raw);
    assert_int_equal(after.length, before->length);
    assert_memory_equal(after.bytes, before->bytes, before->length);
    assert_int_equal(count_in_folder(), 1);
    free(after.bytes);
}

static void test_a_full_disk_leaves_the_raw_file_alone(void **state)
{
    (void)state;
    struct rlimit old, low;
    struct mt_error error = {0};
    const char *raw = in_folder("7-0.mtr");
    write_file(raw, 0);
    struct image before = load_image(raw);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    static const rlim_t limits[] = {0, 100, 4096, 5000, 20000};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        low = old;
        low.rlim_cur = limits[i];
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        int result = mt_record_file_pack(raw, &error);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(result, MT_EIO);
        assert_non_null(strstr(error.text, "cannot write"));
        assert_only_raw(raw, &before);
    }
    free(before.bytes);
    remove_file(raw);
}

/* In a child without privileges, which a read-only folder stops. */
static void test_a_read_only_folder_leaves_the_raw_file_alone(void **state)
{
    (void)state;
    int status;
    const char *raw = in_folder("7-0.mtr");
    const char *folder = in_folder(".");
    write_file(raw, 0);
    struct image before = load_image(raw);
    assert_int_equal(chmod(raw, 0644), 0);
    assert_int_equal(chmod(folder, 0555), 0);
    pid_t child = fork();
    if (child == 0) {
        struct mt_error error = {0};
        if (geteuid() == 0 && setuid(65534) != 0)
            _exit(3);
        int result = mt_record_file_pack(raw, &error);
        _exit(result == MT_EPERM && strstr(error.text, "cannot create") ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(chmod(folder, 0700), 0);
    assert_int_equal(status, 0);
    assert_only_raw(raw, &before);
    free(before.bytes);
    remove_file(raw);
}

/* Something that is not ours and has the name. */
static void test_what_stands_in_the_way_is_left_alone(void **state)
{
    (void)state;
    const char *raw = in_folder("7-0.mtr");
    struct mt_error error = {0};
    write_file(raw, 0);
    struct image before = load_image(raw);
    assert_int_equal(mkdir(in_folder("7-0.mtz"), 0700), 0);
    assert_int_equal(mt_record_file_pack(raw, &error), MT_EIO);
    assert_non_null(strstr(error.text, "cannot rename"));
    assert_int_equal(rmdir(in_folder("7-0.mtz")), 0);
    assert_only_raw(raw, &before);
    assert_int_equal(symlink("/etc/passwd", in_folder("7-0.mtz.part")), 0);
    assert_int_equal(mt_record_file_pack(raw, &error), MT_EIO);
    assert_non_null(strstr(error.text, "cannot create"));
    remove_file(in_folder("7-0.mtz.part"));
    assert_only_raw(raw, &before);
    free(before.bytes);
    remove_file(raw);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_packed_file_holds_the_same_events),
        cmocka_unit_test(test_what_is_left_without_blocks_is_the_same_with_its_times),
        cmocka_unit_test(test_packing_a_packed_file_leaves_it_alone),
        cmocka_unit_test(test_a_file_without_blocks_packs_too),
        cmocka_unit_test(test_what_was_damaged_before_packing_stays_known),
        cmocka_unit_test(test_a_file_that_is_no_recording_is_not_packed),
        cmocka_unit_test(test_a_cut_packed_file_gives_what_came_before),
        cmocka_unit_test(test_damage_to_one_frame_leaves_the_others),
        cmocka_unit_test(test_bytes_behind_the_frame_are_noticed),
        cmocka_unit_test(test_no_flipped_bit_of_a_packed_file_goes_unnoticed),
        cmocka_unit_test(test_the_end_of_a_packed_header_is_checked),
        cmocka_unit_test(test_a_frame_that_swells_is_refused),
        cmocka_unit_test(test_packing_the_full_depth_keeps_order_sizes_and_stacks),
        cmocka_unit_test(test_packing_the_full_depth_keeps_the_addresses_that_matter),
        cmocka_unit_test(test_a_full_disk_leaves_the_raw_file_alone),
        cmocka_unit_test(test_a_read_only_folder_leaves_the_raw_file_alone),
        cmocka_unit_test(test_what_stands_in_the_way_is_left_alone),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
