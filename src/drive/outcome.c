/* SPDX-License-Identifier: MIT */
/* How a rehearsal went, from its end and its events. */
#include "outcome.h"

#include <memtally/rehearsal_events.h>

static int was_refused(struct mt_rehearsal *rehearsal)
{
    const struct mt_rehearsal_event *event;
    for (size_t i = 0; (event = mt_rehearsal_event_at(rehearsal, i)) != NULL; i++)
        if (event->kind == MT_REHEARSAL_REFUSED)
            return 1;
    return 0;
}

enum mt_drive_outcome mt_drive_outcome_of(struct mt_rehearsal *rehearsal,
                                          const struct mt_drive_report *report)
{
    int refused = was_refused(rehearsal);
    if (report->end == MT_DRIVE_STUCK || report->end == MT_DRIVE_INTERRUPTED)
        return MT_DRIVE_UNDECIDED;
    int ended_badly =
        report->end == MT_DRIVE_ENDED && (report->is_ready || report->status.exit_code != 0);
    if (ended_badly)
        return refused ? MT_DRIVE_RUNS_OUT : MT_DRIVE_FAILS;
    if (!refused)
        return MT_DRIVE_RUNS;
    return report->n_refused > 0 ? MT_DRIVE_RUNS_OUT : MT_DRIVE_RUNS_SHORT;
}
