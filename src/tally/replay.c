/* SPDX-License-Identifier: MIT */
/* Applying events one by one. Must not know what a picture shows: that is attribute.c's. */
#include "tally/replay.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void mt_replay_init(struct mt_replay *replay)
{
    *replay = (struct mt_replay){0};
    mt_ranges_init(&replay->maps);
    mt_ranges_init(&replay->labels);
    mt_ranges_init(&replay->self);
    mt_ranges_init(&replay->regions);
}

void mt_replay_finish(struct mt_replay *replay)
{
    struct mt_table *tables[] = {&replay->blocks, &replay->samples,       &replay->buffers,
                                 &replay->names,  &replay->stack_numbers, &replay->scopes};
    struct mt_ranges *ranges[] = {&replay->maps, &replay->labels, &replay->self, &replay->regions};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        mt_table_finish(tables[i]);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        mt_ranges_finish(ranges[i]);
    free(replay->live);
    free(replay->texts);
    free(replay->stacks);
    free(replay->scope_items);
    *replay = (struct mt_replay){0};
}

/* Room for one more item in an array that grows by doubling; element 0 is never used. */
static int more(void **items, size_t *n, size_t *capacity, size_t size)
{
    if (*n + 1 >= *capacity) {
        size_t bigger = *capacity ? *capacity * 2 : 256;
        void *grown = realloc(*items, bigger * size);
        if (!grown)
            return MT_ENOMEM;
        *items = grown;
        *capacity = bigger;
    }
    if (*n == 0)
        *n = 1;
    return 0;
}

static uint64_t key_of(const struct mt_replay *replay, const struct mt_event *event,
                       uint64_t number)
{
    return (uint64_t)replay->epoch << 60 | (uint64_t)(event->stream & 0xfffffff) << 32 |
           (uint32_t)number;
}

static int define_text(struct mt_replay *replay, const struct mt_event *event)
{
    void *items = replay->texts;
    if (more(&items, &replay->n_texts, &replay->texts_capacity, sizeof *replay->texts) < 0)
        return MT_ENOMEM;
    replay->texts = items;
    replay->texts[replay->n_texts] = (struct mt_text){(const char *)event->bytes, event->length};
    return mt_table_set(&replay->names, key_of(replay, event, event->field[0]), replay->n_texts++);
}

static int define_stack(struct mt_replay *replay, const struct mt_event *event)
{
    void *items = replay->stacks;
    if (more(&items, &replay->n_stacks, &replay->stacks_capacity, sizeof *replay->stacks) < 0)
        return MT_ENOMEM;
    replay->stacks = items;
    replay->stacks[replay->n_stacks] =
        (struct mt_stack){event->bytes, event->length, event->field[2], event->field[1] != 0};
    return mt_table_set(&replay->stack_numbers, key_of(replay, event, event->field[0]),
                        replay->n_stacks++);
}

static uint32_t text_of(const struct mt_replay *replay, const struct mt_event *event,
                        uint64_t number)
{
    uint64_t index = 0;
    mt_table_get(&replay->names, key_of(replay, event, number), &index);
    return (uint32_t)index;
}

static uint32_t stack_of(const struct mt_replay *replay, const struct mt_event *event,
                         uint64_t number)
{
    uint64_t index = 0;
    mt_table_get(&replay->stack_numbers, key_of(replay, event, number), &index);
    return (uint32_t)index;
}

/* Fills in the scope of the stream that the event is from. */
static void set_scope(const struct mt_replay *replay, const struct mt_event *event,
                      struct mt_live *live)
{
    uint64_t top = 0;
    mt_table_get(&replay->scopes, key_of(replay, event, 0), &top);
    if (!top)
        return;
    live->category = replay->scope_items[top].category;
    live->name = replay->scope_items[top].name;
}

static int begin_scope(struct mt_replay *replay, const struct mt_event *event)
{
    uint64_t below = 0;
    void *items = replay->scope_items;
    if (more(&items, &replay->n_scope_items, &replay->scope_capacity, sizeof *replay->scope_items) <
        0)
        return MT_ENOMEM;
    replay->scope_items = items;
    mt_table_get(&replay->scopes, key_of(replay, event, 0), &below);
    replay->scope_items[replay->n_scope_items] = (struct mt_live){
        .category = event->field[0] < MT_CATEGORY_END ? (uint32_t)event->field[0] : 0,
        .name = text_of(replay, event, event->field[1]),
        .flags = (uint32_t)below,
    };
    return mt_table_set(&replay->scopes, key_of(replay, event, 0), replay->n_scope_items++);
}

static int end_scope(struct mt_replay *replay, const struct mt_event *event)
{
    uint64_t top = 0;
    mt_table_get(&replay->scopes, key_of(replay, event, 0), &top);
    if (!top)
        return 0;
    return mt_table_set(&replay->scopes, key_of(replay, event, 0), replay->scope_items[top].flags);
}

/* Keeps `live` and returns its index, 0 where memory ran out. */
static uint64_t keep(struct mt_replay *replay, const struct mt_live *live)
{
    void *items = replay->live;
    if (more(&items, &replay->n_live, &replay->live_capacity, sizeof *replay->live) < 0)
        return 0;
    replay->live = items;
    replay->live[replay->n_live] = *live;
    return replay->n_live++;
}

static int add_block(struct mt_replay *replay, struct mt_table *table, const struct mt_event *event)
{
    struct mt_live live = {
        .address = event->field[0],
        .size = event->field[1],
        .stack = stack_of(replay, event, event->field[2]),
    };
    set_scope(replay, event, &live);
    uint64_t index;
    /* The place of a block that was freed unseen, or of the sample before it, is used again. */
    if (mt_table_get(table, live.address, &index)) {
        replay->live[index] = live;
        return 0;
    }
    index = keep(replay, &live);
    return index ? mt_table_set(table, live.address, index) : MT_ENOMEM;
}

/* The end of a range, not past the address space. */
static uint64_t end_of(uint64_t address, uint64_t length)
{
    return length > UINT64_MAX - address ? UINT64_MAX : address + length;
}

static int add_range(struct mt_replay *replay, struct mt_ranges *ranges, const struct mt_live *live)
{
    uint64_t index = keep(replay, live);
    if (!index)
        return MT_ENOMEM;
    mt_ranges_set(ranges, live->address, end_of(live->address, live->size), index);
    return ranges->failed ? MT_ENOMEM : 0;
}

static int add_mapping(struct mt_replay *replay, const struct mt_event *event)
{
    struct mt_live live = {
        .address = event->field[0],
        .size = event->field[1],
        .stack = stack_of(replay, event, event->field[6]),
        .flags = (event->field[3] & MT_MAP_BY_ALLOCATOR ? MT_MAPPED_ALLOCATOR : 0) |
                 (event->field[4] ? MT_MAPPED_FILE : 0),
    };
    set_scope(replay, event, &live);
    uint64_t end = end_of(live.address, live.size);
    mt_ranges_clear(&replay->labels, live.address, end);
    return add_range(replay, &replay->maps, &live);
}

static void remove_mapping(struct mt_replay *replay, uint64_t address, uint64_t length)
{
    mt_ranges_clear(&replay->maps, address, end_of(address, length));
    mt_ranges_clear(&replay->labels, address, end_of(address, length));
}

static int move_mapping(struct mt_replay *replay, const struct mt_event *event)
{
    struct mt_range range;
    struct mt_live live = {.address = event->field[2], .size = event->field[3]};
    if (mt_ranges_find(&replay->maps, event->field[0], &range)) {
        live = replay->live[range.value];
        live.address = event->field[2];
        live.size = event->field[3];
    }
    if (mt_ranges_find(&replay->labels, event->field[0], &range)) {
        struct mt_live label = replay->live[range.value];
        label.address = live.address;
        label.size = live.size;
        remove_mapping(replay, event->field[0], event->field[1]);
        if (add_range(replay, &replay->labels, &label) < 0)
            return MT_ENOMEM;
    }
    mt_ranges_clear(&replay->maps, event->field[0], end_of(event->field[0], event->field[1]));
    return add_range(replay, &replay->maps, &live);
}

static int add_thread(struct mt_replay *replay, const struct mt_event *event)
{
    if (event->field[1] >= event->field[2])
        return 0;
    const struct mt_live live = {
        .address = event->field[1],
        .size = event->field[2] - event->field[1],
        .flags = MT_MAPPED_STACK,
    };
    return add_range(replay, &replay->maps, &live);
}

static int add_buffer(struct mt_replay *replay, const struct mt_event *event)
{
    const struct mt_live live = {
        .address = event->field[1],
        .size = event->field[2],
        .flags = (uint32_t)event->field[3],
        .category = event->field[4] < MT_CATEGORY_END ? (uint32_t)event->field[4] : 0,
        .name = text_of(replay, event, event->field[5]),
        .stack = stack_of(replay, event, event->field[6]),
    };
    uint64_t index = keep(replay, &live);
    return index ? mt_table_set(&replay->buffers, event->field[0], index) : MT_ENOMEM;
}

static int add_label(struct mt_replay *replay, const struct mt_event *event)
{
    const struct mt_live live = {
        .address = event->field[0],
        .size = event->field[1],
        .category = event->field[2] < MT_CATEGORY_END ? (uint32_t)event->field[2] : 0,
        .name = text_of(replay, event, event->field[3]),
    };
    return add_range(replay, &replay->labels, &live);
}

static void set_usage(struct mt_replay *replay, const struct mt_event *event)
{
    uint64_t index;
    if (mt_table_get(&replay->buffers, event->field[0], &index))
        replay->live[index].usage = (uint32_t)event->field[1];
}

static int set_plain_range(struct mt_ranges *ranges, uint64_t low, uint64_t high)
{
    mt_ranges_set(ranges, low, high, 1);
    return ranges->failed ? MT_ENOMEM : 0;
}

/* The totals replace each other: the last says all. A forked child's are on top
 * of what it inherited. */
static void set_totals(struct mt_replay *replay, const struct mt_event *event)
{
    replay->small_allocs = replay->inherited_allocs + event->field[0];
    replay->small_alloc_bytes = replay->inherited_alloc_bytes + event->field[1];
    replay->small_frees = replay->inherited_frees + event->field[2];
    replay->small_free_bytes = replay->inherited_free_bytes + event->field[3];
}

static int apply(struct mt_replay *replay, const struct mt_event *event)
{
    const uint64_t *field = event->field;
    switch (event->op) {
    case MT_EVENT_STRING:
        return define_text(replay, event);
    case MT_EVENT_STACK:
        return define_stack(replay, event);
    case MT_EVENT_ALLOC:
        return add_block(replay, &replay->blocks, event);
    case MT_EVENT_FREE:
        mt_table_take(&replay->blocks, field[0], NULL);
        return 0;
    case MT_EVENT_SAMPLE_ALLOC:
        return add_block(replay, &replay->samples, event);
    case MT_EVENT_SAMPLE_FREE:
        mt_table_take(&replay->samples, field[0], NULL);
        return 0;
    case MT_EVENT_HEAP_REGION:
        if (field[0] >= (uint64_t)1 << 44 || field[1] >= (uint64_t)1 << 27)
            return 0;
        return set_plain_range(&replay->regions, field[0] * MT_GRANULE_BYTES,
                               (field[0] + field[1]) * MT_GRANULE_BYTES);
    case MT_EVENT_MMAP:
        return add_mapping(replay, event);
    case MT_EVENT_MUNMAP:
        remove_mapping(replay, field[0], field[1]);
        return 0;
    case MT_EVENT_MREMAP:
        return move_mapping(replay, event);
    case MT_EVENT_BUFFER_ALLOC:
        return add_buffer(replay, event);
    case MT_EVENT_BUFFER_USAGE:
        set_usage(replay, event);
        return 0;
    case MT_EVENT_BUFFER_FREE:
        mt_table_take(&replay->buffers, field[0], NULL);
        return 0;
    case MT_EVENT_SCOPE_BEGIN:
        return begin_scope(replay, event);
    case MT_EVENT_SCOPE_END:
        return end_scope(replay, event);
    case MT_EVENT_LABEL:
        return add_label(replay, event);
    case MT_EVENT_UNLABEL:
        mt_ranges_clear(&replay->labels, field[0], end_of(field[0], field[1]));
        return 0;
    case MT_EVENT_THREAD:
        return add_thread(replay, event);
    case MT_EVENT_TOTALS:
        set_totals(replay, event);
        return 0;
    case MT_EVENT_SELF:
        return set_plain_range(&replay->self, field[0], end_of(field[0], field[1]));
    default:
        return 0;
    }
}

int mt_replay_file(struct mt_replay *replay, const struct mt_record_file *file,
                   uint64_t until_ticks)
{
    struct mt_merge *merge;
    struct mt_event event;
    int result = mt_merge_create(file, &merge);
    if (result < 0)
        return result;
    replay->epoch = (replay->epoch + 1) & 0xf;
    while (result == 0 && mt_merge_next(merge, &event) && event.ticks <= until_ticks)
        if (event.field[0] != UINT64_MAX)
            result = apply(replay, &event);
    mt_merge_destroy(merge);
    return result;
}
