/* SPDX-License-Identifier: MIT */
/* Recordings that never happened: files written event by event, to be read back. Times are
 * CLOCK_MONOTONIC in nanoseconds; ticks are the same. */
#ifndef MT_TESTS_RECORDED_H
#define MT_TESTS_RECORDED_H

#include "tests/support/unit.h"

#include <memtally/tally.h>

#include "recording/reader.h"
#include "recording/writer.h"

#define PAGE 4096ull
#define KIB  1024ull
#define MIB  (1024ull * 1024)

/* A folder for recording files, made empty by recorded_setup() and removed by recorded_teardown().
 */
extern char recorded_directory[64];

int recorded_setup(void **state);
int recorded_teardown(void **state);

/* A file that is being written. Zero it but for `header` and `ns`; recorded_begin() fills in what
 * the header needs to be read. */
struct recorded {
    struct mt_file_header header;
    uint64_t ns; /* of the next event */
    struct mt_file file;
    struct mt_writer writer;
};

/* Begins the file NAME.mtr: of a watcher where `header.kind` says so, else of process header.pid.
 */
void recorded_begin(struct recorded *recorded, const char *name);

/* Seals it. With `end_ns` it ended properly then, with 0 it was cut off. */
void recorded_end(struct recorded *recorded, uint64_t end_ns);

#define EVENT(recorded, op, ...)                                                                   \
    recorded_event(recorded, MT_EVENT_##op, (const uint64_t[]){__VA_ARGS__},                       \
                   sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

void recorded_event(struct recorded *recorded, enum mt_event_op op, const uint64_t *fields,
                    size_t n_fields);

/* ALLOC, SAMPLE_ALLOC, FREE and SAMPLE_FREE, whose address is a difference. */
void recorded_alloc(struct recorded *recorded, enum mt_event_op op, uint64_t address, uint64_t size,
                    uint64_t stack);
void recorded_free(struct recorded *recorded, enum mt_event_op op, uint64_t address);

uint64_t recorded_string(struct recorded *recorded, const char *text);

/* A machine text, or the command of a process. */
void recorded_text(struct recorded *recorded, enum mt_machine_text kind, const char *text);

/* A picture: pages as (first page, pages, flags), and what the kernel says beside it. */
struct recorded_picture {
    uint64_t pid; /* of one from outside */
    enum mt_picture_reason reason;
    uint64_t resident_bytes;
    const char *maps;
    const char *rollup;  /* NULL: could not be read */
    const char *status;  /* NULL: could not be read */
    const char *meminfo; /* NULL: could not be read */
    const uint64_t (*runs)[3];
    size_t n_runs;
};

void recorded_picture(struct recorded *recorded, const struct recorded_picture *picture);

/* Opens the folder; fails the test where it cannot. */
struct mt_recording *recorded_open(void);

/* The tally of the folder at a moment; fails the test where there is none or it does not add up. */
struct mt_tally *recorded_tally(enum mt_moment_kind kind, uint64_t time_ns);

/* The resident bytes of the part called `name` of a row; 0 where there is none. */
uint64_t resident_of(const struct mt_tally_place *place, enum mt_category category,
                     const char *name);
uint64_t allocated_of(const struct mt_tally_place *place, enum mt_category category,
                      const char *name);

#endif
