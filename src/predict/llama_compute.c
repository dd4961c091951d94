/* SPDX-License-Identifier: MIT */
/* Compute buffers of llama.cpp: to come. */
#include "predict/llama.h"

int mt_llama_compute(const struct mt_llama_plan *plan, struct mt_sheet *sheet,
                     struct mt_error *error)
{
    (void)plan;
    (void)error;
    mt_sheet_note(sheet, "Compute buffers are not counted yet.");
    return 0;
}
