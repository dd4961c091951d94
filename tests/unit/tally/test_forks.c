/* SPDX-License-Identifier: MIT */
/* Families of forks of which no two pictures are of one moment: what they share counts once. */
#include "moments.h"

#include <stdio.h>
#include <string.h>

/* What a picture shows: `pages` anonymous ones in one mapping, of which the process shares `shared`
 * with others, so many that it is told `others` less than all. */
struct shown {
    uint64_t ms;
    uint64_t pages;
    uint64_t shared;
    uint64_t others;
    int is_counted; /* how many it shares is known, and not with how many */
};

static void show(struct recorded *p, const struct shown *shown)
{
    static const char maps[] = "10000000-20000000 rw-p 00000000 00:00 0 [heap]\n";
    char rollup[128];
    const uint64_t runs[][3] = {{0x10000, shown->pages, 0}};
    snprintf(rollup, sizeof rollup,
             "Rss: %d kB\nShared_Dirty: %d kB\nAnonymous: %d kB\nPss_Anon: %d kB\n",
             (int)(4 * shown->pages), (int)(4 * shown->shared), (int)(4 * shown->pages),
             (int)(4 * (shown->pages - shown->others)));
    if (shown->is_counted)
        snprintf(rollup, sizeof rollup, "Shared_Anon: %d kB\n", (int)(4 * shown->shared));
    p->ns = shown->ms * MS;
    recorded_picture(p, &(struct recorded_picture){.reason = MT_PICTURE_FALL,
                                                   .resident_bytes = shown->pages * PAGE,
                                                   .maps = maps,
                                                   .rollup = rollup,
                                                   .runs = runs,
                                                   .n_runs = 1});
}

/* A process with one picture, that has its memory from its begin on. */
static void process(uint32_t pid, uint32_t parent, uint64_t from_ms, uint64_t until_ms,
                    const struct shown *shown)
{
    char stem[32];
    struct recorded p = process_at(from_ms, pid);
    p.header.flags = parent ? MT_FILE_FORKED : 0;
    p.header.parent_pid = parent ? parent : 1;
    p.header.fork_ticks = parent ? from_ms * MS : 0;
    p.header.end_kind = MT_END_EXIT;
    snprintf(stem, sizeof stem, "%d-0", (int)pid);
    recorded_begin(&p, stem);
    if (shown->others) /* the heap is libc's, and every block in it is known */
        EVENT(&p, HEAP_REGION, 0x100, 256);
    look(&p, from_ms + 1, shown->pages);
    show(&p, shown);
    recorded_end(&p, until_ms * MS);
}

static uint64_t pages_at(enum mt_moment_kind kind, uint64_t ms)
{
    struct mt_tally *tally = recorded_tally(kind, ms * MS);
    uint64_t bytes = tally->places[0].total_resident_bytes;
    assert_true(mt_tally_adds_up(tally));
    mt_tally_destroy(tally);
    assert_int_equal(bytes % PAGE, 0);
    return bytes / PAGE;
}

/* A server of 10000 pages has forked; two children, with 2000 of their own, end one after the
 * other, and two more were never listed. Each picture is of a smaller family: the first child
 * shares with two others, the second with one, and the server's is of when all had ended, a few
 * milliseconds later. There were 10000 + 2 * 2000. */
static void test_a_picture_from_after_the_others_ended_says_nothing_of_shares(void **state)
{
    (void)state;
    process(7, 0, 0, 70, &(struct shown){62, 10000, 0, 0});
    process(8, 7, 20, 52, &(struct shown){51, 12000, 10000, 6667});
    process(9, 7, 20, 58, &(struct shown){56, 12000, 10000, 5000});
    assert_int_equal(pages_at(MT_MOMENT_TIME, 51), 14000);
    assert_int_equal(pages_at(MT_MOMENT_PEAK, 0), 14000);
    assert_int_equal(pages_at(MT_MOMENT_TIME, 55), 12000); /* the first has ended */
    assert_int_equal(pages_at(MT_MOMENT_TIME, 60), 10000);
}

/* All three are pictured at once, and the kernel counts a part of what they share for two that
 * nobody listed: to each of five a fifth. What they share is there in full all the same. */
static void test_what_is_counted_for_who_is_not_listed_is_there(void **state)
{
    (void)state;
    process(7, 0, 0, 70, &(struct shown){50, 10000, 10000, 8000});
    process(8, 7, 20, 70, &(struct shown){51, 12000, 10000, 8000});
    process(9, 7, 20, 70, &(struct shown){52, 12000, 10000, 8000});
    assert_int_equal(pages_at(MT_MOMENT_TIME, 52), 14000);
}

/* The pages of large processes are counted, and not what the kernel gives each of those that share
 * them: two have each a half, of more the first has all. */
static void test_pages_that_were_counted_count_once_in_a_pair(void **state)
{
    (void)state;
    process(7, 0, 0, 70, &(struct shown){50, 10000, 8001, 8001, 1});
    process(8, 7, 20, 70, &(struct shown){51, 12000, 8001, 8001, 1});
    assert_int_equal(pages_at(MT_MOMENT_TIME, 52), 10000 + 12000 - 8001);
}

static void test_pages_that_were_counted_count_once_in_a_family(void **state)
{
    (void)state;
    process(7, 0, 0, 70, &(struct shown){50, 10000, 10000, 10000, 1});
    process(8, 7, 20, 70, &(struct shown){51, 12000, 10000, 10000, 1});
    process(9, 7, 20, 70, &(struct shown){52, 12000, 9000, 9000, 1});
    assert_int_equal(pages_at(MT_MOMENT_TIME, 52), 10000 + 2000 + 3000);
}

/* The server has written all that it had since it forked, so that it shares next to nothing with
 * its children, which share among themselves. */
static void test_what_the_parent_wrote_is_its_own(void **state)
{
    (void)state;
    process(7, 0, 0, 200, &(struct shown){60, 10000, 10, 5});
    process(8, 7, 20, 200, &(struct shown){90, 10000, 10000, 5003});
    process(9, 7, 25, 200, &(struct shown){120, 10000, 10000, 5003});
    assert_int_equal(pages_at(MT_MOMENT_TIME, 120), 10000 + 10000 - 10);
}

/* Two children of a server of 5000 pages take 10000 each and fork in their turn: a child's pages
 * are shared with its own child, and not with its parent. */
static void test_what_a_child_shares_with_its_own_child_is_not_its_parents(void **state)
{
    (void)state;
    process(7, 0, 0, 200, &(struct shown){80, 5000, 5000, 4000});
    process(8, 7, 10, 200, &(struct shown){110, 15000, 15000, 9000});
    process(9, 7, 11, 200, &(struct shown){140, 15000, 15000, 9000});
    process(10, 8, 20, 200, &(struct shown){150, 15000, 15000, 9000});
    process(11, 9, 21, 200, &(struct shown){160, 15000, 15000, 9000});
    assert_int_equal(pages_at(MT_MOMENT_TIME, 160), 25000);
}

/* A server ends and leaves its workers, which share what it had loaded: the peak is no moment after
 * its end, when there is less. */
static void test_workers_without_their_parent_share_among_themselves(void **state)
{
    (void)state;
    process(7, 0, 0, 31, &(struct shown){30, 13000, 10000, 7500});
    for (uint32_t i = 0; i < 3; i++)
        process(8 + i, 7, 20, 200 + i, &(struct shown){60 + 30 * i, 11000, 10000, 6667});
    assert_int_equal(pages_at(MT_MOMENT_PEAK, 0), 13000 + 3 * 1000);
    assert_int_equal(pages_at(MT_MOMENT_TIME, 120), 10000 + 3 * 1000);
}

/* The only picture of a worker is of when it was alone. While its parent lived it had inherited
 * what lies at the same place. */
static void test_who_was_pictured_alone_inherited(void **state)
{
    (void)state;
    process(7, 0, 0, 60, &(struct shown){10, 10000, 0, 0});
    process(8, 7, 20, 200, &(struct shown){150, 12000, 0, 0});
    assert_int_equal(pages_at(MT_MOMENT_TIME, 40), 12000);
    assert_int_equal(pages_at(MT_MOMENT_TIME, 150), 12000);
}

/* Which of its pages a process shares nobody says: they are taken from its rows in proportion, and
 * no row that lost some is exact. */
static void test_what_is_left_of_shared_rows_is_inferred(void **state)
{
    (void)state;
    process(7, 0, 0, 70, &(struct shown){50, 10000, 10000, 5000});
    process(8, 7, 20, 70, &(struct shown){51, 10000, 10000, 5000});
    struct mt_tally *tally = recorded_tally(MT_MOMENT_TIME, 51 * MS);
    const struct mt_tally_row *own =
        mt_tally_row_of(&tally->processes[0].places[0], MT_CATEGORY_CACHED);
    const struct mt_tally_row *tree = mt_tally_row_of(&tally->places[0], MT_CATEGORY_CACHED);
    assert_int_equal(own->provenance, MT_PROVENANCE_EXACT);
    assert_int_equal(own->resident_bytes, 10000 * PAGE);
    assert_int_equal(tree->provenance, MT_PROVENANCE_INFERRED);
    assert_int_equal(tree->resident_bytes, 10000 * PAGE);
    mt_tally_destroy(tally);
}

/* When the watcher finds a process gone is no hint of when it ended, if it said so itself. */
static void test_a_process_ends_when_it_says_so(void **state)
{
    (void)state;
    struct recorded w = watch_at(0);
    recorded_begin(&w, "watch");
    seen(&w, 20, 8, 7, "worker", -1);
    ended(&w, 190, 8, MT_PROCESS_EXITED, 0);
    recorded_end(&w, 200 * MS);
    process(7, 0, 0, 200, &(struct shown){100, 10000, 0, 0});
    process(8, 7, 20, 60, &(struct shown){59, 12000, 10000, 5000});
    assert_int_equal(pages_at(MT_MOMENT_TIME, 100), 10000);
    assert_int_equal(pages_at(MT_MOMENT_TIME, 59), 12000);
}

/* The kernel's count of a process whose children were waited for is of the largest of them. */
static void test_the_kernels_count_of_a_parent_is_of_its_children_too(void **state)
{
    (void)state;
    struct recorded w = watch_at(0);
    recorded_begin(&w, "watch");
    seen(&w, 1, 7, 1, "sh", -1);
    seen(&w, 20, 8, 7, "engine", -1);
    EVENT(&w, PROCESS_SAMPLE, 7, 100 * PAGE, 100 * PAGE);
    EVENT(&w, PROCESS_SAMPLE, 8, 9000 * PAGE, 9000 * PAGE);
    ended(&w, 60, 8, MT_PROCESS_EXITED, 0);
    w.ns = 69 * MS;
    mt_write_skipped(&w.writer, MT_EVENT_PROCESS_PEAK, w.ns, (const uint64_t[]){7, 9500 * PAGE}, 2);
    ended(&w, 70, 7, MT_PROCESS_EXITED, 0);
    recorded_end(&w, 71 * MS);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(tally->n_processes, 2);
    assert_int_equal(tally->processes[0].peak_resident_bytes, 100 * PAGE);
    assert_int_equal(tally->places[0].total_resident_bytes, 9100 * PAGE);
    mt_tally_destroy(tally);
}

/* A worker that never shared is looked at and pictured as often as a long recording has it. Were
 * all of its pictures gone through for each look, this would take minutes. */
static void test_many_pictures_of_one_who_shares_nothing(void **state)
{
    (void)state;
    static const char maps[] = "10000000-20000000 rw-p 00000000 00:00 0 [heap]\n";
    static const uint64_t runs[][3] = {{0x10000, 12000, 0}};
    const uint64_t n = 300000;
    process(7, 0, 0, n + 100, &(struct shown){10, 10000, 0, 0});
    struct recorded p = process_at(20, 8);
    p.header.flags = MT_FILE_FORKED;
    p.header.parent_pid = 7;
    p.header.fork_ticks = 20 * MS;
    recorded_begin(&p, "8-0");
    for (uint64_t i = 0; i < n; i++) {
        look(&p, 21 + i, 12000);
        recorded_picture(&p, &(struct recorded_picture){.reason = MT_PICTURE_FALL,
                                                        .resident_bytes = 12000 * PAGE,
                                                        .maps = maps,
                                                        .runs = runs,
                                                        .n_runs = 1});
    }
    recorded_end(&p, (n + 50) * MS);
    assert_int_equal(pages_at(MT_MOMENT_TIME, 40), 12000);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, recorded_setup, recorded_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_picture_from_after_the_others_ended_says_nothing_of_shares),
        TEST(test_what_is_counted_for_who_is_not_listed_is_there),
        TEST(test_pages_that_were_counted_count_once_in_a_pair),
        TEST(test_pages_that_were_counted_count_once_in_a_family),
        TEST(test_what_the_parent_wrote_is_its_own),
        TEST(test_what_a_child_shares_with_its_own_child_is_not_its_parents),
        TEST(test_workers_without_their_parent_share_among_themselves),
        TEST(test_who_was_pictured_alone_inherited),
        TEST(test_what_is_left_of_shared_rows_is_inferred),
        TEST(test_a_process_ends_when_it_says_so),
        TEST(test_many_pictures_of_one_who_shares_nothing),
        TEST(test_the_kernels_count_of_a_parent_is_of_its_children_too),
    };
    return RUN_TESTS(tests);
}
