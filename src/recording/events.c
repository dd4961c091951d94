/* SPDX-License-Identifier: MIT */
/* Decoding events, and merging the streams of a file by time. */
#include <stdlib.h>
#include <string.h>

#include "base/varint.h"
#include "recording/reader.h"

/* How many plain varints follow the delta, by op; the rest of an event is decoded by hand. */
static int n_fields_of(enum mt_event_op op)
{
    switch (op) {
    case MT_EVENT_SCOPE_END:
        return 0;
    case MT_EVENT_BUFFER_FREE:
    case MT_EVENT_MARK:
    case MT_EVENT_LOOK:
    case MT_EVENT_CLOCK:
        return 1;
    case MT_EVENT_HEAP_REGION:
    case MT_EVENT_MUNMAP:
    case MT_EVENT_MEMFD:
    case MT_EVENT_BUFFER_USAGE:
    case MT_EVENT_SCOPE_BEGIN:
    case MT_EVENT_UNLABEL:
    case MT_EVENT_SELF:
    case MT_EVENT_OUTSIDE_ONLY:
    case MT_EVENT_STRING:
    case MT_EVENT_PICTURE_TEXT:
    case MT_EVENT_MACHINE:
        return 2;
    case MT_EVENT_MADVISE:
    case MT_EVENT_FTRUNCATE:
    case MT_EVENT_THREAD:
    case MT_EVENT_PICTURE_END:
    case MT_EVENT_PROCESS_END:
    case MT_EVENT_PROCESS_SAMPLE:
    case MT_EVENT_STACK:
        return 3;
    case MT_EVENT_LABEL:
    case MT_EVENT_TOTALS:
    case MT_EVENT_PICTURE_BEGIN:
    case MT_EVENT_PROCESS:
        return 4;
    case MT_EVENT_MREMAP:
        return 5;
    case MT_EVENT_MMAP:
    case MT_EVENT_BUFFER_ALLOC:
        return 7;
    case MT_EVENT_PICTURE_RUNS:
        return 1;
    default:
        return -1;
    }
}

void mt_cursor_init(struct mt_cursor *cursor, const struct mt_record_file *file, size_t first_block,
                    size_t end_block)
{
    *cursor = (struct mt_cursor){.file = file, .block = first_block, .end_block = end_block};
}

static void enter_block(struct mt_cursor *cursor)
{
    const struct mt_block *block = &cursor->file->blocks[cursor->block];
    if (cursor->end) {
        const struct mt_block_header *last = &block[-1].header;
        if (block->header.stream != last->stream)
            cursor->torn = 0;
        else if (block->header.sequence != last->sequence + 1)
            cursor->torn = 1;
    }
    cursor->block++;
    cursor->at = block->events;
    cursor->end = block->events + block->header.used;
    cursor->ticks = block->header.start_ticks;
    cursor->heap_unit = 0;
}

static int get_fields(struct mt_cursor *cursor, struct mt_event *event, int first, int n)
{
    for (int i = first; i < first + n; i++)
        if (!mt_varint_get(&cursor->at, cursor->end, &event->field[i]))
            return 0;
    return 1;
}

static int get_heap_event(struct mt_cursor *cursor, struct mt_event *event)
{
    uint64_t difference;
    if (!mt_varint_get(&cursor->at, cursor->end, &difference))
        return 0;
    cursor->heap_unit += (uint64_t)mt_unzigzag(difference);
    event->field[0] = cursor->heap_unit * MT_HEAP_UNIT;
    int is_free = event->op == MT_EVENT_FREE || event->op == MT_EVENT_SAMPLE_FREE;
    return is_free || get_fields(cursor, event, 1, 2);
}

static int get_bytes(struct mt_cursor *cursor, struct mt_event *event, uint64_t length)
{
    if (length > (uint64_t)(cursor->end - cursor->at))
        return 0;
    event->bytes = cursor->at;
    event->length = (size_t)length;
    cursor->at += length;
    return 1;
}

/* Passes over `n` varints, which stay in event->bytes. */
static int get_varints(struct mt_cursor *cursor, struct mt_event *event, uint64_t n)
{
    uint64_t value;
    event->bytes = cursor->at;
    if (n > (uint64_t)(cursor->end - cursor->at))
        return 0;
    for (uint64_t i = 0; i < n; i++)
        if (!mt_varint_get(&cursor->at, cursor->end, &value))
            return 0;
    event->length = (size_t)(cursor->at - event->bytes);
    return 1;
}

static int get_event(struct mt_cursor *cursor, struct mt_event *event)
{
    uint64_t delta;
    *event = (struct mt_event){.op = (enum mt_event_op) * cursor->at++};
    event->stream = cursor->file->blocks[cursor->block - 1].header.stream;
    if (!mt_varint_get(&cursor->at, cursor->end, &delta) || delta > UINT64_MAX - cursor->ticks)
        return 0;
    cursor->ticks += delta;
    event->ticks = cursor->ticks;
    if (event->op >= MT_EVENT_ALLOC && event->op <= MT_EVENT_SAMPLE_FREE)
        return get_heap_event(cursor, event);
    if (event->op >= MT_EVENT_SKIPPED_FROM && event->op <= MT_EVENT_SKIPPED_TO)
        return get_fields(cursor, event, 0, 1) && get_bytes(cursor, event, event->field[0]);
    int n = n_fields_of(event->op);
    if (n < 0 || !get_fields(cursor, event, 0, n))
        return 0;
    switch (event->op) {
    case MT_EVENT_STRING:
    case MT_EVENT_PICTURE_TEXT:
    case MT_EVENT_MACHINE:
        return get_bytes(cursor, event, event->field[1]);
    case MT_EVENT_STACK:
        return event->field[2] <= MT_MAX_FRAMES && get_varints(cursor, event, event->field[2]);
    case MT_EVENT_PICTURE_RUNS:
        return event->field[0] <= MT_BLOCK_BYTES && get_varints(cursor, event, 3 * event->field[0]);
    default:
        return 1;
    }
}

/* Whether the event belongs to a picture part of which is missing. */
static int is_torn(struct mt_cursor *cursor, const struct mt_event *event)
{
    if (event->op == MT_EVENT_PICTURE_BEGIN)
        cursor->torn = 0;
    return cursor->torn &&
           (event->op == MT_EVENT_PICTURE_TEXT || event->op == MT_EVENT_PICTURE_RUNS ||
            event->op == MT_EVENT_PICTURE_END);
}

int mt_cursor_next(struct mt_cursor *cursor, struct mt_event *event)
{
    for (;;) {
        while (cursor->at == cursor->end) {
            if (cursor->block == cursor->end_block)
                return 0;
            enter_block(cursor);
        }
        if (!get_event(cursor, event)) {
            cursor->blocks_bad++;
            cursor->torn = 1;
            cursor->at = cursor->end; /* the rest of a block that breaks the grammar is lost */
        } else if (!is_torn(cursor, event)) {
            return 1;
        }
    }
}

int mt_event_skipped_fields(const struct mt_event *event, uint64_t *fields, size_t n_fields)
{
    const uint8_t *at = event->bytes;
    const uint8_t *end = at + event->length;
    for (size_t i = 0; i < n_fields; i++)
        if (!mt_varint_get(&at, end, &fields[i]))
            return 0;
    return 1;
}

size_t mt_event_frames(const struct mt_event *event, uint64_t frames[MT_MAX_FRAMES])
{
    const uint8_t *at = event->bytes;
    const uint8_t *end = at + event->length;
    uint64_t last = 0;
    size_t n = 0;
    uint64_t difference;
    while (n < event->field[2] && n < MT_MAX_FRAMES && mt_varint_get(&at, end, &difference)) {
        last += (uint64_t)mt_unzigzag(difference);
        frames[n++] = last;
    }
    return n;
}

void mt_runs_init(struct mt_runs *runs, const struct mt_event *event)
{
    *runs = (struct mt_runs){event->bytes, event->bytes + event->length, event->field[0]};
}

int mt_runs_next(struct mt_runs *runs, uint64_t *page, struct mt_run_pages *run)
{
    uint64_t gap;
    if (!runs->left || !mt_varint_get(&runs->at, runs->end, &gap) ||
        !mt_varint_get(&runs->at, runs->end, &run->n_pages) ||
        !mt_varint_get(&runs->at, runs->end, &run->flags))
        return 0;
    const uint64_t most = (uint64_t)1 << 52;
    if (gap >= most || run->n_pages >= most || *page >= most)
        return 0;
    runs->left--;
    run->first_page = *page + gap;
    *page = run->first_page + run->n_pages;
    return 1;
}

/* One stream of a merge with its next event. */
struct lane {
    struct mt_cursor cursor;
    struct mt_event event;
};

/* Invariant: heap[0, n) is a binary heap of lanes by comes_before(). */
struct mt_merge {
    struct lane *lanes;
    struct lane **heap;
    size_t n;
};

static int is_free(const struct mt_event *event)
{
    return event->op == MT_EVENT_FREE || event->op == MT_EVENT_SAMPLE_FREE ||
           event->op == MT_EVENT_MUNMAP || event->op == MT_EVENT_BUFFER_FREE;
}

static int comes_before(const struct lane *a, const struct lane *b)
{
    if (a->event.ticks != b->event.ticks)
        return a->event.ticks < b->event.ticks;
    if (is_free(&a->event) != is_free(&b->event))
        return is_free(&a->event);
    return a->event.stream < b->event.stream;
}

static void sift_down(struct mt_merge *merge, size_t at)
{
    for (;;) {
        size_t first = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < merge->n; child++)
            if (comes_before(merge->heap[child], merge->heap[first]))
                first = child;
        if (first == at)
            return;
        struct lane *lane = merge->heap[at];
        merge->heap[at] = merge->heap[first];
        merge->heap[first] = lane;
        at = first;
    }
}

static size_t count_streams(const struct mt_record_file *file)
{
    size_t n = 0;
    for (size_t i = 0; i < file->n_blocks; i++)
        n += i == 0 || file->blocks[i].header.stream != file->blocks[i - 1].header.stream;
    return n;
}

static void fill_lanes(struct mt_merge *merge, const struct mt_record_file *file)
{
    size_t first = 0;
    for (size_t lane = 0; first < file->n_blocks; lane++) {
        size_t end = first + 1;
        while (end < file->n_blocks &&
               file->blocks[end].header.stream == file->blocks[first].header.stream)
            end++;
        mt_cursor_init(&merge->lanes[lane].cursor, file, first, end);
        if (mt_cursor_next(&merge->lanes[lane].cursor, &merge->lanes[lane].event))
            merge->heap[merge->n++] = &merge->lanes[lane];
        first = end;
    }
    for (size_t at = merge->n / 2; at-- > 0;)
        sift_down(merge, at);
}

int mt_merge_create(const struct mt_record_file *file, struct mt_merge **merge)
{
    size_t n = count_streams(file) + 1;
    struct mt_merge *made = calloc(1, sizeof *made);
    if (made) {
        made->lanes = calloc(n, sizeof *made->lanes);
        made->heap = calloc(n, sizeof *made->heap);
    }
    if (!made || !made->lanes || !made->heap) {
        mt_merge_destroy(made);
        return MT_ENOMEM;
    }
    fill_lanes(made, file);
    *merge = made;
    return 0;
}

void mt_merge_destroy(struct mt_merge *merge)
{
    if (!merge)
        return;
    free(merge->lanes);
    free(merge->heap);
    free(merge);
}

int mt_merge_next(struct mt_merge *merge, struct mt_event *event)
{
    if (!merge->n)
        return 0;
    struct lane *lane = merge->heap[0];
    *event = lane->event;
    if (!mt_cursor_next(&lane->cursor, &lane->event))
        merge->heap[0] = merge->heap[--merge->n];
    sift_down(merge, 0);
    return 1;
}
