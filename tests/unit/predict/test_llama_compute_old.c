/* SPDX-License-Identifier: MIT */
/* Compute buffers of ik_llama.cpp and of older llama.cpp, against arithmetic. Published logs stand
 * in the conformance tests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "hand_model.h"

#define GIB (UINT64_C(1) << 30)

static const uint64_t two_cards[2] = {24 * GIB, 24 * GIB};

static void init_llama_8b(struct hand_model *hand)
{
    hand_model_init(hand, "llama", 32, 32, 8, 128);
    struct mt_model_description *d = &hand->model.description;
    d->embedding_length = 4096;
    d->vocabulary = 128256;
    for (int i = 0; i < 32; i++)
        hand->layers[i].ff_length = 14336;
    hand_model_tensor(hand, "output.weight", "q8_0", 4096, 128256, 0, MT_NO_LAYER,
                      MT_TENSOR_OUTPUT);
}

static struct mt_predict_settings server_of(const char *engine, size_t n_devices, uint64_t layers)
{
    return (struct mt_predict_settings){.engine = engine,
                                        .program = MT_PROGRAM_SERVER,
                                        .context_tokens = 4096,
                                        .batch = 2048,
                                        .ubatch = 512,
                                        .sequences = 1,
                                        .flash_attention = MT_SWITCH_ON,
                                        .has_gpu_layers = 1,
                                        .gpu_layers = layers,
                                        .device_bytes = two_cards,
                                        .n_devices = n_devices};
}

static struct mt_estimate_term buffer_at(const struct mt_estimate *estimate, const char *place)
{
    for (size_t i = 0; i < estimate->n_terms; i++)
        if (strstr(estimate->terms[i].rule, "compute_buffer") &&
            strcmp(estimate->terms[i].place, place) == 0)
            return estimate->terms[i];
    fail_msg("no compute buffer at %s", place);
    return estimate->terms[0];
}

/* From 32 rows on, work on a matrix in host memory is done on the first device: the matrix and what
 * it gives lie there for that time. */
static void test_logits_of_an_output_on_the_host_lie_on_the_device(void **state)
{
    (void)state;
    static struct hand_model hand;
    init_llama_8b(&hand);
    const uint64_t logits = UINT64_C(512) * 128256 * 4;
    const uint64_t matrix = UINT64_C(128256) * 4096 / 32 * 34;
    struct mt_predict_settings settings = server_of("ik_llama.cpp@3772", 1, 8);
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    assert_true(buffer_at(estimate, "gpu:0").bytes >= logits + matrix);
    assert_true(buffer_at(estimate, "host").bytes < logits);
    mt_estimate_destroy(estimate);
}

/* Where such a batch is too small nothing moves. */
static void test_logits_of_a_small_batch_stay_on_the_host(void **state)
{
    (void)state;
    static struct hand_model hand;
    init_llama_8b(&hand);
    struct mt_predict_settings settings = server_of("ik_llama.cpp@3772", 1, 8);
    settings.ubatch = 16;
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    assert_true(buffer_at(estimate, "gpu:0").bytes < UINT64_C(16) * 128256 * 4);
    assert_true(buffer_at(estimate, "host").bytes >= UINT64_C(16) * 128256 * 4);
    mt_estimate_destroy(estimate);
}

/* A build with one copy of each input and one with four differ in nothing that a log shows: each
 * one's band holds the other. */
static void test_band_holds_either_number_of_copies(void **state)
{
    (void)state;
    static struct hand_model hand;
    init_llama_8b(&hand);
    struct mt_predict_settings settings = server_of("ik_llama.cpp@3872", 2, MT_ALL);
    struct mt_estimate *four = hand_model_estimate(&hand, &settings);
    settings.engine = "ik_llama.cpp@3873";
    struct mt_estimate *one = hand_model_estimate(&hand, &settings);
    assert_true(buffer_at(one, "host").bytes < buffer_at(four, "host").bytes);
    assert_true(buffer_at(one, "host").high_bytes >= buffer_at(four, "host").bytes);
    assert_true(buffer_at(four, "host").low_bytes <= buffer_at(one, "host").bytes);
    mt_estimate_destroy(four);
    mt_estimate_destroy(one);
}

/* MiB of the device and of the host, as logs print them. */
static void assert_planned(struct mt_estimate *estimate, double device, double host)
{
    double at_device = (double)buffer_at(estimate, "gpu:0").bytes / (1 << 20);
    double at_host = (double)buffer_at(estimate, "host").bytes / (1 << 20);
    if (at_device < device - 0.006 || at_device > device + 0.006)
        fail_msg("device: %.3f MiB, the engine plans %.2f", at_device, device);
    if (at_host < host - 0.006 || at_host > host + 0.006)
        fail_msg("host: %.3f MiB, the engine plans %.2f", at_host, host);
    mt_estimate_destroy(estimate);
}

/* Four layers of DeepSeek V3, the last with 32 experts, in f16, as converted before April 2025:
 * attn_kv_b, and no attention.key_length_mla. */
static void init_deepseek_in_heads(struct hand_model *hand)
{
    hand_model_init(hand, "deepseek2", 4, 128, 128, 192);
    struct mt_model_description *d = &hand->model.description;
    d->embedding_length = 7168;
    d->vocabulary = 129280;
    d->q_lora_rank = 1536;
    d->kv_lora_rank = 512;
    d->qk_rope_head_size = 64;
    d->qk_nope_head_size = 128;
    d->value_head_size = 128;
    d->experts = 32;
    for (int i = 0; i < 4; i++) {
        hand->layers[i].value_size = 128;
        hand->layers[i].ff_length = 18432;
    }
    hand->layers[3].experts = 32;
    hand->layers[3].experts_used = 8;
    hand->layers[3].expert_ff_length = 2048;
    hand->layers[3].shared_ff_length = 2048;
}

/* The figures are ik_llama.cpp's own: these builds were compiled, and planned such a file on a
 * device that only pretended to be there. PR 260, build 3590, made -mla 2 go in steps. */
static void test_files_with_attn_kv_b_are_planned_as_the_engine_plans_them(void **state)
{
    (void)state;
    static const struct {
        const char *engine;
        uint64_t mode;
        uint64_t most;
        enum mt_switch flash;
        double device;
    } cases[] = {
        {"ik_llama.cpp@3589", 2, 0, MT_SWITCH_ON, 5025},
        {"ik_llama.cpp@3590", 2, 0, MT_SWITCH_ON, 3233},
        {"ik_llama.cpp@3599", 2, 0, MT_SWITCH_ON, 3233},
        {"ik_llama.cpp@3599", 3, 512, MT_SWITCH_ON, 2081},
        {"ik_llama.cpp@3599", 1, 0, MT_SWITCH_OFF, 4481},
        {"ik_llama.cpp@3599", 0, 0, MT_SWITCH_ON, 274},
    };
    static struct hand_model hand;
    init_deepseek_in_heads(&hand);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mt_predict_settings settings = server_of(cases[i].engine, 1, MT_ALL);
        settings.context_tokens = 16384;
        settings.flash_attention = cases[i].flash;
        settings.has_mla_mode = 1;
        settings.mla_mode = cases[i].mode;
        settings.attn_max_batch_mib = cases[i].most;
        assert_planned(hand_model_estimate(&hand, &settings), cases[i].device, 46.01);
    }
}

/* PR 259 makes attn_k_b in q8_0 (f16 here, as the file) and attn_v_b of what attn_kv_b is: 128
 * heads x (128 + 128) x 512 numbers of two bytes a layer, which the engine does not log. */
static void test_the_other_form_of_latent_weights_is_counted(void **state)
{
    (void)state;
    static const char *const names[] = {"blk.0.attn_kv_b.weight", "blk.1.attn_kv_b.weight",
                                        "blk.2.attn_kv_b.weight", "blk.3.attn_kv_b.weight"};
    static struct hand_model hand;
    init_deepseek_in_heads(&hand);
    for (uint32_t i = 0; i < 4; i++)
        hand_model_tensor(&hand, names[i], "f16", 512, 128 * 256, 0, i, MT_TENSOR_LAYER);
    static const struct {
        const char *engine;
        uint64_t mode;
        uint64_t bytes;
    } cases[] = {{"ik_llama.cpp@3588", 2, 0},
                 {"ik_llama.cpp@3589", 2, UINT64_C(4) * 128 * 256 * 512 * 2},
                 {"ik_llama.cpp@3589", 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mt_predict_settings settings = server_of(cases[i].engine, 1, MT_ALL);
        settings.has_mla_mode = 1;
        settings.mla_mode = cases[i].mode;
        struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
        assert_int_equal(hand_model_bytes(estimate, "gpu:0", MT_CATEGORY_WEIGHTS,
                                          "latent attention's other form"),
                         cases[i].bytes);
        mt_estimate_destroy(estimate);
    }
}

/* Four layers of Llama 2 13B in q8_0; figures as above. A norm is one operation with its weight,
 * and runs on the device where that lies on the host. */
static void test_norms_of_host_layers_run_on_the_device(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t row;
        uint64_t rows;
    } matrices[] = {{"attn_q", 5120, 5120},      {"attn_k", 5120, 5120},    {"attn_v", 5120, 5120},
                    {"attn_output", 5120, 5120}, {"ffn_gate", 5120, 13824}, {"ffn_up", 5120, 13824},
                    {"ffn_down", 13824, 5120}};
    static char names[28][40];
    static struct hand_model hand;
    hand_model_init(&hand, "llama", 4, 40, 40, 128);
    hand.model.description.embedding_length = 5120;
    hand.model.description.vocabulary = 32000;
    for (uint32_t i = 0; i < 28; i++) {
        hand.layers[i / 7].ff_length = 13824;
        snprintf(names[i], sizeof names[i], "blk.%u.%s.weight", i / 7, matrices[i % 7].name);
        hand_model_tensor(&hand, names[i], "q8_0", matrices[i % 7].row, matrices[i % 7].rows, 0,
                          i / 7, MT_TENSOR_LAYER);
    }
    hand_model_tensor(&hand, "output.weight", "q8_0", 5120, 32000, 0, MT_NO_LAYER,
                      MT_TENSOR_OUTPUT);
    struct mt_predict_settings settings = server_of("ik_llama.cpp@3599", 1, 0);
    assert_planned(hand_model_estimate(&hand, &settings), 248.54, 28.01);
    settings.gpu_layers = 2;
    assert_planned(hand_model_estimate(&hand, &settings), 258.52, 28.01);
}

/* gpt-oss at 131072 tokens: masks of f32 for all cells and for 768, 256 and 1.5 MiB, and the
 * embeddings of a batch, 2880 x 512 x 4. Before windowed layers had a cache of their own the second
 * was as long as the first. */
static void test_the_mask_of_windowed_layers_is_as_long_as_their_cache(void **state)
{
    (void)state;
    static struct hand_model hand;
    hand_model_init(&hand, "gpt-oss", 4, 64, 8, 64);
    hand.model.description.embedding_length = 2880;
    hand.model.description.vocabulary = 201088;
    hand.model.description.sliding_window = 128;
    for (int i = 0; i < 4; i += 2) {
        hand.layers[i].attention = MT_ATTENTION_SLIDING;
        hand.layers[i].window = 128;
    }
    const double embeddings = 2880.0 * 512 * 4 / (1 << 20);
    struct mt_predict_settings settings = server_of("llama.cpp@6500", 1, MT_ALL);
    settings.context_tokens = 131072;
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    double host = (double)buffer_at(estimate, "host").bytes / (1 << 20);
    assert_true(host > 257.5 + embeddings && host < 257.6 + embeddings);
    mt_estimate_destroy(estimate);
    settings.engine = "llama.cpp@5426";
    estimate = hand_model_estimate(&hand, &settings);
    host = (double)buffer_at(estimate, "host").bytes / (1 << 20);
    assert_true(host > 512 + embeddings && host < 512.1 + embeddings);
    mt_estimate_destroy(estimate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_of_an_output_on_the_host_lie_on_the_device),
        cmocka_unit_test(test_logits_of_a_small_batch_stay_on_the_host),
        cmocka_unit_test(test_band_holds_either_number_of_copies),
        cmocka_unit_test(test_files_with_attn_kv_b_are_planned_as_the_engine_plans_them),
        cmocka_unit_test(test_the_other_form_of_latent_weights_is_counted),
        cmocka_unit_test(test_norms_of_host_layers_run_on_the_device),
        cmocka_unit_test(test_the_mask_of_windowed_layers_is_as_long_as_their_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
