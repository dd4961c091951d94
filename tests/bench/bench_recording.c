/* SPDX-License-Identifier: MIT */
/* What an event costs: to write (time and bytes), and to read, in one stream and merged. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memtally/error.h>

#include "base/ticks.h"
#include "recording/reader.h"
#include "recording/writer.h"
#include "watch/watch.h"

#define N_EVENTS  8000000u
#define N_LIVE    4096u
#define N_REPEATS 5

/* A block for each slot; a free and an alloc take turns in a slot that chance picks. */
struct heap {
    uint64_t seed;
    uint64_t address[N_LIVE];
};

static uint64_t next_random(struct heap *heap)
{
    heap->seed ^= heap->seed << 13;
    heap->seed ^= heap->seed >> 7;
    heap->seed ^= heap->seed << 17;
    return heap->seed;
}

static void put_alloc(struct mt_writer *writer, uint64_t ticks, uint64_t address, uint64_t size,
                      uint64_t stack)
{
    if (!mt_writer_room(writer, 1 + 4 * MT_VARINT_MAX, ticks))
        return;
    uint8_t *at = mt_event_begin(writer, MT_EVENT_ALLOC, ticks);
    at = mt_put_heap_address(writer, at, address);
    at = mt_varint_put(at, size);
    at = mt_varint_put(at, stack);
    mt_event_end(writer, at);
}

static void put_free(struct mt_writer *writer, uint64_t ticks, uint64_t address)
{
    if (!mt_writer_room(writer, 1 + 2 * MT_VARINT_MAX, ticks))
        return;
    uint8_t *at = mt_event_begin(writer, MT_EVENT_FREE, ticks);
    at = mt_put_heap_address(writer, at, address);
    mt_event_end(writer, at);
}

static void write_pair(struct mt_writer *writer, struct heap *heap, int use_counter)
{
    uint64_t random = next_random(heap);
    uint64_t *slot = &heap->address[random % N_LIVE];
    put_free(writer, mt_ticks(use_counter), *slot);
    *slot = 0x7f0000000000u + ((random >> 16) % (1u << 25)) * 16;
    put_alloc(writer, mt_ticks(use_counter), *slot, 16 + (random >> 44) % 8192, random >> 58);
}

static void begin(struct mt_file *file, const char *path)
{
    const struct mt_file_header header = {
        .kind = MT_FILE_PROCESS,
        .page_bytes = 4096,
        .clock_kind = mt_counter() ? MT_CLOCK_TSC : MT_CLOCK_MONOTONIC,
        .start_ticks = mt_ticks(mt_counter() != 0),
    };
    unlink(path);
    if (mt_file_create(file, &mt_watch_os, path, &header) < 0) {
        fprintf(stderr, "%s: cannot be written\n", path);
        exit(1);
    }
}

/* Half of the events go to each of two streams. Returns nanoseconds. */
static uint64_t write_file(const char *path)
{
    struct heap heap = {.seed = 88172645463325252u};
    struct mt_file file = {0};
    begin(&file, path);
    int use_counter = file.use_counter;
    uint64_t start_ns = mt_monotonic_ns();
    for (uint32_t stream = 0; stream < 2; stream++) {
        struct mt_writer writer;
        mt_writer_init(&writer, &file, stream, stream);
        for (uint32_t i = 0; i < N_EVENTS / 4; i++)
            write_pair(&writer, &heap, use_counter);
        mt_writer_finish(&writer);
    }
    uint64_t end_ns = mt_monotonic_ns();
    mt_file_close(&file);
    return end_ns - start_ns;
}

/* What the loop costs without the recording. */
static uint64_t write_nothing(void)
{
    struct heap heap = {.seed = 88172645463325252u};
    volatile uint64_t sink;
    uint64_t start_ns = mt_monotonic_ns();
    for (uint32_t i = 0; i < N_EVENTS / 2; i++) {
        uint64_t random = next_random(&heap);
        sink = mt_counter() + mt_counter() + heap.address[random % N_LIVE];
    }
    (void)sink;
    return mt_monotonic_ns() - start_ns;
}

static struct mt_record_file *must_open(const char *path)
{
    struct mt_record_file *file;
    struct mt_error error;
    if (mt_record_file_open(path, &file, &error) == 0)
        return file;
    fprintf(stderr, "%s\n", error.text);
    exit(1);
}

static uint64_t count_streams(const struct mt_record_file *file)
{
    struct mt_cursor cursor;
    struct mt_event event;
    uint64_t n = 0;
    mt_cursor_init(&cursor, file, 0, file->n_blocks);
    while (mt_cursor_next(&cursor, &event))
        n++;
    mt_cursor_finish(&cursor);
    return n;
}

static uint64_t count_merged(const struct mt_record_file *file)
{
    struct mt_merge *merge;
    struct mt_event event;
    uint64_t n = 0;
    if (mt_merge_create(file, &merge) < 0)
        exit(1);
    while (mt_merge_next(merge, &event))
        n++;
    mt_merge_destroy(merge);
    return n;
}

/* Millions of events a second; the best of some turns. */
static double read_rate(const struct mt_record_file *file,
                        uint64_t (*count)(const struct mt_record_file *))
{
    double best = 0;
    for (int turn = 0; turn < N_REPEATS; turn++) {
        uint64_t start_ns = mt_monotonic_ns();
        uint64_t n = count(file);
        double rate = (double)n * 1e3 / (double)(mt_monotonic_ns() - start_ns);
        if (n != N_EVENTS) {
            fprintf(stderr, "%llu events written, %llu read\n", (unsigned long long)N_EVENTS,
                    (unsigned long long)n);
            exit(1);
        }
        best = rate > best ? rate : best;
    }
    return best;
}

static double bytes_per_event(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 ? (double)status.st_size / N_EVENTS : 0;
}

static void measure(const char *raw, const char *packed)
{
    uint64_t best_ns = UINT64_MAX, idle_ns = UINT64_MAX;
    for (int turn = 0; turn < N_REPEATS; turn++) {
        uint64_t ns = write_file(raw), nothing_ns = write_nothing();
        best_ns = ns < best_ns ? ns : best_ns;
        idle_ns = nothing_ns < idle_ns ? nothing_ns : idle_ns;
    }
    printf("write: %.1f ns an event, %.1f of them for the clock and the loop\n",
           (double)best_ns / N_EVENTS, (double)idle_ns / N_EVENTS);
    struct mt_record_file *file = must_open(raw);
    printf("raw: %.2f bytes an event\n", bytes_per_event(raw));
    printf("read: %.1f million events a second, merged %.1f\n", read_rate(file, count_streams),
           read_rate(file, count_merged));
    mt_record_file_close(file);
    uint64_t start_ns = mt_monotonic_ns();
    if (mt_record_file_pack(raw, NULL) < 0)
        exit(1);
    printf("pack: %.2f s, %.2f bytes an event\n", (double)(mt_monotonic_ns() - start_ns) / 1e9,
           bytes_per_event(packed));
    start_ns = mt_monotonic_ns();
    mt_record_file_close(must_open(packed));
    printf("open packed: %.2f s\n", (double)(mt_monotonic_ns() - start_ns) / 1e9);
}

int main(void)
{
    char folder[] = "/tmp/memtally-bench-XXXXXX";
    char raw[64], packed[64];
    if (!mkdtemp(folder))
        return 1;
    snprintf(raw, sizeof raw, "%s/1-0.mtr", folder);
    snprintf(packed, sizeof packed, "%s/1-0.mtz", folder);
    measure(raw, packed);
    unlink(packed);
    return rmdir(folder);
}
