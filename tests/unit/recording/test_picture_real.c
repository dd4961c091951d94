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

#define N_PAGES 4000u

/* A stopped child with a mapping of which it has touched every other page. */
struct child {
    pid_t pid;
    uint64_t first_page;
    uint64_t page_bytes;
};

static void touch_and_stop(int report, size_t page_bytes)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    char *mapping = mmap(NULL, N_PAGES * page_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED || madvise(mapping, N_PAGES * page_bytes, MADV_NOHUGEPAGE) < 0)
        _exit(1);
    for (size_t i = 0; i < N_PAGES; i += 2)
        mapping[i * page_bytes] = 1;
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

static void take(const struct child *child, const char *path, int avoid_scan,
                 struct mt_picture_result *result)
{
    char directory[32];
    void *scratch = malloc(MT_PICTURE_SCRATCH_BYTES);
    struct scribe scribe;
    snprintf(directory, sizeof directory, "/proc/%d", (int)child->pid);
    const struct mt_picture_request request = {
        .process_directory = directory,
        .reason = MT_PICTURE_OUTSIDE,
        .avoid_scan = avoid_scan,
        .scratch = scratch,
    };
    scribe_begin(&scribe, path, 1);
    mt_picture_take(&scribe.writer[0], &request, result);
    scribe_end(&scribe);
    free(scratch);
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

static void look_at_child(int avoid_scan, enum mt_picture_method expected)
{
    struct child child = start_child();
    struct mt_picture_result result;
    take(&child, in_folder("a.mtr"), avoid_scan, &result);
    struct seen seen = read_picture(in_folder("a.mtr"));
    end_child(&child);
    assert_int_equal(result.complete, 1);
    assert_int_equal(result.method, expected);
    assert_every_other_page(&seen, &child);
    assert_sum_is_rss(&seen, &child);
    forget(&seen);
}

static int kernel_scans(void)
{
    struct child child = start_child();
    struct mt_picture_result result;
    take(&child, in_folder("a.mtr"), 0, &result);
    remove_file(in_folder("a.mtr"));
    end_child(&child);
    return result.method == MT_METHOD_SCAN;
}

static void test_pagemap_shows_exactly_the_pages_that_were_touched(void **state)
{
    (void)state;
    look_at_child(1, MT_METHOD_PAGEMAP);
}

static void test_a_scan_shows_exactly_the_pages_that_were_touched(void **state)
{
    (void)state;
    if (!kernel_scans())
        skip();
    look_at_child(0, MT_METHOD_SCAN);
}

static void test_scan_and_pagemap_agree(void **state)
{
    (void)state;
    if (!kernel_scans())
        skip();
    struct child child = start_child();
    struct mt_picture_result result;
    take(&child, in_folder("a.mtr"), 0, &result);
    struct seen by_scan = read_picture(in_folder("a.mtr"));
    take(&child, in_folder("a.mtr"), 1, &result);
    struct seen by_pagemap = read_picture(in_folder("a.mtr"));
    end_child(&child);
    assert_int_equal(by_scan.n_pages, by_pagemap.n_pages);
    assert_memory_equal(by_scan.pages, by_pagemap.pages, by_scan.n_pages * sizeof(uint64_t));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pagemap_shows_exactly_the_pages_that_were_touched),
        cmocka_unit_test(test_a_scan_shows_exactly_the_pages_that_were_touched),
        cmocka_unit_test(test_scan_and_pagemap_agree),
        cmocka_unit_test(test_a_process_that_is_gone_has_no_picture),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
