/* SPDX-License-Identifier: MIT */
/* A tally as few components that can be compared: names, and what rows come to. */
#include <memtally/units.h>
#include <stdint.h>
#include <string.h>

#include "tally/compare.h"

const char *mt_component_name(enum mt_component component)
{
    static const char *const names[] = {
#define NAME(NAME_, name, band) [MT_COMPONENT_##NAME_] = name,
        MT_COMPONENT_LIST(NAME)
#undef NAME
    };
    return (unsigned)component < MT_COMPONENT_COUNT ? names[component] : "?";
}

const char *mt_basis_name(enum mt_basis basis)
{
    return basis == MT_BASIS_RESERVED ? "reserved" : "resident";
}

const char *mt_compare_verdict_name(enum mt_compare_verdict verdict)
{
    static const char *const names[] = {
        [MT_COMPARE_NOT_COMPARABLE] = "not comparable",
        [MT_COMPARE_WITHIN] = "within",
        [MT_COMPARE_OVER] = "over",
        [MT_COMPARE_UNDER] = "under",
    };
    return (unsigned)verdict < 4 ? names[verdict] : "?";
}

enum mt_component mt_component_of(enum mt_category category)
{
    switch (category) {
    case MT_CATEGORY_WEIGHTS:
        return MT_COMPONENT_WEIGHTS;
    case MT_CATEGORY_KV_CACHE:
    case MT_CATEGORY_RECURRENT_STATE:
        return MT_COMPONENT_KV_CACHE;
    case MT_CATEGORY_ACTIVATIONS:
        return MT_COMPONENT_ACTIVATIONS;
    default:
        return MT_COMPONENT_OVERHEAD;
    }
}

int64_t mt_compare_add(int64_t a, int64_t b)
{
    int64_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return a < 0 ? INT64_MIN : INT64_MAX;
    return sum;
}

int64_t mt_compare_subtract(int64_t a, int64_t b)
{
    int64_t difference;
    if (__builtin_sub_overflow(a, b, &difference))
        return a < 0 ? INT64_MIN : INT64_MAX;
    return difference;
}

static int64_t clamped(uint64_t bytes)
{
    return bytes > INT64_MAX ? INT64_MAX : (int64_t)bytes;
}

static uint64_t known_sum(uint64_t a, uint64_t b)
{
    uint64_t sum;
    if (a == MT_UNKNOWN || b == MT_UNKNOWN)
        return MT_UNKNOWN;
    return __builtin_add_overflow(a, b, &sum) ? MT_UNKNOWN - 1 : sum;
}

/* ---- the components of a tally ---- */

uint64_t mt_compare_bytes(enum mt_category category, enum mt_tally_kind kind, enum mt_basis basis,
                          uint64_t allocated_bytes, uint64_t resident_bytes)
{
    int reserved = mt_component_of(category) != MT_COMPONENT_OVERHEAD;
    if (kind == MT_TALLY_ESTIMATE)
        return reserved && basis == MT_BASIS_RESIDENT ? MT_UNKNOWN : allocated_bytes;
    if (reserved && basis == MT_BASIS_RESERVED && allocated_bytes != MT_UNKNOWN)
        return allocated_bytes;
    return resident_bytes == MT_UNKNOWN && !reserved ? allocated_bytes : resident_bytes;
}

/* A row's allocated bytes are unknown as soon as those of one part are; what is known of its other
 * parts still counts. */
uint64_t mt_compare_row_bytes(const struct mt_tally_row *row, enum mt_tally_kind kind,
                              enum mt_basis basis)
{
    uint64_t sum = 0;
    if (row->allocated_bytes != MT_UNKNOWN || row->n_details == 0)
        return mt_compare_bytes(row->category, kind, basis, row->allocated_bytes,
                                row->resident_bytes);
    for (size_t i = 0; i < row->n_details; i++)
        sum = known_sum(sum, mt_compare_bytes(row->category, kind, basis,
                                              row->details[i].allocated_bytes,
                                              row->details[i].resident_bytes));
    return sum;
}

static void add_bytes(struct mt_component_figure *figure, uint64_t bytes)
{
    if (bytes == MT_UNKNOWN)
        figure->known = 0;
    else
        figure->bytes = mt_compare_add(figure->bytes, clamped(bytes));
}

static void add_row(struct mt_components *components, const struct mt_tally_row *row,
                    enum mt_tally_kind kind, enum mt_basis basis)
{
    enum mt_component component = mt_component_of(row->category);
    struct mt_component_figure *figure = &components->of[component];
    add_bytes(figure, mt_compare_row_bytes(row, kind, basis));
    if (kind == MT_TALLY_MEASUREMENT && row->allocated_bytes == MT_UNKNOWN)
        figure->basis = MT_BASIS_RESIDENT;
    figure->allocated_bytes = known_sum(figure->allocated_bytes, row->allocated_bytes);
    figure->resident_bytes = known_sum(figure->resident_bytes, row->resident_bytes);
}

/* The total as the sum of the parts, so that it adds up on its basis. */
static void add_up(struct mt_components *components)
{
    struct mt_component_figure *total = &components->of[MT_COMPONENT_TOTAL];
    total->known = 1;
    total->bytes = 0;
    total->allocated_bytes = 0;
    total->resident_bytes = 0;
    for (int i = 0; i < MT_COMPONENT_TOTAL; i++) {
        const struct mt_component_figure *part = &components->of[i];
        total->known &= part->known;
        total->bytes = mt_compare_add(total->bytes, part->bytes);
        total->allocated_bytes = known_sum(total->allocated_bytes, part->allocated_bytes);
        total->resident_bytes = known_sum(total->resident_bytes, part->resident_bytes);
    }
}

void mt_components_of_place(const struct mt_tally_place *place, enum mt_tally_kind kind,
                            enum mt_basis basis, struct mt_components *components)
{
    *components = (struct mt_components){0};
    for (int i = 0; i < MT_COMPONENT_COUNT; i++)
        components->of[i] = (struct mt_component_figure){
            .known = kind == MT_TALLY_MEASUREMENT || basis == MT_BASIS_RESERVED ||
                     i == MT_COMPONENT_OVERHEAD,
            .basis = basis,
        };
    for (size_t i = 0; i < place->n_rows; i++)
        add_row(components, &place->rows[i], kind, basis);
    if (kind == MT_TALLY_MEASUREMENT) {
        struct mt_component_figure *overhead = &components->of[MT_COMPONENT_OVERHEAD];
        add_bytes(overhead, place->unattributed_bytes);
        overhead->basis = MT_BASIS_RESIDENT;
        overhead->resident_bytes = known_sum(overhead->resident_bytes, place->unattributed_bytes);
        overhead->allocated_bytes = MT_UNKNOWN;
    }
    add_up(components);
}

void mt_components_of_tally(const struct mt_tally *tally, enum mt_basis basis,
                            struct mt_components *components)
{
    const struct mt_tally_place none = {.unattributed_bytes = 0};
    struct mt_components sum;
    mt_components_of_place(&none, tally->kind, basis, &sum);
    for (size_t p = 0; p < tally->n_places; p++) {
        struct mt_components place;
        mt_components_of_place(&tally->places[p], tally->kind, basis, &place);
        for (int i = 0; i < MT_COMPONENT_TOTAL; i++) {
            struct mt_component_figure *figure = &sum.of[i];
            figure->known &= place.of[i].known;
            figure->bytes = mt_compare_add(figure->bytes, place.of[i].bytes);
            figure->allocated_bytes =
                known_sum(figure->allocated_bytes, place.of[i].allocated_bytes);
            figure->resident_bytes = known_sum(figure->resident_bytes, place.of[i].resident_bytes);
            if (place.of[i].basis != basis)
                figure->basis = place.of[i].basis;
        }
    }
    add_up(&sum);
    *components = sum;
}

void mt_components_complete(struct mt_components *components)
{
    struct mt_component_figure *overhead = &components->of[MT_COMPONENT_OVERHEAD];
    struct mt_component_figure *total = &components->of[MT_COMPONENT_TOTAL];
    int64_t named = 0;
    for (int i = 0; i < MT_COMPONENT_COUNT; i++)
        components->of[i].allocated_bytes = components->of[i].resident_bytes = MT_UNKNOWN;
    for (int i = 0; i < MT_COMPONENT_OVERHEAD; i++) {
        if (!components->of[i].known)
            return;
        named = mt_compare_add(named, components->of[i].bytes);
    }
    if (overhead->known && !total->known) {
        total->known = 1;
        total->bytes = mt_compare_add(named, overhead->bytes);
    } else if (total->known && !overhead->known) {
        overhead->known = 1;
        overhead->bytes = mt_compare_subtract(total->bytes, named);
    }
}
