/* SPDX-License-Identifier: MIT */
/* Sweeping over a recording by time: the events of all processes and the points at which the
 * resident size of one of them was known. */
#include "tally/peaks.h"

#include <stdlib.h>
#include <string.h>

#include <memtally/error_code.h>

#include "base/bisect.h"
#include "tally/course.h"
#include "tally/forks.h"
#include "tally/held.h"
#include "tally/image.h"
#include "tally/moment.h"
#include "tally/tree.h"

#define FEW_STRETCHES 1024u

/* Events that were read ahead, so that the memory is there that they are about. Their bytes are
 * gone: sums need none. */
#define MOST_AHEAD 16u

struct ahead {
    struct mt_event events[MOST_AHEAD];
    unsigned n;
    unsigned next;
};

/* A process whose events are being read. */
struct player {
    const struct mt_image *image;
    size_t index;
    struct mt_merge *merge;
    struct ahead *ahead;
    struct mt_event event; /* the next */
    uint64_t ns;           /* when that is; UINT64_MAX past the last */
    struct mt_held held;
    const struct mt_picture *shown; /* the last that was asked for; NULL: none yet */
    uint64_t *pages_before;         /* of each of its runs, and of what is behind the last */
    size_t runs_room;
};

/* When a process has its next event, or has ended. */
struct turn {
    uint64_t ns;
    size_t player;
};

struct sweep {
    struct mt_recording *recording;
    struct mt_peaks peaks;
    size_t stretches_capacity;
    struct player *players; /* of each image */
    struct turn *turns;     /* of those that live, a binary heap by comes_before() */
    size_t n_turns;
    size_t next_image;
    struct mt_course course;
    struct mt_picture **pictures; /* by time */
    size_t n_pictures;
    size_t next_picture;
    uint64_t heap_bytes;
    uint64_t of[MT_CATEGORY_END];
    int failed;
    int code; /* why, where it is not memory */
};

static void raise(struct mt_instant *highest, const struct mt_instant *now)
{
    if (!highest->ns || now->bytes > highest->bytes)
        *highest = *now;
}

static uint64_t resident_peak(const struct mt_peaks *peaks)
{
    uint64_t most = 0;
    for (size_t i = 0; i < peaks->n_stretches; i++)
        if (peaks->stretches[i].resident.bytes > most)
            most = peaks->stretches[i].resident.bytes;
    return most;
}

/* Stretches that are far below the peak by now will not be near it later. */
static void thin_out(struct mt_peaks *peaks)
{
    uint64_t most = resident_peak(peaks);
    size_t kept = 0;
    for (size_t i = 0; i < peaks->n_stretches; i++)
        if (peaks->stretches[i].resident.bytes + MT_ABOUT_THE_SAME(most) >= most ||
            i + 1 == peaks->n_stretches)
            peaks->stretches[kept++] = peaks->stretches[i];
    peaks->n_stretches = kept;
}

static struct mt_stretch *add_stretch(struct sweep *sweep)
{
    struct mt_peaks *peaks = &sweep->peaks;
    int is_full = peaks->n_stretches == sweep->stretches_capacity;
    if (is_full)
        thin_out(peaks);
    if (is_full && peaks->n_stretches >= sweep->stretches_capacity / 2) {
        size_t more = sweep->stretches_capacity ? sweep->stretches_capacity * 2 : FEW_STRETCHES;
        void *grown = realloc(peaks->stretches, more * sizeof *peaks->stretches);
        if (!grown) {
            sweep->failed = 1;
            return NULL;
        }
        peaks->stretches = grown;
        sweep->stretches_capacity = more;
    }
    return &peaks->stretches[peaks->n_stretches++];
}

/* The tree's resident size at `ns`, which is looked at wherever it was known or fell. `ticks` is
 * the last event of the process that it has in it, 0 where that follows from the time. */
static void note_resident(struct sweep *sweep, size_t image, uint64_t ns, uint64_t ticks)
{
    struct mt_peaks *peaks = &sweep->peaks;
    struct mt_stretch *last = peaks->n_stretches ? &peaks->stretches[peaks->n_stretches - 1] : NULL;
    const struct mt_instant now = {
        .ns = ns, .ticks = ticks, .image = image, .bytes = mt_course_bytes(&sweep->course, ns)};
    const struct mt_instant heap = {
        .ns = ns, .ticks = ticks, .image = image, .bytes = sweep->heap_bytes};
    uint64_t most_bytes = mt_course_most_bytes(&sweep->course);
    if (most_bytes > peaks->most_bytes)
        peaks->most_bytes = most_bytes;
    uint64_t first = last ? last->first_bytes : 0;
    uint64_t apart = first > now.bytes ? first - now.bytes : now.bytes - first;
    if (!last || apart > first / 256) {
        last = add_stretch(sweep);
        if (!last)
            return;
        *last = (struct mt_stretch){.ns = ns, .first_bytes = now.bytes};
    }
    raise(&last->resident, &now);
    raise(&last->heap, &heap);
}

static void take_step(struct sweep *sweep)
{
    const struct mt_step *step = &sweep->course.steps[sweep->course.at];
    mt_course_step(&sweep->course);
    note_resident(sweep, step->image, step->ns, 0);
}

/* Adds the pages of a picture up, run by run. Returns 0 where memory ran out. */
static int sum_pages(struct player *player, const struct mt_picture *picture)
{
    if (picture->n_runs >= player->runs_room) {
        free(player->pages_before);
        player->runs_room = 0;
        player->shown = NULL;
        player->pages_before = calloc(picture->n_runs + 1, sizeof *player->pages_before);
        if (!player->pages_before)
            return 0;
        player->runs_room = picture->n_runs + 1;
    }
    uint64_t pages = 0;
    for (size_t i = 0; i < picture->n_runs; i++) {
        player->pages_before[i] = pages;
        pages += picture->runs[i].n_pages;
    }
    player->pages_before[picture->n_runs] = pages;
    player->shown = picture;
    return 1;
}

/* The first run of a picture that ends above `address`. */
static size_t run_above(const struct mt_picture *picture, uint64_t address, uint64_t page_bytes)
{
    struct mt_bisect place = {.end = picture->n_runs};
    while (mt_bisect_next(&place)) {
        const struct mt_run_pages *run = &picture->runs[place.middle];
        mt_bisect_turn(&place, (run->first_page + run->n_pages) * page_bytes <= address);
    }
    return place.first;
}

/* The bytes below `address` of the run at `at`. */
static uint64_t bytes_below(const struct mt_picture *picture, size_t at, uint64_t address,
                            uint64_t page_bytes)
{
    if (at == picture->n_runs || picture->runs[at].first_page * page_bytes >= address)
        return 0;
    return address - picture->runs[at].first_page * page_bytes;
}

/* The bytes of [low, high) that the picture shows which was asked for last. A hostile file has many
 * runs and gives all of them back many times. */
static uint64_t bytes_within(const struct player *player, uint64_t low, uint64_t high)
{
    const uint64_t page_bytes = player->image->file->header.page_bytes;
    const struct mt_picture *picture = player->shown;
    size_t first = run_above(picture, low, page_bytes);
    size_t last = run_above(picture, high, page_bytes);
    uint64_t pages = player->pages_before[last] - player->pages_before[first];
    return pages * page_bytes + bytes_below(picture, last, high, page_bytes) -
           bytes_below(picture, first, low, page_bytes);
}

/* The picture that shows a process as it was before its next event; NULL where there is none.
 * Pictures are summed up once each: a time that goes back keeps the later one. */
static const struct mt_picture *picture_shown(struct sweep *sweep, struct player *player)
{
    const struct mt_picture *picture = mt_image_picture_before(player->image, player->ns);
    if (picture && (!player->shown || picture > player->shown) && !sum_pages(player, picture))
        sweep->failed = 1;
    return player->shown;
}

/* Memory went back to the system: as much of it as the last picture shows there. What the process
 * took since may have been there too, where the picture shows nothing. */
static void note_fall(struct sweep *sweep, struct player *player)
{
    const struct mt_held *held = &player->held;
    const struct mt_picture *picture = picture_shown(sweep, player);
    uint64_t length = held->gone_high - held->gone_low;
    uint64_t resident = mt_course_own_bytes(&sweep->course, player->index, player->ns);
    uint64_t gone = picture ? bytes_within(player, held->gone_low, held->gone_high) : 0;
    uint64_t new_bytes =
        !picture ? resident
                 : (resident > picture->resident_bytes ? resident - picture->resident_bytes : 0);
    if (!gone)
        gone = length < new_bytes ? length : new_bytes;
    gone = gone < resident ? gone : resident;
    if (gone <= resident / 256)
        return;
    note_resident(sweep, player->index, player->ns, player->event.ticks - 1);
    mt_course_fall(&sweep->course, player->index, player->ns, resident - gone);
    note_resident(sweep, player->index, player->ns, player->event.ticks);
}

static void note_rise(struct sweep *sweep, const struct player *player)
{
    uint64_t more =
        mt_course_rise(&sweep->course, player->index, player->ns, player->held.came_bytes);
    if (more > mt_course_own_bytes(&sweep->course, player->index, player->ns) / 256)
        note_resident(sweep, player->index, player->ns, player->event.ticks);
}

static void change_heap(struct sweep *sweep, const struct player *player, uint64_t before)
{
    sweep->heap_bytes += player->held.heap_bytes - before;
    if (player->held.heap_bytes <= before)
        return;
    const struct mt_instant now = {player->ns, player->event.ticks, player->index,
                                   sweep->heap_bytes};
    raise(&sweep->peaks.heap, &now);
    if (sweep->peaks.n_stretches)
        raise(&sweep->peaks.stretches[sweep->peaks.n_stretches - 1].heap, &now);
}

static void change_categories(struct sweep *sweep, const struct player *player,
                              const uint64_t before[MT_CATEGORY_END])
{
    for (int category = 1; category < MT_CATEGORY_END; category++) {
        uint64_t now_bytes = player->held.of[category];
        if (now_bytes == before[category])
            continue;
        sweep->of[category] += now_bytes - before[category];
        const struct mt_instant now = {player->ns, player->event.ticks, player->index,
                                       sweep->of[category]};
        if (now_bytes > before[category])
            raise(&sweep->peaks.of[category], &now);
    }
}

/* A block without a category changes no sum but the heap's. */
static int may_change_categories(const struct mt_held *held)
{
    return held->said.n || held->n_scope_items;
}

static void read_ahead(struct player *player)
{
    struct ahead *ahead = player->ahead;
    ahead->n = ahead->next = 0;
    while (ahead->n < MOST_AHEAD && mt_merge_next(player->merge, &ahead->events[ahead->n])) {
        struct mt_event *event = &ahead->events[ahead->n++];
        event->bytes = NULL;
        event->length = 0;
        mt_held_expect(&player->held, event);
    }
}

static void advance(struct player *player)
{
    struct ahead *ahead = player->ahead;
    if (ahead->next == ahead->n)
        read_ahead(player);
    if (!ahead->n) {
        player->ns = UINT64_MAX;
        return;
    }
    player->event = ahead->events[ahead->next++];
    player->ns = mt_clock_ns(&player->image->clock, player->event.ticks);
    if (player->ns > player->image->end_ns)
        player->ns = player->image->end_ns;
}

static void play_event(struct sweep *sweep, struct player *player)
{
    uint64_t before[MT_CATEGORY_END];
    uint64_t heap = player->held.heap_bytes;
    memcpy(before, player->held.of, sizeof before);
    int had = may_change_categories(&player->held);
    sweep->failed |= mt_held_apply(&player->held, &player->event) < 0;
    if (player->held.gone_high > player->held.gone_low)
        note_fall(sweep, player);
    if (player->held.heap_bytes != heap)
        change_heap(sweep, player, heap);
    if (player->held.came_bytes)
        note_rise(sweep, player);
    if (had || may_change_categories(&player->held))
        change_categories(sweep, player, before);
    advance(player);
}

static void note_picture(struct sweep *sweep, struct mt_picture *picture)
{
    uint64_t own = picture->resident_bytes;
    uint64_t shared = mt_course_shared_bytes(sweep->recording, picture->image, picture->ns);
    own -= shared < own ? shared : own;
    uint64_t others = mt_course_bytes(&sweep->course, picture->ns) -
                      mt_course_own_bytes(&sweep->course, picture->image, picture->ns);
    picture->tree_bytes = others + own;
    picture->tree_heap_bytes = sweep->heap_bytes;
}

static void take_pictures(struct sweep *sweep, uint64_t before_ns)
{
    for (; sweep->next_picture < sweep->n_pictures &&
           sweep->pictures[sweep->next_picture]->ns < before_ns;
         sweep->next_picture++)
        note_picture(sweep, sweep->pictures[sweep->next_picture]);
}

/* Takes all that is known without events up to `ns`. */
static void take_points(struct sweep *sweep, uint64_t ns)
{
    uint64_t next;
    while ((next = mt_course_next_ns(&sweep->course)) <= ns && next != UINT64_MAX &&
           !sweep->failed) {
        take_pictures(sweep, next);
        take_step(sweep);
    }
    take_pictures(sweep, ns);
}

/* ---- whose turn it is ---- */

static int comes_before(const struct turn *a, const struct turn *b)
{
    return a->ns != b->ns ? a->ns < b->ns : a->player < b->player;
}

/* A process with nothing left to read lives on up to its end. */
static struct turn turn_of(const struct player *player)
{
    uint64_t end_ns = player->image->end_ns;
    uint64_t gone_ns = end_ns < UINT64_MAX ? end_ns + 1 : end_ns;
    return (struct turn){player->ns != UINT64_MAX ? player->ns : gone_ns, player->index};
}

/* Puts `turn` first, or where it belongs below. */
static void sift_down(struct sweep *sweep, struct turn turn)
{
    struct turn *turns = sweep->turns;
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < sweep->n_turns; at = child) {
        if (child + 1 < sweep->n_turns && comes_before(&turns[child + 1], &turns[child]))
            child++;
        if (!comes_before(&turns[child], &turn))
            break;
        turns[at] = turns[child];
    }
    turns[at] = turn;
}

static void add_turn(struct sweep *sweep, struct turn turn)
{
    size_t at = sweep->n_turns++;
    for (; at && comes_before(&turn, &sweep->turns[(at - 1) / 2]); at = (at - 1) / 2)
        sweep->turns[at] = sweep->turns[(at - 1) / 2];
    sweep->turns[at] = turn;
}

/* When it is another's turn than the first one's, or a process begins. */
static uint64_t others_ns(const struct sweep *sweep, uint64_t start_ns)
{
    uint64_t ns = start_ns;
    for (size_t i = 1; i < 3 && i < sweep->n_turns; i++)
        ns = sweep->turns[i].ns < ns ? sweep->turns[i].ns : ns;
    return ns;
}

static void finish_player(struct player *player)
{
    mt_merge_destroy(player->merge);
    mt_held_finish(&player->held);
    free(player->ahead);
    free(player->pages_before);
    *player = (struct player){0};
}

/* What the first process held is gone: it has ended. */
static void end_first(struct sweep *sweep)
{
    struct player *player = &sweep->players[sweep->turns[0].player];
    sweep->heap_bytes -= player->held.heap_bytes;
    for (int category = 1; category < MT_CATEGORY_END; category++)
        sweep->of[category] -= player->held.of[category];
    sweep->recording->damage.blocks_bad += mt_merge_blocks_bad(player->merge);
    if (mt_merge_failed(player->merge)) {
        sweep->failed = 1;
        sweep->code = mt_merge_failed(player->merge);
    }
    finish_player(player);
    if (--sweep->n_turns)
        sift_down(sweep, sweep->turns[sweep->n_turns]);
}

static void begin_player(struct sweep *sweep, size_t index)
{
    const struct mt_image *image = &sweep->recording->images[index];
    struct player *player = &sweep->players[index];
    if (!image->file)
        return;
    *player = (struct player){.image = image, .index = index};
    player->ahead = calloc(1, sizeof *player->ahead);
    if (!player->ahead || mt_merge_create(image->file, &player->merge) < 0) {
        free(player->ahead);
        player->ahead = NULL;
        sweep->failed = 1;
        return;
    }
    mt_held_init(&player->held, &image->file->header);
    advance(player);
    add_turn(sweep, turn_of(player));
}

static uint64_t next_start(const struct sweep *sweep)
{
    const struct mt_recording *recording = sweep->recording;
    return sweep->next_image < recording->n_images ? recording->images[sweep->next_image].start_ns
                                                   : UINT64_MAX;
}

/* Plays the events of the first process as long as none of another comes before, or ends it. */
static void play_first(struct sweep *sweep, uint64_t start_ns)
{
    struct player *player = &sweep->players[sweep->turns[0].player];
    const uint64_t until = others_ns(sweep, start_ns);
    if (player->ns == UINT64_MAX) {
        take_points(sweep, player->image->end_ns);
        end_first(sweep);
        return;
    }
    do {
        take_points(sweep, player->ns);
        play_event(sweep, player);
    } while (player->ns < until && !sweep->failed);
    sift_down(sweep, turn_of(player));
}

static void play(struct sweep *sweep)
{
    while (!sweep->failed) {
        uint64_t start_ns = next_start(sweep);
        if (!sweep->n_turns && start_ns == UINT64_MAX)
            break;
        if (!sweep->n_turns || start_ns <= sweep->turns[0].ns)
            begin_player(sweep, sweep->next_image++);
        else
            play_first(sweep, start_ns);
    }
    take_points(sweep, UINT64_MAX);
    for (size_t i = 0; i < sweep->n_turns; i++)
        finish_player(&sweep->players[sweep->turns[i].player]);
}

static int by_time(const void *a, const void *b)
{
    const struct mt_picture *x = *(struct mt_picture *const *)a;
    const struct mt_picture *y = *(struct mt_picture *const *)b;
    return x->ns < y->ns ? -1 : x->ns > y->ns;
}

static int list_pictures(struct sweep *sweep)
{
    struct mt_recording *recording = sweep->recording;
    size_t n = 0;
    for (size_t i = 0; i < recording->n_images; i++)
        n += recording->images[i].n_pictures;
    sweep->pictures = calloc(n + 1, sizeof *sweep->pictures);
    if (!sweep->pictures)
        return MT_ENOMEM;
    for (size_t i = 0; i < recording->n_images; i++)
        for (size_t j = 0; j < recording->images[i].n_pictures; j++) {
            struct mt_picture *picture = &recording->images[i].pictures[j];
            picture->image = i;
            sweep->pictures[sweep->n_pictures++] = picture;
        }
    qsort(sweep->pictures, n, sizeof *sweep->pictures, by_time);
    return 0;
}

int mt_peaks_find(struct mt_recording *recording)
{
    struct sweep sweep = {.recording = recording};
    size_t n = recording->n_images + 1;
    sweep.players = calloc(n, sizeof *sweep.players);
    sweep.turns = calloc(n, sizeof *sweep.turns);
    sweep.failed = !sweep.players || !sweep.turns || mt_tree_index(recording) < 0;
    if (!sweep.failed)
        mt_forks_find(recording);
    sweep.failed =
        sweep.failed || list_pictures(&sweep) < 0 || mt_course_init(&sweep.course, recording) < 0;
    if (!sweep.failed)
        play(&sweep);
    thin_out(&sweep.peaks);
    free(sweep.players);
    free(sweep.turns);
    free(sweep.pictures);
    mt_course_finish(&sweep.course);
    if (sweep.failed) {
        mt_peaks_finish(&sweep.peaks);
        return sweep.code ? sweep.code : MT_ENOMEM;
    }
    recording->peaks = sweep.peaks;
    return 0;
}

void mt_peaks_finish(struct mt_peaks *peaks)
{
    free(peaks->stretches);
    *peaks = (struct mt_peaks){0};
}
