/* SPDX-License-Identifier: MIT */
/* Which settings are told to an engine, and how their values are written. */
#include "flags.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <memtally/settings.h>

#include "predict/sheet.h"
#include "predict/torch/torch.h"

const char *mt_budget_flag(const struct mt_engine *engine, const char *setting,
                           char flag[MT_BUDGET_FLAG_BYTES])
{
    if (mt_engine_word(engine, "flags", setting, flag, MT_BUDGET_FLAG_BYTES) < 0)
        snprintf(flag, MT_BUDGET_FLAG_BYTES, "%s", setting);
    return flag;
}

static void write_number(struct mt_sheet *sheet, const char *flag, uint64_t value)
{
    mt_sheet_flag(sheet, "%s %" PRIu64, flag, value);
}

/* One word of the key, in its place. Parallel sizes of 1, and what was left to the engine, are not
 * written. */
static void write_flag(const struct mt_predict_settings *settings, const char *setting,
                       const char *flag, struct mt_sheet *sheet)
{
    const char *type = settings->weight_type;
    const struct {
        const char *name;
        uint64_t value;
        uint64_t least;
    } numbers[] = {{"context", settings->context_tokens, 0},
                   {"sequences", settings->sequences, 0},
                   {"batched_tokens", settings->batched_tokens, 0},
                   {"graph_batch", settings->graph_batch, 1},
                   {"tensor_parallel", settings->tensor_parallel, 2},
                   {"pipeline_parallel", settings->pipeline_parallel, 2}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(numbers[i].name, setting) == 0 && numbers[i].value >= numbers[i].least)
            write_number(sheet, flag, numbers[i].value);
    if (strcmp(setting, "memory_share") == 0)
        mt_sheet_flag(sheet, "%s %g", flag, settings->memory_share);
    else if (strcmp(setting, "kv_type") == 0)
        mt_sheet_flag(sheet, "%s %s", flag, settings->kv_type_k);
    else if (strcmp(setting, "weight_type") == 0 && type && !mt_begins(type, "fp8"))
        mt_sheet_flag(sheet, "%s %s", flag, mt_torch_dtype_name(type));
    else if (strcmp(setting, "weight_type.fp8") == 0 && mt_begins(type, "fp8"))
        mt_sheet_flag(sheet, "%s %s", flag, mt_torch_dtype_name(type));
    else if (strcmp(setting, "eager") == 0 && settings->eager)
        mt_sheet_flag(sheet, "%s", flag);
}

void mt_budget_write_flags(const struct mt_predict_input *in, struct mt_sheet *sheet)
{
    char setting[MT_BUDGET_FLAG_BYTES];
    char flag[MT_BUDGET_FLAG_BYTES];
    for (size_t i = 0;
         mt_engine_word_at(in->engine, "flags", i, setting, flag, MT_BUDGET_FLAG_BYTES) == 0; i++)
        write_flag(in->settings, setting, flag, sheet);
}
