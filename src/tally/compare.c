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
