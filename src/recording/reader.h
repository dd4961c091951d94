/* SPDX-License-Identifier: MIT */
/* Reading a recording file: blocks that nobody vouches for, to events.
 *
 * A file is loaded whole. A damaged block is skipped and counted; what can be read is read. A file
 * that is still being written may be read: it then holds what was there at that moment. Offsets in
 * a packed file are those of its unpacked form. All pointers into a file live as long as it is
 * open. An open file may be read from several threads at a time, each with its own cursors. */
#ifndef MT_RECORDING_READER_H
#define MT_RECORDING_READER_H

#include <stddef.h>
#include <stdint.h>

#include <memtally/error.h>

#include "recording/format.h"

#define MT_EVENT_FIELDS 8

/* One event. Which fields it has says MT_EVENT_LIST; the heap address is already plain. `bytes` is
 * the payload of STRING, PICTURE_TEXT and MACHINE, and the undecoded rest of STACK and
 * PICTURE_RUNS, which mt_event_frames() and mt_event_runs() decode. */
struct mt_event {
    enum mt_event_op op;
    uint32_t stream;
    uint64_t ticks;
    uint64_t field[MT_EVENT_FIELDS];
    const uint8_t *bytes;
    size_t length;
};

/* A block as found in the file. */
struct mt_block {
    struct mt_block_header header;
    const uint8_t *events;
    uint64_t offset; /* where it was found */
    int open;        /* its writer did not finish it */
};

struct mt_record_file {
    char *path;
    struct mt_file_header header;
    struct mt_block *blocks; /* sorted by stream, then sequence; no two are the same */
    size_t n_blocks;
    size_t blocks_bad; /* damaged, missing, or more than one place that was cut off */
    size_t blocks_open;
    uint64_t first_bad_offset; /* MT_NO_OFFSET where none is known */
    uint64_t last_ticks;       /* of the last event */
    uint8_t *data;
    size_t data_bytes;
};

/* Loads a raw or packed recording file. On success *file is owned by the caller. A file whose
 * header is sound opens, with as many blocks as can be read, be it none. Errors: MT_ENOTFOUND,
 * MT_EPERM, MT_EIO, MT_EFORMAT (no recording), MT_EVERSION, MT_ETRUNCATED (no whole header),
 * MT_ECORRUPT (the header fails its checksum), MT_ENOMEM. */
int mt_record_file_open(const char *path, struct mt_record_file **file, struct mt_error *error);

void mt_record_file_close(struct mt_record_file *file);

/* Reads the header alone into *header. Errors as above. */
int mt_record_header_read(const char *path, struct mt_file_header *header, struct mt_error *error);

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

/* Steps through the events of a range of blocks of one stream. Where a block is missing or broken,
 * what is left of a picture that was under way is passed over: part of its pages would look like
 * all of them. */
struct mt_cursor {
    const struct mt_record_file *file;
    size_t block; /* the one being read */
    size_t end_block;
    const uint8_t *at;
    const uint8_t *end;
    uint64_t ticks;
    uint64_t heap_unit;
    uint64_t blocks_bad; /* whose events broke the grammar */
    int torn;            /* something is missing; not yet at the next picture */
};

void mt_cursor_init(struct mt_cursor *cursor, const struct mt_record_file *file, size_t first_block,
                    size_t end_block);

/* Returns 1 and the next event, or 0 at the end. */
int mt_cursor_next(struct mt_cursor *cursor, struct mt_event *event);

/* All streams of a file merged by time; at equal times frees come first. */
struct mt_merge;

/* On success *merge is owned by the caller. Errors: MT_ENOMEM. */
int mt_merge_create(const struct mt_record_file *file, struct mt_merge **merge);
void mt_merge_destroy(struct mt_merge *merge);
int mt_merge_next(struct mt_merge *merge, struct mt_event *event);

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
 * A packed file is left alone. Write, then rename: no half file is left behind, and the raw one
 * stays until the packed one is whole. Errors: those of mt_record_file_open(), and MT_EPERM,
 * MT_EIO. */
int mt_record_file_pack(const char *path, struct mt_error *error);

#endif
