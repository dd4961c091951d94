/* SPDX-License-Identifier: MIT */
/* Reading frames of a packed recording. Every length is checked against what is there. */
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <memtally/error_code.h>

#include "base/array.h"
#include "base/crc32c.h"
#include "base/varint.h"
#include "recording/events.h"
#include "recording/frame.h"

struct column {
    const uint8_t *at;
    const uint8_t *end;
};

struct slot {
    uint64_t address;
    uint32_t next_free; /* + 1 */
    uint32_t is_taken;
};

struct mt_frame_reader {
    struct column column[MT_COLUMNS];
    uint8_t *bytes; /* all columns */
    size_t capacity;
    struct slot *slots;
    size_t n_slots;
    size_t slot_capacity;
    uint32_t free_slot; /* + 1 */
    uint32_t tick_shift;
    uint64_t ticks;
    uint64_t unit;       /* of the last address */
    uint64_t next_place; /* of a block without an address */
    uint32_t stream;
    uint32_t stream_before;
    int skips_blocks;
    ZSTD_DCtx *zstd;
    uint64_t sizes[MT_FRAME_CONTEXTS];
};

int mt_frame_reader_create(struct mt_frame_reader **reader)
{
    struct mt_frame_reader *made = calloc(1, sizeof *made);
    if (!made || !(made->zstd = ZSTD_createDCtx())) {
        free(made);
        return MT_ENOMEM;
    }
    *reader = made;
    return 0;
}

void mt_frame_reader_destroy(struct mt_frame_reader *reader)
{
    if (!reader)
        return;
    ZSTD_freeDCtx(reader->zstd);
    free(reader->bytes);
    free(reader->slots);
    free(reader);
}

void mt_frame_skip_blocks(struct mt_frame_reader *reader)
{
    reader->skips_blocks = 1;
}

size_t mt_frame_length(const struct mt_frame_header *header)
{
    size_t length = sizeof *header;
    uint64_t unpacked = 0;
    if (header->magic != MT_FRAME_MAGIC || header->tick_shift > 32)
        return 0;
    for (size_t i = 0; i < MT_COLUMNS; i++) {
        if (header->column[i].packed_bytes > header->column[i].bytes)
            return 0;
        length += header->column[i].packed_bytes;
        unpacked += header->column[i].bytes;
    }
    return unpacked > MT_FRAME_MOST ? 0 : length;
}

size_t mt_frame_check(const uint8_t *at, size_t room)
{
    struct mt_frame_header header;
    if (room < sizeof header)
        return 0;
    memcpy(&header, at, sizeof header);
    size_t length = mt_frame_length(&header);
    if (!length || length > room)
        return 0;
    const size_t checked = offsetof(struct mt_frame_header, number);
    return mt_crc32c(0, at + checked, length - checked) == header.crc32c ? length : 0;
}

static int grow_bytes(struct mt_frame_reader *reader, const struct mt_frame_header *header)
{
    size_t length = 1;
    for (size_t i = 0; i < MT_COLUMNS; i++)
        length += header->column[i].bytes;
    if (length <= reader->capacity)
        return 1;
    free(reader->bytes);
    reader->capacity = 0;
    reader->bytes = malloc(length);
    if (!reader->bytes)
        return MT_ENOMEM;
    reader->capacity = length;
    return 1;
}

/* Whether nothing but allocations and frees takes from the column. */
static int is_of_blocks(size_t number)
{
    return number >= MT_COLUMN_SIZE_BITS && number <= MT_COLUMN_ADDRESS;
}

static int unpack_column(struct mt_frame_reader *reader, uint8_t *to, size_t length,
                         const uint8_t *from, size_t packed_length)
{
    if (length == packed_length) {
        memcpy(to, from, length);
        return 1;
    }
    size_t result = ZSTD_decompressDCtx(reader->zstd, to, length, from, packed_length);
    if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation)
        return MT_ENOMEM;
    return !ZSTD_isError(result) && result == length;
}

int mt_frame_open(struct mt_frame_reader *reader, const uint8_t *at)
{
    struct mt_frame_header header;
    memcpy(&header, at, sizeof header);
    int result = grow_bytes(reader, &header);
    uint8_t *to = reader->bytes;
    at += sizeof header;
    for (size_t i = 0; i < MT_COLUMNS && result > 0; i++) {
        size_t length = header.column[i].bytes;
        size_t packed_length = header.column[i].packed_bytes;
        if (!reader->skips_blocks || !is_of_blocks(i))
            result = unpack_column(reader, to, length, at, packed_length);
        reader->column[i] = (struct column){to, to + length};
        to += length;
        at += packed_length;
    }
    reader->tick_shift = header.tick_shift;
    reader->ticks = header.start_ticks;
    reader->n_slots = reader->free_slot = reader->stream = reader->stream_before = 0;
    reader->unit = 0;
    reader->next_place = MT_UNPLACED_FROM;
    memset(reader->sizes, 0, sizeof reader->sizes);
    return result;
}

static int get_byte(struct mt_frame_reader *reader, enum mt_frame_column number, uint64_t *byte)
{
    struct column *column = &reader->column[number];
    if (column->at == column->end)
        return 0;
    *byte = *column->at++;
    return 1;
}

static int get_varint(struct mt_frame_reader *reader, enum mt_frame_column number, uint64_t *value)
{
    struct column *column = &reader->column[number];
    if (column->at < column->end && *column->at < 0x80) {
        *value = *column->at++;
        return 1;
    }
    return mt_varint_get(&column->at, column->end, value);
}

/* A number in a column of its lower 8 bits and one of the rest. */
static int get_split(struct mt_frame_reader *reader, enum mt_frame_column low, uint64_t *value)
{
    uint64_t rest;
    if (!get_byte(reader, low, value) || !get_varint(reader, low + 1, &rest) || rest >> 24)
        return 0;
    *value |= rest << 8;
    return 1;
}

static int get_size(struct mt_frame_reader *reader, uint64_t *size)
{
    uint64_t bits, low = 0, high = 0;
    if (!get_byte(reader, MT_COLUMN_SIZE_BITS, &bits) || bits > 64)
        return 0;
    if (bits > 1 && !get_byte(reader, MT_COLUMN_SIZE_LOW, &low))
        return 0;
    if (bits > 9 && !get_varint(reader, MT_COLUMN_SIZE_HIGH, &high))
        return 0;
    *size = bits ? (uint64_t)1 << (bits - 1) | high << 8 | low : 0;
    return 1;
}

static int get_address(struct mt_frame_reader *reader, uint64_t *address)
{
    uint64_t difference;
    if (!get_varint(reader, MT_COLUMN_ADDRESS, &difference))
        return 0;
    reader->unit += (uint64_t)mt_unzigzag(difference);
    *address = reader->unit * MT_HEAP_UNIT;
    return 1;
}

/* Time does not go past its end. */
static int advance(struct mt_frame_reader *reader, uint64_t steps)
{
    uint32_t shift = reader->tick_shift;
    uint64_t now = reader->ticks >> shift;
    if (steps > (UINT64_MAX >> shift) - now)
        return 0;
    if (steps)
        reader->ticks = (now + steps) << shift;
    return 1;
}

static int get_delta(struct mt_frame_reader *reader)
{
    uint64_t steps;
    return reader->tick_shift ||
           (get_varint(reader, MT_COLUMN_TIME, &steps) && advance(reader, steps));
}

/* Returns 1, or MT_ENOMEM. */
static int take_slot(struct mt_frame_reader *reader, uint64_t address)
{
    uint32_t slot = reader->free_slot;
    if (slot) {
        reader->free_slot = reader->slots[slot - 1].next_free;
        reader->slots[slot - 1] = (struct slot){address, 0, 1};
        return 1;
    }
    if (mt_array_reserve(reader->slots, reader->n_slots, reader->slot_capacity, 1024) < 0)
        return MT_ENOMEM;
    reader->slots[reader->n_slots++] = (struct slot){address, 0, 1};
    return 1;
}

static int get_alloc(struct mt_frame_reader *reader, uint64_t op, struct mt_event *event)
{
    event->op = op & MT_FRAME_SAMPLE ? MT_EVENT_SAMPLE_ALLOC : MT_EVENT_ALLOC;
    if (!get_delta(reader) || !get_split(reader, MT_COLUMN_STACK_LOW, &event->field[2]))
        return -1;
    uint64_t *last = &reader->sizes[mt_frame_context(reader->stream, event->field[2])];
    if (op & MT_FRAME_SIZED && !get_size(reader, last))
        return -1;
    event->field[1] = *last;
    if (op & MT_FRAME_PLACED) {
        if (!get_address(reader, &event->field[0]))
            return -1;
    } else {
        event->field[0] = reader->next_place;
        uint64_t room = (event->field[1] | 15) + 1;
        reader->next_place += room < MT_UNPLACED_FROM / MT_FRAME_EVENTS ? room : 16;
    }
    return take_slot(reader, event->field[0]);
}

static int get_free(struct mt_frame_reader *reader, uint64_t op, struct mt_event *event)
{
    uint64_t slot;
    event->op = op & MT_FRAME_SAMPLE ? MT_EVENT_SAMPLE_FREE : MT_EVENT_FREE;
    if (!get_delta(reader))
        return -1;
    if (op >= MT_FRAME_FREE_AT)
        return get_address(reader, &event->field[0]) ? 1 : -1;
    if (!get_split(reader, MT_COLUMN_SLOT_LOW, &slot) || slot >= reader->n_slots ||
        !reader->slots[slot].is_taken)
        return -1;
    event->field[0] = reader->slots[slot].address;
    reader->slots[slot] = (struct slot){0, reader->free_slot, 0};
    reader->free_slot = (uint32_t)slot + 1;
    return 1;
}

static int get_other(struct mt_frame_reader *reader, struct mt_event *event)
{
    struct column *other = &reader->column[MT_COLUMN_OTHER];
    uint64_t op, delta;
    if (!get_byte(reader, MT_COLUMN_OTHER, &op) || !get_varint(reader, MT_COLUMN_OTHER, &delta) ||
        delta > UINT64_MAX - reader->ticks)
        return -1;
    reader->ticks += delta;
    event->op = (enum mt_event_op)op;
    return mt_event_body_get(&other->at, other->end, event) ? 1 : -1;
}

static int get_block(struct mt_frame_reader *reader, uint64_t op, struct mt_event *event)
{
    struct column *other = &reader->column[MT_COLUMN_OTHER];
    event->op = (enum mt_event_op)op;
    event->bytes = other->at;
    event->length = sizeof(struct mt_block_header);
    if ((size_t)(other->end - other->at) < event->length)
        return -1;
    other->at += event->length;
    return 1;
}

/* The ops that give no event. */
static int take_op(struct mt_frame_reader *reader, uint64_t op)
{
    uint64_t number = reader->stream_before;
    switch (op) {
    case MT_FRAME_TIME:
        return advance(reader, 1);
    case MT_FRAME_TIME_BY:
        return get_varint(reader, MT_COLUMN_TIME, &number) && advance(reader, number);
    case MT_FRAME_STREAM:
        if (!get_varint(reader, MT_COLUMN_OTHER, &number) || number > UINT32_MAX)
            return 0;
        break;
    case MT_FRAME_BACK:
        break;
    default:
        return 0;
    }
    reader->stream_before = reader->stream;
    reader->stream = (uint32_t)number;
    reader->ticks += reader->tick_shift && reader->ticks < UINT64_MAX;
    return 1;
}

static int is_block_op(uint64_t op)
{
    return op >= MT_FRAME_ALLOC && op <= (MT_FRAME_FREE_AT | MT_FRAME_SAMPLE);
}

int mt_frame_next(struct mt_frame_reader *reader, struct mt_event *event, int *is_block)
{
    uint64_t op;
    for (;;) {
        if (!get_byte(reader, MT_COLUMN_OPS, &op))
            return 0;
        if (reader->skips_blocks && is_block_op(op)) {
            if (!get_delta(reader))
                return -1;
            continue;
        }
        if (op >= MT_FRAME_BLOCK)
            break;
        if (!take_op(reader, op))
            return -1;
    }
    int result = -1;
    *event = (struct mt_event){.stream = reader->stream};
    *is_block = op == MT_FRAME_BLOCK || op == MT_FRAME_MORE;
    if (*is_block)
        result = get_block(reader, op, event);
    else if (op == MT_FRAME_OTHER_EVENT)
        result = get_other(reader, event);
    else if (op >= MT_FRAME_ALLOC && op < MT_FRAME_FREE)
        result = get_alloc(reader, op, event);
    else if (op >= MT_FRAME_FREE && op <= (MT_FRAME_FREE_AT | MT_FRAME_SAMPLE))
        result = get_free(reader, op, event);
    event->ticks = reader->ticks;
    return result;
}
