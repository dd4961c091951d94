/* SPDX-License-Identifier: MIT */
/* The memory of a tally, and what can be asked of a finished one. */
#include "tally_arena.h"

#include <stdlib.h>
#include <string.h>

#include <memtally/tally.h>
#include <memtally/units.h>

#include "tally/tally_arena.h"

struct piece {
    struct piece *next;
    _Alignas(16) unsigned char bytes[];
};

/* `tally` comes first: mt_tally_destroy() is handed its address. */
struct mt_tally_arena {
    struct mt_tally tally;
    struct piece *pieces;
};

struct mt_tally *mt_tally_create(struct mt_tally_arena **arena)
{
    *arena = calloc(1, sizeof **arena);
    return *arena ? &(*arena)->tally : NULL;
}

void *mt_tally_alloc(struct mt_tally_arena *arena, size_t size)
{
    struct piece *piece = calloc(1, sizeof *piece + size);
    if (!piece)
        return NULL;
    piece->next = arena->pieces;
    arena->pieces = piece;
    return piece->bytes;
}

char *mt_tally_text(struct mt_tally_arena *arena, const char *text)
{
    size_t length = strlen(text) + 1;
    char *copy = mt_tally_alloc(arena, length);
    return copy ? memcpy(copy, text, length) : NULL;
}

void mt_tally_destroy(struct mt_tally *tally)
{
    struct mt_tally_arena *arena = (struct mt_tally_arena *)tally;
    if (!arena)
        return;
    while (arena->pieces) {
        struct piece *next = arena->pieces->next;
        free(arena->pieces);
        arena->pieces = next;
    }
    free(arena);
}

const char *mt_provenance_name(enum mt_provenance provenance)
{
    switch (provenance) {
#define CASE(NAME, name)                                                                           \
    case MT_PROVENANCE_##NAME:                                                                     \
        return name;
        MT_PROVENANCE_LIST(CASE)
#undef CASE
    case MT_PROVENANCE_COUNT:
        break;
    }
    return "?";
}

const char *mt_term_kind_name(enum mt_term_kind kind)
{
    switch (kind) {
#define CASE(NAME, name)                                                                           \
    case MT_TERM_##NAME:                                                                           \
        return name;
        MT_TERM_LIST(CASE)
#undef CASE
    case MT_TERM_NONE:
        return "none";
    case MT_TERM_COUNT:
        break;
    }
    return "?";
}

const char *mt_moment_name(enum mt_moment_kind kind)
{
    switch (kind) {
    case MT_MOMENT_PEAK:
        return "peak";
    case MT_MOMENT_STEADY:
        return "steady";
    case MT_MOMENT_EXIT:
        return "exit";
    case MT_MOMENT_TIME:
        return "time";
    case MT_MOMENT_HEAP_PEAK:
        return "heap-peak";
    case MT_MOMENT_CATEGORY_PEAK:
        return "category-peak";
    }
    return "?";
}

const char *mt_moment_text(const struct mt_moment *moment)
{
    static const char *const peaks[] = {
#define PEAK(NAME, value, name, holds) [MT_CATEGORY_##NAME] = name "-peak",
        MT_CATEGORY_LIST(PEAK)
#undef PEAK
    };
    if (moment->kind == MT_MOMENT_CATEGORY_PEAK && moment->category > MT_CATEGORY_NONE &&
        moment->category < MT_CATEGORY_END)
        return peaks[moment->category];
    return mt_moment_name(moment->kind);
}

const struct mt_tally_row *mt_tally_row_of(const struct mt_tally_place *place,
                                           enum mt_category category)
{
    for (size_t i = 0; i < place->n_rows; i++)
        if (place->rows[i].category == category)
            return &place->rows[i];
    return NULL;
}

static int place_adds_up(const struct mt_tally_place *place)
{
    uint64_t sum = place->unattributed_bytes;
    for (size_t i = 0; i < place->n_rows; i++) {
        uint64_t details = 0;
        if (place->rows[i].resident_bytes == MT_UNKNOWN)
            continue;
        for (size_t j = 0; j < place->rows[i].n_details; j++)
            details += place->rows[i].details[j].resident_bytes;
        if (details != place->rows[i].resident_bytes)
            return 0;
        sum += place->rows[i].resident_bytes;
    }
    return place->total_resident_bytes == MT_UNKNOWN ? place->is_told
                                                     : sum == place->total_resident_bytes;
}

static int estimated_row_adds_up(const struct mt_tally_row *row)
{
    uint64_t bytes = 0;
    uint64_t low_bytes = 0;
    uint64_t high_bytes = 0;
    for (size_t i = 0; i < row->n_details; i++) {
        bytes += row->details[i].allocated_bytes;
        low_bytes += row->details[i].low_bytes;
        high_bytes += row->details[i].high_bytes;
    }
    return bytes == row->allocated_bytes && low_bytes == row->low_bytes &&
           high_bytes == row->high_bytes;
}

static int estimated_place_adds_up(const struct mt_tally_place *place)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < place->n_rows; i++) {
        if (!estimated_row_adds_up(&place->rows[i]))
            return 0;
        sum += place->rows[i].allocated_bytes;
    }
    return place->n_rows ? sum == place->total_allocated_bytes
                         : place->total_allocated_bytes == MT_UNKNOWN;
}

int mt_tally_adds_up(const struct mt_tally *tally)
{
    int is_estimate = tally->kind == MT_TALLY_ESTIMATE;
    for (size_t i = 0; i < tally->n_places; i++)
        if (!(is_estimate ? estimated_place_adds_up : place_adds_up)(&tally->places[i]))
            return 0;
    for (size_t i = 0; i < tally->n_processes; i++)
        for (size_t j = 0; j < tally->processes[i].n_places; j++)
            if (!place_adds_up(&tally->processes[i].places[j]))
                return 0;
    return 1;
}
