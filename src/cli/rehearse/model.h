/* SPDX-License-Identifier: MIT */
/* One model with settings, rehearsed: an estimate of what the engine itself says. */
#ifndef CLI_REHEARSE_MODEL_H
#define CLI_REHEARSE_MODEL_H

#include <memtally/predict.h>

#include "cli/rehearse/stage.h"

/* Rehearses a run. Settings are as they were asked for: what is open is left to the engine, also
 * what goes to the devices. `folder_number` tells rehearsals apart that run at a time. On success
 * the caller owns *estimate; a run that is refused memory is an estimate with the verdict CANNOT,
 * with what it would take on devices that are large enough.
 * Errors: those of mt_estimate_create() and mt_rehearse_start(), MT_ECHILD (the engine failed by
 * itself; the text has its last words). */
int rehearse_model(const struct rehearse_stage *stage, const struct mt_predict_settings *settings,
                   size_t folder_number, struct mt_estimate **estimate, struct mt_error *error);

#endif
