/* SPDX-License-Identifier: MIT */
/* One model with settings, rehearsed: an estimate of what the engine itself says. */
#ifndef ADVISE_MODEL_H
#define ADVISE_MODEL_H

#include "answer.h"
#include "drive/profile.h"
#include "drive/stage.h"

struct mt_estimate;         /* <memtally/predict.h> */
struct mt_predict_settings; /* <memtally/settings.h> */

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

/* Rehearses a run. Settings are as they were asked for: the engine decides open ones, also what
 * goes to the devices. `folder_number` tells rehearsals apart that run at a time. `report` may be
 * NULL. On success the caller owns *estimate. If the run is refused memory, the estimate has the
 * verdict CANNOT and what the run would take on devices that are large enough. Errors: those of
 * mt_estimate_create() and mt_rehearsal_start(), MT_ECHILD (the engine failed by itself; the text
 * has its last words). */
int mt_advise_model(const struct mt_drive_stage *stage, const struct mt_predict_settings *settings,
                    size_t folder_number, struct mt_advise_model_report *report,
                    struct mt_estimate **estimate, struct mt_error *error);

/* What is known of a stage once it is removed. */
struct mt_advise_staged {
    char program_path[PATH_MAX];
    const char *file_type; /* that weights were converted to; NULL: they were not. Borrowed */
    int is_converted;      /* the engine read other weights, of so many bytes */
    uint64_t weight_bytes;
};
void mt_advise_tell_stage(const struct mt_drive_stage *stage, struct mt_advise_staged *staged);

/* The whole of one rehearsal of a model: sets the stage, rehearses the run, and removes the stage.
 * Errors: those of mt_drive_check_devices(), mt_drive_stage_init() and mt_advise_model(). */
int mt_advise_staged_model(const struct mt_drive_stage_options *options,
                           const struct mt_predict_settings *settings,
                           struct mt_advise_model_report *report, struct mt_advise_staged *staged,
                           struct mt_estimate **estimate, struct mt_error *error);

#endif
