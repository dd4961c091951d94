/* SPDX-License-Identifier: MIT */
/* Tallies and call stacks of a snapshot of PyTorch's allocator. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/tally.h>
#include <memtally/units.h>

#include "base/array.h"
#include "base/error.h"
#include "base/invariant.h"
#include "base/out_of_memory.h"
#include "pytorch/snapshot.h"
#include "tally/rows.h"
#include "tally/stack_list.h"
#include "tally/table.h"

/* States are numbered by actions: 0 is before the first, n after the last. */
#define NEVER SIZE_MAX

/* A block by the history: there from state `begin`, and no longer in state `end`. */
struct life {
    uint64_t bytes;
    size_t begin, end;
    uint32_t stack;
};

/* The history of a device, made to agree with its blocks at the end. */
struct course {
    const struct mt_snapshot *snapshot;
    uint32_t device;
    const struct mt_snapshot_action *actions;
    size_t n_actions;
    uint64_t begin_us; /* of the history of all devices */
    struct life *lives;
    size_t n_lives, lives_room;
    struct mt_table open; /* address -> life */
    size_t n_unknown;     /* blocks that nothing ends, and that are not there at the end */
    size_t peak;          /* the state in which most was in blocks; the last of several */
    uint64_t peak_bytes;
};

static int add_life(struct course *course, const struct life *life)
{
    if (mt_array_reserve(course->lives, course->n_lives, course->lives_room, 256) < 0)
        return MT_ENOMEM;
    course->lives[course->n_lives++] = *life;
    return 0;
}

/* What is given out at an address where something was has its free left out of the history. */
static int give_out(struct course *course, const struct mt_snapshot_action *action, size_t state)
{
    uint64_t life;
    if (mt_table_take(&course->open, action->address, &life))
        course->lives[life].end = state;
    if (mt_table_set(&course->open, action->address, course->n_lives) < 0)
        return MT_ENOMEM;
    const struct life made = {action->bytes, state, NEVER, action->stack};
    return add_life(course, &made);
}

static int take_back(struct course *course, const struct mt_snapshot_action *action, size_t state)
{
    uint64_t life;
    if (mt_table_take(&course->open, action->address, &life)) {
        course->lives[life].end = state;
        return 0;
    }
    const struct life made = {action->bytes, 0, state, 0};
    return add_life(course, &made);
}

static int follow(struct course *course)
{
    for (size_t i = 0; i < course->n_actions; i++) {
        const struct mt_snapshot_action *action = &course->actions[i];
        int result = 0;
        if (action->kind == MT_SNAPSHOT_ALLOC)
            result = give_out(course, action, i + 1);
        else if (action->kind == MT_SNAPSHOT_FREE)
            result = take_back(course, action, i + 1);
        if (result < 0)
            return result;
    }
    return 0;
}

/* Blocks at the end that no action gave out were there before the first one. */
static int meet_segment(struct course *course, const struct mt_snapshot_segment *segment)
{
    for (size_t i = 0; i < segment->n_blocks; i++) {
        const struct mt_snapshot_block *block = &course->snapshot->blocks[segment->first_block + i];
        if (block->state == MT_SNAPSHOT_INACTIVE ||
            mt_table_take(&course->open, block->address, NULL))
            continue;
        const struct life made = {block->requested_bytes, 0, NEVER, block->stack};
        if (add_life(course, &made) < 0)
            return MT_ENOMEM;
    }
    return 0;
}

static int meet_the_end(struct course *course)
{
    for (size_t i = 0; i < course->snapshot->n_segments; i++) {
        const struct mt_snapshot_segment *segment = &course->snapshot->segments[i];
        if (segment->device == course->device && meet_segment(course, segment) < 0)
            return MT_ENOMEM;
    }
    for (size_t i = 0; i < course->open.capacity; i++) {
        const struct mt_table_slot *slot = &course->open.slots[i];
        if (slot->key == UINT64_MAX)
            continue;
        course->lives[slot->value].end = course->n_actions; /* the snapshot does not have it */
        course->n_unknown++;
    }
    return 0;
}

static int find_peak(struct course *course)
{
    uint64_t *change = calloc(course->n_actions + 2, sizeof *change); /* modulo 2^64 */
    uint64_t bytes = 0;
    if (!change)
        return MT_ENOMEM;
    for (size_t i = 0; i < course->n_lives; i++) {
        const struct life *life = &course->lives[i];
        change[life->begin] += life->bytes;
        if (life->end != NEVER)
            change[life->end] -= life->bytes;
    }
    for (size_t i = 0; i <= course->n_actions; i++) {
        bytes += change[i];
        if (bytes >= course->peak_bytes) {
            course->peak_bytes = bytes;
            course->peak = i;
        }
    }
    free(change);
    return 0;
}

static uint64_t history_begin_us(const struct mt_snapshot *snapshot)
{
    uint64_t begin = UINT64_MAX;
    for (size_t i = 0; i < snapshot->n_actions; i++)
        if (snapshot->actions[i].time_us && snapshot->actions[i].time_us < begin)
            begin = snapshot->actions[i].time_us;
    return begin == UINT64_MAX ? 0 : begin;
}

static void course_finish(struct course *course)
{
    mt_table_finish(&course->open);
    free(course->lives);
}

static int course_init(struct course *course, const struct mt_snapshot *snapshot, uint32_t device)
{
    *course = (struct course){
        .snapshot = snapshot,
        .device = device,
        .actions = snapshot->actions + snapshot->devices[device].first_action,
        .n_actions = snapshot->devices[device].n_actions,
        .begin_us = history_begin_us(snapshot),
    };
    mt_table_init(&course->open);
    int result = follow(course);
    if (result == 0)
        result = meet_the_end(course);
    if (result == 0)
        result = find_peak(course);
    if (result < 0)
        course_finish(course);
    return result;
}

static uint64_t reserved_at_end(const struct course *course)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < course->snapshot->n_segments; i++)
        if (course->snapshot->segments[i].device == course->device)
            bytes += course->snapshot->segments[i].bytes;
    return bytes;
}

/* Goes back from the end, which is known. */
static uint64_t reserved_at(const struct course *course, size_t state)
{
    uint64_t bytes = reserved_at_end(course);
    for (size_t i = course->n_actions; i > state; i--) {
        const struct mt_snapshot_action *action = &course->actions[i - 1];
        if (action->kind == MT_SNAPSHOT_SEGMENT_TAKEN)
            bytes -= action->bytes < bytes ? action->bytes : bytes;
        else if (action->kind == MT_SNAPSHOT_SEGMENT_GIVEN)
            bytes += action->bytes;
    }
    return bytes;
}

static uint64_t time_of_state(const struct course *course, size_t state)
{
    for (size_t i = state; i > 0; i--)
        if (course->actions[i - 1].time_us)
            return (course->actions[i - 1].time_us - course->begin_us) * 1000;
    return 0;
}

static size_t state_of_moment(const struct course *course, const struct mt_moment *moment)
{
    size_t state = course->n_actions;
    if (moment->kind == MT_MOMENT_PEAK)
        return course->peak;
    if (moment->kind == MT_MOMENT_TIME)
        while (state &&
               (!course->actions[state - 1].time_us ||
                course->actions[state - 1].time_us - course->begin_us > moment->time_ns / 1000))
            state--;
    return state;
}

static int is_there(const struct life *life, size_t state)
{
    return life->begin <= state && state < life->end;
}

static int claim(struct mt_claims *claims, enum mt_category category, enum mt_provenance provenance,
                 const char *name, uint64_t bytes)
{
    if (!bytes)
        return 0;
    size_t index = category ? mt_claim_of(claims, category, provenance, name, strlen(name)) : 0;
    if (category && !index)
        return MT_ENOMEM;
    claims->items[index].allocated_bytes += bytes;
    claims->items[index].resident_bytes += bytes;
    claims->items[index].count++;
    return 0;
}

/* What nobody in the call stack tells the purpose of stays unattributed. */
static int claim_block(struct mt_claims *claims, const struct mt_snapshot *snapshot, uint32_t stack,
                       int is_private, uint64_t bytes)
{
    const struct mt_snapshot_purpose *purpose =
        &mt_snapshot_purposes[snapshot->stacks[stack].purpose];
    if (purpose->category == MT_CATEGORY_NONE && is_private)
        return claim(claims, MT_CATEGORY_GRAPHS, MT_PROVENANCE_INFERRED,
                     "in pools of captured graphs", bytes);
    return claim(claims, purpose->category, MT_PROVENANCE_INFERRED, purpose->name, bytes);
}

/* PyTorch counts the blocks of a segment itself: what is free is exact where we agree. */
static int claim_segment(struct mt_claims *claims, const struct mt_snapshot *snapshot,
                         const struct mt_snapshot_segment *segment)
{
    uint64_t active = 0;
    uint64_t pending = 0;
    uint64_t rounding = 0;
    int result = 0;
    for (size_t i = 0; i < segment->n_blocks && result == 0; i++) {
        const struct mt_snapshot_block *block = &snapshot->blocks[segment->first_block + i];
        if (block->state == MT_SNAPSHOT_INACTIVE)
            continue;
        *(block->state == MT_SNAPSHOT_PENDING ? &pending : &active) += block->bytes;
        rounding += block->bytes - block->requested_bytes;
        result = claim_block(claims, snapshot, block->stack, segment->is_private,
                             block->requested_bytes);
    }
    enum mt_provenance provenance =
        active == segment->allocated_bytes ? MT_PROVENANCE_EXACT : MT_PROVENANCE_DERIVED;
    if (result == 0)
        result = claim(claims, MT_CATEGORY_CACHED, provenance, "rounding of sizes", rounding);
    if (result == 0)
        result = claim(claims, MT_CATEGORY_CACHED, provenance,
                       segment->is_private ? "free in pools of captured graphs"
                                           : "free in PyTorch's segments",
                       segment->bytes - active - pending);
    return result;
}

static int claim_end(struct mt_claims *claims, const struct course *course)
{
    const struct mt_snapshot *snapshot = course->snapshot;
    for (size_t i = 0; i < snapshot->n_segments; i++)
        if (snapshot->segments[i].device == course->device &&
            claim_segment(claims, snapshot, &snapshot->segments[i]) < 0)
            return MT_ENOMEM;
    return 0;
}

static int claim_state(struct mt_claims *claims, const struct course *course, size_t state)
{
    uint64_t reserved = reserved_at(course, state);
    uint64_t held = 0;
    for (size_t i = 0; i < course->n_lives; i++) {
        const struct life *life = &course->lives[i];
        if (!is_there(life, state))
            continue;
        held += life->bytes;
        if (claim_block(claims, course->snapshot, life->stack, 0, life->bytes) < 0)
            return MT_ENOMEM;
    }
    return claim(claims, MT_CATEGORY_CACHED, MT_PROVENANCE_INFERRED,
                 "free in PyTorch's segments, and rounding of sizes",
                 reserved > held ? reserved - held : 0);
}

static uint64_t sum_of(const struct mt_claims *claims)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < claims->n; i++)
        sum += claims->items[i].resident_bytes;
    return sum;
}

struct work {
    struct mt_tally_arena *arena;
    struct mt_tally *tally;
    const char **notes;
};

#define NOTES_MOST (4 + 2 * MT_SNAPSHOT_DEVICES_MAX)

static int add_note(struct work *work, const char *text)
{
    char *copy = mt_tally_text(work->arena, text);
    if (!copy)
        return MT_ENOMEM;
    work->notes[work->tally->n_notes++] = copy;
    return 0;
}

/* The last time that memory ran out. */
static int note_refusal(struct work *work, const struct course *course)
{
    char text[768];
    size_t n = course->n_actions;
    while (n && course->actions[n - 1].kind != MT_SNAPSHOT_OOM)
        n--;
    if (!n)
        return 0;
    const struct mt_snapshot_action *action = &course->actions[n - 1];
    const struct mt_snapshot_stack *stack = &course->snapshot->stacks[action->stack];
    char freed[64] = "";
    if (action->address != MT_UNKNOWN)
        snprintf(freed, sizeof freed, ", where %" PRIu64 " were free", action->address);
    snprintf(text, sizeof text,
             "gpu:%u: memory ran out: %" PRIu64 " bytes were asked for%s%s%.400s", course->device,
             action->bytes, freed, stack->n ? ", by " : "", stack->n ? stack->frames[0]->text : "");
    return add_note(work, text);
}

static int note_unknown(struct work *work, const struct course *course)
{
    char text[160];
    if (!course->n_unknown)
        return 0;
    snprintf(text, sizeof text,
             "gpu:%u: %zu blocks of the history are neither freed nor in the snapshot",
             course->device, course->n_unknown);
    return add_note(work, text);
}

static int add_place(struct work *work, const struct course *course, const struct mt_moment *moment,
                     struct mt_tally_place *place)
{
    struct mt_claims claims;
    char name[32];
    size_t state = state_of_moment(course, moment);
    if (mt_claims_init(&claims) < 0)
        return MT_ENOMEM;
    int result = state == course->n_actions ? claim_end(&claims, course)
                                            : claim_state(&claims, course, state);
    uint64_t sum = sum_of(&claims);
    struct mt_tally_place *made =
        result < 0 ? NULL : mt_tally_make_place(work->arena, &claims, sum);
    mt_claims_finish(&claims);
    snprintf(name, sizeof name, "gpu:%u", course->device);
    char *text = mt_tally_text(work->arena, name);
    if (!made || !text)
        return MT_ENOMEM;
    *place = *made;
    place->place = text;
    uint64_t ns = time_of_state(course, state);
    if (ns > work->tally->moment_ns)
        work->tally->moment_ns = ns;
    return 0;
}

static int add_device(struct work *work, const struct mt_snapshot *snapshot, uint32_t device,
                      const struct mt_moment *moment)
{
    struct mt_tally *tally = work->tally;
    struct course course;
    if (course_init(&course, snapshot, device) < 0)
        return MT_ENOMEM;
    struct mt_tally_place *places = (struct mt_tally_place *)(uintptr_t)tally->places;
    int result = add_place(work, &course, moment, &places[tally->n_places]);
    if (result == 0) {
        tally->n_places++;
        result = note_refusal(work, &course);
    }
    if (result == 0)
        result = note_unknown(work, &course);
    course_finish(&course);
    return result;
}

static int add_devices(struct work *work, const struct mt_snapshot *snapshot,
                       const struct mt_moment *moment)
{
    for (uint32_t i = 0; i < snapshot->n_devices; i++) {
        int is_known = snapshot->devices[i].has_segments || snapshot->devices[i].n_actions;
        if (is_known && add_device(work, snapshot, i, moment) < 0)
            return MT_ENOMEM;
    }
    return 0;
}

static int add_notes(struct work *work, const struct mt_snapshot *snapshot,
                     const struct mt_moment *moment)
{
    char text[160];
    int result = add_note(work, "A snapshot has what PyTorch's allocator held; what the driver and "
                                "other libraries took of the device is in none.");
    if (result == 0 && moment->kind == MT_MOMENT_PEAK)
        result =
            add_note(work, snapshot->n_actions
                               ? "The peak is that of the time which the snapshot's history "
                                 "covers; an earlier one is not known."
                               : "The snapshot has no history: this is the moment when it was "
                                 "made. torch.cuda.memory._record_memory_history() starts one.");
    if (result < 0 || !snapshot->n_left_out)
        return result;
    snprintf(text, sizeof text, "%" PRIu64 " parts of the snapshot make no sense and are left out",
             snapshot->n_left_out);
    return add_note(work, text);
}

static int check_moment(const struct mt_snapshot *snapshot, const struct mt_moment *moment,
                        struct mt_error *error)
{
    if (moment->kind == MT_MOMENT_PEAK || moment->kind == MT_MOMENT_EXIT ||
        moment->kind == MT_MOMENT_TIME)
        return 0;
    return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                   "%s: a snapshot has no moment '%s'; ask for peak, exit or a time",
                   snapshot->path, mt_moment_text(moment));
}

int mt_snapshot_tally(const struct mt_snapshot *snapshot, const struct mt_moment *moment,
                      struct mt_tally **tally, struct mt_error *error)
{
    struct work work = {0};
    int result = check_moment(snapshot, moment, error);
    if (result < 0)
        return result;
    work.tally = mt_tally_create(&work.arena);
    if (work.tally) {
        work.tally->moment = *moment;
        work.tally->shared_rule = "a block counts once, in its segment";
        work.tally->machine = (struct mt_tally_machine){
            MT_UNKNOWN, MT_UNKNOWN, MT_UNKNOWN, MT_UNKNOWN, MT_UNKNOWN, MT_UNKNOWN, MT_UNKNOWN,
            MT_UNKNOWN, 0,          MT_UNKNOWN, MT_UNKNOWN, MT_UNKNOWN, -1,         -1};
        work.tally->places =
            mt_tally_alloc(work.arena, (snapshot->n_devices + 1) * sizeof *work.tally->places);
        work.notes = mt_tally_alloc(work.arena, NOTES_MOST * sizeof *work.notes);
        work.tally->notes = work.notes;
    }
    if (!work.tally || !work.tally->places || !work.notes ||
        add_devices(&work, snapshot, moment) < 0 || add_notes(&work, snapshot, moment) < 0) {
        mt_tally_destroy(work.tally);
        return mt_out_of_memory_for(error, snapshot->path);
    }
    MT_HOLDS(mt_tally_adds_up(work.tally));
    *tally = work.tally;
    return 0;
}

static int add_stack(struct mt_stack_list *list, const struct mt_snapshot *snapshot,
                     const struct life *life, const char *place)
{
    static const char *const nobody[] = {"[no stack]"};
    const char *names[MT_SNAPSHOT_FRAMES_MAX];
    const struct mt_snapshot_stack *stack = &snapshot->stacks[life->stack];
    struct mt_stack_entry entry = {.bytes = life->bytes, .count = 1, .complete = 1, .place = place};
    for (size_t i = 0; i < stack->n; i++)
        names[i] = stack->frames[i]->text;
    entry.frames = stack->n ? names : nobody;
    entry.n_frames = stack->n ? stack->n : 1;
    entry.complete = stack->n != 0;
    return mt_stack_list_add(list, &entry);
}

static int add_stacks(struct mt_stack_list *list, const struct mt_snapshot *snapshot,
                      uint32_t device, const struct mt_moment *moment)
{
    struct course course;
    int result = course_init(&course, snapshot, device);
    if (result < 0)
        return result;
    char place[16];
    snprintf(place, sizeof place, "gpu:%u", device);
    size_t state = state_of_moment(&course, moment);
    for (size_t i = 0; i < course.n_lives && result == 0; i++)
        if (is_there(&course.lives[i], state))
            result = add_stack(list, snapshot, &course.lives[i], place);
    course_finish(&course);
    return result;
}

int mt_snapshot_stacks(const struct mt_snapshot *snapshot, const struct mt_moment *moment,
                       size_t limit, struct mt_stack_list **stacks, struct mt_error *error)
{
    int result = check_moment(snapshot, moment, error);
    if (result < 0)
        return result;
    struct mt_stack_list *list = mt_stack_list_create();
    result = list ? 0 : MT_ENOMEM;
    for (uint32_t i = 0; i < snapshot->n_devices && result == 0; i++)
        result = add_stacks(list, snapshot, i, moment);
    if (result < 0) {
        mt_stack_list_destroy(list);
        return mt_fail(error, result, MT_NO_OFFSET, "%s: out of memory", snapshot->path);
    }
    mt_stack_list_finish(list, limit);
    *stacks = list;
    return 0;
}
