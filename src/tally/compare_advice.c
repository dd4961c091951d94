/* SPDX-License-Identifier: MIT */
/* Why figures differ: the order of the advisers, units, and what concerns the overhead and the
 * whole. */
#include "tally/compare_advice.h"

#include <math.h>
#include <memtally/error_code.h>
#include <memtally/model_file.h>
#include <memtally/units.h>
#include <stdarg.h>
#include <string.h>

#define GIB_PER_GB 1.073741824

static const char *size_of(int64_t bytes, char text[MT_SIZE_TEXT])
{
    return mt_format_size(bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes, text);
}

/* ---- GB or GiB ---- */

/* How many of the components differ by just `factor`. Weights alone are enough: they are known so
 * well that nothing else puts them 7.4 % off. */
static int agreeing(const struct mt_advising *advising, double factor)
{
    int n = 0;
    if (mt_advise_near(mt_advise_factor(advising, MT_COMPONENT_WEIGHTS), factor, 0.006))
        n += 2;
    for (int i = MT_COMPONENT_KV_CACHE; i < MT_COMPONENT_COUNT; i++)
        n += mt_advise_near(mt_advise_factor(advising, (enum mt_component)i), factor, 0.006);
    return n;
}

/* Returns whether the unit explains the difference of the weights. */
static int advise_unit(struct mt_advising *advising)
{
    int of_b = advising->comparing->b->from_gigabytes;
    int of_a = advising->comparing->a->from_gigabytes;
    if (!of_a && !of_b)
        return 0;
    int too_large = agreeing(advising, GIB_PER_GB) >= 2;
    int too_small = agreeing(advising, 1 / GIB_PER_GB) >= 2;
    if (!too_large && !too_small)
        return 0;
    int were_gb = of_b ? too_large : too_small;
    mt_advise(advising, MT_COMPONENT_TOTAL, "gigabytes_mixed_up",
              "The figures differ by 7.4 %%, which is the difference between GiB (2^30) and GB "
              "(10^9): those that were read as %s are %s. Say which: --calc-unit or --gb-is %s.",
              were_gb ? "GiB" : "GB", were_gb ? "GB" : "GiB", were_gb ? "GB" : "GiB");
    return mt_advise_near(mt_advise_factor(advising, MT_COMPONENT_WEIGHTS),
                          too_large ? GIB_PER_GB : 1 / GIB_PER_GB, 0.006);
}

/* ---- the overhead ---- */

/* The largest row of A that belongs to the overhead. */
static const struct mt_tally_row *largest_overhead(const struct mt_tally *tally)
{
    const struct mt_tally_row *largest = NULL;
    for (size_t p = 0; tally && p < tally->n_places; p++)
        for (size_t r = 0; r < tally->places[p].n_rows; r++) {
            const struct mt_tally_row *row = &tally->places[p].rows[r];
            if (mt_component_of(row->category) == MT_COMPONENT_OVERHEAD &&
                row->resident_bytes != MT_UNKNOWN &&
                (!largest || row->resident_bytes > largest->resident_bytes))
                largest = row;
        }
    return largest;
}

static void advise_low_overhead(struct mt_advising *advising)
{
    const struct mt_tally_row *row = largest_overhead(advising->comparing->a->tally);
    char size[MT_SIZE_TEXT];
    char part[MT_SIZE_TEXT];
    const char *remedy = mt_advise_is_foreign(advising)
                             ? "use a fixed figure for this engine, or learn it with --learn"
                             : "learn it with --learn";
    if (!row)
        return;
    if (row->n_details)
        mt_advise(advising, MT_COMPONENT_OVERHEAD, "program_memory",
                  "Most of the overhead is %s (%s; the largest part is %s, %s). It belongs to the "
                  "program, not to the model: %s.",
                  mt_category_name(row->category), mt_format_size(row->resident_bytes, size),
                  row->details[0].name, mt_format_size(row->details[0].resident_bytes, part),
                  remedy);
    else
        mt_advise(advising, MT_COMPONENT_OVERHEAD, "program_memory",
                  "Most of the overhead is %s (%s). It belongs to the program, not to the model: "
                  "%s.",
                  mt_category_name(row->category), mt_format_size(row->resident_bytes, size),
                  remedy);
}

static int has_device(const struct mt_tally *tally)
{
    for (size_t p = 0; tally && p < tally->n_places; p++)
        if (strncmp(tally->places[p].place, "gpu:", 4) == 0)
            return 1;
    return 0;
}

static void advise_high_overhead(struct mt_advising *advising)
{
    const struct mt_tally *tally = advising->comparing->a->tally;
    if (tally && !has_device(tally) && advising->comparing->b->kind == MT_SIDE_FIGURES)
        mt_advise(advising, MT_COMPONENT_OVERHEAD, "no_device_context",
                  "No device was used: a figure that allows for a driver's context and workspace "
                  "is too high here.");
    else if (!mt_advise_is_foreign(advising))
        mt_advise(advising, MT_COMPONENT_OVERHEAD, "learn_overhead",
                  "This machine takes less than the estimate allows for: put what was measured in "
                  "its place with --learn.");
    else
        mt_advise(advising, MT_COMPONENT_OVERHEAD, "allowance_too_high",
                  "Lower the fixed allowance, or put the measured one in its place with --learn.");
}

/* B's own parts exceed B's own total. */
static void advise_own_negative(struct mt_advising *advising)
{
    char size[MT_SIZE_TEXT];
    size_of(advising->of[MT_COMPONENT_OVERHEAD].b.bytes, size);
    mt_advise(advising, MT_COMPONENT_OVERHEAD, "parts_exceed_total",
              "Weights, KV cache and activations together exceed the total given with them by %s: "
              "something is counted twice, or the total is of another moment or unit.",
              size);
}

/* The component in which B has most more than A. */
static enum mt_component most_over(const struct mt_advising *advising)
{
    enum mt_component most = MT_COMPONENT_WEIGHTS;
    for (int i = 0; i < MT_COMPONENT_OVERHEAD; i++)
        if (advising->of[i].difference_bytes > advising->of[most].difference_bytes)
            most = (enum mt_component)i;
    return most;
}

/* A measurement's total does not hold what B's parts add up to. */
static void advise_negative_left(struct mt_advising *advising)
{
    const struct mt_comparison *comparison = &advising->comparing->comparison;
    enum mt_component most = most_over(advising);
    char size[MT_SIZE_TEXT];
    char over[MT_SIZE_TEXT];
    size_of(comparison->left_bytes, size);
    size_of(advising->of[most].difference_bytes, over);
    mt_advise(advising, MT_COMPONENT_OVERHEAD, "negative_overhead",
              "The measured total less B's weights, KV cache and activations is negative (-%s): "
              "they add up to more than there is. Most of it is %s, which is %s above the "
              "measured.",
              size, mt_component_name(most), over);
}

/* The same against the resident total, where the basis itself is the reason. */
static void advise_untouched(struct mt_advising *advising)
{
    const struct mt_component_difference *of = advising->of;
    uint64_t resident = of[MT_COMPONENT_TOTAL].a.resident_bytes;
    double left = (double)resident;
    char size[MT_SIZE_TEXT];
    char weights[MT_SIZE_TEXT];
    char activations[MT_SIZE_TEXT];
    if (resident == MT_UNKNOWN || !advising->comparing->comparison.left_known)
        return;
    uint64_t untouched[MT_COMPONENT_OVERHEAD];
    for (int i = 0; i < MT_COMPONENT_OVERHEAD; i++) {
        const struct mt_component_figure *a = &of[i].a;
        int is_known = a->allocated_bytes != MT_UNKNOWN && a->resident_bytes != MT_UNKNOWN;
        untouched[i] = is_known && a->allocated_bytes > a->resident_bytes
                           ? a->allocated_bytes - a->resident_bytes
                           : 0;
        left -= (double)of[i].b.bytes;
    }
    if (left >= 0)
        return;
    mt_advise(advising, MT_COMPONENT_OVERHEAD, "reserved_and_not_resident",
              "Against the resident total, B's parts would leave -%s for the overhead: of what was "
              "reserved, %s of the weights and %s of the activations are not resident (a mapped "
              "file that was not read whole, buffers that were not touched).",
              mt_format_size((uint64_t)-left, size),
              mt_format_size(untouched[MT_COMPONENT_WEIGHTS], weights),
              mt_format_size(untouched[MT_COMPONENT_ACTIVATIONS], activations));
}

void mt_advise_overhead(struct mt_advising *advising)
{
    const struct mt_component_difference *overhead = &advising->of[MT_COMPONENT_OVERHEAD];
    const struct mt_comparison *comparison = &advising->comparing->comparison;
    if (overhead->b.known && overhead->b.bytes < 0)
        advise_own_negative(advising);
    if (comparison->left_known && comparison->left_bytes < 0)
        advise_negative_left(advising);
    else
        advise_untouched(advising);
    if (overhead->b.known && overhead->b.bytes < 0)
        return;
    if (overhead->verdict == MT_COMPARE_UNDER)
        advise_low_overhead(advising);
    if (overhead->verdict == MT_COMPARE_OVER &&
        (mt_advise_is_foreign(advising) || advising->comparing->a->kind == MT_SIDE_MEASUREMENT))
        advise_high_overhead(advising);
}

/* ---- the whole ---- */

static void advise_total(struct mt_advising *advising)
{
    const struct mt_comparison *comparison = &advising->comparing->comparison;
    const struct mt_component_difference *of = advising->of;
    int64_t sum = 0;
    char size[MT_SIZE_TEXT];
    int all_known = of[MT_COMPONENT_TOTAL].b.known;
    for (int i = 0; i < MT_COMPONENT_TOTAL; i++) {
        all_known &= of[i].b.known;
        sum = mt_compare_add(sum, of[i].b.bytes);
    }
    double total = (double)of[MT_COMPONENT_TOTAL].b.bytes;
    if (all_known && !mt_advise_near((double)sum, total, 0.01))
        mt_advise(advising, MT_COMPONENT_TOTAL, "parts_do_not_add_up",
                  "B's four parts add up to %s, which is not its total.", size_of(sum, size));
    if (of[MT_COMPONENT_TOTAL].verdict == MT_COMPARE_WITHIN &&
        comparison->parts_accuracy_ratio >= 0 &&
        comparison->parts_accuracy_ratio < comparison->accuracy_ratio - 0.1)
        mt_advise(advising, MT_COMPONENT_TOTAL, "errors_cancel",
                  "The total is close because errors of its parts cancel out: part by part the "
                  "accuracy is %.1f %%. Another model or context need not be so lucky.",
                  100 * comparison->parts_accuracy_ratio);
}

/* Two measurements differ because the runs did: no formula is to be mended. */
static int two_measurements(const struct mt_comparing *comparing)
{
    return comparing->a->kind == MT_SIDE_MEASUREMENT && comparing->b->kind == MT_SIDE_MEASUREMENT;
}

int mt_compare_advise(struct mt_comparing *comparing)
{
    struct mt_advising advising = {.comparing = comparing, .of = comparing->comparison.components};
    const struct mt_model *model = comparing->settings->model;
    advising.d = model ? mt_model_describe(model) : NULL;
    if (two_measurements(comparing))
        return 0;
    if (!advise_unit(&advising)) {
        mt_advise_weights(&advising);
        mt_advise_kv_cache(&advising);
        mt_advise_activations(&advising);
        mt_advise_overhead(&advising);
    }
    advise_total(&advising);
    struct mt_advice *advice = mt_arena_array(&comparing->arena, advising.n + 1, sizeof *advice);
    if (!advice || advising.failed)
        return MT_ENOMEM;
    memcpy(advice, advising.advice, advising.n * sizeof *advice);
    comparing->comparison.advice = advice;
    comparing->comparison.n_advice = advising.n;
    return 0;
}
