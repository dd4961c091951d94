/* SPDX-License-Identifier: MIT */
/* The state of a process's memory at one moment, from its events up to then. */
#ifndef MT_TALLY_REPLAY_H
#define MT_TALLY_REPLAY_H

#include <sys/mman.h>

#include "recording/reader.h"
#include "tally/blocks.h"
#include "tally/interned.h"
#include "tally/leaving.h"
#include "tally/ranges.h"
#include "tally/table.h"

/* Who allocated. `name` and `stack` are numbers of the replay's texts and stacks; 0 means none. */
struct mt_site {
    uint32_t category; /* of the scope; MT_CATEGORY_NONE where not said */
    uint32_t name;
    uint32_t stack;
};

/* A buffer, mapping or label that is alive. */
struct mt_live {
    uint64_t address;
    uint64_t size;
    uint32_t category; /* of its scope, buffer or label; MT_CATEGORY_NONE where not said */
    uint32_t name;
    uint32_t stack;
    uint32_t flags;  /* enum mt_buffer_flags, or of the mapping */
    uint32_t marked; /* used while those that are gone are looked for */
    union {
        uint32_t usage; /* of a buffer */
        uint64_t since; /* of a mapping or label: the ticks that it began at */
    };
    uint64_t born; /* the number of the event that began it: of two that overlap the later holds */
};

/* What a mapping range is; or a label: of a heap block as a whole. */
enum mt_map_flags {
    MT_MAPPED_STACK = 1,
    MT_MAPPED_ALLOCATOR = 2,
    MT_MAPPED_FILE = 4,
    MT_LABEL_OF_BLOCK = 8,
    MT_MAPPED_CLOSED = 16 /* nothing there may be touched as it was mapped */
};

/* An event MMAP says them. */
static inline uint32_t mt_mapping_flags(const struct mt_event *event)
{
    return (event->field[3] & MT_MAP_BY_ALLOCATOR ? MT_MAPPED_ALLOCATOR : 0u) |
           (event->field[4] ? MT_MAPPED_FILE : 0u) |
           (event->field[2] == PROT_NONE ? MT_MAPPED_CLOSED : 0u);
}

struct mt_stack {
    const uint8_t *bytes; /* as in the event */
    size_t length;
    int complete;
};

/* A site with this bit is a number of the replay's `sites`; without, the stack's, in no scope. */
#define MT_SITE_IN_SCOPE (UINT32_C(1) << 31)

struct mt_replay_stream;

struct mt_replay {
    struct mt_live *live; /* tables and ranges index it */
    size_t n_live;
    size_t live_capacity;
    size_t live_limit;  /* when so many are there, those that are gone are looked for */
    uint64_t free_live; /* items that are gone, linked by `address`; 0: none */
    uint64_t n_events;
    uint64_t n_born;
    uint64_t ticks; /* of the event that is being applied */
    struct mt_blocks blocks;
    struct mt_blocks samples;
    struct mt_table gone; /* addresses of blocks that live and were freed after the replay's end */
    struct mt_table buffers;  /* handle -> live */
    struct mt_ranges maps;    /* -> live */
    struct mt_ranges labels;  /* -> live */
    struct mt_ranges self;    /* the recorder's own memory */
    struct mt_ranges regions; /* where the heap was seen */
    struct mt_interned texts;
    struct mt_interned stacks;   /* a byte that says whether it is complete, then as in the event */
    struct mt_table frame_names; /* of frames that are no addresses -> texts */
    struct mt_interned scopes;   /* each a struct mt_site without a stack */
    struct mt_interned sites;    /* struct mt_site of blocks that were allocated in a scope */
    struct mt_table by_stream;   /* -> streams */
    struct mt_replay_stream *streams;
    size_t n_streams;
    size_t streams_capacity;
    size_t last_stream;
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
    struct mt_leavings leavings;
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

void mt_replay_init(struct mt_replay *replay);
void mt_replay_finish(struct mt_replay *replay);

/* Applies the events of `file` up to `until_ticks`. What is said of a block later, while it lives,
 * holds from its beginning: labels of blocks are looked for up to the file's last. May be called
 * for a parent's file up to the fork and then for the child's. `observer` may be NULL. Returns 0,
 * MT_ENOMEM or MT_EIO. */
int mt_replay_file(struct mt_replay *replay, const struct mt_record_file *file,
                   uint64_t until_ticks, const struct mt_replay_observer *observer);

/* Where a block or sample was allocated. */
struct mt_site mt_replay_site(const struct mt_replay *replay, uint32_t site);

/* The number that the replay has for stack `number` of an event's stream, while the event is
 * observed; 0: none. */
uint32_t mt_replay_stack_of(struct mt_replay *replay, const struct mt_event *event,
                            uint64_t number);

/* Stack number `stack`, from 1 to mt_replay_stacks(). */
struct mt_stack mt_replay_stack(const struct mt_replay *replay, uint32_t stack);
/* The name of a Python frame; its `text` is NULL where none was recorded. */
struct mt_text mt_replay_frame_name(const struct mt_replay *replay, uint64_t frame);
uint32_t mt_replay_stacks(const struct mt_replay *replay);

#endif
