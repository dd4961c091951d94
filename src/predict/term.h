/* SPDX-License-Identifier: MIT */
/* The terms that predictors write on a sheet. */
#ifndef MT_PREDICT_TERM_H
#define MT_PREDICT_TERM_H

#include <memtally/category.h>
#include <memtally/provenance.h>
#include <stdint.h>

#include "predict/sheet.h"

struct mt_sheet_term {
    int place; /* MT_HOST_PLACE, or the number of a device */
    enum mt_category category;
    const char *name;
    const char *rule; /* "kv_cache"; the engine's name is put before it */
    uint64_t bytes;
    uint64_t low_bytes; /* 0 with high_bytes 0: the same as bytes */
    uint64_t high_bytes;
    enum mt_provenance provenance;
    const char *source;     /* NULL: the engine table's for the key `rule`, if it has one */
    const char *engine;     /* NULL: the sheet's */
    enum mt_term_kind kind; /* NONE: learnt where it is calibrated, else a rule's */
};

/* Writes a term; its formula, with the numbers, by format. A term of 0 bytes with high 0 is left
 * out. */
void mt_sheet_add(struct mt_sheet *sheet, const struct mt_sheet_term *term, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* What the terms of a category at a place come to so far. */
uint64_t mt_sheet_sum(const struct mt_sheet *sheet, int place, enum mt_category category);

#endif
