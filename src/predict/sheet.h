/* SPDX-License-Identifier: MIT */
/* The sheet that predictors write their terms on, and that becomes an estimate. */
#ifndef MT_PREDICT_SHEET_H
#define MT_PREDICT_SHEET_H

#include <stdint.h>

struct mt_estimate_pool; /* both of <memtally/predict.h> */
struct mt_estimate_graphs;

#define MT_HOST_PLACE (-1)

/* A failed allocation is remembered and makes the estimate fail at its end. */
struct mt_sheet;

/* Whether any term is of a place. */
int mt_sheet_has_place(const struct mt_sheet *sheet, int place);

/* Whether a predictor called mt_sheet_cannot(). */
int mt_sheet_is_refused(const struct mt_sheet *sheet);

/* A sentence for the notes of the tally. */
void mt_sheet_note(struct mt_sheet *sheet, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A flag for the command line of the engine ("-c 8192"). */
void mt_sheet_flag(struct mt_sheet *sheet, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
struct mt_estimate_pool *mt_sheet_pool(struct mt_sheet *sheet);
struct mt_estimate_graphs *mt_sheet_graphs(struct mt_sheet *sheet);
/* Something meant for a device went to the host: the verdict is SPILLS where it would be FITS. */
void mt_sheet_spills(struct mt_sheet *sheet, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A note that something which takes memory is not on the sheet: the verdict is TIGHT where it would
 * be FITS. */
void mt_sheet_uncounted(struct mt_sheet *sheet, const char *sentence);
/* Bounds the total of a place where terms make up for each other, as a pool does that takes what is
 * left; otherwise the total's bounds are the sums of the terms'. */
void mt_sheet_bound(struct mt_sheet *sheet, int place, uint64_t low_bytes, uint64_t high_bytes);
/* The engine would refuse to start, whatever the totals say. */
void mt_sheet_cannot(struct mt_sheet *sheet, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
