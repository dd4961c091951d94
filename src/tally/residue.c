/* SPDX-License-Identifier: MIT */
/* What a measurement teaches: the residue that no rule can know, and nothing else.
 *
 * Weights, cache and activations follow from the model and the engine. A measurement that differs
 * there shows a wrong rule or a wrong setting; learnt as a number it would spoil every other
 * context and model. So they have no way into a residue. */
#include <memtally/compare.h>
#include <memtally/residue.h>
#include <string.h>

#include "tally/compare.h"

static const enum mt_category learnt[] = {MT_CATEGORY_CONTEXT, MT_CATEGORY_RUNTIME,
                                          MT_CATEGORY_CACHED, MT_CATEGORY_WORKSPACE};

#define N_LEARNT (sizeof learnt / sizeof *learnt)

/* What a term counts for: nothing if it was assumed, or learnt before. */
static int64_t derived(enum mt_provenance provenance, uint64_t bytes)
{
    if (provenance == MT_PROVENANCE_CALIBRATED || provenance == MT_PROVENANCE_ASSUMED ||
        bytes > INT64_MAX)
        return 0;
    return (int64_t)bytes;
}

/* What rules derive of a category at a place. */
static int64_t derived_bytes(const struct mt_tally_place *place, enum mt_category category)
{
    const struct mt_tally_row *row = place ? mt_tally_row_of(place, category) : NULL;
    int64_t sum = 0;
    if (!row)
        return 0;
    if (row->n_details == 0)
        return derived(row->provenance, row->allocated_bytes);
    for (size_t i = 0; i < row->n_details; i++)
        sum = mt_compare_add(sum,
                             derived(row->details[i].provenance, row->details[i].allocated_bytes));
    return sum;
}

/* Adds the residue of a category over the places of a kind; returns how many have it. */
static int64_t sum_of(const struct mt_tally *measurement, const struct mt_tally *estimate,
                      int on_device, enum mt_category category, int64_t *sum)
{
    int64_t n = 0;
    for (size_t p = 0; p < measurement->n_places; p++) {
        const struct mt_tally_place *place = &measurement->places[p];
        const struct mt_tally_row *row = mt_tally_row_of(place, category);
        if ((strncmp(place->place, "gpu:", 4) == 0) != on_device || !row ||
            row->resident_bytes > INT64_MAX)
            continue;
        const struct mt_tally_place *partner = mt_compare_partner(measurement, estimate, place);
        int64_t residue = (int64_t)row->resident_bytes - derived_bytes(partner, category);
        *sum = mt_compare_add(*sum, residue);
        n++;
    }
    return n;
}

size_t mt_residues_of(const struct mt_tally *measurement, const struct mt_tally *estimate,
                      struct mt_residue *residues)
{
    size_t n = 0;
    for (int on_device = 0; on_device < 2; on_device++)
        for (size_t c = 0; c < N_LEARNT; c++) {
            int64_t sum = 0;
            int64_t places = sum_of(measurement, estimate, on_device, learnt[c], &sum);
            if (!places)
                continue;
            residues[n++] = (struct mt_residue){.place_kind = on_device ? "device" : "host",
                                                .category = learnt[c],
                                                .low_bytes = sum / places,
                                                .mean_bytes = sum / places,
                                                .high_bytes = sum / places,
                                                .n = 1};
        }
    return n;
}

void mt_residue_add(struct mt_residue *residue, int64_t bytes)
{
    if (residue->n == 0) {
        residue->low_bytes = residue->mean_bytes = residue->high_bytes = bytes;
        residue->n = 1;
        return;
    }
    residue->n += residue->n < UINT64_MAX;
    if (bytes < residue->low_bytes)
        residue->low_bytes = bytes;
    if (bytes > residue->high_bytes)
        residue->high_bytes = bytes;
    /* In double half of the largest difference would not fit into an int64_t. */
    long double off = (long double)bytes - (long double)residue->mean_bytes;
    residue->mean_bytes += (int64_t)(off / (long double)residue->n);
}
