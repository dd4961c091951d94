/* SPDX-License-Identifier: MIT */
/* Live bytes by call stack at a moment, with the names of the functions. */
#include <inttypes.h>
#include <memtally/recording.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/varint.h"
#include "symbol/symbol.h"
#include "tally/image.h"
#include "tally/moment.h"
#include "tally/replay.h"
#include "tally/tree.h"

#define NAME_BYTES 512

/* The public list comes first: mt_stack_list_destroy() is handed its address. */
struct owned_list {
    struct mt_stack_list list;
    struct mt_stack_entry *entries;
    size_t n;
    size_t capacity;
};

/* Bytes of one stack of one process. */
struct sum {
    uint64_t bytes;
    uint64_t count;
};

struct collector {
    struct owned_list *owned;
    struct mt_symbolizer *symbolizer;
    const struct mt_replay *replay;
    struct mt_maps maps;
    struct sum *sums; /* by stack; 0 collects what has none */
    uint64_t interval_bytes;
};

void mt_stack_list_destroy(struct mt_stack_list *stacks)
{
    struct owned_list *owned = (struct owned_list *)stacks;
    if (!owned)
        return;
    for (size_t i = 0; i < owned->n; i++) {
        const struct mt_stack_entry *entry = &owned->entries[i];
        for (size_t j = 0; j < entry->n_frames; j++)
            free((char *)(uintptr_t)entry->frames[j]);
        free((void *)(uintptr_t)entry->frames);
    }
    free(owned->entries);
    free(owned);
}

static void add(struct collector *collector, uint32_t stack, uint64_t bytes, uint64_t count)
{
    struct sum *sum = &collector->sums[stack < collector->replay->n_stacks ? stack : 0];
    sum->bytes += bytes;
    sum->count += count;
}

static void add_blocks(struct collector *collector)
{
    const struct mt_replay *replay = collector->replay;
    for (size_t i = 0; i < replay->blocks.capacity; i++) {
        if (replay->blocks.slots[i].key == UINT64_MAX)
            continue;
        const struct mt_live *live = &replay->live[replay->blocks.slots[i].value];
        add(collector, live->stack, live->size, 1);
    }
}

static void add_samples(struct collector *collector)
{
    const struct mt_replay *replay = collector->replay;
    for (size_t i = 0; i < replay->samples.capacity; i++) {
        if (replay->samples.slots[i].key == UINT64_MAX)
            continue;
        const struct mt_live *live = &replay->live[replay->samples.slots[i].value];
        uint64_t bytes = mt_sample_bytes(live->size, collector->interval_bytes);
        if (bytes)
            add(collector, live->stack, bytes, (bytes + live->size / 2) / live->size);
    }
}

/* Mappings that the program made, by what of them is still mapped. A file's are not counted: they
 * hold what the file holds, whoever mapped it. Nor are those of the allocator: its blocks are. */
static void add_mappings(struct collector *collector)
{
    const struct mt_replay *replay = collector->replay;
    struct mt_range range;
    for (uint64_t at = 0; mt_ranges_at_or_after(&replay->maps, at, &range); at = range.high) {
        const struct mt_live *live = &replay->live[range.value];
        if (!live->flags && live->stack)
            add(collector, live->stack, range.high - range.low, 1);
    }
}

/* The name of the function that a return address leads back to: the byte before it. */
static char *name_of(struct collector *collector, uint64_t address)
{
    char name[NAME_BYTES];
    uint64_t call = address - 1;
    const struct mt_vma *vma = mt_maps_find(&collector->maps, call);
    if (vma && vma->kind == MT_VMA_FILE && collector->symbolizer) {
        const struct mt_module module = {.path = vma->name};
        mt_symbolizer_name(collector->symbolizer, &module, vma->offset + (call - vma->start), name,
                           sizeof name);
    } else if (vma && *vma->name) {
        snprintf(name, sizeof name, "%s", vma->name);
    } else {
        snprintf(name, sizeof name, "[0x%" PRIx64 "]", address);
    }
    return strdup(name);
}

static int put_frames(struct collector *collector, const struct mt_stack *stack,
                      struct mt_stack_entry *entry)
{
    struct mt_event event = {.bytes = stack->bytes, .length = stack->length};
    uint64_t frames[MT_MAX_FRAMES];
    event.field[2] = stack->n_frames;
    size_t n = mt_event_frames(&event, frames);
    const char **names = calloc(n + 1, sizeof *names);
    if (!names)
        return MT_ENOMEM;
    entry->frames = names;
    for (; entry->n_frames < n; entry->n_frames++) {
        names[entry->n_frames] = name_of(collector, frames[entry->n_frames]);
        if (!names[entry->n_frames])
            return MT_ENOMEM;
    }
    return 0;
}

static int put_unknown(struct mt_stack_entry *entry)
{
    const char **names = calloc(1, sizeof *names);
    char *name = strdup("[no stack]");
    if (!names || !name) {
        free(names);
        free(name);
        return MT_ENOMEM;
    }
    names[0] = name;
    entry->frames = names;
    entry->n_frames = 1;
    return 0;
}

static int put_entry(struct collector *collector, size_t stack)
{
    struct owned_list *owned = collector->owned;
    const struct sum *sum = &collector->sums[stack];
    if (owned->n == owned->capacity) {
        size_t more = owned->capacity ? owned->capacity * 2 : 256;
        void *grown = realloc(owned->entries, more * sizeof *owned->entries);
        if (!grown)
            return MT_ENOMEM;
        owned->entries = grown;
        owned->capacity = more;
    }
    struct mt_stack_entry *entry = &owned->entries[owned->n++];
    *entry = (struct mt_stack_entry){.bytes = sum->bytes, .count = sum->count};
    if (stack == 0)
        return put_unknown(entry);
    entry->complete = collector->replay->stacks[stack].complete;
    return put_frames(collector, &collector->replay->stacks[stack], entry);
}

static int collect(struct collector *collector, const struct mt_process_choice *choice)
{
    const struct mt_bytes *text = choice->picture ? &choice->picture->text[MT_TEXT_MAPS] : NULL;
    collector->interval_bytes = collector->replay->sample_interval_bytes;
    collector->sums = calloc(collector->replay->n_stacks + 1, sizeof *collector->sums);
    if (!collector->sums)
        return MT_ENOMEM;
    int result = text ? mt_maps_parse(text->data, text->length, &collector->maps)
                      : mt_maps_copy(&choice->image->first_maps, &collector->maps);
    if (result == 0) {
        add_blocks(collector);
        if (collector->interval_bytes > 0)
            add_samples(collector);
        add_mappings(collector);
        for (size_t i = 0; i < collector->replay->n_stacks + 1 && result == 0; i++)
            if (collector->sums[i].bytes)
                result = put_entry(collector, i);
        mt_maps_finish(&collector->maps);
    }
    free(collector->sums);
    return result;
}

static int collect_process(const struct mt_recording *recording,
                           const struct mt_process_choice *choice, struct owned_list *owned,
                           struct mt_symbolizer *symbolizer)
{
    struct mt_replay replay;
    struct collector collector = {.owned = owned, .symbolizer = symbolizer, .replay = &replay};
    if (!choice->image->file) /* what a fork inherited is its parent's */
        return 0;
    mt_replay_init(&replay);
    int result = mt_tree_replay(recording, choice->image, choice->ticks, NULL, &replay);
    if (result == 0)
        result = collect(&collector, choice);
    uint64_t interval = choice->image->file->header.sample_interval_bytes;
    if (interval > owned->list.sampled_interval_bytes)
        owned->list.sampled_interval_bytes = interval;
    mt_replay_finish(&replay);
    return result;
}

static int same_stack(const struct mt_stack_entry *a, const struct mt_stack_entry *b)
{
    if (a->n_frames != b->n_frames || a->complete != b->complete)
        return 0;
    for (size_t i = 0; i < a->n_frames; i++)
        if (strcmp(a->frames[i], b->frames[i]) != 0)
            return 0;
    return 1;
}

static int by_frames(const void *a, const void *b)
{
    const struct mt_stack_entry *x = a;
    const struct mt_stack_entry *y = b;
    size_t n = x->n_frames < y->n_frames ? x->n_frames : y->n_frames;
    for (size_t i = 0; i < n; i++) {
        int order = strcmp(x->frames[i], y->frames[i]);
        if (order)
            return order;
    }
    if (x->n_frames != y->n_frames)
        return x->n_frames < y->n_frames ? -1 : 1;
    return x->complete - y->complete;
}

static int by_bytes(const void *a, const void *b)
{
    const struct mt_stack_entry *x = a;
    const struct mt_stack_entry *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return by_frames(a, b);
}

static void drop(struct mt_stack_entry *entry)
{
    for (size_t i = 0; i < entry->n_frames; i++)
        free((char *)(uintptr_t)entry->frames[i]);
    free((void *)(uintptr_t)entry->frames);
}

/* Threads and processes number their stacks each for itself: entries of the same frames become
 * one. Then the largest come first, and what is past `limit` goes. */
static void order(struct owned_list *owned, size_t limit)
{
    size_t kept = 0;
    if (!owned->n)
        return;
    qsort(owned->entries, owned->n, sizeof *owned->entries, by_frames);
    for (size_t i = 0; i < owned->n; i++) {
        struct mt_stack_entry *entry = &owned->entries[i];
        if (kept && same_stack(&owned->entries[kept - 1], entry)) {
            owned->entries[kept - 1].bytes += entry->bytes;
            owned->entries[kept - 1].count += entry->count;
            drop(entry);
        } else {
            owned->entries[kept++] = *entry;
        }
    }
    owned->n = kept;
    qsort(owned->entries, owned->n, sizeof *owned->entries, by_bytes);
    for (; limit && owned->n > limit; owned->n--)
        drop(&owned->entries[owned->n - 1]);
}

int mt_recording_stacks(const struct mt_recording *recording, const struct mt_moment *moment,
                        size_t limit, struct mt_stack_list **stacks, struct mt_error *error)
{
    const struct mt_symbolizer_options options = {0};
    struct mt_moment_found found;
    struct mt_symbolizer *symbolizer = NULL;
    int result = mt_moment_choose(recording, moment, &found, error);
    if (result < 0)
        return result;
    struct owned_list *owned = calloc(1, sizeof *owned);
    /* Without a symbolizer the places are still told, by module and offset. */
    if (mt_symbolizer_create(&options, &symbolizer, NULL) < 0)
        symbolizer = NULL;
    result = owned ? 0 : MT_ENOMEM;
    for (size_t i = 0; i < found.n_choices && result == 0; i++)
        result = collect_process(recording, &found.choices[i], owned, symbolizer);
    mt_symbolizer_destroy(symbolizer);
    free(found.choices);
    if (result < 0) {
        mt_stack_list_destroy(owned ? &owned->list : NULL);
        return mt_fail(error, result, MT_NO_OFFSET, "%s: %s", recording->path,
                       mt_error_sentence(result));
    }
    order(owned, limit);
    owned->list.entries = owned->entries;
    owned->list.n_entries = owned->n;
    *stacks = &owned->list;
    return 0;
}
