/* SPDX-License-Identifier: MIT */
/* Frames of a packed recording: a stretch of the events of all streams, merged by time, in columns.
 * Each frame can be read by itself. Inside this room only.
 *
 *   1. frame   := struct mt_frame_header, a column each of MT_COLUMNS, zstd or as it is
 *   2. ops     := (enum mt_frame_op)*, one byte each; what an op takes from other columns:
 *   3. TIME    : the frame's time goes on by 1 << tick_shift; TIME_BY: by so many of these [time]
 *   4. STREAM  : [other: number] what follows is of this stream; BACK: of the one before it
 *   5. BLOCK   : [other: struct mt_block_header] the stream's next block of the raw file begins, or
 *                MORE: goes on, which is said for each stream that has events in the frame
 *   6. OTHER   : [other: op delta field*] any event as a raw file has it, with its exact time
 *   7. ALLOC   : + SAMPLE, + PLACED [address], + SIZED [size]; [stack]. It takes the slot that came
 *                free last, or a new one
 *   8. FREE    : + SAMPLE; of [slot], which comes free
 *   9. FREE_AT : + SAMPLE; of [address]: what an earlier frame allocated
 *
 * Numbers in [size], [stack] and [slot] stand in columns of their bytes: a size in its length in
 * bits, its lower 8 bits below the highest, and the rest as a varint; the others in their lower 8
 * bits and the rest as a varint. An address is the zigzag difference to the one before, in units of
 * MT_HEAP_UNIT. Without SIZED, the size is that of the last ALLOC before it whose stream and stack
 * have the same mt_frame_context(). Where tick_shift is 0, ALLOC and FREE take a delta from [time].
 *
 * Without PLACED nobody has kept the address: the block is below 64 KiB and ended in the same
 * frame, before any event of the same file of which its address could tell something. A reader
 * gives it a place of its own from MT_UNPLACED_FROM on. */
#ifndef MT_RECORDING_FRAME_H
#define MT_RECORDING_FRAME_H

#include "recording/reader.h"

#define MT_FRAME_MAGIC    0x5246544du /* "MTFR" */
#define MT_FRAME_EVENTS   (1u << 19)  /* the most in a frame */
#define MT_FRAME_OTHER    (1u << 22)  /* bytes of its column OTHER, after which it ends */
#define MT_FRAME_MOST     (1u << 24)  /* bytes of all columns, unpacked */
#define MT_FRAME_CONTEXTS 4096u

enum mt_frame_column {
    MT_COLUMN_OPS,
    MT_COLUMN_OTHER,
    MT_COLUMN_TIME,
    MT_COLUMN_SIZE_BITS,
    MT_COLUMN_SIZE_LOW,
    MT_COLUMN_SIZE_HIGH,
    MT_COLUMN_STACK_LOW,
    MT_COLUMN_STACK_HIGH,
    MT_COLUMN_SLOT_LOW,
    MT_COLUMN_SLOT_HIGH,
    MT_COLUMN_ADDRESS,
    MT_COLUMNS
};

enum mt_frame_op {
    MT_FRAME_TIME = 1,
    MT_FRAME_TIME_BY = 2,
    MT_FRAME_STREAM = 3,
    MT_FRAME_BACK = 4,
    MT_FRAME_BLOCK = 5,
    MT_FRAME_MORE = 6,
    MT_FRAME_OTHER_EVENT = 7,
    MT_FRAME_ALLOC = 8, /* to 15 */
    MT_FRAME_FREE = 16, /* or 17 */
    MT_FRAME_FREE_AT = 18
};

enum mt_frame_flags { MT_FRAME_SAMPLE = 1, MT_FRAME_PLACED = 2, MT_FRAME_SIZED = 4 };

struct mt_frame_header {
    uint32_t magic;
    uint32_t crc32c; /* of the header behind it and of the columns as they lie in the file */
    uint32_t number; /* from 0 */
    uint32_t tick_shift;
    uint64_t start_ticks;
    struct {
        uint32_t bytes;
        uint32_t packed_bytes; /* the same as `bytes`: not compressed */
    } column[MT_COLUMNS];
};

_Static_assert(sizeof(struct mt_frame_header) == 112, "the frame header is part of the format");

static inline uint32_t mt_frame_context(uint32_t stream, uint64_t stack)
{
    return (uint32_t)((stack * 0x9e3779b97f4a7c15u ^ stream * 0xff51afd7ed558ccdu) >> 52);
}

/* Reading. One reader is used for one frame after the other. */
struct mt_frame_reader;

/* On success *reader is owned by the caller. Errors: MT_ENOMEM. */
int mt_frame_reader_create(struct mt_frame_reader **reader);
void mt_frame_reader_destroy(struct mt_frame_reader *reader);

/* From the next frame on allocations and frees are passed over, unread. */
void mt_frame_skip_blocks(struct mt_frame_reader *reader);

/* How many bytes the frame that begins so has; 0 where none begins so. */
size_t mt_frame_length(const struct mt_frame_header *header);

/* How many bytes the frame at `at` has, of which `room` are there; 0 where none begins or it is not
 * whole or damaged. Checks it all. */
size_t mt_frame_check(const uint8_t *at, size_t room);

/* Begins to read a frame that mt_frame_check() has passed. Returns 1, 0 where it cannot be
 * decompressed, or MT_ENOMEM. */
int mt_frame_open(struct mt_frame_reader *reader, const uint8_t *at);

/* The next event; where a block of the raw file begins or goes on, *event has the op MT_FRAME_BLOCK
 * or MT_FRAME_MORE with the block's header in `bytes`, and is_block is 1. Returns 1, 0 at the
 * frame's end, or -1 where the frame breaks the grammar, or MT_ENOMEM. `bytes` lie in the reader
 * until the next frame is opened. */
int mt_frame_next(struct mt_frame_reader *reader, struct mt_event *event, int *is_block);

/* Writing: see pack.c. */
struct mt_frame_writer;

/* For the events of a file of `n_blocks` blocks, up to `n_events` of them in a frame. Where
 * tick_shift is 0, times and addresses stay as they are. Errors: MT_ENOMEM. */
int mt_frame_writer_create(struct mt_frame_writer **writer, size_t n_blocks, size_t n_events,
                           uint32_t tick_shift);
void mt_frame_writer_destroy(struct mt_frame_writer *writer);

/* Adds an event, whose block's header is `block`. Returns 1 where the frame should now be taken, 0,
 * or MT_ENOMEM. */
int mt_frame_add(struct mt_frame_writer *writer, const struct mt_event *event,
                 const struct mt_block_header *block);

/* Ends the frame: its bytes lie in the writer until the next event is added. There may be none
 * (*length is 0). Returns 0 or MT_ENOMEM. */
int mt_frame_take(struct mt_frame_writer *writer, const uint8_t **bytes, size_t *length);

#endif
