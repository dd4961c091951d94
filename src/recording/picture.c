/* SPDX-License-Identifier: MIT */
/* Taking a picture of a process's present pages: its maps as text, then the runs of present pages
 * by PAGEMAP_SCAN (Linux 6.7) or, without it, by reading pagemap. Part of the preloaded recorder;
 * must not know what the pages hold. */
#include "recording/picture.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include "base/ticks.h"

/* From include/uapi/linux/fs.h of Linux 6.7; older headers lack it. */
struct page_region {
    uint64_t start;
    uint64_t end;
    uint64_t categories;
};

struct pm_scan_arg {
    uint64_t size;
    uint64_t flags;
    uint64_t start;
    uint64_t end;
    uint64_t walk_end;
    uint64_t vec;
    uint64_t vec_len;
    uint64_t max_pages;
    uint64_t category_inverted;
    uint64_t category_mask;
    uint64_t category_anyof_mask;
    uint64_t return_mask;
};

#define SCAN_REQUEST _IOWR('f', 16, struct pm_scan_arg)
#define PAGE_FILE    ((uint64_t)1 << 2)
#define PAGE_PRESENT ((uint64_t)1 << 3)
#define PAGE_PFNZERO ((uint64_t)1 << 5)
#define PAGE_HUGE    ((uint64_t)1 << 6)
#define PAGEMAP_SOLE ((uint64_t)1 << 56) /* no other process has the page */
#define PAGEMAP_FILE ((uint64_t)1 << 61)
#define PAGEMAP_HERE ((uint64_t)1 << 63)
#define KERNEL_SPACE ((uint64_t)1 << 63)
#define PATH_BYTES   64
#define ENTRIES      512u /* of pagemap that are read at once */

/* Linux holds the lock of a process's mappings during a scan. The process that is looked at waits
 * for it no longer than this many pages take that are found, or this many bytes of which none are:
 * some 0.2 and 0.8 ms. A scan begins with an eighth of these bytes, and returns to it where one was
 * slow. What took less than a rest needs none. */
#define OUTSIDE_MOST_PAGES ((uint64_t)16384)
#define OUTSIDE_MOST_BYTES ((uint64_t)1 << 30)
#define OUTSIDE_STEPS      8
#define NEEDS_NO_REST_NS   50000u

/* Where a scan ends. PAGEMAP_SCAN refuses a range that goes past what the kernel gives programs. */
#if defined(__aarch64__)
#define SCAN_END ((uint64_t)1 << 48)
#else
#define SCAN_END ((uint64_t)0x7ffffffff000)
#endif

struct run {
    uint64_t first_page;
    uint64_t n_pages;
    uint64_t flags;
};

/* The picture under way. `last_page` is where the last written run ended. */
struct picture {
    struct mt_writer *writer;
    const struct mt_record_os *os;
    const struct mt_picture_request *request;
    uint64_t page_bytes;
    uint64_t last_page;
    struct run open_run; /* n_pages 0: none */
    uint32_t n_runs;
    int pagemap;           /* its descriptor */
    uint64_t shared_pages; /* where the request counts them */
    uint64_t unrested;     /* pages looked at since the last rest */
    int written;           /* some runs are in the recording */
    struct run *runs;      /* MT_RUNS_PIECE of them, in the scratch memory */
    char *text;            /* another part of the scratch memory */
    size_t text_bytes;
    char *maps; /* the rest of it */
    size_t maps_bytes;
    size_t maps_kept; /* bytes of maps that lie there, all of it; 0: it is to be read */
};

static uint64_t ticks(const struct picture *picture)
{
    return mt_ticks(picture->writer->file->use_counter);
}

static void join_path(char path[PATH_BYTES], const char *directory, const char *name)
{
    size_t at = 0;
    for (; *directory && at < PATH_BYTES - 1; directory++)
        path[at++] = *directory;
    for (; *name && at < PATH_BYTES - 1; name++)
        path[at++] = *name;
    path[at] = '\0';
}

int mt_open_of_process(const struct mt_record_os *os, const char *process_directory,
                       const char *name)
{
    char path[PATH_BYTES];
    join_path(path, process_directory, name);
    return os->open(path, O_RDONLY | O_CLOEXEC, 0);
}

static int open_of_process(const struct picture *picture, const char *name)
{
    return mt_open_of_process(picture->os, picture->request->process_directory, name);
}

/* Writes the whole of an open text file in pieces. */
static int write_text(struct picture *picture, int fd, enum mt_picture_text kind)
{
    if (fd < 0)
        return 0;
    long got;
    while ((got = picture->os->read(fd, picture->text, picture->text_bytes)) > 0)
        mt_write_bytes(picture->writer, MT_EVENT_PICTURE_TEXT, ticks(picture), kind, picture->text,
                       (size_t)got);
    picture->os->close(fd);
    return got == 0;
}

/* Maps that are short are kept, so that they need not be read again for the scan. */
static int write_maps(struct picture *picture)
{
    int fd = open_of_process(picture, "/maps");
    long got;
    size_t n = 0;
    if (fd < 0)
        return 0;
    while ((got = picture->os->read(fd, picture->text, picture->text_bytes)) > 0) {
        mt_write_bytes(picture->writer, MT_EVENT_PICTURE_TEXT, ticks(picture), MT_TEXT_MAPS,
                       picture->text, (size_t)got);
        for (long i = 0; i < got && n + (size_t)got <= picture->maps_bytes; i++)
            picture->maps[n + (size_t)i] = picture->text[i];
        n += (size_t)got;
    }
    picture->os->close(fd);
    picture->maps_kept = got == 0 && n <= picture->maps_bytes ? n : 0;
    return got == 0;
}

static void flush_runs(struct picture *picture)
{
    struct mt_writer *writer = picture->writer;
    uint64_t now = ticks(picture);
    if (!picture->n_runs)
        return;
    picture->written = 1;
    size_t room = MT_VARINT_MAX * (2 + 3 * (size_t)picture->n_runs) + 1;
    if (mt_writer_room(writer, room, now)) {
        uint8_t *at = mt_event_begin(writer, MT_EVENT_PICTURE_RUNS, now);
        at = mt_varint_put(at, picture->n_runs);
        for (uint32_t i = 0; i < picture->n_runs; i++) {
            const struct run *run = &picture->runs[i];
            at = mt_varint_put(at, run->first_page - picture->last_page);
            at = mt_varint_put(at, run->n_pages);
            at = mt_varint_put(at, run->flags);
            picture->last_page = run->first_page + run->n_pages;
        }
        mt_event_end(writer, at);
    }
    picture->n_runs = 0;
}

/* Linux holds the lock of the mappings for one read only, which takes some microseconds. */
static void rest_between_reads(struct picture *picture, uint64_t n_pages)
{
    picture->unrested += n_pages;
    if (picture->unrested < OUTSIDE_MOST_PAGES || !picture->request->rest)
        return;
    picture->unrested = 0;
    picture->request->rest();
}

/* Counts the pages of the open run that other processes have, too. */
static void count_shared(struct picture *picture)
{
    uint64_t entries[ENTRIES];
    uint64_t page = picture->open_run.first_page;
    uint64_t last = page + picture->open_run.n_pages;
    while (page < last) {
        uint64_t want = last - page < ENTRIES ? last - page : ENTRIES;
        long got = picture->os->pread(picture->pagemap, entries, want * sizeof *entries,
                                      page * sizeof *entries);
        if (got < (long)sizeof *entries)
            return;
        uint64_t n = (uint64_t)got / sizeof *entries;
        for (uint64_t i = 0; i < n; i++)
            picture->shared_pages +=
                (entries[i] & PAGEMAP_HERE) && !(entries[i] & (PAGEMAP_FILE | PAGEMAP_SOLE));
        page += n;
        rest_between_reads(picture, n);
    }
}

static void close_run(struct picture *picture)
{
    if (!picture->open_run.n_pages)
        return;
    const struct mt_picture_request *request = picture->request;
    if (request->counts_shared && !request->shares_nothing &&
        !(picture->open_run.flags & MT_RUN_FILE))
        count_shared(picture);
    picture->runs[picture->n_runs++] = picture->open_run;
    picture->open_run.n_pages = 0;
    if (picture->n_runs == MT_RUNS_PIECE)
        flush_runs(picture);
}

/* Adds pages, joined to the open run where they follow it with the same flags. */
static void add_pages(struct picture *picture, uint64_t first_page, uint64_t n_pages,
                      uint64_t flags)
{
    struct run *open_run = &picture->open_run;
    if (open_run->n_pages && open_run->first_page + open_run->n_pages == first_page &&
        open_run->flags == flags) {
        open_run->n_pages += n_pages;
        return;
    }
    close_run(picture);
    *open_run = (struct run){first_page, n_pages, flags};
}

/* How many bytes of the address space may be looked through at once. */
static uint64_t most_at_once(const struct picture *picture, uint64_t all)
{
    return picture->request->reason == MT_PICTURE_OUTSIDE ? OUTSIDE_MOST_BYTES
                                                          : all * OUTSIDE_STEPS;
}

/* Scans [start, end). For each page of which it is asked whether a file is behind it, Linux looks
 * at what it knows of the page, which takes ten times as long as the rest. */
static int scan_range(struct picture *picture, int fd, uint64_t start, uint64_t end, int has_files)
{
    struct page_region *regions = (struct page_region *)(void *)picture->text;
    struct pm_scan_arg arg = {
        .size = sizeof arg,
        .start = start,
        .end = end,
        .vec = (uint64_t)(uintptr_t)regions,
        .vec_len = picture->text_bytes / sizeof *regions,
        .category_inverted = PAGE_PFNZERO,
        .category_mask = PAGE_PRESENT | PAGE_PFNZERO,
        .return_mask = has_files ? PAGE_FILE | PAGE_HUGE : PAGE_HUGE,
        .max_pages = picture->request->reason == MT_PICTURE_OUTSIDE ? OUTSIDE_MOST_PAGES : 0,
    };
    uint64_t most = most_at_once(picture, end - start);
    uint64_t step = most / OUTSIDE_STEPS;
    while (arg.start < end) {
        arg.end = end - arg.start > step ? arg.start + step : end;
        uint64_t begin_ns = picture->os->monotonic_ns();
        long found = picture->os->ioctl(fd, SCAN_REQUEST, &arg);
        if (found < 0)
            return 0;
        int is_slow = picture->os->monotonic_ns() - begin_ns > NEEDS_NO_REST_NS;
        step = is_slow ? most / OUTSIDE_STEPS : step < most / 2 ? 2 * step : most;
        for (long i = 0; i < found; i++)
            add_pages(picture, regions[i].start / picture->page_bytes,
                      (regions[i].end - regions[i].start) / picture->page_bytes,
                      (regions[i].categories & PAGE_FILE ? MT_RUN_FILE : 0) |
                          (regions[i].categories & PAGE_HUGE ? MT_RUN_HUGE : 0));
        /* Linux gathers 512 regions at a time. Where a walk ends in a later lot than the first, it
         * gives the end of an earlier lot for its own. */
        if (found && arg.walk_end < regions[found - 1].end)
            arg.walk_end = regions[found - 1].end;
        if (arg.walk_end <= arg.start)
            return 0;
        arg.start = arg.walk_end;
        if (arg.start < end && picture->request->rest && (found || is_slow))
            picture->request->rest();
    }
    return 1;
}

/* What stands in a line of maps, in this order. */
enum field { START, END, RIGHTS, OFFSET, DEVICE, INODE, NAME };

/* A line of maps, read a byte at a time: its range, its inode, and its name's beginning. */
struct line_reader {
    uint64_t start;
    uint64_t end;
    int field; /* of the line: enum field */
    int has_inode;
    char name[2];
    int n_name;
};

static void add_digit(uint64_t *number, char byte)
{
    *number = *number * 16 + (uint64_t)(byte <= '9' ? byte - '0' : byte - 'a' + 10);
}

/* Returns 1 at a line's end. */
static int read_line(struct line_reader *line, char byte)
{
    if (byte == '\n')
        return 1;
    if (line->field == NAME) {
        if (line->n_name < 2 && (line->n_name || byte != ' '))
            line->name[line->n_name++] = byte;
        return 0;
    }
    if (byte == ' ' || (byte == '-' && line->field == START))
        line->field++;
    else if (line->field == INODE)
        line->has_inode |= byte != '0';
    else if (line->field <= END)
        add_digit(line->field == START ? &line->start : &line->end, byte);
    return 0;
}

/* The heap, stacks and what is mapped without a name have no file behind them; the kernel's own
 * pages have. */
static int has_files(const struct line_reader *line)
{
    return line->has_inode || (line->n_name && !(line->name[0] == '[' && line->name[1] != 'v'));
}

/* A scan of all of the address space, in ranges of mappings of one kind. */
struct scan {
    struct picture *picture;
    int fd;
    uint64_t start;
    uint64_t mapped_end; /* of the mappings so far */
    int kind;
    struct line_reader line;
};

/* A gap that would take several calls is left out: nothing is mapped there. */
static int comes_after_gap(const struct scan *scan, const struct line_reader *line)
{
    return line->start > scan->mapped_end &&
           line->start - scan->mapped_end > most_at_once(scan->picture, UINT64_MAX);
}

static int scan_lines(struct scan *scan, const char *text, size_t length)
{
    int fine = 1;
    for (size_t i = 0; i < length && fine; i++) {
        struct line_reader *line = &scan->line;
        if (!read_line(line, text[i]))
            continue;
        int has_gap = comes_after_gap(scan, line);
        if ((has_gap || has_files(line) != scan->kind) && line->start > scan->start &&
            line->start < SCAN_END) {
            fine = scan_range(scan->picture, scan->fd, scan->start,
                              has_gap ? scan->mapped_end : line->start, scan->kind);
            scan->start = line->start;
        }
        if (line->start < SCAN_END) {
            scan->kind = has_files(line);
            scan->mapped_end = line->end;
        }
        *line = (struct line_reader){0};
    }
    return fine;
}

/* Returns 0 where a range could not be scanned. Maps that cannot be read leave all to be asked. */
static int scan_by_maps(struct scan *scan)
{
    struct picture *picture = scan->picture;
    long got = 0;
    int fine = 1;
    if (picture->maps_kept)
        return scan_lines(scan, picture->maps, picture->maps_kept);
    int maps = open_of_process(picture, "/maps");
    while (maps >= 0 && fine &&
           (got = picture->os->read(maps, picture->maps, picture->maps_bytes)) > 0)
        fine = scan_lines(scan, picture->maps, (size_t)got);
    if (maps >= 0)
        picture->os->close(maps);
    if (maps < 0 || got < 0) {
        scan->kind = 1;
        scan->mapped_end = SCAN_END;
    }
    return fine;
}

static int scan_pages(struct picture *picture, int fd)
{
    struct scan scan = {.picture = picture, .fd = fd, .kind = 1};
    int fine = scan_by_maps(&scan);
    if (fine && SCAN_END - scan.mapped_end > most_at_once(picture, SCAN_END))
        return scan_range(picture, fd, scan.start, scan.mapped_end, scan.kind);
    return fine && scan_range(picture, fd, scan.start, SCAN_END, scan.kind);
}

/* Reads the pagemap entries of [start, end). */
static int read_pagemap(struct picture *picture, int fd, uint64_t start, uint64_t end)
{
    uint64_t entries[ENTRIES];
    uint64_t page = start / picture->page_bytes;
    uint64_t last = end / picture->page_bytes;
    while (page < last) {
        uint64_t want = last - page < ENTRIES ? last - page : ENTRIES;
        long got = picture->os->pread(fd, entries, want * sizeof *entries, page * sizeof *entries);
        if (got < (long)sizeof *entries)
            return got == 0;
        uint64_t n = (uint64_t)got / sizeof *entries;
        for (uint64_t i = 0; i < n; i++)
            if (entries[i] & PAGEMAP_HERE)
                add_pages(picture, page + i, 1, entries[i] & PAGEMAP_FILE ? MT_RUN_FILE : 0);
        page += n;
    }
    return 1;
}

/* State of reading the two leading numbers of each line of maps, a byte at a time. */
struct range_reader {
    uint64_t start;
    uint64_t end;
    int field; /* START, END, or what comes after them */
};

/* Takes one byte; returns 1 when a range is complete. */
static int take_byte(struct range_reader *reader, char byte)
{
    if (byte == '\n') {
        *reader = (struct range_reader){0};
        return 0;
    }
    if (reader->field == RIGHTS)
        return 0;
    uint64_t *number = reader->field == START ? &reader->start : &reader->end;
    if (byte >= '0' && byte <= '9')
        *number = *number * 16 + (uint64_t)(byte - '0');
    else if (byte >= 'a' && byte <= 'f')
        *number = *number * 16 + (uint64_t)(byte - 'a' + 10);
    else
        return ++reader->field == RIGHTS;
    return 0;
}

static int walk_pagemap(struct picture *picture, int fd)
{
    struct range_reader reader = {0};
    int maps = open_of_process(picture, "/maps");
    if (maps < 0)
        return 0;
    long got = 0;
    int fine = 1;
    while (fine && (got = picture->os->read(maps, picture->text, picture->text_bytes)) > 0)
        for (long i = 0; i < got && fine; i++)
            if (take_byte(&reader, picture->text[i]) && reader.start < KERNEL_SPACE)
                fine = read_pagemap(picture, fd, reader.start, reader.end);
    picture->os->close(maps);
    return fine && got == 0;
}

/* Forgets what a scan found before it failed. What is written already cannot be taken back. */
static int start_over(struct picture *picture)
{
    picture->open_run.n_pages = 0;
    picture->n_runs = 0;
    picture->shared_pages = 0;
    return !picture->written;
}

/* A process that has ended shows no pages, which are not to be taken for all that it had. Where its
 * memory had gone before pagemap was opened, a scan crashes some versions of Linux; a read gives
 * nothing. */
static int is_gone(const struct picture *picture)
{
    uint64_t entry;
    return picture->os->pread(picture->pagemap, &entry, sizeof entry, 0) == 0;
}

static enum mt_picture_method write_pages(struct picture *picture)
{
    enum mt_picture_method method = MT_METHOD_NONE;
    int fd = open_of_process(picture, "/pagemap");
    if (fd < 0)
        return MT_METHOD_NONE;
    picture->pagemap = fd;
    if (!picture->request->avoid_scan && !is_gone(picture) && scan_pages(picture, fd))
        method = MT_METHOD_SCAN;
    else if (start_over(picture) && walk_pagemap(picture, fd))
        method = MT_METHOD_PAGEMAP;
    if (is_gone(picture))
        method = MT_METHOD_NONE;
    close_run(picture);
    flush_runs(picture);
    picture->os->close(fd);
    return method;
}

/* In the form of smaps_rollup, which has no such line. */
static void write_shared(struct picture *picture)
{
    static const char name[] = "Shared_Anon: ";
    static const char unit[] = " kB\n";
    char digits[24];
    size_t n_digits = 0;
    size_t n = 0;
    uint64_t kib = picture->shared_pages * (picture->page_bytes / 1024);
    do
        digits[n_digits++] = (char)('0' + kib % 10);
    while ((kib /= 10) > 0);
    for (const char *at = name; *at; at++)
        picture->text[n++] = *at;
    while (n_digits > 0)
        picture->text[n++] = digits[--n_digits];
    for (const char *at = unit; *at; at++)
        picture->text[n++] = *at;
    mt_write_bytes(picture->writer, MT_EVENT_PICTURE_TEXT, ticks(picture), MT_TEXT_ROLLUP,
                   picture->text, n);
}

/* What it shares with other processes. */
static void write_sharing(struct picture *picture, enum mt_picture_method method)
{
    if (picture->request->shares_nothing)
        return;
    if (picture->request->counts_shared && method != MT_METHOD_NONE)
        write_shared(picture);
    else
        write_text(picture, open_of_process(picture, "/smaps_rollup"), MT_TEXT_ROLLUP);
}

void mt_picture_take(struct mt_writer *writer, const struct mt_picture_request *request,
                     struct mt_picture_result *result)
{
    const size_t runs_bytes = MT_RUNS_PIECE * sizeof(struct run);
    struct picture picture = {
        .writer = writer,
        .os = writer->file->os,
        .request = request,
        .page_bytes = writer->file->header->page_bytes,
        .runs = request->scratch,
        .text = (char *)request->scratch + runs_bytes,
        .text_bytes = MT_TEXT_PIECE,
        .maps = (char *)request->scratch + runs_bytes + MT_TEXT_PIECE,
        .maps_bytes = MT_PICTURE_SCRATCH_BYTES - runs_bytes - MT_TEXT_PIECE,
    };
    _Static_assert(MT_RUNS_PIECE * sizeof(struct run) + MT_TEXT_PIECE + 1024 <=
                       MT_PICTURE_SCRATCH_BYTES,
                   "the scratch memory holds all parts");
    uint64_t lost = writer->lost;
    uint64_t start_ns = picture.os->monotonic_ns();
    uint64_t begin[] = {request->pid, request->reason, start_ns, request->resident_bytes};
    mt_write_event(writer, MT_EVENT_PICTURE_BEGIN, ticks(&picture), begin, 4);
    int mapped = write_maps(&picture);
    result->method = write_pages(&picture);
    write_sharing(&picture, result->method);
    write_text(&picture, open_of_process(&picture, "/status"), MT_TEXT_STATUS);
    write_text(&picture, picture.os->open("/proc/meminfo", O_RDONLY | O_CLOEXEC, 0),
               MT_TEXT_MEMINFO);
    result->cost_ns = picture.os->monotonic_ns() - start_ns;
    result->complete = mapped && result->method != MT_METHOD_NONE && writer->lost == lost;
    uint64_t end[] = {(uint64_t)result->complete, result->cost_ns, result->method};
    mt_write_event(writer, MT_EVENT_PICTURE_END, ticks(&picture), end, 3);
}

uint64_t mt_resident_bytes(const struct mt_record_os *os, const char *process_directory,
                           uint64_t page_bytes)
{
    char text[64];
    int fd = mt_open_of_process(os, process_directory, "/statm");
    if (fd < 0)
        return 0;
    long got = os->read(fd, text, sizeof text);
    os->close(fd);
    long at = 0;
    while (at < got && text[at] != ' ')
        at++;
    uint64_t pages = 0;
    for (at++; at < got && text[at] >= '0' && text[at] <= '9'; at++)
        pages = pages * 10 + (uint64_t)(text[at] - '0');
    return pages * page_bytes;
}
