/* SPDX-License-Identifier: MIT */
/* What a program took after it was ready, out of the events of its rehearsal. */
#include <stdlib.h>
#include <string.h>

#include "job.h"

#define LATE_MAX  4096
#define LOOK_BACK 32 /* events that a buffer's older self may lie before it */

/* The buffers that a program took late, while we gather them. */
struct gathering {
    struct mt_rehearsed_late *late;
    struct follow {
        const struct mt_rehearsal_event *taken;
        size_t freed_at; /* event; SIZE_MAX: still there */
    } * follows;
    size_t n;
};

static int is_of_one_kind(const struct mt_rehearsal_event *a, const struct mt_rehearsal_event *b)
{
    return a->pid == b->pid && a->category == b->category && strcmp(a->place, b->place) == 0 &&
           strcmp(a->name, b->name) == 0;
}

/* A buffer that grows is freed and made anew. Returns the event that freed its older self, SIZE_MAX
 * where it is new. */
static size_t older_self(struct mt_rehearsal *rehearsal, size_t index)
{
    const struct mt_rehearsal_event *made = mt_rehearsal_event_at(rehearsal, index);
    for (size_t i = index; i-- > 0 && index - i <= LOOK_BACK;) {
        const struct mt_rehearsal_event *event = mt_rehearsal_event_at(rehearsal, i);
        if (!is_of_one_kind(event, made))
            continue;
        if (event->kind == MT_REHEARSAL_ALLOC)
            return SIZE_MAX;
        if (event->kind == MT_REHEARSAL_FREE)
            return i;
    }
    return SIZE_MAX;
}

/* Several equal ones are the same to us. */
static void note_free(struct gathering *gathering, const struct mt_rehearsal_event *event,
                      size_t index)
{
    for (size_t i = gathering->n; i-- > 0;) {
        struct follow *follow = &gathering->follows[i];
        if (follow->freed_at != SIZE_MAX || follow->taken->kind != MT_REHEARSAL_ALLOC ||
            follow->taken->bytes != event->bytes || !is_of_one_kind(follow->taken, event))
            continue;
        follow->freed_at = index;
        gathering->late[i].was_freed = 1;
        return;
    }
}

/* What a buffer had when the program was ready, where the one before it was taken late, too. */
static uint64_t ready_bytes(const struct gathering *gathering, size_t freed_at, uint64_t otherwise)
{
    for (size_t i = gathering->n; i-- > 0;)
        if (gathering->follows[i].freed_at == freed_at)
            return gathering->late[i].ready_bytes;
    return otherwise;
}

static void note_taken(struct gathering *gathering, struct mt_rehearsal *rehearsal, size_t index,
                       const char *step)
{
    const struct mt_rehearsal_event *event = mt_rehearsal_event_at(rehearsal, index);
    int is_taken = event->kind == MT_REHEARSAL_ALLOC;
    size_t older = is_taken ? older_self(rehearsal, index) : SIZE_MAX;
    uint64_t before = older == SIZE_MAX ? 0 : mt_rehearsal_event_at(rehearsal, older)->bytes;
    gathering->late[gathering->n] = (struct mt_rehearsed_late){
        .time_ns = event->time_ns,
        .step = step,
        .place = event->place,
        .category = event->category,
        .name = event->name,
        .detail = event->detail,
        .bytes = event->bytes,
        .before_bytes = before,
        .ready_bytes = older == SIZE_MAX ? 0 : ready_bytes(gathering, older, before),
        .was_refused = !is_taken,
    };
    gathering->follows[gathering->n++] = (struct follow){event, SIZE_MAX};
}

/* A program that has ended has given everything back, which is no sign of anything. */
static size_t end_of(const struct mt_drive_result *result)
{
    return result->status.running ? result->status.n_events : 0;
}

static int has_mark(const struct mt_drive_result *result, const char *name)
{
    const struct mt_rehearsal_event *event;
    for (size_t i = 0; (event = mt_rehearsal_event_at(result->rehearsal, i)) != NULL; i++)
        if (event->kind == MT_REHEARSAL_MARK && !strcmp(event->name, name))
            return 1;
    return 0;
}

/* The mark after which what is taken is late: of a server that never answered, that it took
 * connections. */
static const char *late_mark(const struct mt_drive_result *result)
{
    return result->report.is_ready || !has_mark(result, "serving") ? "ready" : "serving";
}

static void gather(const struct mt_drive_result *result, struct gathering *gathering)
{
    const struct mt_rehearsal_event *event;
    const char *first = late_mark(result);
    const char *step = NULL;
    for (size_t i = 0; gathering->n < LATE_MAX; i++) {
        event = mt_rehearsal_event_at(result->rehearsal, i);
        if (!event)
            return;
        if (event->kind == MT_REHEARSAL_MARK && (step || !strcmp(event->name, first)))
            step = event->name;
        if (!step)
            continue;
        if (event->kind == MT_REHEARSAL_FREE && i < end_of(result))
            note_free(gathering, event, i);
        else if (event->kind == MT_REHEARSAL_REFUSED ||
                 (event->kind == MT_REHEARSAL_ALLOC && !(event->flags & MT_REHEARSAL_PLANNED)))
            note_taken(gathering, result->rehearsal, i, step);
    }
}

size_t mt_drive_late(const struct mt_drive_result *result, struct mt_rehearsed_late **late)
{
    struct gathering gathering = {
        .late = calloc(LATE_MAX, sizeof *gathering.late),
        .follows = calloc(LATE_MAX, sizeof *gathering.follows),
    };
    if (gathering.late && gathering.follows)
        gather(result, &gathering);
    free(gathering.follows);
    *late = gathering.late;
    if (gathering.n)
        return gathering.n;
    free(gathering.late);
    *late = NULL;
    return 0;
}
