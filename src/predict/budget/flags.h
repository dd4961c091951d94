/* SPDX-License-Identifier: MIT */
/* The flags of engines with a budget, from the key "flags" of their table: words NAME=FLAG, in the
 * order in which they are written. */
#ifndef MT_PREDICT_BUDGET_FLAGS_H
#define MT_PREDICT_BUDGET_FLAGS_H

#include "predict/input.h"

#define MT_BUDGET_FLAG_BYTES 64

/* The engine's flag for a setting, into `flag`; the setting's own name where it has none. */
const char *mt_budget_flag(const struct mt_engine *engine, const char *setting,
                           char flag[MT_BUDGET_FLAG_BYTES]);

/* Writes the flags that say what the settings are. */
void mt_budget_write_flags(const struct mt_predict_input *in, struct mt_sheet *sheet);

#endif
