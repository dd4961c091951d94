/* SPDX-License-Identifier: MIT */
/* Loading a recording file and finding its blocks. Every length is checked against what is there;
 * must not know what the events mean. */
#include "recording/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "base/crc32c.h"
#include "base/error.h"

/* Far above what a recorder writes: 2^22 blocks are 256 GiB. */
#define MAX_BLOCKS ((size_t)1 << 22)

static int read_all(int fd, uint8_t *bytes, size_t length, size_t *got)
{
    *got = 0;
    while (*got < length) {
        ssize_t n = read(fd, bytes + *got, length - *got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return 0;
        *got += (size_t)n;
    }
    return 0;
}

static int open_regular(const char *path, size_t *size, int *fd, struct mt_error *error)
{
    struct stat status;
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0)
        return mt_fail_errno(error, errno, "cannot open %s", path);
    if (fstat(opened, &status) < 0 || !S_ISREG(status.st_mode)) {
        close(opened);
        return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET, "%s: not a regular file", path);
    }
    *size = (size_t)status.st_size;
    *fd = opened;
    return 0;
}

static uint32_t header_crc(const struct mt_file_header *header)
{
    struct mt_file_header plain = *header;
    plain.flags &= ~(uint32_t)MT_FILE_PACKED;
    return mt_crc32c(0, &plain, offsetof(struct mt_file_header, crc32c));
}

static int check_header(const char *path, const uint8_t *data, size_t size,
                        struct mt_file_header *header, struct mt_error *error)
{
    if (size < sizeof header->magic || memcmp(data, MT_FILE_MAGIC, sizeof header->magic) != 0)
        return mt_fail(error, MT_EFORMAT, 0, "%s: not a memtally recording", path);
    if (size < sizeof *header)
        return mt_fail(error, MT_ETRUNCATED, size, "%s: the header ends too early", path);
    memcpy(header, data, sizeof *header);
    if (header->byte_order != MT_BYTE_ORDER)
        return mt_fail(error, MT_EFORMAT, offsetof(struct mt_file_header, byte_order),
                       "%s: recorded on a machine of the other byte order", path);
    if (header->version != MT_FILE_VERSION)
        return mt_fail(error, MT_EVERSION, offsetof(struct mt_file_header, version),
                       "%s: format version %u, and this memtally reads version %u: use the "
                       "memtally that recorded it or a newer one",
                       path, header->version, MT_FILE_VERSION);
    if (header->crc32c != header_crc(header))
        return mt_fail(error, MT_ECORRUPT, offsetof(struct mt_file_header, crc32c),
                       "%s: the header fails its checksum", path);
    if (header->header_bytes != MT_HEADER_BYTES || header->block_bytes != MT_BLOCK_BYTES ||
        header->page_bytes < 512 || (header->page_bytes & (header->page_bytes - 1)))
        return mt_fail(error, MT_EFORMAT, offsetof(struct mt_file_header, header_bytes),
                       "%s: sizes in the header make no sense", path);
    return 0;
}

int mt_record_header_read(const char *path, struct mt_file_header *header, struct mt_error *error)
{
    uint8_t bytes[sizeof *header];
    size_t size, got;
    int fd;
    int result = open_regular(path, &size, &fd, error);
    if (result < 0)
        return result;
    int failed = read_all(fd, bytes, sizeof bytes, &got);
    close(fd);
    if (failed)
        return mt_fail_errno(error, -failed, "cannot read %s", path);
    return check_header(path, bytes, got, header, error);
}

static int load(const char *path, struct mt_record_file *file, struct mt_error *error)
{
    size_t size;
    int fd;
    int result = open_regular(path, &size, &fd, error);
    if (result < 0)
        return result;
    file->data = malloc(size ? size : 1);
    if (!file->data) {
        close(fd);
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "%s: %zu bytes do not fit in memory", path,
                       size);
    }
    int failed = read_all(fd, file->data, size, &file->data_bytes);
    close(fd);
    if (failed)
        return mt_fail_errno(error, -failed, "cannot read %s", path);
    return check_header(path, file->data, file->data_bytes, &file->header, error);
}

static void note_bad(struct mt_record_file *file, uint64_t offset)
{
    if (!file->blocks_bad++)
        file->first_bad_offset = offset;
}

static int add_block(struct mt_record_file *file, size_t *capacity, const struct mt_block *block)
{
    if (file->n_blocks == *capacity) {
        size_t more = *capacity ? *capacity * 2 : 64;
        struct mt_block *blocks = realloc(file->blocks, more * sizeof *blocks);
        if (!blocks)
            return MT_ENOMEM;
        file->blocks = blocks;
        *capacity = more;
    }
    file->blocks[file->n_blocks++] = *block;
    return 0;
}

/* A block is taken when its header makes sense and, if it was sealed, its checksum holds. */
static int block_is_good(const struct mt_block_header *header, const uint8_t *events)
{
    if (header->used > MT_BLOCK_BYTES - sizeof *header)
        return 0;
    if (!header->sealed)
        return 1;
    uint32_t crc = mt_crc32c(0, header, offsetof(struct mt_block_header, sealed));
    return mt_crc32c(crc, events, header->used) == header->crc32c;
}

static int is_zero(const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (bytes[i])
            return 0;
    return 1;
}

/* Takes the block whose header is at `at`, of which `room` bytes are there. */
static int take_block(struct mt_record_file *file, size_t *capacity, const uint8_t *at, size_t room,
                      uint64_t offset)
{
    struct mt_block block;
    memcpy(&block.header, at, sizeof block.header);
    block.events = at + sizeof block.header;
    block.open = !block.header.sealed;
    /* A block that was claimed and never begun, or a hole that a crashed machine left. */
    if (block.header.magic == 0 && is_zero(at, sizeof block.header))
        return 0;
    if (block.header.magic != MT_BLOCK_MAGIC || block.header.used > room - sizeof block.header ||
        !block_is_good(&block.header, block.events)) {
        note_bad(file, offset);
        return 0;
    }
    file->blocks_open += (size_t)block.open;
    return add_block(file, capacity, &block);
}

static int find_raw_blocks(struct mt_record_file *file, struct mt_error *error)
{
    size_t capacity = 0;
    size_t at = MT_HEADER_BYTES;
    size_t n = 0;
    for (; at < file->data_bytes && n < file->header.next_block && n < MAX_BLOCKS;
         at += MT_BLOCK_BYTES, n++) {
        size_t room = file->data_bytes - at;
        if (room > MT_BLOCK_BYTES)
            room = MT_BLOCK_BYTES;
        if (room < sizeof(struct mt_block_header)) {
            note_bad(file, at);
            break;
        }
        if (take_block(file, &capacity, file->data + at, room, at) < 0)
            return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "%s: out of memory", file->path);
    }
    return 0;
}

static int find_packed_blocks(struct mt_record_file *file, struct mt_error *error)
{
    size_t capacity = 0;
    size_t at = 0;
    while (at < file->data_bytes) {
        struct mt_block_header header;
        size_t room = file->data_bytes - at;
        if (room < sizeof header) {
            note_bad(file, at);
            break;
        }
        memcpy(&header, file->data + at, sizeof header);
        if (header.magic != MT_BLOCK_MAGIC || header.used > MT_BLOCK_BYTES - sizeof header ||
            header.used > room - sizeof header) {
            note_bad(file, at);
            break;
        }
        if (take_block(file, &capacity, file->data + at, room, at) < 0)
            return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "%s: out of memory", file->path);
        at += sizeof header + header.used;
    }
    return 0;
}

static int by_stream(const void *a, const void *b)
{
    const struct mt_block_header *x = &((const struct mt_block *)a)->header;
    const struct mt_block_header *y = &((const struct mt_block *)b)->header;
    if (x->stream != y->stream)
        return x->stream < y->stream ? -1 : 1;
    return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

/* Puts the unpacked blocks in the place of the packed ones. What comes out is as large as the
 * header says that blocks were claimed, at the most. */
static int unpack(struct mt_record_file *file, struct mt_error *error)
{
    size_t limit = file->header.next_block < MAX_BLOCKS ? file->header.next_block : MAX_BLOCKS;
    limit = limit * MT_BLOCK_BYTES + 1;
    size_t capacity = limit < ((size_t)1 << 20) ? limit : (size_t)1 << 20;
    uint8_t *out = malloc(capacity);
    ZSTD_DStream *stream = ZSTD_createDStream();
    ZSTD_inBuffer input = {file->data, file->data_bytes, MT_HEADER_BYTES};
    ZSTD_outBuffer output = {out, capacity, 0};
    size_t left = 1;
    int result = out && stream ? 0 : MT_ENOMEM;
    while (result == 0 && left != 0 && input.pos < input.size) {
        if (output.pos == output.size) {
            size_t more = capacity * 2 < limit ? capacity * 2 : limit;
            uint8_t *grown = more > capacity ? realloc(out, more) : NULL;
            if (!grown) {
                result = more > capacity ? MT_ENOMEM : MT_EFORMAT;
                break;
            }
            out = grown;
            capacity = more;
            output.dst = out;
            output.size = more;
        }
        left = ZSTD_decompressStream(stream, &output, &input);
        if (ZSTD_isError(left)) {
            note_bad(file, input.pos); /* what came out before it is kept */
            break;
        }
    }
    if (result == 0 && !ZSTD_isError(left) && left != 0)
        note_bad(file, file->data_bytes);
    ZSTD_freeDStream(stream);
    if (result < 0) {
        free(out);
        return mt_fail(error, result, input.pos, "%s: %s", file->path, mt_error_sentence(result));
    }
    free(file->data);
    file->data = out;
    file->data_bytes = output.pos;
    return 0;
}

static void find_last_ticks(struct mt_record_file *file)
{
    struct mt_cursor cursor;
    struct mt_event event;
    file->last_ticks = file->header.start_ticks;
    for (size_t i = 0; i < file->n_blocks; i++) {
        int last = i + 1 == file->n_blocks ||
                   file->blocks[i + 1].header.stream != file->blocks[i].header.stream;
        if (!last)
            continue;
        mt_cursor_init(&cursor, file, i, i + 1);
        while (mt_cursor_next(&cursor, &event))
            if (event.ticks > file->last_ticks)
                file->last_ticks = event.ticks;
    }
}

int mt_record_file_open(const char *path, struct mt_record_file **file, struct mt_error *error)
{
    struct mt_record_file *made = calloc(1, sizeof *made);
    if (!made || !(made->path = strdup(path))) {
        free(made);
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "%s: out of memory", path);
    }
    made->first_bad_offset = MT_NO_OFFSET;
    int result = load(path, made, error);
    if (result == 0 && made->header.flags & MT_FILE_PACKED) {
        if (made->data_bytes <= MT_HEADER_BYTES)
            result = mt_fail(error, MT_ETRUNCATED, made->data_bytes, "%s: nothing after the header",
                             path);
        else
            result = unpack(made, error);
        if (result == 0)
            result = find_packed_blocks(made, error);
    } else if (result == 0) {
        result = find_raw_blocks(made, error);
    }
    if (result < 0) {
        mt_record_file_close(made);
        return result;
    }
    if (made->n_blocks)
        qsort(made->blocks, made->n_blocks, sizeof *made->blocks, by_stream);
    find_last_ticks(made);
    *file = made;
    return 0;
}

void mt_record_file_close(struct mt_record_file *file)
{
    if (!file)
        return;
    free(file->path);
    free(file->blocks);
    free(file->data);
    free(file);
}

void mt_clock_of_file(const struct mt_record_file *file, struct mt_clock *clock)
{
    const struct mt_file_header *header = &file->header;
    *clock = (struct mt_clock){header->start_ticks, header->start_monotonic_ns, 1.0};
    if (header->clock_kind == MT_CLOCK_MONOTONIC)
        return;
    uint64_t end_ticks = header->end_ticks;
    uint64_t end_ns = header->end_monotonic_ns;
    /* A killed process left no end; the last pair that a stream wrote serves. */
    for (size_t i = 0; i < file->n_blocks; i++) {
        struct mt_cursor cursor;
        struct mt_event event;
        mt_cursor_init(&cursor, file, i, i + 1);
        while (!header->end_ticks && mt_cursor_next(&cursor, &event)) {
            int picture = event.op == MT_EVENT_PICTURE_BEGIN;
            uint64_t ns = picture ? event.field[2] : event.field[0];
            if ((picture || event.op == MT_EVENT_CLOCK) && ns && event.ticks > end_ticks) {
                end_ticks = event.ticks;
                end_ns = ns;
            }
        }
    }
    if (end_ticks > clock->ticks && end_ns > clock->monotonic_ns)
        clock->ns_per_tick =
            (double)(end_ns - clock->monotonic_ns) / (double)(end_ticks - clock->ticks);
}

uint64_t mt_clock_ns(const struct mt_clock *clock, uint64_t ticks)
{
    double ns = (double)(int64_t)(ticks - clock->ticks) * clock->ns_per_tick;
    if (ns < 0)
        return clock->monotonic_ns;
    return clock->monotonic_ns + (uint64_t)ns;
}

uint64_t mt_clock_ticks(const struct mt_clock *clock, uint64_t monotonic_ns)
{
    double ticks = (double)(int64_t)(monotonic_ns - clock->monotonic_ns) / clock->ns_per_tick;
    if (ticks < 0)
        return clock->ticks;
    return clock->ticks + (uint64_t)ticks;
}
