/* SPDX-License-Identifier: MIT */
/* The writer half of the recording format. This file is part of the preloaded recorder: it may use
 * nothing that allocates, locks or sets errno. It must not know what the events are about. */
#include "recording/writer.h"

#include <fcntl.h>

#include "base/crc32c.h"
#include "base/ticks.h"
/* How many events are lost before a block is asked for again. */
#define RETRY_EVERY 1024u

/* libc's memcpy may be an indirect function that is not bound yet when the first hook runs. */
static void copy(void *to, const void *from, size_t length)
{
    uint8_t *out = to;
    const uint8_t *in = from;
    for (size_t i = 0; i < length; i++)
        out[i] = in[i];
}

static int set_path(struct mt_file *file, const char *path)
{
    size_t length = 0;
    while (path[length])
        length++;
    if (length >= sizeof file->path)
        return -1;
    copy(file->path, path, length + 1);
    return 0;
}

static void fill_header(struct mt_file_header *header, const struct mt_file_header *initial)
{
    *header = *initial;
    copy(header->magic, MT_FILE_MAGIC, sizeof header->magic);
    header->version = MT_FILE_VERSION;
    header->byte_order = MT_BYTE_ORDER;
    header->header_bytes = MT_HEADER_BYTES;
    header->block_bytes = MT_BLOCK_BYTES;
    header->next_block = header->blocks_backed = 0;
    header->crc32c = mt_crc32c(0, header, offsetof(struct mt_file_header, crc32c));
}

int mt_file_create(struct mt_file *file, const struct mt_record_os *os, const char *path,
                   const struct mt_file_header *initial)
{
    if (set_path(file, path) < 0)
        return -36; /* ENAMETOOLONG */
    int fd = os->open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fd;
    int result = os->extend(fd, 0, MT_HEADER_BYTES);
    void *mapped = result < 0 ? NULL : os->map(fd, 0, MT_HEADER_BYTES);
    os->close(fd);
    if (!mapped)
        return result < 0 ? result : -12; /* ENOMEM */
    file->os = os;
    file->header = mapped;
    file->use_counter = initial->clock_kind != MT_CLOCK_MONOTONIC;
    fill_header(file->header, initial);
    return 0;
}

void mt_file_close(struct mt_file *file)
{
    if (file->header)
        file->os->unmap(file->header, MT_HEADER_BYTES);
    file->header = NULL;
}

void mt_writer_init(struct mt_writer *writer, struct mt_file *file, uint32_t stream, uint32_t tid)
{
    *writer = (struct mt_writer){.file = file, .stream = stream, .tid = tid};
}

static void seal(struct mt_writer *writer)
{
    struct mt_block_header *block = writer->block;
    block->small_allocs = writer->small_allocs;
    block->small_alloc_bytes = writer->small_alloc_bytes;
    block->small_frees = writer->small_frees;
    block->small_free_bytes = writer->small_free_bytes;
    uint32_t crc = mt_crc32c(0, block, offsetof(struct mt_block_header, sealed));
    block->crc32c = mt_crc32c(crc, writer->events, block->used);
    __atomic_store_n(&block->sealed, 1, __ATOMIC_RELEASE);
}

static void drop_block(struct mt_writer *writer)
{
    if (!writer->block)
        return;
    seal(writer);
    writer->file->os->unmap(writer->block, MT_BLOCK_BYTES);
    writer->block = NULL;
    writer->cursor = writer->limit = writer->events = NULL;
}

void mt_writer_finish(struct mt_writer *writer)
{
    drop_block(writer);
}

/* Claims the next block of the file and maps it. The file is opened anew each time: a descriptor
 * that stayed open could be closed or replaced by the watched program. */
static struct mt_block_header *claim(struct mt_file *file)
{
    const struct mt_record_os *os = file->os;
    int fd = os->open(file->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0);
    if (fd < 0)
        return NULL;
    uint32_t number = __atomic_fetch_add(&file->header->next_block, 1, __ATOMIC_RELAXED);
    uint64_t offset = MT_HEADER_BYTES + (uint64_t)number * MT_BLOCK_BYTES;
    void *mapped = NULL;
    if (os->extend(fd, offset, MT_BLOCK_BYTES) >= 0) {
        __atomic_fetch_add(&file->header->blocks_backed, 1, __ATOMIC_RELEASE);
        mapped = os->map(fd, offset, MT_BLOCK_BYTES);
    } else {
        uint32_t next = number + 1; /* given back, unless another thread has claimed one since */
        __atomic_compare_exchange_n(&file->header->next_block, &next, number, 0, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED);
    }
    os->close(fd);
    return mapped;
}

static int lose(struct mt_writer *writer)
{
    writer->failed = 1;
    writer->lost++;
    __atomic_fetch_add(&writer->file->header->events_lost, 1, __ATOMIC_RELAXED);
    return 0;
}

/* The magic comes last: with it, a reader takes the rest of the header for written. */
static void begin(struct mt_writer *writer, struct mt_block_header *block)
{
    block->stream = writer->stream;
    block->tid = writer->tid;
    block->sequence = writer->sequence++;
    block->start_ticks = writer->last_ticks;
    block->clock_ticks = mt_ticks(writer->file->use_counter);
    block->clock_monotonic_ns = writer->file->os->monotonic_ns();
    __atomic_store_n(&block->magic, MT_BLOCK_MAGIC, __ATOMIC_RELEASE);
    writer->block = block;
    writer->events = (uint8_t *)(block + 1);
    writer->cursor = writer->events;
    writer->limit = (uint8_t *)block + MT_BLOCK_BYTES;
    writer->last_unit = 0;
}

int mt_writer_next_block(struct mt_writer *writer, uint64_t ticks)
{
    if (!writer->file || !writer->file->header)
        return 0;
    if (writer->failed && writer->lost % RETRY_EVERY != 0)
        return lose(writer);
    drop_block(writer);
    struct mt_block_header *block = claim(writer->file);
    if (!block)
        return lose(writer);
    writer->failed = 0;
    if (ticks > writer->last_ticks)
        writer->last_ticks = ticks;
    begin(writer, block);
    return 1;
}

void mt_write_event(struct mt_writer *writer, enum mt_event_op op, uint64_t ticks,
                    const uint64_t *fields, size_t n_fields)
{
    if (!mt_writer_room(writer, 1 + MT_VARINT_MAX * (1 + n_fields), ticks))
        return;
    uint8_t *at = mt_event_begin(writer, op, ticks);
    for (size_t i = 0; i < n_fields; i++)
        at = mt_varint_put(at, fields[i]);
    mt_event_end(writer, at);
}

void mt_write_bytes(struct mt_writer *writer, enum mt_event_op op, uint64_t ticks, uint64_t kind,
                    const void *bytes, size_t length)
{
    if (length > MT_TEXT_PIECE)
        length = MT_TEXT_PIECE;
    if (!mt_writer_room(writer, 1 + 3 * MT_VARINT_MAX + length, ticks))
        return;
    uint8_t *at = mt_event_begin(writer, op, ticks);
    at = mt_varint_put(at, kind);
    at = mt_varint_put(at, length);
    copy(at, bytes, length);
    mt_event_end(writer, at + length);
}

uint32_t mt_write_string(struct mt_writer *writer, uint64_t ticks, const char *text, size_t length)
{
    if (length > MT_MAX_STRING)
        length = MT_MAX_STRING;
    if (!mt_writer_room(writer, 1 + 3 * MT_VARINT_MAX + length, ticks))
        return 0;
    uint32_t number = ++writer->next_string;
    mt_write_bytes(writer, MT_EVENT_STRING, ticks, number, text, length);
    return number;
}

uint32_t mt_write_stack(struct mt_writer *writer, uint64_t ticks, const uint64_t *frames,
                        size_t n_frames, int complete)
{
    if (n_frames > MT_MAX_FRAMES)
        n_frames = MT_MAX_FRAMES;
    if (!mt_writer_room(writer, 1 + MT_VARINT_MAX * (4 + n_frames), ticks))
        return 0;
    uint32_t number = ++writer->next_stack;
    uint8_t *at = mt_event_begin(writer, MT_EVENT_STACK, ticks);
    at = mt_varint_put(at, number);
    at = mt_varint_put(at, complete != 0);
    at = mt_varint_put(at, n_frames);
    uint64_t last = 0;
    for (size_t i = 0; i < n_frames; i++) {
        at = mt_varint_put(at, mt_zigzag((int64_t)(frames[i] - last)));
        last = frames[i];
    }
    mt_event_end(writer, at);
    return number;
}
