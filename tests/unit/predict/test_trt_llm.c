/* SPDX-License-Identifier: MIT */
/* TensorRT-LLM: the share of what is free, with the figures of published logs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <memtally/error.h>

#include "made_model.h"

/* Llama 2 7B: 32 layers of 32 heads, each with its keys. */
static const struct made_shape llama_2_7b = {32, 4096, 11008, 32, 32, 128, 32000, 4096, 0, 0, 0};
static struct made_model made;

static struct mt_estimate *estimate(struct mt_predict_settings settings)
{
    return made_estimate(&made, settings);
}

/* 66,304 MiB of cache are 132,608 tokens: 524,288 bytes each, in blocks of 128. */
static void test_tokens_of_a_pool_are_those_of_the_log(void **state)
{
    (void)state;
    make_model(&made, &llama_2_7b);
    uint64_t device = 80 * MADE_GIB;
    struct mt_estimate *result = estimate((struct mt_predict_settings){.engine = "trt-llm@0.8.0",
                                                                       .device_bytes = &device,
                                                                       .n_devices = 1,
                                                                       .context_tokens = 4096,
                                                                       .sequences = 8});
    assert_int_equal(result->pool.bytes_per_token, 524288);
    assert_int_equal(66304 * MADE_MIB / result->pool.bytes_per_token, 132608);
    assert_int_equal(result->pool.pool_tokens % 128, 0);
    mt_estimate_destroy(result);
}

/* "12.22 GiB available, fraction 0.9: 11.00 GiB": of each further GiB the cache gets nine tenths.
 */
static void test_the_share_is_of_what_is_free(void **state)
{
    (void)state;
    make_model(&made, &llama_2_7b);
    uint64_t device = 24 * MADE_GIB;
    struct mt_predict_settings settings = {.engine = "trt-llm@0.13.0",
                                           .device_bytes = &device,
                                           .n_devices = 1,
                                           .context_tokens = 2048,
                                           .sequences = 8};
    struct mt_estimate *small = estimate(settings);
    device += 10 * MADE_GIB;
    struct mt_estimate *large = estimate(settings);
    assert_int_equal((uint64_t)(large->pool.pool_bytes - small->pool.pool_bytes) / MADE_MIB,
                     9 * 1024);
    assert_true(small->pool.pool_tokens_low < small->pool.pool_tokens);
    assert_true(small->pool.pool_tokens_high > small->pool.pool_tokens);
    mt_estimate_destroy(small);
    mt_estimate_destroy(large);
}

/* flash_causal_lm.py and import_utils.py, get_cuda_free_memory: up to 2.4 TGI takes a share of what
 * is free after the warm-up; from 3.0.0 on what is free, less a share of the whole device. */
static void test_tgi_leaves_a_part_of_the_device_free(void **state)
{
    (void)state;
    make_model(&made, &llama_2_7b);
    uint64_t device = 40 * MADE_GIB;
    uint64_t used = 0;
    struct mt_predict_settings settings = {.engine = "tgi@2.4.0",
                                           .device_bytes = &device,
                                           .n_devices = 1,
                                           .device_used_bytes = &used,
                                           .context_tokens = 2048,
                                           .sequences = 8};
    struct mt_estimate *of_free = estimate(settings);
    settings.engine = "tgi@3.3.0";
    struct mt_estimate *of_device = estimate(settings);
    used = 4 * MADE_GIB;
    struct mt_estimate *of_rest = estimate(settings);
    settings.engine = "tgi@2.4.0";
    struct mt_estimate *of_less = estimate(settings);
    const struct mt_estimate_pool *pool = &of_free->pool;
    int64_t before = (int64_t)(pool->weights_bytes + pool->activations_bytes + pool->other_bytes);
    assert_in_range(pool->pool_bytes - of_device->pool.pool_bytes, before / 10 - 2,
                    before / 10 + 2);
    assert_int_equal(of_device->pool.pool_bytes - of_rest->pool.pool_bytes, 4 * MADE_GIB);
    assert_in_range(pool->pool_bytes - of_less->pool.pool_bytes, 4 * MADE_GIB * 9 / 10 - 2,
                    4 * MADE_GIB * 9 / 10 + 2);
    assert_true(!of_rest->reason || !strstr(of_rest->reason, "asks for")); /* as vLLM does */
    mt_estimate_destroy(of_free);
    mt_estimate_destroy(of_device);
    mt_estimate_destroy(of_rest);
    mt_estimate_destroy(of_less);
}

/* 2.66 and 5.76 GB of buffers for 2,048 sequences of 151,936 logits, 3 MB for one. */
static void test_buffers_grow_with_batch_and_vocabulary(void **state)
{
    (void)state;
    static const struct made_shape small = {24, 896, 4864, 14, 2, 64, 151936, 32768, 0, 1, 1};
    make_model(&made, &small);
    uint64_t device = 24 * MADE_GIB;
    struct mt_predict_settings settings = {.engine = "trt-llm@0.11.0",
                                           .device_bytes = &device,
                                           .n_devices = 1,
                                           .context_tokens = 4096};
    struct mt_estimate *result = estimate(settings);
    const struct mt_tally_row *row =
        mt_tally_row_of(&result->tally.places[1], MT_CATEGORY_WORKSPACE);
    assert_int_equal(result->settings.sequences, 2048);
    assert_in_range(row->allocated_bytes, 8320000000, 8520000000);
    mt_estimate_destroy(result);
    settings.sequences = 1;
    result = estimate(settings);
    row = mt_tally_row_of(&result->tally.places[1], MT_CATEGORY_WORKSPACE);
    assert_in_range(row->allocated_bytes, 3000000, 5000000);
    mt_estimate_destroy(result);
}

static void test_gguf_is_not_loaded(void **state)
{
    (void)state;
    make_model(&made, &llama_2_7b);
    made.model.description.format = MT_MODEL_GGUF;
    uint64_t device = 24 * MADE_GIB;
    struct mt_predict_settings settings = {
        .engine = "trt-llm", .device_bytes = &device, .n_devices = 1};
    struct mt_estimate *result = NULL;
    struct mt_error error = {0};
    assert_int_equal(mt_estimate_create(&made.model, &settings, &result, &error), MT_EUNSUPPORTED);
    assert_non_null(strstr(error.text, "GGUF"));
}

/* Nine tenths of what is free: three layers take 48 KiB of it for a token, two 32 KiB. The second
 * stage has 3 GiB of weights more, so fewer bytes and more tokens. */
static void test_the_stage_with_the_fewest_blocks_bounds_all(void **state)
{
    (void)state;
    make_unequal_stages(&made);
    struct mt_predict_settings settings = two_stages("trt-llm@1.2.0");
    struct mt_estimate *result = estimate(settings);
    uint64_t first = made_bytes(result, 0, MT_CATEGORY_KV_CACHE);
    uint64_t rest = 24 * MADE_GIB - made_bytes(result, 0, MT_CATEGORY_WEIGHTS) -
                    made_bytes(result, 0, MT_CATEGORY_ACTIVATIONS) -
                    made_bytes(result, 0, MT_CATEGORY_WORKSPACE) -
                    made_bytes(result, 0, MT_CATEGORY_CONTEXT);
    assert_int_equal(first, rest / 10 * 9 / (32 * 3 * 16384) * (32 * 3 * 16384));
    assert_int_equal(made_bytes(result, 1, MT_CATEGORY_KV_CACHE), first / 3 * 2);
    assert_int_equal(result->pool.pool_tokens, first / (3 * 16384));
    assert_int_not_equal(result->verdict, MT_VERDICT_CANNOT);
    mt_estimate_destroy(result);
}

static struct mt_estimate *on_device(const uint64_t *bytes, const uint64_t *used)
{
    return estimate((struct mt_predict_settings){.engine = "trt-llm@1.2.0",
                                                 .device_bytes = bytes,
                                                 .device_used_bytes = used,
                                                 .n_devices = 1,
                                                 .context_tokens = 4096});
}

/* The peak that is subtracted is that of all programs on the device. */
static void test_what_others_hold_is_not_divided(void **state)
{
    (void)state;
    make_model(&made, &llama_2_7b);
    uint64_t device = 80 * MADE_GIB;
    uint64_t used = 20 * MADE_GIB;
    struct mt_estimate *alone = on_device(&device, NULL);
    struct mt_estimate *beside = on_device(&device, &used);
    assert_in_range(alone->pool.pool_bytes - beside->pool.pool_bytes, 18 * MADE_GIB - 1,
                    18 * MADE_GIB + 1);
    assert_int_not_equal(beside->verdict, MT_VERDICT_CANNOT);
    mt_estimate_destroy(alone);
    mt_estimate_destroy(beside);
}

/* Each byte that a part takes more or less is nine tenths of a byte of cache and one tenth of the
 * total; graphs come on top whole. Parts are as their own rows have them. */
static void test_bounds_follow_from_those_of_the_parts(void **state)
{
    (void)state;
    static const enum mt_category parts[] = {MT_CATEGORY_ACTIVATIONS, MT_CATEGORY_WORKSPACE,
                                             MT_CATEGORY_CONTEXT};
    make_model(&made, &llama_2_7b);
    uint64_t device = 80 * MADE_GIB;
    struct mt_estimate *result = on_device(&device, NULL);
    const struct mt_tally_place *place = &result->tally.places[1];
    double more = 0;
    double less = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const struct mt_tally_row *row = mt_tally_row_of(place, parts[i]);
        more += (double)(row->high_bytes - row->allocated_bytes);
        less += (double)(row->allocated_bytes - row->low_bytes);
    }
    const struct mt_tally_row *graphs = mt_tally_row_of(place, MT_CATEGORY_GRAPHS);
    const struct mt_estimate_pool *pool = &result->pool;
    double block = 32 * 524288.0;
    double high = more / 10 + (double)(graphs->high_bytes - graphs->allocated_bytes);
    assert_true((double)(pool->pool_tokens - pool->pool_tokens_low) * 524288 > more * 0.9 - block);
    assert_true((double)(pool->pool_tokens - pool->pool_tokens_low) * 524288 < more * 0.9 + block);
    assert_true((double)(pool->pool_tokens_high - pool->pool_tokens) * 524288 > less * 0.9 - block);
    assert_true((double)(pool->pool_tokens_high - pool->pool_tokens) * 524288 < less * 0.9 + block);
    double found = (double)(place->total_high_bytes - place->total_allocated_bytes);
    assert_true(found > high - block && found < high + 2 * block);
    mt_estimate_destroy(result);
}

/* The builder warns of it, and goes on. */
static void test_a_context_above_the_trained_one_is_taken(void **state)
{
    (void)state;
    make_model(&made, &llama_2_7b);
    uint64_t device = 80 * MADE_GIB;
    struct mt_estimate *result = estimate((struct mt_predict_settings){.engine = "trt-llm@1.2.0",
                                                                       .device_bytes = &device,
                                                                       .n_devices = 1,
                                                                       .context_tokens = 8192});
    assert_int_not_equal(result->verdict, MT_VERDICT_CANNOT);
    mt_estimate_destroy(result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_of_a_pool_are_those_of_the_log),
        cmocka_unit_test(test_the_share_is_of_what_is_free),
        cmocka_unit_test(test_tgi_leaves_a_part_of_the_device_free),
        cmocka_unit_test(test_buffers_grow_with_batch_and_vocabulary),
        cmocka_unit_test(test_gguf_is_not_loaded),
        cmocka_unit_test(test_the_stage_with_the_fewest_blocks_bounds_all),
        cmocka_unit_test(test_what_others_hold_is_not_divided),
        cmocka_unit_test(test_bounds_follow_from_those_of_the_parts),
        cmocka_unit_test(test_a_context_above_the_trained_one_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
