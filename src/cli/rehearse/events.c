/* SPDX-License-Identifier: MIT */
/* What a program took after it was ready, out of the events of its rehearsal. */
#include <stdlib.h>
#include <string.h>

#include "cli/rehearse/rehearse.h"

#define LATE_MAX  4096
#define LOOK_BACK 32 /* events that a buffer's older self may lie before it */

/* A buffer that grows is freed and made anew, or made anew and the old one freed. Returns the
 * bytes that it had before, 0 where it is new. */
static uint64_t older_self(struct mt_rehearsal *rehearsal, size_t index)
{
    const struct mt_rehearse_event *made = mt_rehearse_event_at(rehearsal, index);
    for (size_t i = index; i-- > 0 && index - i <= LOOK_BACK;) {
        const struct mt_rehearse_event *event = mt_rehearse_event_at(rehearsal, i);
        if (strcmp(event->place, made->place) != 0 || strcmp(event->name, made->name) != 0 ||
            event->category != made->category || event->pid != made->pid)
            continue;
        if (event->kind == MT_REHEARSE_ALLOC)
            return 0;
        if (event->kind == MT_REHEARSE_FREE)
            return event->bytes;
    }
    return 0;
}

/* The mark after which what is taken is late: of a server that answered, else of one that took
 * connections. */
static const char *late_mark(const struct rehearse_result *result)
{
    return result->report.is_ready ? "ready" : "serving";
}

size_t rehearse_late(const struct rehearse_result *result, struct cli_document_late **late)
{
    const struct mt_rehearse_event *event;
    const char *first = late_mark(result);
    const char *step = NULL;
    size_t n = 0;
    *late = calloc(LATE_MAX, sizeof **late);
    for (size_t i = 0; *late && n < LATE_MAX; i++) {
        event = mt_rehearse_event_at(result->rehearsal, i);
        if (!event)
            break;
        if (event->kind == MT_REHEARSE_MARK && (step || !strcmp(event->name, first)))
            step = event->name;
        int is_taken = event->kind == MT_REHEARSE_ALLOC && !(event->flags & MT_REHEARSE_PLANNED);
        if (!step || (!is_taken && event->kind != MT_REHEARSE_REFUSED))
            continue;
        (*late)[n++] = (struct cli_document_late){
            .time_ns = event->time_ns,
            .step = step,
            .place = event->place,
            .category = event->category,
            .name = event->name,
            .detail = event->detail,
            .bytes = event->bytes,
            .before_bytes = is_taken ? older_self(result->rehearsal, i) : 0,
            .was_refused = !is_taken,
        };
    }
    if (n)
        return n;
    free(*late);
    *late = NULL;
    return 0;
}
