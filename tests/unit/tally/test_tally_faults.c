/* SPDX-License-Identifier: MIT */
/* The n-th allocation fails, for every n: opening a recording and making its tally then fail
 * cleanly, and the next try succeeds. */
#include "recorded.h"

#include <stdlib.h>

#include <memtally/error.h>
#include <memtally/recording.h>

#include "tests/support/failing_allocations.h"

static const char maps[] = "10000000-10004000 r--s 00000000 fe:00 11 /m/tiny.gguf\n"
                           "10020000-10024000 rw-p 00000000 00:00 0 [heap]\n"
                           "10100000-10104000 rw-p 00000000 00:00 0 \n";
static const uint64_t runs[][3] = {{0x10000, 4, MT_RUN_FILE}, {0x10020, 4, 0}, {0x10100, 4, 0}};

static void write_process(uint32_t pid, const char *name)
{
    struct recorded p = {.header = {.pid = pid, .flags = pid == 8 ? MT_FILE_FORKED : 0}, .ns = pid};
    p.header.parent_pid = 7;
    recorded_begin(&p, name);
    uint64_t text = recorded_string(&p, "name");
    recorded_text(&p, MT_MACHINE_COMMAND, "engine");
    EVENT(&p, SCOPE_BEGIN, MT_CATEGORY_KV_CACHE, text);
    EVENT(&p, MMAP, 0x10100000, 0x4000, 3, 0x22, 0, 0, 0);
    EVENT(&p, MREMAP, 0x10100000, 0x4000, 0x10100000, 0x2000, 0);
    EVENT(&p, LABEL, 0x10100000, 100, MT_CATEGORY_WEIGHTS, text);
    EVENT(&p, UNLABEL, 0x10100010, 10);
    EVENT(&p, BUFFER_ALLOC, 5, 0x10101000, 100, MT_BUFFER_HOST, 0, text, 0);
    recorded_alloc(&p, MT_EVENT_ALLOC, 0x10020000, 1000, 0);
    EVENT(&p, HEAP_REGION, 0x101, 1);
    EVENT(&p, MARK, text);
    p.ns = 100;
    recorded_picture(&p, &(struct recorded_picture){.reason = MT_PICTURE_FALL,
                                                    .maps = maps,
                                                    .meminfo = "MemTotal: 5 kB\n",
                                                    .runs = runs,
                                                    .n_runs = 3});
    recorded_end(&p, 200);
}

static void write_recording(void)
{
    struct recorded w = {.header = {.pid = 1, .kind = MT_FILE_WATCH}, .ns = 1};
    recorded_begin(&w, "watch");
    EVENT(&w, PROCESS, 7, 1, 2, recorded_string(&w, "engine"));
    EVENT(&w, PROCESS, 9, 1, 2, recorded_string(&w, "static"));
    EVENT(&w, OUTSIDE_ONLY, 9, 1);
    recorded_text(&w, MT_MACHINE_MEMINFO, "MemTotal: 5 kB\n");
    w.ns = 100;
    EVENT(&w, PROCESS_SAMPLE, 9, PAGE, PAGE);
    EVENT(&w, PROCESS_END, 7, MT_PROCESS_EXITED, 0);
    recorded_end(&w, 200);
    write_process(7, "7-0");
    write_process(8, "8-0");
}

static int open_and_tally(struct mt_timeline_point **points)
{
    const struct mt_moment moment = {MT_MOMENT_PEAK, 0};
    struct mt_recording *recording = NULL;
    struct mt_tally *tally = NULL;
    size_t n;
    int result = mt_recording_open(recorded_directory, &recording, NULL);
    if (result == 0)
        result = mt_recording_tally(recording, &moment, &tally, NULL);
    if (result == 0)
        result = mt_recording_timeline(recording, points, &n, NULL);
    if (tally)
        assert_true(mt_tally_adds_up(tally));
    mt_tally_destroy(tally);
    mt_recording_close(recording);
    return result;
}

static void test_whichever_allocation_fails_nothing_is_lost(void **state)
{
    (void)state;
    int n = 0;
    write_recording();
    for (int finished = 0; !finished; n++) {
        struct mt_timeline_point *points = NULL;
        allocations = 0;
        failing_allocation = n + 1;
        int result = open_and_tally(&points);
        finished = allocations <= n;
        failing_allocation = 0;
        if (finished)
            assert_int_equal(result, 0);
        else if (result < 0)
            assert_int_equal(result, MT_ENOMEM);
        assert_int_equal(points != NULL, result == 0);
        mt_timeline_destroy(points);
    }
    assert_true(n > 150);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_whichever_allocation_fails_nothing_is_lost,
                                        recorded_setup, recorded_teardown),
    };
    return RUN_TESTS(tests);
}
