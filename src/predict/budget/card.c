/* SPDX-License-Identifier: MIT */
/* The card that rules of a budget ask about. */
#include "budget.h"

#include <memtally/settings.h>

uint64_t mt_budget_smallest_device(const struct mt_predict_settings *settings)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < settings->n_devices; i++)
        least = settings->device_bytes[i] < least ? settings->device_bytes[i] : least;
    return least;
}

struct mt_gpu_spec mt_budget_card(const struct mt_predict_input *in)
{
    const struct mt_predict_settings *settings = in->settings;
    struct mt_gpu_row row = {.key = ""};
    const char *name = settings->device_known ? settings->device_known[0].gpu : "";
    if (!*name || mt_gpu_find(name, &row, NULL) < 0)
        mt_gpu_of_size(mt_budget_smallest_device(settings), NULL, &row, NULL);
    return row.gpu;
}
