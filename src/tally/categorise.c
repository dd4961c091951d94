/* SPDX-License-Identifier: MIT */
/* What somebody else says of a measurement: bytes that were seen without what they are for get a
 * category, and the total stays. */
#include <memtally/tally.h>
#include <memtally/units.h>

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/invariant.h"
#include "tally_arena.h"

/* The part of a row that says nothing of what it is for, by its name. */
#define HEAP "heap"

static struct mt_tally_place *find_place(struct mt_tally *tally, const char *name)
{
    for (size_t i = 0; i < tally->n_places; i++)
        if (strcmp(tally->places[i].place, name) == 0)
            return (struct mt_tally_place *)&tally->places[i];
    return NULL;
}

/* A place of which nothing but words is known. */
static struct mt_tally_place *add_place(struct mt_tally *tally, struct mt_tally_arena *arena,
                                        const char *name)
{
    size_t n = tally->n_places;
    struct mt_tally_place *places = mt_tally_alloc(arena, (n + 1) * sizeof *places);
    char *own = mt_tally_text(arena, name);
    if (!places || !own)
        return NULL;
    for (size_t i = 0; i < n; i++)
        places[i] = tally->places[i];
    places[n] = (struct mt_tally_place){
        .place = own,
        .peak_resident_bytes = MT_UNKNOWN,
        .capacity_bytes = MT_UNKNOWN,
        .total_allocated_bytes = MT_UNKNOWN,
        .total_low_bytes = MT_UNKNOWN,
        .total_high_bytes = MT_UNKNOWN,
        .others_bytes = MT_UNKNOWN,
    };
    tally->places = places;
    tally->n_places = n + 1;
    return &places[n];
}

/* The rows with room for one more. */
static struct mt_tally_row *copy_rows(const struct mt_tally_place *place,
                                      struct mt_tally_arena *arena)
{
    struct mt_tally_row *rows = mt_tally_alloc(arena, (place->n_rows + 1) * sizeof *rows);
    for (size_t i = 0; rows && i < place->n_rows; i++)
        rows[i] = place->rows[i];
    return rows;
}

static int by_resident(const void *a, const void *b)
{
    const struct mt_tally_detail *x = a;
    const struct mt_tally_detail *y = b;
    return x->resident_bytes > y->resident_bytes ? -1 : x->resident_bytes < y->resident_bytes;
}

/* Takes up to `bytes` out of the heap. Returns how much, or MT_UNKNOWN without memory. */
static uint64_t take_from_heap(struct mt_tally_row *row, uint64_t bytes,
                               struct mt_tally_arena *arena)
{
    struct mt_tally_detail *details = mt_tally_alloc(arena, (row->n_details + 1) * sizeof *details);
    uint64_t taken = 0;
    if (!details)
        return MT_UNKNOWN;
    for (size_t i = 0; i < row->n_details; i++) {
        details[i] = row->details[i];
        if (strcmp(details[i].name, HEAP) != 0)
            continue;
        uint64_t part = details[i].resident_bytes < bytes ? details[i].resident_bytes : bytes;
        details[i].resident_bytes -= part;
        if (details[i].allocated_bytes != MT_UNKNOWN)
            details[i].allocated_bytes -=
                details[i].allocated_bytes < part ? details[i].allocated_bytes : part;
        bytes -= part;
        taken += part;
    }
    qsort(details, row->n_details, sizeof *details, by_resident);
    row->details = details;
    row->resident_bytes -= taken;
    row->allocated_bytes = 0;
    for (size_t i = 0; i < row->n_details; i++)
        row->allocated_bytes =
            row->allocated_bytes == MT_UNKNOWN || details[i].allocated_bytes == MT_UNKNOWN
                ? MT_UNKNOWN
                : row->allocated_bytes + details[i].allocated_bytes;
    return taken;
}

static struct mt_tally_row *row_of(struct mt_tally_row *rows, size_t n, enum mt_category category)
{
    for (size_t i = 0; i < n; i++)
        if (rows[i].category == category)
            return &rows[i];
    return NULL;
}

/* Rows are in the order of the categories. */
static struct mt_tally_row *insert_row(struct mt_tally_row *rows, size_t n,
                                       enum mt_category category)
{
    size_t at = 0;
    while (at < n && rows[at].category < category)
        at++;
    memmove(&rows[at + 1], &rows[at], (n - at) * sizeof *rows);
    rows[at] = (struct mt_tally_row){.category = category,
                                     .low_bytes = MT_UNKNOWN,
                                     .high_bytes = MT_UNKNOWN,
                                     .provenance = MT_PROVENANCE_READ};
    return &rows[at];
}

static int add_detail(struct mt_tally_row *row, const struct mt_tally_word *word, uint64_t moved,
                      struct mt_tally_arena *arena)
{
    struct mt_tally_detail *details = mt_tally_alloc(arena, (row->n_details + 1) * sizeof *details);
    char *name = mt_tally_text(arena, word->name);
    if (!details || !name)
        return MT_ENOMEM;
    for (size_t i = 0; i < row->n_details; i++)
        details[i] = row->details[i];
    details[row->n_details++] = (struct mt_tally_detail){
        .name = name,
        .allocated_bytes = word->bytes,
        .resident_bytes = moved,
        .provenance = word->provenance,
        .low_bytes = MT_UNKNOWN,
        .high_bytes = MT_UNKNOWN,
    };
    qsort(details, row->n_details, sizeof *details, by_resident);
    row->details = details;
    row->resident_bytes += moved;
    row->allocated_bytes =
        row->allocated_bytes == MT_UNKNOWN ? MT_UNKNOWN : row->allocated_bytes + word->bytes;
    if (word->provenance > row->provenance)
        row->provenance = word->provenance;
    return 0;
}

/* A row that says that nobody knows; one that is there says more. */
static int add_unknown(struct mt_tally_place *place, const struct mt_tally_word *word,
                       struct mt_tally_arena *arena)
{
    if (mt_tally_row_of(place, word->category))
        return 0;
    struct mt_tally_row *rows = copy_rows(place, arena);
    if (!rows)
        return MT_ENOMEM;
    struct mt_tally_row *row = insert_row(rows, place->n_rows, word->category);
    row->resident_bytes = row->allocated_bytes = MT_UNKNOWN;
    row->provenance = word->provenance;
    place->rows = rows;
    place->n_rows++;
    return 0;
}

/* What a place of words has in all is not known where one of its rows is not. */
static void add_up_words(struct mt_tally_place *place)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < place->n_rows && sum != MT_UNKNOWN; i++) {
        uint64_t bytes = place->rows[i].resident_bytes;
        sum = bytes == MT_UNKNOWN ? MT_UNKNOWN : sum + bytes;
    }
    place->total_resident_bytes = sum;
    place->unattributed_bytes = sum == MT_UNKNOWN ? MT_UNKNOWN : 0;
}

static int move(struct mt_tally_place *place, const struct mt_tally_word *word, int is_new,
                struct mt_tally_arena *arena)
{
    struct mt_tally_row *rows = copy_rows(place, arena);
    uint64_t left = is_new ? 0 : place->unattributed_bytes;
    uint64_t moved = word->bytes < left ? word->bytes : left;
    uint64_t heap = 0;
    if (!rows)
        return MT_ENOMEM;
    struct mt_tally_row *runtime = row_of(rows, place->n_rows, MT_CATEGORY_RUNTIME);
    if (runtime && moved < word->bytes)
        heap = take_from_heap(runtime, word->bytes - moved, arena);
    if (heap == MT_UNKNOWN)
        return MT_ENOMEM;
    if (!is_new)
        place->unattributed_bytes -= moved;
    struct mt_tally_row *row = row_of(rows, place->n_rows, word->category);
    if (!row) {
        row = insert_row(rows, place->n_rows, word->category);
        place->n_rows++;
    } else if (row->resident_bytes == MT_UNKNOWN) {
        row->resident_bytes = row->allocated_bytes = 0;
    }
    place->rows = rows;
    return add_detail(row, word, is_new ? word->bytes : moved + heap, arena);
}

int mt_tally_tell(struct mt_tally *tally, const struct mt_tally_word *word, struct mt_error *error)
{
    struct mt_tally_arena *arena = (struct mt_tally_arena *)tally;
    if (tally->kind != MT_TALLY_MEASUREMENT || word->category <= MT_CATEGORY_NONE ||
        word->category >= MT_CATEGORY_END || !word->place || !word->name)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "a word on a tally needs a measurement, a place, a category and a name");
    struct mt_tally_place *place = find_place(tally, word->place);
    int is_unseen = !place || place->is_told;
    if (!place)
        place = add_place(tally, arena, word->place);
    int result = !place                      ? MT_ENOMEM
                 : word->bytes == MT_UNKNOWN ? add_unknown(place, word, arena)
                                             : move(place, word, is_unseen, arena);
    if (result < 0)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    if (is_unseen)
        add_up_words(place);
    place->is_told = is_unseen;
    MT_HOLDS(mt_tally_adds_up(tally));
    return 0;
}
