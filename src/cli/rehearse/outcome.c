/* SPDX-License-Identifier: MIT */
/* How a rehearsal went, from its end and its events. */
#include "cli/rehearse/outcome.h"

static int was_refused(struct mt_rehearsal *rehearsal)
{
    const struct mt_rehearse_event *event;
    for (size_t i = 0; (event = mt_rehearse_event_at(rehearsal, i)) != NULL; i++)
        if (event->kind == MT_REHEARSE_REFUSED)
            return 1;
    return 0;
}

enum rehearse_outcome rehearse_outcome_of(struct mt_rehearsal *rehearsal,
                                          const struct rehearse_drive_report *report)
{
    int refused = was_refused(rehearsal);
    if (report->end == REHEARSE_STUCK || report->end == REHEARSE_INTERRUPTED)
        return REHEARSE_UNDECIDED;
    int ended_badly =
        report->end == REHEARSE_ENDED && (report->is_ready || report->status.exit_code != 0);
    if (ended_badly)
        return refused ? REHEARSE_RUNS_OUT : REHEARSE_FAILS;
    if (!refused)
        return REHEARSE_RUNS;
    return report->n_refused > 0 ? REHEARSE_RUNS_OUT : REHEARSE_RUNS_SHORT;
}
