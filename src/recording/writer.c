/* SPDX-License-Identifier: MIT */
/* The writer half of the recording format. This file is part of the preloaded recorder: it may use
 * nothing that allocates, locks or sets errno. It must not know what the events are about. */
#include "recording/writer.h"

#include <errno.h>
#include <fcntl.h>

#include "base/crc32c.h"
#include "base/ticks.h"
/* How many events are lost before a block is asked for again. */
#define RETRY_EVERY   1024u
#define ROOM_MOST     ((uint64_t)64 << 30) /* that a file may grow to */
#define WINDOW_BLOCKS ((uint64_t)1024)
#define RUN_MOST      8u  /* blocks of a writer that are mapped at a time */
#define RUNS_MOST     64u /* of all writers, where each has more than one */

/* libc's memcpy may be an indirect function that is not bound yet when the first hook runs. */
static void copy(void *to, const void *from, size_t length)
{
    uint8_t *out = to;
    const uint8_t *in = from;
    size_t i = 0;
    for (; length - i >= sizeof(uint64_t); i += sizeof(uint64_t)) {
        uint64_t word;
        __builtin_memcpy(&word, in + i, sizeof word);
        __builtin_memcpy(out + i, &word, sizeof word);
    }
    for (; i < length; i++)
        out[i] = in[i];
}

/* The magic comes last: a process may be killed at any point, and a file without it is one that was
 * begun and never written. */
static void fill_header(struct mt_file_header *header, const struct mt_file_header *initial,
                        uint32_t header_bytes)
{
    struct mt_file_header made = *initial;
    copy(made.magic, MT_FILE_MAGIC, sizeof made.magic);
    made.version = MT_FILE_VERSION;
    made.byte_order = MT_BYTE_ORDER;
    made.header_bytes = header_bytes;
    made.block_bytes = MT_BLOCK_BYTES;
    made.next_block = made.blocks_backed = 0;
    made.crc32c = mt_crc32c(0, &made, offsetof(struct mt_file_header, crc32c));
    const size_t rest = sizeof made.magic;
    copy((uint8_t *)header + rest, (const uint8_t *)&made + rest, sizeof made - rest);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    copy(header->magic, made.magic, sizeof made.magic);
}

static int is_too_much(int result)
{
    return result == -EFBIG || result == -EINVAL;
}

/* The largest size in whole blocks that the file system and the program's limits allow. */
static int make_room(struct mt_file *file, int fd)
{
    uint64_t fits = 0;
    uint64_t most = ROOM_MOST / MT_BLOCK_BYTES;
    for (uint64_t n = most; n > fits; n = fits + (most - fits + 1) / 2) {
        uint64_t bytes = file->page_bytes + n * MT_BLOCK_BYTES;
        int result = file->os->resize(fd, bytes);
        if (result < 0 && !is_too_much(result))
            return result;
        if (result < 0) {
            most = n - 1;
            continue;
        }
        fits = n;
        file->room_bytes = bytes;
    }
    return fits ? 0 : -27;
}

/* Some that stand in for a kernel (qemu's user mode) have no way from page to page. Then the file's
 * beginning is mapped as a whole, and no more can be had. */
static void *map_window(struct mt_file *file, int fd)
{
    uint64_t bytes = file->page_bytes + WINDOW_BLOCKS * MT_BLOCK_BYTES;
    if (bytes > file->room_bytes)
        bytes = file->room_bytes;
    uint8_t *mapped = file->os->map(fd, bytes);
    if (!mapped)
        return NULL;
    file->window = mapped + file->page_bytes;
    file->window_end = mapped + bytes;
    return mapped;
}

/* A forked child writes its own file. Of its parent's the header stays mapped in it, which shows
 * whose child it is, and no block. */
static int map_header(struct mt_file *file, int fd)
{
    const struct mt_record_os *os = file->os;
    int result = make_room(file, fd);
    void *mapped = result < 0 ? NULL : os->map(fd, file->page_bytes);
    if (!mapped)
        return result < 0 ? result : -12; /* ENOMEM */
    result = os->back(mapped, file->page_bytes);
    file->last_page = result < 0 ? NULL : os->map_on(mapped, file->page_bytes);
    if (file->last_page)
        os->keep_from_children(file->last_page, file->page_bytes);
    if (result == 0 && !file->last_page) {
        os->unmap(mapped, file->page_bytes);
        mapped = map_window(file, fd);
        result = mapped ? 0 : -12;
    } else if (result < 0) {
        os->unmap(mapped, file->page_bytes);
    }
    if (result == 0)
        file->header = mapped;
    return result;
}

int mt_file_create(struct mt_file *file, const struct mt_record_os *os, const char *path,
                   const struct mt_file_header *initial)
{
    int fd = os->open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fd;
    file->os = os;
    file->window = NULL;
    file->use_counter = initial->clock_kind != MT_CLOCK_MONOTONIC;
    file->page_bytes =
        initial->page_bytes > MT_HEADER_BYTES ? initial->page_bytes : MT_HEADER_BYTES;
    int result = map_header(file, fd);
    os->close(fd);
    if (result == 0)
        fill_header(file->header, initial, (uint32_t)file->page_bytes);
    return result;
}

void mt_file_close(struct mt_file *file)
{
    if (!file->header)
        return;
    if (file->last_page)
        file->os->unmap(file->last_page, file->page_bytes);
    file->os->unmap(file->header, file->page_bytes);
    file->header = NULL;
    file->last_page = NULL;
}

int mt_writer_is_valid(const struct mt_writer *writer)
{
    if (!writer->block)
        return !writer->events && !writer->cursor && !writer->limit;
    return writer->events <= writer->cursor && writer->cursor <= writer->limit &&
           writer->cursor == writer->events + writer->block->used;
}

void mt_writer_init(struct mt_writer *writer, struct mt_file *file, uint32_t stream, uint32_t tid)
{
    *writer = (struct mt_writer){.file = file, .stream = stream, .tid = tid};
}

static void seal(struct mt_writer *writer)
{
    struct mt_block_header *block = writer->block;
    block->small_allocs = writer->small_allocs;
    block->small_alloc_bytes = writer->small_alloc_bytes;
    block->small_frees = writer->small_frees;
    block->small_free_bytes = writer->small_free_bytes;
    uint32_t crc = mt_crc32c(0, block, offsetof(struct mt_block_header, sealed));
    block->crc32c = mt_crc32c(crc, writer->events, block->used);
    __atomic_store_n(&block->sealed, 1, __ATOMIC_RELEASE);
}

static void leave_block(struct mt_writer *writer)
{
    seal(writer);
    writer->block = NULL;
    writer->cursor = writer->limit = writer->events = NULL;
}

/* Blocks that were never begun stay holes in the file. */
static void drop_run(struct mt_writer *writer)
{
    struct mt_file *file = writer->file;
    uint8_t *run = writer->run;
    const size_t length = (size_t)(writer->run_end - run);
    if (!run)
        return;
    writer->run = writer->run_next = writer->run_end = NULL;
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* whoever is killed below unmaps nothing twice */
    __atomic_fetch_sub(&file->n_runs, 1, __ATOMIC_RELAXED);
    if (!file->is_cut_off)
        file->os->unmap(run, length);
}

void mt_writer_finish(struct mt_writer *writer)
{
    if (writer->block)
        leave_block(writer);
    drop_run(writer);
}

static void *next_in_window(struct mt_file *file)
{
    uint8_t *block = file->window;
    if ((size_t)(file->window_end - block) < MT_BLOCK_BYTES ||
        file->os->back(block, MT_BLOCK_BYTES) < 0)
        return NULL;
    file->window += MT_BLOCK_BYTES;
    return block;
}

void mt_writer_break_off(struct mt_writer *writer)
{
    if (writer->block) {
        writer->sequence = writer->block->sequence + 1;
        leave_block(writer);
    }
    writer->cursor = writer->limit = writer->events = NULL;
}

void mt_writer_finish_at_end(struct mt_writer *writer)
{
    if (writer->block)
        leave_block(writer);
}

/* Maps the `n` blocks that come after the last page, and their own last page. The first of them is
 * there already. Past the file's end there is nothing behind them. */
static void *map_next(struct mt_file *file, uint32_t n)
{
    const struct mt_record_os *os = file->os;
    const size_t length = (size_t)n * MT_BLOCK_BYTES;
    void *before = file->last_page;
    if (file->window)
        return next_in_window(file);
    uint8_t *mapped = os->map_on(before, file->page_bytes + length);
    if (!mapped)
        return NULL;
    os->unmap(mapped, file->page_bytes);
    uint8_t *blocks = mapped + file->page_bytes;
    void *last = os->back(blocks, MT_BLOCK_BYTES) < 0
                     ? NULL
                     : os->map_on(blocks + length - file->page_bytes, file->page_bytes);
    if (!last) {
        os->unmap(blocks, length);
        return NULL;
    }
    file->last_page = last; /* first: whoever claims may be killed, and its lock taken over */
    file->n_mapped += n;
    os->unmap(before, file->page_bytes);
    return blocks;
}

static void *count_claimed(struct mt_file *file, void *block)
{
    if (!block)
        return NULL;
    __atomic_fetch_add(&file->header->next_block, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&file->header->blocks_backed, 1, __ATOMIC_RELEASE);
    return block;
}

void mt_file_cut_off(struct mt_file *file, uint32_t n)
{
    uint64_t signals;
    if (file->is_cut_off || !file->os->lock(&file->claiming, &signals))
        return;
    while (file->n_in_advance < n && file->n_in_advance < MT_IN_ADVANCE_MOST) {
        void *block = count_claimed(file, map_next(file, 1));
        if (!block)
            break;
        file->in_advance[file->n_in_advance++] = block;
    }
    file->is_cut_off = 1;
    file->os->unlock(&file->claiming, &signals);
}

static void *claim_of_those_in_advance(struct mt_file *file)
{
    uint32_t n = __atomic_load_n(&file->n_in_advance, __ATOMIC_RELAXED);
    while (n && !__atomic_compare_exchange_n(&file->n_in_advance, &n, n - 1, 1, __ATOMIC_RELAXED,
                                             __ATOMIC_RELAXED)) {
    }
    return n ? file->in_advance[n - 1] : NULL;
}

/* How many blocks are mapped at a time: whoever has written many will write more. Each unmapping
 * makes the processors forget translations of addresses. */
static uint32_t length_of_run(const struct mt_writer *writer)
{
    const struct mt_file *file = writer->file;
    uint64_t room = (file->room_bytes - file->page_bytes) / MT_BLOCK_BYTES - file->n_mapped;
    uint64_t most = RUNS_MOST / (__atomic_load_n(&file->n_runs, __ATOMIC_RELAXED) + 1);
    if (most > RUN_MOST)
        most = RUN_MOST;
    if (most > room / RUN_MOST)
        most = room / RUN_MOST;
    if (most > writer->sequence)
        most = writer->sequence;
    return file->window || most < 1 ? 1 : (uint32_t)most;
}

static void *map_run(struct mt_writer *writer)
{
    struct mt_file *file = writer->file;
    uint64_t signals;
    drop_run(writer);
    if (!file->os->lock(&file->claiming, &signals))
        return NULL;
    uint32_t n = length_of_run(writer);
    uint8_t *run = file->is_cut_off ? NULL : map_next(file, n);
    if (run) {
        __atomic_fetch_add(&file->n_runs, 1, __ATOMIC_RELAXED);
        writer->run = run;
        writer->run_next = run + MT_BLOCK_BYTES;
        writer->run_end = run + (size_t)n * MT_BLOCK_BYTES;
    }
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* a handler that comes with the unlocking may fork */
    file->os->unlock(&file->claiming, &signals);
    return run;
}

static void *next_of_run(struct mt_writer *writer)
{
    uint8_t *block = writer->run_next;
    if (writer->file->os->back(block, MT_BLOCK_BYTES) < 0)
        return NULL;
    writer->run_next += MT_BLOCK_BYTES;
    return block;
}

static struct mt_block_header *claim(struct mt_writer *writer)
{
    struct mt_file *file = writer->file;
    if (file->is_cut_off)
        return claim_of_those_in_advance(file);
    return count_claimed(file, writer->run_next < writer->run_end ? next_of_run(writer)
                                                                  : map_run(writer));
}

static int lose(struct mt_writer *writer)
{
    writer->failed = 1;
    writer->lost++;
    __atomic_fetch_add(&writer->file->header->events_lost, 1, __ATOMIC_RELAXED);
    return 0;
}

/* The magic comes last: with it, a reader takes the rest of the header for written. Where the
 * caller's frame is left before its end, the next block has the number of this one, which is empty.
 */
static void begin(struct mt_writer *writer, struct mt_block_header *block)
{
    block->stream = writer->stream;
    block->tid = writer->tid;
    block->sequence = writer->sequence;
    block->start_ticks = writer->last_ticks;
    if (!writer->file->is_cut_off) {
        block->clock_ticks = mt_ticks(writer->file->use_counter);
        block->clock_monotonic_ns = writer->file->os->monotonic_ns();
    }
    __atomic_store_n(&block->magic, MT_BLOCK_MAGIC, __ATOMIC_RELEASE);
    writer->events = (uint8_t *)(block + 1);
    writer->cursor = writer->events;
    writer->limit = (uint8_t *)block + MT_BLOCK_BYTES;
    writer->last_unit = 0;
    writer->block = block;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    writer->sequence = block->sequence + 1;
}

int mt_writer_next_block(struct mt_writer *writer, uint64_t ticks)
{
    if (!writer->file || !writer->file->header)
        return 0;
    if (writer->failed && writer->lost % RETRY_EVERY != 0)
        return lose(writer);
    if (writer->block)
        leave_block(writer);
    struct mt_block_header *block = claim(writer);
    if (!block)
        return lose(writer);
    writer->failed = 0;
    if (ticks > writer->last_ticks)
        writer->last_ticks = ticks;
    begin(writer, block);
    return 1;
}

void mt_write_event(struct mt_writer *writer, enum mt_event_op op, uint64_t ticks,
                    const uint64_t *fields, size_t n_fields)
{
    if (!mt_writer_room(writer, 1 + MT_VARINT_MAX * (1 + n_fields), ticks))
        return;
    uint8_t *at = mt_event_begin(writer, op, ticks);
    for (size_t i = 0; i < n_fields; i++)
        at = mt_varint_put(at, fields[i]);
    mt_event_end(writer, at);
}

void mt_write_bytes(struct mt_writer *writer, enum mt_event_op op, uint64_t ticks, uint64_t kind,
                    const void *bytes, size_t length)
{
    if (length > MT_TEXT_PIECE)
        length = MT_TEXT_PIECE;
    if (!mt_writer_room(writer, 1 + 3 * MT_VARINT_MAX + length, ticks))
        return;
    uint8_t *at = mt_event_begin(writer, op, ticks);
    at = mt_varint_put(at, kind);
    at = mt_varint_put(at, length);
    copy(at, bytes, length);
    mt_event_end(writer, at + length);
}

void mt_write_skipped(struct mt_writer *writer, enum mt_event_op op, uint64_t ticks,
                      const uint64_t *fields, size_t n_fields)
{
    uint8_t bytes[MT_SKIPPED_FIELDS * MT_VARINT_MAX];
    uint8_t *end = bytes;
    for (size_t i = 0; i < n_fields && i < MT_SKIPPED_FIELDS; i++)
        end = mt_varint_put(end, fields[i]);
    size_t length = (size_t)(end - bytes);
    if (!mt_writer_room(writer, 1 + 2 * MT_VARINT_MAX + length, ticks))
        return;
    uint8_t *at = mt_event_begin(writer, op, ticks);
    at = mt_varint_put(at, length);
    copy(at, bytes, length);
    mt_event_end(writer, at + length);
}

void mt_write_frame_name(struct mt_writer *writer, uint64_t ticks, uint64_t frame, const char *text,
                         size_t length)
{
    uint8_t number[MT_VARINT_MAX];
    size_t n = (size_t)(mt_varint_put(number, frame) - number);
    if (length > MT_MAX_STRING)
        length = MT_MAX_STRING;
    if (!mt_writer_room(writer, 1 + 2 * MT_VARINT_MAX + n + length, ticks))
        return;
    uint8_t *at = mt_event_begin(writer, MT_EVENT_FRAME_NAME, ticks);
    at = mt_varint_put(at, n + length);
    copy(at, number, n);
    copy(at + n, text, length);
    mt_event_end(writer, at + n + length);
}

uint32_t mt_write_string(struct mt_writer *writer, uint64_t ticks, const char *text, size_t length)
{
    if (length > MT_MAX_STRING)
        length = MT_MAX_STRING;
    if (!mt_writer_room(writer, 1 + 3 * MT_VARINT_MAX + length, ticks))
        return 0;
    uint32_t number = ++writer->next_string;
    mt_write_bytes(writer, MT_EVENT_STRING, ticks, number, text, length);
    return number;
}

uint32_t mt_write_stack(struct mt_writer *writer, uint64_t ticks, const uint64_t *frames,
                        size_t n_frames, int complete)
{
    if (n_frames > MT_MAX_FRAMES)
        n_frames = MT_MAX_FRAMES;
    if (!mt_writer_room(writer, 1 + MT_VARINT_MAX * (4 + n_frames), ticks))
        return 0;
    uint32_t number = ++writer->next_stack;
    uint8_t *at = mt_event_begin(writer, MT_EVENT_STACK, ticks);
    at = mt_varint_put(at, number);
    at = mt_varint_put(at, complete != 0);
    at = mt_varint_put(at, n_frames);
    uint64_t last = 0;
    for (size_t i = 0; i < n_frames; i++) {
        at = mt_varint_put(at, mt_zigzag((int64_t)(frames[i] - last)));
        last = frames[i];
    }
    mt_event_end(writer, at);
    return number;
}
