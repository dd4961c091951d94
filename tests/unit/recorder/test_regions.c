/* SPDX-License-Identifier: MIT */
/* Where the heap was seen, up to the highest address that a machine has. */
#include "tests/support/unit.h"

#include "recorder/regions.h"
#include "recorder/sys.h"
#include "watch/watch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct recorder memtally_recorder;

static int no_memory;
static int n_leaves;

void *mt_sys_map(size_t length)
{
    void *mapped = no_memory ? MAP_FAILED
                             : mmap(NULL, length, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

void write_self(struct thread *thread, const void *address, size_t length)
{
    (void)thread;
    assert_non_null(address);
    assert_int_equal(length, 8192);
    n_leaves++;
}

/* A thread that writes into a file, which is gone at once. */
static struct thread *begin(struct mt_file *file)
{
    const struct mt_file_header header = {.page_bytes = 4096, .clock_kind = MT_CLOCK_MONOTONIC};
    *file = (struct mt_file){0};
    struct thread *thread = calloc(1, sizeof *thread);
    char folder[] = "/tmp/memtally-regions-XXXXXX";
    char path[64];
    assert_non_null(thread);
    assert_non_null(mkdtemp(folder));
    strcat(strcpy(path, folder), "/1-0.mtr");
    assert_int_equal(mt_file_create(file, &mt_watch_os, path, &header), 0);
    unlink(path);
    rmdir(folder);
    mt_writer_init(&thread->writer, file, 0, 1);
    memset(memtally_recorder.leaves, 0, sizeof memtally_recorder.leaves);
    no_memory = n_leaves = 0;
    return thread;
}

static void end(struct thread *thread, struct mt_file *file)
{
    mt_writer_finish(&thread->writer);
    mt_file_close(file);
    free(thread);
}

static uint64_t granule_of(unsigned bit)
{
    return ((uint64_t)1 << bit) / MT_GRANULE_BYTES;
}

static void test_what_was_seen_is_known_up_to_48_bits(void **state)
{
    static const unsigned bits[] = {20, 35, 36, 46, 47};
    struct mt_file file;
    struct thread *thread = begin(&file);
    (void)state;
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        uint64_t granule = granule_of(bits[i]);
        assert_false(region_is_known(granule));
        region_note(thread, granule, granule + 1);
        assert_true(region_is_known(granule));
        assert_true(region_is_known(granule + 1));
        assert_false(region_is_known(granule + 2));
        assert_false(region_is_known(granule - 1));
    }
    assert_int_equal(n_leaves, 4); /* the first two lie in the first 64 GiB */
    end(thread, &file);
}

static void test_a_block_over_two_leaves_is_known_in_both(void **state)
{
    struct mt_file file;
    struct thread *thread = begin(&file);
    (void)state;
    region_note(thread, granule_of(36) - 3, granule_of(36) + 70000);
    assert_true(region_is_known(granule_of(36) - 3));
    assert_true(region_is_known(granule_of(36) - 1));
    assert_true(region_is_known(granule_of(36)));
    assert_true(region_is_known(granule_of(36) + 65536));
    assert_true(region_is_known(granule_of(36) + 70000));
    assert_false(region_is_known(granule_of(36) + 70001));
    assert_int_equal(n_leaves, 3);
    end(thread, &file);
}

/* With five levels of page tables programs have 56 bits, and a tag may stand above that. */
static void test_what_lies_higher_is_known_to_none(void **state)
{
    struct mt_file file;
    struct thread *thread = begin(&file);
    (void)state;
    region_note(thread, granule_of(48), granule_of(48));
    region_note(thread, granule_of(56) - 1, granule_of(56));
    region_note(thread, UINT64_MAX / MT_GRANULE_BYTES, UINT64_MAX / MT_GRANULE_BYTES);
    assert_false(region_is_known(granule_of(48)));
    assert_false(region_is_known(UINT64_MAX / MT_GRANULE_BYTES));
    region_note(thread, granule_of(48) - 1, granule_of(48));
    assert_true(region_is_known(granule_of(48) - 1));
    end(thread, &file);
}

static void test_without_memory_it_is_written_each_time(void **state)
{
    struct mt_file file;
    struct thread *thread = begin(&file);
    (void)state;
    no_memory = 1;
    region_note(thread, 100, 100000000);
    assert_false(region_is_known(100));
    no_memory = 0;
    region_note(thread, 100, 100);
    assert_true(region_is_known(100));
    end(thread, &file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_seen_is_known_up_to_48_bits),
        cmocka_unit_test(test_a_block_over_two_leaves_is_known_in_both),
        cmocka_unit_test(test_what_lies_higher_is_known_to_none),
        cmocka_unit_test(test_without_memory_it_is_written_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
