/* SPDX-License-Identifier: MIT */
/* The frames of a packed recording back into blocks of streams, as if the file had been read before
 * it was packed. */
#include <stdlib.h>
#include <string.h>

#include "base/varint.h"
#include "recording/blocks.h"
#include "recording/events.h"
#include "recording/frame.h"

/* What a block may grow to: without their addresses its events are shorter in a frame. */
#define PART_MOST (4 * MT_BLOCK_BYTES)

/* A block, or what is left of it where a frame before was lost. */
struct part {
    struct mt_block_header header;
    uint8_t *bytes;
    size_t n;
    size_t capacity;
    uint64_t ticks;
    uint64_t unit;
    uint64_t offset; /* of the frame that it began in */
    int torn;        /* something before it is missing */
};

/* Where a stream stands. */
struct lane {
    uint32_t stream;
    uint32_t part;  /* + 1; 0: an empty place in the table */
    uint32_t frame; /* that named it last, + 1 */
};

/* Invariant: n_places is 0 or a power of two, and at least twice n_lanes. */
struct unpacking {
    struct mt_record_file *file;
    struct mt_frame_reader *reader;
    struct part *parts;
    size_t n_parts;
    size_t capacity;
    struct lane *lanes;
    size_t n_lanes;
    size_t n_places;
    uint32_t frame;      /* the one being read, + 1 */
    uint32_t lost_frame; /* the last that could not be read, + 1 */
    uint64_t offset;
};

static struct lane *place_of(const struct unpacking *unpacking, uint32_t stream)
{
    size_t at = (stream * 0x9e3779b1u >> 4) & (unpacking->n_places - 1);
    while (unpacking->lanes[at].part && unpacking->lanes[at].stream != stream)
        at = (at + 1) & (unpacking->n_places - 1);
    return &unpacking->lanes[at];
}

static int grow_lanes(struct unpacking *unpacking)
{
    struct lane *old = unpacking->lanes;
    size_t n = unpacking->n_places;
    if (2 * (unpacking->n_lanes + 1) <= n)
        return 1;
    unpacking->lanes = calloc(n ? 2 * n : 64, sizeof *old);
    if (!unpacking->lanes) {
        unpacking->lanes = old;
        return MT_ENOMEM;
    }
    unpacking->n_places = n ? 2 * n : 64;
    for (size_t i = 0; i < n; i++)
        if (old[i].part)
            *place_of(unpacking, old[i].stream) = old[i];
    free(old);
    return 1;
}

static int add_part(struct unpacking *unpacking, const struct mt_block_header *header, int torn)
{
    if (unpacking->n_parts == unpacking->capacity) {
        size_t more = unpacking->capacity ? 2 * unpacking->capacity : 64;
        struct part *grown = realloc(unpacking->parts, more * sizeof *grown);
        if (!grown)
            return MT_ENOMEM;
        unpacking->parts = grown;
        unpacking->capacity = more;
    }
    unpacking->parts[unpacking->n_parts++] =
        (struct part){.header = *header, .offset = unpacking->offset, .torn = torn};
    return 1;
}

/* A block begins, or goes on: in the same part, unless something of it was lost. */
static int enter_part(struct unpacking *unpacking, const struct mt_event *event)
{
    struct mt_block_header header;
    memcpy(&header, event->bytes, sizeof header);
    if (header.stream != event->stream || unpacking->n_parts >= UINT32_MAX - 1)
        return -1;
    if (grow_lanes(unpacking) < 0)
        return MT_ENOMEM;
    struct lane *lane = place_of(unpacking, event->stream);
    int more = (uint32_t)event->op == MT_FRAME_MORE;
    const struct part *part = lane->part ? &unpacking->parts[lane->part - 1] : NULL;
    int whole =
        part && part->header.sequence == header.sequence && lane->frame > unpacking->lost_frame;
    if (!more || !whole) {
        unpacking->n_lanes += !lane->part;
        if (add_part(unpacking, &header, more) < 0)
            return MT_ENOMEM;
        lane->stream = event->stream;
        lane->part = (uint32_t)unpacking->n_parts;
    }
    lane->frame = unpacking->frame;
    return 1;
}

/* Returns 1, 0 where the part is larger than any, or MT_ENOMEM. */
static int make_room(struct part *part, size_t length)
{
    if (part->capacity - part->n >= length)
        return 1;
    size_t before = part->header.used < MT_BLOCK_BYTES ? part->header.used : MT_BLOCK_BYTES;
    size_t more = (part->capacity ? 2 * part->capacity : before) + length;
    if (part->n + length > PART_MOST)
        return 0;
    uint8_t *grown = realloc(part->bytes, more);
    if (!grown)
        return MT_ENOMEM;
    part->bytes = grown;
    part->capacity = more;
    return 1;
}

static int is_of_heap(enum mt_event_op op)
{
    return op >= MT_EVENT_ALLOC && op <= MT_EVENT_SAMPLE_FREE;
}

static uint8_t *put_heap_event(struct part *part, const struct mt_event *event, uint8_t *at)
{
    uint64_t unit = event->field[0] / MT_HEAP_UNIT;
    at = mt_varint_put(at, mt_zigzag((int64_t)(unit - part->unit)));
    part->unit = unit;
    if (event->op == MT_EVENT_FREE || event->op == MT_EVENT_SAMPLE_FREE)
        return at;
    at = mt_varint_put(at, event->field[1]);
    return mt_varint_put(at, event->field[2]);
}

static int add_event(struct unpacking *unpacking, const struct mt_event *event)
{
    struct lane *lane = unpacking->n_places ? place_of(unpacking, event->stream) : NULL;
    if (!lane || !lane->part || lane->frame != unpacking->frame)
        return -1;
    struct part *part = &unpacking->parts[lane->part - 1];
    int result = make_room(part, 1 + MT_VARINT_MAX + mt_event_body_most(event));
    if (result <= 0)
        return result < 0 ? result : -1;
    if (!part->n)
        part->header.start_ticks = part->ticks = event->ticks;
    uint8_t *at = part->bytes + part->n;
    *at++ = (uint8_t)event->op;
    at = mt_varint_put(at, event->ticks > part->ticks ? event->ticks - part->ticks : 0);
    at = is_of_heap(event->op) ? put_heap_event(part, event, at) : mt_event_body_put(event, at);
    part->ticks = event->ticks > part->ticks ? event->ticks : part->ticks;
    part->n = (size_t)(at - part->bytes);
    return 1;
}

/* Returns 1, 0 where the frame is damaged (what came before stays), or MT_ENOMEM. */
static int read_frame(struct unpacking *unpacking, const uint8_t *at)
{
    struct mt_event event;
    int is_block;
    int result = mt_frame_open(unpacking->reader, at);
    if (result <= 0)
        return result;
    while ((result = mt_frame_next(unpacking->reader, &event, &is_block)) > 0) {
        result = is_block ? enter_part(unpacking, &event) : add_event(unpacking, &event);
        if (result < 0)
            break;
    }
    return result == 0 ? 1 : result == MT_ENOMEM ? MT_ENOMEM : 0;
}

/* Where the next frame that is whole begins after `at`, or the end of the data. */
static size_t next_frame(const struct mt_record_file *file, size_t at)
{
    static const uint32_t magic = MT_FRAME_MAGIC;
    while (++at < file->data_bytes) {
        const uint8_t *found = memmem(file->data + at, file->data_bytes - at, &magic, sizeof magic);
        if (!found)
            break;
        at = (size_t)(found - file->data);
        if (mt_frame_check(found, file->data_bytes - at))
            return at;
    }
    return file->data_bytes;
}

/* `blocks_backed` says how many frames there were. */
static int read_frames(struct unpacking *unpacking)
{
    struct mt_record_file *file = unpacking->file;
    uint32_t n_whole = 0;
    for (size_t at = MT_HEADER_BYTES; at < file->data_bytes;) {
        size_t length = mt_frame_check(file->data + at, file->data_bytes - at);
        int result = 0;
        unpacking->frame++;
        unpacking->offset = at;
        if (length)
            result = read_frame(unpacking, file->data + at);
        if (result < 0)
            return result;
        n_whole += (uint32_t)result;
        if (!result) {
            mt_note_bad(file, at);
            unpacking->lost_frame = unpacking->frame;
        }
        at = length ? at + length : next_frame(file, at);
    }
    uint64_t n_lost =
        file->header.blocks_backed > n_whole ? file->header.blocks_backed - n_whole : 0;
    while (file->blocks_bad < n_lost && file->blocks_bad < UINT32_MAX)
        mt_note_bad(file, file->data_bytes);
    return 0;
}

static int by_stream(const void *a, const void *b)
{
    const struct mt_block *x = a;
    const struct mt_block *y = b;
    if (x->header.stream != y->header.stream)
        return x->header.stream < y->header.stream ? -1 : 1;
    if (x->header.sequence != y->header.sequence)
        return x->header.sequence < y->header.sequence ? -1 : 1;
    return x->events < y->events ? -1 : x->events > y->events;
}

/* Numbers the blocks of each stream anew. What is missing leaves a number out. */
static void number_blocks(struct mt_record_file *file, const struct part *parts)
{
    uint32_t before = 0;
    for (size_t i = 0; i < file->n_blocks; i++) {
        struct mt_block_header *header = &file->blocks[i].header;
        const struct mt_block_header *last = i ? &file->blocks[i - 1].header : NULL;
        const uint32_t number = header->sequence;
        int first = !last || last->stream != header->stream;
        int gap = parts[header->reserved].torn || number != (first ? 0 : before + 1);
        header->sequence = (first ? 0 : last->sequence + 1) + (uint32_t)gap;
        header->reserved = 0;
        before = number;
    }
}

/* The parts one behind the other, in the place of the frames. */
static int lay_out(struct unpacking *unpacking)
{
    struct mt_record_file *file = unpacking->file;
    size_t length = 1;
    for (size_t i = 0; i < unpacking->n_parts; i++)
        length += unpacking->parts[i].n;
    uint8_t *bytes = malloc(length);
    file->blocks = calloc(unpacking->n_parts + 1, sizeof *file->blocks);
    if (!bytes || !file->blocks) {
        free(bytes);
        return MT_ENOMEM;
    }
    uint8_t *at = bytes;
    for (size_t i = 0; i < unpacking->n_parts; i++) {
        const struct part *part = &unpacking->parts[i];
        int open = part->header.sealed != MT_BLOCK_SEALED;
        file->blocks[i] = (struct mt_block){part->header, at, part->offset, open};
        file->blocks[i].header.used = (uint32_t)part->n;
        file->blocks[i].header.reserved = (uint32_t)i;
        file->blocks_open += (size_t)open;
        if (part->n)
            memcpy(at, part->bytes, part->n);
        at += part->n;
    }
    file->n_blocks = unpacking->n_parts;
    qsort(file->blocks, file->n_blocks, sizeof *file->blocks, by_stream);
    number_blocks(file, unpacking->parts);
    free(file->data);
    file->data = bytes;
    file->data_bytes = length;
    return 0;
}

int mt_find_packed_blocks(struct mt_record_file *file)
{
    struct unpacking unpacking = {.file = file};
    int result = mt_frame_reader_create(&unpacking.reader);
    if (result == 0)
        result = read_frames(&unpacking);
    if (result == 0)
        result = lay_out(&unpacking);
    mt_frame_reader_destroy(unpacking.reader);
    for (size_t i = 0; i < unpacking.n_parts; i++)
        free(unpacking.parts[i].bytes);
    free(unpacking.parts);
    free(unpacking.lanes);
    return result;
}
