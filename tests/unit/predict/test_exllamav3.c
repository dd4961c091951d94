/* SPDX-License-Identifier: MIT */
/* exllamav3: cache of all layers in its quantised types, and devices that are filled in order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <memtally/error.h>

#include "made_model.h"

static struct made_model made;

static struct mt_estimate *estimate(struct mt_predict_settings settings)
{
    return made_estimate(&made, settings);
}

/* Gemma 3 27B in Q6 on an RTX 4090: 17,404 MiB at 2,048 tokens, 23,238 at 30,720, so 208 KiB for a
 * token; 62 layers * 2 * 16 heads * 128 * 6.5 bits are 201.5, windowed layers included. */
static void test_windowed_layers_keep_the_whole_cache(void **state)
{
    (void)state;
    static const struct made_shape gemma = {62, 5376, 21504, 32, 16, 128, 262208, 131072, 0, 0, 1};
    make_model(&made, &gemma);
    for (size_t i = 0; i < 62; i++)
        if (i % 6 != 5) {
            made.layers[i].attention = MT_ATTENTION_SLIDING;
            made.layers[i].window = 1024;
        }
    uint64_t device = 96 * MADE_GIB;
    struct mt_predict_settings settings = {.engine = "exllamav3",
                                           .device_bytes = &device,
                                           .n_devices = 1,
                                           .kv_type_k = "q6",
                                           .context_tokens = 2048};
    struct mt_estimate *small = estimate(settings);
    settings.context_tokens = 30720;
    struct mt_estimate *large = estimate(settings);
    uint64_t more =
        made_row(large, 1, MT_CATEGORY_KV_CACHE) - made_row(small, 1, MT_CATEGORY_KV_CACHE);
    assert_int_equal(more, 28672ULL * 62 * 2 * 16 * 128 * 13 / 16);
    assert_in_range(more / MADE_MIB, 23238 - 17404 - 250, 23238 - 17404 + 250);
    mt_estimate_destroy(small);
    mt_estimate_destroy(large);
}

static void test_keys_and_values_may_differ(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    uint64_t device = 24 * MADE_GIB;
    struct mt_estimate *result = estimate((struct mt_predict_settings){.engine = "exllamav3",
                                                                       .device_bytes = &device,
                                                                       .n_devices = 1,
                                                                       .kv_type_k = "q8",
                                                                       .kv_type_v = "q4",
                                                                       .context_tokens = 1000});
    /* 1,000 tokens are four pages of 256. */
    assert_int_equal(made_row(result, 1, MT_CATEGORY_KV_CACHE),
                     1024ULL * 32 * 8 * (128 * 17 / 16 + 72));
    assert_non_null(strstr(result->flags, "--cache-mode 8,4"));
    mt_estimate_destroy(result);
}

static void test_devices_are_filled_in_order(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    uint64_t devices[] = {10 * MADE_GIB, 24 * MADE_GIB};
    struct mt_estimate *result = estimate((struct mt_predict_settings){
        .engine = "exllamav3", .device_bytes = devices, .n_devices = 2, .context_tokens = 8192});
    uint64_t embedding = 128256ULL * 4096 * 2;
    assert_int_equal(made_row(result, 0, MT_CATEGORY_WEIGHTS), embedding);
    assert_true(made_row(result, 1, MT_CATEGORY_WEIGHTS) >
                made_row(result, 2, MT_CATEGORY_WEIGHTS));
    assert_int_equal(made_row(result, 1, MT_CATEGORY_WEIGHTS) +
                         made_row(result, 2, MT_CATEGORY_WEIGHTS),
                     16060522496 - embedding);
    mt_estimate_destroy(result);
}

/* A drafted token keeps the states of one more step. */
static void test_states_have_a_history_for_drafted_tokens(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    struct mt_model_description *d = &made.model.description;
    d->conv_kernel = 4;
    d->state_size = 128;
    d->group_count = 16;
    d->inner_size = 32 * 128;
    for (size_t i = 0; i < 24; i++) {
        made.layers[i].attention = MT_ATTENTION_NONE;
        made.layers[i].recurrence = MT_RECURRENCE_DELTA_NET;
    }
    uint64_t device = 48 * MADE_GIB;
    struct mt_estimate *result = estimate((struct mt_predict_settings){.engine = "exllamav3",
                                                                       .device_bytes = &device,
                                                                       .n_devices = 1,
                                                                       .draft_tokens = 3,
                                                                       .context_tokens = 4096});
    uint64_t one = 3 * 8192 * 4 + 32 * 128 * 128 * 4;
    assert_int_equal(made_row(result, 1, MT_CATEGORY_RECURRENT_STATE), 24 * 4 * one);
    mt_estimate_destroy(result);
}

static void test_types_of_llama_cpp_are_refused(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    uint64_t device = 24 * MADE_GIB;
    struct mt_predict_settings settings = {
        .engine = "exllamav3", .device_bytes = &device, .n_devices = 1, .kv_type_k = "q8_0"};
    struct mt_estimate *result = NULL;
    struct mt_error error = {0};
    assert_int_equal(mt_estimate_create(&made.model, &settings, &result, &error), MT_EARG);
    assert_non_null(strstr(error.text, "nearest is q8"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windowed_layers_keep_the_whole_cache),
        cmocka_unit_test(test_keys_and_values_may_differ),
        cmocka_unit_test(test_devices_are_filled_in_order),
        cmocka_unit_test(test_states_have_a_history_for_drafted_tokens),
        cmocka_unit_test(test_types_of_llama_cpp_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
