/* SPDX-License-Identifier: MIT */
/* Live bytes by call stack at a moment, of the host and of devices, with the names of the
 * functions. */
#include <inttypes.h>
#include <memtally/error.h>
#include <memtally/recording.h>
#include <memtally/tally.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "symbol/symbol.h"
#include "tally/device_askers.h"
#include "tally/image.h"
#include "tally/moment.h"
#include "tally/python_frames.h"
#include "tally/replay.h"
#include "tally/stack_list.h"
#include "tally/tree.h"

#define NAME_BYTES 512

/* The public list comes first: mt_stack_list_destroy() is handed its address. */
struct owned_list {
    struct mt_stack_list list;
    struct mt_stack_entry *entries;
    size_t n;
    size_t capacity;
    struct mt_interned names; /* of functions: where they are the same, so is the pointer */
    struct mt_arena frames;
    struct mt_table by_hash; /* of frames -> entries */
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
    struct mt_table names; /* address -> owned->names */
    struct sum *sums;      /* by stack; 0 collects what has none */
    uint64_t interval_bytes;
};

void mt_stack_list_destroy(struct mt_stack_list *stacks)
{
    struct owned_list *owned = (struct owned_list *)stacks;
    if (!owned)
        return;
    mt_interned_finish(&owned->names);
    mt_arena_finish(&owned->frames);
    mt_table_finish(&owned->by_hash);
    free(owned->entries);
    free(owned);
}

static void add(struct collector *collector, uint32_t stack, uint64_t bytes, uint64_t count)
{
    struct sum *sum = &collector->sums[stack];
    sum->bytes += bytes;
    sum->count += count;
}

static void add_blocks(struct collector *collector)
{
    const struct mt_heap_block *block;
    for (uint64_t at = 0; (block = mt_blocks_next(&collector->replay->blocks, &at));)
        add(collector, mt_replay_site(collector->replay, block->site).stack, block->size, 1);
}

static void add_samples(struct collector *collector)
{
    const struct mt_heap_block *sample;
    for (uint64_t at = 0; (sample = mt_blocks_next(&collector->replay->samples, &at));) {
        uint64_t bytes = mt_sample_bytes(sample->size, collector->interval_bytes);
        if (bytes)
            add(collector, mt_replay_site(collector->replay, sample->site).stack, bytes,
                (bytes + sample->size / 2) / sample->size);
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
static void find_name(struct collector *collector, uint64_t address, char name[NAME_BYTES])
{
    if (mt_is_python_frame(address)) {
        const struct mt_text text = mt_replay_frame_name(collector->replay, address);
        if (text.text)
            snprintf(name, NAME_BYTES, "%.*s", (int)text.length, text.text);
        else
            snprintf(name, NAME_BYTES, "[Python]");
        return;
    }
    uint64_t call = address - 1;
    const struct mt_vma *vma = mt_maps_find(&collector->maps, call);
    if (vma && vma->kind == MT_VMA_FILE && collector->symbolizer) {
        const struct mt_module module = {.path = vma->name};
        mt_symbolizer_name(collector->symbolizer, &module, vma->offset + (call - vma->start), name,
                           NAME_BYTES);
    } else if (vma && *vma->name) {
        snprintf(name, NAME_BYTES, "%s", vma->name);
    } else {
        snprintf(name, NAME_BYTES, "[0x%" PRIx64 "]", address);
    }
}

/* Returns NULL where memory ran out. */
static const char *keep_name(struct owned_list *owned, const char *name, uint32_t *number)
{
    if (mt_interned_number(&owned->names, name, strlen(name), number) < 0)
        return NULL;
    return owned->names.items[*number].text;
}

static const char *name_of(struct collector *collector, uint64_t address)
{
    char name[NAME_BYTES];
    uint64_t known;
    uint32_t number;
    if (address != UINT64_MAX && mt_table_get(&collector->names, address, &known))
        return collector->owned->names.items[known].text;
    find_name(collector, address, name);
    const char *kept = keep_name(collector->owned, name, &number);
    if (kept && address != UINT64_MAX && mt_table_set(&collector->names, address, number) < 0)
        return NULL;
    return kept;
}

static int find_frames(struct collector *collector, size_t stack, struct mt_stack_entry *entry,
                       const char *names[MT_MAX_FRAMES])
{
    uint64_t frames[MT_MAX_FRAMES];
    entry->frames = names;
    if (stack == 0) {
        entry->n_frames = 1;
        names[0] = keep_name(collector->owned, "[no stack]", &(uint32_t){0});
        return names[0] ? 0 : MT_ENOMEM;
    }
    const struct mt_stack kept = mt_replay_stack(collector->replay, (uint32_t)stack);
    struct mt_event event = {.bytes = kept.bytes, .length = kept.length};
    event.field[2] = MT_MAX_FRAMES;
    entry->complete = kept.complete;
    entry->n_frames = mt_event_frames(&event, frames);
    for (size_t i = 0; i < entry->n_frames; i++)
        if (!(names[i] = name_of(collector, frames[i])))
            return MT_ENOMEM;
    entry->n_frames = mt_python_frames_place(frames, names, entry->n_frames);
    return 0;
}

static uint64_t hash_of(const struct mt_stack_entry *entry)
{
    uint64_t hash = (entry->n_frames * 2 + (entry->complete != 0)) ^ (uintptr_t)entry->place;
    for (size_t i = 0; i < entry->n_frames; i++) {
        hash = (hash ^ (uint64_t)(uintptr_t)entry->frames[i]) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    return hash == UINT64_MAX ? 0 : hash;
}

static int same_stack(const struct mt_stack_entry *a, const struct mt_stack_entry *b)
{
    return a->n_frames == b->n_frames && a->complete == b->complete && a->place == b->place &&
           memcmp(a->frames, b->frames, a->n_frames * sizeof *a->frames) == 0;
}

static int add_entry(struct owned_list *owned, const struct mt_stack_entry *entry, uint64_t hash)
{
    if (mt_array_reserve(owned->entries, owned->n, owned->capacity, 256) < 0)
        return MT_ENOMEM;
    const char **frames = mt_arena_array(&owned->frames, entry->n_frames + 1, sizeof *frames);
    if (!frames || mt_table_set(&owned->by_hash, hash, owned->n) < 0)
        return MT_ENOMEM;
    memcpy(frames, entry->frames, entry->n_frames * sizeof *frames);
    owned->entries[owned->n] = *entry;
    owned->entries[owned->n++].frames = frames;
    return 0;
}

/* Threads and processes number their stacks each for itself: those of the same frames are one. */
static int merge_entry(struct owned_list *owned, const struct mt_stack_entry *made)
{
    uint64_t index;
    uint64_t hash = hash_of(made);
    while (mt_table_get(&owned->by_hash, hash, &index)) {
        struct mt_stack_entry *entry = &owned->entries[index];
        if (same_stack(entry, made)) {
            entry->bytes += made->bytes;
            entry->count += made->count;
            return 0;
        }
        hash = hash == UINT64_MAX - 1 ? 0 : hash + 1;
    }
    return add_entry(owned, made, hash);
}

static int put_entry(struct collector *collector, size_t stack, const char *place)
{
    const struct sum *sum = &collector->sums[stack];
    const char *names[MT_MAX_FRAMES];
    struct mt_stack_entry made = {.bytes = sum->bytes, .count = sum->count, .place = place};
    if (find_frames(collector, stack, &made, names) < 0)
        return MT_ENOMEM;
    return merge_entry(collector->owned, &made);
}

/* What was added since the last time, under the name of a place; NULL is the host. */
static int put_sums(struct collector *collector, const char *place)
{
    const size_t n_stacks = mt_replay_stacks(collector->replay);
    int result = 0;
    for (size_t i = 0; i <= n_stacks && result == 0; i++) {
        if (collector->sums[i].bytes)
            result = put_entry(collector, i, place);
        collector->sums[i] = (struct sum){0};
    }
    return result;
}

static int collect(struct collector *collector, const struct mt_process_choice *choice)
{
    const struct mt_bytes *text = choice->picture ? &choice->picture->text[MT_TEXT_MAPS] : NULL;
    const size_t n_stacks = mt_replay_stacks(collector->replay);
    collector->interval_bytes = collector->replay->sample_interval_bytes;
    collector->sums = calloc(n_stacks + 1, sizeof *collector->sums);
    if (!collector->sums)
        return MT_ENOMEM;
    int result = text ? mt_maps_parse(text->data, text->length, &collector->maps)
                      : mt_maps_copy(&choice->image->first_maps, &collector->maps);
    if (result == 0) {
        add_blocks(collector);
        if (collector->interval_bytes > 0)
            add_samples(collector);
        add_mappings(collector);
        result = put_sums(collector, NULL);
        mt_maps_finish(&collector->maps);
    }
    mt_table_finish(&collector->names);
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

/* Returns NULL where memory ran out. */
static const char *name_of_place(struct owned_list *owned, const struct mt_device_place *place)
{
    char name[MT_PLACE_NAME_BYTES];
    uint32_t number;
    mt_device_place_name(place, name);
    return keep_name(owned, name, &number);
}

/* The allocations are of one image, those of a device beside each other. */
static int put_askers(struct collector *collector, const struct mt_devices *devices,
                      const struct mt_device_asker *askers, size_t n)
{
    int result = 0;
    for (size_t i = 0; i < n && result == 0; i++) {
        const struct mt_device_place *place = &devices->places[askers[i].block->place];
        add(collector, askers[i].stack, askers[i].block->bytes, 1);
        if (i + 1 < n && askers[i + 1].block->place == askers[i].block->place)
            continue;
        const char *name = name_of_place(collector->owned, place);
        result = name ? put_sums(collector, name) : MT_ENOMEM;
    }
    return result;
}

static int collect_askers(const struct mt_recording *recording, struct mt_device_asker *askers,
                          size_t n, struct owned_list *owned, struct mt_symbolizer *symbolizer)
{
    const struct mt_image *image = &recording->images[askers->image];
    struct mt_replay replay;
    struct collector collector = {.owned = owned, .symbolizer = symbolizer, .replay = &replay};
    mt_replay_init(&replay);
    int result = mt_device_askers_find(recording, askers, n, &replay);
    if (result == 0)
        result = mt_image_last_maps(image, &collector.maps);
    if (result == 0) {
        collector.sums = calloc((size_t)mt_replay_stacks(&replay) + 1, sizeof *collector.sums);
        result =
            collector.sums ? put_askers(&collector, &recording->devices, askers, n) : MT_ENOMEM;
        mt_maps_finish(&collector.maps);
    }
    mt_table_finish(&collector.names);
    free(collector.sums);
    mt_replay_finish(&replay);
    return result;
}

static int collect_devices(const struct mt_recording *recording, int is_peak, uint64_t ns,
                           struct owned_list *owned, struct mt_symbolizer *symbolizer)
{
    struct mt_device_asker *askers;
    size_t n;
    int result = mt_device_askers_list(recording, is_peak, ns, &askers, &n);
    for (size_t i = 0, end; i < n && result == 0; i = end) {
        for (end = i + 1; end < n && askers[end].image == askers[i].image;)
            end++;
        result = collect_askers(recording, askers + i, end - i, owned, symbolizer);
    }
    free(askers);
    return result;
}

int mt_stack_compare(const struct mt_stack_entry *x, const struct mt_stack_entry *y)
{
    size_t n = x->n_frames < y->n_frames ? x->n_frames : y->n_frames;
    for (size_t i = 0; i < n; i++) {
        int order = x->frames[i] == y->frames[i] ? 0 : strcmp(x->frames[i], y->frames[i]);
        if (order)
            return order;
    }
    if (x->n_frames != y->n_frames)
        return x->n_frames < y->n_frames ? -1 : 1;
    if (x->complete != y->complete)
        return x->complete - y->complete;
    return strcmp(x->place ? x->place : "", y->place ? y->place : "");
}

static int by_bytes(const void *a, const void *b)
{
    const struct mt_stack_entry *x = a;
    const struct mt_stack_entry *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return mt_stack_compare(x, y);
}

/* The largest come first, and what is past `limit` goes. */
static void order(struct owned_list *owned, size_t limit)
{
    if (owned->n)
        qsort(owned->entries, owned->n, sizeof *owned->entries, by_bytes);
    if (limit && owned->n > limit)
        owned->n = limit;
}

struct mt_stack_list *mt_stack_list_create(void)
{
    struct owned_list *owned = calloc(1, sizeof *owned);
    return owned ? &owned->list : NULL;
}

int mt_stack_list_add(struct mt_stack_list *stacks, const struct mt_stack_entry *entry)
{
    struct owned_list *owned = (struct owned_list *)stacks;
    const char *names[MT_STACK_FRAMES_MOST];
    struct mt_stack_entry made = *entry;
    uint32_t number;
    if (made.n_frames > MT_STACK_FRAMES_MOST) {
        made.n_frames = MT_STACK_FRAMES_MOST;
        made.complete = 0;
    }
    for (size_t i = 0; i < made.n_frames; i++)
        if (!(names[i] = keep_name(owned, entry->frames[i], &number)))
            return MT_ENOMEM;
    if (made.place && !(made.place = keep_name(owned, entry->place, &number)))
        return MT_ENOMEM;
    made.frames = names;
    return merge_entry(owned, &made);
}

void mt_stack_list_finish(struct mt_stack_list *stacks, size_t limit)
{
    struct owned_list *owned = (struct owned_list *)stacks;
    order(owned, limit);
    owned->list.entries = owned->entries;
    owned->list.n_entries = owned->n;
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
    if (result == 0)
        result = collect_devices(recording, moment->kind == MT_MOMENT_PEAK, found.at.ns, owned,
                                 symbolizer);
    mt_symbolizer_destroy(symbolizer);
    free(found.choices);
    if (result < 0) {
        mt_stack_list_destroy(owned ? &owned->list : NULL);
        return mt_fail(error, result, MT_NO_OFFSET, "%s: %s", recording->path,
                       mt_error_sentence(result));
    }
    mt_stack_list_finish(&owned->list, limit);
    *stacks = &owned->list;
    return 0;
}
