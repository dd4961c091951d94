/* SPDX-License-Identifier: MIT */
/* Writing frames of a packed recording. What a frame says of its blocks is known when it ends:
 * events are gathered first and then put into columns. */
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include <memtally/error_code.h>

#include "base/array.h"
#include "base/crc32c.h"
#include "base/invariant.h"
#include "base/varint.h"
#include "recording/events.h"
#include "recording/frame.h"

#define LEVEL 3

/* A block from here on may lie in a mapping of its own, which a picture shows. */
#define PLACED_FROM_BYTES 65536u

/* An event of a frame under way. */
struct item {
    uint64_t ticks;
    uint64_t place; /* a block's address in MT_HEAP_UNIT; where the bytes of another event begin */
    uint64_t size;  /* of a block; of the bytes */
    uint32_t stack;
    uint32_t slot;
    uint32_t stream;
    uint8_t op; /* enum mt_frame_op */
};

struct bytes {
    uint8_t *at;
    size_t n;
    size_t capacity;
};

/* A block that is alive: by its address. An empty one has item 0. */
struct live {
    uint64_t key;
    uint32_t item; /* its ALLOC's index + 1 */
};

struct slot {
    uint32_t next_free; /* + 1 */
    uint32_t epoch;     /* n_others when it was allocated */
};

/* Invariant: live_capacity is a power of two, more than twice as many as are alive. */
struct mt_frame_writer {
    uint32_t tick_shift;
    size_t n_events; /* of a frame, at the most */
    uint32_t number;
    struct item *items;
    size_t n_items;
    struct bytes others; /* the bodies of other events, in the order of their items */
    struct live *live;
    size_t live_capacity;
    size_t n_live;
    struct slot *slots;
    size_t n_slots;
    size_t slot_capacity;
    uint32_t free_slot; /* + 1 */
    uint32_t n_others;  /* of which the address of a block may matter to */
    uint32_t *named;    /* for each block of the file: in which frame last, + 1 */
    struct bytes columns[MT_COLUMNS];
    struct bytes out;
    ZSTD_CCtx *zstd;
    uint64_t start_ticks; /* the rest: while columns are written */
    uint64_t ticks;
    uint64_t last_unit;
    uint32_t stream;
    uint32_t stream_before;
    uint64_t sizes[MT_FRAME_CONTEXTS];
};

int mt_frame_writer_create(struct mt_frame_writer **writer, size_t n_blocks, size_t n_events,
                           uint32_t tick_shift)
{
    struct mt_frame_writer *made = calloc(1, sizeof *made);
    if (!made)
        return MT_ENOMEM;
    made->named = calloc(n_blocks + 1, sizeof *made->named);
    made->tick_shift = tick_shift;
    made->n_events = n_events;
    made->live_capacity = 1024;
    made->items = malloc((n_events + 2) * sizeof *made->items);
    made->live = calloc(made->live_capacity, sizeof *made->live);
    made->zstd = ZSTD_createCCtx();
    if (!made->named || !made->items || !made->live || !made->zstd) {
        mt_frame_writer_destroy(made);
        return MT_ENOMEM;
    }
    ZSTD_CCtx_setParameter(made->zstd, ZSTD_c_compressionLevel, LEVEL);
    *writer = made;
    return 0;
}

void mt_frame_writer_destroy(struct mt_frame_writer *writer)
{
    if (!writer)
        return;
    for (size_t i = 0; i < MT_COLUMNS; i++)
        free(writer->columns[i].at);
    free(writer->out.at);
    free(writer->others.at);
    free(writer->items);
    free(writer->live);
    free(writer->slots);
    free(writer->named);
    ZSTD_freeCCtx(writer->zstd);
    free(writer);
}

/* Where `length` more bytes may be put, NULL where there is no memory. */
static uint8_t *room_for(struct bytes *bytes, size_t length)
{
    if (bytes->capacity - bytes->n < length) {
        size_t more = 2 * bytes->capacity + length + 4096;
        uint8_t *grown = realloc(bytes->at, more);
        if (!grown)
            return NULL;
        bytes->at = grown;
        bytes->capacity = more;
    }
    return bytes->at + bytes->n;
}

static size_t home_of(const struct mt_frame_writer *writer, uint64_t key)
{
    uint64_t hash = key * 0x9e3779b97f4a7c15u;
    return (hash ^ hash >> 32) & (writer->live_capacity - 1);
}

/* Where the key is, or would be. */
static size_t find_live(const struct mt_frame_writer *writer, uint64_t key)
{
    size_t at = home_of(writer, key);
    while (writer->live[at].item && writer->live[at].key != key)
        at = (at + 1) & (writer->live_capacity - 1);
    return at;
}

static int grow_live(struct mt_frame_writer *writer)
{
    struct live *old = writer->live;
    size_t n = writer->live_capacity;
    if (2 * (writer->n_live + 1) < n)
        return 0;
    writer->live = calloc(2 * n, sizeof *old);
    if (!writer->live) {
        writer->live = old;
        return MT_ENOMEM;
    }
    writer->live_capacity = 2 * n;
    for (size_t i = 0; i < n; i++)
        if (old[i].item)
            writer->live[find_live(writer, old[i].key)] = old[i];
    MT_HOLDS((writer->live_capacity & (writer->live_capacity - 1)) == 0 &&
             writer->live_capacity > 2 * writer->n_live);
    free(old);
    return 0;
}

/* What stands behind the place moves up, so that no search ends too early. */
static void remove_live(struct mt_frame_writer *writer, size_t at)
{
    const size_t mask = writer->live_capacity - 1;
    writer->n_live--;
    for (size_t next = (at + 1) & mask; writer->live[next].item; next = (next + 1) & mask) {
        size_t home = home_of(writer, writer->live[next].key);
        if (((next - home) & mask) >= ((next - at) & mask)) {
            writer->live[at] = writer->live[next];
            at = next;
        }
    }
    writer->live[at].item = 0;
}

/* Returns a slot, or UINT32_MAX where there is no memory. */
static uint32_t take_slot(struct mt_frame_writer *writer)
{
    uint32_t slot = writer->free_slot;
    if (slot) {
        writer->free_slot = writer->slots[slot - 1].next_free;
        return slot - 1;
    }
    if (mt_array_reserve(writer->slots, writer->n_slots, writer->slot_capacity, 1024) < 0)
        return UINT32_MAX;
    return (uint32_t)writer->n_slots++;
}

static uint64_t key_of(const struct item *item)
{
    return item->place << 1 | (item->op & MT_FRAME_SAMPLE);
}

/* Until it is known better, all blocks are placed. One that lies where another has not ended takes
 * its place: the other is never heard of again. */
static int gather_alloc(struct mt_frame_writer *writer, struct item *item)
{
    if (grow_live(writer) < 0 || (item->slot = take_slot(writer)) == UINT32_MAX)
        return MT_ENOMEM;
    item->op |= MT_FRAME_ALLOC | MT_FRAME_PLACED;
    writer->slots[item->slot].epoch = writer->n_others;
    size_t at = find_live(writer, key_of(item));
    writer->n_live += !writer->live[at].item;
    writer->live[at] = (struct live){key_of(item), (uint32_t)writer->n_items + 1};
    return 0;
}

static void gather_free(struct mt_frame_writer *writer, struct item *item)
{
    size_t at = find_live(writer, key_of(item));
    if (!writer->live[at].item) {
        item->op += MT_FRAME_FREE_AT;
        return;
    }
    struct item *begun = &writer->items[writer->live[at].item - 1];
    struct slot *slot = &writer->slots[begun->slot];
    item->op += MT_FRAME_FREE;
    item->slot = begun->slot;
    if (writer->tick_shift && slot->epoch == writer->n_others && begun->size < PLACED_FROM_BYTES)
        begun->op &= (uint8_t)~MT_FRAME_PLACED;
    slot->next_free = writer->free_slot;
    writer->free_slot = begun->slot + 1;
    remove_live(writer, at);
}

/* Whether the event says something of which the address of a block could matter. */
static int concerns_addresses(enum mt_event_op op)
{
    return op != MT_EVENT_STRING && op != MT_EVENT_STACK && op != MT_EVENT_HEAP_REGION &&
           op != MT_EVENT_CLOCK && op != MT_EVENT_TOTALS;
}

static int gather_other(struct mt_frame_writer *writer, struct item *item,
                        const struct mt_event *event)
{
    uint8_t *at = room_for(&writer->others, mt_event_body_most(event));
    if (!at)
        return MT_ENOMEM;
    item->op = MT_FRAME_OTHER_EVENT;
    item->stack = event->op;
    item->place = writer->others.n;
    item->size = (uint64_t)(mt_event_body_put(event, at) - at);
    writer->others.n += item->size;
    writer->n_others += (uint32_t)concerns_addresses(event->op);
    return 0;
}

/* Names the block that the event is in, where the frame has not said so. */
static int gather_block(struct mt_frame_writer *writer, const struct mt_event *event,
                        const struct mt_block_header *block)
{
    uint32_t *named = &writer->named[event->block];
    if (*named == writer->number + 1)
        return 0;
    uint8_t *at = room_for(&writer->others, sizeof *block);
    if (!at)
        return MT_ENOMEM;
    struct mt_block_header named_block = *block;
    if (block->sealed == MT_BLOCK_OPEN) /* as the process left it */
        named_block.sealed = MT_BLOCK_CUT;
    memcpy(at, &named_block, sizeof named_block);
    writer->items[writer->n_items++] = (struct item){
        .ticks = event->ticks,
        .place = writer->others.n,
        .size = sizeof *block,
        .stream = event->stream,
        .op = *named ? MT_FRAME_MORE : MT_FRAME_BLOCK,
    };
    writer->others.n += sizeof *block;
    *named = writer->number + 1;
    return 0;
}

int mt_frame_add(struct mt_frame_writer *writer, const struct mt_event *event,
                 const struct mt_block_header *block)
{
    if (gather_block(writer, event, block) < 0)
        return MT_ENOMEM;
    int is_sample = event->op == MT_EVENT_SAMPLE_ALLOC || event->op == MT_EVENT_SAMPLE_FREE;
    struct item *item = &writer->items[writer->n_items];
    int result = 0;
    *item = (struct item){
        .ticks = event->ticks,
        .place = event->field[0] / MT_HEAP_UNIT,
        .size = event->field[1],
        .stack = (uint32_t)event->field[2],
        .stream = event->stream,
        .op = is_sample ? MT_FRAME_SAMPLE : 0,
    };
    if (event->op == MT_EVENT_ALLOC || event->op == MT_EVENT_SAMPLE_ALLOC)
        result = event->field[2] > UINT32_MAX ? gather_other(writer, item, event)
                                              : gather_alloc(writer, item);
    else if (event->op == MT_EVENT_FREE || event->op == MT_EVENT_SAMPLE_FREE)
        gather_free(writer, item);
    else
        result = gather_other(writer, item, event);
    writer->n_items += result == 0;
    return result < 0 ? result
                      : writer->n_items >= writer->n_events || writer->others.n >= MT_FRAME_OTHER;
}

/* All columns have room for what an item may take before it is put. */
static int make_room(struct mt_frame_writer *writer, const struct item *item)
{
    for (size_t i = 0; i < MT_COLUMNS; i++)
        if (!room_for(&writer->columns[i], 4 * MT_VARINT_MAX))
            return MT_ENOMEM;
    int has_bytes = item->op >= MT_FRAME_BLOCK && item->op <= MT_FRAME_OTHER_EVENT;
    if (has_bytes && !room_for(&writer->columns[MT_COLUMN_OTHER], item->size + 4 * MT_VARINT_MAX))
        return MT_ENOMEM;
    return 0;
}

static void put_byte(struct mt_frame_writer *writer, enum mt_frame_column column, uint64_t byte)
{
    struct bytes *bytes = &writer->columns[column];
    bytes->at[bytes->n++] = (uint8_t)byte;
}

static void put_varint(struct mt_frame_writer *writer, enum mt_frame_column column, uint64_t value)
{
    struct bytes *bytes = &writer->columns[column];
    bytes->n = (size_t)(mt_varint_put(bytes->at + bytes->n, value) - bytes->at);
}

static void put_stream(struct mt_frame_writer *writer, uint32_t stream)
{
    if (stream == writer->stream)
        return;
    put_byte(writer, MT_COLUMN_OPS,
             stream == writer->stream_before ? MT_FRAME_BACK : MT_FRAME_STREAM);
    if (stream != writer->stream_before)
        put_varint(writer, MT_COLUMN_OTHER, stream);
    writer->stream_before = writer->stream;
    writer->stream = stream;
    writer->ticks += writer->tick_shift != 0;
}

/* The time of a heap event, on which a frame does not lag behind by as much as 1 << tick_shift. */
static void put_time(struct mt_frame_writer *writer, uint64_t ticks)
{
    uint32_t shift = writer->tick_shift;
    uint64_t steps =
        ticks >> shift > writer->ticks >> shift ? (ticks >> shift) - (writer->ticks >> shift) : 0;
    if (!shift) {
        put_varint(writer, MT_COLUMN_TIME, steps);
        writer->ticks += steps;
        return;
    }
    if (!steps)
        return;
    put_byte(writer, MT_COLUMN_OPS, steps == 1 ? MT_FRAME_TIME : MT_FRAME_TIME_BY);
    if (steps > 1)
        put_varint(writer, MT_COLUMN_TIME, steps);
    writer->ticks = ((writer->ticks >> shift) + steps) << shift;
}

static void put_address(struct mt_frame_writer *writer, uint64_t unit)
{
    put_varint(writer, MT_COLUMN_ADDRESS, mt_zigzag((int64_t)(unit - writer->last_unit)));
    writer->last_unit = unit;
}

static void put_size(struct mt_frame_writer *writer, uint64_t size)
{
    uint32_t bits = size ? 64 - (uint32_t)__builtin_clzll(size) : 0;
    put_byte(writer, MT_COLUMN_SIZE_BITS, bits);
    if (bits < 2)
        return;
    uint64_t below = size & (((uint64_t)1 << (bits - 1)) - 1);
    put_byte(writer, MT_COLUMN_SIZE_LOW, below);
    if (bits > 9)
        put_varint(writer, MT_COLUMN_SIZE_HIGH, below >> 8);
}

static void put_alloc(struct mt_frame_writer *writer, const struct item *item)
{
    uint64_t *last = &writer->sizes[mt_frame_context(item->stream, item->stack)];
    int op = item->op | (*last == item->size ? 0 : MT_FRAME_SIZED);
    put_byte(writer, MT_COLUMN_OPS, (uint64_t)op);
    put_byte(writer, MT_COLUMN_STACK_LOW, item->stack);
    put_varint(writer, MT_COLUMN_STACK_HIGH, item->stack >> 8);
    if (op & MT_FRAME_SIZED)
        put_size(writer, item->size);
    if (op & MT_FRAME_PLACED)
        put_address(writer, item->place);
    *last = item->size;
}

static void put_bytes(struct mt_frame_writer *writer, const struct item *item)
{
    struct bytes *other = &writer->columns[MT_COLUMN_OTHER];
    put_byte(writer, MT_COLUMN_OPS, item->op);
    if (item->op == MT_FRAME_OTHER_EVENT) {
        uint64_t delta = item->ticks > writer->ticks ? item->ticks - writer->ticks : 0;
        put_byte(writer, MT_COLUMN_OTHER, item->stack);
        put_varint(writer, MT_COLUMN_OTHER, delta);
        writer->ticks += delta;
    }
    memcpy(other->at + other->n, writer->others.at + item->place, item->size);
    other->n += item->size;
}

static void put_item(struct mt_frame_writer *writer, const struct item *item)
{
    put_stream(writer, item->stream);
    if (item->op <= MT_FRAME_OTHER_EVENT) {
        put_bytes(writer, item);
        return;
    }
    put_time(writer, item->ticks);
    if (item->op < MT_FRAME_FREE) {
        put_alloc(writer, item);
        return;
    }
    put_byte(writer, MT_COLUMN_OPS, item->op);
    if (item->op >= MT_FRAME_FREE_AT) {
        put_address(writer, item->place);
    } else {
        put_byte(writer, MT_COLUMN_SLOT_LOW, item->slot);
        put_varint(writer, MT_COLUMN_SLOT_HIGH, item->slot >> 8);
    }
}

static int put_items(struct mt_frame_writer *writer)
{
    memset(writer->sizes, 0, sizeof writer->sizes);
    writer->ticks = writer->start_ticks = writer->items[0].ticks;
    writer->last_unit = 0;
    writer->stream = writer->stream_before = 0;
    for (size_t i = 0; i < MT_COLUMNS; i++)
        writer->columns[i].n = 0;
    for (size_t i = 0; i < writer->n_items; i++) {
        if (make_room(writer, &writer->items[i]) < 0)
            return MT_ENOMEM;
        put_item(writer, &writer->items[i]);
    }
    return 0;
}

/* What does not become smaller stays as it is. Chance finds short matches in columns of numbers,
 * which cost more than they save. */
static int compress(struct mt_frame_writer *writer, struct mt_frame_header *header)
{
    for (size_t i = 0; i < MT_COLUMNS; i++) {
        const struct bytes *column = &writer->columns[i];
        size_t bound = ZSTD_compressBound(column->n);
        uint8_t *at = room_for(&writer->out, bound);
        if (!at)
            return MT_ENOMEM;
        int has_text = i == MT_COLUMN_OPS || i == MT_COLUMN_OTHER;
        ZSTD_CCtx_setParameter(writer->zstd, ZSTD_c_strategy, has_text ? ZSTD_dfast : ZSTD_fast);
        ZSTD_CCtx_setParameter(writer->zstd, ZSTD_c_minMatch, has_text ? 5 : 7);
        size_t length = ZSTD_compress2(writer->zstd, at, bound, column->at, column->n);
        if (ZSTD_isError(length) || length >= column->n) {
            length = column->n;
            if (length)
                memcpy(at, column->at, length);
        }
        header->column[i].bytes = (uint32_t)column->n;
        header->column[i].packed_bytes = (uint32_t)length;
        writer->out.n += length;
    }
    return 0;
}

static void begin_anew(struct mt_frame_writer *writer)
{
    memset(writer->live, 0, writer->live_capacity * sizeof *writer->live);
    writer->n_live = writer->n_slots = writer->n_items = writer->others.n = 0;
    writer->free_slot = 0;
    writer->number++;
}

int mt_frame_take(struct mt_frame_writer *writer, const uint8_t **bytes, size_t *length)
{
    struct mt_frame_header header = {.magic = MT_FRAME_MAGIC, .number = writer->number};
    writer->out.n = 0;
    *length = 0;
    if (!writer->n_items)
        return 0;
    if (!room_for(&writer->out, sizeof header) || put_items(writer) < 0)
        return MT_ENOMEM;
    header.tick_shift = writer->tick_shift;
    header.start_ticks = writer->start_ticks;
    writer->out.n = sizeof header;
    if (compress(writer, &header) < 0)
        return MT_ENOMEM;
    const size_t checked = offsetof(struct mt_frame_header, number);
    memcpy(writer->out.at, &header, sizeof header);
    header.crc32c = mt_crc32c(0, writer->out.at + checked, writer->out.n - checked);
    memcpy(writer->out.at, &header, sizeof header);
    *bytes = writer->out.at;
    *length = writer->out.n;
    begin_anew(writer);
    return 0;
}
