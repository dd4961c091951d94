/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "recording/picture.h"
#include "scribe.h"
#include "watch/watch.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_PAGES      4000u
#define N_READ_PAGES 50u

/* A stopped child with a mapping of which it has written every other of N_PAGES pages and read
 * N_READ_PAGES more, which are one page of zeros to the kernel and not resident. */
struct child {
    pid_t pid;
    uint64_t first_page;
    uint64_t page_bytes;
};

static void touch_and_stop(int report, size_t page_bytes)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    size_t length = (N_PAGES + N_READ_PAGES) * page_bytes;
    volatile char *mapping = mmap(NULL, length, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED || madvise((char *)mapping, length, MADV_NOHUGEPAGE) < 0)
        _exit(1);
    for (size_t i = 0; i < N_PAGES; i += 2)
        mapping[i * page_bytes] = 1;
    for (size_t i = 0; i < N_READ_PAGES; i++)
        (void)mapping[(N_PAGES + i) * page_bytes];
    if (write(report, &mapping, sizeof mapping) != sizeof mapping)
        _exit(1);
    raise(SIGSTOP);
    _exit(0);
}

static struct child start_child(void)
{
    struct child child = {.page_bytes = (uint64_t)sysconf(_SC_PAGESIZE)};
    int report[2], status;
    uintptr_t mapping;
    assert_int_equal(pipe(report), 0);
    child.pid = fork();
    if (child.pid == 0)
        touch_and_stop(report[1], child.page_bytes);
    assert_true(child.pid > 0);
    assert_int_equal(read(report[0], &mapping, sizeof mapping), sizeof mapping);
    close(report[0]);
    close(report[1]);
    assert_int_equal(waitpid(child.pid, &status, WUNTRACED), child.pid);
    assert_true(WIFSTOPPED(status));
    child.first_page = mapping / child.page_bytes;
    return child;
}

static void end_child(const struct child *child)
{
    assert_int_equal(kill(child->pid, SIGKILL), 0);
    assert_int_equal(waitpid(child->pid, NULL, 0), child->pid);
}

static void take_as(const struct child *child, const char *path, struct mt_picture_request request,
                    struct mt_picture_result *result)
{
    char directory[32];
    void *scratch = malloc(MT_PICTURE_SCRATCH_BYTES);
    struct scribe scribe;
    snprintf(directory, sizeof directory, "/proc/%d", (int)child->pid);
    request.process_directory = directory;
    request.reason = MT_PICTURE_OUTSIDE;
    request.scratch = scratch;
    scribe_begin(&scribe, path, 1);
    mt_picture_take(&scribe.writer[0], &request, result);
    scribe_end(&scribe);
    free(scratch);
}

static void take(const struct child *child, const char *path, int avoid_scan,
                 struct mt_picture_result *result)
{
    take_as(child, path, (struct mt_picture_request){.avoid_scan = avoid_scan}, result);
}

/* What the events of a recorded picture say. */
struct seen {
    uint64_t *pages;
    size_t n_pages;
    char *maps;
    size_t maps_length;
    char rollup[4096];
};

static void see_pages(struct seen *seen, uint64_t first, uint64_t n)
{
    seen->pages = realloc(seen->pages, (seen->n_pages + n) * sizeof *seen->pages);
    assert_non_null(seen->pages);
    for (uint64_t i = 0; i < n; i++)
        seen->pages[seen->n_pages++] = first + i;
}

static void see_text(struct seen *seen, const struct mt_event *event)
{
    if (event->field[0] == MT_TEXT_ROLLUP)
        strncat(seen->rollup, (const char *)event->bytes, event->length);
    if (event->field[0] != MT_TEXT_MAPS)
        return;
    seen->maps = realloc(seen->maps, seen->maps_length + event->length + 1);
    assert_non_null(seen->maps);
    memcpy(seen->maps + seen->maps_length, event->bytes, event->length);
    seen->maps_length += event->length;
    seen->maps[seen->maps_length] = '\0';
}

static struct seen read_picture(const char *path)
{
    struct seen seen = {0};
    struct mt_cursor cursor;
    struct mt_event event;
    struct mt_runs runs;
    struct mt_run_pages run;
    uint64_t page = 0;
    struct mt_record_file *file = must_open(path);
    mt_cursor_init(&cursor, file, 0, file->n_blocks);
    while (mt_cursor_next(&cursor, &event)) {
        if (event.op == MT_EVENT_PICTURE_TEXT)
            see_text(&seen, &event);
        if (event.op != MT_EVENT_PICTURE_RUNS)
            continue;
        mt_runs_init(&runs, &event);
        while (mt_runs_next(&runs, &page, &run))
            see_pages(&seen, run.first_page, run.n_pages);
        assert_int_equal(runs.left, 0);
    }
    mt_cursor_finish(&cursor);
    mt_record_file_close(file);
    remove_file(path);
    return seen;
}

static void forget(struct seen *seen)
{
    free(seen->pages);
    free(seen->maps);
}

/* Whether the page is of the kernel's clock data, which it does not count as resident. */
static int is_clock_data(const struct seen *seen, uint64_t page, uint64_t page_bytes)
{
    for (const char *line = seen->maps; line && *line; line = strchr(line, '\n') + 1) {
        unsigned long long start, end;
        char name[64] = "";
        if (sscanf(line, "%llx-%llx %*s %*s %*s %*s %63[^\n]", &start, &end, name) < 2)
            return 0;
        if (strncmp(name, "[vvar", 5) == 0 && page >= start / page_bytes && page < end / page_bytes)
            return 1;
    }
    return 0;
}

static void assert_every_other_page(const struct seen *seen, const struct child *child)
{
    uint64_t next = child->first_page;
    for (size_t i = 0; i < seen->n_pages; i++) {
        uint64_t page = seen->pages[i];
        if (page < child->first_page || page >= child->first_page + N_PAGES)
            continue;
        assert_int_equal(page, next);
        next += 2;
    }
    assert_int_equal(next, child->first_page + N_PAGES);
}

/* Left out where the kernel cannot tell; then there is nothing to compare with. */
static void assert_sum_is_rss(const struct seen *seen, const struct child *child)
{
    unsigned long long rss_kib = 0;
    uint64_t pages = 0;
    const char *line = strstr(seen->rollup, "Rss:");
    if (!line)
        return;
    assert_int_equal(sscanf(line, "Rss: %llu kB", &rss_kib), 1);
    for (size_t i = 0; i < seen->n_pages; i++)
        pages += !is_clock_data(seen, seen->pages[i], child->page_bytes);
    assert_int_equal(pages * child->page_bytes, rss_kib * 1024);
}

/* How many of the pages that were only read a picture shows. */
static size_t count_read_pages(const struct seen *seen, const struct child *child)
{
    size_t n = 0;
    for (size_t i = 0; i < seen->n_pages; i++)
        n += seen->pages[i] >= child->first_page + N_PAGES &&
             seen->pages[i] < child->first_page + N_PAGES + N_READ_PAGES;
    return n;
}

static struct seen look_at(const struct child *child, int avoid_scan,
                           enum mt_picture_method expected)
{
    struct mt_picture_result result;
    take(child, in_folder("a.mtr"), avoid_scan, &result);
    assert_int_equal(result.complete, 1);
    assert_int_equal(result.method, expected);
    struct seen seen = read_picture(in_folder("a.mtr"));
    assert_every_other_page(&seen, child);
    return seen;
}

static int kernel_scans(const struct child *child)
{
    struct mt_picture_result result;
    take(child, in_folder("a.mtr"), 0, &result);
    remove_file(in_folder("a.mtr"));
    return result.method == MT_METHOD_SCAN;
}

static void test_pagemap_shows_the_pages_that_were_touched(void **state)
{
    (void)state;
    struct child child = start_child();
    struct seen seen = look_at(&child, 1, MT_METHOD_PAGEMAP);
    end_child(&child);
    assert_int_equal(count_read_pages(&seen, &child), N_READ_PAGES);
    forget(&seen);
}

static void test_a_scan_shows_exactly_what_the_kernel_counts(void **state)
{
    (void)state;
    struct child child = start_child();
    if (!kernel_scans(&child)) {
        end_child(&child);
        print_message("# not run: this kernel has no PAGEMAP_SCAN\n");
        return;
    }
    struct seen seen = look_at(&child, 0, MT_METHOD_SCAN);
    end_child(&child);
    assert_int_equal(count_read_pages(&seen, &child), 0);
    assert_sum_is_rss(&seen, &child);
    forget(&seen);
}

/* What pagemap shows more are pages of zeros. */
static void test_all_that_a_scan_shows_is_in_pagemap_too(void **state)
{
    (void)state;
    struct child child = start_child();
    if (!kernel_scans(&child)) {
        end_child(&child);
        print_message("# not run: this kernel has no PAGEMAP_SCAN\n");
        return;
    }
    struct seen by_scan = look_at(&child, 0, MT_METHOD_SCAN);
    struct seen by_pagemap = look_at(&child, 1, MT_METHOD_PAGEMAP);
    end_child(&child);
    assert_true(by_pagemap.n_pages >= by_scan.n_pages + N_READ_PAGES);
    size_t at = 0;
    for (size_t i = 0; i < by_scan.n_pages; i++) {
        while (at < by_pagemap.n_pages && by_pagemap.pages[at] < by_scan.pages[i])
            at++;
        assert_true(at < by_pagemap.n_pages);
        assert_int_equal(by_pagemap.pages[at], by_scan.pages[i]);
    }
    forget(&by_scan);
    forget(&by_pagemap);
}

static void test_a_process_that_is_gone_has_no_picture(void **state)
{
    (void)state;
    struct child child = start_child();
    struct mt_picture_result result;
    end_child(&child);
    take(&child, in_folder("a.mtr"), 0, &result);
    remove_file(in_folder("a.mtr"));
    assert_int_equal(result.complete, 0);
    assert_int_equal(result.method, MT_METHOD_NONE);
    assert_int_equal(mt_resident_bytes(&mt_watch_os, "/proc/self", child.page_bytes) > 0, 1);
}

/* A child that has written every fourth page of what it inherited, and waits. */
static struct child start_fork(volatile char *inherited, uint64_t page_bytes)
{
    struct child child = {.page_bytes = page_bytes};
    int status;
    child.pid = fork();
    if (child.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (size_t i = 0; i < N_PAGES; i += 4)
            inherited[i * page_bytes] = 2;
        raise(SIGSTOP);
        _exit(0);
    }
    assert_true(child.pid > 0);
    assert_int_equal(waitpid(child.pid, &status, WUNTRACED), child.pid);
    return child;
}

static uint64_t shared_pages(const struct child *child, int avoid_scan)
{
    unsigned long long kib;
    struct mt_picture_result result;
    take_as(child, in_folder("a.mtr"),
            (struct mt_picture_request){.counts_shared = 1, .avoid_scan = avoid_scan}, &result);
    struct seen seen = read_picture(in_folder("a.mtr"));
    assert_int_equal(result.complete, 1);
    assert_int_equal(sscanf(seen.rollup, "Shared_Anon: %llu kB", &kib), 1);
    assert_null(strstr(seen.rollup, "Rss"));
    forget(&seen);
    return kib * 1024 / child->page_bytes;
}

/* Beside the mapping it shares what the test itself has: libraries' data, heap, stack. */
static void test_pages_that_a_fork_shares_are_counted(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip(); /* its shadow and the freed blocks that it keeps are shared, and change from fork to
               fork */
#endif
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    size_t length = N_PAGES * page_bytes;
    volatile char *mapping =
        mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(mapping != MAP_FAILED);
    assert_int_equal(madvise((char *)mapping, length, MADV_NOHUGEPAGE), 0);
    struct child none = start_fork(mapping, page_bytes); /* all that it has of these it wrote */
    uint64_t others = shared_pages(&none, 0);
    end_child(&none);
    assert_true(others < N_PAGES / 2);
    for (size_t i = 0; i < N_PAGES; i++)
        mapping[i * page_bytes] = 1;
    struct child child = start_fork(mapping, page_bytes);
    for (int avoid_scan = 0; avoid_scan < 2; avoid_scan++) {
        uint64_t shared = shared_pages(&child, avoid_scan);
        assert_in_range(shared, N_PAGES * 3 / 4, N_PAGES * 3 / 4 + others * 2 + 64);
    }
    end_child(&child);
    assert_int_equal(munmap((char *)mapping, length), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pagemap_shows_the_pages_that_were_touched),
        cmocka_unit_test(test_a_scan_shows_exactly_what_the_kernel_counts),
        cmocka_unit_test(test_pages_that_a_fork_shares_are_counted),
        cmocka_unit_test(test_all_that_a_scan_shows_is_in_pagemap_too),
        cmocka_unit_test(test_a_process_that_is_gone_has_no_picture),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
