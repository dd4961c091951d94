/* SPDX-License-Identifier: MIT */
#include "scribe.h"

#include <memtally/depth.h>

#include "tests/support/unit.h"

#include "base/crc32c.h"
#include "watch/watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];
static char paths[64][128];
static unsigned n_paths;

int make_folder(void **state)
{
    (void)state;
    n_paths = 0;
    strcpy(folder, "/tmp/memtally-recording-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

const char *in_folder(const char *name)
{
    char *path = paths[n_paths++ % 64];
    snprintf(path, sizeof *paths, "%s/%s", folder, name);
    return path;
}

int count_in_folder(void)
{
    int n = 0;
    DIR *stream = opendir(folder);
    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream));)
        n += entry->d_name[0] != '.';
    closedir(stream);
    return n;
}

void remove_file(const char *path)
{
    assert_int_equal(unlink(path), 0);
}

struct mt_file_header test_header(void)
{
    return (struct mt_file_header){
        .kind = MT_FILE_PROCESS,
        .pid = 4321,
        .parent_pid = 1234,
        .page_bytes = 4096,
        .clock_kind = MT_CLOCK_MONOTONIC,
        .start_ticks = 1000,
        .start_monotonic_ns = 1000,
        .start_realtime_ns = 1700000000000000000u,
    };
}

static void begin(struct scribe *scribe, const char *path, uint32_t n_streams,
                  struct mt_file_header header)
{
    *scribe = (struct scribe){.n_streams = n_streams};
    assert_int_equal(mt_file_create(&scribe->file, &mt_watch_os, path, &header), 0);
    for (uint32_t i = 0; i < n_streams; i++)
        mt_writer_init(&scribe->writer[i], &scribe->file, i, 100 + i);
}

void scribe_begin(struct scribe *scribe, const char *path, uint32_t n_streams)
{
    begin(scribe, path, n_streams, test_header());
}

void scribe_begin_full(struct scribe *scribe, const char *path, uint32_t n_streams)
{
    struct mt_file_header header = test_header();
    header.depth = MT_DEPTH_FULL;
    begin(scribe, path, n_streams, header);
}

void scribe_end(struct scribe *scribe)
{
    for (uint32_t i = 0; i < scribe->n_streams; i++)
        mt_writer_finish(&scribe->writer[i]);
    mt_file_close(&scribe->file);
}

void scribe_kill(struct scribe *scribe)
{
    for (uint32_t i = 0; i < scribe->n_streams; i++)
        if (scribe->writer[i].block)
            mt_watch_os.unmap(scribe->writer[i].block, MT_BLOCK_BYTES);
    mt_file_close(&scribe->file);
}

void put_event(struct mt_writer *writer, enum mt_event_op op, uint64_t ticks, size_t n_fields, ...)
{
    uint64_t fields[MT_EVENT_FIELDS];
    va_list arguments;
    va_start(arguments, n_fields);
    for (size_t i = 0; i < n_fields; i++)
        fields[i] = va_arg(arguments, uint64_t);
    va_end(arguments);
    mt_write_event(writer, op, ticks, fields, n_fields);
    assert_true(mt_writer_is_valid(writer));
}

static void put_heap(struct mt_writer *writer, enum mt_event_op op, uint64_t ticks,
                     uint64_t address, const uint64_t *more, size_t n_more)
{
    assert_true(mt_writer_room(writer, 1 + MT_VARINT_MAX * (2 + n_more), ticks));
    uint8_t *at = mt_event_begin(writer, op, ticks);
    at = mt_put_heap_address(writer, at, address);
    for (size_t i = 0; i < n_more; i++)
        at = mt_varint_put(at, more[i]);
    mt_event_end(writer, at);
}

void put_alloc(struct mt_writer *writer, uint64_t ticks, uint64_t address, uint64_t size)
{
    const uint64_t more[] = {size, 0};
    put_heap(writer, MT_EVENT_ALLOC, ticks, address, more, 2);
}

void put_free(struct mt_writer *writer, uint64_t ticks, uint64_t address)
{
    put_heap(writer, MT_EVENT_FREE, ticks, address, NULL, 0);
}

unsigned fill_block(struct mt_writer *writer, uint64_t ticks)
{
    unsigned n = 0;
    if (!writer->block) {
        put_event(writer, MT_EVENT_LOOK, ticks, 1, UINT64_MAX);
        n++;
    }
    for (; writer->limit - writer->cursor >= 1 + 2 * MT_VARINT_MAX; n++)
        put_event(writer, MT_EVENT_LOOK, ticks, 1, UINT64_MAX);
    return n;
}

struct mt_record_file *must_open(const char *path)
{
    struct mt_record_file *file = NULL;
    struct mt_error error = {0};
    int result = mt_record_file_open(path, &file, &error);
    if (result < 0)
        fail_msg("%s", error.text);
    assert_non_null(file);
    return file;
}

static void print_event(FILE *out, const struct mt_event *event)
{
    fprintf(out, "%u @%llu op %d:", event->stream, (unsigned long long)event->ticks, event->op);
    for (size_t i = 0; i < MT_EVENT_FIELDS; i++)
        fprintf(out, " %llu", (unsigned long long)event->field[i]);
    for (size_t i = 0; i < event->length; i++)
        fprintf(out, "%s%02x", i ? "" : " / ", event->bytes[i]);
    fputc('\n', out);
}

/* The next stream after those up to `stream`; UINT64_MAX where there is none. */
static uint64_t print_stream(FILE *out, const struct mt_record_file *file, uint64_t stream)
{
    struct mt_merge *merge;
    struct mt_event event;
    uint64_t next = UINT64_MAX;
    assert_int_equal(mt_merge_create(file, &merge), 0);
    while (mt_merge_next(merge, &event)) {
        if (event.stream == stream)
            print_event(out, &event);
        if (event.stream > stream && event.stream < next)
            next = event.stream;
    }
    assert_int_equal(mt_merge_failed(merge), 0);
    mt_merge_destroy(merge);
    return next;
}

char *transcript(const struct mt_record_file *file)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    for (uint64_t stream = 0; stream != UINT64_MAX;)
        stream = print_stream(out, file, stream);
    fclose(out);
    return text;
}

char *transcript_of(const char *path)
{
    struct mt_record_file *file = must_open(path);
    char *text = transcript(file);
    mt_record_file_close(file);
    return text;
}

size_t count_events(const struct mt_record_file *file)
{
    struct mt_merge *merge;
    struct mt_event event;
    size_t n = 0;
    assert_int_equal(mt_merge_create(file, &merge), 0);
    while (mt_merge_next(merge, &event))
        n++;
    assert_int_equal(mt_merge_failed(merge), 0);
    mt_merge_destroy(merge);
    return n;
}

size_t count_open(const struct mt_record_file *file)
{
    struct mt_merge *merge;
    struct mt_event event;
    assert_int_equal(mt_merge_create(file, &merge), 0);
    while (mt_merge_next(merge, &event)) {
    }
    size_t n = mt_merge_blocks_open(merge);
    mt_merge_destroy(merge);
    return n;
}

/* A file that is not packed has a hole behind its blocks, which is left out. */
static size_t length_of(int fd)
{
    struct mt_file_header header;
    struct stat status;
    assert_int_equal(fstat(fd, &status), 0);
    size_t size = (size_t)status.st_size;
    if (pread(fd, &header, sizeof header, 0) < (ssize_t)sizeof header || header.flags & 1)
        return size;
    size_t end = header.header_bytes + (size_t)header.next_block * MT_BLOCK_BYTES;
    return end < size ? end : size;
}

struct image load_image(const char *path)
{
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    struct image image = {.length = length_of(fd)};
    image.bytes = malloc(image.length + 1);
    assert_non_null(image.bytes);
    assert_int_equal(read(fd, image.bytes, image.length), (ssize_t)image.length);
    close(fd);
    return image;
}

/* Cut last: some file systems write a file out that was emptied first. */
void save_image(const char *path, const struct image *image, size_t length)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, image->bytes, length), (ssize_t)length);
    assert_int_equal(ftruncate(fd, (off_t)length), 0);
    close(fd);
}

struct mt_file_header *header_of(const struct image *image)
{
    return (struct mt_file_header *)(void *)image->bytes;
}

struct mt_block_header *block_of(const struct image *image, size_t number)
{
    uint8_t *at = image->bytes + MT_HEADER_BYTES + number * MT_BLOCK_BYTES;
    return (struct mt_block_header *)(void *)at;
}

/* Written down here once more, so that a mistake in the reader's own sums shows. */
void repair_header(struct image *image)
{
    struct mt_file_header *header = header_of(image);
    uint32_t flags = header->flags;
    header->flags &= ~1u;
    header->crc32c = mt_crc32c(0, header, 112);
    header->flags = flags;
    header->tail_crc32c = flags & 1 ? mt_crc32c(0, &header->next_block, 204 - 116) : 0;
}

void repair_block(struct image *image, size_t number)
{
    struct mt_block_header *block = block_of(image, number);
    block->crc32c = mt_crc32c(mt_crc32c(0, block, 72), block + 1, block->used);
}
