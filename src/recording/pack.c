/* SPDX-License-Identifier: MIT */
/* Compacting a recording file: all its events in frames, so that damage to one does not reach the
 * others. What that costs is the time of heap events to a few microseconds, and the address of
 * blocks for which nobody could ask; in the default depth, whose events are few, nothing. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "base/out_of_memory.h"
#include "recording/blocks.h"
#include "recording/frame.h"

/* How exact the time of heap events is kept where each block is one: 2 to 4 us. */
#define SHIFT_OF_TSC       13u
#define SHIFT_OF_MONOTONIC 12u
#define SHIFT_OF_CNTVCT    6u

/* Where they are not all kept as they are, the blocks of a frame that outlive it cost most. */
#define FRAME_EVENTS_EXACT 16384u

#define DEPTH_FULL 1u /* as <memtally/recording.h> numbers it */

struct packer {
    const char *path; /* of the temporary file */
    int fd;
    int made; /* the file is ours to remove */
    struct mt_frame_writer *frames;
    uint32_t n_frames;
    uint64_t blocks_broken; /* whose events break the grammar */
    struct mt_error *error;
};

static int write_all(struct packer *packer, const void *bytes, size_t length)
{
    const char *at = bytes;
    while (length) {
        ssize_t n = write(packer->fd, at, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return mt_fail_errno(packer->error, errno, "cannot write %s", packer->path);
        at += n;
        length -= (size_t)n;
    }
    return 0;
}

static void fill_header(uint8_t page[MT_HEADER_BYTES], const struct mt_record_file *file,
                        const struct packer *packer)
{
    struct mt_file_header header = file->header;
    header.flags |= MT_FILE_PACKED;
    header.next_block = (uint32_t)file->n_blocks;
    header.blocks_backed = packer->n_frames;
    header.blocks_dropped = (uint32_t)(file->blocks_bad + packer->blocks_broken);
    header.tail_crc32c = mt_header_tail_crc(&header);
    memset(page, 0, MT_HEADER_BYTES);
    memcpy(page, &header, sizeof header);
}

static uint32_t tick_shift(const struct mt_file_header *header)
{
    if (header->depth != DEPTH_FULL)
        return 0;
    switch (header->clock_kind) {
    case MT_CLOCK_TSC:
        return SHIFT_OF_TSC;
    case MT_CLOCK_CNTVCT:
        return SHIFT_OF_CNTVCT;
    default:
        return SHIFT_OF_MONOTONIC;
    }
}

static int out_of_memory(struct packer *packer)
{
    return mt_out_of_memory_for(packer->error, packer->path);
}

static int write_frame(struct packer *packer)
{
    const uint8_t *bytes;
    size_t length;
    if (mt_frame_take(packer->frames, &bytes, &length) < 0)
        return out_of_memory(packer);
    packer->n_frames += length != 0;
    return write_all(packer, bytes, length);
}

static int write_frames(struct packer *packer, const struct mt_record_file *file)
{
    struct mt_merge *merge;
    struct mt_event event;
    int result = 0;
    if (mt_merge_create(file, &merge) < 0)
        return out_of_memory(packer);
    while (result == 0 && mt_merge_next(merge, &event)) {
        int full = mt_frame_add(packer->frames, &event, &file->blocks[event.block].header);
        if (full)
            result = full < 0 ? out_of_memory(packer) : write_frame(packer);
    }
    if (result == 0 && mt_merge_failed(merge))
        result = mt_fail(packer->error, mt_merge_failed(merge), MT_NO_OFFSET, "%s: cannot be read",
                         file->path);
    packer->blocks_broken = mt_merge_blocks_bad(merge);
    mt_merge_destroy(merge);
    return result == 0 ? write_frame(packer) : result;
}

/* The header comes last: it says how many frames there are. */
static int write_packed(struct packer *packer, const struct mt_record_file *file)
{
    uint8_t page[MT_HEADER_BYTES] = {0};
    int result = write_all(packer, page, sizeof page);
    for (size_t at = sizeof page; at < file->header.header_bytes && result == 0; at += sizeof page)
        result = write_all(packer, page, sizeof page);
    if (result == 0)
        result = write_frames(packer, file);
    if (result == 0 && lseek(packer->fd, 0, SEEK_SET) < 0)
        result = mt_fail_errno(packer->error, errno, "cannot write %s", packer->path);
    fill_header(page, file, packer);
    return result == 0 ? write_all(packer, page, sizeof page) : result;
}

static int pack_into(struct packer *packer, const struct mt_record_file *file)
{
    uint32_t shift = tick_shift(&file->header);
    packer->fd = open(packer->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (packer->fd < 0 && errno == ELOOP)
        return mt_fail(packer->error, MT_EIO, MT_NO_OFFSET,
                       "cannot create %s: a link stands in the way", packer->path);
    if (packer->fd < 0)
        return mt_fail_errno(packer->error, errno, "cannot create %s", packer->path);
    packer->made = 1;
    size_t n_events = shift ? MT_FRAME_EVENTS : FRAME_EVENTS_EXACT;
    int result = mt_frame_writer_create(&packer->frames, file->n_blocks, n_events, shift) < 0
                     ? out_of_memory(packer)
                     : write_packed(packer, file);
    mt_frame_writer_destroy(packer->frames);
    if (close(packer->fd) < 0 && result == 0)
        result = mt_fail_errno(packer->error, errno, "cannot write %s", packer->path);
    return result;
}

static char *with_suffix(const char *path, size_t keep, const char *suffix)
{
    char *made = malloc(keep + strlen(suffix) + 1);
    if (made) {
        memcpy(made, path, keep);
        memcpy(made + keep, suffix, strlen(suffix) + 1);
    }
    return made;
}

/* The raw file goes when the packed one has its name; else the packed one goes. */
static int replace(const char *raw, const char *temporary, const char *packed,
                   struct mt_error *error)
{
    if (rename(temporary, packed) < 0)
        return mt_fail_errno(error, errno, "cannot rename %s", temporary);
    if (unlink(raw) < 0) {
        int result = mt_fail_errno(error, errno, "cannot remove %s", raw);
        unlink(packed);
        return result;
    }
    return 0;
}

static int pack(const struct mt_record_file *file, const char *packed, struct mt_error *error)
{
    char *temporary = with_suffix(packed, strlen(packed), ".part");
    struct packer packer = {.path = temporary, .error = error};
    int result = temporary ? pack_into(&packer, file) : mt_out_of_memory(error);
    if (result == 0)
        result = replace(file->path, temporary, packed, error);
    if (result < 0 && packer.made)
        unlink(temporary);
    free(temporary);
    return result;
}

int mt_record_file_pack_as(const char *path, const char *packed, struct mt_error *error)
{
    struct mt_record_file *file;
    int result = mt_record_file_open(path, &file, error);
    if (result == MT_ETRUNCATED && mt_record_file_is_blank(path))
        return unlink(path) < 0 ? mt_fail_errno(error, errno, "cannot remove %s", path) : 0;
    if (result < 0)
        return result;
    if (!(file->header.flags & MT_FILE_PACKED))
        result = pack(file, packed, error);
    mt_record_file_close(file);
    return result;
}

int mt_record_file_pack(const char *path, struct mt_error *error)
{
    size_t length = strlen(path);
    size_t keep = length > 4 && strcmp(path + length - 4, ".mtr") == 0 ? length - 4 : length;
    char *packed = with_suffix(path, keep, ".mtz");
    int result = packed ? mt_record_file_pack_as(path, packed, error) : mt_out_of_memory(error);
    free(packed);
    return result;
}
