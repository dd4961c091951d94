/* SPDX-License-Identifier: MIT */
/* Reading parts of a recording file, unpacking frames, and keeping a few that several streams take
 * turns in. Must not know what blocks and events are, beyond where they lie. */
#include "recording/fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>
#include <zstd_errors.h>

#define PACKED_BYTES ((size_t)1 << 16)
#define FRAMES_MOST  128u /* that are kept unpacked */

long mt_file_read(const struct mt_record_file *file, uint64_t offset, void *bytes, size_t length)
{
    size_t got = 0;
    if (offset >= file->file_bytes)
        return 0;
    if (length > file->file_bytes - offset)
        length = (size_t)(file->file_bytes - offset);
    if (file->fd < 0) {
        memcpy(bytes, file->data + offset, length);
        return (long)length;
    }
    while (got < length) {
        ssize_t n = pread(file->fd, (uint8_t *)bytes + got, length - got, (off_t)(offset + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return (long)got;
}

struct mt_unpacker {
    const struct mt_record_file *file;
    ZSTD_DStream *stream;
    uint64_t offset; /* of what is in `packed` */
    size_t length;
    uint8_t packed[PACKED_BYTES];
};

struct mt_unpacker *mt_unpacker_create(const struct mt_record_file *file)
{
    struct mt_unpacker *made = malloc(sizeof *made);
    if (!made)
        return NULL;
    made->file = file;
    made->length = 0;
    made->stream = ZSTD_createDStream();
    if (made->stream)
        return made;
    free(made);
    return NULL;
}

void mt_unpacker_destroy(struct mt_unpacker *unpacker)
{
    if (!unpacker)
        return;
    ZSTD_freeDStream(unpacker->stream);
    free(unpacker);
}

/* Makes `input` stand at `offset` of the file; it is empty at the end. Returns 0 or MT_EIO. */
static int refill(struct mt_unpacker *unpacker, uint64_t offset, ZSTD_inBuffer *input)
{
    if (offset < unpacker->offset || offset >= unpacker->offset + unpacker->length) {
        long n = mt_file_read(unpacker->file, offset, unpacker->packed, PACKED_BYTES);
        unpacker->length = 0;
        if (n < 0)
            return MT_EIO;
        unpacker->offset = offset;
        unpacker->length = (size_t)n;
    }
    *input =
        (ZSTD_inBuffer){unpacker->packed, unpacker->length, (size_t)(offset - unpacker->offset)};
    return 0;
}

/* Returns 1, 0 at the limit, or MT_ENOMEM. */
static int grow(struct mt_frame *frame)
{
    if (frame->length < frame->room)
        return 1;
    if (frame->room >= frame->limit)
        return 0;
    size_t more = frame->room ? frame->room * 2 : MT_BLOCK_BYTES;
    if (more > frame->limit)
        more = frame->limit;
    uint8_t *grown = realloc(frame->bytes, more);
    if (!grown)
        return MT_ENOMEM;
    frame->bytes = grown;
    frame->room = more;
    return 1;
}

int mt_unpack_frame(struct mt_unpacker *unpacker, uint64_t offset, struct mt_frame *frame)
{
    ZSTD_inBuffer input = {0};
    size_t left = 1;
    frame->length = 0;
    frame->end = offset;
    ZSTD_DCtx_reset(unpacker->stream, ZSTD_reset_session_only);
    while (left != 0) {
        int result = grow(frame);
        if (result <= 0)
            return result;
        if (input.pos == input.size && refill(unpacker, frame->end, &input) < 0)
            return MT_EIO;
        ZSTD_outBuffer output = {frame->bytes, frame->room, frame->length};
        size_t before = input.pos;
        left = ZSTD_decompressStream(unpacker->stream, &output, &input);
        if (ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
            return MT_ENOMEM;
        int stuck = input.pos == before && output.pos == frame->length;
        frame->length = output.pos;
        frame->end += input.pos - before;
        if (ZSTD_isError(left) || (left != 0 && stuck))
            return 0;
    }
    return 1;
}

struct kept {
    struct mt_frame frame;
    uint64_t place;
    uint64_t used; /* when, by the count of frames asked for; 0: never */
};

struct mt_fetch {
    const struct mt_record_file *file;
    struct mt_unpacker *unpacker; /* of a packed file */
    uint64_t n_asked;
    size_t n_kept;
    struct kept kept[];
};

int mt_fetch_create(const struct mt_record_file *file, size_t n_cursors, struct mt_fetch **fetch)
{
    int packed = (file->header.flags & MT_FILE_PACKED) != 0;
    size_t n = !packed ? 0 : n_cursors < FRAMES_MOST ? n_cursors : FRAMES_MOST;
    struct mt_fetch *made = calloc(1, sizeof *made + n * sizeof *made->kept);
    if (!made)
        return MT_ENOMEM;
    made->file = file;
    made->n_kept = n;
    if (packed && !(made->unpacker = mt_unpacker_create(file))) {
        free(made);
        return MT_ENOMEM;
    }
    *fetch = made;
    return 0;
}

void mt_fetch_destroy(struct mt_fetch *fetch)
{
    if (!fetch)
        return;
    for (size_t i = 0; i < fetch->n_kept; i++)
        free(fetch->kept[i].frame.bytes);
    mt_unpacker_destroy(fetch->unpacker);
    free(fetch);
}

/* The frame at `place`, in place of the one that was not used for longest. */
static int find_frame(struct mt_fetch *fetch, uint64_t place, struct kept **found)
{
    struct kept *oldest = &fetch->kept[0];
    fetch->n_asked++;
    for (size_t i = 0; i < fetch->n_kept; i++) {
        struct kept *kept = &fetch->kept[i];
        if (kept->used && kept->place == place) {
            kept->used = fetch->n_asked;
            *found = kept;
            return 0;
        }
        if (kept->used < oldest->used)
            oldest = kept;
    }
    oldest->used = 0;
    oldest->frame.limit = MT_FRAME_BYTES;
    int result = mt_unpack_frame(fetch->unpacker, place, &oldest->frame);
    if (result < 0)
        return result;
    oldest->place = place;
    oldest->used = fetch->n_asked;
    *found = oldest;
    return 0;
}

static int fetch_packed(struct mt_fetch *fetch, const struct mt_block *block, size_t at,
                        uint8_t *to, size_t length)
{
    struct kept *kept;
    int result = find_frame(fetch, block->place, &kept);
    if (result < 0)
        return result;
    if (at > kept->frame.length || length > kept->frame.length - at)
        return MT_EIO;
    memcpy(to, kept->frame.bytes + at, length);
    return 0;
}

int mt_fetch_events(struct mt_fetch *fetch, const struct mt_block *block, size_t from, uint8_t *to,
                    size_t length)
{
    size_t at = block->events_at + from;
    if (fetch->unpacker)
        return fetch_packed(fetch, block, at, to, length);
    return mt_file_read(fetch->file, block->place + at, to, length) == (long)length ? 0 : MT_EIO;
}
