/* SPDX-License-Identifier: MIT */
/* Recording files. The first byte says what the rest is: 0, a whole file; 1, what is in the frame
 * of a packed file, compressed here; 2, the frame itself; 3, blocks one after the other, whose
 * checksums are made right and which are laid out raw and packed: both must be read alike. */
#include "recording_image.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

#define MOST_BLOCKS 6

static void read_bytes(const uint8_t *bytes, size_t length)
{
    struct mt_record_file *file = open_bytes(bytes, length);
    if (file)
        read_all_events(file);
    mt_record_file_close(file);
}

/* A packed file around `bytes`, or around what they compress to. */
static struct mt_record_file *open_packed(const uint8_t *bytes, size_t length, uint32_t n_blocks,
                                          int compress)
{
    size_t bound = compress ? ZSTD_compressBound(length) : length;
    uint8_t *image = malloc(MT_HEADER_BYTES + bound);
    if (!image)
        abort();
    fill_header(image, MT_FILE_PACKED, n_blocks);
    uint8_t *frame = image + MT_HEADER_BYTES;
    size_t size = length;
    if (compress)
        size = ZSTD_compress(frame, bound, bytes, length, 1);
    else
        memcpy(frame, bytes, length);
    struct mt_record_file *file = open_bytes(image, MT_HEADER_BYTES + size);
    free(image);
    return file;
}

static void read_packed(const uint8_t *bytes, size_t length, int compress)
{
    struct mt_record_file *file = open_packed(bytes, length, MOST_BLOCKS, compress);
    if (file)
        read_all_events(file);
    mt_record_file_close(file);
}

/* Cuts the bytes into sealed blocks in `raw`, as long as they last, and puts them one after the
 * other into `dense`. */
static uint32_t cut(const uint8_t *data, size_t length, uint8_t *raw, uint8_t *dense,
                    size_t *dense_length)
{
    uint32_t n = 0;
    *dense_length = 0;
    while (n < MOST_BLOCKS && length > sizeof(struct mt_block_header)) {
        struct mt_block_header header;
        memcpy(&header, data, sizeof header);
        size_t room = length - sizeof header;
        header.magic = MT_BLOCK_MAGIC;
        header.used %= 1024;
        header.used = header.used < room ? header.used : (uint32_t)room;
        header.sealed = header.sealed % 2 ? MT_BLOCK_SEALED : MT_BLOCK_CUT;
        uint8_t *block = raw + (size_t)n++ * MT_BLOCK_BYTES;
        memcpy(block, &header, sizeof header);
        memcpy(block + sizeof header, data + sizeof header, header.used);
        seal_block(block, header.used);
        memcpy(dense + *dense_length, block, sizeof header + header.used);
        *dense_length += sizeof header + header.used;
        data += sizeof header + header.used;
        length -= sizeof header + header.used;
    }
    return n;
}

static void compare_forms(const uint8_t *data, size_t length)
{
    uint8_t *image = calloc(1, MT_HEADER_BYTES + MOST_BLOCKS * MT_BLOCK_BYTES);
    uint8_t *dense = malloc(length + 1);
    if (!image || !dense)
        abort();
    size_t dense_length;
    uint32_t n = cut(data, length, image + MT_HEADER_BYTES, dense, &dense_length);
    fill_header(image, 0, n);
    struct mt_record_file *raw = open_bytes(image, MT_HEADER_BYTES + (size_t)n * MT_BLOCK_BYTES);
    struct mt_record_file *packed = open_packed(dense, dense_length, n, 1);
    if (!raw || !packed || raw->n_blocks != packed->n_blocks ||
        raw->blocks_bad != packed->blocks_bad || read_all_events(raw) != read_all_events(packed))
        abort();
    mt_record_file_close(raw);
    mt_record_file_close(packed);
    free(image);
    free(dense);
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
        read_packed(data + 1, length - 1, 1);
        break;
    case 2:
        read_packed(data + 1, length - 1, 0);
        break;
    default:
        compare_forms(data + 1, length - 1);
        break;
    }
    return 0;
}
