/* SPDX-License-Identifier: MIT */
/* What an engine itself said that it allocates, as terms of a sheet. Knows tallies, not how the
 * engine was made to speak. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "sheet_internal.h"
#include "term.h"

#define RULE "rehearsed"

/* The number of a place; the host's is MT_HOST_PLACE. Returns 0 or MT_EARG. */
static int read_place(const char *name, size_t n_devices, int *place)
{
    static const char device[] = "gpu:";
    char *end;
    if (!strcmp(name, "host")) {
        *place = MT_HOST_PLACE;
        return 0;
    }
    if (strncmp(name, device, sizeof device - 1) != 0)
        return MT_EARG;
    unsigned long number = strtoul(name + sizeof device - 1, &end, 10);
    if (*end || end == name + sizeof device - 1 || number >= n_devices)
        return MT_EARG;
    *place = (int)number;
    return 0;
}

/* Weights that the CPU has in a layout of its own are copies of mapped ones. */
static uint64_t copied_bytes(const struct mt_tally_row *row)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < row->n_details; i++)
        if (strstr(row->details[i].name, "REPACK") || strstr(row->details[i].name, "AMX") ||
            strstr(row->details[i].name, "KLEIDIAI"))
            bytes += row->details[i].allocated_bytes;
    return bytes;
}

/* Mapped weights may leave memory again; of those that were copied nothing need stay. */
static void write_detail(const struct mt_tally_row *row, const struct mt_tally_detail *detail,
                         int place, const char *engine, struct mt_sheet *sheet)
{
    uint64_t bytes = detail->allocated_bytes;
    struct mt_sheet_term term = {.place = place,
                                 .category = row->category,
                                 .name = detail->name,
                                 .rule = RULE,
                                 .bytes = bytes,
                                 .low_bytes = detail->low_bytes,
                                 .high_bytes = detail->high_bytes,
                                 .provenance = detail->provenance,
                                 .kind = MT_TERM_REHEARSED,
                                 .engine = engine};
    if (row->category == MT_CATEGORY_WEIGHTS && strstr(detail->name, "_Mapped")) {
        uint64_t copied = copied_bytes(row);
        term.rule = RULE ".mapped";
        term.low_bytes = copied < bytes ? bytes - copied : 0;
    }
    if (detail->count > 1)
        mt_sheet_add(sheet, &term, "%llu buffers of the engine", (unsigned long long)detail->count);
    else
        mt_sheet_add(sheet, &term, "a buffer of the engine");
}

int mt_engine_plan_write(const struct mt_engine_plan *said,
                         const struct mt_predict_settings *settings, struct mt_sheet *sheet,
                         struct mt_error *error)
{
    for (size_t i = 0; i < said->tally->n_places; i++) {
        const struct mt_tally_place *place = &said->tally->places[i];
        int number;
        if (read_place(place->place, settings->n_devices, &number) < 0)
            return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                           "the engine speaks of %s, which is not among the %zu devices",
                           place->place, settings->n_devices);
        for (size_t r = 0; r < place->n_rows; r++)
            for (size_t d = 0; d < place->rows[r].n_details; d++)
                write_detail(&place->rows[r], &place->rows[r].details[d], number, said->engine,
                             sheet);
    }
    for (size_t i = 0; i < said->n_notes; i++)
        mt_sheet_note(sheet, "%s", said->notes[i]);
    if (said->cannot)
        mt_sheet_cannot(sheet, "%s", said->cannot);
    if (said->spills)
        mt_sheet_spills(sheet, "%s", said->spills);
    return 0;
}
