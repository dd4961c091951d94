/* SPDX-License-Identifier: MIT */
/* Opening a recording file, and its clock. Every length is checked against what is
 * there; must not know what the events are about. */
#include "recording/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/fail_errno.h"
#include "base/invariant.h"
#include "base/out_of_memory.h"
#include "recording/blocks.h"
#include "recording/unpack.h"

uint32_t mt_header_tail_crc(const struct mt_file_header *header)
{
    const size_t first = offsetof(struct mt_file_header, next_block);
    return mt_crc32c(0, (const uint8_t *)header + first,
                     offsetof(struct mt_file_header, tail_crc32c) - first);
}

/* A file that is not larger is kept in memory, and its descriptor closed. */
#define SMALL_BYTES ((uint64_t)1 << 17)

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
    if (header->version < MT_FILE_OLDEST || header->version > MT_FILE_VERSION)
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

/* A block gets its pages one after the other, and may have all of them before it is read. */
static uint64_t end_of_block(const struct mt_file_header *header, uint64_t end)
{
    uint64_t over = end > header->header_bytes ? (end - header->header_bytes) % MT_BLOCK_BYTES : 0;
    return header->flags & MT_FILE_PACKED || !over ? end : end + MT_BLOCK_BYTES - over;
}

/* Where the file's data ends. One that is not packed is as large as it may become, its end a hole.
 * What the header says of its blocks is not believed: a machine may have crashed. */
static uint64_t end_of_data(const struct mt_file_header *header, int fd, uint64_t size,
                            int *is_known)
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
    *is_known = at < 0 && errno == ENXIO;
    uint64_t known = *is_known ? end_of_block(header, (uint64_t)end) : size;
    return known < size ? known : size;
}

/* Reads a small file whole and closes it, so that many can be open. */
static int load(struct mt_record_file *file, struct mt_error *error)
{
    size_t got;
    if (file->file_bytes > SMALL_BYTES)
        return 0;
    file->data = malloc((size_t)file->file_bytes + 1);
    if (!file->data)
        return mt_out_of_memory_for(error, file->path);
    int failed = lseek(file->fd, 0, SEEK_SET) < 0
                     ? -errno
                     : read_all(file->fd, file->data, (size_t)file->file_bytes, &got);
    if (failed)
        return mt_fail_errno(error, -failed, "cannot read %s", file->path);
    file->file_bytes = got;
    close(file->fd);
    file->fd = -1;
    return 0;
}

/* Keeps the file for reading; *fd is -1 when it is the file's from now on. */
static int keep(struct mt_record_file *file, int *fd, size_t got, struct mt_error *error)
{
    struct stat status;
    if (fstat(*fd, &status) < 0)
        return mt_fail_errno(error, errno, "cannot read %s", file->path);
    file->file_bytes =
        end_of_data(&file->header, *fd, (uint64_t)status.st_size, &file->is_end_known);
    if (file->file_bytes < got)
        file->file_bytes = got;
    file->fd = *fd;
    *fd = -1;
    return 0;
}

static int open_file(struct mt_record_file *file, struct mt_error *error)
{
    uint8_t page[MT_HEADER_BYTES];
    size_t got;
    int fd = open_regular(file->path, error);
    if (fd < 0)
        return fd;
    int result = read_header(file->path, fd, page, &got, &file->header, error);
    if (result == 0)
        result = keep(file, &fd, got, error);
    if (fd >= 0)
        close(fd);
    return result;
}

static int fail_reading(const struct mt_record_file *file, int code, struct mt_error *error)
{
    return mt_fail(error, code, MT_NO_OFFSET,
                   code == MT_ENOMEM ? "%s: out of memory" : "%s: cannot be read", file->path);
}

static int is_last_of_stream(const struct mt_record_file *file, size_t block)
{
    return block + 1 == file->n_blocks ||
           file->blocks[block + 1].header.stream != file->blocks[block].header.stream;
}

/* What is last in a stream is in its last block. */
static int find_last_times(struct mt_record_file *file, struct mt_error *error)
{
    struct mt_cursor cursor;
    struct mt_event event;
    mt_cursor_init(&cursor, file, 0, 0);
    for (size_t i = 0; i < file->n_blocks && !cursor.failed; i++) {
        const struct mt_block_header *header = &file->blocks[i].header;
        if (!is_last_of_stream(file, i))
            continue;
        mt_note_pair(file, header->clock_ticks, header->clock_monotonic_ns);
        mt_cursor_move(&cursor, i, i + 1);
        while (mt_cursor_next(&cursor, &event))
            mt_note_time(file, &event);
    }
    int failed = cursor.failed;
    mt_cursor_finish(&cursor);
    return failed ? fail_reading(file, failed, error) : 0;
}

/* A copy of what is written meanwhile has its bytes in no order: events are read after the header
 * that tells how many there are, never with it. */
static int find_blocks(struct mt_record_file *file, struct mt_error *error)
{
    int result = mt_find_raw_blocks(file);
    if (result < 0)
        return fail_reading(file, result, error);
    result = load(file, error);
    return result < 0 ? result : find_last_times(file, error);
}

static int find_frames(struct mt_record_file *file, struct mt_error *error)
{
    if (file->header.blocks_backed && file->file_bytes <= file->header.header_bytes)
        return mt_fail(error, MT_ETRUNCATED, file->file_bytes, "%s: nothing after the header",
                       file->path);
    int result = load(file, error);
    if (result < 0)
        return result;
    result = mt_find_frames(file);
    if (result < 0)
        return fail_reading(file, result, error);
    file->blocks_bad += file->header.blocks_dropped;
    return 0;
}

int mt_record_file_open(const char *path, struct mt_record_file **file, struct mt_error *error)
{
    struct mt_record_file *made = calloc(1, sizeof *made);
    if (!made || !(made->path = strdup(path))) {
        free(made);
        return mt_out_of_memory_for(error, path);
    }
    made->first_bad_offset = MT_NO_OFFSET;
    made->fd = -1;
    int result = open_file(made, error);
    made->last_ticks = made->header.start_ticks;
    if (result == 0)
        result = made->header.flags & MT_FILE_PACKED ? find_frames(made, error)
                                                     : find_blocks(made, error);
    if (result < 0) {
        mt_record_file_close(made);
        return result;
    }
    MT_HOLDS(mt_record_file_is_valid(made));
    *file = made;
    return 0;
}

void mt_record_file_close(struct mt_record_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    free(file->blocks);
    free(file->frames);
    free(file->data);
    free(file);
}

void mt_clock_of_file(const struct mt_record_file *file, struct mt_clock *clock)
{
    const struct mt_file_header *header = &file->header;
    *clock = (struct mt_clock){header->start_ticks, header->start_monotonic_ns, 1.0};
    if (header->clock_kind == MT_CLOCK_MONOTONIC)
        return;
    /* A process that was killed or runs still has none of its end in the header. */
    int says_end = header->end_ticks && header->end_monotonic_ns;
    uint64_t ticks = says_end ? header->end_ticks : file->last_pair_ticks;
    uint64_t ns = says_end ? header->end_monotonic_ns : file->last_pair_ns;
    if (ticks > clock->ticks && ns > clock->monotonic_ns)
        clock->ns_per_tick = (double)(ns - clock->monotonic_ns) / (double)(ticks - clock->ticks);
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
