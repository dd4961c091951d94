/* SPDX-License-Identifier: MIT */
/* The peak is caught: before each kind of call in which resident memory falls there is a picture
 * that shows what goes. */
#include <stdlib.h>
#include <string.h>

#include "recorder/harness.h"

#define LENGTH ((uint64_t)64 << 20)
#define PAGE   4096

static uint64_t overlap(const struct mt_run_pages *run, uint64_t first, uint64_t n)
{
    uint64_t low = run->first_page > first ? run->first_page : first;
    uint64_t end = run->first_page + run->n_pages;
    uint64_t high = end < first + n ? end : first + n;
    return high > low ? high - low : 0;
}

/* The most pages of [address, address + length) that any picture shows. */
static uint64_t most_pictured(const struct mt_record_file *file, uint64_t address, uint64_t length)
{
    size_t n_events;
    struct mt_event *events = events_of(file, &n_events);
    uint64_t most = 0, pages = 0, page = 0;
    for (size_t i = 0; i < n_events; i++) {
        struct mt_runs runs;
        struct mt_run_pages run;
        if (events[i].op == MT_EVENT_PICTURE_BEGIN)
            pages = page = 0;
        if (events[i].op != MT_EVENT_PICTURE_RUNS)
            continue;
        mt_runs_init(&runs, &events[i]);
        while (mt_runs_next(&runs, &page, &run))
            pages += overlap(&run, address / PAGE, length / PAGE);
        most = pages > most ? pages : most;
    }
    free(events);
    return most;
}

static struct ran *fall_by(const char *call, const char *setting)
{
    const struct how how = {.depth = DEPTH_DEFAULT, .setting = setting};
    struct ran *ran = RUN(&how, CHILD, "falls", call);
    assert_true(exited(ran, 0));
    return ran;
}

static void test_what_falls_is_in_a_picture_taken_before(void **state)
{
    static const char *const calls[] = {"munmap",     "free",       "madvise",  "mremap",
                                        "fixed_mmap", "ftruncate",  "heap_end", "thread_end",
                                        "end",        "destructors"};
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct ran *ran = fall_by(calls[i], NULL);
        uint64_t area = number_after(ran->out, "area=");
        uint64_t seen = most_pictured(the_file(ran), area, LENGTH);
        if (seen != LENGTH / PAGE)
            fail_msg("%s: a picture shows %llu of %llu pages", calls[i], (unsigned long long)seen,
                     (unsigned long long)(LENGTH / PAGE));
        ran_free(ran);
    }
}

/* Small blocks are freed 4 MiB at a time between looks; libc gives memory back later than that. */
static void test_a_heap_that_empties_is_pictured_near_its_height(void **state)
{
    struct ran *ran = fall_by("small_frees", NULL);
    uint64_t area = number_after(ran->out, "area=");
    (void)state;
    assert_true(most_pictured(the_file(ran), area, LENGTH) >= (LENGTH - (8u << 20)) / PAGE);
    ran_free(ran);
}

static void test_a_kernel_without_page_scans_gives_the_same_picture(void **state)
{
    struct ran *ran = fall_by("munmap", "MEMTALLY_RECORD_AVOID_SCAN=1");
    uint64_t area = number_after(ran->out, "area=");
    (void)state;
    assert_int_equal(most_pictured(the_file(ran), area, LENGTH), LENGTH / PAGE);
    ran_free(ran);
}

/* Without a share to speak of pictures may take 20 ms in all, and a hundred heights do not fit in
 * that: each is foreseen to take 12 us a MiB. One may cost more than was foreseen. */
static void test_pictures_stay_within_their_share_and_those_left_out_are_counted(void **state)
{
    const struct how how = {.depth = DEPTH_DEFAULT, .setting = "MEMTALLY_RECORD_SHARE_PPM=1"};
    struct ran *ran = RUN(&how, CHILD, "waves", "60");
    (void)state;
    assert_true(exited(ran, 0));
    const struct mt_file_header *header = &the_file(ran)->header;
    assert_true(header->pictures_taken > 0);
    assert_true(header->pictures_skipped > 0);
    assert_true(header->skipped_resident_bytes > 8u << 20);
    assert_in_range(header->picture_ns, 1, 2 * 20000000);
    ran_free(ran);
}

/* The highest size that a look is of; each picture has one. */
static uint64_t most_seen(const struct mt_record_file *file)
{
    size_t n_events;
    struct mt_event *events = events_of(file, &n_events);
    uint64_t most = 0;
    for (size_t i = 0; i < n_events; i++)
        if (events[i].op == MT_EVENT_LOOK && events[i].field[0] > most)
            most = events[i].field[0];
    free(events);
    return most;
}

/* A height that is too little above the last picture for one of its own. Linux's own figure may be
 * off by some pages for each processor. */
static void test_a_little_more_than_a_picture_shows_is_seen(void **state)
{
    const struct how how = {.depth = DEPTH_DEFAULT};
    struct ran *ran = RUN(&how, CHILD, "ripple");
    uint64_t highest = number_after(ran->out, "highest=");
    uint64_t seen = most_seen(the_file(ran));
    (void)state;
    assert_true(exited(ran, 0));
    assert_true(highest > (uint64_t)392 << 20);
    if (seen < highest - highest / 1000)
        fail_msg("%llu of %llu bytes seen", (unsigned long long)seen, (unsigned long long)highest);
    ran_free(ran);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_falls_is_in_a_picture_taken_before),
        cmocka_unit_test(test_a_heap_that_empties_is_pictured_near_its_height),
        cmocka_unit_test(test_a_kernel_without_page_scans_gives_the_same_picture),
        cmocka_unit_test(test_a_little_more_than_a_picture_shows_is_seen),
        cmocka_unit_test(test_pictures_stay_within_their_share_and_those_left_out_are_counted),
    };
    return RUN_TESTS(tests);
}
