/* SPDX-License-Identifier: MIT */
#include "recording_image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memtally/error.h>

#include "base/crc32c.h"
#include "recording/blocks.h"

#define PIECE_BYTES 4096

static int is_zero(const uint8_t *bytes, size_t length)
{
    return length == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0);
}

/* Pieces of nothing become holes: most of an image is the rest of its blocks. */
static int write_sparse(int fd, const uint8_t *bytes, size_t length)
{
    for (size_t at = 0; at < length; at += PIECE_BYTES) {
        size_t n = length - at < PIECE_BYTES ? length - at : PIECE_BYTES;
        if (!is_zero(bytes + at, n) && pwrite(fd, bytes + at, n, (off_t)at) != (ssize_t)n)
            return -1;
    }
    return ftruncate(fd, (off_t)length);
}

struct mt_record_file *open_bytes(const uint8_t *bytes, size_t length)
{
    char path[64];
    struct mt_record_file *file = NULL;
    struct mt_error error = {0};
    int fd = memfd_create("recording", MFD_CLOEXEC);
    if (fd < 0 || write_sparse(fd, bytes, length) < 0)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int result = mt_record_file_open(path, &file, &error);
    close(fd);
    /* A refusal says why, and success gives a file. */
    if ((result == 0) != (file != NULL) || (result < 0 && (error.code != result || !*error.text)))
        abort();
    return file;
}

void put_header(uint8_t page[MT_HEADER_BYTES], const struct mt_file_header *settings,
                uint32_t flags, uint32_t n_blocks)
{
    struct mt_file_header header = *settings;
    memcpy(header.magic, MT_FILE_MAGIC, sizeof header.magic);
    header.version = MT_FILE_VERSION;
    header.byte_order = MT_BYTE_ORDER;
    header.header_bytes = MT_HEADER_BYTES;
    header.block_bytes = MT_BLOCK_BYTES;
    header.page_bytes = 4096;
    header.next_block = header.blocks_backed = n_blocks;
    header.flags &= ~(uint32_t)MT_FILE_PACKED;
    header.crc32c = mt_crc32c(0, &header, offsetof(struct mt_file_header, crc32c));
    header.flags |= flags;
    header.tail_crc32c = mt_header_tail_crc(&header);
    memset(page, 0, MT_HEADER_BYTES);
    memcpy(page, &header, sizeof header);
}

void fill_header(uint8_t page[MT_HEADER_BYTES], uint32_t flags, uint32_t n_blocks)
{
    put_header(page, &(struct mt_file_header){.kind = MT_FILE_PROCESS, .clock_kind = MT_CLOCK_TSC},
               flags, n_blocks);
}

void seal_block(uint8_t *block, size_t room)
{
    struct mt_block_header header;
    memcpy(&header, block, sizeof header);
    if (header.used > room)
        return;
    uint32_t crc = mt_crc32c(0, &header, offsetof(struct mt_block_header, sealed));
    header.crc32c = mt_crc32c(crc, block + sizeof header, header.used);
    memcpy(block, &header, sizeof header);
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * 0x9e3779b97f4a7c15u + (hash >> 29);
}

/* Whether the bytes of the event lie in the cursor's window. */
static void check_bytes(const struct mt_cursor *cursor, const struct mt_event *event)
{
    if (event->length && (event->bytes < cursor->buffer || event->length > cursor->room ||
                          event->bytes > cursor->end - event->length))
        abort();
}

static uint64_t take(const struct mt_event *event, uint64_t hash)
{
    uint64_t frames[MT_MAX_FRAMES];
    struct mt_run_pages pages;
    struct mt_runs runs;
    uint64_t page = 0;
    hash = mix(mix(hash, event->op), event->ticks);
    for (size_t i = 0; i < MT_EVENT_FIELDS; i++)
        hash = mix(hash, event->field[i]);
    for (size_t i = 0; i < event->length; i++)
        hash = mix(hash, event->bytes[i]);
    if (event->op == MT_EVENT_STACK && mt_event_frames(event, frames) != event->field[2])
        abort();
    if (event->op == MT_EVENT_PICTURE_RUNS)
        for (mt_runs_init(&runs, event); mt_runs_next(&runs, &page, &pages);)
            hash = mix(hash, pages.first_page);
    return hash;
}

static uint64_t read_stream(const struct mt_record_file *file, size_t first, size_t end,
                            uint64_t *hash)
{
    struct mt_cursor cursor;
    struct mt_event event;
    uint64_t n = 0;
    mt_cursor_init(&cursor, file, first, end);
    for (; mt_cursor_next(&cursor, &event); n++) {
        check_bytes(&cursor, &event);
        *hash = take(&event, *hash);
    }
    if (cursor.blocks_bad > end - first || cursor.failed)
        abort();
    mt_cursor_finish(&cursor);
    return n;
}

/* All events as they are merged; returns how many. */
static uint64_t read_merged(const struct mt_record_file *file, uint64_t *hash)
{
    struct mt_merge *merge;
    struct mt_event event;
    uint64_t n = 0;
    if (mt_merge_create(file, &merge) < 0)
        abort();
    for (; mt_merge_next(merge, &event); n++)
        *hash = take(&event, *hash);
    if (mt_merge_failed(merge))
        abort();
    mt_merge_destroy(merge);
    return n;
}

/* The streams one after the other; the merge gives as many events. */
static uint64_t read_streams(const struct mt_record_file *file, uint64_t *hash)
{
    uint64_t n = 0, any = 0;
    for (size_t first = 0; first < file->n_blocks;) {
        size_t end = first + 1;
        while (end < file->n_blocks &&
               file->blocks[end].header.stream == file->blocks[first].header.stream) {
            if (file->blocks[end].header.sequence <= file->blocks[end - 1].header.sequence)
                abort();
            end++;
        }
        n += read_stream(file, first, end, hash);
        first = end;
    }
    if (read_merged(file, &any) != n)
        abort();
    return n;
}

uint64_t read_all_events(const struct mt_record_file *file)
{
    struct mt_clock clock;
    uint64_t hash = 1;
    if (file->header.flags & MT_FILE_PACKED)
        read_merged(file, &hash);
    else
        read_streams(file, &hash);
    mt_clock_of_file(file, &clock);
    if (mt_clock_ns(&clock, file->last_ticks) < clock.monotonic_ns ||
        mt_clock_ticks(&clock, clock.monotonic_ns) != clock.ticks)
        abort();
    return hash;
}
