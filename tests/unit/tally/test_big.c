/* SPDX-License-Identifier: MIT */
/* Recordings of many threads and stacks: what is read of them is what was written, raw and packed.
 */
#include "recorded.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tally/replay.h"
#include "tests/support/big_recording.h"
#include "tests/support/emulated.h"

static void assert_replays(const char *path, const struct big_truth *truth, uint32_t n_stacks)
{
    struct mt_record_file *file;
    struct mt_replay replay;
    const struct mt_heap_block *block;
    uint64_t bytes = 0;
    assert_int_equal(mt_record_file_open(path, &file, NULL), 0);
    assert_int_equal(file->blocks_bad, 0);
    mt_replay_init(&replay);
    assert_int_equal(mt_replay_file(&replay, file, UINT64_MAX, NULL), 0);
    for (uint64_t at = 0; (block = mt_blocks_next(&replay.blocks, &at));)
        bytes += block->size;
    assert_int_equal(replay.blocks.n, truth->live_blocks);
    assert_int_equal(bytes, truth->live_bytes);
    assert_int_equal(mt_replay_stacks(&replay), n_stacks);
    mt_replay_finish(&replay);
    mt_record_file_close(file);
}

static void assert_read(const struct big_recording *big)
{
    char raw[128], packed[128];
    NOT_EMULATED(); /* 64 MiB of a file are all that can be had */
    snprintf(raw, sizeof raw, "%s/7-0.mtr", recorded_directory);
    snprintf(packed, sizeof packed, "%s/7-0.mtz", recorded_directory);
    struct big_truth truth = big_recording_write(big, raw);
    assert_replays(raw, &truth, big->n_stacks);
    assert_int_equal(mt_record_file_pack(raw, NULL), 0);
    assert_replays(packed, &truth, big->n_stacks);
    assert_int_equal(unlink(packed), 0);
}

/* Two thousand threads leave each 32 KiB of window, so that blocks are read in parts. */
static void test_thousands_of_threads_are_merged(void **state)
{
    (void)state;
    assert_read(&(struct big_recording){3000000, 2100, 1000, 10});
}

static void test_stacks_are_kept_once_over_all_threads(void **state)
{
    (void)state;
    assert_read(&(struct big_recording){600000, 8, 5000, 20000});
}

static void test_many_blocks_live_at_a_time(void **state)
{
    (void)state;
    assert_read(&(struct big_recording){1000000, 3, 400000, 100});
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, recorded_setup, recorded_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_thousands_of_threads_are_merged),
        TEST(test_stacks_are_kept_once_over_all_threads),
        TEST(test_many_blocks_live_at_a_time),
    };
    return RUN_TESTS(tests);
}
