/* SPDX-License-Identifier: MIT */
/* Applying events one by one. Must not know what a picture shows: that is attribute.c's. */
#include "tally/replay.h"

#include <math.h>
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
    size_t length = event->length < MT_MAX_STRING ? event->length : MT_MAX_STRING;
    replay->texts[replay->n_texts] = (struct mt_text){(const char *)event->bytes, length};
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
    uint64_t index = replay->free_live;
    if (index) {
        replay->free_live = replay->live[index].address;
    } else {
        void *items = replay->live;
        if (more(&items, &replay->n_live, &replay->live_capacity, sizeof *replay->live) < 0)
            return 0;
        replay->live = items;
        index = replay->n_live++;
    }
    replay->live[index] = *live;
    replay->live[index].born = replay->n_events;
    return index;
}

static void drop(struct mt_replay *replay, uint64_t index)
{
    replay->live[index] = (struct mt_live){.address = replay->free_live};
    replay->free_live = index;
}

/* The end of a range, not past the address space. */
static uint64_t end_of(uint64_t address, uint64_t length)
{
    return length > UINT64_MAX - address ? UINT64_MAX : address + length;
}

/* What was said about memory does not hold for what comes there next. */
static void clear_labels(struct mt_replay *replay, uint64_t address, uint64_t length)
{
    if (replay->labels.n)
        mt_ranges_clear(&replay->labels, address, end_of(address, length));
}

/* Puts `live` into `table`, in place of what was there and whose end went unseen. */
static int keep_in(struct mt_replay *replay, struct mt_table *table, uint64_t key,
                   const struct mt_live *live)
{
    uint64_t index;
    if (mt_table_take(table, key, &index))
        drop(replay, index);
    index = keep(replay, live);
    return index ? mt_table_set(table, key, index) : MT_ENOMEM;
}

static void take_from(struct mt_replay *replay, struct mt_table *table, uint64_t key)
{
    uint64_t index;
    if (mt_table_take(table, key, &index))
        drop(replay, index);
}

/* A block of s bytes is sampled with probability 1 - exp(-s / interval), so that it stands for the
 * inverse of that many. */
uint64_t mt_sample_bytes(uint64_t size, uint64_t interval_bytes)
{
    if (!size || !interval_bytes)
        return size;
    double weight = 1 / -expm1(-(double)size / (double)interval_bytes);
    return weight < 1e9 ? (uint64_t)((double)size * weight) : 0;
}

uint64_t mt_replay_small_bytes(const struct mt_replay *replay)
{
    uint64_t came = replay->small_alloc_bytes + replay->sampled_bytes;
    uint64_t went = replay->small_free_bytes + replay->sampled_bytes_then;
    return came > went ? came - went : 0;
}

static int add_block(struct mt_replay *replay, struct mt_table *table, const struct mt_event *event)
{
    struct mt_live live = {
        .address = event->field[0],
        .size = event->field[1],
        .stack = stack_of(replay, event, event->field[2]),
    };
    set_scope(replay, event, &live);
    if (table == &replay->blocks)
        clear_labels(replay, live.address, live.size);
    return keep_in(replay, table, live.address, &live);
}

static int add_sample(struct mt_replay *replay, const struct mt_event *event)
{
    uint64_t index;
    if (mt_table_get(&replay->samples, event->field[0], &index))
        replay->sampled_bytes -=
            mt_sample_bytes(replay->live[index].size, replay->sample_interval_bytes);
    replay->sampled_bytes += mt_sample_bytes(event->field[1], replay->sample_interval_bytes);
    return add_block(replay, &replay->samples, event);
}

static void free_sample(struct mt_replay *replay, uint64_t address)
{
    uint64_t index;
    if (!mt_table_get(&replay->samples, address, &index))
        return;
    replay->sampled_bytes -=
        mt_sample_bytes(replay->live[index].size, replay->sample_interval_bytes);
    take_from(replay, &replay->samples, address);
}

static void free_block(struct mt_replay *replay, uint64_t address)
{
    uint64_t index;
    if (!mt_table_take(&replay->blocks, address, &index))
        return;
    clear_labels(replay, address, replay->live[index].size);
    drop(replay, index);
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
    /* What an allocator maps within a scope it also gives to others. */
    if (!(live.flags & MT_MAPPED_ALLOCATOR))
        set_scope(replay, event, &live);
    clear_labels(replay, live.address, live.size);
    return add_range(replay, &replay->maps, &live);
}

static void remove_mapping(struct mt_replay *replay, uint64_t address, uint64_t length)
{
    mt_ranges_clear(&replay->maps, address, end_of(address, length));
    clear_labels(replay, address, length);
}

/* Labels move with what they are on, as far as it moves. The new place is free of labels. */
static int move_labels(struct mt_replay *replay, uint64_t from, uint64_t to, uint64_t length)
{
    struct mt_range range;
    uint64_t end = end_of(from, length);
    if (from < end_of(to, length) && to < end)
        return 0; /* no kernel moves memory onto itself */
    for (uint64_t at = from;
         at < end && mt_ranges_at_or_after(&replay->labels, at, &range) && range.low < end;
         at = range.high) {
        struct mt_live label = replay->live[range.value];
        uint64_t low = range.low > from ? range.low : from;
        label.address = to + (low - from);
        label.size = (range.high < end ? range.high : end) - low;
        if (add_range(replay, &replay->labels, &label) < 0)
            return MT_ENOMEM;
    }
    return 0;
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
    uint64_t from = event->field[0];
    uint64_t old_length = event->field[1];
    uint64_t kept = old_length < live.size ? old_length : live.size;
    if (from == live.address) {
        remove_mapping(replay, from + kept, old_length - kept);
        return add_range(replay, &replay->maps, &live);
    }
    clear_labels(replay, live.address, live.size);
    if (move_labels(replay, from, live.address, kept) < 0)
        return MT_ENOMEM;
    remove_mapping(replay, from, old_length);
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
    return keep_in(replay, &replay->buffers, event->field[0], &live);
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

/* The recorder maps its memory itself: it has the whole of the last page. */
static int add_own(struct mt_replay *replay, uint64_t address, uint64_t length)
{
    uint64_t end = end_of(address, length);
    uint64_t rest = end & (replay->page_bytes - 1);
    return set_plain_range(&replay->self, address,
                           rest ? end_of(end, replay->page_bytes - rest) : end);
}

/* The totals replace each other: the last says all. A forked child's are on top
 * of what it inherited. */
static void set_totals(struct mt_replay *replay, const struct mt_event *event)
{
    replay->small_allocs = replay->inherited_allocs + event->field[0];
    replay->small_alloc_bytes = replay->inherited_alloc_bytes + event->field[1];
    replay->small_frees = replay->inherited_frees + event->field[2];
    replay->small_free_bytes = replay->inherited_free_bytes + event->field[3];
    replay->sampled_bytes_then = replay->sampled_bytes;
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
        free_block(replay, field[0]);
        return 0;
    case MT_EVENT_SAMPLE_ALLOC:
        return add_sample(replay, event);
    case MT_EVENT_SAMPLE_FREE:
        free_sample(replay, field[0]);
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
        take_from(replay, &replay->buffers, field[0]);
        return 0;
    case MT_EVENT_SCOPE_BEGIN:
        return begin_scope(replay, event);
    case MT_EVENT_SCOPE_END:
        return end_scope(replay, event);
    case MT_EVENT_LABEL:
        return add_label(replay, event);
    case MT_EVENT_UNLABEL:
        clear_labels(replay, field[0], field[1]);
        return 0;
    case MT_EVENT_THREAD:
        return add_thread(replay, event);
    case MT_EVENT_TOTALS:
        set_totals(replay, event);
        return 0;
    case MT_EVENT_SELF:
        return add_own(replay, field[0], field[1]);
    default:
        return 0;
    }
}

enum mt_category mt_buffer_category(uint64_t category, uint64_t usage, uint64_t flags)
{
    if (category != MT_CATEGORY_NONE && category < MT_CATEGORY_END)
        return (enum mt_category)category;
    if (usage == MT_USAGE_WEIGHTS || flags & MT_BUFFER_HOST_PTR)
        return MT_CATEGORY_WEIGHTS;
    return MT_CATEGORY_ACTIVATIONS;
}

int mt_replay_file(struct mt_replay *replay, const struct mt_record_file *file,
                   uint64_t until_ticks, const struct mt_replay_observer *observer)
{
    const uint64_t last_ticks =
        observer && observer->until_ticks > until_ticks ? observer->until_ticks : until_ticks;
    struct mt_merge *merge;
    struct mt_event event;
    int result = mt_merge_create(file, &merge);
    if (result < 0)
        return result;
    replay->epoch = (replay->epoch + 1) & 0xf;
    replay->page_bytes = file->header.page_bytes;
    replay->sample_interval_bytes = file->header.sample_interval_bytes;
    while (result == 0 && mt_merge_next(merge, &event) && event.ticks <= last_ticks) {
        if (event.field[0] == UINT64_MAX) /* no key of a table, and no address */
            continue;
        if (observer && event.ticks > observer->from_ticks && event.ticks <= observer->until_ticks)
            observer->event(observer->context, &event);
        if (event.ticks > until_ticks)
            continue;
        replay->n_events++;
        result = apply(replay, &event);
    }
    mt_merge_destroy(merge);
    int failed = replay->maps.failed | replay->labels.failed;
    return result == 0 && failed ? MT_ENOMEM : result;
}
