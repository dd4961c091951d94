/* SPDX-License-Identifier: MIT */
/* One model with settings, rehearsed: an estimate of what the engine itself says. */
#ifndef ADVISE_MODEL_H
#define ADVISE_MODEL_H

#include <memtally/predict.h>

#include "answer.h"
#include "drive/profile.h"
#include "drive/stage.h"

/* What a rehearsal takes beside its settings, and what it gives beside its estimate. Start
 * with {0}; mt_advise_model_report_finish() frees what was answer. What is asked is borrowed. */
struct mt_advise_model_report {
    const char *folder;  /* that keeps the account and the engine's output; NULL: none does */
    uint64_t n_requests; /* that a server is sent at most */
    int with_changes;    /* look for flags that fit where it does not */
    const struct mt_drive_listener *listener;
    struct mt_profile_command command; /* that answer.rehearsal refers to */
    struct mt_advise_answer answer;
};
void mt_advise_model_report_finish(struct mt_advise_model_report *report);

/* Rehearses a run. Settings are as they were asked for: what is open is left to the engine, also
 * what goes to the devices. `folder_number` tells rehearsals apart that run at a time. `report` may
 * be NULL. On success
 * the caller owns *estimate; a run that is refused memory is an estimate with the verdict CANNOT,
 * with what it would take on devices that are large enough.
 * Errors: those of mt_estimate_create() and mt_rehearse_start(), MT_ECHILD (the engine failed by
 * itself; the text has its last words). */
int mt_advise_model(const struct mt_drive_stage *stage, const struct mt_predict_settings *settings,
                    size_t folder_number, struct mt_advise_model_report *report,
                    struct mt_estimate **estimate, struct mt_error *error);

#endif
