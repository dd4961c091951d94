/* SPDX-License-Identifier: MIT */
/* The state of a process's memory at one moment, from its events up to then. */
#ifndef MT_TALLY_REPLAY_H
#define MT_TALLY_REPLAY_H

#include <memtally/category.h>

#include "recording/reader.h"
#include "tally/ranges.h"
#include "tally/table.h"

/* A block, buffer, mapping or sample that is alive. `name` and `stack` index the replay's texts and
 * stacks; 0 means none. */
struct mt_live {
    uint64_t address;
    uint64_t size;
    uint32_t category; /* of its scope, buffer or label; MT_CATEGORY_NONE where not said */
    uint32_t name;
    uint32_t stack;
    uint32_t flags; /* enum mt_buffer_flags, or of the mapping */
    uint32_t usage; /* of a buffer */
    uint32_t reserved;
    uint64_t born; /* the number of the event that began it: of two that overlap the later holds */
};

/* What a mapping range is. */
enum mt_map_flags { MT_MAPPED_STACK = 1, MT_MAPPED_ALLOCATOR = 2, MT_MAPPED_FILE = 4 };

struct mt_text {
    const char *text;
    size_t length;
};

struct mt_stack {
    const uint8_t *bytes; /* as in the event */
    size_t length;
    uint64_t n_frames;
    int complete;
};

struct mt_replay {
    struct mt_live *live; /* the tables and ranges index it */
    size_t n_live;
    size_t live_capacity;
    uint64_t free_live; /* items of blocks that are gone, linked by `address`; 0: none */
    uint64_t n_events;
    struct mt_table blocks;        /* address -> live */
    struct mt_table samples;       /* address -> live */
    struct mt_table buffers;       /* handle -> live */
    struct mt_ranges maps;         /* -> live */
    struct mt_ranges labels;       /* -> live */
    struct mt_ranges self;         /* the recorder's own memory */
    struct mt_ranges regions;      /* where the heap was seen */
    struct mt_table names;         /* stream and number -> texts */
    struct mt_table stack_numbers; /* stream and number -> stacks */
    struct mt_text *texts;
    size_t n_texts;
    size_t texts_capacity;
    struct mt_stack *stacks;
    size_t n_stacks;
    size_t stacks_capacity;
    struct mt_table scopes;      /* stream -> top of its scope stack, an index into scope_items */
    struct mt_live *scope_items; /* linked by `flags` to the scope below, 0 at the bottom */
    size_t n_scope_items;
    size_t scope_capacity;
    uint64_t small_allocs; /* blocks too small to be events, over all streams */
    uint64_t small_alloc_bytes;
    uint64_t small_frees;
    uint64_t small_free_bytes;
    uint64_t inherited_allocs; /* of parents, up to the fork; part of the four above */
    uint64_t inherited_alloc_bytes;
    uint64_t inherited_frees;
    uint64_t inherited_free_bytes;
    uint64_t sampled_bytes;      /* what the living samples stand for */
    uint64_t sampled_bytes_then; /* the same when the four above were said */
    uint64_t sample_interval_bytes;
    uint64_t page_bytes;
    uint32_t epoch; /* keeps the streams of several files apart */
};

/* Who is told of the events of a file with `from_ticks` < ticks <= `until_ticks`, each before it is
 * applied; those past the replay's own end are told and not applied. */
struct mt_replay_observer {
    void (*event)(void *context, const struct mt_event *event);
    void *context;
    uint64_t from_ticks;
    uint64_t until_ticks;
};

/* What a sample of a block of `size` bytes stands for, where one is taken every `interval_bytes` on
 * average. */
uint64_t mt_sample_bytes(uint64_t size, uint64_t interval_bytes);

/* Bytes of blocks too small to be events that are alive: what was last counted, and by the samples
 * what came and went since. */
uint64_t mt_replay_small_bytes(const struct mt_replay *replay);

/* What a buffer is for, by what was said of it. */
enum mt_category mt_buffer_category(uint64_t category, uint64_t usage, uint64_t flags);

void mt_replay_init(struct mt_replay *replay);
void mt_replay_finish(struct mt_replay *replay);

/* Applies the events of `file` up to `until_ticks`. May be called for a parent's file up to the
 * fork and then for the child's. `observer` may be NULL. Returns 0 or MT_ENOMEM. The file must stay
 * open as long as the replay is used. */
int mt_replay_file(struct mt_replay *replay, const struct mt_record_file *file,
                   uint64_t until_ticks, const struct mt_replay_observer *observer);

#endif
