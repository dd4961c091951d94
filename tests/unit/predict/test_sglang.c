/* SPDX-License-Identifier: MIT */
/* SGLang: the reserve by its own formula, worked out by hand, and what is left of the device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "made_model.h"

static struct made_model made;

static struct mt_estimate *estimate(struct mt_predict_settings settings)
{
    struct mt_estimate *result = NULL;
    struct mt_error error = {0};
    if (mt_estimate_create(&made.model, &settings, &result, &error) < 0)
        fail_msg("%s", error.text);
    return result;
}

static struct mt_estimate *on_device(const char *engine, const uint64_t *bytes)
{
    return estimate((struct mt_predict_settings){
        .engine = engine, .device_bytes = bytes, .n_devices = 1, .context_tokens = 8192});
}

/* 24 GiB: 512 + 1.5 * 2,048 + 128 + 2 * 24 = 3,760 MiB of 24,576: 0.847. 80 GiB: 512 + 1.5 * 8,192
 * + 128 + 2 * 256 = 13,440 MiB of 81,920: 0.836. */
static void test_reserve_follows_the_device(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    uint64_t small = 24 * MADE_GIB;
    uint64_t large = 80 * MADE_GIB;
    struct mt_estimate *result = on_device("sglang@0.5.5", &small);
    assert_int_equal(result->settings.batched_tokens, 2048);
    assert_float_equal(result->settings.memory_share, 0.847, 1e-9);
    mt_estimate_destroy(result);
    result = on_device("sglang@0.5.5", &large);
    assert_int_equal(result->settings.batched_tokens, 8192);
    assert_float_equal(result->settings.memory_share, 0.836, 1e-9);
    mt_estimate_destroy(result);
}

/* 0.5.23 on 24 GiB: chunks of 4,096, graphs of 48 sequences, and 8 MiB for each of the 44 captured
 * sizes of a prompt: 8 + 14 + 8 + 8 + 12 up to 4,096 are 50. 512 + 6,144 + 128 + 96 + 400 = 7,280.
 */
static void test_newest_version_reserves_for_graphs_of_prompts(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    uint64_t small = 24 * MADE_GIB;
    struct mt_estimate *result = on_device("sglang@0.5.23", &small);
    assert_float_equal(result->settings.memory_share, 0.704, 1e-9);
    mt_estimate_destroy(result);
}

static void test_cache_gets_the_share_less_the_weights(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    uint64_t device = 80 * MADE_GIB; /* as of an H100, whose context has 527 MiB */
    struct mt_estimate *result = on_device("sglang@0.5.5", &device);
    uint64_t left = (80 * MADE_GIB - 527 * MADE_MIB) / 1000 * 836 - 16060522496;
    assert_in_range(result->pool.pool_bytes, left - 1000, left + 1000);
    assert_int_equal(result->pool.pool_tokens, left / 131072);
    assert_non_null(strstr(result->flags, "--mem-fraction-static 0.836"));
    mt_estimate_destroy(result);
}

/* With 8 layers that see all and 24 that see 1,024 tokens: F tokens of 8 * 4,096 bytes and 0.8 F of
 * 24 * 4,096. */
static void test_windowed_layers_have_a_pool_of_their_own(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    for (size_t i = 0; i < 32; i++)
        if (i % 4) {
            made.layers[i].attention = MT_ATTENTION_SLIDING;
            made.layers[i].window = 1024;
        }
    uint64_t device = 80 * MADE_GIB;
    struct mt_estimate *result = on_device("sglang@0.5.5", &device);
    uint64_t tokens = (uint64_t)result->pool.pool_bytes * 10 / (80 * 4096 + 8 * 24 * 4096);
    assert_in_range(result->pool.pool_tokens, tokens - 2, tokens + 2);
    mt_estimate_destroy(result);
}

static void make_recurrent(size_t first, size_t end)
{
    struct mt_model_description *d = &made.model.description;
    d->conv_kernel = 4;
    d->state_size = 128;
    d->group_count = 16;
    d->inner_size = 32 * 128;
    for (size_t i = first; i < end; i++) {
        made.layers[i].attention = MT_ATTENTION_NONE;
        made.layers[i].recurrence = MT_RECURRENCE_DELTA_NET;
    }
}

/* States get 0.9 / 1.9 of what is left, also where there is nothing else. */
static void test_states_alone_are_counted_by_sequences(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    make_recurrent(0, 32);
    uint64_t device = 48 * MADE_GIB;
    struct mt_estimate *result = on_device("sglang", &device);
    double one = 32 * (3 * 8192 * 2 + 32 * 128 * 128 * 4);
    uint64_t most = (uint64_t)((double)result->pool.pool_bytes * 0.9 / 1.9 / one);
    assert_int_equal(result->pool.bytes_per_token, 0);
    assert_in_range((uint64_t)result->pool.concurrency, most - 1, most);
    mt_estimate_destroy(result);
}

static void test_weights_above_the_share_cannot_start(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    uint64_t device = 16 * MADE_GIB;
    struct mt_estimate *result = on_device("sglang", &device);
    assert_true(result->pool.pool_bytes < 0);
    assert_int_equal(result->verdict, MT_VERDICT_CANNOT);
    mt_estimate_destroy(result);
}

/* 24 GiB hold the weights, 14.96 GiB, and a cache that is far from 131072 tokens. SGLang starts all
 * the same. */
static void test_a_cache_that_is_less_than_the_context_is_tight(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    uint64_t device = 24 * MADE_GIB;
    struct mt_estimate *result = estimate((struct mt_predict_settings){
        .engine = "sglang", .device_bytes = &device, .n_devices = 1, .context_tokens = 131072});
    assert_in_range(result->pool.pool_tokens, 1, 131071);
    assert_int_equal(result->verdict, MT_VERDICT_TIGHT);
    assert_non_null(strstr(result->reason, "fewer than one sequence of 131072"));
    mt_estimate_destroy(result);
}

/* Of 24 GiB, 264 MiB are the driver's on the card of that size, an RTX 3090 (median of published
 * measurements); 0.8 of the rest are the share. A layer weighs 4 * 4,096 *
 * 4,096 + 3 * 4,096 * 14,336 + 2 * 4,096 numbers, and 16 KiB of cache a token. Three layers and the
 * embedding leave 17.4 GiB, 380,000 tokens; two with 3 GiB more leave 14.9 GiB, 487,000 tokens. */
static void test_the_stage_with_the_fewest_tokens_bounds_all(void **state)
{
    (void)state;
    make_unequal_stages(&made);
    struct mt_predict_settings settings = two_stages("sglang@0.5.5");
    settings.memory_share = 0.8;
    struct mt_estimate *result = estimate(settings);
    uint64_t layer = 2 * (4 * 4096 * 4096 + 3 * 4096 * 14336 + 2 * 4096);
    uint64_t share = (24 * MADE_GIB - 264 * MADE_MIB) / 10 * 8;
    uint64_t tokens = (share - 3 * layer - 2 * 4096 * 32000) / (3 * 16384);
    assert_in_range(result->pool.pool_tokens, tokens - 1, tokens + 1);
    tokens = result->pool.pool_tokens;
    assert_int_equal(made_bytes(result, 0, MT_CATEGORY_KV_CACHE), tokens * 3 * 16384);
    assert_int_equal(made_bytes(result, 1, MT_CATEGORY_KV_CACHE), tokens * 2 * 16384);
    assert_in_range(made_bytes(result, 0, MT_CATEGORY_NONE), 0, 24 * MADE_GIB);
    assert_int_not_equal(result->verdict, MT_VERDICT_CANNOT);
    mt_estimate_destroy(result);
}

/* A second stage whose layers are all recurrent holds no tokens and bounds none. */
static void test_a_stage_without_a_cache_bounds_no_tokens(void **state)
{
    (void)state;
    make_unequal_stages(&made);
    make_recurrent(3, 5);
    struct mt_predict_settings settings = two_stages("sglang@0.5.5");
    settings.memory_share = 0.8;
    struct mt_estimate *result = estimate(settings);
    assert_in_range(result->pool.pool_tokens, 370000, 380000);
    assert_int_equal(made_bytes(result, 1, MT_CATEGORY_KV_CACHE), 0);
    mt_estimate_destroy(result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reserve_follows_the_device),
        cmocka_unit_test(test_newest_version_reserves_for_graphs_of_prompts),
        cmocka_unit_test(test_cache_gets_the_share_less_the_weights),
        cmocka_unit_test(test_windowed_layers_have_a_pool_of_their_own),
        cmocka_unit_test(test_states_alone_are_counted_by_sequences),
        cmocka_unit_test(test_weights_above_the_share_cannot_start),
        cmocka_unit_test(test_a_cache_that_is_less_than_the_context_is_tight),
        cmocka_unit_test(test_the_stage_with_the_fewest_tokens_bounds_all),
        cmocka_unit_test(test_a_stage_without_a_cache_bounds_no_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
