/* SPDX-License-Identifier: MIT */
/* Sums over what lives. Blocks that a fork inherited are its parent's: what frees them here is
 * passed over. Must not know of pictures or of other processes. */
#include "tally/held.h"

#include <memtally/error_code.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/array.h"
#include "tally/replay.h"

#define LARGE_BYTES       65536u  /* from here on a block is worth a range */
#define MAPPED_FROM_BYTES 131072u /* the least that glibc maps by itself */
#define MAPPED_HEAD_BYTES 16u
#define PAGE_BYTES        4096u
#define MOST_SIZE         ((uint64_t)1 << 50)

void mt_held_init(struct mt_held *held, const struct mt_file_header *header)
{
    *held = (struct mt_held){.sample_interval_bytes = header->sample_interval_bytes,
                             .said_low = UINT64_MAX};
    mt_ranges_init(&held->said);
}

void mt_held_finish(struct mt_held *held)
{
    struct mt_table *tables[] = {&held->blocks,       &held->samples, &held->buffer_lows,
                                 &held->buffer_sizes, &held->scopes,  &held->labelled};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        mt_table_finish(tables[i]);
    mt_ranges_finish(&held->said);
    free(held->scope_items);
    *held = (struct mt_held){0};
}

static uint64_t end_of(uint64_t low, uint64_t size)
{
    return size > UINT64_MAX - low ? UINT64_MAX : low + size;
}

int mt_is_mapped_block(uint64_t address, uint64_t size, uint64_t *low, uint64_t *high)
{
    if (size < MAPPED_FROM_BYTES || address % PAGE_BYTES != MAPPED_HEAD_BYTES)
        return 0;
    *low = address - MAPPED_HEAD_BYTES;
    *high = end_of(address, size);
    return 1;
}

int mt_event_gives_back(const struct mt_event *event, uint64_t *low, uint64_t *high)
{
    const uint64_t *field = event->field;
    *low = field[0];
    *high = end_of(field[0], field[1]);
    switch (event->op) {
    case MT_EVENT_MUNMAP:
        return 1;
    case MT_EVENT_MADVISE:
        return field[2] == MADV_DONTNEED || field[2] == MADV_FREE || field[2] == MADV_REMOVE;
    case MT_EVENT_MREMAP: /* what it shrank by; the rest has moved */
        *low = end_of(field[0], field[3]);
        return field[1] > field[3];
    default:
        return 0;
    }
}

static void unsay(struct mt_held *held, uint64_t low, uint64_t high)
{
    struct mt_range range;
    if (high <= held->said_low || low >= held->said_high)
        return;
    for (uint64_t at = low;
         at < high && mt_ranges_at_or_after(&held->said, at, &range) && range.low < high;
         at = range.high) {
        uint64_t from = range.low > low ? range.low : low;
        uint64_t to = range.high < high ? range.high : high;
        held->of[range.value] -= to - from;
    }
    mt_ranges_clear(&held->said, low, high);
}

enum mt_category mt_buffer_category(uint64_t category, uint64_t usage, uint64_t flags)
{
    if (category != MT_CATEGORY_NONE && category < MT_CATEGORY_END)
        return (enum mt_category)category;
    if (usage == MT_USAGE_WEIGHTS || flags & MT_BUFFER_HOST_PTR)
        return MT_CATEGORY_WEIGHTS;
    return MT_CATEGORY_ACTIVATIONS;
}

static int say(struct mt_held *held, uint64_t low, uint64_t size, uint64_t category)
{
    uint64_t high = end_of(low, size);
    unsay(held, low, high);
    if (category == MT_CATEGORY_NONE || category >= MT_CATEGORY_END || low >= high)
        return 0;
    mt_ranges_set(&held->said, low, high, category);
    held->of[category] += high - low;
    held->said_low = low < held->said_low ? low : held->said_low;
    held->said_high = high > held->said_high ? high : held->said_high;
    return held->said.failed ? MT_ENOMEM : 0;
}

static uint64_t scope_of(const struct mt_held *held, const struct mt_event *event)
{
    uint64_t top = 0;
    if (!held->n_scope_items || !mt_table_get(&held->scopes, event->stream, &top) || !top)
        return MT_CATEGORY_NONE;
    return held->scope_items[top].category;
}

static int begin_scope(struct mt_held *held, const struct mt_event *event)
{
    size_t n = held->n_scope_items ? held->n_scope_items : 1;
    uint64_t below = 0;
    if (mt_array_grow(held->scope_items, n) < 0)
        return MT_ENOMEM;
    mt_table_get(&held->scopes, event->stream, &below);
    uint32_t category = event->field[0] < MT_CATEGORY_END ? (uint32_t)event->field[0] : 0;
    if (category == MT_CATEGORY_NONE && below)
        category = held->scope_items[below].category;
    held->scope_items[n] = (struct mt_held_scope){category, (uint32_t)below};
    held->n_scope_items = n + 1;
    return mt_table_set(&held->scopes, event->stream, n);
}

/* Scopes of a stream end in the reverse order of their beginning: the last one's room is used
 * again. */
static int end_scope(struct mt_held *held, const struct mt_event *event)
{
    uint64_t top = 0;
    if (!mt_table_get(&held->scopes, event->stream, &top) || !top)
        return 0;
    if (top + 1 == held->n_scope_items)
        held->n_scope_items = (size_t)top > 1 ? (size_t)top : 1;
    return mt_table_set(&held->scopes, event->stream, held->scope_items[top].below);
}

/* What was said of a block, by its scope or a label, ends with it. */
static void drop_block(struct mt_held *held, uint64_t address)
{
    uint64_t packed;
    if (!mt_table_take(&held->blocks, address, &packed))
        return;
    uint64_t size = packed >> 4;
    held->big_bytes -= size;
    held->of[packed & 15] -= packed & 15 ? size : 0;
    unsay(held, address, end_of(address, size));
    mt_is_mapped_block(address, size, &held->gone_low, &held->gone_high);
}

static int add_block(struct mt_held *held, const struct mt_event *event)
{
    uint64_t address = event->field[0];
    uint64_t size = event->field[1] < MOST_SIZE ? event->field[1] : MOST_SIZE;
    uint64_t category = scope_of(held, event);
    drop_block(held, address);
    held->gone_low = held->gone_high = 0;
    held->came_bytes = size >= LARGE_BYTES ? size : 0;
    held->big_bytes += size;
    if (size >= LARGE_BYTES) {
        if (say(held, address, size, category) < 0)
            return MT_ENOMEM;
        category = MT_CATEGORY_NONE;
    } else {
        unsay(held, address, end_of(address, size));
        held->of[category] += category ? size : 0;
    }
    return mt_table_set(&held->blocks, address, size << 4 | category);
}

/* A label holds for what its scope said of a block before. Of a small block that is known where the
 * label begins at it. */
static int add_label(struct mt_held *held, const struct mt_event *event)
{
    const uint64_t *field = event->field;
    uint64_t packed;
    if (mt_table_get(&held->blocks, field[0], &packed) && packed & 15) {
        held->of[packed & 15] -= packed >> 4;
        if (mt_table_set(&held->blocks, field[0], packed & ~(uint64_t)15) < 0 ||
            say(held, field[0], packed >> 4, packed & 15) < 0)
            return MT_ENOMEM;
    }
    return say(held, field[0], field[1], field[2]);
}

static void drop_sample(struct mt_held *held, uint64_t address)
{
    struct mt_range label;
    uint64_t bytes;
    if (mt_table_take(&held->labelled, address, &bytes))
        unsay(held, address, end_of(address, bytes));
    if (!mt_table_take(&held->samples, address, &bytes))
        return;
    held->sampled_bytes -= bytes;
    if (mt_ranges_find(&held->said, address, &label) && label.low == address)
        unsay(held, label.low, label.high);
}

/* How far a small block goes is told by its label alone. */
static int label_block(struct mt_held *held, const struct mt_event *event)
{
    uint64_t any;
    const uint64_t address = event->field[0];
    const uint64_t size = event->field[1] < MOST_SIZE ? event->field[1] : MOST_SIZE;
    if (!mt_table_get(&held->blocks, address, &any) &&
        mt_table_set(&held->labelled, address, size) < 0)
        return MT_ENOMEM;
    return add_label(held, event);
}

static int add_sample(struct mt_held *held, const struct mt_event *event)
{
    uint64_t size = event->field[1] < MOST_SIZE ? event->field[1] : MOST_SIZE;
    uint64_t bytes = mt_sample_bytes(size, held->sample_interval_bytes);
    drop_sample(held, event->field[0]);
    held->sampled_bytes += bytes;
    return mt_table_set(&held->samples, event->field[0], bytes);
}

static void count_small(struct mt_held *held, const uint64_t *field)
{
    held->small_bytes = (int64_t)(field[1] - field[3]);
    held->sampled_bytes_then = held->sampled_bytes;
}

static int say_buffer(struct mt_held *held, uint64_t low, uint64_t packed)
{
    uint64_t flags = packed >> 6 & 7;
    if (!(flags & MT_BUFFER_HOST))
        return 0;
    return say(held, low, packed >> 9, mt_buffer_category(packed & 15, packed >> 4 & 3, flags));
}

static void drop_buffer(struct mt_held *held, uint64_t handle)
{
    uint64_t low;
    uint64_t packed;
    if (!mt_table_take(&held->buffer_lows, handle, &low) ||
        !mt_table_take(&held->buffer_sizes, handle, &packed))
        return;
    if (packed >> 6 & MT_BUFFER_HOST)
        unsay(held, low, end_of(low, packed >> 9));
}

static int add_buffer(struct mt_held *held, const struct mt_event *event)
{
    const uint64_t *field = event->field;
    uint64_t size = field[2] < MOST_SIZE ? field[2] : MOST_SIZE;
    uint64_t category = field[4] < MT_CATEGORY_END ? field[4] : 0;
    uint64_t packed = size << 9 | (field[3] & 7) << 6 | category;
    drop_buffer(held, field[0]);
    if (mt_table_set(&held->buffer_lows, field[0], field[1]) < 0 ||
        mt_table_set(&held->buffer_sizes, field[0], packed) < 0)
        return MT_ENOMEM;
    return say_buffer(held, field[1], packed);
}

static int use_buffer(struct mt_held *held, const struct mt_event *event)
{
    uint64_t low;
    uint64_t packed;
    if (!mt_table_get(&held->buffer_lows, event->field[0], &low) ||
        !mt_table_get(&held->buffer_sizes, event->field[0], &packed))
        return 0;
    packed = (packed & ~(uint64_t)0x30) | (event->field[1] & 3) << 4;
    if (mt_table_set(&held->buffer_sizes, event->field[0], packed) < 0)
        return MT_ENOMEM;
    return say_buffer(held, low, packed);
}

static int add_mapping(struct mt_held *held, const struct mt_event *event)
{
    uint64_t by_allocator = event->field[3] & MT_MAP_BY_ALLOCATOR;
    if (!by_allocator && !event->field[4])
        held->came_bytes = event->field[1];
    return say(held, event->field[0], event->field[1], by_allocator ? 0 : scope_of(held, event));
}

static int move_mapping(struct mt_held *held, const struct mt_event *event)
{
    const uint64_t *field = event->field;
    struct mt_range range;
    uint64_t category = MT_CATEGORY_NONE;
    if (mt_ranges_find(&held->said, field[0], &range))
        category = range.value;
    unsay(held, field[0], end_of(field[0], field[1]));
    return say(held, field[2], field[3], category);
}

static int apply_to_heap(struct mt_held *held, const struct mt_event *event)
{
    switch (event->op) {
    case MT_EVENT_ALLOC:
        return add_block(held, event);
    case MT_EVENT_FREE:
        drop_block(held, event->field[0]);
        return 0;
    case MT_EVENT_SAMPLE_ALLOC:
        return add_sample(held, event);
    case MT_EVENT_SAMPLE_FREE:
        drop_sample(held, event->field[0]);
        return 0;
    case MT_EVENT_TOTALS:
        count_small(held, event->field);
        return 0;
    default:
        return 0;
    }
}

static int apply_to_what_is_said(struct mt_held *held, const struct mt_event *event)
{
    const uint64_t *field = event->field;
    switch (event->op) {
    case MT_EVENT_MMAP:
        return add_mapping(held, event);
    case MT_EVENT_MREMAP:
        return move_mapping(held, event);
    case MT_EVENT_MUNMAP:
    case MT_EVENT_UNLABEL:
        unsay(held, field[0], end_of(field[0], field[1]));
        return 0;
    case MT_EVENT_LABEL:
        return add_label(held, event);
    case MT_EVENT_LABEL_BLOCK:
        return label_block(held, event);
    case MT_EVENT_BUFFER_ALLOC:
        return add_buffer(held, event);
    case MT_EVENT_BUFFER_USAGE:
        return use_buffer(held, event);
    case MT_EVENT_BUFFER_FREE:
        drop_buffer(held, field[0]);
        return 0;
    case MT_EVENT_SCOPE_BEGIN:
        return begin_scope(held, event);
    case MT_EVENT_SCOPE_END:
        return end_scope(held, event);
    default:
        return 0;
    }
}

void mt_held_expect(const struct mt_held *held, const struct mt_event *event)
{
    if (event->op == MT_EVENT_ALLOC || event->op == MT_EVENT_FREE)
        mt_table_expect(&held->blocks, event->field[0]);
}

int mt_held_apply(struct mt_held *held, const struct mt_event *event)
{
    held->gone_low = held->gone_high = 0;
    held->came_bytes = 0;
    if (event->field[0] == UINT64_MAX)
        return 0;
    if (event->op > MT_EVENT_SAMPLE_FREE && event->op != MT_EVENT_TOTALS) {
        if (!mt_event_gives_back(event, &held->gone_low, &held->gone_high))
            held->gone_low = held->gone_high = 0;
        return apply_to_what_is_said(held, event);
    }
    int result = apply_to_heap(held, event);
    int64_t small = held->small_bytes + (int64_t)(held->sampled_bytes - held->sampled_bytes_then);
    held->heap_bytes = held->big_bytes + (small > 0 ? (uint64_t)small : 0);
    return result;
}
