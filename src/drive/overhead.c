/* SPDX-License-Identifier: MIT */
/* What a pretended device holds back from the engine: the same bytes that an estimate adds to what
 * the engine says. Knows estimates, no rehearsal. */
#include "overhead.h"

#include <memtally/residue.h>
#include <memtally/settings.h>
#include <stdio.h>
#include <string.h>

static int is_added(const struct mt_residue *residue)
{
    return residue->n && residue->mean_bytes > 0 && !strcmp(residue->place_kind, "device") &&
           (residue->category == MT_CATEGORY_RUNTIME || residue->category == MT_CATEGORY_CACHED ||
            residue->category == MT_CATEGORY_WORKSPACE);
}

int mt_drive_overhead(const struct mt_predict_settings *settings, size_t device, uint64_t *bytes,
                      struct mt_error *error)
{
    struct mt_residue context;
    char place[32];
    snprintf(place, sizeof place, "gpu:%zu", device);
    int result = mt_residue_expected(settings, place, &context, error);
    if (result < 0)
        return result;
    uint64_t sum = (uint64_t)(context.mean_bytes > 0 ? context.mean_bytes : 0);
    for (size_t i = 0; i < settings->n_residues && !settings->context_bytes; i++)
        if (is_added(&settings->residues[i]))
            sum += (uint64_t)settings->residues[i].mean_bytes;
    *bytes = sum;
    return 0;
}
