/* SPDX-License-Identifier: MIT */
/* Comparing two tallies category by category and part by part.
 *
 * Everything of both sides is laid out as items, sorted so that what belongs together stands side
 * by side, and folded: time is that of a sort, however many parts there are. */
#include <stdlib.h>
#include <string.h>

#include <memtally/error_code.h>
#include <memtally/units.h>

#include "tally/compare.h"

/* A row (`name` NULL) or a part of a row of one side. */
struct item {
    size_t place; /* number among the places of the comparison */
    enum mt_category category;
    const char *name;
    int in_b;
    uint64_t bytes;
};

struct items {
    struct item *items;
    size_t n;
};

static size_t count_items(const struct mt_tally *tally)
{
    size_t n = 0;
    for (size_t p = 0; p < tally->n_places; p++) {
        n++; /* what is unattributed */
        for (size_t r = 0; r < tally->places[p].n_rows; r++)
            n += 1 + tally->places[p].rows[r].n_details;
    }
    return n;
}

static void add_place(struct items *items, const struct mt_tally_place *place,
                      enum mt_tally_kind kind, enum mt_basis basis, struct item item)
{
    for (size_t r = 0; r < place->n_rows; r++) {
        const struct mt_tally_row *row = &place->rows[r];
        item.category = row->category;
        item.name = NULL;
        item.bytes = mt_compare_row_bytes(row, kind, basis);
        items->items[items->n++] = item;
        for (size_t d = 0; d < row->n_details; d++) {
            item.name = row->details[d].name;
            item.bytes =
                mt_compare_bytes(row->category, kind, basis, row->details[d].allocated_bytes,
                                 row->details[d].resident_bytes);
            items->items[items->n++] = item;
        }
    }
    item.category = MT_CATEGORY_NONE;
    item.name = NULL;
    item.bytes = place->unattributed_bytes;
    if (kind == MT_TALLY_MEASUREMENT)
        items->items[items->n++] = item;
}

/* The places of the comparison are those of A, then those of B that A has not. */
static size_t number_of(const struct mt_comparing *comparing, const struct mt_tally_place *place)
{
    const struct mt_tally *a = comparing->a->tally;
    const struct mt_tally *b = comparing->b->tally;
    const struct mt_tally_place *partner = mt_compare_partner(b, a, place);
    const char *name = partner ? partner->place : place->place;
    size_t i = 0;
    while (strcmp(comparing->comparison.places[i].place, name) != 0)
        i++;
    return i;
}

static void add_side(const struct mt_comparing *comparing, struct items *items, int in_b)
{
    const struct mt_tally *tally = in_b ? comparing->b->tally : comparing->a->tally;
    for (size_t p = 0; p < tally->n_places; p++) {
        struct item item = {.place = in_b ? number_of(comparing, &tally->places[p]) : p,
                            .in_b = in_b};
        add_place(items, &tally->places[p], tally->kind, comparing->settings->basis, item);
    }
}

static int compare_keys(const struct item *a, const struct item *b)
{
    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    if (a->category != b->category)
        return a->category < b->category ? -1 : 1;
    if (!a->name || !b->name)
        return (a->name != NULL) - (b->name != NULL);
    return strcmp(a->name, b->name);
}

static int compare_items(const void *left, const void *right)
{
    return compare_keys(left, right);
}

static void add_item(struct mt_difference *difference, const struct item *item)
{
    uint64_t *bytes = item->in_b ? &difference->b_bytes : &difference->a_bytes;
    if (item->in_b)
        difference->in_b = 1;
    else
        difference->in_a = 1;
    if (item->bytes == MT_UNKNOWN || *bytes == MT_UNKNOWN ||
        __builtin_add_overflow(*bytes, item->bytes, bytes))
        *bytes = MT_UNKNOWN;
}

static void close_difference(struct mt_difference *difference)
{
    uint64_t a = difference->a_bytes;
    uint64_t b = difference->b_bytes;
    difference->known = a <= INT64_MAX && b <= INT64_MAX;
    if (difference->known)
        difference->difference_bytes = (int64_t)b - (int64_t)a;
}

static uint64_t magnitude(const struct mt_difference *difference)
{
    int64_t bytes = difference->difference_bytes;
    return bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes;
}

static int compare_names(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) : (a != NULL) - (b != NULL);
}

/* The largest difference first; what is equal in the order of names, so that the result does not
 * depend on the sort. */
static int compare_differences(const void *left, const void *right)
{
    const struct mt_difference *a = left;
    const struct mt_difference *b = right;
    if (magnitude(a) != magnitude(b))
        return magnitude(a) > magnitude(b) ? -1 : 1;
    int order = compare_names(a->place, b->place);
    if (order == 0)
        order = (a->category > b->category) - (a->category < b->category);
    return order ? order : compare_names(a->name, b->name);
}

/* One difference for each run of items of one key, rows and parts apart. */
static void fold(struct mt_comparing *comparing, const struct items *items,
                 struct mt_difference *rows, struct mt_difference *parts)
{
    struct mt_comparison *comparison = &comparing->comparison;
    struct mt_difference *open = NULL;
    for (size_t i = 0; i < items->n; i++) {
        const struct item *item = &items->items[i];
        if (i == 0 || compare_keys(item, item - 1) != 0) {
            open = item->name ? &parts[comparison->n_parts++] : &rows[comparison->n_rows++];
            *open = (struct mt_difference){.place = comparison->places[item->place].place,
                                           .category = item->category,
                                           .name = item->name};
        }
        add_item(open, item);
        close_difference(open);
    }
}

/* Whether a part is on one side alone. */
static int is_single(const struct mt_difference *part)
{
    return part->in_a != part->in_b && part->known;
}

static uint64_t single_bytes(const struct mt_difference *part)
{
    return part->in_a ? part->a_bytes : part->b_bytes;
}

/* Parts of one side alone first, those that differ in their name only side by side, A's before B's.
 */
static int compare_singles(const void *left, const void *right)
{
    const struct mt_difference *a = left;
    const struct mt_difference *b = right;
    if (is_single(a) != is_single(b))
        return is_single(b) - is_single(a);
    int order = compare_names(a->place, b->place);
    if (order == 0)
        order = (a->category > b->category) - (a->category < b->category);
    if (order == 0 && is_single(a) && single_bytes(a) != single_bytes(b))
        return single_bytes(a) < single_bytes(b) ? -1 : 1;
    if (order == 0 && is_single(a))
        order = a->in_b - b->in_b;
    return order ? order : compare_names(a->name, b->name);
}

static int differ_in_name_only(const struct mt_difference *a, const struct mt_difference *b)
{
    return is_single(a) && is_single(b) && a->in_a != b->in_a && a->category == b->category &&
           single_bytes(a) == single_bytes(b) && strcmp(a->place, b->place) == 0;
}

/* What two engines or two models call differently, and is as large, is one part. Returns how many
 * parts are left. */
static size_t fold_names(struct mt_difference *parts, size_t n)
{
    size_t n_kept = 0;
    size_t open = 0; /* the first of A that may still find its like */
    qsort(parts, n, sizeof *parts, compare_singles);
    for (size_t i = 0; i < n; i++) {
        struct mt_difference part = parts[i];
        while (is_single(&part) && part.in_b && open < n_kept &&
               !differ_in_name_only(&parts[open], &part))
            open++;
        if (!is_single(&part) || part.in_a || open == n_kept) {
            parts[n_kept++] = part;
            continue;
        }
        parts[open].in_b = 1;
        parts[open].b_bytes = part.b_bytes;
        close_difference(&parts[open++]);
    }
    return n_kept;
}

/* The place at `ordinal` among the devices. */
static const struct mt_tally_place *device_at(const struct mt_tally *tally, size_t ordinal)
{
    for (size_t i = 0; i < tally->n_places; i++)
        if (strncmp(tally->places[i].place, "gpu:", 4) == 0 && ordinal-- == 0)
            return &tally->places[i];
    return NULL;
}

static const struct mt_tally_place *place_called(const struct mt_tally *tally, const char *name)
{
    for (size_t i = 0; i < tally->n_places; i++)
        if (strcmp(tally->places[i].place, name) == 0)
            return &tally->places[i];
    return NULL;
}

/* Devices that both sides know by the same name are matched by it; as soon as one is not, all are
 * matched in their order, so that no place is taken twice. */
static int devices_have_names(const struct mt_tally *a, const struct mt_tally *b)
{
    for (size_t i = 0; i < a->n_places; i++)
        if (strncmp(a->places[i].place, "gpu:", 4) == 0 && place_called(b, a->places[i].place))
            return 1;
    return 0;
}

const struct mt_tally_place *mt_compare_partner(const struct mt_tally *a, const struct mt_tally *b,
                                                const struct mt_tally_place *place)
{
    size_t ordinal = 0;
    if (strncmp(place->place, "gpu:", 4) != 0 || devices_have_names(a, b))
        return place_called(b, place->place);
    for (const struct mt_tally_place *p = a->places; p != place; p++)
        ordinal += strncmp(p->place, "gpu:", 4) == 0;
    return device_at(b, ordinal);
}

int mt_compare_rows(struct mt_comparing *comparing)
{
    struct mt_comparison *comparison = &comparing->comparison;
    size_t n = count_items(comparing->a->tally) + count_items(comparing->b->tally);
    struct items items = {mt_arena_array(&comparing->arena, n + 1, sizeof *items.items), 0};
    struct mt_difference *rows = mt_arena_array(&comparing->arena, n + 1, sizeof *rows);
    struct mt_difference *parts = mt_arena_array(&comparing->arena, n + 1, sizeof *parts);
    if (!items.items || !rows || !parts)
        return MT_ENOMEM;
    add_side(comparing, &items, 0);
    add_side(comparing, &items, 1);
    qsort(items.items, items.n, sizeof *items.items, compare_items);
    fold(comparing, &items, rows, parts);
    if (comparing->a->tally->kind == MT_TALLY_ESTIMATE &&
        comparing->b->tally->kind == MT_TALLY_ESTIMATE)
        comparison->n_parts = fold_names(parts, comparison->n_parts);
    qsort(rows, comparison->n_rows, sizeof *rows, compare_differences);
    qsort(parts, comparison->n_parts, sizeof *parts, compare_differences);
    comparison->rows = rows;
    comparison->parts = parts;
    return 0;
}
