/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "recording/picture.h"
#include "scribe.h"
#include "watch/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define PAGE 4096u

/* A process made of runs of present pages, as a kernel would tell of them. */
struct present {
    uint64_t first_page;
    uint64_t n_pages;
    uint64_t flags;
};

static struct {
    const char *maps; /* NULL: cannot be opened */
    const struct present *present;
    size_t n_present;
    uint64_t regions_at_once; /* the most that one scan returns */
    int scan_error;           /* errno of the scan number `scan_error_at` and all after it */
    int scan_error_at;
    int pagemap_error; /* errno of opening it */
    int read_error;    /* errno of reading it */
    int gone_at;       /* the process is gone after so many scans; 0: stays */
    int scans;
    uint64_t largest_scan_bytes; /* that one call could look through */
    int asked;                   /* calls */
    int rests;
    int inside; /* the process takes the picture of itself */
    int open_files;
    size_t maps_at;
    uint64_t now_ns;
    uint64_t scan_ns; /* that each call takes */
} process;

enum { MAPS = 1000, PAGEMAP, OTHER };

static int ends_with(const char *path, const char *name)
{
    size_t length = strlen(path), tail = strlen(name);
    return length >= tail && strcmp(path + length - tail, name) == 0;
}

static int fake_open(const char *path, int flags, int mode)
{
    if (strncmp(path, "/proc/", 6) != 0)
        return mt_watch_os.open(path, flags, mode);
    int is_pagemap = ends_with(path, "/77/pagemap");
    if (is_pagemap && process.pagemap_error)
        return -process.pagemap_error;
    int is_maps = ends_with(path, "/77/maps");
    if (is_maps && !process.maps)
        return -EACCES;
    if (is_maps)
        process.maps_at = 0;
    process.open_files++;
    return is_maps ? MAPS : is_pagemap ? PAGEMAP : OTHER;
}

static int fake_close(int fd)
{
    if (fd < MAPS)
        return mt_watch_os.close(fd);
    process.open_files--;
    return 0;
}

/* Text comes in odd pieces, as from the kernel. */
static long fake_read(int fd, void *bytes, size_t length)
{
    if (fd != MAPS)
        return 0;
    size_t left = strlen(process.maps) - process.maps_at;
    size_t got = left < 7 ? left : 7;
    assert_true(length >= 7);
    memcpy(bytes, process.maps + process.maps_at, got);
    process.maps_at += got;
    return (long)got;
}

static uint64_t entry_of(uint64_t page)
{
    for (size_t i = 0; i < process.n_present; i++) {
        const struct present *run = &process.present[i];
        if (page >= run->first_page && page < run->first_page + run->n_pages)
            return (uint64_t)1 << 63 | (run->flags & MT_RUN_FILE ? (uint64_t)1 << 61 : 0);
    }
    return (uint64_t)1 << 62; /* in swap */
}

static long fake_pread(int fd, void *bytes, size_t length, uint64_t offset)
{
    uint64_t *entries = bytes;
    assert_int_equal(fd, PAGEMAP);
    assert_int_equal(offset % 8, 0);
    if (process.read_error)
        return -process.read_error;
    if (process.gone_at && process.asked >= process.gone_at - 1)
        return 0;
    size_t n = length / 8 < 100 ? length / 8 : 100; /* fewer than asked for */
    for (size_t i = 0; i < n; i++)
        entries[i] = entry_of(offset / 8 + i);
    return (long)(8 * n);
}

/* The kernel's interface, from its documentation. */
struct scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};

struct region {
    uint64_t start, end, categories;
};

static long fake_ioctl(int fd, unsigned long request, void *argument)
{
    struct scan *scan = argument;
    struct region *regions = (struct region *)(uintptr_t)scan->vec;
    assert_int_equal(fd, PAGEMAP);
    assert_int_equal(request, _IOWR('f', 16, struct scan));
    assert_int_equal(scan->size, 96);
    assert_int_equal(scan->category_mask, 1 << 3 | 1 << 5); /* present, and no page of zeros */
    assert_int_equal(scan->category_inverted, 1 << 5);
    assert_int_equal(scan->max_pages, process.inside ? 0 : 16384);
    if (scan->end - scan->start > process.largest_scan_bytes)
        process.largest_scan_bytes = scan->end - scan->start;
    process.asked++;
    process.now_ns += process.scan_ns;
    if (process.scan_error && ++process.scans >= process.scan_error_at)
        return -process.scan_error;
    long n = 0;
    scan->walk_end = scan->end;
    for (size_t i = 0; i < process.n_present; i++) {
        const struct present *run = &process.present[i];
        if (run->first_page * PAGE < scan->start || run->first_page * PAGE >= scan->end)
            continue;
        if ((uint64_t)n == scan->vec_len || (uint64_t)n == process.regions_at_once) {
            scan->walk_end = run->first_page * PAGE;
            return n;
        }
        if (n && n % 512 == 0) /* as Linux does; it stays so where nothing stops the walk again */
            scan->walk_end = run->first_page * PAGE;
        regions[n++] = (struct region){
            .start = run->first_page * PAGE,
            .end = (run->first_page + run->n_pages) * PAGE,
            .categories = ((run->flags & MT_RUN_FILE ? 1 << 2 : 0) |
                           (run->flags & MT_RUN_HUGE ? 1 << 6 : 0)) &
                          scan->return_mask,
        };
    }
    return n;
}

static uint64_t fake_now(void)
{
    return process.now_ns += 1000;
}

static const struct mt_record_os *fake_os(void)
{
    static struct mt_record_os os;
    os = mt_watch_os;
    os.open = fake_open;
    os.close = fake_close;
    os.read = fake_read;
    os.pread = fake_pread;
    os.ioctl = fake_ioctl;
    os.monotonic_ns = fake_now;
    return &os;
}

/* A picture as it is read back. */
struct shown {
    struct mt_picture_result result;
    uint64_t begin[4];
    uint64_t end[3];
    char maps[1024];
    struct mt_run_pages *runs;
    size_t n_runs;
};

static void read_runs(struct shown *shown, const struct mt_event *event, uint64_t *page)
{
    struct mt_runs runs;
    struct mt_run_pages run;
    mt_runs_init(&runs, event);
    while (mt_runs_next(&runs, page, &run)) {
        shown->runs = realloc(shown->runs, (shown->n_runs + 1) * sizeof run);
        assert_non_null(shown->runs);
        shown->runs[shown->n_runs++] = run;
    }
    assert_int_equal(runs.left, 0);
}

static struct shown read_picture(const char *path)
{
    struct shown shown = {0};
    struct mt_cursor cursor;
    struct mt_event event;
    uint64_t page = 0;
    struct mt_record_file *file = must_open(path);
    mt_cursor_init(&cursor, file, 0, file->n_blocks);
    while (mt_cursor_next(&cursor, &event)) {
        if (event.op == MT_EVENT_PICTURE_BEGIN)
            memcpy(shown.begin, event.field, sizeof shown.begin);
        if (event.op == MT_EVENT_PICTURE_END)
            memcpy(shown.end, event.field, sizeof shown.end);
        if (event.op == MT_EVENT_PICTURE_RUNS)
            read_runs(&shown, &event, &page);
        if (event.op == MT_EVENT_PICTURE_TEXT && event.field[0] == MT_TEXT_MAPS)
            strncat(shown.maps, (const char *)event.bytes, event.length);
    }
    assert_int_equal(cursor.blocks_bad, 0);
    mt_cursor_finish(&cursor);
    mt_record_file_close(file);
    return shown;
}

static void count_rest(void)
{
    process.rests++;
}

/* Takes a picture of the fake process and reads it back. */
static struct shown picture(int avoid_scan)
{
    const char *path = in_folder("a.mtr");
    void *scratch = malloc(MT_PICTURE_SCRATCH_BYTES);
    const struct mt_picture_request request = {
        .process_directory = "/proc/77",
        .pid = 77,
        .reason = process.inside ? MT_PICTURE_FALL : MT_PICTURE_OUTSIDE,
        .resident_bytes = 12345,
        .avoid_scan = avoid_scan,
        .rest = count_rest,
        .scratch = scratch,
    };
    struct mt_picture_result result;
    struct scribe scribe;
    scribe_begin(&scribe, path, 1);
    scribe.file.os = fake_os();
    mt_picture_take(&scribe.writer[0], &request, &result);
    scribe_end(&scribe);
    free(scratch);
    assert_int_equal(process.open_files, 0);
    struct shown shown = read_picture(path);
    remove_file(path);
    shown.result = result;
    assert_int_equal(shown.begin[0], 77);
    assert_int_equal(shown.begin[1], request.reason);
    assert_int_equal(shown.begin[3], 12345);
    assert_int_equal(shown.end[0], result.complete);
    assert_int_equal(shown.end[1], result.cost_ns);
    assert_int_equal(shown.end[2], result.method);
    assert_true(result.cost_ns >= 1000);
    return shown;
}

static void assert_runs(const struct shown *shown, const struct present *expected, size_t n)
{
    assert_int_equal(shown->n_runs, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(shown->runs[i].first_page, expected[i].first_page);
        assert_int_equal(shown->runs[i].n_pages, expected[i].n_pages);
        assert_int_equal(shown->runs[i].flags, expected[i].flags);
    }
}

static const char small_maps[] = "00400000-00410000 r-xp 00000000 08:01 42 /bin/thing\n"
                                 "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \n"
                                 "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [v]\n";
static const struct present small_process[] = {
    {0x400, 3, MT_RUN_FILE}, {0x404, 1, 0}, {0x405, 2, MT_RUN_FILE}, {0x7f0000000, 512, 0}};

static void use_small_process(void)
{
    memset(&process, 0, sizeof process);
    process.maps = small_maps;
    process.present = small_process;
    process.n_present = 4;
    process.regions_at_once = UINT64_MAX;
}

static void test_a_scan_gives_the_runs_of_present_pages(void **state)
{
    (void)state;
    use_small_process();
    struct shown shown = picture(0);
    assert_int_equal(shown.result.method, MT_METHOD_SCAN);
    assert_int_equal(shown.result.complete, 1);
    assert_string_equal(shown.maps, small_maps);
    assert_runs(&shown, small_process, 4);
    free(shown.runs);
}

static void test_a_scan_that_takes_several_calls_gives_the_same(void **state)
{
    (void)state;
    use_small_process();
    for (process.regions_at_once = 1; process.regions_at_once < 5; process.regions_at_once++) {
        struct shown shown = picture(0);
        assert_int_equal(shown.result.method, MT_METHOD_SCAN);
        assert_runs(&shown, small_process, 4);
        free(shown.runs);
    }
}

/* More runs than fit in one call, in one event, and in one block. */
static void test_many_runs_are_all_written(void **state)
{
    (void)state;
    const size_t n = 29 * 682 + 600; /* a scan of all that there is room for would end with 600 */
    struct present *many = calloc(n, sizeof *many);
    assert_non_null(many);
    for (size_t i = 0; i < n; i++)
        many[i] = (struct present){0x10000 + i * 1000003, 1 + i % 7, i % 2 ? MT_RUN_FILE : 0};
    use_small_process();
    process.inside = 1;
    process.present = many;
    process.n_present = n;
    struct shown shown = picture(0);
    assert_int_equal(shown.result.complete, 1);
    assert_runs(&shown, many, n);
    free(shown.runs);
    free(many);
}

static void test_neighbouring_regions_of_one_kind_become_one_run(void **state)
{
    (void)state;
    static const struct present pieces[] = {{10, 5, 0}, {15, 5, 0}, {20, 1, MT_RUN_HUGE}};
    static const struct present joined[] = {{10, 10, 0}, {20, 1, MT_RUN_HUGE}};
    use_small_process();
    process.maps = "00000000-00100000 rw-p 00000000 00:00 0 \n";
    process.present = pieces;
    process.n_present = 3;
    process.regions_at_once = 1;
    struct shown shown = picture(0);
    assert_runs(&shown, joined, 2);
    free(shown.runs);
}

/* Linux holds the lock of the mappings while a call looks through pages, also through those that
 * it does not report: pages of zeros, what is swapped out. */
static void test_a_call_from_outside_looks_through_a_bounded_range(void **state)
{
    static const char maps[] = "7e0000000000-7e0200000000 rw-p 00000000 00:00 0 \n" /* 8 GiB */
                               "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \n";
    static const struct present present[] = {{0x7f0000000, 512, 0}};
    (void)state;
    for (int is_slow = 0; is_slow < 2; is_slow++) {
        use_small_process();
        process.maps = maps;
        process.present = present;
        process.n_present = 1;
        process.scan_ns = is_slow ? 100000 : 10000;
        struct shown shown = picture(0);
        assert_int_equal(shown.result.method, MT_METHOD_SCAN);
        assert_runs(&shown, present, 1);
        /* Steps of 128 MiB, doubled up to 1 GiB where they are quick; gaps are left out. */
        assert_int_equal(process.largest_scan_bytes, (uint64_t)1 << (is_slow ? 27 : 30));
        assert_int_equal(process.asked, is_slow ? 64 + 1 : 3 + 7 + 1 + 1);
        assert_int_equal(process.rests, is_slow ? 63 : 0);
        free(shown.runs);
    }
}

static void test_an_older_kernel_is_read_by_pagemap(void **state)
{
    (void)state;
    static const int errors[] = {ENOTTY, EINVAL, EFAULT};
    for (size_t i = 0; i < 4; i++) {
        use_small_process();
        process.scan_error = i < 3 ? errors[i] : 0;
        process.scan_error_at = 1;
        struct shown shown = picture(i == 3);
        assert_int_equal(shown.result.method, MT_METHOD_PAGEMAP);
        assert_int_equal(shown.result.complete, 1);
        assert_string_equal(shown.maps, small_maps);
        assert_runs(&shown, small_process, 4);
        free(shown.runs);
    }
}

/* What the scan had found is not counted twice. */
static void test_a_scan_that_fails_half_way_starts_over_by_pagemap(void **state)
{
    (void)state;
    for (int at = 2; at <= 4; at++) {
        use_small_process();
        process.regions_at_once = 1;
        process.scan_error = EINTR;
        process.scan_error_at = at;
        struct shown shown = picture(0);
        assert_int_equal(shown.result.method, MT_METHOD_PAGEMAP);
        assert_runs(&shown, small_process, 4);
        free(shown.runs);
    }
}

/* Runs that are in the recording cannot be taken back. */
static void test_a_scan_that_fails_after_much_is_incomplete(void **state)
{
    (void)state;
    static struct present many[1500];
    for (size_t i = 0; i < 1500; i++)
        many[i] = (struct present){0x400 + 2 * i, 1, 0};
    use_small_process();
    process.maps = "00400000-01000000 r-xp 00000000 08:01 42 /bin/thing\n";
    process.present = many;
    process.n_present = 1500;
    process.scan_error = EINTR;
    process.scan_error_at = 3;
    struct shown shown = picture(0);
    assert_int_equal(shown.result.complete, 0);
    assert_int_equal(shown.result.method, MT_METHOD_NONE);
    free(shown.runs);
}

static void test_a_process_whose_maps_cannot_be_read_is_incomplete(void **state)
{
    (void)state;
    for (int avoid_scan = 0; avoid_scan < 2; avoid_scan++) {
        use_small_process();
        process.maps = NULL;
        struct shown shown = picture(avoid_scan);
        assert_int_equal(shown.result.complete, 0);
        assert_int_equal(shown.result.method, avoid_scan ? MT_METHOD_NONE : MT_METHOD_SCAN);
        assert_int_equal(shown.n_runs, avoid_scan ? 0 : 4);
        free(shown.runs);
    }
}

static void test_a_process_whose_pagemap_cannot_be_read_is_incomplete(void **state)
{
    (void)state;
    use_small_process();
    process.pagemap_error = EACCES;
    struct shown shown = picture(0);
    assert_int_equal(shown.result.complete, 0);
    assert_int_equal(shown.result.method, MT_METHOD_NONE);
    assert_int_equal(shown.n_runs, 0);
    assert_string_equal(shown.maps, small_maps);
    use_small_process();
    process.read_error = EIO;
    shown = picture(1);
    assert_int_equal(shown.result.complete, 0);
    assert_int_equal(shown.n_runs, 0);
}

/* 1: before the first scan, which there is none of then; 2: after it. */
static void test_a_process_that_ends_meanwhile_is_incomplete(void **state)
{
    (void)state;
    for (int at = 1; at <= 2; at++) {
        use_small_process();
        process.gone_at = at;
        struct shown shown = picture(0);
        assert_int_equal(shown.result.complete, 0);
        assert_int_equal(shown.result.method, MT_METHOD_NONE);
        assert_int_equal(process.asked > 0, at == 2);
        free(shown.runs);
    }
}

/* The disk is full while the picture is written. */
static int fail_back(void *address, size_t length)
{
    (void)address;
    (void)length;
    return -ENOSPC;
}

static void test_a_picture_that_could_not_be_written_is_incomplete(void **state)
{
    (void)state;
    const char *path = in_folder("a.mtr");
    struct mt_record_os os = *fake_os();
    void *scratch = malloc(MT_PICTURE_SCRATCH_BYTES);
    const struct mt_picture_request request = {.process_directory = "/proc/77", .scratch = scratch};
    struct mt_picture_result result;
    struct scribe scribe;
    use_small_process();
    process.inside = 1;
    scribe_begin(&scribe, path, 1);
    fill_block(&scribe.writer[0], 2000);
    os.map_on = mt_watch_os.map_on;
    os.back = fail_back;
    scribe.file.os = &os;
    mt_picture_take(&scribe.writer[0], &request, &result);
    assert_int_equal(result.method, MT_METHOD_SCAN);
    assert_int_equal(result.complete, 0);
    scribe_end(&scribe);
    free(scratch);
    remove_file(path);
}

/* statm as a text, read in one go. */
static const char *statm;

static long read_statm(int fd, void *bytes, size_t length)
{
    (void)fd;
    size_t got = strlen(statm) < length ? strlen(statm) : length;
    memcpy(bytes, statm, got);
    return (long)got;
}

static long fail_read(int fd, void *bytes, size_t length)
{
    (void)fd;
    (void)bytes;
    (void)length;
    return -ESRCH;
}

static void test_the_resident_size_is_the_second_number_of_statm(void **state)
{
    (void)state;
    struct mt_record_os os = *fake_os();
    use_small_process();
    os.read = read_statm;
    statm = "24 17 3 1 0 5 0\n";
    assert_int_equal(mt_resident_bytes(&os, "/proc/77", 4096), 17 * 4096);
    statm = "123456789012 98765432101 3 1 0 5 0\n";
    assert_int_equal(mt_resident_bytes(&os, "/proc/77", 4096), 98765432101 * 4096);
    static const char *const nonsense[] = {"", "24", "24 ", " ", "x y\n"};
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        statm = nonsense[i];
        assert_int_equal(mt_resident_bytes(&os, "/proc/77", 4096), 0);
    }
    os.read = fail_read;
    assert_int_equal(mt_resident_bytes(&os, "/proc/77", 4096), 0);
    assert_int_equal(process.open_files, 0);
    assert_int_equal(mt_resident_bytes(&mt_watch_os, "/proc/0", 4096), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_scan_gives_the_runs_of_present_pages),
        cmocka_unit_test(test_a_scan_that_takes_several_calls_gives_the_same),
        cmocka_unit_test(test_many_runs_are_all_written),
        cmocka_unit_test(test_neighbouring_regions_of_one_kind_become_one_run),
        cmocka_unit_test(test_a_call_from_outside_looks_through_a_bounded_range),
        cmocka_unit_test(test_an_older_kernel_is_read_by_pagemap),
        cmocka_unit_test(test_a_scan_that_fails_half_way_starts_over_by_pagemap),
        cmocka_unit_test(test_a_scan_that_fails_after_much_is_incomplete),
        cmocka_unit_test(test_a_process_whose_maps_cannot_be_read_is_incomplete),
        cmocka_unit_test(test_a_process_whose_pagemap_cannot_be_read_is_incomplete),
        cmocka_unit_test(test_a_process_that_ends_meanwhile_is_incomplete),
        cmocka_unit_test(test_a_picture_that_could_not_be_written_is_incomplete),
        cmocka_unit_test(test_the_resident_size_is_the_second_number_of_statm),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
