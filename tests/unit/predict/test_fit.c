/* SPDX-License-Identifier: MIT */
/* Verdicts of tallies made by hand. Sizes are small whole GiB, so that the reader can add them. */
#include "tests/support/unit.h"

#include <memtally/units.h>

#include "predict/fit.h"

#include <string.h>

#define GIB (UINT64_C(1) << 30)

/* A tally of a host and one device. */
struct planned {
    struct mt_tally_detail weights[2]; /* of the host: mapped ones, others */
    struct mt_tally_row row;
    struct mt_tally_place places[2];
    struct mt_tally tally;
    uint64_t device_bytes[1];
    uint64_t device_used_bytes[1];
    struct mt_predict_settings settings;
    char reason[256];
};

static void plan(struct planned *p)
{
    *p = (struct planned){0};
    p->places[0] = (struct mt_tally_place){.place = "host", .capacity_bytes = MT_UNKNOWN};
    p->places[1] = (struct mt_tally_place){.place = "gpu:0", .capacity_bytes = MT_UNKNOWN};
    p->tally = (struct mt_tally){.kind = MT_TALLY_ESTIMATE, .n_places = 2, .places = p->places};
    p->settings.device_bytes = p->device_bytes;
    p->settings.device_used_bytes = p->device_used_bytes;
    p->settings.n_devices = 1;
}

static void takes(struct mt_tally_place *place, uint64_t low, uint64_t middle, uint64_t high)
{
    place->total_low_bytes = low * GIB;
    place->total_allocated_bytes = middle * GIB;
    place->total_high_bytes = high * GIB;
}

/* `mapped` GiB of the host's weights are mapped from the file, `copied` GiB are not. */
static void host_weights(struct planned *p, uint64_t mapped, uint64_t copied)
{
    p->weights[0] = (struct mt_tally_detail){.name = "model file",
                                             .rule = "llama.cpp/weights.mapped",
                                             .allocated_bytes = mapped * GIB,
                                             .low_bytes = mapped * GIB,
                                             .high_bytes = mapped * GIB};
    p->weights[1] = (struct mt_tally_detail){.name = "repacked",
                                             .rule = "llama.cpp/weights.repacked",
                                             .allocated_bytes = copied * GIB,
                                             .low_bytes = copied * GIB,
                                             .high_bytes = copied * GIB};
    p->row = (struct mt_tally_row){
        .category = MT_CATEGORY_WEIGHTS, .n_details = 2, .details = p->weights};
    p->places[0].rows = &p->row;
    p->places[0].n_rows = 1;
}

static enum mt_verdict verdict_with(struct planned *p, const char *spills, const char *cannot)
{
    return mt_fit_verdict(&p->tally, &p->settings, spills, cannot, p->reason, sizeof p->reason);
}

static enum mt_verdict verdict_of(struct planned *p)
{
    return verdict_with(p, NULL, NULL);
}

static void test_without_a_capacity_nothing_is_said(void **state)
{
    (void)state;
    struct planned p;
    plan(&p);
    takes(&p.places[0], 1, 2, 3);
    assert_int_equal(verdict_of(&p), MT_VERDICT_UNKNOWN);
    assert_string_equal(p.reason, "");
}

static void test_it_fits_only_with_the_high_end(void **state)
{
    (void)state;
    struct planned p;
    plan(&p);
    takes(&p.places[1], 6, 7, 8);
    p.places[1].capacity_bytes = 8 * GIB;
    assert_int_equal(verdict_of(&p), MT_VERDICT_FITS);
    assert_string_equal(p.reason, "gpu:0 takes 7.00 GiB, at most 8.00 GiB, of 8.00 GiB");
    p.places[1].capacity_bytes = 8 * GIB - 1;
    assert_int_equal(verdict_of(&p), MT_VERDICT_TIGHT);
}

static void test_it_cannot_only_where_the_low_end_does_not_fit(void **state)
{
    (void)state;
    struct planned p;
    plan(&p);
    takes(&p.places[1], 6, 7, 8);
    p.places[1].capacity_bytes = 7 * GIB;
    assert_int_equal(verdict_of(&p), MT_VERDICT_TIGHT);
    assert_string_equal(p.reason, "gpu:0 takes 7.00 GiB of 7.00 GiB, but may take 8.00 GiB");
    p.places[1].capacity_bytes = 6 * GIB;
    assert_int_equal(verdict_of(&p), MT_VERDICT_TIGHT);
    assert_string_equal(p.reason,
                        "gpu:0 takes 7.00 GiB, perhaps as little as 6.00 GiB; it has 6.00 GiB");
    p.places[1].capacity_bytes = 6 * GIB - 1;
    assert_int_equal(verdict_of(&p), MT_VERDICT_CANNOT);
    assert_string_equal(p.reason, "gpu:0 takes at least 6.00 GiB; it has 6.00 GiB");
}

static void test_what_others_use_is_not_there_to_take(void **state)
{
    (void)state;
    struct planned p;
    plan(&p);
    takes(&p.places[1], 6, 6, 6);
    p.places[1].capacity_bytes = 8 * GIB;
    p.device_used_bytes[0] = 3 * GIB;
    assert_int_equal(verdict_of(&p), MT_VERDICT_CANNOT);
    assert_string_equal(
        p.reason, "gpu:0 takes at least 6.00 GiB; it has 8.00 GiB, of which others use 3.00 GiB");
    p.device_used_bytes[0] = 2 * GIB;
    assert_int_equal(verdict_of(&p), MT_VERDICT_FITS);
    p.device_used_bytes[0] = 9 * GIB;
    assert_int_equal(verdict_of(&p), MT_VERDICT_CANNOT);
}

static void test_a_host_too_small_for_mapped_weights_pages(void **state)
{
    (void)state;
    struct planned p;
    plan(&p);
    takes(&p.places[0], 20, 20, 20);
    host_weights(&p, 16, 1);
    p.places[0].capacity_bytes = 10 * GIB;
    assert_int_equal(verdict_of(&p), MT_VERDICT_PAGES);
    assert_string_equal(p.reason, "host takes 20.00 GiB of 10.00 GiB; 16.00 GiB of it are mapped "
                                  "weights, which do not all stay and are read again and again");
    p.places[0].capacity_bytes = 4 * GIB;
    assert_int_equal(verdict_of(&p), MT_VERDICT_PAGES);
    p.places[0].capacity_bytes = 4 * GIB - 1;
    assert_int_equal(verdict_of(&p), MT_VERDICT_CANNOT);
}

static void test_copied_weights_cannot_be_paged(void **state)
{
    (void)state;
    struct planned p;
    plan(&p);
    takes(&p.places[0], 20, 20, 20);
    host_weights(&p, 0, 17);
    p.places[0].capacity_bytes = 19 * GIB;
    assert_int_equal(verdict_of(&p), MT_VERDICT_CANNOT);
}

static void test_the_worst_place_decides(void **state)
{
    (void)state;
    struct planned p;
    plan(&p);
    takes(&p.places[0], 1, 1, 1);
    takes(&p.places[1], 6, 7, 8);
    p.places[0].capacity_bytes = 100 * GIB;
    p.places[1].capacity_bytes = 100 * GIB;
    assert_int_equal(verdict_of(&p), MT_VERDICT_FITS);
    assert_non_null(strstr(p.reason, "gpu:0")); /* the fuller one is named */
    p.places[0].capacity_bytes = GIB - 1;
    assert_int_equal(verdict_of(&p), MT_VERDICT_CANNOT);
    assert_non_null(strstr(p.reason, "host"));
}

static void test_a_spill_is_worse_than_tight_and_better_than_paging(void **state)
{
    (void)state;
    static const char why[] = "3 of 32 layers lie on the host";
    struct planned p;
    plan(&p);
    takes(&p.places[0], 4, 4, 4);
    takes(&p.places[1], 6, 7, 8);
    p.places[1].capacity_bytes = 7 * GIB;
    assert_int_equal(verdict_with(&p, why, NULL), MT_VERDICT_SPILLS);
    assert_string_equal(p.reason, why);
    host_weights(&p, 3, 0);
    p.places[0].capacity_bytes = 2 * GIB;
    assert_int_equal(verdict_with(&p, why, NULL), MT_VERDICT_PAGES);
}

static void test_what_the_engine_refuses_cannot_be(void **state)
{
    (void)state;
    struct planned p;
    plan(&p);
    assert_int_equal(verdict_with(&p, "a", "the pool holds 0 tokens"), MT_VERDICT_CANNOT);
    assert_string_equal(p.reason, "the pool holds 0 tokens");
}

static void test_a_pool_must_hold_a_sequence_at_its_low_end(void **state)
{
    (void)state;
    char reason[256] = "as it was";
    struct mt_estimate_pool pool = {.present = 1,
                                    .pool_tokens = 10000,
                                    .pool_tokens_low = 8000,
                                    .pool_tokens_high = 11000,
                                    .concurrency = 1.25};
    assert_int_equal(mt_fit_pool(&pool, 8000, MT_VERDICT_FITS, reason, sizeof reason),
                     MT_VERDICT_FITS);
    assert_string_equal(reason, "as it was");
    pool.pool_tokens_low = 7999;
    assert_int_equal(mt_fit_pool(&pool, 8000, MT_VERDICT_CANNOT, reason, sizeof reason),
                     MT_VERDICT_CANNOT);
    assert_int_equal(mt_fit_pool(&pool, 8000, MT_VERDICT_FITS, reason, sizeof reason),
                     MT_VERDICT_TIGHT);
    assert_string_equal(reason, "the pool holds 10000 tokens, but may hold as few as 7999, fewer "
                                "than one sequence of 8000");
    pool.present = 0;
    assert_int_equal(mt_fit_pool(&pool, 8000, MT_VERDICT_FITS, reason, sizeof reason),
                     MT_VERDICT_FITS);
}

static void test_a_reason_that_is_too_long_is_cut(void **state)
{
    (void)state;
    struct planned p;
    plan(&p);
    takes(&p.places[1], 6, 7, 8);
    p.places[1].capacity_bytes = 9 * GIB;
    assert_int_equal(mt_fit_verdict(&p.tally, &p.settings, NULL, NULL, p.reason, 6),
                     MT_VERDICT_FITS);
    assert_string_equal(p.reason, "gpu:0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_a_capacity_nothing_is_said),
        cmocka_unit_test(test_it_fits_only_with_the_high_end),
        cmocka_unit_test(test_it_cannot_only_where_the_low_end_does_not_fit),
        cmocka_unit_test(test_what_others_use_is_not_there_to_take),
        cmocka_unit_test(test_a_host_too_small_for_mapped_weights_pages),
        cmocka_unit_test(test_copied_weights_cannot_be_paged),
        cmocka_unit_test(test_the_worst_place_decides),
        cmocka_unit_test(test_a_spill_is_worse_than_tight_and_better_than_paging),
        cmocka_unit_test(test_what_the_engine_refuses_cannot_be),
        cmocka_unit_test(test_a_pool_must_hold_a_sequence_at_its_low_end),
        cmocka_unit_test(test_a_reason_that_is_too_long_is_cut),
    };
    return cmocka_run_group_tests_name("fit", tests, NULL, NULL);
}
