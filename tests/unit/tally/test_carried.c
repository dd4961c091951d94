/* SPDX-License-Identifier: MIT */
/* Moments without a picture, or that no picture shows as it was: what events and sizes say of them.
 */
#include "moments.h"

#include <string.h>
#include <sys/mman.h>

#include <memtally/error.h>
#include <memtally/recording.h>
#include <memtally/units.h>

/* Before anything was allocated the program and its libraries are all that there is. */
static void test_without_a_picture_events_and_sizes_are_shown(void **state)
{
    (void)state;
    static const uint64_t block = 0x10000010;
    struct recorded p = process_at(0, 7);
    recorded_begin(&p, "7-0");
    look(&p, 1, 1000);
    p.ns = 5 * MS;
    recorded_alloc(&p, MT_EVENT_ALLOC, block, 500 * PAGE - 16, 0);
    look(&p, 10, 1600);
    p.ns = 11 * MS;
    recorded_free(&p, MT_EVENT_FREE, block);
    recorded_end(&p, 0);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    const struct mt_tally_place *place = tally->places;
    assert_int_equal(tally->moment_ns, 10 * MS);
    assert_int_equal(tally->processes[0].picture_time_ns, MT_UNKNOWN);
    assert_int_equal(place->total_resident_bytes, 1600 * PAGE);
    assert_int_equal(resident_of(place, MT_CATEGORY_RUNTIME, "program and libraries"), 1000 * PAGE);
    assert_int_equal(resident_of(place, MT_CATEGORY_RUNTIME, "heap blocks"), 500 * PAGE - 16);
    assert_int_equal(place->unattributed_bytes, 100 * PAGE + 16); /* with the allocator's head */
    assert_int_equal(place->rows[0].provenance, MT_PROVENANCE_INFERRED);
    assert_false(place->skew_known);
    mt_tally_destroy(tally);
}

/* What came beside addresses that are only reserved is taken for touched before they are. */
static void assert_reserved(uint64_t bytes, int protection)
{
    static const uint64_t block = 0x10000010;
    struct recorded p = process_at(0, 7);
    struct recorded w = watch_at(0);
    recorded_begin(&w, "watch");
    seen(&w, 1, 7, 1, "reserves", -1);
    w.ns = 20 * MS;
    mt_write_skipped(&w.writer, MT_EVENT_PROCESS_PEAK, w.ns, (const uint64_t[]){7, 1600 * PAGE}, 2);
    recorded_end(&w, 30 * MS);
    recorded_begin(&p, "7-0");
    look(&p, 1, 1000);
    p.ns = 5 * MS;
    EVENT(&p, MMAP, 0x100000000000, bytes, (uint64_t)protection, 0x22, 0, 0, 0);
    recorded_alloc(&p, MT_EVENT_ALLOC, block, 500 * PAGE - 16, 0);
    look(&p, 10, 1600);
    recorded_end(&p, 0);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    const struct mt_tally_place *place = tally->places;
    assert_int_equal(place->total_resident_bytes, 1600 * PAGE);
    assert_int_equal(resident_of(place, MT_CATEGORY_RUNTIME, "heap blocks"), 500 * PAGE - 16);
    assert_int_equal(resident_of(place, MT_CATEGORY_RUNTIME, "anonymous mappings"), 100 * PAGE);
    mt_tally_destroy(tally);
}

static void test_a_closed_mapping_grows_last(void **state)
{
    (void)state;
    assert_reserved(900 * PAGE, PROT_NONE);
}

static void test_a_mapping_beyond_what_the_process_ever_had_grows_last(void **state)
{
    (void)state;
    assert_reserved((uint64_t)1 << 43, PROT_READ | PROT_WRITE);
}

/* The kernel counts the pages of a block until the call that gives them back has ended. */
static void test_what_is_being_given_back_is_none_of_nobodys(void **state)
{
    (void)state;
    static const uint64_t block = 0x10000010;
    struct recorded p = process_at(0, 7);
    recorded_begin(&p, "7-0");
    look(&p, 1, 1000);
    p.ns = 5 * MS;
    struct recorded thread = p;
    mt_writer_init(&thread.writer, &p.file, 1, 8);
    recorded_alloc(&thread, MT_EVENT_ALLOC, block, 500 * PAGE - 16, 0);
    thread.ns = 9 * MS;
    recorded_free(&thread, MT_EVENT_FREE, block);
    mt_writer_finish(&thread.writer);
    look(&p, 10, 1600);
    recorded_end(&p, 0);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_TIME, 10 * MS);
    const struct mt_tally_place *place = tally->places;
    assert_int_equal(place->total_resident_bytes, 1600 * PAGE);
    assert_int_equal(resident_of(place, MT_CATEGORY_CACHED, "being given back"), 500 * PAGE - 16);
    assert_int_equal(place->unattributed_bytes, 100 * PAGE + 16);
    mt_tally_destroy(tally);
}

/* A process that was killed at once: the watcher has the kernel's count of the most that it had. */
static void test_the_kernels_count_is_the_peak_of_what_nobody_saw(void **state)
{
    (void)state;
    struct recorded p = process_at(1, 7);
    struct recorded w = watch_at(0);
    recorded_begin(&w, "watch");
    seen(&w, 1, 7, 1, "short", -1);
    w.ns = 4 * MS;
    mt_write_skipped(&w.writer, MT_EVENT_PROCESS_PEAK, w.ns, (const uint64_t[]){7, 700 * PAGE}, 2);
    ended(&w, 4, 7, MT_PROCESS_KILLED, 9);
    recorded_end(&w, 5 * MS);
    recorded_begin(&p, "7-0");
    look(&p, 1, 100);
    p.ns = 2 * MS;
    recorded_alloc(&p, MT_EVENT_ALLOC, 0x10000010, 500 * PAGE - 16, 0);
    recorded_end(&p, 0);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    const struct mt_tally_place *place = tally->places;
    assert_int_equal(place->total_resident_bytes, 700 * PAGE);
    assert_int_equal(resident_of(place, MT_CATEGORY_RUNTIME, "heap blocks"), 500 * PAGE - 16);
    assert_int_equal(place->unattributed_bytes, 100 * PAGE + 16);
    mt_tally_destroy(tally);
}

/* The second process had 4000 pages at some time, and has fallen to 1000 when it is seen last; the
 * first grows after that. What the second once had is nothing that it has then. */
static void test_a_height_that_a_process_has_left_is_not_of_anothers_peak(void **state)
{
    (void)state;
    struct recorded p = process_at(0, 7);
    struct recorded q = process_at(0, 8);
    struct recorded w = watch_at(0);
    recorded_begin(&w, "watch");
    seen(&w, 1, 7, 1, "grows", -1);
    seen(&w, 1, 8, 1, "fell", -1);
    w.ns = 59 * MS;
    mt_write_skipped(&w.writer, MT_EVENT_PROCESS_PEAK, w.ns, (const uint64_t[]){8, 4000 * PAGE}, 2);
    ended(&w, 60, 8, MT_PROCESS_KILLED, 9);
    recorded_end(&w, 70 * MS);
    recorded_begin(&p, "7-0");
    look(&p, 1, 100);
    look(&p, 50, 9000);
    recorded_end(&p, 65 * MS);
    recorded_begin(&q, "8-0");
    look(&q, 5, 3000);
    look(&q, 20, 1000);
    recorded_end(&q, 0);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->n_processes, 2);
    assert_int_equal(tally->moment_ns, 50 * MS);
    assert_int_equal(tally->processes[1].places[0].total_resident_bytes, 1000 * PAGE);
    assert_int_equal(tally->places[0].total_resident_bytes, 10000 * PAGE);
    mt_tally_destroy(tally);
}

/* A mapping is given back that was larger than all that was resident: nobody knows how large the
 * process is then, and it holds its small blocks. */
static void test_a_process_of_unknown_size_holds_what_it_allocated(void **state)
{
    (void)state;
    struct recorded p = process_at(0, 7);
    p.header.exact_from_bytes = 65536;
    recorded_begin(&p, "7-0");
    p.ns = MS / 2;
    EVENT(&p, MMAP, 0x7f0000000000, 200 * PAGE, 3, 0x22, 0, 0, 0);
    look(&p, 1, 100);
    p.ns = 2 * MS;
    EVENT(&p, TOTALS, 2, 5000, 1, 1000);
    EVENT(&p, MUNMAP, 0x7f0000000000, 200 * PAGE);
    recorded_end(&p, 5 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_TIME, 3 * MS);
    assert_int_equal(tally->processes[0].n_places, 1);
    assert_int_equal(allocated_of(tally->places, MT_CATEGORY_RUNTIME, "heap blocks below 64 KiB"),
                     4000);
    mt_tally_destroy(tally);
}

/* The watcher has seen it without a page: it ended, and never freed what it had. */
static void test_what_a_process_that_is_gone_never_gave_back_is_not_there(void **state)
{
    (void)state;
    struct recorded p = process_at(0, 7);
    p.header.exact_from_bytes = 65536;
    recorded_begin(&p, "7-0");
    EVENT(&p, TOTALS, 2, 5000, 1, 1000);
    look(&p, 1, 0);
    recorded_end(&p, 5 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_TIME, 3 * MS);
    assert_int_equal(tally->processes[0].n_places, 0);
    assert_int_equal(tally->places[0].n_rows, 0);
    mt_tally_destroy(tally);
}

/* The watcher finds the second program at the size that it has, and notes it as of then: the first
 * is gone. The peak is the second's own. */
static void test_a_program_and_the_one_in_its_place_are_not_added_up(void **state)
{
    (void)state;
    struct recorded p = process_at(1, 7);
    struct recorded q = process_at(8, 7);
    struct recorded w = watch_at(0);
    recorded_begin(&w, "watch");
    seen(&w, 6, 7, 1, "loads", 0);
    EVENT(&w, PROCESS_SAMPLE, 7, 1200 * PAGE, 1200 * PAGE);
    ended(&w, 23, 7, MT_PROCESS_EXITED, 0);
    recorded_end(&w, 24 * MS);
    recorded_begin(&p, "7-0");
    look(&p, 2, 300);
    recorded_end(&p, 0);
    recorded_begin(&q, "7-1");
    look(&q, 20, 1300);
    recorded_end(&q, 21 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->n_processes, 1);
    assert_int_equal(tally->moment_ns, 20 * MS);
    assert_int_equal(tally->places[0].total_resident_bytes, 1300 * PAGE);
    mt_tally_destroy(tally);
}

/* Three times 400 pages are resident, pictured when the heap is empty again; in between all of it
 * was in use, and no page came or went. */
static void test_of_a_plateau_the_fullest_moment_is_shown(void **state)
{
    (void)state;
    static const char maps[] = "10000000-10190000 rw-p 00000000 00:00 0 [heap]\n";
    static const uint64_t runs[][3] = {{0x10000, 400, 0}};
    struct recorded p = process_at(0, 7);
    recorded_begin(&p, "7-0");
    look(&p, 10, 400);
    for (uint64_t i = 0; i < 2; i++) {
        p.ns = (20 + i * 20) * MS;
        recorded_alloc(&p, MT_EVENT_ALLOC, 0x10000000, (300 + i * 90) * PAGE, 0);
        p.ns += 5 * MS;
        recorded_free(&p, MT_EVENT_FREE, 0x10000000);
    }
    p.ns = 90 * MS;
    recorded_picture(&p, &(struct recorded_picture){.reason = MT_PICTURE_EXIT,
                                                    .resident_bytes = 400 * PAGE,
                                                    .maps = maps,
                                                    .runs = runs,
                                                    .n_runs = 1});
    recorded_end(&p, 91 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->moment_ns, 40 * MS);
    assert_int_equal(resident_of(tally->places, MT_CATEGORY_RUNTIME, "heap blocks"), 390 * PAGE);
    assert_int_equal(tally->places[0].total_resident_bytes, 400 * PAGE);
    mt_tally_destroy(tally);
    tally = recorded_tally(MT_MOMENT_EXIT, 0);
    assert_int_equal(resident_of(tally->places, MT_CATEGORY_RUNTIME, "heap blocks"), 0);
    mt_tally_destroy(tally);
}

/* A picture of the peak, and one a hundredth lower with a fuller heap: what is a hundredth lower is
 * not the peak. */
static void test_a_fuller_heap_below_the_peak_is_not_the_peak(void **state)
{
    (void)state;
    static const char maps[] = "10000000-12710000 rw-p 00000000 00:00 0 [heap]\n";
    static const uint64_t runs[2][1][3] = {{{0x10000, 10000, 0}}, {{0x10000, 9900, 0}}};
    struct recorded p = process_at(0, 7);
    recorded_begin(&p, "7-0");
    for (uint64_t i = 0; i < 2; i++) {
        p.ns = (20 + i * 20) * MS;
        recorded_alloc(&p, MT_EVENT_ALLOC, 0x10000000 + i * 6000 * PAGE, (5000 - i * 4600) * PAGE,
                       0);
        p.ns += 5 * MS;
        recorded_picture(&p, &(struct recorded_picture){.reason = MT_PICTURE_FALL,
                                                        .resident_bytes = (10000 - i * 100) * PAGE,
                                                        .maps = maps,
                                                        .runs = runs[i],
                                                        .n_runs = 1});
        look(&p, 32 + i * 20, 9900);
    }
    recorded_end(&p, 60 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->moment_ns, 25 * MS);
    assert_int_equal(tally->places[0].total_resident_bytes, 10000 * PAGE);
    assert_int_equal(resident_of(tally->places, MT_CATEGORY_RUNTIME, "heap blocks"), 5000 * PAGE);
    mt_tally_destroy(tally);
}

/* 10,000 pages are pictured when the heap is empty, and ten fewer when it was full: the full one is
 * shown, held against the kernel's figure for it, and the peak is as high as the other. */
static void test_the_fullest_picture_of_a_plateau_is_as_high_as_the_peak(void **state)
{
    (void)state;
    static const char maps[] = "10000000-12710000 rw-p 00000000 00:00 0 [heap]\n";
    static const uint64_t runs[2][1][3] = {{{0x10000, 9990, 0}}, {{0x10000, 10000, 0}}};
    struct recorded p = process_at(0, 7);
    recorded_begin(&p, "7-0");
    p.ns = 10 * MS;
    recorded_alloc(&p, MT_EVENT_ALLOC, 0x10000000, 9000 * PAGE, 0);
    for (uint64_t i = 0; i < 2; i++) {
        p.ns = (20 + i * 20) * MS;
        recorded_picture(&p, &(struct recorded_picture){.reason = MT_PICTURE_FALL,
                                                        .resident_bytes = (9990 + i * 10) * PAGE,
                                                        .maps = maps,
                                                        .rollup = "Rss: 39964 kB\n",
                                                        .runs = runs[i],
                                                        .n_runs = 1});
        p.ns += 5 * MS;
        if (i == 0)
            recorded_free(&p, MT_EVENT_FREE, 0x10000000);
    }
    recorded_end(&p, 60 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->moment_ns, 20 * MS);
    assert_int_equal(tally->places[0].total_resident_bytes, 10000 * PAGE);
    assert_int_equal(resident_of(tally->places, MT_CATEGORY_RUNTIME, "heap blocks"), 9000 * PAGE);
    assert_int_equal(tally->places[0].unattributed_bytes, 10 * PAGE);
    assert_int_equal(tally->moments[0].bytes, 10000 * PAGE);
    assert_int_equal(tally->places[0].picture_skew_bytes, PAGE); /* 9,991 pages by the kernel */
    assert_true(tally->places[0].skew_known);
    assert_true(tally->n_notes == 1 && strstr(tally->notes[0], "40 KiB more were resident"));
    mt_tally_destroy(tally);
}

/* A picture of 9,900 pages, and after it a look at 10,000, of which there is none. */
static void test_a_peak_without_a_picture_is_as_high_as_it_was_seen(void **state)
{
    (void)state;
    static const char maps[] = "10000000-12710000 rw-p 00000000 00:00 0 [heap]\n";
    static const uint64_t runs[][3] = {{0x10000, 9900, 0}};
    struct recorded p = process_at(0, 7);
    recorded_begin(&p, "7-0");
    p.ns = 20 * MS;
    recorded_picture(&p, &(struct recorded_picture){.reason = MT_PICTURE_FALL,
                                                    .resident_bytes = 9900 * PAGE,
                                                    .maps = maps,
                                                    .runs = runs,
                                                    .n_runs = 1});
    look(&p, 40, 10000);
    look(&p, 50, 100);
    recorded_end(&p, 60 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->moment_ns, 40 * MS);
    assert_int_equal(tally->places[0].total_resident_bytes, 10000 * PAGE);
    mt_tally_destroy(tally);
}

/* The block of two pages, by a picture from outside with the kernel's own sum. */
static enum mt_provenance of_a_block_seen_from_outside(const char *rollup)
{
    static const char maps[] = "10000000-20000000 rw-p 00000000 00:00 0 \n"
                               "20000000-20001000 rw-s 00000000 fe:00 99 /r/7-0.mtr\n";
    static const uint64_t runs[][3] = {{0x10000, 100, 0}};
    struct recorded w = watch_at(0);
    struct recorded p = process_at(1, 7);
    recorded_begin(&w, "watch");
    seen(&w, 1, 7, 1, "runs on", -1);
    w.ns = 40 * MS;
    recorded_picture(&w, &(struct recorded_picture){.pid = 7,
                                                    .reason = MT_PICTURE_OUTSIDE,
                                                    .resident_bytes = 100 * PAGE,
                                                    .maps = maps,
                                                    .rollup = rollup,
                                                    .runs = runs,
                                                    .n_runs = 1});
    recorded_end(&w, 101 * MS);
    recorded_begin(&p, "7-0");
    recorded_alloc(&p, MT_EVENT_ALLOC, 0x10000000, 2 * PAGE, 0);
    recorded_end(&p, 0);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->moment_ns, 40 * MS);
    const struct mt_tally_row *row = mt_tally_row_of(tally->places, MT_CATEGORY_RUNTIME);
    enum mt_provenance provenance = MT_PROVENANCE_COUNT;
    for (size_t i = 0; i < row->n_details; i++)
        if (strcmp(row->details[i].name, "heap blocks") == 0)
            provenance = row->details[i].provenance;
    mt_tally_destroy(tally);
    return provenance;
}

static void test_a_picture_from_outside_is_exact_where_the_kernel_sums_up_the_same(void **state)
{
    (void)state;
    assert_int_equal(of_a_block_seen_from_outside("Rss: 400 kB\n"), MT_PROVENANCE_EXACT);
}

static void test_a_picture_from_outside_that_the_kernel_contradicts_is_measured(void **state)
{
    (void)state;
    assert_int_equal(of_a_block_seen_from_outside("Rss: 404 kB\n"), MT_PROVENANCE_MEASURED);
}

static void test_a_picture_from_outside_that_nothing_bears_out_is_measured(void **state)
{
    (void)state;
    assert_int_equal(of_a_block_seen_from_outside(NULL), MT_PROVENANCE_MEASURED);
}

static struct mt_tally *tally_of_category(enum mt_category category)
{
    const struct mt_moment moment = {.kind = MT_MOMENT_CATEGORY_PEAK, .category = category};
    struct mt_recording *recording = recorded_open();
    struct mt_tally *tally = NULL;
    int result = mt_recording_tally(recording, &moment, &tally, NULL);
    mt_recording_close(recording);
    if (result < 0)
        assert_int_equal(result, MT_ENOTFOUND);
    else
        assert_true(mt_tally_adds_up(tally));
    return tally;
}

/* Weights of 100 pages live from 10 to 60 ms, a cache of 50 from 30 to 90, activations never. */
static void test_each_category_has_its_own_peak(void **state)
{
    (void)state;
    const uint64_t weights = 0x10000000;
    const uint64_t cache = 0x20000000;
    struct recorded p = process_at(0, 7);
    recorded_begin(&p, "7-0");
    p.ns = 10 * MS;
    EVENT(&p, BUFFER_ALLOC, 1, weights, 60 * PAGE, MT_BUFFER_HOST, MT_CATEGORY_WEIGHTS, 0, 0);
    p.ns = 20 * MS;
    EVENT(&p, BUFFER_ALLOC, 2, weights + 60 * PAGE, 40 * PAGE, MT_BUFFER_HOST, MT_CATEGORY_WEIGHTS,
          0, 0);
    p.ns = 30 * MS;
    EVENT(&p, LABEL, cache, 50 * PAGE, MT_CATEGORY_KV_CACHE, 0);
    p.ns = 60 * MS;
    EVENT(&p, BUFFER_FREE, 1);
    EVENT(&p, BUFFER_FREE, 2);
    p.ns = 90 * MS;
    EVENT(&p, UNLABEL, cache, 50 * PAGE);
    recorded_end(&p, 91 * MS);
    struct mt_tally *tally = tally_of_category(MT_CATEGORY_WEIGHTS);
    assert_int_equal(tally->moment_ns, 20 * MS);
    assert_string_equal(mt_moment_text(&tally->moment), "weights-peak");
    assert_int_equal(tally->n_moments, 3);
    assert_int_equal(tally->moments[1].bytes, 100 * PAGE);
    assert_int_equal(tally->moments[2].bytes, 50 * PAGE);
    assert_int_equal(tally->moments[2].time_ns, 30 * MS);
    mt_tally_destroy(tally);
    assert_null(tally_of_category(MT_CATEGORY_ACTIVATIONS));
}

static void assert_peak(enum mt_category category, uint64_t ms, uint64_t bytes)
{
    struct mt_tally *tally = tally_of_category(category);
    assert_int_equal(tally->moment_ns, ms * MS);
    for (size_t i = 0; i < tally->n_moments; i++)
        if (tally->moments[i].moment.category == category)
            assert_int_equal(tally->moments[i].bytes, bytes);
    mt_tally_destroy(tally);
}

/* A block of 1000 bytes is allocated as weights, labelled as cache and freed. What comes after is
 * smaller than that, of weights as well as of cache. */
static void test_a_label_holds_for_the_scope_and_ends_with_its_block(void **state)
{
    (void)state;
    struct recorded p = process_at(0, 7);
    recorded_begin(&p, "7-0");
    p.ns = 10 * MS;
    EVENT(&p, SCOPE_BEGIN, MT_CATEGORY_WEIGHTS, 0);
    recorded_alloc(&p, MT_EVENT_ALLOC, 0x100000, 1000, 0);
    p.ns = 20 * MS;
    EVENT(&p, LABEL, 0x100000, 1000, MT_CATEGORY_KV_CACHE, 0);
    p.ns = 30 * MS;
    recorded_alloc(&p, MT_EVENT_ALLOC, 0x200000, 700, 0);
    p.ns = 40 * MS;
    recorded_free(&p, MT_EVENT_FREE, 0x100000);
    p.ns = 50 * MS;
    EVENT(&p, LABEL, 0x300000, 600, MT_CATEGORY_KV_CACHE, 0);
    recorded_end(&p, 91 * MS);
    assert_peak(MT_CATEGORY_WEIGHTS, 10, 1000);
    assert_peak(MT_CATEGORY_KV_CACHE, 20, 1000);
}

static void test_a_label_ends_with_the_sampled_block_that_it_is_on(void **state)
{
    (void)state;
    struct recorded p = process_at(0, 7);
    p.header.sample_interval_bytes = 512 * KIB;
    recorded_begin(&p, "7-0");
    p.ns = 10 * MS;
    recorded_alloc(&p, MT_EVENT_SAMPLE_ALLOC, 0x100000, 1000, 0);
    p.ns = 20 * MS;
    EVENT(&p, LABEL, 0x100000, 1000, MT_CATEGORY_KV_CACHE, 0);
    p.ns = 30 * MS;
    recorded_free(&p, MT_EVENT_SAMPLE_FREE, 0x100000);
    p.ns = 40 * MS;
    EVENT(&p, LABEL, 0x300000, 600, MT_CATEGORY_KV_CACHE, 0);
    recorded_end(&p, 91 * MS);
    assert_peak(MT_CATEGORY_KV_CACHE, 20, 1000);
}

/* A block of its own mapping goes and another comes between the picture and the moment: of the
 * first nothing is left, and the second has what the kernel's figure leaves for it. */
static void test_a_picture_is_carried_by_events(void **state)
{
    (void)state;
    static const char maps[] = "10000000-10064000 rw-p 00000000 00:00 0 \n";
    static const uint64_t runs[][3] = {{0x10000, 100, 0}};
    struct recorded p = process_at(0, 7);
    recorded_begin(&p, "7-0");
    p.ns = 5 * MS;
    recorded_alloc(&p, MT_EVENT_ALLOC, 0x10000010, 60 * PAGE - 16, 0);
    p.ns = 10 * MS;
    recorded_picture(&p, &(struct recorded_picture){.reason = MT_PICTURE_FALL,
                                                    .resident_bytes = 100 * PAGE,
                                                    .maps = maps,
                                                    .runs = runs,
                                                    .n_runs = 1});
    p.ns = 20 * MS;
    recorded_free(&p, MT_EVENT_FREE, 0x10000010);
    p.ns = 30 * MS;
    recorded_alloc(&p, MT_EVENT_ALLOC, 0x20000010, 80 * PAGE - 16, 0);
    look(&p, 40, 90);
    look(&p, 50, 90);
    recorded_end(&p, 60 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_TIME, 40 * MS);
    const struct mt_tally_row *runtime = mt_tally_row_of(tally->places, MT_CATEGORY_RUNTIME);
    assert_int_equal(tally->places[0].total_resident_bytes, 90 * PAGE);
    assert_int_equal(resident_of(tally->places, MT_CATEGORY_RUNTIME, "heap blocks"),
                     50 * PAGE - 16);
    assert_int_equal(runtime->provenance, MT_PROVENANCE_INFERRED);
    assert_int_equal(tally->places[0].unattributed_bytes, 40 * PAGE + 16);
    mt_tally_destroy(tally);
    tally = recorded_tally(MT_MOMENT_TIME, 25 * MS);
    assert_int_equal(tally->places[0].total_resident_bytes, 40 * PAGE);
    mt_tally_destroy(tally);
    tally = recorded_tally(MT_MOMENT_TIME, 10 * MS); /* the picture's own */
    assert_int_equal(tally->places[0].total_resident_bytes, 100 * PAGE);
    assert_int_equal(resident_of(tally->places, MT_CATEGORY_RUNTIME, "heap blocks"),
                     60 * PAGE - 16);
    assert_false(tally->processes[0].is_carried);
    mt_tally_destroy(tally);
}

/* The first falls from 20000 pages to 5000 before the second grows to 16000, and no sample says so
 * in between: there were never 36000. */
static void test_processes_are_added_up_as_of_one_moment(void **state)
{
    (void)state;
    static const char maps[] = "10000000-14e20000 rw-p 00000000 00:00 0 \n";
    static const uint64_t runs[][3] = {{0x10000, 20000, 0}};
    struct recorded p = process_at(0, 7);
    struct recorded q = process_at(0, 8);
    recorded_begin(&p, "7-0");
    p.ns = 1 * MS;
    EVENT(&p, MMAP, 0x10000000, 20000 * PAGE, 3, 0x22, 0, 0, 0);
    look(&p, 10, 20000);
    recorded_picture(&p, &(struct recorded_picture){.reason = MT_PICTURE_FALL,
                                                    .resident_bytes = 20000 * PAGE,
                                                    .maps = maps,
                                                    .runs = runs,
                                                    .n_runs = 1});
    p.ns = 11 * MS;
    EVENT(&p, MUNMAP, 0x10000000, 15000 * PAGE);
    look(&p, 90, 5000);
    recorded_end(&p, 100 * MS);
    recorded_begin(&q, "8-0");
    look(&q, 1, 1);
    q.ns = 20 * MS;
    EVENT(&q, MMAP, 0x40000000, 16000 * PAGE, 3, 0x22, 0, 0, 0);
    look(&q, 50, 16001);
    recorded_end(&q, 60 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->n_processes, 2);
    assert_int_equal(tally->places[0].total_resident_bytes, (5000 + 16001) * PAGE);
    assert_int_equal(tally->processes[0].places[0].total_resident_bytes, 5000 * PAGE);
    mt_tally_destroy(tally);
}

/* It has its parent's file mapped and none of its own. */
static void test_a_fork_that_allocates_nothing_has_its_parents_claims(void **state)
{
    (void)state;
    static const char maps[] = "10000000-10064000 rw-p 00000000 00:00 0 [heap]\n"
                               "20000000-20001000 rw-s 00000000 fe:00 99 /r/7-0.mtr\n";
    static const uint64_t runs[][3] = {{0x10000, 100, 0}};
    struct recorded w = watch_at(0);
    struct recorded p = process_at(1, 7);
    recorded_begin(&w, "watch");
    seen(&w, 30, 8, 7, "server", -1);
    w.ns = 50 * MS;
    for (uint64_t pid = 7; pid <= 8; pid++)
        recorded_picture(&w, &(struct recorded_picture){
                                 .pid = pid,
                                 .reason = MT_PICTURE_OUTSIDE,
                                 .resident_bytes = 100 * PAGE,
                                 .maps = maps,
                                 .rollup = "Rss: 400 kB\nAnonymous: 400 kB\nPss_Anon: 200 kB\n",
                                 .runs = runs,
                                 .n_runs = 1});
    recorded_end(&w, 101 * MS);
    recorded_begin(&p, "7-0");
    recorded_text(&p, MT_MACHINE_COMMAND, "server");
    recorded_alloc(&p, MT_EVENT_ALLOC, 0x10000000, 90 * PAGE, 0);
    p.ns = 80 * MS;
    recorded_free(&p, MT_EVENT_FREE, 0x10000000);
    recorded_end(&p, 100 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->n_processes, 2);
    const struct mt_tally_process *child = &tally->processes[1];
    assert_int_equal(child->pid, 8);
    assert_string_equal(child->observed, "recorder");
    assert_int_equal(resident_of(child->places, MT_CATEGORY_RUNTIME, "heap blocks"), 90 * PAGE);
    assert_int_equal(child->places[0].unattributed_bytes, 0);
    assert_int_equal(tally->places[0].total_resident_bytes, 100 * PAGE);
    mt_tally_destroy(tally);
}

/* Whatever came and went, in whatever order: rows add up at every time, and no moment has more of
 * the heap than its peak. */
static void test_every_moment_adds_up(void **state)
{
    (void)state;
    static const char maps[] = "10000000-20000000 rw-p 00000000 00:00 0 [heap]\n";
    static const uint64_t runs[][3] = {{0x10000, 3000, 0}};
    uint64_t random = 13;
    struct recorded p = process_at(0, 7);
    recorded_begin(&p, "7-0");
    for (uint64_t ms = 1; ms < 100; ms++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t address = 0x10000000 + (random >> 60) * 300 * PAGE + (random >> 59 & 1) * 16;
        p.ns = ms * MS;
        if (random >> 40 & 1)
            recorded_alloc(&p, MT_EVENT_ALLOC, address, (random >> 33 & 255) * PAGE, 0);
        else
            recorded_free(&p, MT_EVENT_FREE, address);
        if (ms % 7 == 0)
            EVENT(&p, MUNMAP, address & ~(PAGE - 1), 20 * PAGE);
        if (ms % 11 == 0)
            look(&p, ms, 1000 + (random >> 50));
        if (ms % 30 == 0)
            recorded_picture(&p, &(struct recorded_picture){.reason = MT_PICTURE_FALL,
                                                            .resident_bytes = 3000 * PAGE,
                                                            .maps = maps,
                                                            .runs = runs,
                                                            .n_runs = 1});
    }
    recorded_end(&p, 100 * MS);
    struct mt_tally *peak = recorded_tally(MT_MOMENT_HEAP_PEAK, 0);
    for (uint64_t ms = 0; ms <= 100; ms++) {
        struct mt_tally *tally = recorded_tally(MT_MOMENT_TIME, ms * MS);
        assert_int_equal(tally->moment_ns, ms * MS);
        if (ms && ms % 30 == 0 && ms < 100)
            assert_int_equal(tally->places[0].total_resident_bytes, 3000 * PAGE);
        assert_true(resident_of(tally->places, MT_CATEGORY_RUNTIME, "heap blocks") <=
                    peak->moments[1].bytes);
        mt_tally_destroy(tally);
    }
    mt_tally_destroy(peak);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, recorded_setup, recorded_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_without_a_picture_events_and_sizes_are_shown),
        TEST(test_a_closed_mapping_grows_last),
        TEST(test_a_mapping_beyond_what_the_process_ever_had_grows_last),
        TEST(test_what_is_being_given_back_is_none_of_nobodys),
        TEST(test_the_kernels_count_is_the_peak_of_what_nobody_saw),
        TEST(test_a_height_that_a_process_has_left_is_not_of_anothers_peak),
        TEST(test_a_process_of_unknown_size_holds_what_it_allocated),
        TEST(test_what_a_process_that_is_gone_never_gave_back_is_not_there),
        TEST(test_a_program_and_the_one_in_its_place_are_not_added_up),
        TEST(test_of_a_plateau_the_fullest_moment_is_shown),
        TEST(test_a_fuller_heap_below_the_peak_is_not_the_peak),
        TEST(test_the_fullest_picture_of_a_plateau_is_as_high_as_the_peak),
        TEST(test_a_peak_without_a_picture_is_as_high_as_it_was_seen),
        TEST(test_a_picture_from_outside_is_exact_where_the_kernel_sums_up_the_same),
        TEST(test_a_picture_from_outside_that_the_kernel_contradicts_is_measured),
        TEST(test_a_picture_from_outside_that_nothing_bears_out_is_measured),
        TEST(test_each_category_has_its_own_peak),
        TEST(test_a_label_holds_for_the_scope_and_ends_with_its_block),
        TEST(test_a_label_ends_with_the_sampled_block_that_it_is_on),
        TEST(test_a_picture_is_carried_by_events),
        TEST(test_processes_are_added_up_as_of_one_moment),
        TEST(test_a_fork_that_allocates_nothing_has_its_parents_claims),
        TEST(test_every_moment_adds_up),
    };
    return RUN_TESTS(tests);
}
