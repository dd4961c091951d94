/* SPDX-License-Identifier: MIT */
/* How much a process holds, event by event: sums only, and of what lives no more than its size. */
#ifndef MT_TALLY_HELD_H
#define MT_TALLY_HELD_H

#include <memtally/category.h>

#include "recording/reader.h"
#include "tally/ranges.h"
#include "tally/table.h"

struct mt_held_scope {
    uint32_t category;
    uint32_t below; /* 0 at the bottom */
};

struct mt_held {
    uint64_t heap_bytes; /* blocks in use, those too small for events by count and sample */
    uint64_t of[MT_CATEGORY_END]; /* said to be of a category */
    /* [gone_low, gone_high) went back to the system with the last event; empty: nothing did. */
    uint64_t gone_low;
    uint64_t gone_high;
    uint64_t came_bytes; /* and so much came, of what is worth a look */

    uint64_t sample_interval_bytes;
    uint64_t big_bytes;
    int64_t small_bytes; /* as last counted */
    uint64_t sampled_bytes;
    uint64_t sampled_bytes_then;
    struct mt_table blocks;       /* address -> size and category */
    struct mt_table samples;      /* address -> bytes that it stands for */
    struct mt_table labelled;     /* address of a small block -> bytes, where it is labelled */
    struct mt_table buffer_lows;  /* handle -> address */
    struct mt_table buffer_sizes; /* handle -> size, flags, usage, category */
    struct mt_ranges said;        /* -> category */
    uint64_t said_low;            /* all of `said` lies in [said_low, said_high) */
    uint64_t said_high;
    struct mt_table scopes; /* stream -> the innermost, an index into scope_items */
    struct mt_held_scope *scope_items;
    size_t n_scope_items;
};

void mt_held_init(struct mt_held *held, const struct mt_file_header *header);
void mt_held_finish(struct mt_held *held);

/* Has the memory fetched that applying the event will want soon. */
void mt_held_expect(const struct mt_held *held, const struct mt_event *event);

/* Returns 0 or MT_ENOMEM. */
int mt_held_apply(struct mt_held *held, const struct mt_event *event);

/* Whether a block of `size` bytes at `address` is a mapping of its own, as glibc makes one: it goes
 * back to the system when it is freed. [*low, *high) is that mapping. */
int mt_is_mapped_block(uint64_t address, uint64_t size, uint64_t *low, uint64_t *high);

/* What an event gives back to the system without more being known than what it says. */
int mt_event_gives_back(const struct mt_event *event, uint64_t *low, uint64_t *high);

/* What a buffer is for, by what was said of it. */
enum mt_category mt_buffer_category(uint64_t category, uint64_t usage, uint64_t flags);

#endif
