/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "model/sample/sample.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/support/failing_allocations.h"

/* Over a megabyte, so that weights take several writes. */
static const struct mt_model_shape small = {.layers = 2,
                                            .embedding_length = 256,
                                            .ff_length = 512,
                                            .heads = 4,
                                            .vocabulary = 3000,
                                            .context_length = 512};

static const struct mt_sample_options random_q8_0 = {.type = MT_WEIGHT_Q8_0};
static const struct mt_sample_options sparse = {.type = MT_WEIGHT_Q8_0, .mode = MT_SAMPLE_SPARSE};

static char directory[64];
static char path[96];

static int make_directory(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/memtally-faults-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof path, "%s/model.gguf", directory);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    return rmdir(directory);
}

static int count_files(void)
{
    int n = 0;
    DIR *stream = opendir(directory);
    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream));)
        n += entry->d_name[0] != '.';
    closedir(stream);
    return n;
}

static void put_old_file(void)
{
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    fputs("old", stream);
    fclose(stream);
}

/* The old file is all there is, and is as it was. */
static void assert_only_the_old_file(void)
{
    char text[16] = "";
    FILE *stream = fopen(path, "r");
    assert_non_null(stream);
    assert_non_null(fgets(text, sizeof text, stream));
    fclose(stream);
    assert_string_equal(text, "old");
    assert_int_equal(count_files(), 1);
}

/* The n-th call of any kind fails; nothing does where it is 0. */
static int calls, failing_call;
static int open_descriptors;

static int fails(int errno_value)
{
    errno = errno_value;
    return ++calls == failing_call;
}

static int fake_open(const char *name, int flags, mode_t mode)
{
    if (fails(EACCES))
        return -1;
    int fd = mt_out_file_os.open(name, flags, mode);
    open_descriptors += fd >= 0;
    return fd;
}

static ssize_t fake_write(int fd, const void *bytes, size_t length)
{
    if (fails(ENOSPC))
        return -1;
    return write(fd, bytes, length / 2 + 1); /* a short write is no failure */
}

static int fake_truncate(int fd, off_t length)
{
    return fails(EFBIG) ? -1 : ftruncate(fd, length);
}

static uint64_t fake_free_bytes(int fd)
{
    (void)fd;
    return fails(0) ? 1000 : UINT64_MAX;
}

/* A failing close has closed nonetheless, as on Linux. */
static int fake_close(int fd)
{
    int failed = fails(EIO);
    close(fd);
    open_descriptors--;
    errno = EIO;
    return failed ? -1 : 0;
}

static int fake_rename(const char *from, const char *to)
{
    return fails(EROFS) ? -1 : rename(from, to);
}

static const struct mt_out_file_os faulty = {.open = fake_open,
                                             .stat = stat,
                                             .write = fake_write,
                                             .truncate = fake_truncate,
                                             .free_bytes = fake_free_bytes,
                                             .close = fake_close,
                                             .rename = fake_rename,
                                             .unlink = unlink};

/* More faults than any of these models has places to fail at. */
#define MOST_FAULTS 1000

/* Fails each call in turn until none is left to fail; returns how many there were. */
static int sweep_calls(const struct mt_sample_options *options)
{
    for (failing_call = 1;; failing_call++) {
        assert_true(failing_call < MOST_FAULTS);
        struct mt_sample_facts facts = {.parameters = 7};
        struct mt_error error = {0};
        calls = 0;
        put_old_file();
        int code = mt_sample_model_write_with(&faulty, path, &small, options, &facts, &error);
        assert_int_equal(open_descriptors, 0);
        if (code == 0)
            break;
        assert_true(code == MT_EIO || code == MT_EPERM);
        assert_int_equal(error.code, code);
        assert_non_null(strstr(error.text, path));
        assert_int_equal(facts.parameters, 7);
        assert_only_the_old_file();
    }
    assert_int_equal(count_files(), 1);
    assert_int_equal(unlink(path), 0);
    return failing_call - 1;
}

static void test_whichever_call_fails_nothing_is_left_behind(void **state)
{
    (void)state;
    assert_true(sweep_calls(&random_q8_0) > 20);
    assert_true(sweep_calls(&sparse) > 5);
}

static void test_whichever_allocation_fails_nothing_is_left_behind(void **state)
{
    (void)state;
    int code, n = 0;
    put_old_file();
    do {
        assert_true(n < MOST_FAULTS);
        struct mt_error error = {0};
        allocations = 0;
        failing_allocation = ++n;
        code = mt_sample_model_write(path, &small, &random_q8_0, NULL, &error);
        failing_allocation = 0;
        if (code) {
            assert_int_equal(code, MT_ENOMEM);
            assert_int_equal(error.code, MT_ENOMEM);
            assert_only_the_old_file();
        }
    } while (code);
    assert_true(n > 10);
    assert_int_equal(unlink(path), 0);
}

static void assert_cannot_write(const char *where, int expected)
{
    struct mt_error error = {0};
    assert_int_equal(mt_sample_model_write(where, &small, &random_q8_0, NULL, &error), expected);
    assert_non_null(strstr(error.text, where));
}

static void test_a_place_that_cannot_be_written_is_named(void **state)
{
    (void)state;
    char under_nothing[128];
    snprintf(under_nothing, sizeof under_nothing, "%s/none/model.gguf", directory);
    assert_cannot_write(under_nothing, MT_ENOTFOUND);
    assert_cannot_write("/proc/model.gguf", MT_ENOTFOUND);
    assert_cannot_write(directory, MT_EARG);
    assert_cannot_write("/dev/full", MT_EARG);
    assert_int_equal(count_files(), 0);
}

/* The kernel itself refuses to let the file grow. */
static void test_a_file_that_may_not_grow_is_removed(void **state)
{
    (void)state;
    struct rlimit old, low;
    struct mt_error error = {0};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = old;
    low.rlim_cur = 600 * 1024;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    int written = mt_sample_model_write(path, &small, &random_q8_0, NULL, &error);
    int extended = mt_sample_model_write(path, &small, &sparse, NULL, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(written, MT_EIO);
    assert_int_equal(extended, MT_EIO);
    assert_int_equal(count_files(), 0);
}

struct watcher {
    double last;
    int calls;
    int stop_at;
};

static int watch(void *argument, double share)
{
    struct watcher *watcher = argument;
    assert_true(share >= watcher->last && share <= 1);
    watcher->last = share;
    return ++watcher->calls == watcher->stop_at;
}

static void test_progress_rises_to_one(void **state)
{
    (void)state;
    struct watcher watcher = {0};
    struct mt_sample_options options = random_q8_0;
    options.progress = watch;
    options.progress_argument = &watcher;
    assert_int_equal(mt_sample_model_write(path, &small, &options, NULL, NULL), 0);
    assert_true(watcher.last == 1);
    assert_true(watcher.calls > 10);
    assert_int_equal(unlink(path), 0);
}

static void test_progress_can_stop_the_writing_at_any_time(void **state)
{
    (void)state;
    struct mt_sample_options options = random_q8_0;
    int code;
    put_old_file();
    for (int stop_at = 1;; stop_at++) {
        assert_true(stop_at < MOST_FAULTS);
        struct watcher watcher = {.stop_at = stop_at};
        options.progress = watch;
        options.progress_argument = &watcher;
        code = mt_sample_model_write(path, &small, &options, NULL, NULL);
        if (code == 0)
            break;
        assert_int_equal(code, MT_ECANCELLED);
        assert_only_the_old_file();
    }
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whichever_call_fails_nothing_is_left_behind),
        cmocka_unit_test(test_whichever_allocation_fails_nothing_is_left_behind),
        cmocka_unit_test(test_a_place_that_cannot_be_written_is_named),
        cmocka_unit_test(test_a_file_that_may_not_grow_is_removed),
        cmocka_unit_test(test_progress_rises_to_one),
        cmocka_unit_test(test_progress_can_stop_the_writing_at_any_time),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
