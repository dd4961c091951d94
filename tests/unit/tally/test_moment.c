/* SPDX-License-Identifier: MIT */
/* Which moment a tally is of, what the machine said then, and the trees of several processes. */
#include "moments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memtally/error.h>
#include <memtally/recording.h>
#include <memtally/units.h>

static const char one_mapping[] = "10000000-20000000 rw-p 00000000 00:00 0 \n"
                                  "20000000-20001000 rw-s 00000000 fe:00 99 /r/%s.mtr\n";

/* A picture of `pages` anonymous pages at `ms`, from inside or, with a pid, from outside. */
static void picture(struct recorded *recorded, uint64_t ms, uint64_t pid, uint64_t pages)
{
    char maps[256];
    char rollup[64];
    char stem[32];
    const uint64_t runs[][3] = {{0x10000, pages, 0}};
    snprintf(stem, sizeof stem, "%d-0", (int)pid);
    snprintf(maps, sizeof maps, one_mapping, stem);
    snprintf(rollup, sizeof rollup, "Rss: %d kB\n", (int)(pages * 4));
    recorded->ns = ms * MS;
    recorded_picture(
        recorded, &(struct recorded_picture){.pid = pid,
                                             .reason = pid ? MT_PICTURE_OUTSIDE : MT_PICTURE_FALL,
                                             .resident_bytes = pages * PAGE,
                                             .maps = maps,
                                             .rollup = rollup,
                                             .runs = runs,
                                             .n_runs = 1});
}

static void assert_moment(enum mt_moment_kind kind, uint64_t ms, uint64_t pages)
{
    struct mt_tally *tally = recorded_tally(kind, 0);
    assert_int_equal(tally->moment_ns, ms * MS);
    assert_int_equal(tally->places[0].total_resident_bytes, pages * PAGE);
    mt_tally_destroy(tally);
}

static void test_peak_steady_and_exit_are_three_pictures(void **state)
{
    (void)state;
    struct recorded p = process_at(0, 7);
    recorded_begin(&p, "7-0");
    picture(&p, 10, 0, 500); /* on the way up as large as later for long */
    picture(&p, 20, 0, 900);
    look(&p, 30, 501);
    picture(&p, 80, 0, 501);
    look(&p, 90, 502);
    picture(&p, 99, 0, 20);
    recorded_end(&p, 100 * MS);
    assert_moment(MT_MOMENT_PEAK, 20, 900);
    assert_moment(MT_MOMENT_STEADY, 80, 501);
    assert_moment(MT_MOMENT_EXIT, 99, 20);
}

/* A server that was loaded in the first half, and let go of everything before its last picture. */
static void test_a_picture_of_the_end_does_not_stand_for_the_time_before(void **state)
{
    (void)state;
    struct recorded p = process_at(0, 7);
    recorded_begin(&p, "7-0");
    picture(&p, 10, 0, 500);
    picture(&p, 40, 0, 9000);
    look(&p, 60, 9001);
    look(&p, 97, 9000);
    picture(&p, 99, 0, 20);
    recorded_end(&p, 100 * MS);
    assert_moment(MT_MOMENT_STEADY, 40, 9000);
    assert_moment(MT_MOMENT_EXIT, 99, 20);
}

/* A process whose pictures had cost too much before: what it took since the last one is in events.
 */
static void test_the_exit_needs_no_picture_of_its_own(void **state)
{
    (void)state;
    struct recorded p = process_at(0, 7);
    recorded_begin(&p, "7-0");
    picture(&p, 20, 0, 900);
    p.ns = 30 * MS;
    EVENT(&p, MMAP, 0x30000000, 300 * PAGE, 3, 0, 0, 0, 0);
    look(&p, 99, 1200);
    recorded_end(&p, 100 * MS);
    assert_moment(MT_MOMENT_EXIT, 99, 1200);
}

/* The kernel's high-water mark says more than any picture. A look says when it was: what the
 * picture shows is carried there, and of the rest nothing is known. */
static void test_the_peak_is_shown_though_no_picture_caught_it(void **state)
{
    (void)state;
    struct recorded p = process_at(0, 7);
    struct recorded w = watch_at(0);
    recorded_begin(&w, "watch");
    w.ns = 50 * MS;
    EVENT(&w, PROCESS_SAMPLE, 7, 100 * PAGE, 5000 * PAGE);
    ended(&w, 100, 7, MT_PROCESS_EXITED, 0);
    recorded_end(&w, 100 * MS);
    recorded_begin(&p, "7-0");
    picture(&p, 20, 0, 900);
    look(&p, 30, 2000);
    recorded_end(&p, 90 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->moment_ns, 30 * MS);
    assert_int_equal(tally->places[0].total_resident_bytes, 2000 * PAGE);
    assert_int_equal(tally->places[0].unattributed_bytes, 2000 * PAGE);
    assert_true(tally->processes[0].is_carried);
    assert_int_equal(tally->places[0].peak_resident_bytes, 5000 * PAGE);
    assert_int_equal(tally->processes[0].peak_resident_bytes, 5000 * PAGE);
    assert_int_equal(tally->processes[0].peak_caught_bytes, 900 * PAGE);
    mt_tally_destroy(tally);
}

static void test_a_time_is_shown_by_the_picture_of_its_size(void **state)
{
    (void)state;
    struct recorded p = process_at(0, 7);
    recorded_begin(&p, "7-0");
    picture(&p, 10, 0, 500);
    picture(&p, 20, 0, 9000);
    look(&p, 21, 500);
    look(&p, 60, 9000);
    recorded_end(&p, 100 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_TIME, 30 * MS);
    assert_int_equal(tally->moment_ns, 30 * MS);
    assert_int_equal(tally->processes[0].picture_time_ns, 10 * MS); /* 20 is nearer */
    mt_tally_destroy(tally);
    tally = recorded_tally(MT_MOMENT_TIME, 70 * MS);
    assert_int_equal(tally->processes[0].picture_time_ns, 20 * MS);
    mt_tally_destroy(tally);
}

static void test_a_time_past_the_end_is_refused(void **state)
{
    (void)state;
    static const uint64_t times[] = {101 * MS, UINT64_MAX};
    struct recorded p = process_at(50, 7);
    recorded_begin(&p, "7-0");
    picture(&p, 60, 0, 500);
    recorded_end(&p, 150 * MS);
    struct mt_recording *recording = recorded_open();
    for (size_t i = 0; i < 2; i++) {
        const struct mt_moment moment = {MT_MOMENT_TIME, times[i]};
        struct mt_tally *tally;
        assert_int_equal(mt_recording_tally(recording, &moment, &tally, NULL), MT_EARG);
    }
    mt_recording_close(recording);
}

static void test_the_timeline_sums_over_the_tree(void **state)
{
    (void)state;
    struct recorded p = process_at(0, 7);
    struct recorded q = process_at(0, 8);
    recorded_begin(&p, "7-0");
    recorded_begin(&q, "8-0");
    look(&p, 10, 100);
    look(&q, 20, 1000);
    look(&p, 30, 50);
    look(&q, 30, 1001);
    recorded_end(&q, 40 * MS);
    recorded_end(&p, 60 * MS);
    static const uint64_t expected[][2] = {{10, 100}, {20, 1100}, {30, 1051}, {40, 50}, {60, 0}};
    struct mt_recording *recording = recorded_open();
    struct mt_timeline_point *points;
    size_t n;
    assert_int_equal(mt_recording_timeline(recording, &points, &n, NULL), 0);
    assert_int_equal(n, 5);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(points[i].time_ns / MS, expected[i][0]);
        assert_int_equal(points[i].resident_bytes, expected[i][1] * PAGE);
    }
    mt_timeline_destroy(points);
    mt_recording_close(recording);
}

/* Two processes map one file; a third maps another at the same place. */
static void test_file_pages_of_a_tree_count_once(void **state)
{
    (void)state;
    static const char *const maps[] = {
        "10000000-10008000 r--s 00000000 fe:00 11 /m/a.gguf\n",
        /* Pages 4 to 12 of the file: half of them are the first process's too. */
        "30000000-30008000 r--s 00004000 fe:00 11 /m/a.gguf\n",
        "10000000-10008000 r--s 00000000 fe:01 11 /n/a.gguf\n",
    };
    static const uint64_t runs[][1][3] = {
        {{0x10000, 8, MT_RUN_FILE}}, {{0x30000, 8, MT_RUN_FILE}}, {{0x10000, 8, MT_RUN_FILE}}};
    for (uint32_t i = 0; i < 3; i++) {
        char name[] = "7-0";
        struct recorded p = process_at(0, 7 + i);
        name[0] = (char)('7' + i);
        recorded_begin(&p, name);
        p.ns = 10 * MS;
        recorded_picture(&p, &(struct recorded_picture){.reason = MT_PICTURE_FALL,
                                                        .maps = maps[i],
                                                        .rollup = "Rss: 32 kB\n",
                                                        .runs = runs[i],
                                                        .n_runs = 1});
        recorded_end(&p, 20 * MS);
    }
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->n_processes, 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(tally->processes[i].places[0].total_resident_bytes, 8 * PAGE);
    assert_int_equal(tally->places[0].total_resident_bytes, (8 + 4 + 8) * PAGE);
    assert_true(tally->places[0].skew_known);
    assert_int_equal(tally->places[0].picture_skew_bytes, 0);
    mt_tally_destroy(tally);
}

/* Rss counts a page twice that a process maps twice, and so does its tally, alone or in a tree. */
static void test_a_file_that_one_process_maps_twice_counts_as_in_rss(void **state)
{
    (void)state;
    static const char maps[] = "10000000-10008000 r--s 00000000 fe:00 11 /m/a.gguf\n"
                               "20000000-20008000 r--s 00000000 fe:00 11 /m/a.gguf\n";
    static const uint64_t runs[][3] = {{0x10000, 8, MT_RUN_FILE}, {0x20000, 8, MT_RUN_FILE}};
    struct recorded p = process_at(0, 7);
    recorded_begin(&p, "7-0");
    p.ns = 10 * MS;
    recorded_picture(&p, &(struct recorded_picture){
                             .reason = MT_PICTURE_FALL, .maps = maps, .runs = runs, .n_runs = 2});
    recorded_end(&p, 20 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->places[0].total_resident_bytes, 16 * PAGE);
    mt_tally_destroy(tally);
}

/* The kernel says of each that half of its anonymous memory is the other's. */
static void test_anonymous_pages_of_a_fork_count_by_the_kernels_share(void **state)
{
    (void)state;
    static const char maps[] = "10000000-10064000 rw-p 00000000 00:00 0 \n";
    static const uint64_t runs[][3] = {{0x10000, 100, 0}};
    for (uint32_t i = 0; i < 2; i++) {
        struct recorded p = process_at(i, 7 + i);
        p.header.flags = i ? MT_FILE_FORKED : 0;
        p.header.parent_pid = i ? 7 : 1;
        recorded_begin(&p, i ? "8-0" : "7-0");
        p.ns = 10 * MS;
        recorded_picture(&p, &(struct recorded_picture){
                                 .reason = MT_PICTURE_FALL,
                                 .maps = maps,
                                 .rollup = "Rss: 400 kB\nAnonymous: 400 kB\nPss_Anon: 200 kB\n",
                                 .runs = runs,
                                 .n_runs = 1});
        recorded_end(&p, 20 * MS);
    }
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->n_processes, 2);
    assert_int_equal(tally->places[0].total_resident_bytes, 100 * PAGE);
    assert_int_equal(tally->processes[1].places[0].total_resident_bytes, 100 * PAGE);
    assert_int_equal(tally->places[0].picture_skew_bytes, 0);
    mt_tally_destroy(tally);
}

static void test_the_skew_of_a_tree_is_the_sum_of_its_processes(void **state)
{
    (void)state;
    static const char maps[] = "10000000-10064000 rw-p 00000000 00:00 0 \n";
    static const uint64_t runs[][3] = {{0x10000, 100, 0}};
    for (uint32_t i = 0; i < 2; i++) {
        struct recorded p = process_at(0, 7 + i);
        recorded_begin(&p, i ? "8-0" : "7-0");
        p.ns = 10 * MS;
        recorded_picture(&p,
                         &(struct recorded_picture){.reason = MT_PICTURE_FALL,
                                                    .maps = maps,
                                                    .rollup = i ? "Rss: 412 kB\n" : "Rss: 396 kB\n",
                                                    .runs = runs,
                                                    .n_runs = 1});
        recorded_end(&p, 20 * MS);
    }
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->processes[0].places[0].picture_skew_bytes, -4096);
    assert_int_equal(tally->processes[1].places[0].picture_skew_bytes, 12288);
    assert_int_equal(tally->places[0].picture_skew_bytes, 8192);
    mt_tally_destroy(tally);
}

/* The child's own file begins at the fork; what its parent held then, and nothing later, is its. */
static void test_a_forked_child_starts_with_its_parents_state(void **state)
{
    (void)state;
    static const char maps[] = "10000000-10064000 rw-p 00000000 00:00 0 [heap]\n";
    static const uint64_t runs[][3] = {{0x10000, 100, 0}};
    struct recorded p = process_at(1, 7);
    struct recorded c = process_at(30, 8);
    recorded_begin(&p, "7-0");
    recorded_alloc(&p, MT_EVENT_ALLOC, 0x10000000, 10 * PAGE, 0);
    recorded_alloc(&p, MT_EVENT_ALLOC, 0x10010000, 10 * PAGE, 0);
    EVENT(&p, TOTALS, 10, 8000, 0, 0);
    p.ns = 25 * MS;
    recorded_free(&p, MT_EVENT_FREE, 0x10000000); /* after the fork */
    recorded_end(&p, 100 * MS);
    /* The parent's next program has nothing to do with the child. */
    struct recorded other = process_at(28, 7);
    recorded_begin(&other, "7-1");
    recorded_alloc(&other, MT_EVENT_ALLOC, 0x10020000, 50 * PAGE, 0);
    recorded_end(&other, 100 * MS);
    c.header.flags = MT_FILE_FORKED;
    c.header.parent_pid = 7;
    c.header.fork_ticks = 20 * MS;
    c.header.exact_from_bytes = 65536;
    recorded_begin(&c, "8-0");
    recorded_free(&c, MT_EVENT_FREE, 0x10010000);
    EVENT(&c, TOTALS, 5, 1000, 2, 500);
    c.ns = 40 * MS;
    recorded_picture(&c, &(struct recorded_picture){
                             .reason = MT_PICTURE_FALL, .maps = maps, .runs = runs, .n_runs = 1});
    recorded_end(&c, 50 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    const struct mt_tally_place *place = NULL;
    for (size_t i = 0; i < tally->n_processes; i++)
        if (tally->processes[i].pid == 8)
            place = tally->processes[i].places;
    assert_non_null(place);
    assert_int_equal(resident_of(place, MT_CATEGORY_RUNTIME, "heap blocks from 64 KiB"), 10 * PAGE);
    assert_int_equal(resident_of(place, MT_CATEGORY_RUNTIME, "heap blocks below 64 KiB"), 8500);
    mt_tally_destroy(tally);
}

static void test_an_exec_ends_one_image_and_begins_the_next(void **state)
{
    (void)state;
    struct recorded w = watch_at(0);
    struct recorded p = process_at(1, 7);
    struct recorded q = process_at(50, 7);
    recorded_begin(&w, "watch");
    seen(&w, 1, 7, 1, "sh", -1);
    seen(&w, 85, 7, 1, "engine", -1); /* long after it began */
    ended(&w, 100, 7, MT_PROCESS_EXITED, 3);
    recorded_end(&w, 101 * MS);
    recorded_begin(&p, "7-0");
    recorded_text(&p, MT_MACHINE_COMMAND, "sh");
    picture(&p, 40, 0, 10);
    recorded_end(&p, 0);
    recorded_begin(&q, "7-1");
    recorded_text(&q, MT_MACHINE_COMMAND, "engine");
    picture(&q, 90, 0, 500);
    recorded_end(&q, 99 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_TIME, 45 * MS);
    assert_int_equal(tally->n_processes, 1);
    assert_string_equal(tally->processes[0].command, "sh");
    assert_string_equal(tally->processes[0].end, "replaced by exec");
    mt_tally_destroy(tally);
    tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->n_processes, 1);
    assert_string_equal(tally->processes[0].command, "engine");
    assert_string_equal(tally->processes[0].end, "exited 3");
    assert_string_equal(tally->processes[0].observed, "recorder");
    mt_tally_destroy(tally);
}

/* A recorded shell calls exec on a static program: what is seen from then on is that program's. */
static void test_an_exec_out_of_the_recorders_reach_is_seen_from_outside(void **state)
{
    (void)state;
    static const char maps[] = "10000000-20000000 rw-p 00000000 00:00 0 [heap]\n";
    static const uint64_t runs[][3] = {{0x10000, 100, 0}};
    struct recorded w = watch_at(0);
    struct recorded p = process_at(1, 7);
    recorded_begin(&w, "watch");
    seen(&w, 1, 7, 1, "sh", -1);
    picture(&w, 10, 7, 20);
    const struct recorded_picture later = {.pid = 7,
                                           .reason = MT_PICTURE_OUTSIDE,
                                           .resident_bytes = 100 * PAGE,
                                           .maps = maps,
                                           .runs = runs,
                                           .n_runs = 1};
    w.ns = 40 * MS;
    recorded_picture(&w, &later); /* the shell's file is not mapped any more */
    seen(&w, 60, 7, 1, "static", 1);
    w.ns = 70 * MS;
    recorded_picture(&w, &later);
    ended(&w, 100, 7, MT_PROCESS_KILLED, 9);
    recorded_end(&w, 101 * MS);
    recorded_begin(&p, "7-0");
    recorded_alloc(&p, MT_EVENT_ALLOC, 0x10000000, PAGE, 0);
    recorded_end(&p, 0);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->n_processes, 1);
    assert_int_equal(tally->moment_ns, 70 * MS);
    assert_string_equal(tally->processes[0].command, "static");
    assert_string_equal(tally->processes[0].observed, "outside");
    assert_string_equal(tally->processes[0].observed_reason, "statically linked");
    assert_string_equal(tally->processes[0].end, "killed by SIGKILL");
    assert_int_equal(resident_of(tally->processes[0].places, MT_CATEGORY_RUNTIME, "heap"),
                     100 * PAGE);
    mt_tally_destroy(tally);
    tally = recorded_tally(MT_MOMENT_TIME, 20 * MS);
    assert_string_equal(tally->processes[0].end, "replaced by exec");
    assert_int_equal(tally->processes[0].pictures_taken, 1);
    mt_tally_destroy(tally);
}

/* The kernel's start time is that of the process; the program began after the other's last event.
 */
static void test_a_program_that_came_by_exec_unseen_begins_after_the_other(void **state)
{
    (void)state;
    struct recorded w = watch_at(0);
    struct recorded p = process_at(2, 7);
    recorded_begin(&w, "watch");
    w.ns = 60 * MS;
    EVENT(&w, PROCESS, 7, 1, 1 * MS, recorded_string(&w, "static"));
    EVENT(&w, OUTSIDE_ONLY, 7, 1);
    EVENT(&w, PROCESS_SAMPLE, 7, 50 * PAGE, 50 * PAGE);
    ended(&w, 100, 7, MT_PROCESS_EXITED, 0);
    recorded_end(&w, 101 * MS);
    recorded_begin(&p, "7-0");
    look(&p, 30, 10);
    recorded_end(&p, 0);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_TIME, 20 * MS);
    assert_int_equal(tally->n_processes, 1);
    assert_string_equal(tally->processes[0].observed, "recorder");
    assert_string_equal(tally->processes[0].end, "replaced by exec");
    mt_tally_destroy(tally);
    tally = recorded_tally(MT_MOMENT_TIME, 80 * MS);
    assert_int_equal(tally->n_processes, 1);
    assert_string_equal(tally->processes[0].observed, "outside");
    assert_string_equal(tally->processes[0].end, "exited 0");
    assert_int_equal(tally->places[0].total_resident_bytes, 50 * PAGE);
    mt_tally_destroy(tally);
}

static void test_a_process_id_that_is_used_again_is_two_processes(void **state)
{
    (void)state;
    struct recorded w = watch_at(0);
    struct recorded p = process_at(1, 7);
    struct recorded q = process_at(60, 7);
    recorded_begin(&w, "watch");
    seen(&w, 1, 7, 1, "first", -1);
    ended(&w, 30, 7, MT_PROCESS_EXITED, 0);
    seen(&w, 60, 7, 1, "second", -1);
    ended(&w, 90, 7, MT_PROCESS_EXITED, 1);
    recorded_end(&w, 91 * MS);
    recorded_begin(&p, "7-0");
    picture(&p, 20, 0, 100);
    recorded_end(&p, 29 * MS);
    recorded_begin(&q, "7-1");
    picture(&q, 70, 0, 50);
    recorded_end(&q, 89 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->n_processes, 1);
    assert_string_equal(tally->processes[0].end, "exited 0");
    assert_int_equal(tally->processes[0].end_ns, 30 * MS);
    mt_tally_destroy(tally);
    tally = recorded_tally(MT_MOMENT_TIME, 45 * MS);
    assert_int_equal(tally->n_processes, 0); /* between the two there was none */
    mt_tally_destroy(tally);
    tally = recorded_tally(MT_MOMENT_EXIT, 0);
    assert_string_equal(tally->processes[0].end, "exited 1");
    mt_tally_destroy(tally);
}

static void test_what_was_too_short_to_be_looked_at_is_said_to_have_been_there(void **state)
{
    (void)state;
    struct recorded w = watch_at(0);
    recorded_begin(&w, "watch");
    seen(&w, 10, 9, 1, "[true]", 3);
    ended(&w, 12, 9, MT_PROCESS_EXITED, 0);
    recorded_end(&w, 20 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_TIME, 11 * MS);
    assert_int_equal(tally->n_processes, 1);
    const struct mt_tally_process *process = tally->processes;
    assert_string_equal(process->observed_reason, "ended before it could be looked at");
    assert_string_equal(process->end, "exited 0");
    assert_int_equal(process->n_places, 0);
    assert_int_equal(process->peak_resident_bytes, MT_UNKNOWN);
    assert_int_equal(process->swap_bytes, MT_UNKNOWN);
    assert_int_equal(process->peak_caught_bytes, MT_UNKNOWN);
    assert_int_equal(tally->n_notes, 2); /* seen from outside, and not in the total */
    mt_tally_destroy(tally);
}

static void test_an_end_that_nobody_saw_is_not_made_up(void **state)
{
    (void)state;
    struct recorded w = watch_at(0);
    struct recorded p = process_at(1, 7);
    struct recorded q = process_at(1, 8);
    recorded_begin(&w, "watch");
    seen(&w, 1, 7, 1, "daemon", -1);
    w.ns = 80 * MS;
    EVENT(&w, PROCESS_SAMPLE, 7, PAGE, PAGE);
    recorded_end(&w, 90 * MS);
    recorded_begin(&p, "7-0");
    picture(&p, 20, 0, 100);
    recorded_end(&p, 0);
    recorded_begin(&q, "8-0"); /* too short for the watcher, and killed */
    picture(&q, 20, 0, 100);
    recorded_end(&q, 0);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->n_processes, 2);
    assert_string_equal(tally->processes[0].end, "running");
    assert_string_equal(tally->processes[1].end, "end not recorded");
    mt_tally_destroy(tally);
    tally = recorded_tally(MT_MOMENT_TIME, 70 * MS);
    assert_int_equal(tally->n_processes, 1);
    mt_tally_destroy(tally);
}

static void machine_sample(struct recorded *w, uint64_t ms, const char *meminfo,
                           const char *pressure, const char *cgroup, const char *others)
{
    w->ns = ms * MS;
    recorded_text(w, MT_MACHINE_MEMINFO, meminfo);
    recorded_text(w, MT_MACHINE_PRESSURE, pressure);
    recorded_text(w, MT_MACHINE_CGROUP, cgroup);
    recorded_text(w, MT_MACHINE_OTHERS, others);
}

static void test_the_machine_is_as_it_was_nearest_to_the_moment(void **state)
{
    (void)state;
    struct recorded w = watch_at(0);
    struct recorded p = process_at(1, 7);
    recorded_begin(&w, "watch");
    machine_sample(&w, 10, "MemTotal: 1 kB\n", "some avg10=99.00\n", "version 1\n", "");
    machine_sample(&w, 50,
                   "MemTotal: 1000 kB\nMemFree: 300 kB\nMemAvailable: 500 kB\nCached: 200 kB\n"
                   "SwapTotal: 100 kB\nSwapFree: 60 kB\n",
                   "some avg10=1.25 avg60=7.00 total=3\nfull avg10=0.50 avg60=0.00 total=1\n",
                   "version 2\nlimit_bytes 4096\nusage_bytes 2048\npeak_bytes -1\n",
                   "resident_bytes 777\n");
    machine_sample(&w, 90, "MemTotal: 2 kB\n", "some avg10=98.00\n", "version 1\n", "");
    recorded_end(&w, 100 * MS);
    recorded_begin(&p, "7-0");
    picture(&p, 55, 0, 100);
    recorded_end(&p, 99 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    const struct mt_tally_machine *machine = &tally->machine;
    assert_int_equal(machine->sample_time_ns, 50 * MS);
    assert_int_equal(machine->memory_total_bytes, 1000 * KIB);
    assert_int_equal(machine->memory_free_bytes, 300 * KIB);
    assert_int_equal(machine->memory_available_bytes, 500 * KIB);
    assert_int_equal(machine->page_cache_bytes, 200 * KIB);
    assert_int_equal(machine->swap_total_bytes, 100 * KIB);
    assert_int_equal(machine->swap_used_bytes, 40 * KIB);
    assert_int_equal(machine->other_processes_resident_bytes, 777);
    assert_int_equal(machine->cgroup_version, 2);
    assert_int_equal(machine->cgroup_limit_bytes, 4096);
    assert_int_equal(machine->cgroup_usage_bytes, 2048);
    assert_int_equal(machine->cgroup_peak_bytes, MT_UNKNOWN);
    assert_true(machine->pressure_some_avg10_percent == 1.25);
    assert_true(machine->pressure_full_avg10_percent == 0.5);
    assert_int_equal(tally->places[0].capacity_bytes, 1000 * KIB);
    mt_tally_destroy(tally);
}

static void test_devices_that_no_recorder_sees_are_said_to_be_there(void **state)
{
    (void)state;
    struct recorded w = watch_at(0);
    struct recorded p = process_at(1, 7);
    recorded_begin(&w, "watch");
    recorded_text(&w, MT_MACHINE_UNSEEN, "amdgpu (card0), xe (card1)");
    recorded_end(&w, 100 * MS);
    recorded_begin(&p, "7-0");
    picture(&p, 55, 0, 100);
    recorded_end(&p, 99 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    size_t n = 0;
    for (size_t i = 0; i < tally->n_notes; i++)
        n += strcmp(tally->notes[i],
                    "memtally does not record memory of AMD's and Intel's devices, and here is "
                    "amdgpu (card0), xe (card1)") == 0;
    assert_int_equal(n, 1);
    mt_tally_destroy(tally);
}

static void assert_machine_unknown(const struct mt_tally_machine *machine)
{
    assert_int_equal(machine->memory_total_bytes, MT_UNKNOWN);
    assert_int_equal(machine->memory_available_bytes, MT_UNKNOWN);
    assert_int_equal(machine->page_cache_bytes, MT_UNKNOWN);
    assert_int_equal(machine->swap_used_bytes, MT_UNKNOWN);
    assert_int_equal(machine->other_processes_resident_bytes, MT_UNKNOWN);
    assert_int_equal(machine->cgroup_version, 0);
    assert_int_equal(machine->cgroup_limit_bytes, MT_UNKNOWN);
    assert_int_equal(machine->cgroup_usage_bytes, MT_UNKNOWN);
    assert_true(machine->pressure_some_avg10_percent < 0);
    assert_true(machine->pressure_full_avg10_percent < 0);
}

static void test_what_the_machine_did_not_say_is_unknown_and_not_zero(void **state)
{
    (void)state;
    struct recorded w = watch_at(0);
    struct recorded p = process_at(1, 7);
    recorded_begin(&w, "watch");
    machine_sample(&w, 10, "MemTotal: x kB\nSwapTotal: 5 kB\n",
                   "some avg10=\nfull avg60=3.00 avg10=2.00\n",
                   "version x\nlimit_bytes \nusage_bytes -1\n", "resident_bytes none\n");
    recorded_end(&w, 100 * MS);
    recorded_begin(&p, "7-0");
    picture(&p, 55, 0, 100);
    recorded_end(&p, 99 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_machine_unknown(&tally->machine);
    assert_int_equal(tally->places[0].capacity_bytes, MT_UNKNOWN);
    mt_tally_destroy(tally);
}

/* The watcher's file is lost: what the processes wrote still makes a tally. */
static void test_a_recording_without_its_watch_file_is_read(void **state)
{
    (void)state;
    struct recorded p = process_at(50, 7);
    struct recorded q = process_at(60, 8);
    recorded_begin(&p, "7-0");
    picture(&p, 80, 0, 100);
    recorded_end(&p, 150 * MS);
    recorded_begin(&q, "8-0");
    picture(&q, 70, 0, 10);
    recorded_end(&q, 140 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->moment_ns, 30 * MS); /* since the first process began */
    assert_int_equal(tally->n_processes, 2);
    assert_string_equal(tally->processes[0].end, "exited");
    assert_int_equal(tally->machine.sample_time_ns, MT_UNKNOWN);
    assert_machine_unknown(&tally->machine);
    mt_tally_destroy(tally);
}

static void test_a_recording_that_is_still_written_is_read(void **state)
{
    (void)state;
    struct recorded p = process_at(1, 7);
    recorded_begin(&p, "7-0");
    picture(&p, 20, 0, 100);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->places[0].total_resident_bytes, 100 * PAGE);
    mt_tally_destroy(tally);
    picture(&p, 30, 0, 300);
    tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->places[0].total_resident_bytes, 300 * PAGE);
    mt_tally_destroy(tally);
    recorded_end(&p, 40 * MS);
}

/* Between packing a file and removing it there are two of it. */
static void test_a_file_and_its_packed_twin_are_one_process(void **state)
{
    (void)state;
    char raw[96], packed[96], kept[96];
    struct recorded p = process_at(1, 7);
    recorded_begin(&p, "7-0");
    picture(&p, 20, 0, 100);
    recorded_end(&p, 40 * MS);
    snprintf(raw, sizeof raw, "%s/7-0.mtr", recorded_directory);
    snprintf(packed, sizeof packed, "%s/7-0.mtz", recorded_directory);
    snprintf(kept, sizeof kept, "%s/kept", recorded_directory);
    assert_int_equal(link(raw, kept), 0);
    assert_int_equal(mt_record_file_pack(raw, NULL), 0);
    assert_int_equal(access(raw, F_OK), -1);
    assert_int_equal(access(packed, F_OK), 0);
    assert_int_equal(link(kept, raw), 0);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->n_processes, 1);
    assert_int_equal(tally->places[0].total_resident_bytes, 100 * PAGE);
    mt_tally_destroy(tally);
}

static void test_marks_are_in_the_recordings_time(void **state)
{
    (void)state;
    struct recorded w = watch_at(100);
    struct recorded p = process_at(101, 7);
    const struct mt_recording_mark *marks;
    recorded_begin(&w, "watch");
    w.ns = 150 * MS;
    EVENT(&w, MARK, recorded_string(&w, "decode"));
    w.ns = 160 * MS;
    EVENT(&w, MARK, 999); /* of a name that is not there */
    recorded_end(&w, 200 * MS);
    recorded_begin(&p, "7-0");
    p.ns = 120 * MS;
    EVENT(&p, MARK, recorded_string(&p, "prefill"));
    recorded_end(&p, 190 * MS);
    struct mt_recording *recording = recorded_open();
    assert_int_equal(mt_recording_marks(recording, &marks), 3);
    assert_string_equal(marks[0].name, "prefill");
    assert_int_equal(marks[0].time_ns, 20 * MS);
    assert_int_equal(marks[0].pid, 7);
    assert_string_equal(marks[1].name, "decode");
    assert_int_equal(marks[1].time_ns, 50 * MS);
    assert_string_equal(marks[2].name, "?");
    mt_recording_close(recording);
}

static void test_folders_that_hold_no_recording_are_said_to(void **state)
{
    (void)state;
    struct mt_recording *recording;
    struct mt_error error;
    char path[96];
    assert_int_equal(mt_recording_open(recorded_directory, &recording, &error), MT_ENOTFOUND);
    snprintf(path, sizeof path, "%s/7-0.mtr", recorded_directory);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("something else\n", file);
    fclose(file);
    assert_int_equal(mt_recording_open(recorded_directory, &recording, &error), MT_EFORMAT);
    assert_non_null(strstr(error.text, "7-0.mtr"));
    /* One that can be read beside it is enough, and what could not is counted. */
    struct recorded p = process_at(1, 8);
    recorded_begin(&p, "8-0");
    recorded_end(&p, 40 * MS);
    struct mt_recording_damage damage;
    recording = recorded_open();
    mt_recording_damage(recording, &damage);
    assert_int_equal(damage.files_unreadable, 1);
    mt_recording_close(recording);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, recorded_setup, recorded_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_peak_steady_and_exit_are_three_pictures),
        TEST(test_a_picture_of_the_end_does_not_stand_for_the_time_before),
        TEST(test_the_exit_needs_no_picture_of_its_own),
        TEST(test_the_peak_is_shown_though_no_picture_caught_it),
        TEST(test_a_time_is_shown_by_the_picture_of_its_size),
        TEST(test_a_time_past_the_end_is_refused),
        TEST(test_the_timeline_sums_over_the_tree),
        TEST(test_file_pages_of_a_tree_count_once),
        TEST(test_a_file_that_one_process_maps_twice_counts_as_in_rss),
        TEST(test_anonymous_pages_of_a_fork_count_by_the_kernels_share),
        TEST(test_the_skew_of_a_tree_is_the_sum_of_its_processes),
        TEST(test_a_forked_child_starts_with_its_parents_state),
        TEST(test_an_exec_ends_one_image_and_begins_the_next),
        TEST(test_an_exec_out_of_the_recorders_reach_is_seen_from_outside),
        TEST(test_a_program_that_came_by_exec_unseen_begins_after_the_other),
        TEST(test_a_process_id_that_is_used_again_is_two_processes),
        TEST(test_what_was_too_short_to_be_looked_at_is_said_to_have_been_there),
        TEST(test_an_end_that_nobody_saw_is_not_made_up),
        TEST(test_the_machine_is_as_it_was_nearest_to_the_moment),
        TEST(test_what_the_machine_did_not_say_is_unknown_and_not_zero),
        TEST(test_devices_that_no_recorder_sees_are_said_to_be_there),
        TEST(test_a_recording_without_its_watch_file_is_read),
        TEST(test_a_recording_that_is_still_written_is_read),
        TEST(test_a_file_and_its_packed_twin_are_one_process),
        TEST(test_marks_are_in_the_recordings_time),
        TEST(test_folders_that_hold_no_recording_are_said_to),
    };
    return RUN_TESTS(tests);
}
