/* SPDX-License-Identifier: MIT */
/* Recording files. The first byte says what the rest is: 0, a whole file; 1, the bytes of a frame's
 * columns, whose sizes come first; 2, a frame itself; 3, blocks one after the other, whose
 * checksums are made right and which are read raw and from frames: both must be read alike. */
#include "recording_image.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "recording/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

#define MOST_BLOCKS 6
#define MOST_USED   1024 /* of a block */

static void read_bytes(const uint8_t *bytes, size_t length)
{
    struct mt_record_file *file = open_bytes(bytes, length);
    if (file)
        read_all_events(file);
    mt_record_file_close(file);
}

/* A packed file around `bytes`, that says it has one frame. */
static struct mt_record_file *open_packed(const uint8_t *bytes, size_t length)
{
    uint8_t *image = malloc(MT_HEADER_BYTES + length);
    if (!image)
        abort();
    fill_header(image, MT_FILE_PACKED, 1);
    memcpy(image + MT_HEADER_BYTES, bytes, length);
    struct mt_record_file *file = open_bytes(image, MT_HEADER_BYTES + length);
    free(image);
    return file;
}

static void read_frame(const uint8_t *bytes, size_t length)
{
    struct mt_record_file *file = open_packed(bytes, length);
    if (file)
        read_all_events(file);
    mt_record_file_close(file);
}

/* A frame whose columns have as many bytes as the first bytes say, the last one the rest. The whole
 * part of a block's header that is its stream is set, so that events are let in. */
static void read_columns(const uint8_t *data, size_t length)
{
    struct mt_frame_header header = {.magic = MT_FRAME_MAGIC};
    if (length < MT_COLUMNS + 1)
        return;
    header.tick_shift = data[MT_COLUMNS] % 16;
    size_t left = length - MT_COLUMNS - 1;
    for (size_t i = 0; i < MT_COLUMNS; i++) {
        size_t n = i + 1 == MT_COLUMNS || data[i] > left ? left : data[i];
        header.column[i].bytes = header.column[i].packed_bytes = (uint32_t)n;
        left -= n;
    }
    size_t n_bytes = length - MT_COLUMNS - 1 - left;
    uint8_t *frame = malloc(sizeof header + n_bytes);
    if (!frame)
        abort();
    memcpy(frame + sizeof header, data + MT_COLUMNS + 1, n_bytes);
    memcpy(frame, &header, sizeof header);
    header.crc32c = mt_crc32c(0, frame + 8, sizeof header - 8 + n_bytes);
    memcpy(frame, &header, sizeof header);
    read_frame(frame, sizeof header + n_bytes);
    free(frame);
}

/* Cuts the bytes into sealed blocks in `raw`, as long as they last. What earlier inputs left there
 * is cleared. */
static uint32_t cut(const uint8_t *data, size_t length, uint8_t *raw)
{
    uint32_t n = 0;
    for (size_t i = 0; i < MOST_BLOCKS; i++)
        memset(raw + i * MT_BLOCK_BYTES, 0, sizeof(struct mt_block_header) + MOST_USED);
    while (n < MOST_BLOCKS && length > sizeof(struct mt_block_header)) {
        struct mt_block_header header;
        memcpy(&header, data, sizeof header);
        size_t room = length - sizeof header;
        header.magic = MT_BLOCK_MAGIC;
        header.stream %= 4;
        header.sequence = n;
        header.used %= MOST_USED;
        header.used = header.used < room ? header.used : (uint32_t)room;
        header.sealed = header.sealed % 2 ? MT_BLOCK_SEALED : MT_BLOCK_CUT;
        uint8_t *block = raw + (size_t)n++ * MT_BLOCK_BYTES;
        memcpy(block, &header, sizeof header);
        memcpy(block + sizeof header, data + sizeof header, header.used);
        seal_block(block, header.used);
        data += sizeof header + header.used;
        length -= sizeof header + header.used;
    }
    return n;
}

/* Without the time, which goes back from block to block here. */
static uint64_t hash_streams(const struct mt_record_file *file)
{
    struct mt_merge *merge;
    struct mt_event event;
    uint64_t hash[4] = {1, 2, 3, 4};
    if (mt_merge_create(file, &merge) < 0)
        abort();
    while (mt_merge_next(merge, &event)) {
        uint64_t *at = &hash[event.stream % 4];
        uint64_t parts[] = {event.op,       event.stream,   event.field[0],
                            event.field[1], event.field[2], event.length};
        for (size_t i = 0; i < 6; i++)
            *at = (*at ^ parts[i]) * 0x9e3779b97f4a7c15u + (*at >> 29);
    }
    mt_merge_destroy(merge);
    return hash[0] ^ hash[1] ^ hash[2] ^ hash[3];
}

static void compare_forms(const uint8_t *data, size_t length)
{
    static uint8_t image[MT_HEADER_BYTES + MOST_BLOCKS * MT_BLOCK_BYTES];
    struct mt_frame_writer *writer;
    struct mt_merge *merge;
    struct mt_event event;
    const uint8_t *frame = NULL;
    size_t frame_length = 0;
    uint32_t n = cut(data, length, image + MT_HEADER_BYTES);
    fill_header(image, 0, n);
    struct mt_record_file *raw = open_bytes(image, MT_HEADER_BYTES + (size_t)n * MT_BLOCK_BYTES);
    if (!raw || mt_merge_create(raw, &merge) < 0 ||
        mt_frame_writer_create(&writer, raw->n_blocks, 1u << 16, 0) < 0)
        abort();
    while (mt_merge_next(merge, &event))
        if (mt_frame_add(writer, &event, &raw->blocks[event.block].header) != 0)
            abort();
    if (mt_frame_take(writer, &frame, &frame_length) < 0)
        abort();
    if (frame_length) {
        struct mt_record_file *packed = open_packed(frame, frame_length);
        if (!packed || packed->blocks_bad || hash_streams(raw) != hash_streams(packed))
            abort();
        mt_record_file_close(packed);
    }
    mt_merge_destroy(merge);
    mt_frame_writer_destroy(writer);
    mt_record_file_close(raw);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
    if (length == 0)
        return 0;
    switch (data[0] % 4) {
    case 0:
        read_bytes(data + 1, length - 1);
        break;
    case 1:
        read_columns(data + 1, length - 1);
        break;
    case 2:
        read_frame(data + 1, length - 1);
        break;
    default:
        compare_forms(data + 1, length - 1);
        break;
    }
    return 0;
}
