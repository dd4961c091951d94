/* SPDX-License-Identifier: MIT */
#include "tests/support/big_recording.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recording/writer.h"
#include "watch/watch.h"

#define HEAP        UINT64_C(0x7f0000000000)
#define CODE        UINT64_C(0x400000)
#define CODE_BYTES  UINT64_C(0x100000)
#define SLOT_BYTES  128u /* a block's, of 16 to 127 bytes */
#define N_FRAMES    12u
#define BURST       32u /* events of one thread before the next one's */
#define TICKS_APART 20u
#define PAGE        4096u

/* A block for each slot, once all were filled. */
struct maker {
    const struct big_recording *big;
    struct mt_file file;
    struct mt_writer *writers;
    uint32_t **stacks; /* by thread, then by stack: its number there, 0 where it has none yet */
    uint8_t *sizes;    /* by slot; 0: empty */
    uint64_t seed;
    uint64_t ticks;
    uint64_t n;
    struct big_truth truth;
};

static void *must_have(size_t n, size_t size)
{
    void *made = calloc(n, size);
    if (made)
        return made;
    fprintf(stderr, "big recording: out of memory\n");
    exit(1);
}

static uint64_t next_random(struct maker *maker)
{
    maker->seed ^= maker->seed << 13;
    maker->seed ^= maker->seed >> 7;
    maker->seed ^= maker->seed << 17;
    return maker->seed;
}

/* The inner half of the frames says which stack it is, a digit each; the outer half is main's. */
static uint32_t number_of_stack(struct maker *maker, uint32_t thread, uint32_t stack)
{
    uint64_t frames[N_FRAMES];
    if (!maker->stacks[thread])
        maker->stacks[thread] = must_have(maker->big->n_stacks, sizeof **maker->stacks);
    uint32_t *number = &maker->stacks[thread][stack];
    if (*number)
        return *number;
    for (uint32_t i = 0; i < N_FRAMES; i++)
        frames[i] = CODE + 0x1000 * (i + 1) + (i < N_FRAMES / 2 ? (stack >> 4 * i) % 16 * 64 : 0);
    *number = mt_write_stack(&maker->writers[thread], maker->ticks, frames, N_FRAMES, 1);
    return *number;
}

static void put_heap(struct maker *maker, struct mt_writer *writer, enum mt_event_op op,
                     uint64_t address, uint64_t size, uint64_t stack)
{
    if (!mt_writer_room(writer, 1 + 4 * MT_VARINT_MAX, maker->ticks)) {
        fprintf(stderr, "big recording: cannot be written\n");
        exit(1);
    }
    uint8_t *at = mt_event_begin(writer, op, maker->ticks);
    at = mt_put_heap_address(writer, at, address);
    if (op == MT_EVENT_ALLOC) {
        at = mt_varint_put(at, size);
        at = mt_varint_put(at, stack);
    }
    mt_event_end(writer, at);
    maker->n++;
    maker->ticks += TICKS_APART;
}

/* What is in a slot that chance picks makes way; else a block is made there. */
static void put_next(struct maker *maker, uint32_t thread)
{
    uint64_t random = next_random(maker);
    uint32_t slot = (uint32_t)(random % maker->big->n_live);
    struct mt_writer *writer = &maker->writers[thread];
    uint64_t address = HEAP + (uint64_t)slot * SLOT_BYTES;
    uint32_t stack = (uint32_t)((random >> 32) % maker->big->n_stacks);
    if (maker->n < maker->big->n_stacks)
        stack = (uint32_t)maker->n; /* so that none is left out */
    if (maker->sizes[slot]) {
        put_heap(maker, writer, MT_EVENT_FREE, address, 0, 0);
        maker->truth.live_bytes -= maker->sizes[slot];
        maker->truth.live_blocks--;
        maker->sizes[slot] = 0;
        return;
    }
    maker->sizes[slot] = (uint8_t)(16 + (random >> 24) % 112);
    maker->truth.live_bytes += maker->sizes[slot];
    maker->truth.live_blocks++;
    put_heap(maker, writer, MT_EVENT_ALLOC, address, maker->sizes[slot],
             number_of_stack(maker, thread, stack));
}

static void put_picture(struct maker *maker)
{
    char maps[512];
    char status[64];
    uint64_t heap = ((uint64_t)maker->big->n_live * SLOT_BYTES + PAGE - 1) / PAGE * PAGE;
    struct mt_writer *writer = &maker->writers[0];
    uint64_t ticks = maker->ticks;
    uint64_t resident = heap + CODE_BYTES;
    snprintf(maps, sizeof maps,
             "%llx-%llx r-xp 00000000 08:01 77 /usr/bin/big\n%llx-%llx rw-p 00000000 00:00 0 "
             "[heap]\n",
             (unsigned long long)CODE, (unsigned long long)(CODE + CODE_BYTES),
             (unsigned long long)HEAP, (unsigned long long)(HEAP + heap));
    snprintf(status, sizeof status, "VmHWM:\t%llu kB\n", (unsigned long long)(resident / 1024));
    mt_write_event(writer, MT_EVENT_PICTURE_BEGIN, ticks,
                   (const uint64_t[]){0, MT_PICTURE_EXIT, ticks, resident}, 4);
    mt_write_bytes(writer, MT_EVENT_PICTURE_TEXT, ticks, MT_TEXT_MAPS, maps, strlen(maps));
    mt_write_bytes(writer, MT_EVENT_PICTURE_TEXT, ticks, MT_TEXT_STATUS, status, strlen(status));
    const uint64_t first = CODE / PAGE;
    const uint64_t second = HEAP / PAGE - (CODE + CODE_BYTES) / PAGE;
    mt_write_event(
        writer, MT_EVENT_PICTURE_RUNS, ticks,
        (const uint64_t[]){2, first, CODE_BYTES / PAGE, MT_RUN_FILE, second, heap / PAGE, 0}, 7);
    mt_write_event(writer, MT_EVENT_PICTURE_END, ticks, (const uint64_t[]){1, 1000, MT_METHOD_SCAN},
                   3);
    maker->truth.resident_bytes = resident;
}

static void begin(struct maker *maker, const char *path)
{
    const struct mt_file_header header = {
        .kind = MT_FILE_PROCESS,
        .pid = 7,
        .page_bytes = PAGE,
        .depth = 1,
        .clock_kind = MT_CLOCK_MONOTONIC,
        .start_ticks = maker->ticks,
        .start_monotonic_ns = maker->ticks,
    };
    if (mt_file_create(&maker->file, &mt_watch_os, path, &header) < 0) {
        fprintf(stderr, "%s: cannot be created\n", path);
        exit(1);
    }
    for (uint32_t i = 0; i < maker->big->n_threads; i++)
        mt_writer_init(&maker->writers[i], &maker->file, i, 100 + i);
}

struct big_truth big_recording_write(const struct big_recording *big, const char *path)
{
    struct maker maker = {.big = big, .seed = 88172645463325252u, .ticks = 1000};
    maker.writers = must_have(big->n_threads, sizeof *maker.writers);
    maker.stacks = must_have(big->n_threads, sizeof *maker.stacks);
    maker.sizes = must_have(big->n_live, sizeof *maker.sizes);
    begin(&maker, path);
    for (uint32_t thread = 0; maker.n < big->n_events; thread = (thread + 1) % big->n_threads)
        for (uint32_t i = 0; i < BURST && maker.n < big->n_events; i++)
            put_next(&maker, thread);
    put_picture(&maker);
    for (uint32_t i = 0; i < big->n_threads; i++) {
        mt_writer_finish(&maker.writers[i]);
        free(maker.stacks[i]);
    }
    maker.file.header->end_ticks = maker.file.header->end_monotonic_ns = maker.ticks;
    maker.file.header->end_kind = MT_END_EXIT;
    mt_file_close(&maker.file);
    free(maker.writers);
    free(maker.stacks);
    free(maker.sizes);
    return maker.truth;
}
