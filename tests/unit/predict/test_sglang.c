/* SPDX-License-Identifier: MIT */
/* SGLang: the reserve by its own formula, worked out by hand, and what is left of the device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "made_model.h"

/* What Llama 3.1 8B has: cosines and sines of 131,072 positions, 64 each, in 32 bit. */
#define ROTARY (UINT64_C(131072) * 128 * 4)

static struct made_model made;

static struct mt_estimate *estimate(struct mt_predict_settings settings)
{
    return made_estimate(&made, settings);
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

/* By memory_hook.py, handle_gpu_memory_settings: the largest graph counts whole, however few
 * requests run at a time (--max-running-requests). */
static void test_few_requests_leave_the_reserve_as_it_is(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    uint64_t large = 80 * MADE_GIB;
    struct mt_estimate *result = estimate((struct mt_predict_settings){.engine = "sglang@0.5.5",
                                                                       .device_bytes = &large,
                                                                       .n_devices = 1,
                                                                       .sequences = 8,
                                                                       .context_tokens = 8192});
    assert_float_equal(result->settings.memory_share, 0.836, 1e-9);
    mt_estimate_destroy(result);
}

/* By the sources of these versions, on 80 GiB: 512 + 1.5 * 8,192 + 128 = 12,928 MiB, and 512 for
 * graphs of 256 sequences, 464 for 58 sizes of a prompt. */
static void test_some_versions_reserve_for_graphs_that_are_not_captured(void **state)
{
    static const struct {
        const char *engine;
        double share;
    } cases[] = {{"sglang@0.5.8", 0.836},        /* 13,440 */
                 {"sglang@0.5.10", 0.830},       /* 13,904 */
                 {"sglang@0.5.13.post1", 0.830}, /* 13,904 */
                 {"sglang@0.5.14", 0.836},       /* 13,440 */
                 {"sglang@0.5.15", 0.842}};      /* 12,928 */
    uint64_t large = 80 * MADE_GIB;
    (void)state;
    make_model(&made, &llama_3_1_8b);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mt_predict_settings settings = {.engine = cases[i].engine,
                                               .device_bytes = &large,
                                               .n_devices = 1,
                                               .context_tokens = 8192,
                                               .eager = 1};
        struct mt_estimate *result = estimate(settings);
        assert_float_equal(result->settings.memory_share, cases[i].share, 1e-9);
        mt_estimate_destroy(result);
    }
}

/* From 0.5.20 on --cuda-graph-max-bs may be the beginning of two flags, and is refused. */
static void test_the_largest_graph_has_the_flag_of_its_version(void **state)
{
    static const char *const flags[][2] = {{"sglang@0.5.13", "--cuda-graph-max-bs 256"},
                                           {"sglang@0.5.23", "--cuda-graph-max-bs-decode 256"}};
    uint64_t large = 80 * MADE_GIB;
    (void)state;
    make_model(&made, &llama_3_1_8b);
    for (size_t i = 0; i < 2; i++) {
        struct mt_predict_settings settings = {.engine = flags[i][0],
                                               .device_bytes = &large,
                                               .n_devices = 1,
                                               .sequences = 512,
                                               .context_tokens = 8192};
        struct mt_estimate *result = estimate(settings);
        assert_non_null(strstr(result->flags, flags[i][1]));
        mt_estimate_destroy(result);
    }
}

/* 0.5.23 on 24 GiB: chunks of 4,096, graphs of 48 sequences, and 8 MiB for each of the 50 captured
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

static double share_of(const char *engine)
{
    uint64_t small = 24 * MADE_GIB;
    struct mt_estimate *result = on_device(engine, &small);
    double share = result->settings.memory_share;
    mt_estimate_destroy(result);
    return share;
}

/* By the sources of these versions, on 24 GiB with chunks of 2,048: 512 + 3,072 + 128 + 48 = 3,760,
 * with 42 sizes of a prompt 4,096, and with 1,536 for latent attention 5,296. A model that sees has
 * 0.95 of the share. */
static void test_families_without_graphs_of_prompts_reserve_nothing_for_them(void **state)
{
    static const struct {
        const char *engine, *architecture;
        uint64_t latent;
        int sees;
        double share;
    } cases[] = {
        {"sglang@0.5.14", "qwen3next", 0, 0, 0.847},
        {"sglang@0.5.15", "qwen3next", 0, 0, 0.833},
        {"sglang@0.5.12", "glm-dsa", 512, 0, 0.847},
        {"sglang@0.5.13", "glm-dsa", 512, 0, 0.785},
        {"sglang@0.5.14", "deepseek2", 512, 0, 0.785},
        {"sglang@0.5.16", "deepseek2", 512, 0, 0.847},
        {"sglang@0.5.17", "deepseek2", 512, 0, 0.785},
        {"sglang@0.5.15", "qwen35", 0, 1, 0.847 * 0.95},
        {"sglang@0.5.16", "qwen35", 0, 1, 0.833 * 0.95},
        {"sglang@0.5.16", "qwen3vl", 0, 1, 0.847 * 0.95},
    };
    (void)state;
    make_model(&made, &llama_3_1_8b);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        made.model.description.architecture = cases[i].architecture;
        made.model.description.kv_lora_rank = cases[i].latent;
        made.model.description.sees = cases[i].sees;
        assert_float_equal(share_of(cases[i].engine), cases[i].share, 1e-6);
    }
}

/* By the sources of these versions, on 24 GiB. 0.5.19 has chunks of 2,048 and 42 sizes of a prompt:
 * 512 + 3,072 + 128 + 48 + 336 = 4,096. Latent attention has 1,536 MiB in place of what 50 sizes
 * have: 512 + 6,144 + 128 + 96 + 1,536 = 8,416. A model that sees has none of these, 6,880, and of
 * the share 0.95 less a tenth for what 24 layers of 1,152 have more than 24 of 1,024. */
static void test_reserve_follows_version_and_model(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    assert_float_equal(share_of("sglang@0.5.9"), 0.847, 1e-9);
    assert_float_equal(share_of("sglang@0.5.10"), 0.833, 1e-9);
    assert_float_equal(share_of("sglang@0.5.19"), 0.833, 1e-9);
    assert_float_equal(share_of("sglang@0.5.20"), 0.704, 1e-9);
    made.model.description.kv_lora_rank = 512;
    assert_float_equal(share_of("sglang@0.5.20"), 0.658, 1e-9);
    made.model.description.kv_lora_rank = 0;
    made.model.description.sees = 1;
    made.model.description.vision_width = 1152;
    assert_float_equal(share_of("sglang@0.5.20"), 0.66583125F, 1e-6);
    made.model.description.vision_width = 4096;
    assert_float_equal(share_of("sglang@0.5.20"), 0.5472F, 1e-6);
}

static struct mt_estimate *estimate_seeing(struct mt_predict_settings settings, const char *family)
{
    made.model.description.sees = 1;
    made.model.description.architecture = family;
    return estimate(settings);
}

/* The log of a rehearsal of 0.5.23 with Qwen3-VL-8B on an H100: 77.14 of 79.18 GiB are free before
 * the weights, and "Reserving 1.00 GB of the KV budget". Two contexts are 1.06 GiB of the 2.04. By
 * the source, other families and cards have no pool, and 100 MiB of encoded pictures. */
static void test_pictures_have_a_pool_and_a_process(void **state)
{
    uint64_t device = 81080 * MADE_MIB;
    struct mt_predict_settings settings = {.engine = "sglang@0.5.23",
                                           .device_bytes = &device,
                                           .n_devices = 1,
                                           .memory_share = 0.9,
                                           .context_tokens = 8192};
    (void)state;
    make_model(&made, &llama_3_1_8b);
    struct mt_estimate *blind = estimate(settings);
    struct mt_estimate *seeing = estimate_seeing(settings, "qwen3vl");
    assert_int_equal(blind->pool.other_bytes, 0);
    assert_int_equal(seeing->pool.other_bytes, MADE_GIB);
    uint64_t free_before = (uint64_t)((double)seeing->pool.requested_bytes / 0.9);
    uint64_t blind_before = (uint64_t)((double)blind->pool.requested_bytes / 0.9);
    assert_in_range(free_before / MADE_MIB, 78950, 79035); /* 77.14 GiB are 78,991 MiB */
    assert_in_range((blind_before - free_before) / MADE_MIB, 1024 + 500, 1024 + 580);
    struct mt_estimate *other = estimate_seeing(settings, "gemma3");
    assert_int_equal(other->pool.other_bytes, 100 * MADE_MIB);
    assert_int_equal(other->pool.requested_bytes, blind->pool.requested_bytes);
    device = 24 * MADE_GIB;
    struct mt_estimate *small = estimate_seeing(settings, "qwen3vl");
    assert_int_equal(small->pool.other_bytes, 100 * MADE_MIB);
    mt_estimate_destroy(small);
    mt_estimate_destroy(other);
    mt_estimate_destroy(blind);
    mt_estimate_destroy(seeing);
}

static uint64_t workspace_of(const struct mt_estimate *result, size_t place)
{
    const struct mt_tally_row *row =
        mt_tally_row_of(&result->tally.places[place], MT_CATEGORY_WORKSPACE);
    return row ? row->allocated_bytes : 0;
}

/* One process prepares pictures for all ranks, on the first card: a pool of 1 GiB, and a context.
 */
static void test_ranks_share_the_pool_of_pictures(void **state)
{
    static const uint64_t devices[4] = {81080 * MADE_MIB, 81080 * MADE_MIB, 81080 * MADE_MIB,
                                        81080 * MADE_MIB};
    struct mt_predict_settings settings = {.engine = "sglang@0.5.23",
                                           .device_bytes = devices,
                                           .n_devices = 4,
                                           .tensor_parallel = 4,
                                           .memory_share = 0.9,
                                           .context_tokens = 8192};
    (void)state;
    make_model(&made, &llama_3_1_8b);
    struct mt_estimate *blind = estimate(settings);
    struct mt_estimate *seeing = estimate_seeing(settings, "qwen3vl");
    uint64_t less = blind->pool.requested_bytes - seeing->pool.requested_bytes;
    assert_in_range((uint64_t)((double)less / 0.9) / MADE_MIB, 1024 + 500, 1024 + 580);
    for (size_t place = 2; place <= 4; place++)
        assert_in_range((workspace_of(seeing, 1) - workspace_of(seeing, place)) / MADE_MIB,
                        1024 + 500, 1024 + 580);
    mt_estimate_destroy(blind);
    mt_estimate_destroy(seeing);
}

static void test_cache_gets_the_share_less_the_weights(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    uint64_t device = 80 * MADE_GIB; /* as of an H100, whose context has 527 MiB */
    struct mt_estimate *result = on_device("sglang@0.5.5", &device);
    uint64_t left = (80 * MADE_GIB - 527 * MADE_MIB) / 1000 * 836 - 16060522496 - ROTARY;
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
    made.model.description.architecture = "gpt-oss";
    struct mt_estimate *result = on_device("sglang@0.5.5", &device);
    uint64_t tokens = (uint64_t)result->pool.pool_bytes * 10 / (80 * 4096 + 8 * 24 * 4096);
    assert_in_range(result->pool.pool_tokens, tokens - 2, tokens + 2);
    mt_estimate_destroy(result);
    made.model.description.architecture = "gemma2"; /* of which SGLang has one pool of all layers */
    result = on_device("sglang@0.5.5", &device);
    tokens = (uint64_t)result->pool.pool_bytes / (32 * 4096);
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

/* The driver has 264 MiB of 24 GiB on the card of that size, an RTX 3090 (median of published
 * measurements), and NCCL 490 between the stages; 0.8 of the rest are the share. A layer weighs 4 *
 * 4,096 * 4,096 + 3 * 4,096 * 14,336 + 2 * 4,096 numbers, and 16 KiB of cache a token. Three layers
 * and the embedding leave 17.0 GiB, 371,000 tokens; two with 3 GiB more leave 14.7 GiB, 482,000
 * tokens. */
static void test_the_stage_with_the_fewest_tokens_bounds_all(void **state)
{
    (void)state;
    make_unequal_stages(&made);
    made.model.description.architecture = "qwen2"; /* whose output is on the last stage alone */
    struct mt_predict_settings settings = two_stages("sglang@0.5.5");
    settings.memory_share = 0.8;
    struct mt_estimate *result = estimate(settings);
    uint64_t layer = 2 * (4 * 4096 * 4096 + 3 * 4096 * 14336 + 2 * 4096);
    uint64_t share = (24 * MADE_GIB - (264 + 490) * MADE_MIB) / 10 * 8;
    uint64_t rotary = made.model.description.context_length * 128 * 4;
    uint64_t tokens = (share - 3 * layer - 2 * 4096 * 32000 - rotary) / (3 * 16384);
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
    assert_in_range(result->pool.pool_tokens, 362000, 372000);
    assert_int_equal(made_bytes(result, 1, MT_CATEGORY_KV_CACHE), 0);
    mt_estimate_destroy(result);
}

/* What other programs hold is not free when the engine starts: (80 GiB - 20 GiB - 527 MiB) * 0.836
 * hold the weights and the cache, and all of it fits beside the others. */
static void test_what_others_hold_is_not_divided(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    uint64_t device = 80 * MADE_GIB;
    uint64_t used = 20 * MADE_GIB;
    struct mt_estimate *result = estimate((struct mt_predict_settings){.engine = "sglang@0.5.5",
                                                                       .device_bytes = &device,
                                                                       .device_used_bytes = &used,
                                                                       .n_devices = 1,
                                                                       .context_tokens = 8192});
    uint64_t left = (60 * MADE_GIB - 527 * MADE_MIB) / 1000 * 836 - 16060522496 - ROTARY;
    assert_in_range(result->pool.pool_bytes, left - 1000, left + 1000);
    assert_int_not_equal(result->verdict, MT_VERDICT_CANNOT);
    mt_estimate_destroy(result);
}

/* Llama 3.1 was trained for 131,072 tokens, and model_config.py raises above that. */
static void test_a_context_above_the_trained_one_is_refused(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    uint64_t device = 80 * MADE_GIB;
    struct mt_predict_settings settings = {
        .engine = "sglang", .device_bytes = &device, .n_devices = 1, .context_tokens = 131072};
    struct mt_estimate *result = estimate(settings);
    assert_int_not_equal(result->verdict, MT_VERDICT_CANNOT);
    mt_estimate_destroy(result);
    settings.context_tokens = 131073;
    result = estimate(settings);
    assert_int_equal(result->verdict, MT_VERDICT_CANNOT);
    assert_non_null(strstr(result->reason, "--context-length 131073"));
    mt_estimate_destroy(result);
}

/* 400 million parameters in 16 bit may be half as many more: 400,000,000 bytes, which are not those
 * of the cache then. Of the device's total they are no part: the cache takes what they leave. */
static void test_an_encoder_takes_from_the_cache_and_not_from_the_device(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    uint64_t device = 80 * MADE_GIB;
    struct mt_estimate *without = on_device("sglang@0.5.5", &device);
    made.model.description.lacks_encoders = 1;
    made.model.description.encoder_parameters = 400000000;
    struct mt_estimate *with = on_device("sglang@0.5.5", &device);
    uint64_t less = without->pool.pool_tokens - without->pool.pool_tokens_low;
    uint64_t less_with = with->pool.pool_tokens - with->pool.pool_tokens_low;
    assert_in_range(less_with - less, 400000000 / 131072 - 1, 400000000 / 131072 + 1);
    uint64_t high = without->tally.places[1].total_high_bytes;
    uint64_t high_with = with->tally.places[1].total_high_bytes;
    assert_in_range(high_with, high - MADE_MIB, high + MADE_MIB);
    mt_estimate_destroy(without);
    mt_estimate_destroy(with);
}

/* States keep their 0.9 / 1.9 of less memory too, so that tokens miss the rest of it alone, but for
 * one state that may not be whole any more. */
static void test_states_share_in_what_may_be_missing(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    uint64_t device = 80 * MADE_GIB;
    struct mt_estimate *whole = on_device("sglang@0.5.5", &device);
    double span = (double)(whole->pool.pool_tokens - whole->pool.pool_tokens_low) * 131072;
    make_recurrent(16, 32);
    for (size_t i = 17; i < 32; i++)
        made.layers[i].recurrence = MT_RECURRENCE_NONE;
    struct mt_estimate *half = on_device("sglang@0.5.5", &device);
    uint64_t one = (3 * 8192 * 2 + 32 * 128 * 128 * 4) / 65536 + 1;
    uint64_t less = (uint64_t)(span / 1.9 / 65536);
    assert_true(less > 2 * one);
    assert_in_range(half->pool.pool_tokens - half->pool.pool_tokens_low, less - one, less + one);
    mt_estimate_destroy(whole);
    mt_estimate_destroy(half);
}

/* mamba_utils.py: the convolution keeps bfloat16 and the state float32, also of a model that runs
 * in 32 bit. */
static void test_a_convolution_is_kept_in_16_bit(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    make_recurrent(0, 32);
    uint64_t device = 80 * MADE_GIB;
    struct mt_estimate *result = estimate((struct mt_predict_settings){.engine = "sglang",
                                                                       .device_bytes = &device,
                                                                       .n_devices = 1,
                                                                       .weight_type = "float32",
                                                                       .context_tokens = 8192});
    uint64_t one = 32 * (3 * 8192 * 2 + 32 * 128 * 128 * 4);
    assert_int_equal(made_bytes(result, 0, MT_CATEGORY_RECURRENT_STATE) % one, 0);
    mt_estimate_destroy(result);
}

static void test_idle_devices_are_named(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    uint64_t devices[] = {80 * MADE_GIB, 80 * MADE_GIB};
    struct mt_estimate *result = estimate((struct mt_predict_settings){
        .engine = "sglang", .device_bytes = devices, .n_devices = 2, .context_tokens = 8192});
    int is_said = 0;
    for (size_t i = 0; i < result->tally.n_notes; i++)
        is_said |=
            strstr(result->tally.notes[i], "1 of 2 devices are used; --tp-size takes") != NULL;
    assert_true(is_said);
    mt_estimate_destroy(result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reserve_follows_the_device),
        cmocka_unit_test(test_few_requests_leave_the_reserve_as_it_is),
        cmocka_unit_test(test_some_versions_reserve_for_graphs_that_are_not_captured),
        cmocka_unit_test(test_the_largest_graph_has_the_flag_of_its_version),
        cmocka_unit_test(test_newest_version_reserves_for_graphs_of_prompts),
        cmocka_unit_test(test_reserve_follows_version_and_model),
        cmocka_unit_test(test_pictures_have_a_pool_and_a_process),
        cmocka_unit_test(test_ranks_share_the_pool_of_pictures),
        cmocka_unit_test(test_families_without_graphs_of_prompts_reserve_nothing_for_them),
        cmocka_unit_test(test_cache_gets_the_share_less_the_weights),
        cmocka_unit_test(test_windowed_layers_have_a_pool_of_their_own),
        cmocka_unit_test(test_states_alone_are_counted_by_sequences),
        cmocka_unit_test(test_weights_above_the_share_cannot_start),
        cmocka_unit_test(test_a_cache_that_is_less_than_the_context_is_tight),
        cmocka_unit_test(test_the_stage_with_the_fewest_tokens_bounds_all),
        cmocka_unit_test(test_a_stage_without_a_cache_bounds_no_tokens),
        cmocka_unit_test(test_what_others_hold_is_not_divided),
        cmocka_unit_test(test_a_context_above_the_trained_one_is_refused),
        cmocka_unit_test(test_an_encoder_takes_from_the_cache_and_not_from_the_device),
        cmocka_unit_test(test_states_share_in_what_may_be_missing),
        cmocka_unit_test(test_a_convolution_is_kept_in_16_bit),
        cmocka_unit_test(test_idle_devices_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
