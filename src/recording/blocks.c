/* SPDX-License-Identifier: MIT */
/* Finding the blocks of a recording file: which are whole, in what order they were written,
 * which are missing. Every length is checked against what is there; must not know what the events
 * mean. */
#include "recording/blocks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memtally/error_code.h>

#include "base/array.h"
#include "base/crc32c.h"

struct finder {
    struct mt_record_file *file;
    size_t capacity;
    uint64_t n_zero; /* places of blocks that hold nothing */
    uint64_t first_zero_offset;
    uint64_t n_zero_since; /* the last place that held something */
};

/* So many empty places behind one another end a file whose holes cannot be found: 256 MiB, of the
 * 64 GiB that it may become. */
#define MOST_EMPTY 4096
#define SCANS_MOST 3

enum found { FOUND_BLOCK, FOUND_NOTHING, FOUND_DAMAGE };

void mt_note_bad(struct mt_record_file *file, uint64_t offset)
{
    if (!file->blocks_bad++)
        file->first_bad_offset = offset;
}

static int add(struct finder *finder, const struct mt_block *block)
{
    struct mt_record_file *file = finder->file;
    if (mt_array_reserve(file->blocks, file->n_blocks, finder->capacity, 64) < 0)
        return MT_ENOMEM;
    file->blocks[file->n_blocks++] = *block;
    return 0;
}

static int is_zero(const uint8_t *bytes, size_t length)
{
    return length == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0);
}

static int checksum_holds(const struct mt_block_header *header, const uint8_t *events)
{
    uint32_t crc = mt_crc32c(0, header, offsetof(struct mt_block_header, sealed));
    return mt_crc32c(crc, events, header->used) == header->crc32c;
}

/* Whether nothing was written there but, at most, the beginning of a header: a process may be
 * killed before the magic, which comes last. */
static int is_unbegun(const uint8_t *at, size_t room, const struct mt_block_header *header)
{
    return !header->magic && !header->used && !header->sealed &&
           is_zero(at + sizeof *header, room - sizeof *header);
}

/* Looks at the block that begins at `at`, of which `room` bytes are there. A block that was claimed
 * and never begun is nothing, and so is what a crashed machine left of one that it never wrote. */
static enum found look(const uint8_t *at, size_t room, struct mt_block *block)
{
    const struct mt_block_header *header = &block->header;
    if (room < sizeof *header)
        return is_zero(at, room) ? FOUND_NOTHING : FOUND_DAMAGE;
    memcpy(&block->header, at, sizeof block->header);
    block->open = header->sealed != MT_BLOCK_SEALED;
    if (header->magic != MT_BLOCK_MAGIC)
        return is_unbegun(at, room, header) ? FOUND_NOTHING : FOUND_DAMAGE;
    if (room > MT_BLOCK_BYTES)
        room = MT_BLOCK_BYTES;
    if (header->used > room - sizeof *header)
        return FOUND_DAMAGE;
    if (header->sealed != MT_BLOCK_OPEN)
        return checksum_holds(header, at + sizeof *header) ? FOUND_BLOCK : FOUND_DAMAGE;
    return header->used ? FOUND_BLOCK : FOUND_NOTHING;
}

static int by_stream(const void *a, const void *b)
{
    const struct mt_block *x = a;
    const struct mt_block *y = b;
    if (x->header.stream != y->header.stream)
        return x->header.stream < y->header.stream ? -1 : 1;
    if (x->header.sequence != y->header.sequence)
        return x->header.sequence < y->header.sequence ? -1 : 1;
    if (x->open != y->open)
        return x->open - y->open;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* If blocks have one number, the sealed one stays, else the first. */
static void drop_doubles(struct mt_record_file *file)
{
    size_t n = 0;
    for (size_t i = 0; i < file->n_blocks; i++) {
        const struct mt_block *block = &file->blocks[i];
        const struct mt_block *last = n ? &file->blocks[n - 1] : NULL;
        if (last && last->header.stream == block->header.stream &&
            last->header.sequence == block->header.sequence) {
            mt_note_bad(file, block->offset);
            continue;
        }
        file->blocks[n++] = *block;
    }
    file->n_blocks = n;
}

/* How many blocks the numbers of those that are there leave out. */
static uint64_t count_missing(const struct mt_record_file *file)
{
    uint64_t missing = 0;
    for (size_t i = 0; i < file->n_blocks; i++) {
        const struct mt_block_header *header = &file->blocks[i].header;
        const struct mt_block_header *last = i ? &file->blocks[i - 1].header : NULL;
        uint32_t expected = last && last->stream == header->stream ? last->sequence + 1 : 0;
        missing += header->sequence - expected;
    }
    return missing;
}

/* Each bad block leaves a gap in the numbers of its stream. More gaps than that are blocks whose
 * places are empty: they never reached the disk. */
static void note_missing(struct finder *finder)
{
    struct mt_record_file *file = finder->file;
    uint64_t missing = count_missing(file);
    uint64_t lost = missing > file->blocks_bad ? missing - file->blocks_bad : 0;
    if (lost > finder->n_zero)
        lost = finder->n_zero;
    while (lost-- > 0)
        mt_note_bad(file, finder->first_zero_offset);
}

static void put_in_order(struct finder *finder)
{
    struct mt_record_file *file = finder->file;
    if (file->n_blocks)
        qsort(file->blocks, file->n_blocks, sizeof *file->blocks, by_stream);
    drop_doubles(file);
    note_missing(finder);
}

static int take_raw_block(struct finder *finder, const uint8_t *bytes, size_t length, uint64_t at)
{
    struct mt_block block = {.offset = at};
    enum found found = look(bytes, length, &block);
    if (found == FOUND_DAMAGE)
        mt_note_bad(finder->file, at);
    if (found == FOUND_NOTHING && finder->n_zero++ == 0)
        finder->first_zero_offset = at;
    finder->n_zero_since = found == FOUND_NOTHING ? finder->n_zero_since + 1 : 0;
    return found == FOUND_BLOCK ? add(finder, &block) : 0;
}

/* Blocks that were open may have been sealed since, and their streams gone on in later ones. Looks
 * again from the last to the first: before a block that goes on a stream, its earlier ones ended.
 */
static int look_again(struct mt_record_file *file, uint8_t *bytes)
{
    for (size_t i = file->n_blocks; i-- > 0;) {
        struct mt_block block = {.offset = file->blocks[i].offset};
        if (!file->blocks[i].open)
            continue;
        long length = mt_file_read(file, block.offset, bytes, MT_BLOCK_BYTES);
        if (length < 0)
            return MT_EIO;
        if (look(bytes, (size_t)length, &block) == FOUND_BLOCK)
            file->blocks[i] = block;
    }
    return 0;
}

static int scan(struct mt_record_file *file)
{
    struct finder finder = {.file = file};
    uint64_t n = 0;
    int result = 0;
    uint8_t *bytes = malloc(MT_BLOCK_BYTES);
    if (!bytes)
        return MT_ENOMEM;
    for (uint64_t at = file->header.header_bytes; at < file->file_bytes && result == 0; n++) {
        long length = mt_file_read(file, at, bytes, MT_BLOCK_BYTES);
        result = length < 0 ? MT_EIO : take_raw_block(&finder, bytes, (size_t)length, at);
        at += MT_BLOCK_BYTES;
        if (!file->is_end_known && finder.n_zero_since >= MOST_EMPTY &&
            n >= file->header.blocks_backed)
            break;
    }
    if (result == 0)
        result = look_again(file, bytes);
    free(bytes);
    if (result < 0)
        return result;
    if (n < file->header.blocks_backed)
        mt_note_bad(file, file->file_bytes);
    put_in_order(&finder);
    return 0;
}

/* A copy of what is written meanwhile has its bytes in no order, and may look damaged. Damage is
 * what stays. */
int mt_find_raw_blocks(struct mt_record_file *file)
{
    int result = 0;
    for (int i = 0; i < SCANS_MOST && result == 0; i++) {
        free(file->blocks);
        file->blocks = NULL;
        file->n_blocks = 0;
        file->blocks_bad = 0;
        file->first_bad_offset = MT_NO_OFFSET;
        result = scan(file);
        if (!file->blocks_bad)
            break;
    }
    return result;
}

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

void mt_note_pair(struct mt_record_file *file, uint64_t ticks, uint64_t ns)
{
    if (!ns || ticks <= file->last_pair_ticks)
        return;
    file->last_pair_ticks = ticks;
    file->last_pair_ns = ns;
}

void mt_note_time(struct mt_record_file *file, const struct mt_event *event)
{
    if (event->ticks > file->last_ticks)
        file->last_ticks = event->ticks;
    if (event->op == MT_EVENT_CLOCK)
        mt_note_pair(file, event->ticks, event->field[0]);
    else if (event->op == MT_EVENT_PICTURE_BEGIN)
        mt_note_pair(file, event->ticks, event->field[2]);
}
