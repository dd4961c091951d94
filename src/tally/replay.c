/* SPDX-License-Identifier: MIT */
/* Applying events one by one. Must not know what a picture shows: that is attribute.c's. */
#include "tally/replay.h"

#include <stdlib.h>
#include <string.h>

#include <memtally/category.h>
#include <memtally/error_code.h>

#include "base/array.h"
#include "base/varint.h"

#define FEW_LIVE    1024u
#define MANY_RANGES 256u
#define FAR_AHEAD   65536u /* numbers that leave out more than so many are none of a recorder's */

/* What is known of a stream: its own numbers, and its scopes. */
struct mt_replay_stream {
    uint32_t number;
    struct numbers {
        uint32_t *numbers; /* the stream's number -> ours, 0: not defined */
        size_t n;
    } texts, stacks;
    uint32_t *scopes; /* numbers of `scopes`, the innermost last */
    size_t n_scopes;
    size_t scopes_capacity;
};

void mt_replay_init(struct mt_replay *replay)
{
    *replay = (struct mt_replay){.live_limit = FEW_LIVE};
    mt_ranges_init(&replay->maps);
    mt_ranges_init(&replay->labels);
    mt_ranges_init(&replay->self);
    mt_ranges_init(&replay->regions);
}

/* The streams of one file; those of the next have numbers of their own. */
static void finish_streams(struct mt_replay *replay)
{
    for (size_t i = 0; i < replay->n_streams; i++) {
        free(replay->streams[i].texts.numbers);
        free(replay->streams[i].stacks.numbers);
        free(replay->streams[i].scopes);
    }
    free(replay->streams);
    replay->streams = NULL;
    replay->n_streams = replay->streams_capacity = replay->last_stream = 0;
    mt_table_finish(&replay->by_stream);
}

void mt_replay_finish(struct mt_replay *replay)
{
    struct mt_ranges *ranges[] = {&replay->maps, &replay->labels, &replay->self, &replay->regions};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        mt_ranges_finish(ranges[i]);
    finish_streams(replay);
    mt_blocks_finish(&replay->blocks);
    mt_blocks_finish(&replay->samples);
    mt_table_finish(&replay->gone);
    mt_table_finish(&replay->buffers);
    mt_interned_finish(&replay->texts);
    mt_table_finish(&replay->frame_names);
    mt_interned_finish(&replay->stacks);
    mt_interned_finish(&replay->scopes);
    mt_interned_finish(&replay->sites);
    free(replay->live);
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

static struct mt_replay_stream *make_stream(struct mt_replay *replay, uint32_t number)
{
    void *items = replay->streams;
    if (more(&items, &replay->n_streams, &replay->streams_capacity, sizeof *replay->streams) < 0)
        return NULL;
    replay->streams = items;
    if (replay->n_streams == 1)
        replay->streams[0] = (struct mt_replay_stream){0};
    if (mt_table_set(&replay->by_stream, number, replay->n_streams) < 0)
        return NULL;
    replay->last_stream = replay->n_streams;
    replay->streams[replay->n_streams] = (struct mt_replay_stream){.number = number};
    return &replay->streams[replay->n_streams++];
}

/* The stream that the event is from; NULL where nothing was kept of it. */
static struct mt_replay_stream *find_stream(struct mt_replay *replay, const struct mt_event *event)
{
    uint64_t index = replay->last_stream;
    if (!index || replay->streams[index].number != event->stream) {
        if (!mt_table_get(&replay->by_stream, event->stream, &index))
            return NULL;
        replay->last_stream = (size_t)index;
    }
    return &replay->streams[index];
}

/* The same, made when new; NULL where memory ran out. */
static struct mt_replay_stream *stream_of(struct mt_replay *replay, const struct mt_event *event)
{
    struct mt_replay_stream *stream = find_stream(replay, event);
    return stream ? stream : make_stream(replay, event->stream);
}

/* Numbers count from 1 without gaps, but where something was lost. */
static int set_number(struct numbers *numbers, uint64_t number, uint32_t value)
{
    if (number >= numbers->n) {
        if (number > numbers->n + FAR_AHEAD)
            return 0;
        size_t room = (size_t)number + number / 2 + 16;
        uint32_t *grown = realloc(numbers->numbers, room * sizeof *grown);
        if (!grown)
            return MT_ENOMEM;
        memset(grown + numbers->n, 0, (room - numbers->n) * sizeof *grown);
        numbers->numbers = grown;
        numbers->n = room;
    }
    numbers->numbers[number] = value;
    return 0;
}

static uint32_t number_of(const struct numbers *numbers, uint64_t number)
{
    return number < numbers->n ? numbers->numbers[number] : 0;
}

static int define_text(struct mt_replay *replay, const struct mt_event *event)
{
    uint32_t number;
    size_t length = event->length < MT_MAX_STRING ? event->length : MT_MAX_STRING;
    struct mt_replay_stream *stream = stream_of(replay, event);
    if (!stream || mt_interned_number(&replay->texts, event->bytes, length, &number) < 0)
        return MT_ENOMEM;
    return set_number(&stream->texts, event->field[0], number);
}

static int define_frame_name(struct mt_replay *replay, const struct mt_event *event)
{
    const uint8_t *at = event->bytes;
    const uint8_t *end = at + event->length;
    uint64_t frame;
    uint32_t number;
    if (!mt_varint_get(&at, end, &frame) || frame >> 62 != MT_FRAME_PYTHON >> 62)
        return 0;
    size_t length = (size_t)(end - at);
    if (mt_interned_number(&replay->texts, at, length < MT_MAX_STRING ? length : MT_MAX_STRING,
                           &number) < 0)
        return MT_ENOMEM;
    return mt_table_set(&replay->frame_names, frame & ~MT_FRAME_ENTERED, number) < 0 ? MT_ENOMEM
                                                                                     : 0;
}

struct mt_text mt_replay_frame_name(const struct mt_replay *replay, uint64_t frame)
{
    uint64_t number;
    if (!mt_table_get(&replay->frame_names, frame & ~MT_FRAME_ENTERED, &number))
        return (struct mt_text){0};
    return replay->texts.items[number];
}

static int define_stack(struct mt_replay *replay, const struct mt_event *event)
{
    uint8_t bytes[1 + MT_MAX_FRAMES * MT_VARINT_MAX];
    uint32_t number;
    struct mt_replay_stream *stream = stream_of(replay, event);
    if (!stream || event->length >= sizeof bytes)
        return stream ? 0 : MT_ENOMEM;
    bytes[0] = event->field[1] != 0;
    memcpy(bytes + 1, event->bytes, event->length);
    if (mt_interned_number(&replay->stacks, bytes, event->length + 1, &number) < 0)
        return MT_ENOMEM;
    return set_number(&stream->stacks, event->field[0], number);
}

struct mt_stack mt_replay_stack(const struct mt_replay *replay, uint32_t stack)
{
    const struct mt_text *text = &replay->stacks.items[stack];
    return (struct mt_stack){(const uint8_t *)text->text + 1, text->length - 1, text->text[0]};
}

uint32_t mt_replay_stacks(const struct mt_replay *replay)
{
    return replay->stacks.n ? (uint32_t)replay->stacks.n - 1 : 0;
}

static uint32_t text_of(struct mt_replay *replay, const struct mt_event *event, uint64_t number)
{
    const struct mt_replay_stream *stream = number ? find_stream(replay, event) : NULL;
    return stream ? number_of(&stream->texts, number) : 0;
}

uint32_t mt_replay_stack_of(struct mt_replay *replay, const struct mt_event *event, uint64_t number)
{
    const struct mt_replay_stream *stream = number ? find_stream(replay, event) : NULL;
    return stream ? number_of(&stream->stacks, number) : 0;
}

static struct mt_site site_at(const struct mt_interned *sites, uint32_t number)
{
    struct mt_site site;
    memcpy(&site, sites->items[number].text, sizeof site);
    return site;
}

struct mt_site mt_replay_site(const struct mt_replay *replay, uint32_t site)
{
    if (site & MT_SITE_IN_SCOPE)
        return site_at(&replay->sites, site & ~MT_SITE_IN_SCOPE);
    return (struct mt_site){.category = MT_CATEGORY_NONE, .stack = site};
}

/* The innermost scope of the stream that the event is from. */
static struct mt_site scope_of(struct mt_replay *replay, const struct mt_event *event)
{
    const struct mt_site none = {.category = MT_CATEGORY_NONE};
    const struct mt_replay_stream *stream = replay->scopes.n ? find_stream(replay, event) : NULL;
    if (!stream || !stream->n_scopes)
        return none;
    return site_at(&replay->scopes, stream->scopes[stream->n_scopes - 1]);
}

static int begin_scope(struct mt_replay *replay, const struct mt_event *event)
{
    const struct mt_site outer = scope_of(replay, event);
    struct mt_site scope = {
        .category = event->field[0] < MT_CATEGORY_END ? (uint32_t)event->field[0] : 0,
        .name = text_of(replay, event, event->field[1]),
    };
    uint32_t number;
    if (scope.category == MT_CATEGORY_NONE && outer.category != MT_CATEGORY_NONE)
        scope = outer;
    struct mt_replay_stream *stream = stream_of(replay, event);
    if (!stream || mt_interned_number(&replay->scopes, &scope, sizeof scope, &number) < 0)
        return MT_ENOMEM;
    if (mt_array_reserve(stream->scopes, stream->n_scopes, stream->scopes_capacity, 8) < 0)
        return MT_ENOMEM;
    stream->scopes[stream->n_scopes++] = number;
    return 0;
}

static void end_scope(struct mt_replay *replay, const struct mt_event *event)
{
    struct mt_replay_stream *stream = find_stream(replay, event);
    if (stream && stream->n_scopes)
        stream->n_scopes--;
}

/* Where a block is allocated. Returns 0 or MT_ENOMEM. */
static int find_site(struct mt_replay *replay, const struct mt_event *event, uint32_t *site)
{
    uint32_t stack = mt_replay_stack_of(replay, event, event->field[2]);
    struct mt_site whole = scope_of(replay, event);
    *site = stack;
    if (whole.category == MT_CATEGORY_NONE && !whole.name)
        return 0;
    whole.stack = stack;
    if (mt_interned_number(&replay->sites, &whole, sizeof whole, site) < 0)
        return MT_ENOMEM;
    *site |= MT_SITE_IN_SCOPE;
    return 0;
}

/* Fills in the scope of the stream that the event is from. */
static void set_scope(struct mt_replay *replay, const struct mt_event *event, struct mt_live *live)
{
    struct mt_site scope = scope_of(replay, event);
    live->category = scope.category;
    live->name = scope.name;
}

static void mark_ranges(struct mt_replay *replay, const struct mt_ranges *ranges)
{
    struct mt_range range;
    for (uint64_t at = 0; mt_ranges_at_or_after(ranges, at, &range); at = range.high)
        replay->live[range.value].marked = 1;
}

static void drop(struct mt_replay *replay, uint64_t index)
{
    replay->live[index] = (struct mt_live){.address = replay->free_live};
    replay->free_live = index;
}

/* A range is gone when others cover all of it, which nobody says: what no range and no table leads
 * to is looked for when as many again have come as were alive the last time. */
static void drop_those_gone(struct mt_replay *replay)
{
    size_t n = 0;
    mark_ranges(replay, &replay->maps);
    mark_ranges(replay, &replay->labels);
    for (size_t i = 0; i < replay->buffers.capacity; i++)
        if (replay->buffers.slots[i].key != UINT64_MAX)
            replay->live[replay->buffers.slots[i].value].marked = 1;
    replay->free_live = 0;
    for (size_t i = 1; i < replay->n_live; i++) {
        n += replay->live[i].marked;
        if (!replay->live[i].marked)
            drop(replay, i);
        else
            replay->live[i].marked = 0;
    }
    replay->live_limit = 2 * n + FEW_LIVE;
}

/* Keeps `live` and returns its index, 0 where memory ran out. */
static uint64_t keep(struct mt_replay *replay, const struct mt_live *live)
{
    if (!replay->free_live && replay->n_live >= replay->live_limit)
        drop_those_gone(replay);
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

static int add_block(struct mt_replay *replay, struct mt_blocks *blocks,
                     const struct mt_event *event)
{
    struct mt_heap_block block = {
        .address = event->field[0],
        .size = event->field[1],
        .born = replay->n_born < UINT32_MAX ? (uint32_t)replay->n_born++ : UINT32_MAX,
    };
    if (find_site(replay, event, &block.site) < 0)
        return MT_ENOMEM;
    if (blocks == &replay->blocks)
        clear_labels(replay, block.address, block.size);
    return mt_blocks_put(blocks, &block);
}

static int add_sample(struct mt_replay *replay, const struct mt_event *event)
{
    const struct mt_heap_block *before = mt_blocks_get(&replay->samples, event->field[0]);
    if (before)
        replay->sampled_bytes -= mt_sample_bytes(before->size, replay->sample_interval_bytes);
    replay->sampled_bytes += mt_sample_bytes(event->field[1], replay->sample_interval_bytes);
    return add_block(replay, &replay->samples, event);
}

/* Nothing else tells how far a small block went. */
static void clear_label_of_block(struct mt_replay *replay, uint64_t address)
{
    struct mt_range range;
    if (mt_ranges_find(&replay->labels, address, &range) && range.low == address &&
        replay->live[range.value].flags & MT_LABEL_OF_BLOCK)
        clear_labels(replay, address, replay->live[range.value].size);
}

static void free_sample(struct mt_replay *replay, uint64_t address)
{
    uint64_t size;
    if (mt_blocks_take(&replay->samples, address, &size)) {
        replay->sampled_bytes -= mt_sample_bytes(size, replay->sample_interval_bytes);
        clear_labels(replay, address, size);
    }
    clear_label_of_block(replay, address);
}

static void free_block(struct mt_replay *replay, uint32_t stream, uint64_t address)
{
    uint64_t size;
    if (!mt_blocks_take(&replay->blocks, address, &size))
        return;
    clear_labels(replay, address, size);
    mt_leaving_note(&replay->leavings, stream, address, size);
}

static int add_range(struct mt_replay *replay, struct mt_ranges *ranges, const struct mt_live *live)
{
    uint64_t index = keep(replay, live);
    if (!index)
        return MT_ENOMEM;
    replay->live[index].since = replay->ticks;
    mt_ranges_set(ranges, live->address, end_of(live->address, live->size), index);
    return ranges->failed ? MT_ENOMEM : 0;
}

static int add_mapping(struct mt_replay *replay, const struct mt_event *event)
{
    struct mt_live live = {
        .address = event->field[0],
        .size = event->field[1],
        .stack = mt_replay_stack_of(replay, event, event->field[6]),
        .flags = mt_mapping_flags(event),
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
    mt_ranges_clear(&replay->self, address, end_of(address, length));
    clear_labels(replay, address, length);
}

/* A move: out of [from, end) at some moment, into `to` a little later. */
struct move {
    uint64_t from;
    uint64_t end;
    uint64_t to;
    uint64_t kept; /* bytes that arrive */
    uint64_t lost; /* bytes behind them that do not */
    uint64_t left; /* ticks */
};

/* What was there when the move began. Another thread may have been given the place since. */
static int was_there(const struct mt_replay *replay, const struct move *move, uint64_t index)
{
    return replay->live[index].since <= move->left;
}

/* Labels move with what they are on, as far as it moves. The new place is free of labels. Of many
 * it is not asked which came meanwhile: moves that nobody made would each take as long as there
 * are. */
static int move_labels(struct mt_replay *replay, const struct move *move)
{
    struct mt_range range;
    uint64_t end = end_of(move->from, move->kept);
    if (move->from < end_of(move->to, move->kept) && move->to < end)
        return 0; /* no kernel moves memory onto itself */
    if (move->to <= UINT64_MAX - (end - move->from) &&
        mt_ranges_are_many(&replay->labels, move->from, end, MANY_RANGES)) {
        mt_ranges_move(&replay->labels, move->from, end, move->to);
        return replay->labels.failed ? MT_ENOMEM : 0;
    }
    for (uint64_t at = move->from;
         at < end && mt_ranges_at_or_after(&replay->labels, at, &range) && range.low < end;
         at = range.high) {
        struct mt_live label = replay->live[range.value];
        uint64_t low = range.low > move->from ? range.low : move->from;
        label.address = move->to + (low - move->from);
        label.size = (range.high < end ? range.high : end) - low;
        if (was_there(replay, move, range.value) && add_range(replay, &replay->labels, &label) < 0)
            return MT_ENOMEM;
    }
    return 0;
}

static void leave_place(struct mt_replay *replay, struct mt_ranges *ranges, const struct move *move)
{
    struct mt_range range;
    if (mt_ranges_are_many(ranges, move->from, move->end, MANY_RANGES))
        mt_ranges_clear(ranges, move->from, move->end);
    for (uint64_t at = move->from;
         mt_ranges_at_or_after(ranges, at, &range) && range.low < move->end; at = range.high)
        if (was_there(replay, move, range.value))
            mt_ranges_clear(ranges, range.low > move->from ? range.low : move->from,
                            range.high < move->end ? range.high : move->end);
}

/* In place what is kept stays, and what follows it is given up or new. */
static int resize_mapping(struct mt_replay *replay, const struct move *move,
                          const struct mt_live *live)
{
    remove_mapping(replay, move->from + move->kept, move->lost);
    return add_range(replay, &replay->maps, live);
}

static int move_mapping(struct mt_replay *replay, const struct mt_event *event)
{
    struct mt_range range;
    struct mt_live live = {0};
    const uint64_t *field = event->field;
    uint64_t kept = field[1] < field[3] ? field[1] : field[3];
    const struct move move = {
        .from = field[0],
        .end = end_of(field[0], field[1]),
        .to = field[2],
        .kept = kept,
        .lost = field[1] - kept,
        .left = event->ticks > field[4] ? event->ticks - field[4] : 0,
    };
    if (mt_ranges_find(&replay->maps, move.from, &range) && was_there(replay, &move, range.value))
        live = replay->live[range.value];
    live.address = move.to;
    live.size = field[3];
    if (move.from == move.to)
        return resize_mapping(replay, &move, &live);
    clear_labels(replay, live.address, live.size);
    if (move_labels(replay, &move) < 0)
        return MT_ENOMEM;
    leave_place(replay, &replay->maps, &move);
    leave_place(replay, &replay->labels, &move);
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
        .stack = mt_replay_stack_of(replay, event, event->field[6]),
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
        .flags = event->op == MT_EVENT_LABEL_BLOCK ? MT_LABEL_OF_BLOCK : 0,
    };
    return add_range(replay, &replay->labels, &live);
}

/* An event from after the replay's end, for what it says of blocks that live: the first label that
 * comes for one without, if it comes before the block is freed. */
static int learn(struct mt_replay *replay, const struct mt_event *event)
{
    uint64_t any;
    struct mt_range range;
    const uint64_t address = event->field[0];
    int is_of_block = event->op == MT_EVENT_LABEL_BLOCK || event->op == MT_EVENT_FREE ||
                      event->op == MT_EVENT_ALLOC;
    if (event->op == MT_EVENT_STRING)
        return define_text(replay, event);
    if (!is_of_block || !mt_blocks_get(&replay->blocks, address) ||
        mt_table_get(&replay->gone, address, &any))
        return 0;
    if (event->op != MT_EVENT_LABEL_BLOCK)
        return mt_table_set(&replay->gone, address, 1);
    return mt_ranges_find(&replay->labels, address, &range) ? 0 : add_label(replay, event);
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
    replay->ticks = event->ticks;
    mt_leaving_forget(&replay->leavings, event->stream);
    switch (event->op) {
    case MT_EVENT_STRING:
        return define_text(replay, event);
    case MT_EVENT_STACK:
        return define_stack(replay, event);
    case MT_EVENT_FRAME_NAME:
        return define_frame_name(replay, event);
    case MT_EVENT_ALLOC:
        return add_block(replay, &replay->blocks, event);
    case MT_EVENT_FREE:
        free_block(replay, event->stream, field[0]);
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
        mt_leaving_note(&replay->leavings, event->stream, field[0], field[1]);
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
        end_scope(replay, event);
        return 0;
    case MT_EVENT_LABEL:
    case MT_EVENT_LABEL_BLOCK:
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

/* Allocations and frees that wait until the memory is there that they are about. */
#define N_WAITING 16

struct waiting {
    struct mt_event events[N_WAITING];
    size_t n;
};

static int apply_waiting(struct mt_replay *replay, struct waiting *waiting)
{
    int result = 0;
    for (size_t i = 0; i < waiting->n && result == 0; i++)
        result = apply(replay, &waiting->events[i]);
    waiting->n = 0;
    return result;
}

static int take(struct mt_replay *replay, struct waiting *waiting, const struct mt_event *event)
{
    int result = 0;
    replay->n_events++;
    if (event->field[0] == UINT64_MAX) /* no key of a table, and no address */
        return 0;
    if (event->op == MT_EVENT_ALLOC || event->op == MT_EVENT_FREE) {
        if (waiting->n == N_WAITING)
            result = apply_waiting(replay, waiting);
        mt_blocks_expect(&replay->blocks, event->field[0]);
        waiting->events[waiting->n++] = *event;
        return result;
    }
    result = apply_waiting(replay, waiting);
    return result < 0 ? result : apply(replay, event);
}

static int is_observed(const struct mt_replay_observer *observer, const struct mt_event *event)
{
    return observer && event->field[0] != UINT64_MAX && event->ticks > observer->from_ticks &&
           event->ticks <= observer->until_ticks;
}

static int learn_after(struct mt_replay *replay, struct waiting *waiting,
                       const struct mt_event *event)
{
    int result = apply_waiting(replay, waiting);
    return result < 0 ? result : learn(replay, event);
}

static uint64_t latest(const uint64_t *ticks, size_t n)
{
    uint64_t found = 0;
    for (size_t i = 0; i < n; i++)
        found = ticks[i] > found ? ticks[i] : found;
    return found;
}

int mt_replay_file(struct mt_replay *replay, const struct mt_record_file *file,
                   uint64_t until_ticks, const struct mt_replay_observer *observer)
{
    const uint64_t ends[] = {until_ticks, observer ? observer->until_ticks : 0,
                             file->last_label_ticks};
    const uint64_t last_ticks = latest(ends, 3);
    struct mt_merge *merge;
    struct mt_event event;
    struct waiting waiting = {.n = 0};
    int result = mt_merge_create(file, &merge);
    if (result < 0)
        return result;
    replay->page_bytes = file->header.page_bytes;
    replay->sample_interval_bytes = file->header.sample_interval_bytes;
    while (result == 0 && mt_merge_next(merge, &event) && event.ticks <= last_ticks) {
        if (is_observed(observer, &event))
            result = apply_waiting(replay, &waiting);
        if (result == 0 && is_observed(observer, &event))
            observer->event(observer->context, &event);
        if (result == 0 && event.ticks <= until_ticks)
            result = take(replay, &waiting, &event);
        else if (result == 0 && event.field[0] != UINT64_MAX)
            result = learn_after(replay, &waiting, &event);
    }
    if (result == 0)
        result = apply_waiting(replay, &waiting);
    if (result == 0)
        result = mt_merge_failed(merge);
    mt_merge_destroy(merge);
    mt_table_finish(&replay->gone);
    finish_streams(replay);
    return result < 0 ? result : replay->maps.failed || replay->labels.failed ? MT_ENOMEM : 0;
}
