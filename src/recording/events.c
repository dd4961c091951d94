/* SPDX-License-Identifier: MIT */
/* Decoding events, block by block. */
#include <stdlib.h>
#include <string.h>

#include <memtally/error_code.h>

#include "base/varint.h"
#include "recording/blocks.h"
#include "recording/events.h"

/* How many plain varints follow the delta, by op; the rest of an event is decoded by hand. */
static int n_fields_of(enum mt_event_op op)
{
    switch (op) {
    case MT_EVENT_SCOPE_END:
        return 0;
    case MT_EVENT_FREE:
    case MT_EVENT_SAMPLE_FREE:
    case MT_EVENT_BUFFER_FREE:
    case MT_EVENT_MARK:
    case MT_EVENT_LOOK:
    case MT_EVENT_CLOCK:
    case MT_EVENT_DEVICE_HELD:
    case MT_EVENT_DEVICE_RESET:
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
    case MT_EVENT_DEVICE_FREE:
    case MT_EVENT_DEVICE_UNMAP:
    case MT_EVENT_DEVICE_CALLER:
    case MT_EVENT_DEVICE_OTHERS:
        return 2;
    case MT_EVENT_ALLOC:
    case MT_EVENT_SAMPLE_ALLOC:
    case MT_EVENT_MADVISE:
    case MT_EVENT_FTRUNCATE:
    case MT_EVENT_THREAD:
    case MT_EVENT_PICTURE_END:
    case MT_EVENT_PROCESS_END:
    case MT_EVENT_PROCESS_SAMPLE:
    case MT_EVENT_STACK:
    case MT_EVENT_DEVICE_MAP:
    case MT_EVENT_DEVICE_USED:
    case MT_EVENT_DEVICE_POOL:
        return 3;
    case MT_EVENT_LABEL:
    case MT_EVENT_LABEL_BLOCK:
    case MT_EVENT_TOTALS:
    case MT_EVENT_PICTURE_BEGIN:
    case MT_EVENT_PROCESS:
    case MT_EVENT_DEVICE:
        return 4;
    case MT_EVENT_MREMAP:
    case MT_EVENT_DEVICE_ALLOC:
    case MT_EVENT_DEVICE_REFUSED:
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
    *cursor = (struct mt_cursor){.file = file, .most_bytes = MT_BLOCK_BYTES};
    mt_cursor_move(cursor, first_block, end_block);
}

void mt_cursor_move(struct mt_cursor *cursor, size_t first_block, size_t end_block)
{
    cursor->block = cursor->first_block = first_block;
    cursor->end_block = cursor->file->blocks ? end_block : first_block;
    cursor->at = cursor->end = cursor->buffer;
    cursor->left = 0;
    cursor->torn = 0;
}

void mt_cursor_finish(struct mt_cursor *cursor)
{
    free(cursor->buffer);
    cursor->buffer = NULL;
    cursor->room = 0;
}

static int make_room(struct mt_cursor *cursor, size_t length)
{
    if (length <= cursor->room && cursor->buffer)
        return 0;
    free(cursor->buffer);
    cursor->room = 0;
    cursor->buffer = malloc(length + 1);
    if (!cursor->buffer)
        return MT_ENOMEM;
    cursor->room = length;
    return 0;
}

/* Puts the window over the last `left` bytes of the block, up to `most` of them. */
static void load_window(struct mt_cursor *cursor, size_t left, size_t most)
{
    const struct mt_block *block = &cursor->file->blocks[cursor->block - 1];
    size_t length = left < most ? left : most;
    uint64_t offset = block->offset + sizeof block->header + (block->header.used - left);
    int result = make_room(cursor, length);
    if (result == 0 && mt_file_read(cursor->file, offset, cursor->buffer, length) != (long)length)
        result = MT_EIO;
    cursor->failed = result;
    cursor->left = result < 0 ? 0 : left - length;
    cursor->at = cursor->buffer;
    cursor->end = result < 0 ? cursor->at : cursor->at + length;
}

static void enter_block(struct mt_cursor *cursor)
{
    const struct mt_block *block = &cursor->file->blocks[cursor->block];
    if (cursor->block > cursor->first_block) {
        const struct mt_block_header *last = &block[-1].header;
        if (block->header.stream != last->stream)
            cursor->torn = 0;
        else if (block->header.sequence != last->sequence + 1 || !last->used)
            cursor->torn = 1; /* of a block without events nothing is left when it is packed */
    }
    cursor->block++;
    cursor->ticks = block->header.start_ticks;
    cursor->heap_unit = 0;
    load_window(cursor, block->header.used, cursor->most_bytes);
}

static int get_fields(const uint8_t **at, const uint8_t *end, struct mt_event *event, int first,
                      int n)
{
    for (int i = first; i < first + n; i++)
        if (!mt_varint_next(at, end, &event->field[i]))
            return 0;
    return 1;
}

static int get_heap_event(struct mt_cursor *cursor, struct mt_event *event)
{
    uint64_t difference;
    if (!mt_varint_next(&cursor->at, cursor->end, &difference))
        return 0;
    cursor->heap_unit += (uint64_t)mt_unzigzag(difference);
    event->field[0] = cursor->heap_unit * MT_HEAP_UNIT;
    int is_free = event->op == MT_EVENT_FREE || event->op == MT_EVENT_SAMPLE_FREE;
    return is_free || get_fields(&cursor->at, cursor->end, event, 1, 2);
}

static int get_bytes(const uint8_t **at, const uint8_t *end, struct mt_event *event,
                     uint64_t length)
{
    if (length > (uint64_t)(end - *at))
        return 0;
    event->bytes = *at;
    event->length = (size_t)length;
    *at += length;
    return 1;
}

/* Passes over `n` varints, which stay in event->bytes. */
static int get_varints(const uint8_t **at, const uint8_t *end, struct mt_event *event, uint64_t n)
{
    uint64_t value;
    event->bytes = *at;
    if (n > (uint64_t)(end - *at))
        return 0;
    for (uint64_t i = 0; i < n; i++)
        if (!mt_varint_get(at, end, &value))
            return 0;
    event->length = (size_t)(*at - event->bytes);
    return 1;
}

static int is_skipped(enum mt_event_op op)
{
    return op >= MT_EVENT_SKIPPED_FROM && op <= MT_EVENT_SKIPPED_TO;
}

int mt_event_body_get(const uint8_t **at, const uint8_t *end, struct mt_event *event)
{
    if (is_skipped(event->op))
        return get_fields(at, end, event, 0, 1) && get_bytes(at, end, event, event->field[0]);
    int n = n_fields_of(event->op);
    if (n < 0 || !get_fields(at, end, event, 0, n))
        return 0;
    switch (event->op) {
    case MT_EVENT_STRING:
    case MT_EVENT_PICTURE_TEXT:
    case MT_EVENT_MACHINE:
        return get_bytes(at, end, event, event->field[1]);
    case MT_EVENT_STACK:
        return event->field[2] <= MT_MAX_FRAMES && get_varints(at, end, event, event->field[2]);
    case MT_EVENT_PICTURE_RUNS:
        return event->field[0] <= MT_BLOCK_BYTES &&
               get_varints(at, end, event, 3 * event->field[0]);
    default:
        return 1;
    }
}

size_t mt_event_body_most(const struct mt_event *event)
{
    return MT_EVENT_FIELDS * MT_VARINT_MAX + event->length;
}

uint8_t *mt_event_body_put(const struct mt_event *event, uint8_t *at)
{
    int n = is_skipped(event->op) ? 1 : n_fields_of(event->op);
    for (int i = 0; i < n; i++)
        at = mt_varint_put(at, event->field[i]);
    if (event->length)
        memcpy(at, event->bytes, event->length);
    return at + event->length;
}

static int get_event(struct mt_cursor *cursor, struct mt_event *event)
{
    uint64_t delta;
    *event = (struct mt_event){.op = (enum mt_event_op) * cursor->at++};
    event->block = cursor->block - 1;
    event->stream = cursor->file->blocks[event->block].header.stream;
    if (!mt_varint_next(&cursor->at, cursor->end, &delta) || delta > UINT64_MAX - cursor->ticks)
        return 0;
    cursor->ticks += delta;
    event->ticks = cursor->ticks;
    if (event->op >= MT_EVENT_ALLOC && event->op <= MT_EVENT_SAMPLE_FREE)
        return get_heap_event(cursor, event);
    return mt_event_body_get(&cursor->at, cursor->end, event);
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

/* Decodes the next event. One that the window's end cuts is read again from a larger window. */
static int get_whole_event(struct mt_cursor *cursor, struct mt_event *event)
{
    const uint8_t *at = cursor->at;
    uint64_t ticks = cursor->ticks;
    uint64_t heap_unit = cursor->heap_unit;
    if (get_event(cursor, event))
        return 1;
    if (!cursor->left)
        return 0;
    cursor->ticks = ticks;
    cursor->heap_unit = heap_unit;
    load_window(cursor, cursor->left + (size_t)(cursor->end - at), MT_BLOCK_BYTES);
    return !cursor->failed && get_event(cursor, event);
}

int mt_cursor_next(struct mt_cursor *cursor, struct mt_event *event)
{
    while (!cursor->failed) {
        if (cursor->at == cursor->end && cursor->left) {
            load_window(cursor, cursor->left, cursor->most_bytes);
        } else if (cursor->at == cursor->end) {
            if (cursor->block == cursor->end_block)
                return 0;
            enter_block(cursor);
        } else if (get_whole_event(cursor, event)) {
            if (!is_torn(cursor, event))
                return 1;
        } else if (!cursor->failed) {
            cursor->blocks_bad++;
            cursor->torn = 1;
            cursor->at = cursor->end; /* the rest of a block that breaks the grammar is lost */
            cursor->left = 0;
        }
    }
    return 0;
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
