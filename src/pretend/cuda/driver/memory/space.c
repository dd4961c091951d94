/* SPDX-License-Identifier: MIT */
/* The addresses of devices and what lies where.
 *
 * A device has 8 TiB of addresses in pages of 2 MiB, less where there are many devices: PyTorch's
 * expandable segments reserve more than the whole device for each stream. A table says which range
 * begins at a page, a set says where any begins, so that the range of an address is found in a few
 * steps whatever its size, and giving addresses out or taking them back makes no system call. Where
 * the system grants no writable mapping that large (strict overcommit), pages are made writable
 * when a small copy first goes there; where it grants none at all (a limit on address space),
 * addresses are those that no program can map, and copies are not done. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "pages.h"

#define STEP_BYTES     (UINT64_C(64) << 10) /* made writable at once */
#define OUT_OF_REACH   (UINT64_C(1) << 56)  /* no address of a program is so high */
#define OF_ALL_DEVICES (UINT64_C(1) << 46)  /* half of what a process can have */
#define LEAST_BYTES    (UINT64_C(1) << 40)  /* of a device */
#define FIRST_PAGE     1u
#define RANGES_AT_ONCE 256
#define CLEARED_BYTES  (UINT64_C(64) << 10) /* by hand; more is given back to the system */

enum backing { BACKING_NONE, BACKING_CLOSED, BACKING_OPEN };

struct space {
    uint64_t base;  /* 0 before the device is used */
    uint64_t bytes; /* of addresses */
    enum backing backing;
    uint32_t cursor; /* where addresses are looked for first */
    struct index *index;
};

struct index {
    struct pretend_pages begins; /* of all ranges */
    struct pretend_pages outer;  /* of those that lie in no other */
    struct pretend_pages written;
    struct pretend_range *range[PRETEND_PAGES];
};

static struct space spaces[MT_ACCOUNT_DEVICES_MAX];
static struct pretend_range *spare_ranges; /* chained by `inside` */
static uint64_t next_id = 1;

struct pretend_system pretend_system = {mmap, mprotect};

static void *map_anonymous(uint64_t bytes, int protection)
{
    void *at = pretend_system.map(NULL, bytes, protection,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* As many as each device can have, or as the system grants. */
static void *map_most(struct space *space, int protection)
{
    uint64_t n = (uint64_t)pretend_device_count();
    space->bytes = PRETEND_ADDRESSES;
    while (space->bytes > LEAST_BYTES && space->bytes * n > OF_ALL_DEVICES)
        space->bytes /= 2;
    void *at = map_anonymous(space->bytes, protection);
    while (!at && space->bytes > LEAST_BYTES) {
        space->bytes /= 2;
        at = map_anonymous(space->bytes, protection);
    }
    return at;
}

/* Its addresses begin at a page, which costs one. */
static void map_addresses(struct space *space, int device)
{
    space->backing = BACKING_OPEN;
    char *at = map_most(space, PROT_READ | PROT_WRITE);
    if (!at) {
        space->backing = BACKING_CLOSED;
        at = map_most(space, PROT_NONE);
    }
    if (!at) {
        space->backing = BACKING_NONE;
        space->base = OUT_OF_REACH + (uint64_t)device * PRETEND_ADDRESSES;
        pretend_cuda_note("The system grants no addresses for pretended devices (see ulimit -v): "
                          "what is copied to them reads back as zeros.");
        return;
    }
    madvise(at, space->bytes, MADV_NOHUGEPAGE);
    madvise(at, space->bytes, MADV_DONTDUMP);
    space->base = pretend_round_up((uint64_t)(uintptr_t)at, PRETEND_PAGE);
}

static struct space *space_of(int device)
{
    struct space *space = &spaces[device];
    if (space->base)
        return space;
    space->index = map_anonymous(sizeof *space->index, PROT_READ | PROT_WRITE);
    if (!space->index)
        return NULL;
    space->cursor = FIRST_PAGE;
    map_addresses(space, device);
    return space;
}

int pretend_space_at(CUdeviceptr pointer)
{
    int n = pretend_device_count();
    for (int i = 0; i < n; i++)
        if (spaces[i].base && pointer - spaces[i].base < spaces[i].bytes - PRETEND_PAGE)
            return i;
    return -1;
}

int pretend_space_is_backed(CUdeviceptr pointer)
{
    return spaces[pretend_space_at(pointer)].backing != BACKING_NONE;
}

static uint32_t page_of(const struct space *space, CUdeviceptr pointer)
{
    return (uint32_t)((pointer - space->base) / PRETEND_PAGE);
}

static CUdeviceptr address_of(const struct space *space, uint32_t page)
{
    return space->base + page * PRETEND_PAGE;
}

/* Many are made at once, and none is ever given back to the heap. */
static int make_ranges(void)
{
    struct pretend_range *made = calloc(RANGES_AT_ONCE, sizeof *made);
    for (int i = 0; made && i < RANGES_AT_ONCE; i++) {
        made[i].inside = spare_ranges;
        spare_ranges = &made[i];
    }
    return made != NULL;
}

struct pretend_range *pretend_range_make(enum pretend_range_kind kind, int device, uint64_t bytes)
{
    if (!spare_ranges && !make_ranges())
        return NULL;
    struct pretend_range *range = spare_ranges;
    spare_ranges = range->inside;
    *range = (struct pretend_range){.kind = (uint8_t)kind,
                                    .device = device,
                                    .bytes = bytes,
                                    .access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                                    .id = next_id++};
    return range;
}

void pretend_range_drop(struct pretend_range *range)
{
    range->inside = spare_ranges;
    spare_ranges = range;
}

static uint32_t end_of(const struct space *space, const struct pretend_range *range)
{
    return page_of(space, range->base) + (uint32_t)(range->span / PRETEND_PAGE);
}

/* The outermost range at a page or before it. */
static struct pretend_range *outermost(const struct space *space, uint32_t page)
{
    uint32_t first = pretend_pages_last(&space->index->outer, page);
    return first == PRETEND_NO_PAGE ? NULL : space->index->range[first];
}

/* The first page from `from` on, that `step` divides, behind which `n` are free. */
static uint32_t find_gap(const struct space *space, uint32_t from, uint32_t n, uint32_t skew,
                         uint32_t step)
{
    const uint32_t last = (uint32_t)(space->bytes / PRETEND_PAGE) - 2;
    for (uint64_t page = from;;) {
        page = pretend_round_up(page + skew, step) - skew;
        if (page + n > last)
            return PRETEND_NO_PAGE;
        const struct pretend_range *before = outermost(space, (uint32_t)page);
        if (before && end_of(space, before) > page) {
            page = end_of(space, before);
            continue;
        }
        uint32_t next = pretend_pages_next(&space->index->outer, (uint32_t)page);
        if (next == PRETEND_NO_PAGE || next >= page + n)
            return (uint32_t)page;
        page = end_of(space, space->index->range[next]);
    }
}

static void put_at(struct space *space, struct pretend_range *range, uint32_t page)
{
    space->index->range[page] = range;
    pretend_pages_add(&space->index->begins, page);
    if (range->kind != PRETEND_MAP)
        pretend_pages_add(&space->index->outer, page);
}

CUresult pretend_range_place(struct pretend_range *range, uint64_t alignment, CUdeviceptr wanted)
{
    struct space *space = space_of(range->device);
    uint64_t n = range->span / PRETEND_PAGE;
    if (!space || n >= space->bytes / PRETEND_PAGE)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint32_t step = alignment > PRETEND_PAGE ? (uint32_t)(alignment / PRETEND_PAGE) : 1;
    uint32_t skew = (uint32_t)(space->base / PRETEND_PAGE % step);
    /* A reservation begins a page before what is aligned. */
    if (range->kind == PRETEND_RESERVATION)
        skew = (skew + 1) % step;
    uint32_t page = PRETEND_NO_PAGE;
    if (wanted && pretend_space_at(wanted) == range->device && wanted % PRETEND_PAGE == 0) {
        uint32_t there = page_of(space, wanted);
        if (there >= FIRST_PAGE && find_gap(space, there, (uint32_t)n, 0, 1) == there)
            page = there;
    }
    if (page == PRETEND_NO_PAGE)
        page = find_gap(space, space->cursor, (uint32_t)n, skew, step);
    if (page == PRETEND_NO_PAGE)
        page = find_gap(space, FIRST_PAGE, (uint32_t)n, skew, step);
    if (page == PRETEND_NO_PAGE)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->base = address_of(space, page);
    put_at(space, range, page);
    space->cursor = page + (uint32_t)n;
    return CUDA_SUCCESS;
}

void pretend_range_put(struct pretend_range *range)
{
    struct space *space = &spaces[pretend_space_at(range->base)];
    put_at(space, range, page_of(space, range->base));
}

/* Addresses that were the last to be given out are the next ones again. */
void pretend_range_remove(struct pretend_range *range)
{
    struct space *space = &spaces[pretend_space_at(range->base)];
    uint32_t page = page_of(space, range->base);
    if (range->is_shared) {
        pretend_export_ended(range);
        pretend_space_unshare(range->base, range->span);
    } else if (range->kind != PRETEND_RESERVATION) {
        pretend_written_clear(range->base, range->span);
    }
    pretend_pages_remove(&space->index->begins, page);
    if (range->kind != PRETEND_MAP)
        pretend_pages_remove(&space->index->outer, page);
    space->index->range[page] = NULL;
    if (range->kind != PRETEND_MAP && end_of(space, range) == space->cursor)
        space->cursor = page;
}

struct pretend_range *pretend_range_around(CUdeviceptr pointer)
{
    int number = pretend_space_at(pointer);
    if (number < 0)
        return NULL;
    const struct space *space = &spaces[number];
    uint32_t page = pretend_pages_last(&space->index->begins, page_of(space, pointer));
    struct pretend_range *range = page == PRETEND_NO_PAGE ? NULL : space->index->range[page];
    return range && pointer - range->base < range->span ? range : NULL;
}

struct pretend_range *pretend_range_next(int device, CUdeviceptr from)
{
    const struct space *space = &spaces[device];
    if (!space->base)
        return NULL;
    uint32_t first = from <= space->base ? 0 : page_of(space, from + PRETEND_PAGE - 1);
    uint32_t page = pretend_pages_next(&space->index->begins, first);
    return page == PRETEND_NO_PAGE ? NULL : space->index->range[page];
}

struct pretend_range *pretend_reservation_at(CUdeviceptr pointer)
{
    int number = pretend_space_at(pointer);
    struct pretend_range *range =
        number < 0 ? NULL : outermost(&spaces[number], page_of(&spaces[number], pointer));
    return range && range->kind == PRETEND_RESERVATION && pointer - range->base < range->span
               ? range
               : NULL;
}

int pretend_range_begins_in(CUdeviceptr pointer, uint64_t bytes)
{
    const struct space *space = &spaces[pretend_space_at(pointer)];
    uint32_t next = pretend_pages_next(&space->index->begins, page_of(space, pointer));
    return next != PRETEND_NO_PAGE && address_of(space, next) < pointer + bytes;
}

/* Closed memory is opened where it is written, in steps. */
static int open_pages(const struct space *space, CUdeviceptr pointer, uint64_t bytes)
{
    if (space->backing == BACKING_OPEN)
        return 1;
    if (space->backing == BACKING_NONE)
        return 0;
    CUdeviceptr first = pointer / STEP_BYTES * STEP_BYTES;
    CUdeviceptr end = pretend_round_up(pointer + bytes, STEP_BYTES);
    return pretend_system.protect((void *)(uintptr_t)first, end - first, PROT_READ | PROT_WRITE) ==
           0;
}

int pretend_space_open(CUdeviceptr pointer, uint64_t bytes)
{
    return open_pages(&spaces[pretend_space_at(pointer)], pointer, bytes);
}

int pretend_written_add(CUdeviceptr pointer, uint64_t bytes)
{
    struct space *space = &spaces[pretend_space_at(pointer)];
    if (!open_pages(space, pointer, bytes))
        return 0;
    for (uint32_t page = page_of(space, pointer); page <= page_of(space, pointer + bytes - 1);
         page++)
        pretend_pages_add(&space->index->written, page);
    return 1;
}

int pretend_written_has(CUdeviceptr pointer, uint64_t bytes)
{
    const struct space *space = &spaces[pretend_space_at(pointer)];
    uint32_t next = pretend_pages_next(&space->index->written, page_of(space, pointer));
    return next <= page_of(space, pointer + bytes - 1);
}

int pretend_space_share(CUdeviceptr pointer, uint64_t bytes, int fd, uint64_t offset)
{
    const struct space *space = &spaces[pretend_space_at(pointer)];
    return space->backing != BACKING_NONE &&
           pretend_system.map((void *)(uintptr_t)pointer, bytes, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_FIXED, fd, (off_t)offset) != MAP_FAILED;
}

/* Where even this fails the pages stay shared, and harmless: nobody reads what is not allocated. */
void pretend_space_unshare(CUdeviceptr pointer, uint64_t bytes)
{
    const struct space *space = &spaces[pretend_space_at(pointer)];
    void *at = (void *)(uintptr_t)pointer;
    if (space->backing == BACKING_NONE)
        return;
    pretend_system.map(at, bytes,
                       space->backing == BACKING_OPEN ? PROT_READ | PROT_WRITE : PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    madvise(at, bytes, MADV_NOHUGEPAGE);
    madvise(at, bytes, MADV_DONTDUMP);
}

/* A closed page may be open in parts only: reading it must not fail. */
static void clear_part(const struct space *space, CUdeviceptr from, CUdeviceptr end)
{
    const uint64_t system_page = 4096;
    CUdeviceptr first = pretend_round_up(from, system_page);
    CUdeviceptr last = end / system_page * system_page;
    if (first < last && end - from > CLEARED_BYTES)
        madvise((void *)(uintptr_t)first, last - first, MADV_DONTNEED);
    else
        first = last = from;
    if (!open_pages(space, from, end - from))
        return;
    if (from < first)
        memset((void *)(uintptr_t)from, 0, first - from);
    if (last < end)
        memset((void *)(uintptr_t)last, 0, end - last);
}

void pretend_written_clear(CUdeviceptr pointer, uint64_t bytes)
{
    struct space *space = &spaces[pretend_space_at(pointer)];
    struct pretend_pages *written = &space->index->written;
    const CUdeviceptr end = pointer + bytes;
    for (uint32_t page = pretend_pages_next(written, page_of(space, pointer));
         page != PRETEND_NO_PAGE && address_of(space, page) < end;
         page = pretend_pages_next(written, page + 1)) {
        CUdeviceptr from = address_of(space, page);
        CUdeviceptr to = from + PRETEND_PAGE;
        if (from >= pointer && to <= end)
            pretend_pages_remove(written, page);
        clear_part(space, from > pointer ? from : pointer, to < end ? to : end);
    }
}
