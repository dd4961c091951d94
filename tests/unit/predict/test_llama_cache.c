/* SPDX-License-Identifier: MIT */
/* Caches of llama.cpp and ik_llama.cpp against what their logs said, and against arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <memtally/error.h>
#include <memtally/units.h>

#include "hand_model.h"

#define KIB(n) ((uint64_t)((n)*1024.0))
#define MIB(n) ((uint64_t)((n)*1048576.0))

/* Cache on the host of a model that runs on the CPU. */
static uint64_t cache_of(const struct hand_model *hand, const struct mt_predict_settings *settings)
{
    struct mt_estimate *estimate = hand_model_estimate(hand, settings);
    uint64_t bytes = hand_model_bytes(estimate, "host", MT_CATEGORY_KV_CACHE, NULL);
    mt_estimate_destroy(estimate);
    return bytes;
}

static uint64_t state_of(const struct hand_model *hand, const struct mt_predict_settings *settings)
{
    struct mt_estimate *estimate = hand_model_estimate(hand, settings);
    uint64_t bytes = hand_model_bytes(estimate, "host", MT_CATEGORY_RECURRENT_STATE, NULL);
    mt_estimate_destroy(estimate);
    return bytes;
}

/* Logs of users, with the sizes that the engine printed. */
static void test_caches_of_plain_models_are_what_published_logs_say(void **state)
{
    (void)state;
    static const struct {
        const char *engine;
        const char *type_k;
        const char *type_v;
        uint64_t layers;
        uint64_t kv_heads;
        uint64_t head_size;
        uint64_t context;
        uint64_t sequences;
        double mib;
    } logs[] = {
        {"llama.cpp@9840", "q8_0", "q8_0", 36, 8, 128, 8192, 4, 612},        /* Qwen3-4B */
        {"llama.cpp@9840", "f16", "f16", 36, 8, 128, 32768, 1, 4608},        /* Qwen3-4B */
        {"llama.cpp@5192", "f16", "f16", 94, 4, 128, 32768, 1, 6016},        /* Qwen3-235B-A22B */
        {"llama.cpp@5274", "q8_0", "q8_0", 94, 4, 128, 32768, 1, 3196},      /* Qwen3-235B-A22B */
        {"llama.cpp@5781", "f16", "f16", 32, 8, 128, 16384, 1, 2048},        /* Llama-3.1-8B */
        {"ik_llama.cpp@3822", "q8_0", "q8_0", 62, 8, 128, 196608, 1, 25296}, /* Qwen3-Coder-480B */
        {"ik_llama.cpp@3919", "q8_0", "q8_0", 80, 8, 128, 4096, 1, 680},     /* Ling-1T */
    };
    for (size_t i = 0; i < sizeof logs / sizeof *logs; i++) {
        struct hand_model hand;
        hand_model_init(&hand, "llama", logs[i].layers, 64, logs[i].kv_heads, logs[i].head_size);
        struct mt_predict_settings settings = {.engine = logs[i].engine,
                                               .context_tokens = logs[i].context,
                                               .sequences = logs[i].sequences,
                                               .kv_type_k = logs[i].type_k,
                                               .kv_type_v = logs[i].type_v,
                                               .flash_attention = MT_SWITCH_ON};
        assert_int_equal(cache_of(&hand, &settings), MIB(logs[i].mib));
    }
}

/* GLM-4.5-Air: 46 layers and one that drafts. */
static void test_a_draft_layer_has_a_cache_only_in_engines_that_do_not_know_it(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "glm4moe", 47, 96, 8, 128);
    hand.model.description.n_draft_layers = 1;
    hand.layers[46].is_draft = 1;
    struct mt_predict_settings settings = {.engine = "ik_llama.cpp@3829", .context_tokens = 16384};
    assert_int_equal(cache_of(&hand, &settings), MIB(3008));
    settings.engine = "ik_llama.cpp@3961";
    assert_int_equal(cache_of(&hand, &settings), MIB(3008) / 47 * 46);
    settings.engine = "llama.cpp@6168";
    settings.context_tokens = 131072;
    assert_int_equal(cache_of(&hand, &settings), MIB(23552));
    settings.engine = "llama.cpp@11434";
    settings.sequences = 1;
    settings.draft_tokens = 3;
    assert_int_equal(cache_of(&hand, &settings), MIB(23552) + MIB(512));
}

/* gpt-oss: every other layer sees 128 tokens. */
static void gpt_oss(struct hand_model *hand, uint64_t layers)
{
    hand_model_init(hand, "gpt-oss", layers, 64, 8, 64);
    for (uint64_t i = 0; i < layers; i += 2) {
        hand->layers[i].attention = MT_ATTENTION_SLIDING;
        hand->layers[i].window = 128;
    }
    hand->model.description.sliding_window = 128;
}

static void test_windowed_layers_keep_the_window_and_one_ubatch(void **state)
{
    (void)state;
    struct hand_model hand;
    struct mt_predict_settings settings = {
        .engine = "llama.cpp@9840", .context_tokens = 131072, .sequences = 1};
    gpt_oss(&hand, 24);
    /* A published log: 3072 + 18 MiB, 12 layers of 131072 cells and 12 of 768. */
    assert_int_equal(cache_of(&hand, &settings), MIB(3090));
    /* 128 + 2048 is 2176, the next multiple of 256 is 2304. A cell of a layer takes 2 KiB. */
    settings.ubatch = 2048;
    assert_int_equal(cache_of(&hand, &settings), MIB(3072) + 12 * 2304 * KIB(2));
    /* The batch itself does not matter. */
    settings.batch = 8192;
    assert_int_equal(cache_of(&hand, &settings), MIB(3072) + 12 * 2304 * KIB(2));
}

/* Those whose src/models/NAME.cpp of build 11434 sets swa_type, and three that never have a window:
 * llama, phi3, and granite beside granite_swa. */
static void test_a_family_has_windows_where_llama_cpp_gives_it_some(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int has_windows;
    } families[] = {
        {"afmoe", 1},        {"cohere2", 1},  {"exaone-moe", 1},       {"gemma3", 1},
        {"granite_swa", 1},  {"laguna", 1},   {"llama4", 1},           {"maple", 1},
        {"muse-glimmer", 1}, {"spark2_5", 1}, {"gemma4", 1},           {"mimo2", 1},
        {"step35", 1},       {"gpt-oss", 1},  {"gemma4-assistant", 1}, {"smallthinker", 1},
        {"olmo2", 1},        {"plamo3", 1},   {"mellum", 1},           {"llama", 0},
        {"granite", 0},      {"phi3", 0}};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct hand_model hand;
        struct mt_predict_settings settings = {
            .engine = "llama.cpp@11434", .context_tokens = 131072, .sequences = 1};
        gpt_oss(&hand, 24);
        hand.model.description.architecture = families[i].name;
        /* 2 KiB a cell of each layer; 128 + 512 cells, padded to 768, of the twelve with a window.
         */
        uint64_t windowed = families[i].has_windows ? 768 : 131072;
        assert_int_equal(cache_of(&hand, &settings), 12 * 131072 * KIB(2) + 12 * windowed * KIB(2));
    }
}

static void test_sequences_that_share_a_cache_each_have_a_window_in_it(void **state)
{
    (void)state;
    struct hand_model hand;
    struct mt_predict_settings settings = {.engine = "llama.cpp@11434",
                                           .context_tokens = 131072,
                                           .sequences = 4,
                                           .unified_kv = MT_SWITCH_ON};
    gpt_oss(&hand, 24);
    /* 4 x 128 + 512 = 1024 cells. */
    assert_int_equal(cache_of(&hand, &settings), MIB(3072) + 12 * 1024 * KIB(2));
    /* Apart: 4 streams of pad256(128 + 512) = 768. */
    settings.unified_kv = MT_SWITCH_OFF;
    assert_int_equal(cache_of(&hand, &settings), MIB(3072) + 12 * 4 * 768 * KIB(2));
}

static void test_windowed_layers_keep_everything_where_asked_for_or_not_known_better(void **state)
{
    (void)state;
    struct hand_model hand;
    gpt_oss(&hand, 36);
    struct mt_predict_settings settings = {
        .engine = "llama.cpp@11434", .context_tokens = 16896, .sequences = 1, .swa_full = 1};
    assert_int_equal(cache_of(&hand, &settings), MIB(1188));
    /* Published logs: ik_llama.cpp 3947, and llama.cpp before it had windowed caches. */
    settings.swa_full = 0;
    settings.engine = "ik_llama.cpp@3947";
    assert_int_equal(cache_of(&hand, &settings), MIB(1188));
    settings.engine = "llama.cpp@5400";
    assert_int_equal(cache_of(&hand, &settings), MIB(1188));
}

/* Mistral 7B v0.1 was trained with a window of 4096. llama.cpp sets none for its family: 32 layers
 * of 32768 cells of 2 x 8 x 128 x 2 B are 4 GiB. */
static void test_windows_that_the_engine_does_not_know_are_not_counted_on(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "llama", 32, 32, 8, 128);
    for (uint64_t i = 0; i < 32; i++) {
        hand.layers[i].attention = MT_ATTENTION_SLIDING;
        hand.layers[i].window = 4096;
    }
    hand.model.description.sliding_window = 4096;
    struct mt_predict_settings settings = {.context_tokens = 32768, .sequences = 1};
    assert_int_equal(cache_of(&hand, &settings), MIB(4096));
}

/* gemma-4-12B: 8 global layers of one head of 512, 40 windowed ones of 8 heads of 256. */
static void test_heads_of_windowed_layers_have_their_own_size(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "gemma4", 48, 16, 1, 512);
    for (uint64_t i = 0; i < 48; i++)
        if (i % 6 != 5) {
            hand.layers[i].attention = MT_ATTENTION_SLIDING;
            hand.layers[i].window = 1024;
            hand.layers[i].kv_heads = 8;
            hand.layers[i].key_size = hand.layers[i].value_size = 256;
        }
    struct mt_predict_settings settings = {.engine = "llama.cpp@10840",
                                           .context_tokens = 262144,
                                           .sequences = 1,
                                           .kv_type_k = "q8_0",
                                           .kv_type_v = "q8_0"};
    assert_int_equal(cache_of(&hand, &settings), MIB(2176) + MIB(255));
}

static void test_layers_that_read_another_ones_cache_have_none(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "gemma4", 42, 8, 2, 512);
    for (uint64_t i = 24; i < 42; i++)
        hand.layers[i].cache_layer = 23;
    struct mt_predict_settings settings = {.context_tokens = 8192, .sequences = 1};
    assert_int_equal(cache_of(&hand, &settings), (uint64_t)24 * 8192 * 2 * 512 * 2 * 2);
}

/* DeepSeek-V3: 61 layers of 128 heads of 192 and 128, or of one vector of 512 + 64. */
static void deepseek(struct hand_model *hand)
{
    hand_model_init(hand, "deepseek2", 61, 128, 1, 576);
    for (uint64_t i = 0; i < 61; i++) {
        hand->layers[i].attention = MT_ATTENTION_LATENT;
        hand->layers[i].value_size = 0;
    }
    hand->model.description.kv_lora_rank = 512;
    hand->model.description.qk_rope_head_size = 64;
    hand->model.description.qk_nope_head_size = 128;
    hand->model.description.value_head_size = 128;
}

static void test_latent_layers_are_kept_as_the_version_keeps_them(void **state)
{
    (void)state;
    static const struct {
        const char *engine;
        uint64_t mode;
        enum mt_switch flash;
        uint64_t context;
        double mib;
    } logs[] = {
        {"ik_llama.cpp@3762", 3, MT_SWITCH_ON, 32768, 2196},
        {"ik_llama.cpp@3640", 2, MT_SWITCH_OFF, 8192, 549},
        {"ik_llama.cpp@3597", 0, MT_SWITCH_OFF, 512, 2440},
        {"ik_llama.cpp@3597", 1, MT_SWITCH_ON, 512, 34.3125},
        {"llama.cpp@5331", MT_UNKNOWN, MT_SWITCH_ON, 16384, 2074},
        {"llama.cpp@11434", MT_UNKNOWN, MT_SWITCH_ON, 16384, 1098},
    };
    struct hand_model hand;
    deepseek(&hand);
    for (size_t i = 0; i < sizeof logs / sizeof *logs; i++) {
        struct mt_predict_settings settings = {.engine = logs[i].engine,
                                               .has_mla_mode = logs[i].mode != MT_UNKNOWN,
                                               .mla_mode = logs[i].mode,
                                               .flash_attention = logs[i].flash,
                                               .sequences = 1,
                                               .context_tokens = logs[i].context};
        assert_int_equal(cache_of(&hand, &settings), MIB(logs[i].mib));
    }
    /* Mode 1 without flash attention keeps the values a second time, in columns. */
    struct mt_predict_settings settings = {
        .engine = "ik_llama.cpp@3597", .has_mla_mode = 1, .mla_mode = 1, .context_tokens = 512};
    assert_int_equal(cache_of(&hand, &settings), (uint64_t)61 * 512 * (576 + 512) * 2);
}

/* A quantised row of 576 is filled up to 1024 elements on a CUDA device: 476 bytes more for each
 * layer, and the log says 1166.65 instead of 1166.62 MiB. */
static void test_rows_of_a_quantised_cache_are_filled_up_on_a_device(void **state)
{
    (void)state;
    static const uint64_t device = UINT64_C(80) << 30;
    struct hand_model hand;
    deepseek(&hand);
    struct mt_predict_settings settings = {.engine = "ik_llama.cpp@3772",
                                           .context_tokens = 32768,
                                           .kv_type_k = "q8_0",
                                           .has_mla_mode = 1,
                                           .mla_mode = 3,
                                           .flash_attention = MT_SWITCH_ON,
                                           .has_gpu_layers = 1,
                                           .gpu_layers = MT_ALL,
                                           .device_bytes = &device,
                                           .n_devices = 1};
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    char text[32];
    snprintf(text, sizeof text, "%.2f",
             (double)hand_model_bytes(estimate, "gpu:0", MT_CATEGORY_KV_CACHE, NULL) / 1048576);
    assert_string_equal(text, "1166.65");
    mt_estimate_destroy(estimate);
}

/* DeciLM and the like: without flash attention values lie in columns as wide as the widest layer's,
 * also those of layers with fewer heads. */
static void test_values_in_columns_are_padded_to_the_widest_layer(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "deci", 4, 16, 8, 64);
    hand.layers[1].kv_heads = 4;
    hand.layers[2].kv_heads = 2;
    hand.layers[3].kv_heads = 0;
    struct mt_predict_settings settings = {
        .context_tokens = 1024, .sequences = 1, .flash_attention = MT_SWITCH_OFF};
    uint64_t keys = (8 + 4 + 2) * 64;
    assert_int_equal(cache_of(&hand, &settings), 1024 * (keys + 3 * 8 * 64) * 2);
    settings.flash_attention = MT_SWITCH_ON;
    assert_int_equal(cache_of(&hand, &settings), 1024 * (keys + keys) * 2);
}

static void test_keys_of_a_sparse_indexer_are_kept_beside_the_cache(void **state)
{
    (void)state;
    struct hand_model hand;
    deepseek(&hand);
    hand.model.description.indexer_heads = 64;
    hand.model.description.indexer_head_size = 128;
    struct mt_predict_settings settings = {.context_tokens = 16384, .sequences = 1};
    assert_int_equal(cache_of(&hand, &settings), (uint64_t)61 * 16384 * (576 + 128) * 2);
    /* Layers that share another one's choice have no indexer of their own. */
    hand_model_tensor(&hand, "blk.3.indexer.attn_k.weight", "f16", 64, 64, 0, 3, MT_TENSOR_LAYER);
    assert_int_equal(cache_of(&hand, &settings), (uint64_t)16384 * (61 * 576 + 128) * 2);
}

/* Qwen3.6-27B: of 64 layers every fourth attends. */
static void qwen36(struct hand_model *hand)
{
    hand_model_init(hand, "qwen35", 64, 24, 4, 256);
    for (uint64_t i = 0; i < 64; i++)
        if (i % 4 != 3) {
            hand->layers[i].attention = MT_ATTENTION_NONE;
            hand->layers[i].recurrence = MT_RECURRENCE_DELTA_NET;
        }
    hand->model.description.conv_kernel = 4;
    hand->model.description.inner_size = 6144;
    hand->model.description.state_size = 128;
    hand->model.description.group_count = 16;
}

/* Published logs: 149.62 MiB for a sequence, 598.5 for four, 1047.38 with six drafted tokens. */
static void test_recurrent_state_is_per_sequence_and_drafted_token(void **state)
{
    (void)state;
    struct hand_model hand;
    struct mt_predict_settings settings = {.context_tokens = 262144, .sequences = 1};
    qwen36(&hand);
    assert_int_equal(state_of(&hand, &settings), MIB(149.625));
    assert_int_equal(cache_of(&hand, &settings), MIB(16384));
    settings.sequences = 4;
    assert_int_equal(state_of(&hand, &settings), MIB(598.5));
    settings.sequences = 1;
    settings.draft_tokens = 6;
    assert_int_equal(state_of(&hand, &settings), MIB(1047.375));
}

/* LFM2.5-Audio-1.5B: 48 MiB of cache and 0.16 of state; 10 layers convolve over 3 tokens. */
static void test_short_convolutions_keep_their_last_inputs(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "lfm2", 16, 32, 8, 64);
    for (uint64_t i = 0; i < 10; i++) {
        hand.layers[i].attention = MT_ATTENTION_NONE;
        hand.layers[i].recurrence = MT_RECURRENCE_SHORT_CONVOLUTION;
    }
    hand.model.description.short_conv_cache = 3;
    struct mt_predict_settings settings = {.context_tokens = 4096, .sequences = 1};
    assert_int_equal(cache_of(&hand, &settings), MIB(48));
    assert_int_equal(state_of(&hand, &settings), 10 * 2048 * 2 * 4);
}

/* A vocabulary of 151936: published logs say 0.58 MiB for one sequence and 2.32 for four. */
static void test_the_output_buffer_has_a_row_for_each_sequence(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "qwen3", 36, 32, 8, 128);
    hand.model.description.vocabulary = 151936;
    for (uint64_t sequences = 1; sequences <= 4; sequences += 3) {
        struct mt_predict_settings settings = {.context_tokens = 8192, .sequences = sequences};
        struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
        assert_int_equal(
            hand_model_bytes(estimate, "host", MT_CATEGORY_ACTIVATIONS, "output buffer"),
            sequences * 151936 * 4);
        mt_estimate_destroy(estimate);
    }
}

static void test_sizes_that_do_not_add_up_are_refused(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "llama", 4, 16, 8, 64);
    hand.layers[2].kv_heads = UINT64_C(1) << 62;
    struct mt_predict_settings settings = {.context_tokens = 1 << 20, .sequences = 1};
    assert_non_null(strstr(hand_model_refusal(&hand, &settings, MT_ELIMIT), "too large"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_caches_of_plain_models_are_what_published_logs_say),
        cmocka_unit_test(test_a_draft_layer_has_a_cache_only_in_engines_that_do_not_know_it),
        cmocka_unit_test(test_windowed_layers_keep_the_window_and_one_ubatch),
        cmocka_unit_test(test_a_family_has_windows_where_llama_cpp_gives_it_some),
        cmocka_unit_test(test_sequences_that_share_a_cache_each_have_a_window_in_it),
        cmocka_unit_test(test_windowed_layers_keep_everything_where_asked_for_or_not_known_better),
        cmocka_unit_test(test_windows_that_the_engine_does_not_know_are_not_counted_on),
        cmocka_unit_test(test_heads_of_windowed_layers_have_their_own_size),
        cmocka_unit_test(test_layers_that_read_another_ones_cache_have_none),
        cmocka_unit_test(test_latent_layers_are_kept_as_the_version_keeps_them),
        cmocka_unit_test(test_rows_of_a_quantised_cache_are_filled_up_on_a_device),
        cmocka_unit_test(test_values_in_columns_are_padded_to_the_widest_layer),
        cmocka_unit_test(test_keys_of_a_sparse_indexer_are_kept_beside_the_cache),
        cmocka_unit_test(test_recurrent_state_is_per_sequence_and_drafted_token),
        cmocka_unit_test(test_short_convolutions_keep_their_last_inputs),
        cmocka_unit_test(test_the_output_buffer_has_a_row_for_each_sequence),
        cmocka_unit_test(test_sizes_that_do_not_add_up_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
