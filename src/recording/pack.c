/* SPDX-License-Identifier: MIT */
/* Compacting a recording file: the slack of its blocks dropped, the rest in zstd frames of a
 * few blocks each, so that damage to one does not reach the others. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "recording/blocks.h"
#include "recording/fetch.h"

#define LEVEL     3
#define OUT_BYTES ((size_t)1 << 17)

struct packer {
    const char *path; /* of the temporary file */
    int fd;
    int made; /* the file is ours to remove */
    ZSTD_CCtx *context;
    uint8_t *out;
    uint8_t *events;
    struct mt_fetch *fetch;
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

static int compress(struct packer *packer, const void *bytes, size_t length,
                    ZSTD_EndDirective directive)
{
    ZSTD_inBuffer input = {bytes, length, 0};
    size_t left;
    do {
        ZSTD_outBuffer output = {packer->out, OUT_BYTES, 0};
        left = ZSTD_compressStream2(packer->context, &output, &input, directive);
        if (ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
            return mt_fail(packer->error, MT_ENOMEM, MT_NO_OFFSET, "%s: out of memory",
                           packer->path);
        if (ZSTD_isError(left))
            return mt_fail(packer->error, MT_EIO, MT_NO_OFFSET, "%s: %s", packer->path,
                           ZSTD_getErrorName(left));
        int result = write_all(packer, packer->out, output.pos);
        if (result < 0)
            return result;
    } while (directive == ZSTD_e_end ? left != 0 : input.pos < input.size);
    return 0;
}

/* A block that the process left open is sealed as it is. */
static void seal(struct mt_block_header *header, const uint8_t *events)
{
    if (header->sealed != MT_BLOCK_OPEN)
        return;
    uint32_t crc = mt_crc32c(0, header, offsetof(struct mt_block_header, sealed));
    header->crc32c = mt_crc32c(crc, events, header->used);
    header->sealed = MT_BLOCK_CUT;
}

static void fill_header(uint8_t page[MT_HEADER_BYTES], const struct mt_record_file *file)
{
    struct mt_file_header header = file->header;
    header.flags |= MT_FILE_PACKED;
    header.next_block = header.blocks_backed = (uint32_t)file->n_blocks;
    header.blocks_dropped = (uint32_t)file->blocks_bad;
    header.tail_crc32c = mt_header_tail_crc(&header);
    memset(page, 0, MT_HEADER_BYTES);
    memcpy(page, &header, sizeof header);
}

static int write_block(struct packer *packer, const struct mt_record_file *file, size_t i)
{
    struct mt_block_header header = file->blocks[i].header;
    int result = mt_fetch_events(packer->fetch, &file->blocks[i], 0, packer->events, header.used);
    if (result < 0)
        return mt_fail(packer->error, result, MT_NO_OFFSET, "%s: cannot be read", file->path);
    seal(&header, packer->events);
    result = compress(packer, &header, sizeof header, ZSTD_e_continue);
    if (result < 0)
        return result;
    int last = (i + 1) % MT_BLOCKS_PER_FRAME == 0 || i + 1 == file->n_blocks;
    return compress(packer, packer->events, header.used, last ? ZSTD_e_end : ZSTD_e_continue);
}

static int write_packed(struct packer *packer, const struct mt_record_file *file)
{
    uint8_t page[MT_HEADER_BYTES];
    fill_header(page, file);
    int result = write_all(packer, page, sizeof page);
    for (size_t i = 0; i < file->n_blocks && result == 0; i++)
        result = write_block(packer, file, i);
    if (result == 0 && !file->n_blocks)
        result = compress(packer, NULL, 0, ZSTD_e_end);
    return result;
}

static int pack_into(struct packer *packer, const struct mt_record_file *file)
{
    packer->fd = open(packer->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (packer->fd < 0 && errno == ELOOP)
        return mt_fail(packer->error, MT_EIO, MT_NO_OFFSET,
                       "cannot create %s: a link stands in the way", packer->path);
    if (packer->fd < 0)
        return mt_fail_errno(packer->error, errno, "cannot create %s", packer->path);
    packer->made = 1;
    packer->context = ZSTD_createCCtx();
    packer->out = malloc(OUT_BYTES);
    packer->events = malloc(MT_BLOCK_BYTES);
    int result;
    if (packer->context && packer->out && packer->events &&
        mt_fetch_create(file, 1, &packer->fetch) == 0) {
        ZSTD_CCtx_setParameter(packer->context, ZSTD_c_compressionLevel, LEVEL);
        ZSTD_CCtx_setParameter(packer->context, ZSTD_c_checksumFlag, 1);
        result = write_packed(packer, file);
    } else {
        result = mt_fail(packer->error, MT_ENOMEM, MT_NO_OFFSET, "%s: out of memory", packer->path);
    }
    ZSTD_freeCCtx(packer->context);
    mt_fetch_destroy(packer->fetch);
    free(packer->events);
    free(packer->out);
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

static int pack(const struct mt_record_file *file, struct mt_error *error)
{
    const char *path = file->path;
    size_t length = strlen(path);
    size_t keep = length > 4 && strcmp(path + length - 4, ".mtr") == 0 ? length - 4 : length;
    char *packed = with_suffix(path, keep, ".mtz");
    char *temporary = with_suffix(path, keep, ".mtz.part");
    struct packer packer = {.path = temporary, .error = error};
    int result = packed && temporary ? pack_into(&packer, file)
                                     : mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    if (result == 0)
        result = replace(path, temporary, packed, error);
    if (result < 0 && packer.made)
        unlink(temporary);
    free(packed);
    free(temporary);
    return result;
}

int mt_record_file_pack(const char *path, struct mt_error *error)
{
    struct mt_record_file *file;
    int result = mt_record_file_open(path, &file, error);
    if (result < 0)
        return result;
    if (!(file->header.flags & MT_FILE_PACKED))
        result = pack(file, error);
    mt_record_file_close(file);
    return result;
}
