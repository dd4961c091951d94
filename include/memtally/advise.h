/* SPDX-License-Identifier: MIT */
/* What would fit: a run as it was asked for, and the smallest changes with which it has room.
 *
 *     mt_model_open("model.gguf", NULL, &model, &error);
 *     mt_stage_open(model, &options, &stage, &error);
 *     mt_suggest(model, stage, &settings, &suggestions, &error);
 *
 * With a stage the engine itself is asked, on devices that are not there, and each change was
 * tried; that takes seconds and starts programs. Without one the answer is by rules, and takes
 * milliseconds. */
#ifndef MEMTALLY_ADVISE_H
#define MEMTALLY_ADVISE_H

#include <stddef.h>
#include <stdint.h>

#include <memtally/drive.h>
#include <memtally/predict.h>
#include <memtally/tally.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */
struct mt_model; /* <memtally/model_file.h> */

struct mt_suggestions;

/* One way to run that fits. Texts are never NULL. Sizes that are not known are MT_UNKNOWN. */
struct mt_suggestion {
    enum mt_term_kind kind;  /* MT_TERM_REHEARSED: it was tried; MT_TERM_RULE: it follows */
    const char *flags;       /* of the engine, those that change: "-c 32768", "batch_size=4"; ""
                                for another device */
    const char *instead_of;  /* these flags as they were, "" where none was given */
    const char *costs;       /* what it costs: "shorter conversations" */
    uint64_t device_bytes;   /* that each device must have; 0: devices stay as they are */
    uint64_t held_bytes;     /* of the fullest device then, or of the host where there is none */
    uint64_t capacity_bytes; /* of that place */
};

/* Asks what a run takes and, where it does not fit, with which changes it does. `stage` may be
 * NULL: by rules. A stage says which engine and program run, whatever the settings say. Without
 * devices and a host's size everything fits. On success the caller owns *suggestions;
 * mt_suggestions_destroy() frees it. Nothing that fits is no error. The model must live as long.
 * Errors: those of mt_estimate_create() and mt_rehearsal_start(), MT_ECHILD (the engine failed by
 * itself; the text has its last words). */
int mt_suggest(const struct mt_model *model, struct mt_stage *stage,
               const struct mt_predict_settings *settings, struct mt_suggestions **suggestions,
               struct mt_error *error);

/* The run as it was asked for, with its verdict. Borrowed from the suggestions. */
const struct mt_estimate *mt_suggestions_estimate(const struct mt_suggestions *suggestions);

/* The change at `index`, cheapest first; NULL past the last, at once where the run fits as it is.
 * Borrowed from the suggestions. */
const struct mt_suggestion *mt_suggestions_at(const struct mt_suggestions *suggestions,
                                              size_t index);

/* Why nothing is suggested, or what was cut short, in sentences; "" mostly. Borrowed. */
const char *mt_suggestions_note(const struct mt_suggestions *suggestions);

/* Frees suggestions and their estimate. Takes NULL. */
void mt_suggestions_destroy(struct mt_suggestions *suggestions);

#ifdef __cplusplus
}
#endif
#endif
