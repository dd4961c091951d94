/* SPDX-License-Identifier: MIT */
/* Recordings for tests: files written by the real writer, looked at as text, and damaged. */
#ifndef MT_TESTS_SCRIBE_H
#define MT_TESTS_SCRIBE_H

#include "recording/reader.h"
#include "recording/writer.h"

/* A folder of its own for each test; use as cmocka's set-up and tear-down. The tear-down fails
 * where files are left. */
int make_folder(void **state);
int remove_folder(void **state);

/* The path of `name` in the folder; each call uses its own memory until the next test. */
const char *in_folder(const char *name);
int count_in_folder(void);
void remove_file(const char *path);

/* The header that all files of these tests begin from: a clock of nanoseconds, begun at 1000. */
struct mt_file_header test_header(void);

/* A raw file with one writer for each of `n_streams` streams. */
#define MAX_STREAMS 4
struct scribe {
    struct mt_file file;
    struct mt_writer writer[MAX_STREAMS];
    uint32_t n_streams;
};

void scribe_begin(struct scribe *scribe, const char *path, uint32_t n_streams);

/* One of the full depth. */
void scribe_begin_full(struct scribe *scribe, const char *path, uint32_t n_streams);

/* Seals what is open and closes. */
void scribe_end(struct scribe *scribe);

/* Closes as a killed process does. */
void scribe_kill(struct scribe *scribe);

void put_event(struct mt_writer *writer, enum mt_event_op op, uint64_t ticks, size_t n_fields, ...);
void put_alloc(struct mt_writer *writer, uint64_t ticks, uint64_t address, uint64_t size);
void put_free(struct mt_writer *writer, uint64_t ticks, uint64_t address);

/* Fills a block of the writer to the brim with LOOK events at `ticks`; returns how many. */
unsigned fill_block(struct mt_writer *writer, uint64_t ticks);

struct mt_record_file *must_open(const char *path);

/* All events, stream by stream, a line for each, with every field and byte. Free it. */
char *transcript(const struct mt_record_file *file);
char *transcript_of(const char *path);

/* How many events that can be read; the sum over all streams. */
size_t count_events(const struct mt_record_file *file);

/* How many blocks their writers did not finish. */
size_t count_open(const struct mt_record_file *file);

/* A whole file in memory. */
struct image {
    uint8_t *bytes;
    size_t length;
};

struct image load_image(const char *path);
void save_image(const char *path, const struct image *image, size_t length);

/* Makes both checksums of the header right. */
void repair_header(struct image *image);

/* Makes the checksum of raw block `number` right. */
void repair_block(struct image *image, size_t number);

struct mt_file_header *header_of(const struct image *image);
struct mt_block_header *block_of(const struct image *image, size_t number);

#endif
