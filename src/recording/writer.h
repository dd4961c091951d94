/* SPDX-License-Identifier: MIT */
/* Writing a recording: files of blocks, streams of events.
 *
 * Preload-safe: nothing here allocates, locks, prints or touches errno. All that reaches the
 * outside goes through struct mt_record_os. A writer belongs to one thread; a file is shared by the
 * writers of a process, which claim blocks from it by an atomic counter. */
#ifndef MT_RECORDING_WRITER_H
#define MT_RECORDING_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "base/varint.h"
#include "recording/format.h"

/* The outside world of a recording. Each call returns a value or a negated errno. */
struct mt_record_os {
    int (*open)(const char *path, int flags, int mode);
    int (*close)(int fd);
    long (*read)(int fd, void *bytes, size_t length);
    long (*pread)(int fd, void *bytes, size_t length, uint64_t offset);
    int (*resize)(int fd, uint64_t bytes);     /* sparse: takes no room on the disk */
    void *(*map)(int fd, size_t length);       /* the file's beginning, shared; NULL on failure */
    void *(*map_on)(void *page, size_t bytes); /* the mapped page of a file again, and what follows
                                                  it there; NULL on failure */
    void (*keep_from_children)(void *address,
                               size_t length); /* by fork(), and what is mapped on it */
    int (*back)(void *address, size_t length); /* takes the room on the disk behind mapped bytes */
    void (*unmap)(void *address, size_t length);
    /* Takes the lock at `word` (0: free), waiting where another thread has it, and holds this
     * thread's signals back until unlock(). Returns 0 where it was not to be had for long. */
    int (*lock)(uint32_t *word, uint64_t *signals);
    void (*unlock)(uint32_t *word, const uint64_t *signals);
    long (*ioctl)(int fd, unsigned long request, void *argument);
    uint64_t (*monotonic_ns)(void);
};

#define MT_PATH_BYTES      1024
#define MT_IN_ADVANCE_MOST 16u

/* A recording file that is being written. Nothing of it is opened after it was made: blocks are
 * mapped by way of the page before them, so that no descriptor is needed that the watched program
 * could meet, and no path that it could lose by chroot() or setuid(). */
struct mt_file {
    const struct mt_record_os *os;
    struct mt_file_header *header; /* mapped; NULL when closed */
    void *last_page;               /* mapped: the page before the next block */
    uint8_t *window;               /* NULL, or mapped: the blocks that can be had, where no page can
                                      be mapped by way of another */
    uint8_t *window_end;
    size_t page_bytes;   /* the machine's; blocks begin after one, or after 4096 bytes */
    uint64_t room_bytes; /* that the file may have */
    void *in_advance[MT_IN_ADVANCE_MOST]; /* mapped blocks that none has claimed yet */
    uint32_t n_in_advance;
    uint32_t is_cut_off; /* no call of the system is made any more */
    uint32_t claiming;   /* a lock: a block can be mapped only by way of the one before it */
    uint32_t n_runs;     /* that writers have mapped */
    uint64_t n_mapped;   /* blocks, from the file's beginning on */
    int use_counter;
};

/* One stream of events. Invariants while block != NULL:
 * events <= cursor <= limit, cursor == events + block->used outside of an event. */
struct mt_writer {
    uint8_t *cursor;
    uint8_t *limit;
    uint8_t *events;
    struct mt_block_header *block;
    uint64_t last_ticks;
    uint64_t last_unit;
    struct mt_file *file;
    uint32_t stream;
    uint32_t tid;
    uint32_t sequence;
    uint32_t next_string;
    uint32_t next_stack;
    uint32_t failed; /* no block could be had; see mt_writer_next_block() */
    uint64_t lost;   /* events that found no room */
    uint64_t small_allocs;
    uint64_t small_alloc_bytes;
    uint64_t small_frees;
    uint64_t small_free_bytes;
    uint8_t *run; /* NULL, or mapped: blocks of this writer, the open one among them */
    uint8_t *run_next;
    uint8_t *run_end;
};

/* Whether the above holds, outside of an event. */
int mt_writer_is_valid(const struct mt_writer *writer);

/* Creates the file at `path` from `initial`, whose constant fields the caller has filled; the file
 * must not exist. It is sparse and as large as it may become. Returns 0 or a negated errno. */
int mt_file_create(struct mt_file *file, const struct mt_record_os *os, const char *path,
                   const struct mt_file_header *initial);

/* Maps up to `n` blocks in advance, after which nothing more is asked of the system. What they have
 * no room for is lost. */
void mt_file_cut_off(struct mt_file *file, uint32_t n);

/* Unmaps the header; the file on disk stays. */
void mt_file_close(struct mt_file *file);

/* Starts a stream; it claims its first block when the first event comes. */
void mt_writer_init(struct mt_writer *writer, struct mt_file *file, uint32_t stream, uint32_t tid);

/* Seals the open block and gives it back. */
void mt_writer_finish(struct mt_writer *writer);

/* Seals the open block, where an event may have been begun in it that will not be ended; the next
 * one gets a new block. */
void mt_writer_break_off(struct mt_writer *writer);

/* Seals the open block where the process is about to end: the kernel gives it back, and takes down
 * the process's height as it was. */
void mt_writer_finish_at_end(struct mt_writer *writer);

/* Gets a new block. Returns 1, or 0 when none is to be had: the event is then lost and counted, and
 * a block is asked for again after some more, since descriptors and disks do not stay full. */
int mt_writer_next_block(struct mt_writer *writer, uint64_t ticks);

/* Whether `bytes` of event fit, in a new block if need be. `bytes` must be well below a block. */
static inline int mt_writer_room(struct mt_writer *writer, size_t bytes, uint64_t ticks)
{
    if (__builtin_expect((size_t)(writer->limit - writer->cursor) >= bytes, 1))
        return 1;
    return mt_writer_next_block(writer, ticks);
}

/* The op and the delta of an event; the caller has made room. */
static inline uint8_t *mt_event_begin(struct mt_writer *writer, enum mt_event_op op, uint64_t ticks)
{
    uint8_t *at = writer->cursor;
    *at++ = (uint8_t)op;
    uint64_t delta = ticks > writer->last_ticks ? ticks - writer->last_ticks : 0;
    writer->last_ticks += delta;
    return mt_varint_put_most(at, delta);
}

/* Makes the event that ends at `at` part of the recording. */
static inline void mt_event_end(struct mt_writer *writer, uint8_t *at)
{
    writer->cursor = at;
    __atomic_store_n(&writer->block->used, (uint32_t)(at - writer->events), __ATOMIC_RELEASE);
}

/* The heap address as the difference to the one before. */
static inline uint8_t *mt_put_heap_address(struct mt_writer *writer, uint8_t *at, uint64_t address)
{
    uint64_t units = address / MT_HEAP_UNIT;
    at = mt_varint_put_most(at, mt_zigzag((int64_t)(units - writer->last_unit)));
    writer->last_unit = units;
    return at;
}

/* Any event whose fields are all plain varints. */
void mt_write_event(struct mt_writer *writer, enum mt_event_op op, uint64_t ticks,
                    const uint64_t *fields, size_t n_fields);

/* Defines a string and returns its number, 0 where it could not be written. Numbers start at 1;
 * field value 0 means none. Longer strings than MT_MAX_STRING are cut. */
uint32_t mt_write_string(struct mt_writer *writer, uint64_t ticks, const char *text, size_t length);

/* Defines a stack and returns its number, 0 where it could not be written. */
uint32_t mt_write_stack(struct mt_writer *writer, uint64_t ticks, const uint64_t *frames,
                        size_t n_frames, int complete);

/* An event of an op from 64 to 127, which readers that do not know it pass over: its fields, up to
 * MT_SKIPPED_FIELDS, are within its bytes. */
#define MT_SKIPPED_FIELDS 4
void mt_write_skipped(struct mt_writer *writer, enum mt_event_op op, uint64_t ticks,
                      const uint64_t *fields, size_t n_fields);

/* The name of a frame that is no address. */
void mt_write_frame_name(struct mt_writer *writer, uint64_t ticks, uint64_t frame, const char *text,
                         size_t length);

/* An event of `op` with fields `kind`, the length, and up to MT_TEXT_PIECE bytes. */
void mt_write_bytes(struct mt_writer *writer, enum mt_event_op op, uint64_t ticks, uint64_t kind,
                    const void *bytes, size_t length);

#endif
