/* SPDX-License-Identifier: MIT */
/* Estimates of what an engine itself said, in place of what rules say. */
#include "tests/support/unit.h"

#include "hand_model.h"

#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* A run on one device, as an engine would speak of it. */
struct spoken {
    struct hand_model hand;
    struct mt_tally_detail details[3];
    struct mt_tally_row rows[3];
    struct mt_tally_place places[2];
    struct mt_tally tally;
    uint64_t device_bytes[1];
    struct mt_predict_settings settings;
    struct mt_engine_plan said;
};

static void speak(struct spoken *spoken, size_t index, enum mt_category category, const char *name,
                  uint64_t bytes)
{
    spoken->details[index] = (struct mt_tally_detail){.name = name,
                                                      .allocated_bytes = bytes,
                                                      .low_bytes = bytes,
                                                      .high_bytes = bytes,
                                                      .provenance = MT_PROVENANCE_EXACT};
    spoken->rows[index] = (struct mt_tally_row){.category = category,
                                                .allocated_bytes = bytes,
                                                .n_details = 1,
                                                .details = &spoken->details[index]};
}

static void prepare(struct spoken *spoken)
{
    *spoken = (struct spoken){.device_bytes = {4 * GIB}};
    hand_model_init(&spoken->hand, "llama", 4, 8, 8, 64);
    speak(spoken, 0, MT_CATEGORY_WEIGHTS, "CPU_Mapped", 700 * MIB);
    speak(spoken, 1, MT_CATEGORY_WEIGHTS, "CUDA0", 2 * GIB);
    speak(spoken, 2, MT_CATEGORY_KV_CACHE, "CUDA0", 512 * MIB);
    spoken->places[0] =
        (struct mt_tally_place){.place = "host", .n_rows = 1, .rows = &spoken->rows[0]};
    spoken->places[1] =
        (struct mt_tally_place){.place = "gpu:0", .n_rows = 2, .rows = &spoken->rows[1]};
    spoken->tally =
        (struct mt_tally){.kind = MT_TALLY_ESTIMATE, .n_places = 2, .places = spoken->places};
    spoken->settings = (struct mt_predict_settings){
        .context_tokens = 4096, .device_bytes = spoken->device_bytes, .n_devices = 1};
    spoken->said = (struct mt_engine_plan){.tally = &spoken->tally, .version = "b12345 (me)"};
}

static struct mt_estimate *estimate_of(struct spoken *spoken)
{
    struct mt_estimate *estimate = NULL;
    struct mt_error error = {0};
    if (mt_estimate_from_plan(&spoken->hand.model, &spoken->settings, &spoken->said, &estimate,
                              &error) < 0)
        fail_msg("%s", error.text);
    return estimate;
}

static void test_the_engine_is_believed_and_the_driver_added(void **state)
{
    (void)state;
    struct spoken spoken;
    prepare(&spoken);
    struct mt_estimate *estimate = estimate_of(&spoken);
    assert_int_equal(hand_model_bytes(estimate, "gpu:0", MT_CATEGORY_WEIGHTS, NULL), 2 * GIB);
    assert_int_equal(hand_model_bytes(estimate, "gpu:0", MT_CATEGORY_KV_CACHE, NULL), 512 * MIB);
    assert_int_equal(hand_model_bytes(estimate, "gpu:0", MT_CATEGORY_ACTIVATIONS, NULL), 0);
    uint64_t context = hand_model_bytes(estimate, "gpu:0", MT_CATEGORY_CONTEXT, NULL);
    assert_true(context > 0);
    const struct mt_tally_place *gpu = &estimate->tally.places[1];
    assert_int_equal(gpu->total_allocated_bytes, 2 * GIB + 512 * MIB + context);
    const struct mt_tally_row *weights = mt_tally_row_of(gpu, MT_CATEGORY_WEIGHTS);
    assert_int_equal(weights->provenance, MT_PROVENANCE_EXACT);
    assert_int_equal(weights->low_bytes, weights->high_bytes);
    assert_int_equal(mt_tally_row_of(gpu, MT_CATEGORY_CONTEXT)->provenance, MT_PROVENANCE_DERIVED);
    assert_int_equal(estimate->verdict, MT_VERDICT_FITS);
    assert_string_equal(estimate->tally.engine_version, "b12345 (me)");
    mt_estimate_destroy(estimate);
}

/* Whatever the engine's buffers and our rules are called. */
static void test_what_was_rehearsed_is_told_from_what_rules_gave(void **state)
{
    (void)state;
    struct spoken spoken;
    size_t n[MT_TERM_COUNT] = {0};
    prepare(&spoken);
    struct mt_estimate *estimate = estimate_of(&spoken);
    for (size_t i = 0; i < estimate->n_terms; i++)
        n[estimate->terms[i].kind]++;
    assert_int_equal(n[MT_TERM_REHEARSED], 3);
    assert_int_equal(n[MT_TERM_RULE], estimate->n_terms - 3);
    const struct mt_tally_place *gpu = &estimate->tally.places[1];
    const struct mt_tally_row *weights = mt_tally_row_of(gpu, MT_CATEGORY_WEIGHTS);
    const struct mt_tally_row *context = mt_tally_row_of(gpu, MT_CATEGORY_CONTEXT);
    assert_int_equal(weights->details[0].kind, MT_TERM_REHEARSED);
    assert_int_equal(context->details[0].kind, MT_TERM_RULE);
    assert_string_equal(mt_term_kind_name(weights->details[0].kind), "rehearsed");
    mt_estimate_destroy(estimate);
}

/* An engine that is in doubt of one row: so is the estimate of it, and the total's band has it. */
static void test_a_band_that_was_said_is_kept(void **state)
{
    (void)state;
    struct spoken spoken;
    prepare(&spoken);
    spoken.details[2].provenance = MT_PROVENANCE_DERIVED;
    spoken.details[2].low_bytes = 500 * MIB;
    spoken.details[2].high_bytes = 600 * MIB;
    struct mt_estimate *estimate = estimate_of(&spoken);
    const struct mt_tally_place *gpu = &estimate->tally.places[1];
    const struct mt_tally_row *cache = mt_tally_row_of(gpu, MT_CATEGORY_KV_CACHE);
    assert_int_equal(cache->provenance, MT_PROVENANCE_DERIVED);
    assert_int_equal(cache->allocated_bytes, 512 * MIB);
    assert_int_equal(cache->low_bytes, 500 * MIB);
    assert_int_equal(cache->high_bytes, 600 * MIB);
    const struct mt_tally_row *context = mt_tally_row_of(gpu, MT_CATEGORY_CONTEXT);
    assert_int_equal(gpu->total_high_bytes, 2 * GIB + 600 * MIB + context->high_bytes);
    mt_estimate_destroy(estimate);
}

static void test_what_was_said_may_not_fit(void **state)
{
    (void)state;
    struct spoken spoken;
    prepare(&spoken);
    spoken.device_bytes[0] = 2 * GIB;
    struct mt_estimate *estimate = estimate_of(&spoken);
    assert_int_equal(estimate->verdict, MT_VERDICT_CANNOT);
    mt_estimate_destroy(estimate);
}

static void test_reasons_of_the_caller_decide(void **state)
{
    (void)state;
    struct spoken spoken;
    prepare(&spoken);
    spoken.said.spills = "a part lies on the host";
    spoken.said.flags = "-c 4096";
    struct mt_estimate *estimate = estimate_of(&spoken);
    assert_int_equal(estimate->verdict, MT_VERDICT_SPILLS);
    assert_string_equal(estimate->reason, "a part lies on the host");
    assert_string_equal(estimate->flags, "-c 4096");
    mt_estimate_destroy(estimate);
    spoken.said.cannot = "it refused";
    estimate = estimate_of(&spoken);
    assert_int_equal(estimate->verdict, MT_VERDICT_CANNOT);
    assert_string_equal(estimate->reason, "it refused");
    mt_estimate_destroy(estimate);
}

/* The host has 600 MiB for 700 MiB of mapped weights: the kernel drops and reads them again. */
static void test_mapped_weights_page(void **state)
{
    (void)state;
    struct spoken spoken;
    prepare(&spoken);
    spoken.settings.host_bytes = 600 * MIB;
    struct mt_estimate *estimate = estimate_of(&spoken);
    assert_int_equal(estimate->verdict, MT_VERDICT_PAGES);
    mt_estimate_destroy(estimate);
}

static const char *rule_on_the_device(struct spoken *spoken, const char *engine, char *rule,
                                      size_t size)
{
    spoken->said.engine = engine;
    struct mt_estimate *estimate = estimate_of(spoken);
    const struct mt_tally_row *row =
        mt_tally_row_of(&estimate->tally.places[1], MT_CATEGORY_WEIGHTS);
    snprintf(rule, size, "%s", row->details[0].rule);
    mt_estimate_destroy(estimate);
    return rule;
}

static void test_the_rule_names_the_engine_that_was_rehearsed(void **state)
{
    (void)state;
    struct spoken spoken;
    char rule[64];
    prepare(&spoken);
    assert_string_equal(rule_on_the_device(&spoken, NULL, rule, sizeof rule),
                        "llama.cpp/rehearsed");
    assert_string_equal(rule_on_the_device(&spoken, "PyTorch", rule, sizeof rule),
                        "PyTorch/rehearsed");
}

static void assert_refused(struct spoken *spoken, int code)
{
    struct mt_estimate *estimate = (struct mt_estimate *)spoken;
    assert_int_equal(mt_estimate_from_plan(&spoken->hand.model, &spoken->settings, &spoken->said,
                                           &estimate, NULL),
                     code);
    assert_ptr_equal(estimate, spoken);
}

static void test_a_place_that_is_not_there_is_refused(void **state)
{
    (void)state;
    struct spoken spoken;
    static const char *const names[] = {"gpu:1", "gpu:", "gpu:x", "gpu:0x", "moon", ""};
    prepare(&spoken);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        spoken.places[1].place = names[i];
        assert_refused(&spoken, MT_EARG);
    }
}

static void test_engines_that_cannot_be_rehearsed_are_refused(void **state)
{
    (void)state;
    struct spoken spoken;
    prepare(&spoken);
    spoken.settings.engine = "transformers";
    assert_refused(&spoken, MT_EUNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_engine_is_believed_and_the_driver_added),
        cmocka_unit_test(test_what_was_rehearsed_is_told_from_what_rules_gave),
        cmocka_unit_test(test_a_band_that_was_said_is_kept),
        cmocka_unit_test(test_what_was_said_may_not_fit),
        cmocka_unit_test(test_reasons_of_the_caller_decide),
        cmocka_unit_test(test_mapped_weights_page),
        cmocka_unit_test(test_the_rule_names_the_engine_that_was_rehearsed),
        cmocka_unit_test(test_a_place_that_is_not_there_is_refused),
        cmocka_unit_test(test_engines_that_cannot_be_rehearsed_are_refused),
    };
    return RUN_TESTS(tests);
}
