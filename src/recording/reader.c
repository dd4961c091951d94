/* SPDX-License-Identifier: MIT */
/* Loading a recording file, unpacking it, and its clock. Every length is checked against what is
 * there; must not know what the events are about. */
#include "recording/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "recording/blocks.h"

uint32_t mt_header_tail_crc(const struct mt_file_header *header)
{
    const size_t first = offsetof(struct mt_file_header, next_block);
    return mt_crc32c(0, (const uint8_t *)header + first,
                     offsetof(struct mt_file_header, tail_crc32c) - first);
}

/* Far above what a recorder writes: 2^22 blocks are 256 GiB. */
#define MAX_TRIES  65536u
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

/* Returns a descriptor or an MT_E code. */
static int open_regular(const char *path, struct mt_error *error)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return mt_fail_errno(error, errno, "cannot open %s", path);
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) {
        close(fd);
        return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET, "%s: not a regular file", path);
    }
    return fd;
}

static uint32_t header_crc(const struct mt_file_header *header)
{
    struct mt_file_header plain = *header;
    plain.flags &= ~(uint32_t)MT_FILE_PACKED;
    return mt_crc32c(0, &plain, offsetof(struct mt_file_header, crc32c));
}

/* In a packed file the rest of the header does not change any more. */
static int checksums_hold(const struct mt_file_header *header)
{
    return header->crc32c == header_crc(header) &&
           (!(header->flags & MT_FILE_PACKED) || header->tail_crc32c == mt_header_tail_crc(header));
}

/* Whether the recorder made the file and its process ended before it wrote to it: the magic comes
 * last, and the file's size first. */
static int is_blank(const uint8_t *data, size_t size)
{
    static const uint8_t none[sizeof MT_FILE_MAGIC - 1];
    return size == 0 || (size >= sizeof none && memcmp(data, none, sizeof none) == 0);
}

/* A page of the machine that recorded. */
static int is_header_size(uint32_t bytes)
{
    return bytes >= MT_HEADER_BYTES && bytes <= MT_BLOCK_BYTES && (bytes & (bytes - 1)) == 0;
}

static int check_header(const char *path, const uint8_t *data, size_t size,
                        struct mt_file_header *header, struct mt_error *error)
{
    if (is_blank(data, size))
        return mt_fail(error, MT_ETRUNCATED, 0,
                       "%s: begun and never written: its process ended before it recorded anything",
                       path);
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
    if (!checksums_hold(header))
        return mt_fail(error, MT_ECORRUPT, offsetof(struct mt_file_header, crc32c),
                       "%s: the header fails its checksum", path);
    if (!is_header_size(header->header_bytes) || header->block_bytes != MT_BLOCK_BYTES ||
        header->page_bytes < 512 || (header->page_bytes & (header->page_bytes - 1)))
        return mt_fail(error, MT_EFORMAT, offsetof(struct mt_file_header, header_bytes),
                       "%s: sizes in the header make no sense", path);
    return 0;
}

/* Reads up to a page of header and checks it; *got says how much is there. */
static int read_header(const char *path, int fd, uint8_t page[MT_HEADER_BYTES], size_t *got,
                       struct mt_file_header *header, struct mt_error *error)
{
    int failed = read_all(fd, page, MT_HEADER_BYTES, got);
    if (failed)
        return mt_fail_errno(error, -failed, "cannot read %s", path);
    return check_header(path, page, *got, header, error);
}

int mt_record_header_read(const char *path, struct mt_file_header *header, struct mt_error *error)
{
    uint8_t page[MT_HEADER_BYTES];
    struct mt_file_header read;
    size_t got;
    int fd = open_regular(path, error);
    if (fd < 0)
        return fd;
    int result = read_header(path, fd, page, &got, &read, error);
    close(fd);
    if (result == 0)
        *header = read;
    return result;
}

int mt_record_file_is_blank(const char *path)
{
    uint8_t page[MT_HEADER_BYTES];
    size_t got;
    int fd = open_regular(path, NULL);
    if (fd < 0)
        return 0;
    int failed = read_all(fd, page, sizeof page, &got);
    close(fd);
    return !failed && is_blank(page, got);
}

/* Where the file's data ends. One that is not packed is as large as it may become, its end a hole.
 * What the header says of its blocks is not believed: a machine may have crashed. */
static size_t end_of_data(int fd, uint64_t size)
{
    off_t end = 0;
    off_t at;
    while ((at = lseek(fd, end, SEEK_DATA)) >= 0) {
        off_t hole = lseek(fd, at, SEEK_HOLE);
        if (hole <= at)
            break;
        end = hole;
    }
    /* Where there are no holes to be found, all is data. */
    int is_known = at < 0 && errno == ENXIO;
    return (size_t)(is_known && (uint64_t)end < size ? (uint64_t)end : size);
}

/* Reads what is behind the header. */
static int load_rest(struct mt_record_file *file, int fd, const uint8_t *page, size_t got,
                     struct mt_error *error)
{
    struct stat status;
    size_t more = 0;
    if (fstat(fd, &status) < 0)
        return mt_fail_errno(error, errno, "cannot read %s", file->path);
    size_t size = end_of_data(fd, (uint64_t)status.st_size);
    if (size < got)
        size = got;
    if (lseek(fd, (off_t)got, SEEK_SET) < 0)
        return mt_fail_errno(error, errno, "cannot read %s", file->path);
    file->data = malloc(size);
    if (!file->data)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "%s: %zu bytes do not fit in memory",
                       file->path, size);
    memcpy(file->data, page, got);
    int failed = got < MT_HEADER_BYTES ? 0 : read_all(fd, file->data + got, size - got, &more);
    if (failed)
        return mt_fail_errno(error, -failed, "cannot read %s", file->path);
    file->data_bytes = got + more;
    return 0;
}

static int load(struct mt_record_file *file, struct mt_error *error)
{
    uint8_t page[MT_HEADER_BYTES];
    size_t got;
    int fd = open_regular(file->path, error);
    if (fd < 0)
        return fd;
    int result = read_header(file->path, fd, page, &got, &file->header, error);
    if (result == 0)
        result = load_rest(file, fd, page, got, error);
    close(fd);
    return result;
}

/* Where the unpacked form goes. It is as large as the header says that blocks are in it, at the
 * most. */
struct unpacked {
    uint8_t *bytes;
    size_t length;
    size_t capacity;
    size_t limit;
};

/* Makes room. Returns 1, 0 at the limit, or MT_ENOMEM. */
static int grow(struct unpacked *out)
{
    if (out->length < out->capacity)
        return 1;
    if (out->capacity == out->limit)
        return 0;
    size_t first = (size_t)1 << 20;
    size_t more = out->capacity ? out->capacity * 2 : first;
    if (more > out->limit)
        more = out->limit;
    uint8_t *grown = realloc(out->bytes, more);
    if (!grown)
        return MT_ENOMEM;
    out->bytes = grown;
    out->capacity = more;
    return 1;
}

/* Decompresses the frame that `input` stands at. Returns 1, 0 where it is damaged or cut (what came
 * out before that is kept), or MT_ENOMEM. */
static int decompress_frame(ZSTD_DStream *stream, ZSTD_inBuffer *input, struct unpacked *out)
{
    size_t left = 1;
    ZSTD_DCtx_reset(stream, ZSTD_reset_session_only);
    while (left != 0) {
        int room = grow(out);
        if (room <= 0)
            return room;
        ZSTD_outBuffer output = {out->bytes, out->capacity, out->length};
        size_t before = input->pos;
        left = ZSTD_decompressStream(stream, &output, input);
        if (ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
            return MT_ENOMEM;
        int stuck = input->pos == before && output.pos == out->length;
        out->length = output.pos;
        if (ZSTD_isError(left) || (left != 0 && stuck))
            return 0;
    }
    return 1;
}

/* Where the next frame may begin, at or after `from`; the end where nothing looks like one. */
static size_t next_frame(const struct mt_record_file *file, size_t from)
{
    static const uint8_t magic[] = {0x28, 0xb5, 0x2f, 0xfd};
    if (from >= file->data_bytes)
        return file->data_bytes;
    const uint8_t *found = memmem(file->data + from, file->data_bytes - from, magic, sizeof magic);
    return found ? (size_t)(found - file->data) : file->data_bytes;
}

/* Decompresses frame by frame. Behind a damaged one the next is searched for; what a damaged one
 * gave counts against the limit, so that the search comes to an end. */
static int decompress(struct mt_record_file *file, ZSTD_DStream *stream, struct unpacked *out)
{
    ZSTD_inBuffer input = {file->data, file->data_bytes, file->header.header_bytes};
    unsigned tries = MAX_TRIES;
    while (input.pos < input.size && tries) {
        size_t start = input.pos;
        int result = decompress_frame(stream, &input, out);
        if (result < 0)
            return result;
        if (result > 0)
            continue;
        mt_note_bad(file, file->header.header_bytes + out->length);
        input.pos = next_frame(file, start + 1);
        tries--;
    }
    return 0;
}

/* Puts the unpacked blocks in the place of the packed ones. */
static int unpack(struct mt_record_file *file)
{
    size_t n_blocks = file->header.next_block < MAX_BLOCKS ? file->header.next_block : MAX_BLOCKS;
    struct unpacked out = {.limit = n_blocks * MT_BLOCK_BYTES + 1};
    ZSTD_DStream *stream = ZSTD_createDStream();
    int result = stream ? decompress(file, stream, &out) : MT_ENOMEM;
    ZSTD_freeDStream(stream);
    if (result < 0) {
        free(out.bytes);
        return result;
    }
    free(file->data);
    file->data = out.bytes;
    file->data_bytes = out.length;
    return 0;
}

static int find_blocks(struct mt_record_file *file, struct mt_error *error)
{
    int packed = (file->header.flags & MT_FILE_PACKED) != 0;
    int result = 0;
    if (packed && file->data_bytes <= file->header.header_bytes)
        return mt_fail(error, MT_ETRUNCATED, file->data_bytes, "%s: nothing after the header",
                       file->path);
    if (packed)
        result = unpack(file);
    if (result == 0)
        result = packed ? mt_find_packed_blocks(file) : mt_find_raw_blocks(file);
    if (result < 0)
        return mt_fail(error, result, MT_NO_OFFSET, "%s: out of memory", file->path);
    if (packed)
        file->blocks_bad += file->header.blocks_dropped;
    return 0;
}

static int is_last_of_stream(const struct mt_record_file *file, size_t block)
{
    return block + 1 == file->n_blocks ||
           file->blocks[block + 1].header.stream != file->blocks[block].header.stream;
}

static void find_last_ticks(struct mt_record_file *file)
{
    struct mt_cursor cursor;
    struct mt_event event;
    file->last_ticks = file->header.start_ticks;
    for (size_t i = 0; i < file->n_blocks; i++) {
        mt_cursor_init(&cursor, file, i, i + 1);
        while (is_last_of_stream(file, i) && mt_cursor_next(&cursor, &event))
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
    int result = load(made, error);
    if (result == 0)
        result = find_blocks(made, error);
    if (result < 0) {
        mt_record_file_close(made);
        return result;
    }
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

/* A moment by both clocks. */
struct pair {
    uint64_t ticks;
    uint64_t ns;
};

static void keep_later(struct pair *pair, uint64_t ticks, uint64_t ns)
{
    if (ns && ticks > pair->ticks)
        *pair = (struct pair){ticks, ns};
}

/* The latest moment that is known by both clocks; for a process that was killed or runs still,
 * whose header has none of its end. In a stream it is in the last block. */
static struct pair find_last_pair(const struct mt_record_file *file)
{
    struct mt_cursor cursor;
    struct mt_event event;
    struct pair pair = {0, 0};
    for (size_t i = 0; i < file->n_blocks; i++) {
        if (!is_last_of_stream(file, i))
            continue;
        const struct mt_block_header *header = &file->blocks[i].header;
        keep_later(&pair, header->clock_ticks, header->clock_monotonic_ns);
        mt_cursor_init(&cursor, file, i, i + 1);
        while (mt_cursor_next(&cursor, &event)) {
            if (event.op == MT_EVENT_CLOCK)
                keep_later(&pair, event.ticks, event.field[0]);
            else if (event.op == MT_EVENT_PICTURE_BEGIN)
                keep_later(&pair, event.ticks, event.field[2]);
        }
    }
    return pair;
}

void mt_clock_of_file(const struct mt_record_file *file, struct mt_clock *clock)
{
    const struct mt_file_header *header = &file->header;
    *clock = (struct mt_clock){header->start_ticks, header->start_monotonic_ns, 1.0};
    if (header->clock_kind == MT_CLOCK_MONOTONIC)
        return;
    struct pair end = {header->end_ticks, header->end_monotonic_ns};
    if (!end.ticks || !end.ns)
        end = find_last_pair(file);
    if (end.ticks > clock->ticks && end.ns > clock->monotonic_ns)
        clock->ns_per_tick =
            (double)(end.ns - clock->monotonic_ns) / (double)(end.ticks - clock->ticks);
}

/* `start` and what lies `difference` behind it, neither before `start` nor past the end of time. */
static uint64_t later(uint64_t start, double difference)
{
    if (!(difference > 0))
        return start;
    if (difference >= (double)(UINT64_MAX - start))
        return UINT64_MAX;
    return start + (uint64_t)difference;
}

uint64_t mt_clock_ns(const struct mt_clock *clock, uint64_t ticks)
{
    if (ticks <= clock->ticks)
        return clock->monotonic_ns;
    return later(clock->monotonic_ns, (double)(ticks - clock->ticks) * clock->ns_per_tick);
}

uint64_t mt_clock_ticks(const struct mt_clock *clock, uint64_t monotonic_ns)
{
    if (monotonic_ns <= clock->monotonic_ns)
        return clock->ticks;
    return later(clock->ticks, (double)(monotonic_ns - clock->monotonic_ns) / clock->ns_per_tick);
}
