/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "scribe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

/* More than any of these calls has places to fail at. */
#define MOST_FAULTS 1000

/* What is wrapped: the allocations of the room, and the objects that zstd makes for it. */
static int allocations, failing_allocation;

static int fails(void)
{
    return failing_allocation && ++allocations == failing_allocation;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *block, size_t size);
char *__real_strdup(const char *text);
ZSTD_DCtx *__real_ZSTD_createDCtx(void);
ZSTD_CCtx *__real_ZSTD_createCCtx(void);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *block, size_t size);
char *__wrap_strdup(const char *text);
ZSTD_DCtx *__wrap_ZSTD_createDCtx(void);
ZSTD_CCtx *__wrap_ZSTD_createCCtx(void);

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *block, size_t size)
{
    return fails() ? NULL : __real_realloc(block, size);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

ZSTD_DCtx *__wrap_ZSTD_createDCtx(void)
{
    return fails() ? NULL : __real_ZSTD_createDCtx();
}

ZSTD_CCtx *__wrap_ZSTD_createCCtx(void)
{
    return fails() ? NULL : __real_ZSTD_createCCtx();
}

/* A file system that does not tell where holes are. */
static int is_without_holes, n_reads;
off_t __real_lseek64(int fd, off_t offset, int whence);
off_t __wrap_lseek64(int fd, off_t offset, int whence);
ssize_t __real_pread64(int fd, void *bytes, size_t length, off_t offset);
ssize_t __wrap_pread64(int fd, void *bytes, size_t length, off_t offset);

off_t __wrap_lseek64(int fd, off_t offset, int whence)
{
    if (!is_without_holes)
        return __real_lseek64(fd, offset, whence);
    errno = EINVAL;
    return -1;
}

ssize_t __wrap_pread64(int fd, void *bytes, size_t length, off_t offset)
{
    n_reads++;
    return __real_pread64(fd, bytes, length, offset);
}

/* Over a hundred blocks, so that lists grow. */
static void write_file(const char *path)
{
    struct scribe scribe;
    scribe_begin(&scribe, path, 2);
    for (uint64_t i = 0; i < 70; i++) {
        fill_block(&scribe.writer[0], 2000 + i);
        fill_block(&scribe.writer[1], 2000 + i);
        put_event(&scribe.writer[0], MT_EVENT_LOOK, 2000 + i, 1, i);
        put_event(&scribe.writer[1], MT_EVENT_LOOK, 2000 + i, 1, i);
    }
    scribe_end(&scribe);
}

static int open_it(const char *path, struct mt_error *error)
{
    struct mt_record_file *file = (void *)&allocations;
    int result = mt_record_file_open(path, &file, error);
    if (result == 0)
        mt_record_file_close(file);
    else
        assert_ptr_equal(file, &allocations);
    return result;
}

static int merge_it(const char *path, struct mt_error *error)
{
    int failing = failing_allocation;
    struct mt_merge *merge = NULL;
    failing_allocation = 0;
    struct mt_record_file *file = must_open(path);
    allocations = 0;
    failing_allocation = failing;
    struct mt_event event;
    int result = mt_merge_create(file, &merge);
    assert_true((result == 0) == (merge != NULL));
    while (result == 0 && mt_merge_next(merge, &event)) {
    }
    if (result == 0)
        result = mt_merge_failed(merge);
    failing_allocation = 0;
    error->code = result;
    error->text[0] = '.';
    mt_merge_destroy(merge);
    mt_record_file_close(file);
    return result;
}

/* Fails each allocation in turn until there is none left to fail; returns how many there were. */
static int sweep(int (*call)(const char *, struct mt_error *), const char *path, int n_files)
{
    for (int n = 1;; n++) {
        struct mt_error error = {0};
        assert_true(n < MOST_FAULTS);
        allocations = 0;
        failing_allocation = n;
        int result = call(path, &error);
        failing_allocation = 0;
        if (result == 0)
            return n - 1;
        assert_int_equal(result, MT_ENOMEM);
        assert_int_equal(error.code, MT_ENOMEM);
        assert_true(error.text[0] != '\0');
        assert_int_equal(count_in_folder(), n_files);
    }
}

/* Nobody reads all of the 64 GiB that a file may become. */
static void test_a_file_whose_end_cannot_be_asked_for_is_read_as_far_as_it_has_blocks(void **state)
{
    (void)state;
    const char *path = in_folder("1-0.mtr");
    write_file(path);
    struct mt_record_file *file = must_open(path);
    size_t n_blocks = file->n_blocks, n_events = count_events(file);
    mt_record_file_close(file);
    assert_int_equal(truncate(path, (off_t)64 << 30), 0);
    is_without_holes = 1;
    n_reads = 0;
    file = must_open(path);
    is_without_holes = 0;
    assert_true(n_reads < 100000); /* and not a million */
    assert_int_equal(file->n_blocks, n_blocks);
    assert_int_equal(file->blocks_bad, 0);
    assert_int_equal(count_events(file), n_events);
    mt_record_file_close(file);
    remove_file(path);
}

static void test_whichever_allocation_fails_opening_says_so(void **state)
{
    (void)state;
    write_file(in_folder("1-0.mtr"));
    assert_true(sweep(open_it, in_folder("1-0.mtr"), 1) >= 4);
    assert_int_equal(mt_record_file_pack(in_folder("1-0.mtr"), NULL), 0);
    assert_true(sweep(open_it, in_folder("1-0.mtz"), 1) >= 8);
    remove_file(in_folder("1-0.mtz"));
}

static void test_whichever_allocation_fails_merging_says_so(void **state)
{
    (void)state;
    write_file(in_folder("1-0.mtr"));
    assert_true(sweep(merge_it, in_folder("1-0.mtr"), 1) >= 6);
    assert_int_equal(mt_record_file_pack(in_folder("1-0.mtr"), NULL), 0);
    assert_true(sweep(merge_it, in_folder("1-0.mtz"), 1) >= 8);
    remove_file(in_folder("1-0.mtz"));
}

static void test_whichever_allocation_fails_packing_keeps_the_raw_file(void **state)
{
    (void)state;
    const char *raw = in_folder("1-0.mtr");
    write_file(raw);
    char *expected = transcript_of(raw);
    assert_true(sweep(mt_record_file_pack, raw, 1) >= 8);
    assert_int_equal(count_in_folder(), 1);
    char *text = transcript_of(in_folder("1-0.mtz"));
    assert_string_equal(text, expected);
    free(text);
    free(expected);
    remove_file(in_folder("1-0.mtz"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_whose_end_cannot_be_asked_for_is_read_as_far_as_it_has_blocks),
        cmocka_unit_test(test_whichever_allocation_fails_opening_says_so),
        cmocka_unit_test(test_whichever_allocation_fails_merging_says_so),
        cmocka_unit_test(test_whichever_allocation_fails_packing_keeps_the_raw_file),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
