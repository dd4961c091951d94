/* SPDX-License-Identifier: MIT */
/* Carrying pictures along events. Must not know what the memory is for. */
#include "tally/carry.h"

#include <stdlib.h>
#include <string.h>

#include <memtally/error_code.h>
#include <memtally/units.h>

#include "tally/extents.h"
#include "tally/held.h"
#include "tally/tree.h"

#define SAME_SIZE_BYTES ((uint64_t)1 << 20)
#define LARGE_BYTES     65536u

/* The sizes that are known around the moment; MT_UNKNOWN: none. */
struct around {
    uint64_t before_bytes;
    uint64_t before_ns;
    uint64_t before_ticks;
    uint64_t after_bytes;
    uint64_t after_ns;
    uint64_t after_ticks;
    uint64_t highest_bytes; /* of the sizes up to the moment; 0: none */
};

struct carrier {
    const struct mt_process_choice *choice;
    const struct mt_image *recorded; /* whose clock the ticks are of; NULL: no events */
    const struct mt_replay *replay;
    uint64_t page_bytes;
    uint64_t ticks;         /* of the moment */
    uint64_t picture_ticks; /* 0 where there is no picture */
    uint64_t fork_ticks;    /* of one that is shown by a picture of its parent */
    uint64_t first_ticks;   /* of the first size that is known */
    struct around around;
    struct mt_ranges set;     /* resident -> flags of the run */
    struct mt_ranges came;    /* since the picture */
    struct mt_ranges mapped;  /* of a picture of later: what was mapped by then */
    struct mt_ranges lost;    /* of a picture of later: what had gone by then */
    struct mt_ranges touched; /* of a picture of later: all of both, as far as it was passed over */
    struct mt_ranges since;   /* came since the size before */
    uint64_t gone_before;     /* bytes that went between the size before and the moment */
    uint64_t gone_after;      /* between the moment and the size after */
    uint64_t came_after;
    uint64_t small_then; /* small blocks at the size before */
    uint64_t first_live; /* in blocks when the first size was known */
    int knows_small_then;
    int knows_first_live;
    int is_own;  /* the event is of the process itself, not of one that it was forked from */
    int is_told; /* the kernel says the size at the moment itself */
    int changes; /* something came or went between picture and moment */
    int failed;
};

/* What an event is to the picture. */
enum zone { ZONE_NONE, ZONE_FORWARD, ZONE_BACKWARD };

static enum zone zone_of(const struct carrier *carrier, const struct mt_image *image,
                         uint64_t ticks)
{
    const struct mt_process_choice *choice = carrier->choice;
    int is_own = image == choice->image;
    if (!carrier->picture_ticks)
        return is_own && ticks <= carrier->ticks ? ZONE_FORWARD : ZONE_NONE;
    if (image != choice->pictured)
        return is_own && ticks > carrier->fork_ticks && ticks <= carrier->ticks ? ZONE_FORWARD
                                                                                : ZONE_NONE;
    uint64_t limit = is_own ? carrier->ticks : carrier->fork_ticks;
    if (ticks > carrier->picture_ticks && ticks <= limit)
        return ZONE_FORWARD;
    return ticks > limit && ticks <= carrier->picture_ticks ? ZONE_BACKWARD : ZONE_NONE;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t bytes_within(const struct mt_ranges *ranges, uint64_t low, uint64_t high)
{
    struct mt_range range;
    uint64_t bytes = 0;
    for (uint64_t at = low;
         at < high && mt_ranges_at_or_after(ranges, at, &range) && range.low < high;
         at = range.high)
        bytes += (range.high < high ? range.high : high) - (range.low > low ? range.low : low);
    return bytes;
}

static void put(struct carrier *carrier, struct mt_ranges *ranges, uint64_t low, uint64_t high,
                uint64_t value)
{
    mt_ranges_set(ranges, low, high, value);
    carrier->failed |= ranges->failed;
}

static void take_away(struct carrier *carrier, struct mt_ranges *ranges, uint64_t low,
                      uint64_t high)
{
    mt_ranges_clear(ranges, low, high);
    carrier->failed |= ranges->failed;
}

/* The part of [low, high) that nothing was mapped over since the moment has gone. What is passed
 * over here becomes one piece: none is passed over twice. */
static void lose(struct carrier *carrier, uint64_t low, uint64_t high)
{
    struct mt_range range;
    uint64_t at = low;
    while (at < high && mt_ranges_at_or_after(&carrier->touched, at, &range) && range.low < high) {
        put(carrier, &carrier->lost, at, range.low, 1);
        at = range.high;
    }
    put(carrier, &carrier->lost, at, high, 1);
    put(carrier, &carrier->touched, low, high, 1);
}

/* Memory goes back to the system, all of its pages. */
static void go(struct carrier *carrier, enum zone zone, uint64_t ticks, uint64_t low, uint64_t high)
{
    uint64_t bytes = high - low;
    if (zone == ZONE_FORWARD) {
        bytes = bytes_within(&carrier->set, low, high);
        bytes += bytes_within(&carrier->came, low, high);
        bytes = bytes < high - low ? bytes : high - low;
        take_away(carrier, &carrier->set, low, high);
        take_away(carrier, &carrier->came, low, high);
    } else if (zone == ZONE_BACKWARD) {
        lose(carrier, low, high);
    }
    carrier->changes |= zone != ZONE_NONE && bytes;
    if (!carrier->is_own)
        return;
    if (ticks > carrier->around.before_ticks && ticks <= carrier->ticks) {
        bytes = less(bytes, bytes_within(&carrier->since, low, high));
        take_away(carrier, &carrier->since, low, high);
        carrier->gone_before += bytes;
    } else if (ticks > carrier->ticks && ticks <= carrier->around.after_ticks)
        carrier->gone_after += bytes;
}

static void map(struct carrier *carrier, uint64_t low, uint64_t high)
{
    put(carrier, &carrier->mapped, low, high, 1);
    put(carrier, &carrier->touched, low, high, 1);
}

/* Memory comes; `is_new` where nothing was there before. */
static void come(struct carrier *carrier, enum zone zone, uint64_t ticks, uint64_t low,
                 uint64_t high, int is_new)
{
    if (carrier->is_own && ticks > carrier->around.before_ticks && ticks <= carrier->ticks)
        put(carrier, &carrier->since, low, high, 1);
    else if (carrier->is_own && ticks > carrier->ticks && ticks <= carrier->around.after_ticks)
        carrier->came_after += high - low;
    if (zone == ZONE_FORWARD) {
        if (is_new)
            take_away(carrier, &carrier->set, low, high);
        put(carrier, &carrier->came, low, high, 1);
        carrier->changes = 1;
    } else if (zone == ZONE_BACKWARD && is_new) {
        map(carrier, low, high);
        carrier->changes = 1;
    }
}

/* Pages move with their mapping. */
static void move(struct carrier *carrier, const uint64_t *field)
{
    uint64_t from = field[0];
    uint64_t length = field[1] < field[3] ? field[1] : field[3];
    if (from == field[2] || length > UINT64_MAX - from || field[2] > UINT64_MAX - length)
        return;
    uint64_t end = from + length;
    if (from < field[2] + length && field[2] < end)
        return; /* no kernel moves memory onto itself */
    mt_ranges_move(&carrier->set, from, end, field[2]);
    carrier->failed |= carrier->set.failed;
}

static void remap(struct carrier *carrier, enum zone zone, const struct mt_event *event)
{
    const uint64_t *field = event->field;
    uint64_t end = field[3] > UINT64_MAX - field[2] ? UINT64_MAX : field[2] + field[3];
    if (zone == ZONE_FORWARD)
        move(carrier, field);
    if (field[3] > field[1])
        come(carrier, zone, event->ticks, field[2] + field[1], end, 1);
}

static void note_block(struct carrier *carrier, enum zone zone, const struct mt_event *event)
{
    uint64_t low = event->field[0];
    uint64_t size = event->field[1];
    uint64_t high = size > UINT64_MAX - low ? UINT64_MAX : low + size;
    int is_new = mt_is_mapped_block(event->field[0], size, &low, &high);
    if (size >= LARGE_BYTES)
        come(carrier, zone, event->ticks, low, high, is_new);
}

/* Addresses that are only reserved: nothing there may be touched as it was mapped, or there is more
 * than the process ever had. */
static int is_reserved(const struct carrier *carrier, uint64_t bytes, uint32_t flags)
{
    return flags & MT_MAPPED_CLOSED || bytes > carrier->choice->image->high_water_bytes;
}

/* What a file's mapping has of it in memory is not for its size to say. */
static void note_mapping(struct carrier *carrier, enum zone zone, const struct mt_event *event)
{
    uint64_t low = event->field[0];
    uint64_t high = event->field[1] > UINT64_MAX - low ? UINT64_MAX : low + event->field[1];
    uint32_t flags = mt_mapping_flags(event);
    if (!(flags & MT_MAPPED_FILE) && !is_reserved(carrier, event->field[1], flags))
        come(carrier, zone, event->ticks, low, high, 1);
    else if (zone == ZONE_FORWARD)
        take_away(carrier, &carrier->set, low, high);
    else if (zone == ZONE_BACKWARD)
        map(carrier, low, high);
    carrier->changes |= zone != ZONE_NONE;
}

static void note_free(struct carrier *carrier, enum zone zone, const struct mt_event *event)
{
    uint64_t low;
    uint64_t high;
    const struct mt_heap_block *block = mt_blocks_get(&carrier->replay->blocks, event->field[0]);
    if (!block)
        return;
    if (mt_is_mapped_block(block->address, block->size, &low, &high))
        go(carrier, zone, event->ticks, low, high);
    else if (block->size >= LARGE_BYTES)
        carrier->changes |= zone != ZONE_NONE;
}

static uint64_t live_bytes(const struct mt_replay *replay)
{
    uint64_t bytes = mt_replay_small_bytes(replay);
    const struct mt_heap_block *block;
    for (uint64_t at = 0; (block = mt_blocks_next(&replay->blocks, &at));)
        bytes += block->size;
    return bytes;
}

/* Notes what was in use when sizes were known, at the first event past them. */
static void note_sizes(struct carrier *carrier, uint64_t ticks)
{
    if (!carrier->knows_small_then && ticks > carrier->around.before_ticks) {
        carrier->small_then = mt_replay_small_bytes(carrier->replay);
        carrier->knows_small_then = 1;
    }
    if (!carrier->knows_first_live && ticks > carrier->first_ticks) {
        if (!carrier->picture_ticks)
            carrier->first_live = live_bytes(carrier->replay);
        carrier->knows_first_live = 1;
    }
}

static void observe(void *context, const struct mt_image *image, const struct mt_event *event)
{
    struct carrier *carrier = context;
    enum zone zone = zone_of(carrier, image, event->ticks);
    uint64_t low;
    uint64_t high;
    carrier->is_own = image == carrier->choice->image;
    if (carrier->is_own)
        note_sizes(carrier, event->ticks);
    if (event->op == MT_EVENT_ALLOC)
        note_block(carrier, zone, event);
    else if (event->op == MT_EVENT_FREE)
        note_free(carrier, zone, event);
    else if (event->op == MT_EVENT_MMAP)
        note_mapping(carrier, zone, event);
    else if (mt_event_gives_back(event, &low, &high))
        go(carrier, zone, event->ticks, low, high);
    if (event->op == MT_EVENT_MREMAP)
        remap(carrier, zone, event);
}

/* What was mapped between the moment and a later picture was not there yet. */
static void finish_backward(void *context)
{
    struct carrier *carrier = context;
    struct mt_range range;
    for (uint64_t at = 0; mt_ranges_at_or_after(&carrier->mapped, at, &range); at = range.high)
        take_away(carrier, &carrier->set, range.low, range.high);
    for (uint64_t at = 0; mt_ranges_at_or_after(&carrier->lost, at, &range); at = range.high)
        put(carrier, &carrier->came, range.low, range.high, 1);
    mt_ranges_finish(&carrier->mapped);
    mt_ranges_finish(&carrier->lost);
    mt_ranges_finish(&carrier->touched);
}

/* ---- how much there is in all ---- */

static uint64_t ticks_of(const struct carrier *carrier, uint64_t ns)
{
    return carrier->recorded ? mt_clock_ticks(&carrier->recorded->clock, ns) : 0;
}

static void find_around(struct carrier *carrier, uint64_t ns)
{
    const struct mt_image *image = carrier->choice->image;
    struct around *around = &carrier->around;
    *around = (struct around){.before_bytes = MT_UNKNOWN, .after_bytes = MT_UNKNOWN};
    carrier->first_ticks = image->n_points ? ticks_of(carrier, image->points[0].ns) : UINT64_MAX;
    for (size_t i = 0; i < image->n_points; i++) {
        const struct mt_point *point = &image->points[i];
        if (point->ns <= ns) {
            around->before_bytes = point->resident_bytes;
            around->before_ns = point->ns;
            around->highest_bytes = most(around->highest_bytes, point->resident_bytes);
            continue;
        }
        around->after_bytes = point->resident_bytes;
        around->after_ns = point->ns;
        break;
    }
    if (around->before_bytes != MT_UNKNOWN)
        around->before_ticks = ticks_of(carrier, around->before_ns);
    if (around->after_bytes != MT_UNKNOWN)
        around->after_ticks = ticks_of(carrier, around->after_ns);
}

static uint64_t all_bytes(const struct mt_ranges *ranges)
{
    return bytes_within(ranges, 0, UINT64_MAX);
}

/* Without a later size: the one before, and what came and went since. */
static uint64_t bytes_since(const struct carrier *carrier)
{
    const struct around *around = &carrier->around;
    uint64_t high_water = carrier->choice->image->high_water_bytes;
    uint64_t bytes = less(around->before_bytes, carrier->gone_before) + all_bytes(&carrier->since);
    if (carrier->knows_small_then)
        bytes += less(mt_replay_small_bytes(carrier->replay), carrier->small_then);
    return bytes < high_water ? bytes : high_water;
}

/* Between two sizes: it fell where memory went, grew where memory came as far as the later size
 * bears that out, and evenly by what no event explains. */
static uint64_t bytes_between(const struct carrier *carrier, uint64_t ns)
{
    const struct around *around = &carrier->around;
    uint64_t from = less(around->before_bytes, carrier->gone_before);
    uint64_t to = around->after_bytes + carrier->gone_after;
    uint64_t since = all_bytes(&carrier->since);
    double share =
        (double)(ns - around->before_ns) / (double)(around->after_ns - around->before_ns);
    if (to <= from)
        return from - (uint64_t)((double)(from - to) * share);
    uint64_t rest = less(to - from, since + carrier->came_after);
    uint64_t bytes = from + least(since, to - from) + (uint64_t)((double)rest * share);
    return least(bytes, carrier->choice->image->high_water_bytes);
}

/* Whether the kernel's count of the most is of the moment. Who is smaller by then than it was had
 * its most before. */
static int is_at_its_highest(const struct carrier *carrier, uint64_t bytes)
{
    uint64_t high_water = carrier->choice->image->high_water_bytes;
    if (carrier->around.after_bytes != MT_UNKNOWN || high_water == MT_UNKNOWN)
        return 0;
    return bytes == MT_UNKNOWN || (bytes < high_water && bytes >= carrier->around.highest_bytes);
}

/* The resident size at the moment; MT_UNKNOWN where nothing says it. */
static uint64_t bytes_at(struct carrier *carrier, uint64_t ns, int is_peak)
{
    const struct around *around = &carrier->around;
    const struct mt_image *image = carrier->choice->image;
    uint64_t bytes = MT_UNKNOWN;
    carrier->is_told = around->before_bytes != MT_UNKNOWN && around->before_ns == ns;
    if (carrier->is_told)
        bytes = around->before_bytes;
    else if (around->before_bytes != MT_UNKNOWN && around->after_bytes != MT_UNKNOWN)
        bytes = bytes_between(carrier, ns);
    else if (around->before_bytes != MT_UNKNOWN)
        bytes = bytes_since(carrier);
    if (is_peak && is_at_its_highest(carrier, bytes)) {
        bytes = image->high_water_bytes;
        carrier->is_told = 1;
    }
    const uint64_t least = carrier->choice->least_bytes;
    if (least && (bytes == MT_UNKNOWN || bytes < least)) {
        bytes = least;
        carrier->is_told = 1;
    }
    return bytes == MT_UNKNOWN ? bytes : bytes / carrier->page_bytes * carrier->page_bytes;
}

/* ---- making it so ---- */

/* Anonymous mappings of the program that are alive at the moment: those that are only reserved, or
 * the others. */
static void list_mappings(struct carrier *carrier, int reserved, struct mt_ranges *ranges)
{
    const struct mt_replay *replay = carrier->replay;
    struct mt_range range;
    for (uint64_t at = 0; mt_ranges_at_or_after(&replay->maps, at, &range); at = range.high) {
        const struct mt_live *live = &replay->live[range.value];
        if (!(live->flags & (MT_MAPPED_FILE | MT_MAPPED_ALLOCATOR | MT_MAPPED_STACK)) &&
            is_reserved(carrier, live->size, live->flags) == reserved)
            put(carrier, ranges, range.low, range.high, 1);
    }
}

/* Blocks and mappings that are alive at the moment, and may have been touched. */
static void list_live(struct carrier *carrier, struct mt_ranges *ranges)
{
    const struct mt_replay *replay = carrier->replay;
    uint64_t page = carrier->page_bytes;
    const struct mt_heap_block *block;
    list_mappings(carrier, 0, ranges);
    for (uint64_t at = 0; (block = mt_blocks_next(&replay->blocks, &at));) {
        uint64_t high = block->size > UINT64_MAX - page - block->address
                            ? UINT64_MAX / page * page
                            : (block->address + block->size + page - 1) / page * page;
        put(carrier, ranges, block->address / page * page, high, 1);
    }
}

/* What of files the program has mapped since its first event. */
static void list_files(struct carrier *carrier, struct mt_ranges *ranges)
{
    struct mt_range range;
    for (uint64_t at = 0; mt_ranges_at_or_after(&carrier->replay->maps, at, &range);
         at = range.high)
        if (carrier->replay->live[range.value].flags & MT_MAPPED_FILE)
            put(carrier, ranges, range.low, range.high, 1);
}

static void set_extents(struct carrier *carrier, const struct mt_extents *extents, uint64_t flags)
{
    for (size_t i = 0; i < extents->n; i++)
        put(carrier, &carrier->set, extents->items[i].low, extents->items[i].high, flags);
    carrier->failed |= extents->failed;
}

static void list_ranges(const struct mt_ranges *ranges, struct mt_extents *extents,
                        uint64_t page_bytes)
{
    struct mt_range range;
    for (uint64_t at = 0; mt_ranges_at_or_after(ranges, at, &range); at = range.high)
        mt_extents_add(extents, range.low / page_bytes * page_bytes,
                       range.high > UINT64_MAX - page_bytes
                           ? UINT64_MAX / page_bytes * page_bytes
                           : (range.high + page_bytes - 1) / page_bytes * page_bytes);
}

/* Up to `bytes` more are resident in `ranges`. Returns how many it were. */
static uint64_t grow_in(struct carrier *carrier, const struct mt_ranges *ranges, uint64_t bytes,
                        uint64_t flags)
{
    struct mt_extents extents = {0};
    list_ranges(ranges, &extents, carrier->page_bytes);
    mt_extents_drop(&extents, &carrier->set);
    mt_extents_share(&extents, bytes, carrier->page_bytes);
    uint64_t before = all_bytes(&carrier->set);
    set_extents(carrier, &extents, flags | MT_RUN_CARRIED);
    mt_extents_finish(&extents);
    return all_bytes(&carrier->set) - before;
}

static void list_anonymous(const struct carrier *carrier, struct mt_extents *extents)
{
    struct mt_range range;
    for (uint64_t at = 0; mt_ranges_at_or_after(&carrier->set, at, &range); at = range.high)
        if (!(range.value & MT_RUN_FILE))
            mt_extents_add(extents, range.low, range.high);
}

/* Resident pages of the heap that no block with a place of its own is in. */
static void list_arenas(struct carrier *carrier, struct mt_extents *extents)
{
    struct mt_ranges live;
    mt_ranges_init(&live);
    list_live(carrier, &live);
    list_anonymous(carrier, extents);
    mt_extents_keep(extents, &carrier->replay->regions);
    mt_extents_drop(extents, &live);
    mt_ranges_finish(&live);
}

/* Small blocks lie in the heap's pages; those that the picture has no pages for have come since. */
static uint64_t small_without_room(struct carrier *carrier)
{
    struct mt_extents extents = {0};
    uint64_t small = carrier->recorded ? mt_replay_small_bytes(carrier->replay) : 0;
    if (!small)
        return 0;
    list_arenas(carrier, &extents);
    uint64_t room = mt_extents_bytes(&extents);
    carrier->failed |= extents.failed;
    mt_extents_finish(&extents);
    return less(small, room);
}

static void grow(struct carrier *carrier, struct mt_carried *carried, uint64_t bytes)
{
    struct mt_ranges live;
    bytes -= grow_in(carrier, &carrier->came, bytes, 0);
    mt_ranges_init(&live);
    if (bytes) {
        list_live(carrier, &live);
        bytes -= grow_in(carrier, &live, bytes, 0);
    }
    if (bytes) { /* what was closed may be open by now, which no event tells */
        list_mappings(carrier, 1, &live);
        bytes -= grow_in(carrier, &live, bytes, 0);
    }
    mt_ranges_finish(&live);
    if (bytes) {
        list_files(carrier, &live);
        bytes -= grow_in(carrier, &live, bytes, MT_RUN_FILE);
    }
    mt_ranges_finish(&live);
    uint64_t small = small_without_room(carrier);
    carried->small_bytes = small < bytes ? small : bytes;
    bytes -= carried->small_bytes;
    carried->beyond_bytes = bytes;
}

static uint64_t remove_extents(struct carrier *carrier, struct mt_extents *extents)
{
    for (size_t i = 0; i < extents->n; i++)
        take_away(carrier, &carrier->set, extents->items[i].low, extents->items[i].high);
    carrier->failed |= extents->failed;
    uint64_t bytes = mt_extents_bytes(extents);
    mt_extents_finish(extents);
    return bytes;
}

/* What is left of the anonymous pages follows from the size, and was not seen. */
static void mark_anonymous(struct carrier *carrier)
{
    struct mt_extents extents = {0};
    list_anonymous(carrier, &extents);
    set_extents(carrier, &extents, MT_RUN_CARRIED);
    mt_extents_finish(&extents);
}

/* There are `bytes` fewer: of the heap what no block is in, from its end; then of everything
 * anonymous; then whatever there is. */
static void shrink(struct carrier *carrier, uint64_t bytes)
{
    struct mt_extents extents = {0};
    list_arenas(carrier, &extents);
    mt_extents_last(&extents, bytes);
    bytes -= remove_extents(carrier, &extents);
    list_anonymous(carrier, &extents);
    mt_extents_share(&extents, bytes, carrier->page_bytes);
    bytes -= remove_extents(carrier, &extents);
    mark_anonymous(carrier);
    if (!bytes)
        return;
    list_ranges(&carrier->set, &extents, carrier->page_bytes);
    mt_extents_last(&extents, bytes);
    remove_extents(carrier, &extents);
}

static int is_same_size(uint64_t a, uint64_t b)
{
    uint64_t apart = a > b ? a - b : b - a;
    return apart <= b / 64 + SAME_SIZE_BYTES;
}

static void fit(struct carrier *carrier, struct mt_carried *carried, uint64_t bytes)
{
    uint64_t shown = all_bytes(&carrier->set);
    const struct mt_image *image = carrier->choice->image;
    if (carrier->picture_ticks && !carrier->changes && shown >= carrier->choice->least_bytes &&
        (bytes == MT_UNKNOWN || is_same_size(shown, bytes)))
        return;
    carried->is_carried = 1;
    if (!carrier->picture_ticks && image->n_points && bytes != MT_UNKNOWN && image->file) {
        uint64_t first = less(image->points[0].resident_bytes, carrier->first_live);
        carried->first_bytes = first < bytes ? first : bytes;
        carried->is_first_seen = !carrier->first_live;
        shown += carried->first_bytes;
    }
    if (bytes == MT_UNKNOWN) { /* all that came was touched, as far as anybody knows */
        bytes = shown + all_bytes(&carrier->came);
        if (!carrier->picture_ticks && carrier->recorded)
            bytes += mt_replay_small_bytes(carrier->replay);
    }
    if (bytes > shown)
        grow(carrier, carried, bytes - shown);
    else if (bytes < shown)
        shrink(carrier, shown - bytes);
    if (carrier->is_told || !carrier->recorded)
        carried->bytes = bytes;
    else /* a size between two others is no reason to speak of memory that no event tells of */
        carried->beyond_bytes = 0;
}

/* ---- the whole ---- */

static void show(struct carrier *carrier)
{
    const struct mt_picture *picture = carrier->choice->picture;
    for (size_t i = 0; picture && i < picture->n_runs; i++) {
        const struct mt_run_pages *run = &picture->runs[i];
        put(carrier, &carrier->set, run->first_page * carrier->page_bytes,
            (run->first_page + run->n_pages) * carrier->page_bytes, run->flags);
    }
}

static int take_runs(struct carrier *carrier, struct mt_carried *carried)
{
    struct mt_picture *picture = &carried->picture;
    struct mt_range range;
    const struct mt_picture *base = carrier->choice->picture;
    if (base)
        *picture = *base;
    picture->n_runs = 0;
    picture->runs = calloc(carrier->set.n + 1, sizeof *picture->runs);
    if (!picture->runs)
        return MT_ENOMEM;
    picture->resident_bytes = all_bytes(&carrier->set);
    for (uint64_t at = 0; mt_ranges_at_or_after(&carrier->set, at, &range); at = range.high)
        picture->runs[picture->n_runs++] =
            (struct mt_run_pages){range.low / carrier->page_bytes,
                                  (range.high - range.low) / carrier->page_bytes, range.value};
    return 0;
}

static void finish(struct carrier *carrier)
{
    mt_ranges_finish(&carrier->set);
    mt_ranges_finish(&carrier->came);
    mt_ranges_finish(&carrier->mapped);
    mt_ranges_finish(&carrier->lost);
    mt_ranges_finish(&carrier->touched);
    mt_ranges_finish(&carrier->since);
}

static int replay_choice(const struct mt_recording *recording, struct carrier *carrier,
                         struct mt_replay *replay)
{
    uint64_t from = carrier->around.before_ticks;
    uint64_t until = most(carrier->ticks, carrier->around.after_ticks);
    from = least(from, carrier->picture_ticks);
    if (carrier->fork_ticks)
        from = least(from, carrier->fork_ticks);
    const struct mt_tree_observer observer = {observe, finish_backward, carrier, from,
                                              most(until, carrier->picture_ticks)};
    if (!carrier->recorded)
        return 0;
    int result =
        mt_tree_replay(recording, carrier->choice->image, carrier->ticks, &observer, replay);
    finish_backward(carrier);
    return result;
}

/* At a picture's own moment there is nothing to carry. */
static int take_picture(const struct mt_recording *recording,
                        const struct mt_process_choice *choice, struct mt_replay *replay,
                        struct mt_carried *carried)
{
    const struct mt_picture *picture = choice->picture;
    struct mt_run_pages *runs = calloc(picture->n_runs + 1, sizeof *runs);
    if (!runs)
        return MT_ENOMEM;
    if (picture->n_runs)
        memcpy(runs, picture->runs, picture->n_runs * sizeof *runs);
    carried->picture = *picture;
    carried->picture.runs = runs;
    if (choice->least_bytes > picture->resident_bytes)
        carried->bytes = choice->least_bytes;
    if (!mt_tree_recorded(recording, choice->image))
        return 0;
    uint64_t ticks = picture->ticks ? picture->ticks : choice->ticks;
    return mt_tree_replay(recording, choice->image, ticks, NULL, replay);
}

static void begin(struct carrier *carrier, const struct mt_recording *recording, uint64_t ns)
{
    const struct mt_process_choice *choice = carrier->choice;
    const struct mt_picture *picture = choice->picture;
    carrier->recorded = mt_tree_recorded(recording, choice->image);
    const struct mt_record_file *file =
        carrier->recorded ? carrier->recorded->file : recording->watch;
    carrier->page_bytes = file->header.page_bytes;
    carrier->ticks = choice->ticks;
    if (picture)
        carrier->picture_ticks =
            picture->ticks ? picture->ticks : most(ticks_of(carrier, picture->ns), 1);
    if (picture && choice->pictured != choice->image)
        carrier->fork_ticks = mt_tree_fork_ticks(choice->pictured, choice->image);
    find_around(carrier, ns);
    show(carrier);
}

int mt_carry(const struct mt_recording *recording, const struct mt_process_choice *choice,
             const struct mt_instant *at, int is_peak, struct mt_replay *replay,
             struct mt_carried *carried)
{
    const struct mt_picture *picture = choice->picture;
    struct carrier carrier = {.choice = choice, .replay = replay};
    *carried = (struct mt_carried){.maps = &choice->image->first_maps, .bytes = MT_UNKNOWN};
    if (picture && picture->ns == at->ns && choice->pictured == choice->image)
        return take_picture(recording, choice, replay, carried);
    begin(&carrier, recording, at->ns);
    carried->is_gone = carrier.around.before_bytes < carrier.page_bytes;
    int result = replay_choice(recording, &carrier, replay);
    if (result == 0)
        fit(&carrier, carried, bytes_at(&carrier, at->ns, is_peak));
    if (result == 0)
        result = carrier.failed ? MT_ENOMEM : take_runs(&carrier, carried);
    finish(&carrier);
    return result;
}

void mt_carried_finish(struct mt_carried *carried)
{
    free(carried->picture.runs);
    *carried = (struct mt_carried){0};
}
