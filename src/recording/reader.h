/* SPDX-License-Identifier: MIT */
/* Reading a recording file: blocks that nobody vouches for, to events.
 *
 * A reader keeps only the index of a file's blocks or frames. It reads events as they are stepped
 * through, so that a file may be larger than memory. A damaged block is skipped and counted; what
 * can be read is read. A file that is still being written may be read: it then holds what was there
 * when it was opened. Offsets in a packed file are those of its frames. An open file may be read
 * from several threads at a time, each with its own cursors. */
#ifndef MT_RECORDING_READER_H
#define MT_RECORDING_READER_H

#include <stddef.h>
#include <stdint.h>

#include "recording/format.h"

struct mt_error; /* <memtally/error.h> */

#define MT_EVENT_FIELDS 8

/* No memory lies from here on. A packed file did not keep the address of a block that does. */
#define MT_UNPLACED_FROM ((uint64_t)1 << 62)

/* One event. Which fields it has says MT_EVENT_LIST; the heap address is already plain. `bytes` is
 * the payload of STRING, PICTURE_TEXT and MACHINE, and the undecoded rest of STACK and
 * PICTURE_RUNS, which mt_event_frames() and mt_runs_init() decode; it lives until the next event
 * is asked for. */
struct mt_event {
    enum mt_event_op op;
    uint32_t stream;
    uint64_t ticks;
    uint64_t field[MT_EVENT_FIELDS];
    const uint8_t *bytes;
    size_t length;
    size_t block; /* of the file, that it is in */
};

/* A block as found in the file. */
struct mt_block {
    struct mt_block_header header;
    uint64_t offset; /* where it was found */
    int open;        /* its writer did not finish it */
};

/* A frame of a packed file. */
struct mt_frame_place {
    uint64_t offset;
    int after_loss; /* what was before it is missing */
};

struct mt_record_file {
    char *path;
    struct mt_file_header header;
    struct mt_block
        *blocks;     /* sorted by stream, then sequence; no two are the same. NULL if packed */
    size_t n_blocks; /* of a packed file, that were packed */
    struct mt_frame_place *frames; /* of a packed file */
    size_t n_frames;
    size_t blocks_bad;         /* damaged, missing, or more than one place that was cut off */
    uint64_t first_bad_offset; /* MT_NO_OFFSET where none is known */
    uint64_t last_ticks;       /* of the last event */
    uint64_t last_label_ticks; /* of the last LABEL_BLOCK, once who opened it has looked; 0: none */
    uint64_t last_pair_ticks;  /* the latest moment in the blocks that is known by both clocks; 0 */
    uint64_t last_pair_ns;
    int fd;        /* -1: the file is in `data` */
    uint8_t *data; /* of a small file, so that many may be open at a time */
    uint64_t file_bytes;
    int is_end_known; /* file_bytes ends with data, and with no hole */
};

/* Loads a raw or packed recording file. On success *file is owned by the caller. A file whose
 * header is sound opens, with as many blocks as can be read, be it none. Errors: MT_ENOTFOUND,
 * MT_EPERM, MT_EIO, MT_EFORMAT (no recording), MT_EVERSION, MT_ETRUNCATED (no whole header),
 * MT_ECORRUPT (the header fails its checksum), MT_ENOMEM. */
int mt_record_file_open(const char *path, struct mt_record_file **file, struct mt_error *error);

/* Whether the index is what the comments above say: blocks or frames, in order, within the file. */
int mt_record_file_is_valid(const struct mt_record_file *file);

void mt_record_file_close(struct mt_record_file *file);

/* Reads the header alone into *header. Errors as above. */
int mt_record_header_read(const char *path, struct mt_file_header *header, struct mt_error *error);

/* Whether a file was begun and never written, since its process was killed in between. Opening it
 * is MT_ETRUNCATED. */
int mt_record_file_is_blank(const char *path);

/* Nanoseconds of CLOCK_MONOTONIC at `ticks`, by the two clock pairs that the header holds, or by
 * what `clock` found. */
struct mt_clock {
    uint64_t ticks;
    uint64_t monotonic_ns;
    double ns_per_tick;
};

void mt_clock_of_file(const struct mt_record_file *file, struct mt_clock *clock);
uint64_t mt_clock_ns(const struct mt_clock *clock, uint64_t ticks);
uint64_t mt_clock_ticks(const struct mt_clock *clock, uint64_t monotonic_ns);

/* Steps through the events of a range of blocks of a raw file, stream by stream. Where a block is
 * missing or broken, what is left of a picture that was under way is passed over: part of its pages
 * would look like all of them. */
struct mt_cursor {
    const struct mt_record_file *file;
    size_t block; /* behind the one being read */
    size_t first_block;
    size_t end_block;
    uint8_t *buffer; /* the window: a part of the block's events */
    size_t room;
    size_t most_bytes; /* that a window has, unless an event is larger */
    size_t left;       /* of the block, behind the window */
    const uint8_t *at;
    const uint8_t *end;
    uint64_t ticks;
    uint64_t heap_unit;
    uint64_t blocks_bad; /* whose events broke the grammar */
    int torn;            /* something is missing; not yet at the next picture */
    int failed;          /* 0, MT_ENOMEM or MT_EIO: the events ended before their end */
};

void mt_cursor_init(struct mt_cursor *cursor, const struct mt_record_file *file, size_t first_block,
                    size_t end_block);
void mt_cursor_finish(struct mt_cursor *cursor);

/* Goes to another range of blocks. */
void mt_cursor_move(struct mt_cursor *cursor, size_t first_block, size_t end_block);

/* Returns 1 and the next event, or 0 at the end and where it failed. */
int mt_cursor_next(struct mt_cursor *cursor, struct mt_event *event);

/* All streams of a file merged by time; at equal times frees come first. */
struct mt_merge;

/* Its memory is bounded, whatever the number of streams and their size, but for a few hundred bytes
 * a stream. On success *merge is owned by the caller. Errors: MT_ENOMEM. */
int mt_merge_create(const struct mt_record_file *file, struct mt_merge **merge);
void mt_merge_destroy(struct mt_merge *merge);

/* Before the first event: its reader wants no allocations and frees of the heap. A packed file's
 * are passed over unread, and not checked; a raw file's may still come. */
void mt_merge_skip_blocks(struct mt_merge *merge);

/* Returns 1 and the next event, or 0 at the end and where it failed. */
int mt_merge_next(struct mt_merge *merge, struct mt_event *event);

/* 0, MT_ENOMEM or MT_EIO: the events ended before their end. */
int mt_merge_failed(const struct mt_merge *merge);

/* How many blocks, or frames of a packed file, so far had events that broke the grammar. */
uint64_t mt_merge_blocks_bad(const struct mt_merge *merge);

/* How many blocks so far their writer did not finish. */
uint64_t mt_merge_blocks_open(const struct mt_merge *merge);

/* The fields of an event that readers may pass over, from its bytes. Returns whether they are
 * there.
 */
int mt_event_skipped_fields(const struct mt_event *event, uint64_t *fields, size_t n_fields);

/* The frames of a STACK event into frames[]; returns how many, at most MT_MAX_FRAMES. */
size_t mt_event_frames(const struct mt_event *event, uint64_t frames[MT_MAX_FRAMES]);

/* Steps through the runs of a PICTURE_RUNS event. *page is where the last run ended and must be
 * kept from one event of a picture to the next. */
struct mt_run_pages {
    uint64_t first_page;
    uint64_t n_pages;
    uint64_t flags;
};

struct mt_runs {
    const uint8_t *at;
    const uint8_t *end;
    uint64_t left;
};

void mt_runs_init(struct mt_runs *runs, const struct mt_event *event);
int mt_runs_next(struct mt_runs *runs, uint64_t *page, struct mt_run_pages *run);

/* Rewrites a raw file as a packed one beside it (PATH with .mtz for .mtr) and removes the raw one.
 * A packed file is left alone, and one that was never written is removed. Write, then rename: no
 * half file is left behind, and the raw one stays until the packed one is whole. Errors: those of
 * mt_record_file_open(), and MT_EPERM, MT_EIO. */
int mt_record_file_pack(const char *path, struct mt_error *error);

/* The same to a path of the caller's choice, in any folder. What is there is replaced. */
int mt_record_file_pack_as(const char *path, const char *packed, struct mt_error *error);

#endif
