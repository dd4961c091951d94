/* SPDX-License-Identifier: MIT */
/* The inside of a sheet, for the two files that make and close it. */
#ifndef MT_PREDICT_SHEET_PARTS_H
#define MT_PREDICT_SHEET_PARTS_H

#include <memtally/predict.h>

#include "base/arena.h"
#include "predict/sheet.h"

struct mt_sheet_line {
    int place;
    struct mt_estimate_term term; /* its place's name is put in when the sheet is closed */
};

struct mt_sheet_bounds {
    int place;
    uint64_t low_bytes;
    uint64_t high_bytes;
};

struct mt_sheet {
    struct mt_arena arena;
    const struct mt_engine *engine;
    struct mt_sheet_line *terms;
    size_t n_terms;
    const char **notes;
    size_t n_notes;
    struct mt_sheet_bounds *bounds; /* of totals */
    size_t n_bounds;
    char *flags;
    char *spills;   /* why the verdict is not FITS, or NULL */
    char *cannot;   /* why it is CANNOT whatever the totals say, or NULL */
    int is_partial; /* something is not counted, so that nothing surely fits */
    struct mt_estimate_pool pool;
    struct mt_estimate_graphs graphs;
    int failed;
};

/* Why an estimate is not of the settings as they were meant, or not of rules; members may be NULL.
 */
struct mt_estimate_why {
    const char *spills; /* reason of a verdict SPILLS */
    const char *note;
    const struct mt_engine_plan *said; /* the engine itself */
};

/* What holds for every sheet: bounds in order, terms of a category and with a rule; for a pool and
 * for an estimate the equations of their comments. */
int mt_sheet_is_valid(const struct mt_sheet *sheet);
int mt_pool_is_valid(const struct mt_estimate_pool *pool);
int mt_estimate_is_valid(const struct mt_estimate *estimate);

/* Writes what an engine said onto the sheet. Errors: MT_EARG. */
int mt_engine_plan_write(const struct mt_engine_plan *said,
                         const struct mt_predict_settings *settings, struct mt_sheet *sheet,
                         struct mt_error *error);

/* mt_estimate_create() of an engine that was found, without looking for another placement where
 * devices have no room. `why` may
 * be NULL. */
int mt_estimate_once(const struct mt_engine *engine, const struct mt_model *model,
                     const struct mt_predict_settings *settings, const struct mt_estimate_why *why,
                     struct mt_estimate **estimate, struct mt_error *error);

/* Replaces an estimate that CANNOT be because devices have no room, of an engine that can leave
 * layers on the host, by the one with the most on the devices; leaves it where that does not help,
 * or where the settings say what goes where. */
int mt_estimate_spill(const struct mt_engine *engine, const struct mt_model *model,
                      const struct mt_predict_settings *settings, struct mt_estimate **estimate,
                      struct mt_error *error);

#endif
