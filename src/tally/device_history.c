/* SPDX-License-Identifier: MIT */
/* What each process had of each device, piece by piece. */
#include <memtally/error.h>
#include <memtally/history.h>
#include <memtally/recording.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/bisect.h"
#include "base/error.h"
#include "pytorch/torch.h"
#include "tally/device_rows.h"
#include "tally/image.h"
#include "tally/tree.h"

/* The public list comes first: mt_device_histories_destroy() is handed its address. */
struct owned {
    struct mt_device_histories list;
    struct mt_device_history *items;
    struct mt_arena arena; /* names */
};

struct work {
    const struct mt_recording *recording;
    struct mt_torch *torch;
    struct owned *owned;
    const struct mt_device_block **by_address; /* of one history */
    size_t n_by_address;
    struct mt_device_span *spans; /* likewise */
    size_t n_spans, spans_room;
};

static int add_span(struct work *work, const struct mt_device_span *span)
{
    if (mt_array_reserve(work->spans, work->n_spans, work->spans_room, 256) < 0)
        return MT_ENOMEM;
    work->spans[work->n_spans++] = *span;
    return 0;
}

static uint64_t time_of(const struct work *work, uint64_t ns)
{
    return ns == UINT64_MAX ? MT_UNKNOWN : mt_recording_time(work->recording, ns);
}

static int add_allocation(struct work *work, const struct mt_device_block *block)
{
    struct mt_device_span span = {
        .address = block->address,
        .bytes = block->bytes,
        .begin_ns = time_of(work, block->begin_ns),
        .end_ns = time_of(work, block->end_ns),
        .is_segment = 1,
        .name = "",
    };
    if (add_span(work, &span) < 0)
        return MT_ENOMEM;
    work->by_address[work->n_by_address++] = block;
    if (mt_device_is_of_torch(work->torch, block))
        return 0;
    span.is_segment = 0;
    span.category = block->category;
    if (block->name) {
        span.name = mt_arena_copy(&work->owned->arena, block->name, strlen(block->name));
        if (!span.name)
            return MT_ENOMEM;
    }
    return add_span(work, &span);
}

static int by_address(const void *a, const void *b)
{
    const struct mt_device_block *x = *(const struct mt_device_block *const *)a;
    const struct mt_device_block *y = *(const struct mt_device_block *const *)b;
    if (x->address != y->address)
        return x->address < y->address ? -1 : 1;
    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

/* The allocation of this history that an address lies in: of several the last; NULL. */
static const struct mt_device_block *allocation_at(const struct work *work, uint64_t address)
{
    struct mt_bisect place = {.end = work->n_by_address};
    while (mt_bisect_next(&place))
        mt_bisect_turn(&place, work->by_address[place.middle]->address <= address);
    const struct mt_device_block *block = place.first ? work->by_address[place.first - 1] : NULL;
    return block && address - block->address < block->bytes ? block : NULL;
}

static int add_torch(struct work *work, uint64_t pid)
{
    struct mt_torch_life life;
    for (size_t i = 0; work->torch && mt_torch_life_at(work->torch, (uint32_t)pid, i, &life); i++) {
        const struct mt_device_block *within = allocation_at(work, life.address);
        if (!within)
            continue;
        int outlives = life.end_ns > within->end_ns && life.begin_ns <= within->end_ns;
        const struct mt_device_span span = {
            .address = life.address,
            .bytes = life.bytes,
            .begin_ns = time_of(work, life.begin_ns),
            .end_ns = time_of(work, outlives ? within->end_ns : life.end_ns),
            .category = life.category,
            .name = mt_arena_copy(&work->owned->arena, life.name, strlen(life.name)),
        };
        if (!span.name || add_span(work, &span) < 0)
            return MT_ENOMEM;
    }
    return 0;
}

static int by_time(const void *a, const void *b)
{
    const struct mt_device_span *x = a;
    const struct mt_device_span *y = b;
    if (x->begin_ns != y->begin_ns)
        return x->begin_ns < y->begin_ns ? -1 : 1;
    if (x->is_segment != y->is_segment)
        return y->is_segment - x->is_segment;
    return (x->address > y->address) - (x->address < y->address);
}

static int fill(struct work *work, size_t place, uint64_t pid, struct mt_device_history *history)
{
    const struct mt_devices *devices = &work->recording->devices;
    int result = 0;
    work->n_by_address = work->n_spans = work->spans_room = 0;
    work->spans = NULL;
    for (size_t i = 0; i < devices->n_blocks && result == 0; i++) {
        const struct mt_device_block *block = &devices->blocks[i];
        if (block->place == place && block->pid == pid && mt_device_block_counts(block))
            result = add_allocation(work, block);
    }
    qsort(work->by_address, work->n_by_address, sizeof(struct mt_device_block *), by_address);
    if (result == 0)
        result = add_torch(work, pid);
    if (work->n_spans)
        qsort(work->spans, work->n_spans, sizeof *work->spans, by_time);
    history->spans = work->spans;
    history->n_spans = work->n_spans;
    history->pid = pid;
    snprintf(history->place, sizeof history->place, "gpu:%.50s", devices->places[place].uuid);
    return result;
}

static int has(const struct owned *owned, const char *place, uint64_t pid)
{
    for (size_t i = 0; i < owned->list.n; i++)
        if (owned->items[i].pid == pid && strncmp(owned->items[i].place + 4, place, 50) == 0)
            return 1;
    return 0;
}

#define HISTORIES_MOST 4096u

static int fill_all(struct work *work)
{
    const struct mt_devices *devices = &work->recording->devices;
    struct owned *owned = work->owned;
    const struct mt_device_block *last = NULL;
    owned->items = calloc(HISTORIES_MOST, sizeof *owned->items);
    work->by_address = calloc(devices->n_blocks + 1, sizeof(struct mt_device_block *));
    int result = owned->items && work->by_address ? 0 : MT_ENOMEM;
    for (size_t i = 0; i < devices->n_blocks && result == 0; i++) {
        const struct mt_device_block *block = &devices->blocks[i];
        int is_as_before = last && last->pid == block->pid && last->place == block->place;
        last = block;
        if (is_as_before || owned->list.n == HISTORIES_MOST ||
            has(owned, devices->places[block->place].uuid, block->pid))
            continue;
        result = fill(work, block->place, block->pid, &owned->items[owned->list.n]);
        owned->list.n++;
    }
    free(work->by_address);
    owned->list.items = owned->items;
    return result;
}

int mt_recording_device_histories(const struct mt_recording *recording,
                                  struct mt_device_histories **histories, struct mt_error *error)
{
    struct work work = {.recording = recording, .owned = calloc(1, sizeof *work.owned)};
    int result = work.owned ? 0 : MT_ENOMEM;
    if (result == 0 && recording->devices.n_places)
        result = mt_torch_open(recording->path, &work.torch, NULL);
    if (result == MT_EIO)
        result = 0; /* nothing is known of PyTorch */
    if (result == 0)
        result = fill_all(&work);
    mt_torch_close(work.torch);
    if (result < 0) {
        mt_device_histories_destroy(work.owned ? &work.owned->list : NULL);
        return mt_fail(error, result, MT_NO_OFFSET, "%s: %s", recording->path,
                       mt_error_sentence(result));
    }
    *histories = &work.owned->list;
    return 0;
}

void mt_device_histories_destroy(struct mt_device_histories *histories)
{
    struct owned *owned = (struct owned *)histories;
    if (!owned)
        return;
    for (size_t i = 0; i < owned->list.n; i++)
        free((struct mt_device_span *)(uintptr_t)owned->items[i].spans);
    free(owned->items);
    mt_arena_finish(&owned->arena);
    free(owned);
}
