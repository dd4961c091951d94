/* SPDX-License-Identifier: MIT */
/* Comparing component by component.
 *
 * Knows tallies and figures; what stands in a file, and how a comparison is shown, it must not
 * know. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/units.h>

#include "base/error.h"
#include "base/invariant.h"
#include "base/out_of_memory.h"
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

/* ---- differences ---- */

void mt_compare_settings_init(struct mt_compare_settings *settings)
{
    static const double bands[] = {
#define BAND(NAME_, name, band) [MT_COMPONENT_##NAME_] = band,
        MT_COMPONENT_LIST(BAND)
#undef BAND
    };
    *settings = (struct mt_compare_settings){
        .context_tokens = MT_UNKNOWN, .sequence_tokens = MT_UNKNOWN, .ubatch = MT_UNKNOWN};
    memcpy(settings->band_ratio, bands, sizeof bands);
}

static void compare_component(struct mt_component_difference *result,
                              const struct mt_component_figure *a,
                              const struct mt_component_figure *b, double band)
{
    *result = (struct mt_component_difference){
        .a = *a, .b = *b, .band_ratio = band, .accuracy_ratio = -1};
    if (!a->known || !b->known)
        return;
    int64_t difference = mt_compare_subtract(b->bytes, a->bytes);
    double size = fabs((double)difference);
    double reference = fabs((double)a->bytes);
    result->difference_bytes = difference;
    if (reference > 0) {
        result->ratio_known = 1;
        result->difference_ratio = (double)difference / reference;
        result->accuracy_ratio = size < reference ? 1 - size / reference : 0;
    }
    if (size <= band * reference)
        result->verdict = MT_COMPARE_WITHIN;
    else
        result->verdict = difference > 0 ? MT_COMPARE_OVER : MT_COMPARE_UNDER;
}

static void compare_components(struct mt_component_difference *results,
                               const struct mt_components *a, const struct mt_components *b,
                               const struct mt_compare_settings *settings)
{
    for (int i = 0; i < MT_COMPONENT_COUNT; i++)
        compare_component(&results[i], &a->of[i], &b->of[i], settings->band_ratio[i]);
}

static void components_of_side(const struct mt_compare_side *side, enum mt_basis basis,
                               struct mt_components *components)
{
    if (side->tally) {
        mt_components_of_tally(side->tally, basis, components);
        return;
    }
    *components = side->figures;
    mt_components_complete(components);
    for (int i = 0; i < MT_COMPONENT_COUNT; i++)
        components->of[i].basis = basis;
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

static void compare_place(struct mt_comparing *comparing, struct mt_place_difference *result,
                          const struct mt_tally_place *a, const struct mt_tally_place *b)
{
    const struct mt_tally_place none = {.unattributed_bytes = 0};
    enum mt_basis basis = comparing->settings->basis;
    struct mt_components of_a;
    struct mt_components of_b;
    mt_components_of_place(a ? a : &none, comparing->a->tally->kind, basis, &of_a);
    mt_components_of_place(b ? b : &none, comparing->b->tally->kind, basis, &of_b);
    result->place = a ? a->place : b->place;
    result->in_a = a != NULL;
    result->in_b = b != NULL;
    compare_components(result->components, &of_a, &of_b, comparing->settings);
}

static int compare_places(struct mt_comparing *comparing)
{
    const struct mt_tally *a = comparing->a->tally;
    const struct mt_tally *b = comparing->b->tally;
    struct mt_place_difference *places =
        mt_arena_array(&comparing->arena, a->n_places + b->n_places + 1, sizeof *places);
    size_t n = 0;
    if (!places)
        return MT_ENOMEM;
    for (size_t i = 0; i < a->n_places; i++)
        compare_place(comparing, &places[n++], &a->places[i],
                      mt_compare_partner(a, b, &a->places[i]));
    for (size_t i = 0; i < b->n_places; i++)
        if (!mt_compare_partner(b, a, &b->places[i]))
            compare_place(comparing, &places[n++], NULL, &b->places[i]);
    comparing->comparison.places = places;
    comparing->comparison.n_places = n;
    return 0;
}

/* ---- the whole ---- */

static void rate(struct mt_comparison *comparison)
{
    const struct mt_component_difference *of = comparison->components;
    double off = 0;
    int parts_known = of[MT_COMPONENT_TOTAL].ratio_known;
    int n = 0;
    comparison->all_within = 1;
    for (int i = 0; i < MT_COMPONENT_COUNT; i++) {
        if (of[i].verdict == MT_COMPARE_NOT_COMPARABLE)
            continue;
        n++;
        comparison->all_within &= of[i].verdict == MT_COMPARE_WITHIN;
    }
    comparison->all_within &= n > 0;
    for (int i = 0; i < MT_COMPONENT_TOTAL; i++) {
        parts_known &= of[i].verdict != MT_COMPARE_NOT_COMPARABLE;
        off += fabs((double)of[i].difference_bytes);
    }
    comparison->accuracy_ratio = of[MT_COMPONENT_TOTAL].accuracy_ratio;
    comparison->parts_accuracy_ratio = -1;
    if (parts_known)
        comparison->parts_accuracy_ratio =
            fmax(0, 1 - off / fabs((double)of[MT_COMPONENT_TOTAL].a.bytes));
}

static void find_what_is_left(struct mt_comparison *comparison)
{
    const struct mt_component_difference *of = comparison->components;
    int64_t left = of[MT_COMPONENT_TOTAL].a.bytes;
    comparison->left_known = of[MT_COMPONENT_TOTAL].a.known;
    for (int i = 0; i < MT_COMPONENT_OVERHEAD; i++) {
        comparison->left_known &= of[i].b.known;
        left = mt_compare_subtract(left, of[i].b.bytes);
    }
    comparison->left_bytes = comparison->left_known ? left : 0;
}

static int fill(struct mt_comparing *comparing)
{
    struct mt_comparison *comparison = &comparing->comparison;
    struct mt_components a;
    struct mt_components b;
    components_of_side(comparing->a, comparing->settings->basis, &a);
    components_of_side(comparing->b, comparing->settings->basis, &b);
    comparison->basis = comparing->settings->basis;
    compare_components(comparison->components, &a, &b, comparing->settings);
    rate(comparison);
    find_what_is_left(comparison);
    if (comparing->a->tally && comparing->b->tally &&
        (compare_places(comparing) || mt_compare_rows(comparing)))
        return MT_ENOMEM;
    return mt_compare_advise(comparing);
}

int mt_compare(const struct mt_compare_side *a, const struct mt_compare_side *b,
               const struct mt_compare_settings *settings, struct mt_comparison **comparison,
               struct mt_error *error)
{
    for (int i = 0; i < MT_COMPONENT_COUNT; i++)
        if (!(settings->band_ratio[i] >= 0))
            return mt_fail(error, MT_EARG, MT_NO_OFFSET, "the band of %s is not a share of it",
                           mt_component_name((enum mt_component)i));
    struct mt_comparing *comparing = calloc(1, sizeof *comparing);
    if (!comparing)
        return mt_out_of_memory(error);
    comparing->a = a;
    comparing->b = b;
    comparing->settings = settings;
    if (fill(comparing)) {
        mt_comparison_destroy(&comparing->comparison);
        return mt_out_of_memory(error);
    }
    MT_HOLDS(mt_comparison_is_valid(&comparing->comparison));
    *comparison = &comparing->comparison;
    return 0;
}

void mt_comparison_destroy(struct mt_comparison *comparison)
{
    struct mt_comparing *comparing = (struct mt_comparing *)comparison;
    if (!comparing)
        return;
    mt_arena_finish(&comparing->arena);
    free(comparing);
}
