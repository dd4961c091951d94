/* SPDX-License-Identifier: MIT */
/* Comparing tallies and figures. The first tally is a profile of SmolLM-135M (Q8_0, 2048 tokens) on
 * a CPU: of its 102.70 MiB of activations 3.8 MiB had been touched. */
#include "tests/support/unit.h"

#include <math.h>
#include <memtally/compare.h>
#include <memtally/residue.h>
#include <memtally/units.h>
#include <stdlib.h>
#include <string.h>

#define MIB (INT64_C(1) << 20)

#define WEIGHTS_BYTES    143028224
#define KV_BYTES         47185920
#define RESERVED_BYTES   107689984
#define TOUCHED_BYTES    3985344
#define CACHED_BYTES     18835576
#define RUNTIME_BYTES    129169352
#define UNATTRIBUTED     4096
#define RESIDENT_BYTES   342208512
#define ESTIMATE_RUNTIME (60 * MIB)

static struct mt_tally_detail runtime_parts[] = {
    {.name = "node",
     .allocated_bytes = 88178688,
     .resident_bytes = 42409984,
     .provenance = MT_PROVENANCE_MEASURED},
    {.name = "anonymous mappings",
     .allocated_bytes = MT_UNKNOWN,
     .resident_bytes = RUNTIME_BYTES - 42409984,
     .provenance = MT_PROVENANCE_EXACT},
};

static struct mt_tally_detail weight_parts[] = {
    {.name = "CPU_Mapped", .allocated_bytes = WEIGHTS_BYTES, .resident_bytes = WEIGHTS_BYTES},
};

static struct mt_tally_row measured_rows[] = {
    {.category = MT_CATEGORY_WEIGHTS,
     .allocated_bytes = WEIGHTS_BYTES,
     .resident_bytes = WEIGHTS_BYTES,
     .n_details = 1,
     .details = weight_parts},
    {.category = MT_CATEGORY_KV_CACHE, .allocated_bytes = KV_BYTES, .resident_bytes = KV_BYTES},
    {.category = MT_CATEGORY_ACTIVATIONS,
     .allocated_bytes = RESERVED_BYTES,
     .resident_bytes = TOUCHED_BYTES},
    {.category = MT_CATEGORY_CACHED, .allocated_bytes = MT_UNKNOWN, .resident_bytes = CACHED_BYTES},
    {.category = MT_CATEGORY_RUNTIME,
     .allocated_bytes = MT_UNKNOWN,
     .resident_bytes = RUNTIME_BYTES,
     .n_details = 2,
     .details = runtime_parts},
};

static struct mt_tally_place measured_places[] = {
    {.place = "host",
     .total_resident_bytes = RESIDENT_BYTES,
     .unattributed_bytes = UNATTRIBUTED,
     .n_rows = 5,
     .rows = measured_rows},
};

static const struct mt_tally measured = {
    .kind = MT_TALLY_MEASUREMENT, .n_places = 1, .places = measured_places};

static struct mt_tally_detail estimated_runtime[] = {
    {.name = "heap of the vocabulary",
     .allocated_bytes = 10 * MIB,
     .resident_bytes = MT_UNKNOWN,
     .provenance = MT_PROVENANCE_DERIVED},
    {.name = "program",
     .allocated_bytes = 30 * MIB,
     .resident_bytes = MT_UNKNOWN,
     .provenance = MT_PROVENANCE_ASSUMED},
    {.name = "learnt",
     .allocated_bytes = 20 * MIB,
     .resident_bytes = MT_UNKNOWN,
     .provenance = MT_PROVENANCE_CALIBRATED},
};

static struct mt_tally_row estimated_rows[] = {
    {.category = MT_CATEGORY_WEIGHTS,
     .allocated_bytes = WEIGHTS_BYTES - 2816,
     .resident_bytes = MT_UNKNOWN},
    {.category = MT_CATEGORY_KV_CACHE, .allocated_bytes = KV_BYTES, .resident_bytes = MT_UNKNOWN},
    {.category = MT_CATEGORY_ACTIVATIONS,
     .allocated_bytes = RESERVED_BYTES,
     .resident_bytes = MT_UNKNOWN},
    {.category = MT_CATEGORY_RUNTIME,
     .allocated_bytes = ESTIMATE_RUNTIME,
     .resident_bytes = MT_UNKNOWN,
     .n_details = 3,
     .details = estimated_runtime},
};

static struct mt_tally_place estimated_places[] = {
    {.place = "host",
     .total_resident_bytes = MT_UNKNOWN,
     .unattributed_bytes = MT_UNKNOWN,
     .n_rows = 4,
     .rows = estimated_rows},
};

static const struct mt_tally estimated = {
    .kind = MT_TALLY_ESTIMATE, .n_places = 1, .places = estimated_places};

static const struct mt_compare_side measured_side = {.kind = MT_SIDE_MEASUREMENT,
                                                     .tally = &measured};
static const struct mt_compare_side estimated_side = {.kind = MT_SIDE_ESTIMATE,
                                                      .tally = &estimated};

/* Figures in bytes; INT64_MIN is not given. */
static struct mt_compare_side figures(int64_t weights, int64_t kv, int64_t activations,
                                      int64_t overhead, int64_t total)
{
    const int64_t bytes[] = {weights, kv, activations, overhead, total};
    struct mt_compare_side side = {.kind = MT_SIDE_FIGURES, .from_gigabytes = 1};
    for (int i = 0; i < MT_COMPONENT_COUNT; i++)
        if (bytes[i] != INT64_MIN)
            side.figures.of[i] = (struct mt_component_figure){.known = 1, .bytes = bytes[i]};
    return side;
}

static struct mt_comparison *compare_with(const struct mt_compare_side *a,
                                          const struct mt_compare_side *b,
                                          const struct mt_compare_settings *settings)
{
    struct mt_compare_settings published;
    struct mt_comparison *comparison = NULL;
    mt_compare_settings_init(&published);
    assert_int_equal(mt_compare(a, b, settings ? settings : &published, &comparison, NULL), 0);
    return comparison;
}

static int advises(const struct mt_comparison *comparison, const char *reason)
{
    for (size_t i = 0; i < comparison->n_advice; i++)
        if (strcmp(comparison->advice[i].reason, reason) == 0)
            return 1;
    return 0;
}

/* ---- components ---- */

static void test_parts_add_up_on_either_basis(void **state)
{
    (void)state;
    struct mt_components of;
    mt_components_of_tally(&measured, MT_BASIS_RESIDENT, &of);
    assert_int_equal(of.of[MT_COMPONENT_ACTIVATIONS].bytes, TOUCHED_BYTES);
    assert_int_equal(of.of[MT_COMPONENT_TOTAL].bytes, RESIDENT_BYTES);
    mt_components_of_tally(&measured, MT_BASIS_RESERVED, &of);
    assert_int_equal(of.of[MT_COMPONENT_ACTIVATIONS].bytes, RESERVED_BYTES);
    assert_int_equal(of.of[MT_COMPONENT_OVERHEAD].bytes,
                     CACHED_BYTES + RUNTIME_BYTES + UNATTRIBUTED);
    assert_int_equal(of.of[MT_COMPONENT_TOTAL].bytes,
                     RESIDENT_BYTES + (RESERVED_BYTES - TOUCHED_BYTES));
    assert_int_equal(of.of[MT_COMPONENT_TOTAL].resident_bytes, RESIDENT_BYTES);
    assert_int_equal(of.of[MT_COMPONENT_OVERHEAD].basis, MT_BASIS_RESIDENT);
}

static void test_what_is_not_known_to_be_reserved_counts_as_resident(void **state)
{
    (void)state;
    struct mt_tally_detail parts[] = {
        {.name = "a", .allocated_bytes = 100, .resident_bytes = 40},
        {.name = "b", .allocated_bytes = MT_UNKNOWN, .resident_bytes = 7},
    };
    struct mt_tally_row row = {.category = MT_CATEGORY_WEIGHTS,
                               .allocated_bytes = MT_UNKNOWN,
                               .resident_bytes = 47,
                               .n_details = 2,
                               .details = parts};
    struct mt_tally_place place = {.place = "host", .n_rows = 1, .rows = &row};
    struct mt_components of;
    mt_components_of_place(&place, MT_TALLY_MEASUREMENT, MT_BASIS_RESERVED, &of);
    assert_int_equal(of.of[MT_COMPONENT_WEIGHTS].bytes, 107);
    assert_int_equal(of.of[MT_COMPONENT_WEIGHTS].basis, MT_BASIS_RESIDENT);
}

static void test_recurrent_state_belongs_to_the_cache(void **state)
{
    (void)state;
    assert_int_equal(mt_component_of(MT_CATEGORY_RECURRENT_STATE), MT_COMPONENT_KV_CACHE);
    assert_int_equal(mt_component_of(MT_CATEGORY_GRAPHS), MT_COMPONENT_OVERHEAD);
    assert_int_equal(mt_component_of(MT_CATEGORY_NONE), MT_COMPONENT_OVERHEAD);
}

static void test_missing_total_is_the_sum_and_missing_overhead_the_rest(void **state)
{
    (void)state;
    struct mt_compare_side side = figures(13500, 400, 900, 600, INT64_MIN);
    mt_components_complete(&side.figures);
    assert_int_equal(side.figures.of[MT_COMPONENT_TOTAL].bytes, 15400);
    side = figures(13500, 400, 900, INT64_MIN, 14000);
    mt_components_complete(&side.figures);
    assert_int_equal(side.figures.of[MT_COMPONENT_OVERHEAD].bytes, -800);
    side = figures(13500, INT64_MIN, 900, 600, INT64_MIN);
    mt_components_complete(&side.figures);
    assert_false(side.figures.of[MT_COMPONENT_TOTAL].known);
}

/* ---- bands ---- */

static void test_published_bands_end_where_they_say(void **state)
{
    (void)state;
    const struct mt_compare_side a = figures(10000, 10000, 10000, 10000, 40000);
    const struct mt_compare_side edge = figures(10200, 8500, 13000, 6000, 44000);
    const struct mt_compare_side past = figures(10201, 8499, 13001, 5999, 44001);
    struct mt_comparison *comparison = compare_with(&a, &edge, NULL);
    for (int i = 0; i < MT_COMPONENT_COUNT; i++)
        assert_int_equal(comparison->components[i].verdict, MT_COMPARE_WITHIN);
    assert_true(comparison->all_within);
    mt_comparison_destroy(comparison);
    comparison = compare_with(&a, &past, NULL);
    assert_int_equal(comparison->components[0].verdict, MT_COMPARE_OVER);
    assert_int_equal(comparison->components[1].verdict, MT_COMPARE_UNDER);
    assert_int_equal(comparison->components[2].verdict, MT_COMPARE_OVER);
    assert_int_equal(comparison->components[3].verdict, MT_COMPARE_UNDER);
    assert_int_equal(comparison->components[4].verdict, MT_COMPARE_OVER);
    assert_false(comparison->all_within);
    mt_comparison_destroy(comparison);
}

static void test_what_one_side_does_not_say_is_not_comparable(void **state)
{
    (void)state;
    const struct mt_compare_side b =
        figures(WEIGHTS_BYTES, INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN);
    struct mt_comparison *comparison = compare_with(&measured_side, &b, NULL);
    assert_int_equal(comparison->components[MT_COMPONENT_WEIGHTS].verdict, MT_COMPARE_WITHIN);
    assert_int_equal(comparison->components[MT_COMPONENT_KV_CACHE].verdict,
                     MT_COMPARE_NOT_COMPARABLE);
    assert_true(comparison->all_within);
    assert_true(comparison->accuracy_ratio < 0);
    mt_comparison_destroy(comparison);
}

static void test_nothing_measured_has_no_percentage(void **state)
{
    (void)state;
    const struct mt_compare_side a = figures(100, 0, 0, 0, 100);
    const struct mt_compare_side b = figures(100, 5, 0, 0, 105);
    struct mt_comparison *comparison = compare_with(&a, &b, NULL);
    assert_int_equal(comparison->components[MT_COMPONENT_KV_CACHE].verdict, MT_COMPARE_OVER);
    assert_false(comparison->components[MT_COMPONENT_KV_CACHE].ratio_known);
    assert_int_equal(comparison->components[MT_COMPONENT_ACTIVATIONS].verdict, MT_COMPARE_WITHIN);
    mt_comparison_destroy(comparison);
}

static void test_bands_of_ones_own(void **state)
{
    (void)state;
    struct mt_compare_settings settings;
    struct mt_comparison *comparison = NULL;
    mt_compare_settings_init(&settings);
    settings.band_ratio[MT_COMPONENT_WEIGHTS] = 0.00001;
    comparison = compare_with(&measured_side, &estimated_side, &settings);
    assert_int_equal(comparison->components[MT_COMPONENT_WEIGHTS].verdict, MT_COMPARE_UNDER);
    mt_comparison_destroy(comparison);
    settings.band_ratio[MT_COMPONENT_TOTAL] = (double)NAN;
    assert_int_equal(mt_compare(&measured_side, &estimated_side, &settings, &comparison, NULL),
                     MT_EARG);
}

/* ---- accuracy ---- */

static void test_accuracy_shows_errors_that_cancel_out(void **state)
{
    (void)state;
    const struct mt_compare_side a = figures(6000, 2000, 1000, 1000, 10000);
    const struct mt_compare_side b = figures(4000, 4000, 1000, 1000, 10000);
    struct mt_comparison *comparison = compare_with(&a, &b, NULL);
    assert_true(fabs(comparison->accuracy_ratio - 1) < 1e-12);
    assert_true(fabs(comparison->parts_accuracy_ratio - 0.6) < 1e-12);
    assert_true(advises(comparison, "errors_cancel"));
    mt_comparison_destroy(comparison);
}

/* ---- rows and places ---- */

static const struct mt_difference *row_of(const struct mt_comparison *comparison,
                                          enum mt_category category)
{
    for (size_t i = 0; i < comparison->n_rows; i++)
        if (comparison->rows[i].category == category)
            return &comparison->rows[i];
    return NULL;
}

static void test_rows_are_sorted_and_add_up_to_the_difference_of_the_total(void **state)
{
    (void)state;
    struct mt_comparison *comparison = compare_with(&measured_side, &estimated_side, NULL);
    int64_t sum = 0;
    for (size_t i = 0; i < comparison->n_rows; i++) {
        int64_t bytes = comparison->rows[i].difference_bytes;
        if (i)
            assert_true(llabs(bytes) <= llabs(comparison->rows[i - 1].difference_bytes));
        sum += bytes;
    }
    assert_int_equal(sum, comparison->components[MT_COMPONENT_TOTAL].difference_bytes);
    assert_int_equal(row_of(comparison, MT_CATEGORY_RUNTIME)->difference_bytes,
                     ESTIMATE_RUNTIME - RUNTIME_BYTES);
    assert_false(row_of(comparison, MT_CATEGORY_CACHED)->in_b);
    assert_int_equal(row_of(comparison, MT_CATEGORY_NONE)->a_bytes, UNATTRIBUTED);
    mt_comparison_destroy(comparison);
}

static void test_parts_appear_and_disappear_by_name(void **state)
{
    (void)state;
    struct mt_tally_detail parts[] = {
        {.name = "node", .allocated_bytes = MT_UNKNOWN, .resident_bytes = 42409984},
        {.name = "libnew.so", .allocated_bytes = MT_UNKNOWN, .resident_bytes = 500},
        {.name = "libnew.so", .allocated_bytes = MT_UNKNOWN, .resident_bytes = 700},
    };
    struct mt_tally_row row = {.category = MT_CATEGORY_RUNTIME,
                               .allocated_bytes = MT_UNKNOWN,
                               .resident_bytes = 42409984 + 1200,
                               .n_details = 3,
                               .details = parts};
    struct mt_tally_place place = {.place = "host", .n_rows = 1, .rows = &row};
    const struct mt_tally after = {.kind = MT_TALLY_MEASUREMENT, .n_places = 1, .places = &place};
    const struct mt_compare_side b = {.kind = MT_SIDE_MEASUREMENT, .tally = &after};
    struct mt_comparison *comparison = compare_with(&measured_side, &b, NULL);
    size_t found = 0;
    for (size_t i = 0; i < comparison->n_parts; i++) {
        const struct mt_difference *part = &comparison->parts[i];
        if (strcmp(part->name, "node") == 0)
            found += part->in_a && part->in_b && part->difference_bytes == 0;
        if (strcmp(part->name, "libnew.so") == 0)
            found += !part->in_a && part->in_b && part->difference_bytes == 1200;
        if (strcmp(part->name, "CPU_Mapped") == 0)
            found += part->in_a && !part->in_b && part->difference_bytes == -WEIGHTS_BYTES;
    }
    assert_int_equal(found, 3);
    assert_int_equal(comparison->n_advice, 0);
    mt_comparison_destroy(comparison);
}

/* Two compute buffers of 10 and one of 20 with other names in B, and one of 30 that A has not. */
static void test_parts_of_estimates_that_differ_in_their_name_only_are_one(void **state)
{
    (void)state;
    struct mt_tally_detail a_parts[] = {{.name = "buffer, small 1", .allocated_bytes = 10},
                                        {.name = "buffer, small 2", .allocated_bytes = 10},
                                        {.name = "output", .allocated_bytes = 20}};
    struct mt_tally_detail b_parts[] = {{.name = "buffer, other 1", .allocated_bytes = 10},
                                        {.name = "buffer, other 2", .allocated_bytes = 10},
                                        {.name = "extra", .allocated_bytes = 30},
                                        {.name = "logits", .allocated_bytes = 20}};
    struct mt_tally_row a_row = {.category = MT_CATEGORY_ACTIVATIONS,
                                 .allocated_bytes = 40,
                                 .n_details = 3,
                                 .details = a_parts};
    struct mt_tally_row b_row = {.category = MT_CATEGORY_ACTIVATIONS,
                                 .allocated_bytes = 70,
                                 .n_details = 4,
                                 .details = b_parts};
    struct mt_tally_place a_place = {.place = "gpu:0", .n_rows = 1, .rows = &a_row};
    struct mt_tally_place b_place = {.place = "gpu:0", .n_rows = 1, .rows = &b_row};
    const struct mt_tally a = {.kind = MT_TALLY_ESTIMATE, .n_places = 1, .places = &a_place};
    const struct mt_tally b = {.kind = MT_TALLY_ESTIMATE, .n_places = 1, .places = &b_place};
    const struct mt_compare_side a_side = {.kind = MT_SIDE_ESTIMATE, .tally = &a};
    const struct mt_compare_side b_side = {.kind = MT_SIDE_ESTIMATE, .tally = &b};
    struct mt_comparison *comparison = compare_with(&a_side, &b_side, NULL);
    size_t both = 0;
    assert_int_equal(comparison->n_parts, 4);
    assert_string_equal(comparison->parts[0].name, "extra");
    assert_false(comparison->parts[0].in_a);
    assert_int_equal(comparison->parts[0].difference_bytes, 30);
    for (size_t i = 1; i < 4; i++)
        both += comparison->parts[i].in_a && comparison->parts[i].in_b &&
                comparison->parts[i].difference_bytes == 0 &&
                comparison->parts[i].a_bytes == comparison->parts[i].b_bytes;
    assert_int_equal(both, 3);
    mt_comparison_destroy(comparison);
}

static struct mt_tally_place gpu(const char *name, struct mt_tally_row *row, uint64_t bytes)
{
    *row = (struct mt_tally_row){
        .category = MT_CATEGORY_WEIGHTS, .allocated_bytes = bytes, .resident_bytes = bytes};
    return (struct mt_tally_place){.place = name, .n_rows = 1, .rows = row};
}

static void test_devices_of_other_names_are_matched_in_their_order(void **state)
{
    (void)state;
    struct mt_tally_row rows[4];
    struct mt_tally_place a_places[] = {gpu("gpu:uuid-a", &rows[0], 100),
                                        gpu("gpu:uuid-b", &rows[1], 200)};
    struct mt_tally_place b_places[] = {gpu("gpu:0", &rows[2], 110), gpu("gpu:1", &rows[3], 200)};
    const struct mt_tally a = {.kind = MT_TALLY_MEASUREMENT, .n_places = 2, .places = a_places};
    const struct mt_tally b = {.kind = MT_TALLY_ESTIMATE, .n_places = 2, .places = b_places};
    const struct mt_compare_side a_side = {.kind = MT_SIDE_MEASUREMENT, .tally = &a};
    const struct mt_compare_side b_side = {.kind = MT_SIDE_ESTIMATE, .tally = &b};
    struct mt_comparison *comparison = compare_with(&a_side, &b_side, NULL);
    assert_int_equal(comparison->n_places, 2);
    assert_string_equal(comparison->places[0].place, "gpu:uuid-a");
    assert_int_equal(comparison->places[0].components[MT_COMPONENT_WEIGHTS].difference_bytes, 10);
    assert_int_equal(comparison->places[1].components[MT_COMPONENT_WEIGHTS].difference_bytes, 0);
    mt_comparison_destroy(comparison);
}

static void test_devices_of_the_same_names_are_matched_by_them(void **state)
{
    (void)state;
    struct mt_tally_row rows[3];
    struct mt_tally_place a_places[] = {gpu("gpu:x", &rows[0], 100), gpu("gpu:y", &rows[1], 200)};
    struct mt_tally_place b_places[] = {gpu("gpu:y", &rows[2], 200)};
    const struct mt_tally a = {.kind = MT_TALLY_MEASUREMENT, .n_places = 2, .places = a_places};
    const struct mt_tally b = {.kind = MT_TALLY_MEASUREMENT, .n_places = 1, .places = b_places};
    const struct mt_compare_side a_side = {.kind = MT_SIDE_MEASUREMENT, .tally = &a};
    const struct mt_compare_side b_side = {.kind = MT_SIDE_MEASUREMENT, .tally = &b};
    struct mt_comparison *comparison = compare_with(&b_side, &a_side, NULL);
    assert_int_equal(comparison->n_places, 2);
    assert_int_equal(comparison->places[0].components[MT_COMPONENT_WEIGHTS].difference_bytes, 0);
    assert_string_equal(comparison->places[1].place, "gpu:x");
    assert_false(comparison->places[1].in_a);
    assert_int_equal(comparison->places[1].components[MT_COMPONENT_WEIGHTS].difference_bytes, 100);
    mt_comparison_destroy(comparison);
}

static void test_estimate_says_nothing_of_what_is_resident(void **state)
{
    (void)state;
    struct mt_compare_settings settings;
    mt_compare_settings_init(&settings);
    settings.basis = MT_BASIS_RESIDENT;
    struct mt_comparison *comparison = compare_with(&measured_side, &estimated_side, &settings);
    assert_int_equal(comparison->components[MT_COMPONENT_ACTIVATIONS].verdict,
                     MT_COMPARE_NOT_COMPARABLE);
    assert_int_equal(comparison->components[MT_COMPONENT_OVERHEAD].verdict, MT_COMPARE_UNDER);
    mt_comparison_destroy(comparison);
}

/* ---- reasons ---- */

/* What is advised of a KV cache that is `factor` times the measured one. */
static int advises_of_cache(double factor, const char *reason)
{
    const struct mt_compare_side b =
        figures(WEIGHTS_BYTES, (int64_t)(factor * KV_BYTES), RESERVED_BYTES,
                CACHED_BYTES + RUNTIME_BYTES, INT64_MIN);
    struct mt_comparison *comparison = compare_with(&measured_side, &b, NULL);
    int is_so = advises(comparison, reason);
    mt_comparison_destroy(comparison);
    return is_so;
}

static void test_factor_of_the_cache_names_the_term_that_was_left_out(void **state)
{
    (void)state;
    assert_true(advises_of_cache(4, "grouped_query_heads_ignored"));
    assert_true(advises_of_cache(8, "grouped_query_heads_ignored"));
    assert_true(advises_of_cache(2, "element_size"));
    assert_true(advises_of_cache(0.5, "keys_only"));
    assert_true(advises_of_cache(0.53125, "cache_is_not_quantised")); /* 34 bytes for 64 */
    assert_true(advises_of_cache(1.3, "context_or_sequences"));
    assert_false(advises_of_cache(1.1, "context_or_sequences"));
}

/* An estimate that is `factor` times the measured run in cache and activations, or the same as
 * figures of a calculator. */
static struct mt_comparison *compare_larger(double factor, int as_figures)
{
    struct mt_tally_row rows[4];
    memcpy(rows, estimated_rows, sizeof rows);
    rows[0].allocated_bytes *= 2;
    rows[1].allocated_bytes = (uint64_t)(KV_BYTES * factor);
    rows[2].allocated_bytes = (uint64_t)(RESERVED_BYTES * factor);
    rows[3].allocated_bytes *= 100;
    struct mt_tally_place place = estimated_places[0];
    place.rows = rows;
    struct mt_tally tally = estimated;
    tally.places = &place;
    struct mt_compare_side b = {.kind = MT_SIDE_ESTIMATE, .tally = &tally};
    if (as_figures) {
        mt_components_of_tally(&tally, MT_BASIS_RESERVED, &b.figures);
        b.kind = MT_SIDE_FIGURES;
        b.tally = NULL;
    }
    return compare_with(&measured_side, &b, NULL);
}

static void test_only_foreign_figures_are_told_how_to_count(void **state)
{
    (void)state;
    static const char *const lessons[] = {"grouped_query_heads_ignored", "training_formula",
                                          "bits_of_a_weight"};
    struct mt_comparison *given = compare_larger(16, 1);
    struct mt_comparison *own = compare_larger(16, 0);
    for (size_t i = 0; i < sizeof lessons / sizeof *lessons; i++) {
        assert_true(advises(given, lessons[i]));
        assert_false(advises(own, lessons[i]));
    }
    assert_true(advises(own, "context_or_sequences"));
    assert_true(advises(own, "ubatch_or_flash_attention"));
    assert_true(advises(own, "learn_overhead"));
    assert_false(advises(given, "learn_overhead"));
    mt_comparison_destroy(own);
    mt_comparison_destroy(given);
}

static void test_cache_of_the_tokens_used_is_told_from_that_of_the_context(void **state)
{
    (void)state;
    struct mt_compare_settings settings;
    mt_compare_settings_init(&settings);
    settings.context_tokens = 2048;
    settings.sequence_tokens = 160;
    const struct mt_compare_side b =
        figures(WEIGHTS_BYTES, KV_BYTES * INT64_C(160) / 2048, RESERVED_BYTES, 0, INT64_MIN);
    struct mt_comparison *comparison = compare_with(&measured_side, &b, &settings);
    assert_true(advises(comparison, "context_is_reserved"));
    mt_comparison_destroy(comparison);
}

static void test_gibibytes_taken_for_gigabytes_are_noticed(void **state)
{
    (void)state;
    const struct mt_compare_side a = figures(14000000000, 2000000000, 1000000000, 0, INT64_MIN);
    struct mt_compare_side b =
        figures((int64_t)(14000000000 / 1.073741824), (int64_t)(2000000000 / 1.073741824),
                (int64_t)(1000000000 / 1.073741824), 0, INT64_MIN);
    struct mt_comparison *comparison = compare_with(&a, &b, NULL);
    assert_true(advises(comparison, "gigabytes_mixed_up"));
    assert_non_null(strstr(comparison->advice[0].text, "read as GB are GiB"));
    mt_comparison_destroy(comparison);
    const struct mt_compare_side measured_a = {.kind = MT_SIDE_FIGURES, .figures = a.figures};
    b.from_gigabytes = 0;
    comparison = compare_with(&measured_a, &b, NULL);
    assert_false(advises(comparison, "gigabytes_mixed_up"));
    mt_comparison_destroy(comparison);
}

static void test_touched_activations_are_told_from_reserved_ones(void **state)
{
    (void)state;
    const struct mt_compare_side b =
        figures(WEIGHTS_BYTES, KV_BYTES, TOUCHED_BYTES + 1000, 0, INT64_MIN);
    struct mt_comparison *comparison = compare_with(&measured_side, &b, NULL);
    assert_true(advises(comparison, "reserved_or_touched"));
    mt_comparison_destroy(comparison);
}

static void test_negative_overhead_is_explained(void **state)
{
    (void)state;
    const struct mt_compare_side parts = figures(100, 50, 20, INT64_MIN, 150);
    const struct mt_compare_side too_much =
        figures(4 * (int64_t)WEIGHTS_BYTES, KV_BYTES, RESERVED_BYTES, 0, INT64_MIN);
    const struct mt_compare_side reserved =
        figures(WEIGHTS_BYTES, KV_BYTES, 2 * (int64_t)RESERVED_BYTES, 0, INT64_MIN);
    struct mt_comparison *comparison = compare_with(&measured_side, &parts, NULL);
    assert_true(advises(comparison, "parts_exceed_total"));
    mt_comparison_destroy(comparison);
    comparison = compare_with(&measured_side, &too_much, NULL);
    assert_true(comparison->left_known && comparison->left_bytes < 0);
    assert_true(advises(comparison, "negative_overhead"));
    mt_comparison_destroy(comparison);
    /* 445.9 MB were reserved and 342.2 are resident: 405.6 lie between. */
    comparison = compare_with(&measured_side, &reserved, NULL);
    assert_true(comparison->left_bytes > 0);
    assert_true(advises(comparison, "reserved_and_not_resident"));
    mt_comparison_destroy(comparison);
}

static void test_repacked_weights_are_named(void **state)
{
    (void)state;
    struct mt_tally_detail parts[] = {
        {.name = "CPU_Mapped", .allocated_bytes = 240 << 20, .resident_bytes = 240 << 20},
        {.name = "CPU_REPACK", .allocated_bytes = 200 << 20, .resident_bytes = 200 << 20},
    };
    struct mt_tally_row row = {.category = MT_CATEGORY_WEIGHTS,
                               .allocated_bytes = 440 << 20,
                               .resident_bytes = 440 << 20,
                               .n_details = 2,
                               .details = parts};
    struct mt_tally_place place = {.place = "host", .n_rows = 1, .rows = &row};
    const struct mt_tally tally = {.kind = MT_TALLY_MEASUREMENT, .n_places = 1, .places = &place};
    const struct mt_compare_side a = {.kind = MT_SIDE_MEASUREMENT, .tally = &tally};
    const struct mt_compare_side b = figures(240 * MIB, 0, 0, 0, INT64_MIN);
    struct mt_comparison *comparison = compare_with(&a, &b, NULL);
    assert_true(advises(comparison, "repacked_copy"));
    mt_comparison_destroy(comparison);
}

/* ---- learning ---- */

static const struct mt_residue *residue_of(const struct mt_residue *residues, size_t n,
                                           enum mt_category category)
{
    for (size_t i = 0; i < n; i++)
        if (residues[i].category == category)
            return &residues[i];
    return NULL;
}

static void test_residue_is_what_rules_do_not_derive(void **state)
{
    (void)state;
    struct mt_residue residues[MT_RESIDUES_MAX];
    size_t n = mt_residues_of(&measured, &estimated, residues);
    assert_int_equal(n, 2);
    /* What was assumed or learnt before is not taken off. */
    assert_int_equal(residue_of(residues, n, MT_CATEGORY_RUNTIME)->mean_bytes,
                     RUNTIME_BYTES - 10 * MIB);
    assert_int_equal(residue_of(residues, n, MT_CATEGORY_CACHED)->mean_bytes, CACHED_BYTES);
    assert_string_equal(residues[0].place_kind, "host");
    assert_int_equal(residues[0].n, 1);
}

static void test_larger_weights_and_caches_teach_nothing(void **state)
{
    (void)state;
    struct mt_tally_row rows[5];
    struct mt_residue before[MT_RESIDUES_MAX];
    struct mt_residue after[MT_RESIDUES_MAX];
    memcpy(rows, measured_rows, sizeof rows);
    for (int i = 0; i < 3; i++) {
        rows[i].allocated_bytes *= 10;
        rows[i].resident_bytes *= 10;
    }
    struct mt_tally_place place = {.place = "host", .n_rows = 5, .rows = rows};
    const struct mt_tally larger = {.kind = MT_TALLY_MEASUREMENT, .n_places = 1, .places = &place};
    size_t n = mt_residues_of(&measured, &estimated, before);
    assert_int_equal(mt_residues_of(&larger, &estimated, after), n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(after[i].category, before[i].category);
        assert_int_equal(after[i].mean_bytes, before[i].mean_bytes);
    }
    assert_null(residue_of(after, n, MT_CATEGORY_WEIGHTS));
    assert_null(residue_of(after, n, MT_CATEGORY_KV_CACHE));
    assert_null(residue_of(after, n, MT_CATEGORY_ACTIVATIONS));
}

static void test_residue_of_several_runs(void **state)
{
    (void)state;
    struct mt_residue residue = {.place_kind = "host", .category = MT_CATEGORY_RUNTIME};
    mt_residue_add(&residue, 100);
    mt_residue_add(&residue, 400);
    mt_residue_add(&residue, -200);
    assert_int_equal(residue.n, 3);
    assert_int_equal(residue.low_bytes, -200);
    assert_int_equal(residue.high_bytes, 400);
    assert_int_equal(residue.mean_bytes, 100);
}

static int64_t mean_of(int64_t first, int64_t second)
{
    struct mt_residue residue = {.place_kind = "host", .category = MT_CATEGORY_RUNTIME};
    mt_residue_add(&residue, first);
    mt_residue_add(&residue, second);
    return residue.mean_bytes;
}

static void test_half_a_byte_goes_to_what_was_known_before(void **state)
{
    (void)state;
    assert_int_equal(mean_of(1, 2), 1);
    assert_int_equal(mean_of(2, 1), 2);
    assert_int_equal(mean_of(-1, -2), -1);
    assert_int_equal(mean_of(-INT64_MAX, INT64_MAX), 0);
    assert_int_equal(mean_of(INT64_MAX, INT64_MAX - 2), INT64_MAX - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_add_up_on_either_basis),
        cmocka_unit_test(test_what_is_not_known_to_be_reserved_counts_as_resident),
        cmocka_unit_test(test_recurrent_state_belongs_to_the_cache),
        cmocka_unit_test(test_missing_total_is_the_sum_and_missing_overhead_the_rest),
        cmocka_unit_test(test_published_bands_end_where_they_say),
        cmocka_unit_test(test_what_one_side_does_not_say_is_not_comparable),
        cmocka_unit_test(test_nothing_measured_has_no_percentage),
        cmocka_unit_test(test_bands_of_ones_own),
        cmocka_unit_test(test_accuracy_shows_errors_that_cancel_out),
        cmocka_unit_test(test_rows_are_sorted_and_add_up_to_the_difference_of_the_total),
        cmocka_unit_test(test_parts_appear_and_disappear_by_name),
        cmocka_unit_test(test_parts_of_estimates_that_differ_in_their_name_only_are_one),
        cmocka_unit_test(test_devices_of_other_names_are_matched_in_their_order),
        cmocka_unit_test(test_devices_of_the_same_names_are_matched_by_them),
        cmocka_unit_test(test_estimate_says_nothing_of_what_is_resident),
        cmocka_unit_test(test_factor_of_the_cache_names_the_term_that_was_left_out),
        cmocka_unit_test(test_only_foreign_figures_are_told_how_to_count),
        cmocka_unit_test(test_cache_of_the_tokens_used_is_told_from_that_of_the_context),
        cmocka_unit_test(test_gibibytes_taken_for_gigabytes_are_noticed),
        cmocka_unit_test(test_touched_activations_are_told_from_reserved_ones),
        cmocka_unit_test(test_negative_overhead_is_explained),
        cmocka_unit_test(test_repacked_weights_are_named),
        cmocka_unit_test(test_residue_is_what_rules_do_not_derive),
        cmocka_unit_test(test_larger_weights_and_caches_teach_nothing),
        cmocka_unit_test(test_residue_of_several_runs),
        cmocka_unit_test(test_half_a_byte_goes_to_what_was_known_before),
    };
    return RUN_TESTS(tests);
}
