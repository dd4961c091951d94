/* SPDX-License-Identifier: MIT */
/* What the tests ask of a recording's events. Written apart from the tally's replay, so that the
 * two can disagree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/harness.h"

/* How many events there are, and how many bytes they refer to. */
static size_t count_events(const struct mt_record_file *file, size_t *n_bytes)
{
    struct mt_merge *merge;
    struct mt_event event;
    size_t n = 0;
    *n_bytes = 0;
    assert_int_equal(mt_merge_create(file, &merge), 0);
    for (; mt_merge_next(merge, &event); n++)
        *n_bytes += event.length;
    mt_merge_destroy(merge);
    return n;
}

/* The bytes that events refer to lie behind them. */
struct mt_event *events_of(const struct mt_record_file *file, size_t *n_events)
{
    struct mt_merge *merge;
    size_t n_bytes, n = count_events(file, &n_bytes);
    struct mt_event *events = malloc((n + 1) * sizeof *events + n_bytes);
    assert_non_null(events);
    uint8_t *bytes = (uint8_t *)(events + n + 1);
    assert_int_equal(mt_merge_create(file, &merge), 0);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(mt_merge_next(merge, &events[i]), 1);
        if (events[i].length)
            memcpy(bytes, events[i].bytes, events[i].length);
        events[i].bytes = bytes;
        bytes += events[i].length;
    }
    mt_merge_destroy(merge);
    *n_events = n;
    return events;
}

const char *name_of(const struct mt_record_file *file, const struct mt_event *event,
                    uint64_t number)
{
    static char name[MT_MAX_STRING + 1];
    struct mt_merge *merge;
    struct mt_event each;
    name[0] = '\0';
    assert_int_equal(mt_merge_create(file, &merge), 0);
    while (number && mt_merge_next(merge, &each))
        if (each.op == MT_EVENT_STRING && each.stream == event->stream && each.field[0] == number) {
            memcpy(name, each.bytes, each.length);
            name[each.length] = '\0';
        }
    mt_merge_destroy(merge);
    return name;
}

/* The operations on memory, and how many of their fields a test can foretell. */
static const struct {
    enum mt_event_op op;
    const char *name;
    size_t n_fields;
} operations[] = {
    {MT_EVENT_ALLOC, "ALLOC", 2},
    {MT_EVENT_FREE, "FREE", 1},
    {MT_EVENT_SAMPLE_ALLOC, "SAMPLE_ALLOC", 2},
    {MT_EVENT_SAMPLE_FREE, "SAMPLE_FREE", 1},
    {MT_EVENT_MMAP, "MMAP", 6},
    {MT_EVENT_MUNMAP, "MUNMAP", 2},
    {MT_EVENT_MREMAP, "MREMAP", 4},
    {MT_EVENT_MADVISE, "MADVISE", 3},
    {MT_EVENT_FTRUNCATE, "FTRUNCATE", 2},
    {MT_EVENT_MEMFD, "MEMFD", 1},
    {MT_EVENT_LOOK, "LOOK", 0},
    {MT_EVENT_SCOPE_BEGIN, "SCOPE_BEGIN", 1},
    {MT_EVENT_SCOPE_END, "SCOPE_END", 0},
    {MT_EVENT_LABEL, "LABEL", 3},
    {MT_EVENT_UNLABEL, "UNLABEL", 2},
    {MT_EVENT_LABEL_BLOCK, "LABEL_BLOCK", 3},
};

static void print_operation(FILE *to, const struct mt_event *event)
{
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        if (operations[i].op != event->op)
            continue;
        fputs(operations[i].name, to);
        for (size_t field = 0; field < operations[i].n_fields; field++)
            fprintf(to, " %llx", (unsigned long long)event->field[field]);
        fputc('\n', to);
    }
}

/* The size that a mark is of comes just before it, with its time. */
static int is_of_mark(const struct mt_event *event, const struct mt_event *next)
{
    return event->op == MT_EVENT_LOOK && next->op == MT_EVENT_MARK && next->ticks == event->ticks;
}

char *operations_of(const struct mt_record_file *file, const char *name)
{
    size_t n_events, length;
    struct mt_event *events = events_of(file, &n_events);
    char *text = NULL;
    FILE *to = open_memstream(&text, &length);
    int inside = 0, seen = 0;
    int looks = strcmp(name, "malloc_trim") == 0; /* others may be looked at or not */
    for (size_t i = 0; i < n_events; i++) {
        if (events[i].op == MT_EVENT_MARK)
            inside = strcmp(name_of(file, &events[i], events[i].field[0]), name) == 0;
        else if (inside && (looks || events[i].op != MT_EVENT_LOOK) &&
                 (i + 1 == n_events || !is_of_mark(&events[i], &events[i + 1])))
            print_operation(to, &events[i]);
        seen |= inside;
    }
    fclose(to);
    free(events);
    if (!seen)
        fail_msg("no mark called %s", name);
    return text;
}

void totals_of(const struct mt_record_file *file, uint64_t totals[4])
{
    size_t n_events, seen = 0;
    struct mt_event *events = events_of(file, &n_events);
    for (size_t i = 0; i < n_events; i++)
        if (events[i].op == MT_EVENT_TOTALS) {
            memcpy(totals, events[i].field, 4 * sizeof *totals);
            seen = 1;
        }
    free(events);
    assert_true(seen);
}

/* Live blocks in an open hash table: address and size, address 1 where one was. */
struct blocks {
    uint64_t (*slot)[2];
    size_t mask;
};

static uint64_t *slot_of(const struct blocks *blocks, uint64_t address, int for_new)
{
    for (size_t at = address * 0x9e3779b97f4a7c15u >> 20;; at++) {
        uint64_t *slot = blocks->slot[at & blocks->mask];
        if (slot[0] == address || (!slot[0] && !for_new))
            return slot[0] ? slot : NULL;
        if (for_new && slot[0] <= 1)
            return slot;
    }
}

static size_t check_event(const struct blocks *blocks, const struct mt_event *event, uint64_t size,
                          size_t *n_live)
{
    uint64_t *slot = slot_of(blocks, event->field[0], 0);
    if (event->op == MT_EVENT_FREE && slot) {
        *n_live -= !size || slot[1] == size;
        slot[0] = 1;
    }
    if (event->op != MT_EVENT_ALLOC)
        return 0;
    if (slot)
        fail_msg("%llx of %llu bytes is allocated while it holds %llu",
                 (unsigned long long)event->field[0], (unsigned long long)event->field[1],
                 (unsigned long long)slot[1]);
    slot = slot_of(blocks, event->field[0], 1);
    slot[0] = event->field[0];
    slot[1] = event->field[1];
    *n_live += !size || slot[1] == size;
    return !size || slot[1] == size;
}

size_t check_order(const struct mt_record_file *file, uint64_t size, size_t *n_live)
{
    size_t n_events, n_allocated = 0;
    struct mt_event *events = events_of(file, &n_events);
    struct blocks blocks = {.mask = 1};
    while (blocks.mask < 4 * n_events)
        blocks.mask = blocks.mask * 2 + 1;
    blocks.slot = calloc(blocks.mask + 1, sizeof *blocks.slot);
    assert_non_null(blocks.slot);
    *n_live = 0;
    for (size_t i = 0; i < n_events; i++)
        if (events[i].op == MT_EVENT_ALLOC || events[i].op == MT_EVENT_FREE)
            n_allocated += check_event(&blocks, &events[i], size, n_live);
    free(blocks.slot);
    free(events);
    return n_allocated;
}
