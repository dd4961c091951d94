/* SPDX-License-Identifier: MIT */
/* Where llama.cpp puts layers and tensors, against its logs and the arithmetic of its loader. */
#include <memtally/residue.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "hand_model.h"

#define GIB(n) ((uint64_t)(n) << 30)

static const uint64_t devices[] = {GIB(24), GIB(24), GIB(24), GIB(24)};

static struct mt_predict_settings on_devices(size_t n, uint64_t gpu_layers)
{
    return (struct mt_predict_settings){.context_tokens = 4096,
                                        .sequences = 1,
                                        .has_gpu_layers = 1,
                                        .gpu_layers = gpu_layers,
                                        .device_bytes = devices,
                                        .n_devices = n};
}

/* The number of layers whose cache lies at a place; a layer's takes 4096 cells of 4 KiB. */
static uint64_t layers_at(const struct mt_estimate *estimate, const char *place)
{
    return hand_model_bytes(estimate, place, MT_CATEGORY_KV_CACHE, NULL) / (UINT64_C(4096) << 12);
}

static uint64_t weights_at(const struct mt_estimate *estimate, const char *place)
{
    return hand_model_bytes(estimate, place, MT_CATEGORY_WEIGHTS, NULL);
}

static void assert_layers(struct mt_predict_settings settings, uint64_t n_layers,
                          const uint64_t expected[4])
{
    static const char *const places[] = {"host", "gpu:0", "gpu:1", "gpu:2"};
    struct hand_model hand;
    hand_model_init(&hand, "qwen3", n_layers, 32, 8, 128);
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    for (size_t i = 0; i <= settings.n_devices && i < 4; i++)
        assert_int_equal(layers_at(estimate, places[i]), expected[i]);
    mt_estimate_destroy(estimate);
}

/* Published for Qwen3-4B on two equal cards: 2432 + 2176 MiB of cache, 19 and 17 of 36 layers; the
 * 37th is the output, on the second card. */
static void test_equal_devices_share_the_layers_and_the_output(void **state)
{
    (void)state;
    assert_layers(on_devices(2, MT_ALL), 36, (uint64_t[4]){0, 19, 17});
    /* gemma-3-27b: 1928 + 1880 MiB, 62 layers: the point at 31.5 of 63. */
    assert_layers(on_devices(2, MT_ALL), 62, (uint64_t[4]){0, 32, 30});
    assert_layers(on_devices(3, MT_ALL), 35, (uint64_t[4]){0, 12, 12, 11});
}

static void test_one_layer_on_a_device_is_the_output(void **state)
{
    (void)state;
    assert_layers(on_devices(1, 1), 36, (uint64_t[4]){36, 0});
    assert_layers(on_devices(1, 2), 36, (uint64_t[4]){35, 1});
    assert_layers(on_devices(1, 36), 36, (uint64_t[4]){1, 35});
    assert_layers(on_devices(1, 37), 36, (uint64_t[4]){0, 36});
    assert_layers(on_devices(1, 1000), 36, (uint64_t[4]){0, 36});
}

/* With one layer on the device builds 8739 and 11413 load token_embd_norm and the output there:
 * 75,505,664 bytes of lfm2-1.2b, of which the norm has 2048 x 4. In other families it is an input.
 */
static void test_the_norm_of_lfm2_lies_with_the_output(void **state)
{
    (void)state;
    static const struct {
        const char *architecture;
        uint64_t bytes;
    } cases[] = {{"lfm2", 75505664}, {"bloom", 75505664 - 2048 * 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hand_model hand;
        hand_model_init(&hand, cases[i].architecture, 4, 32, 8, 64);
        hand_model_tensor(&hand, "token_embd_norm.weight", "f32", 2048, 0, 0, 0, MT_TENSOR_LAYER);
        hand_model_tensor(&hand, "output.weight", "q4_k", 2048, 65536, 0, MT_NO_LAYER,
                          MT_TENSOR_OUTPUT);
        struct mt_predict_settings settings = on_devices(1, 1);
        struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
        assert_int_equal(weights_at(estimate, "gpu:0"), cases[i].bytes);
        mt_estimate_destroy(estimate);
    }
}

static void test_the_first_layers_stay_on_the_host(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "qwen3", 4, 32, 8, 128);
    hand_model_tensor(&hand, "blk.0.ffn_up.weight", "f16", 512, 100, 0, 0, MT_TENSOR_LAYER);
    hand_model_tensor(&hand, "blk.3.ffn_up.weight", "f16", 512, 200, 0, 3, MT_TENSOR_LAYER);
    struct mt_predict_settings settings = on_devices(1, 2);
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    assert_int_equal(weights_at(estimate, "host"), 512 * 100 * 2);
    assert_int_equal(weights_at(estimate, "gpu:0"), 512 * 200 * 2);
    mt_estimate_destroy(estimate);
}

static void test_a_tensor_split_is_one_of_layers_and_output_together(void **state)
{
    (void)state;
    static const double three_to_one[] = {3, 1};
    struct mt_predict_settings settings = on_devices(2, MT_ALL);
    settings.tensor_split = three_to_one;
    settings.n_tensor_split = 2;
    /* 37 x 0.75 = 27.75: layers 0 to 27. */
    assert_layers(settings, 36, (uint64_t[4]){0, 28, 8});
    settings.n_tensor_split = 1;
    assert_layers(settings, 36, (uint64_t[4]){0, 36, 0});
}

static void test_devices_in_use_by_others_get_fewer_layers(void **state)
{
    (void)state;
    static const uint64_t used[] = {GIB(12), 0};
    struct mt_predict_settings settings = on_devices(2, MT_ALL);
    settings.device_used_bytes = used;
    /* 12 of 36 GiB are free on the first: 37 / 3 = 12.33. */
    assert_layers(settings, 36, (uint64_t[4]){0, 13, 23});
}

static void test_without_a_split_one_device_has_all(void **state)
{
    (void)state;
    struct mt_predict_settings settings = on_devices(2, MT_ALL);
    settings.split = MT_SPLIT_NONE;
    assert_layers(settings, 36, (uint64_t[4]){0, 36, 0});
}

static void test_the_cache_stays_on_the_host_where_asked_for(void **state)
{
    (void)state;
    struct mt_predict_settings settings = on_devices(2, MT_ALL);
    settings.kv_on_host = 1;
    assert_layers(settings, 36, (uint64_t[4]){36, 0, 0});
}

/* Embeddings never leave the host; a tied output is a second copy on the device that has it. */
static void test_embeddings_stay_on_the_host_and_a_tied_output_is_copied(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "gemma4", 2, 8, 8, 64);
    hand_model_tensor(&hand, "token_embd.weight", "q8_0", 512, 1000, 0, MT_NO_LAYER,
                      MT_TENSOR_TOKEN_EMBEDDING);
    hand_model_tensor(&hand, "per_layer_token_embd.weight", "q8_0", 512, 500, 0, MT_NO_LAYER,
                      MT_TENSOR_PER_LAYER_EMBEDDING);
    struct mt_predict_settings settings = on_devices(2, MT_ALL);
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    assert_int_equal(weights_at(estimate, "host"), 1500 * 512 / 32 * 34);
    assert_int_equal(weights_at(estimate, "gpu:1"), 0);
    mt_estimate_destroy(estimate);
    hand.model.description.tied_output = 1;
    estimate = hand_model_estimate(&hand, &settings);
    assert_int_equal(weights_at(estimate, "host"), 1500 * 512 / 32 * 34);
    assert_int_equal(weights_at(estimate, "gpu:0"), 0);
    assert_int_equal(weights_at(estimate, "gpu:1"), 1000 * 512 / 32 * 34);
    mt_estimate_destroy(estimate);
}

static void add_experts(struct hand_model *hand)
{
    hand_model_tensor(hand, "blk.0.ffn_up_exps.weight", "f16", 64, 64, 8, 0, MT_TENSOR_EXPERTS);
    hand_model_tensor(hand, "blk.0.ffn_up_exps.bias", "f32", 64, 8, 0, 0, MT_TENSOR_EXPERTS);
    hand_model_tensor(hand, "blk.0.ffn_gate_inp.weight", "f32", 64, 8, 0, 0, MT_TENSOR_LAYER);
    hand_model_tensor(hand, "blk.1.ffn_up_exps.weight", "f16", 64, 64, 16, 1, MT_TENSOR_EXPERTS);
    hand->model.description.experts = 8;
}

static void test_experts_stay_on_the_host_with_their_biases_but_not_the_router(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "gpt-oss", 2, 8, 8, 64);
    add_experts(&hand);
    struct mt_predict_settings settings = on_devices(1, MT_ALL);
    settings.mmap = MT_SWITCH_OFF;
    settings.cpu_moe_layers = 1;
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    assert_int_equal(weights_at(estimate, "host"), 64 * 64 * 8 * 2 + 64 * 8 * 4);
    assert_int_equal(weights_at(estimate, "gpu:0"), 64 * 8 * 4 + 64 * 64 * 16 * 2);
    assert_non_null(strstr(estimate->flags, "--n-cpu-moe 1"));
    mt_estimate_destroy(estimate);
    settings.cpu_moe_layers = MT_ALL;
    estimate = hand_model_estimate(&hand, &settings);
    assert_int_equal(weights_at(estimate, "gpu:0"), 64 * 8 * 4);
    assert_non_null(strstr(estimate->flags, "--cpu-moe"));
    mt_estimate_destroy(estimate);
}

static void test_the_first_override_that_matches_anywhere_in_a_name_decides(void **state)
{
    (void)state;
    static const struct mt_tensor_override overrides[] = {{"blk\\.1\\..*_exps", "CUDA1"},
                                                          {"ffn_(up|down)_exps", "CPU"}};
    struct hand_model hand;
    hand_model_init(&hand, "gpt-oss", 2, 8, 8, 64);
    add_experts(&hand);
    struct mt_predict_settings settings = on_devices(2, MT_ALL);
    settings.split = MT_SPLIT_NONE;
    settings.mmap = MT_SWITCH_OFF;
    settings.overrides = overrides;
    settings.n_overrides = 2;
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    assert_int_equal(weights_at(estimate, "host"), 64 * 64 * 8 * 2 + 64 * 8 * 4);
    assert_int_equal(weights_at(estimate, "gpu:0"), 64 * 8 * 4);
    assert_int_equal(weights_at(estimate, "gpu:1"), 64 * 64 * 16 * 2);
    mt_estimate_destroy(estimate);
}

/* CUDA: what follows a tensor starts at a multiple of 128 bytes, and a quantised row is filled up
 * to 512 elements. */
static void test_tensors_on_a_device_are_padded(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "qwen3", 1, 8, 8, 64);
    hand_model_tensor(&hand, "blk.0.attn_norm.weight", "f32", 33, 0, 0, 0, MT_TENSOR_LAYER);
    hand_model_tensor(&hand, "blk.0.ffn_up.weight", "q8_0", 96, 3, 0, 0, MT_TENSOR_LAYER);
    struct mt_predict_settings settings = on_devices(1, MT_ALL);
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    /* 33 x 4 = 132, padded 256. 3 rows of 102 bytes and 416 elements of 13 blocks: 748, padded 768.
     */
    assert_int_equal(weights_at(estimate, "gpu:0"), 256 + 768);
    mt_estimate_destroy(estimate);
}

/* A row of iq4_ks has a scale of 4 bytes and blocks of 136. */
static void test_types_of_ik_are_loaded_by_ik_alone(void **state)
{
    (void)state;
    struct hand_model hand;
    struct mt_predict_settings settings = on_devices(1, MT_ALL);
    hand_model_init(&hand, "qwen3", 2, 32, 8, 128);
    hand_model_tensor(&hand, "blk.0.ffn_up.weight", "iq4_ks", 4096, 1024, 0, 0, MT_TENSOR_LAYER);
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    assert_int_equal(estimate->verdict, MT_VERDICT_CANNOT);
    assert_non_null(strstr(estimate->reason, "iq4_ks"));
    assert_non_null(strstr(estimate->reason, "--engine ik_llama.cpp"));
    mt_estimate_destroy(estimate);
    settings.engine = "ik_llama.cpp";
    estimate = hand_model_estimate(&hand, &settings);
    assert_int_not_equal(estimate->verdict, MT_VERDICT_CANNOT);
    assert_int_equal(weights_at(estimate, "gpu:0"), 1024 * (4 + 16 * 136));
    mt_estimate_destroy(estimate);
}

static void test_host_tensors_are_mapped_from_the_first_to_the_last(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "qwen3", 1, 8, 8, 64);
    hand_model_tensor(&hand, "token_embd.weight", "f16", 64, 10, 0, MT_NO_LAYER,
                      MT_TENSOR_TOKEN_EMBEDDING);
    hand_model_tensor(&hand, "blk.0.ffn_up.weight", "f16", 64, 100, 0, 0, MT_TENSOR_LAYER);
    hand_model_tensor(&hand, "pos_embd.weight", "f16", 64, 20, 0, MT_NO_LAYER, MT_TENSOR_INPUT);
    struct mt_predict_settings settings = on_devices(1, MT_ALL);
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    assert_int_equal(weights_at(estimate, "host"), 64 * (10 + 100 + 20) * 2);
    assert_int_equal(weights_at(estimate, "gpu:0"), 64 * 100 * 2);
    mt_estimate_destroy(estimate);
    settings.mmap = MT_SWITCH_OFF;
    estimate = hand_model_estimate(&hand, &settings);
    assert_int_equal(weights_at(estimate, "host"), 64 * (10 + 20) * 2);
    mt_estimate_destroy(estimate);
}

/* SmolLM2-135M in q4_0 with build 11434: CPU_Mapped and CPU_REPACK. Here in small. */
static void test_matrices_on_the_cpu_are_copied_into_another_layout(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "llama", 1, 8, 8, 64);
    hand_model_tensor(&hand, "token_embd.weight", "q4_0", 64, 16, 0, MT_NO_LAYER,
                      MT_TENSOR_TOKEN_EMBEDDING);
    hand_model_tensor(&hand, "blk.0.ffn_up.weight", "q4_0", 64, 32, 0, 0, MT_TENSOR_LAYER);
    hand_model_tensor(&hand, "blk.0.odd.weight", "q4_0", 64, 12, 0, 0, MT_TENSOR_LAYER);
    hand_model_tensor(&hand, "blk.0.ffn_down.weight", "q8_0", 64, 32, 0, 0, MT_TENSOR_LAYER);
    hand.model.description.tied_output = 1;
    struct mt_predict_settings settings = {
        .context_tokens = 512, .sequences = 1, .processor = MT_PROCESSOR_AVX2};
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    uint64_t mapped = hand_model_bytes(estimate, "host", MT_CATEGORY_WEIGHTS, "mapped weights");
    uint64_t copied = hand_model_bytes(estimate, "host", MT_CATEGORY_WEIGHTS, "repacked weights");
    /* Tensors in the file start at multiples of 32: 16 bytes follow the 432 of the odd one. */
    assert_int_equal(mapped, 64 / 32 * 18 * (16 + 32 + 12) + 16 + 64 / 32 * 34 * 32);
    /* The tied output is used as a matrix; rows that are no multiple of eight are not copied. */
    assert_int_equal(copied, 64 / 32 * 18 * (16 + 32));
    mt_estimate_destroy(estimate);
    settings.repack = MT_SWITCH_OFF;
    estimate = hand_model_estimate(&hand, &settings);
    assert_int_equal(weights_at(estimate, "host"), mapped);
    mt_estimate_destroy(estimate);
}

static void test_rotary_frequencies_are_copied_to_each_device_with_a_layer(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "llama", 3, 8, 8, 64);
    hand_model_tensor(&hand, "rope_freqs.weight", "f32", 32, 0, 0, MT_NO_LAYER, MT_TENSOR_INPUT);
    struct mt_predict_settings settings = on_devices(2, 3);
    settings.mmap = MT_SWITCH_OFF;
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    /* Layer 0 on the host, 1 and 2 on the first device, the output alone on the second. */
    assert_int_equal(weights_at(estimate, "host"), 128);
    assert_int_equal(weights_at(estimate, "gpu:0"), 128);
    assert_int_equal(weights_at(estimate, "gpu:1"), 0);
    mt_estimate_destroy(estimate);
}

static void test_rows_of_matrices_are_divided_with_a_row_split(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "llama", 1, 8, 8, 64);
    hand_model_tensor(&hand, "blk.0.ffn_up.weight", "f16", 512, 1000, 0, 0, MT_TENSOR_LAYER);
    struct mt_predict_settings settings = on_devices(2, MT_ALL);
    settings.engine = "llama.cpp@9840"; /* later ones have no row split */
    settings.split = MT_SPLIT_ROW;
    settings.engine = "llama.cpp@9840"; /* devices of later builds cannot */
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    /* 500 rows each, in steps of 128. */
    assert_int_equal(weights_at(estimate, "gpu:0"), 512 * 384 * 2);
    assert_int_equal(weights_at(estimate, "gpu:1"), 512 * 616 * 2);
    mt_estimate_destroy(estimate);
}

static void test_draft_layers_are_loaded_only_to_draft(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "glm4moe", 2, 8, 8, 64);
    hand.layers[1].is_draft = 1;
    hand.model.description.n_draft_layers = 1;
    hand_model_tensor(&hand, "blk.0.ffn_up.weight", "f16", 512, 100, 0, 0, MT_TENSOR_LAYER);
    hand_model_tensor(&hand, "blk.1.ffn_up.weight", "f16", 512, 10, 0, 1, MT_TENSOR_LAYER);
    struct mt_predict_settings settings = on_devices(1, MT_ALL);
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    assert_int_equal(weights_at(estimate, "gpu:0"), 512 * 100 * 2);
    mt_estimate_destroy(estimate);
    settings.draft_tokens = 1;
    estimate = hand_model_estimate(&hand, &settings);
    assert_int_equal(weights_at(estimate, "gpu:0"), 512 * 110 * 2);
    mt_estimate_destroy(estimate);
}

static void test_a_visible_device_without_a_layer_still_has_a_context(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "llama", 2, 8, 8, 64);
    static const struct mt_device_known cards[] = {{.gpu = "RTX3090"}, {.gpu = "RTX3090"}};
    struct mt_predict_settings settings = on_devices(2, 0);
    settings.device_known = cards;
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    /* Published of an RTX 3090: 256, 262, 264, 265 and 278 MiB. */
    assert_int_equal(hand_model_bytes(estimate, "gpu:1", MT_CATEGORY_CONTEXT, NULL), 264 << 20);
    mt_estimate_destroy(estimate);
}

static const struct mt_tally_row *context_of(const struct mt_estimate *estimate)
{
    return mt_tally_row_of(&estimate->tally.places[1], MT_CATEGORY_CONTEXT);
}

static int has_note(const struct mt_estimate *estimate, const char *text)
{
    for (size_t i = 0; i < estimate->tally.n_notes; i++)
        if (strstr(estimate->tally.notes[i], text))
            return 1;
    return 0;
}

/* An A100's context was measured as 418 and 420 MiB; kernels take 0.84 MiB x 108. */
static void test_a_named_card_has_its_own_context_and_says_which_it_is(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "llama", 2, 8, 8, 64);
    static const struct mt_device_known card = {.gpu = "A100"};
    struct mt_predict_settings settings = on_devices(1, MT_ALL);
    settings.device_known = &card;
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    const struct mt_tally_row *context = context_of(estimate);
    assert_int_equal(context->provenance, MT_PROVENANCE_DERIVED);
    assert_in_range(context->allocated_bytes, 509 << 20, 510 << 20);
    assert_in_range(context->low_bytes, 446 << 20, 448 << 20); /* 5 % less, and 0.45 x 108 */
    assert_non_null(strstr(estimate->reason, "(A100-80GB)"));
    assert_true(has_note(estimate, "A100-40GB is another"));
    assert_string_equal(estimate->settings.device_known[0].gpu, "A100-80GB");
    assert_false(estimate->settings.device_known[0].is_by_size);
    mt_estimate_destroy(estimate);
}

/* 24 GiB may be an L4, whose context has 195 MiB, or an RTX 4090, whose has 412. */
static void test_a_size_alone_has_the_band_of_all_cards_of_it(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "llama", 2, 8, 8, 64);
    const uint64_t bytes = UINT64_C(24) << 30;
    struct mt_predict_settings settings = on_devices(1, MT_ALL);
    settings.device_bytes = &bytes;
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    const struct mt_tally_row *context = context_of(estimate);
    assert_in_range(context->low_bytes, 133 << 20, (195 + 58) << 20);
    assert_in_range(context->high_bytes, (412 + 128) << 20, 600 << 20);
    assert_non_null(strstr(estimate->reason, "(taken for RTX3090)"));
    assert_true(has_note(estimate, "name it, because"));
    assert_true(estimate->settings.device_known[0].is_by_size);
    mt_estimate_destroy(estimate);
}

static void test_a_context_that_was_measured_here_has_no_band_of_its_own(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "llama", 2, 8, 8, 64);
    static const struct mt_device_known card = {.gpu = "RTX4090", .context_bytes = 400 << 20};
    struct mt_predict_settings settings = on_devices(1, 0);
    settings.device_known = &card;
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    const struct mt_tally_row *context = context_of(estimate);
    assert_int_equal(context->provenance, MT_PROVENANCE_CALIBRATED);
    assert_int_equal(context->details[0].kind, MT_TERM_LEARNT);
    assert_int_equal(context->allocated_bytes, 400 << 20);
    assert_int_equal(context->high_bytes, 400 << 20);
    mt_estimate_destroy(estimate);
}

static void test_what_was_learnt_replaces_the_band(void **state)
{
    (void)state;
    static const struct mt_residue learnt = {.place_kind = "device",
                                             .category = MT_CATEGORY_CONTEXT,
                                             .low_bytes = 300,
                                             .mean_bytes = 310,
                                             .high_bytes = 330,
                                             .n = 5};
    struct hand_model hand;
    hand_model_init(&hand, "llama", 2, 8, 8, 64);
    struct mt_predict_settings settings = on_devices(1, MT_ALL);
    settings.residues = &learnt;
    settings.n_residues = 1;
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    const struct mt_tally_row *row =
        mt_tally_row_of(&estimate->tally.places[1], MT_CATEGORY_CONTEXT);
    assert_non_null(row);
    assert_int_equal(row->allocated_bytes, 310);
    /* Five runs: a quarter of the mean, divided by five, beyond what was seen. */
    assert_int_equal(row->low_bytes, 300 - 15);
    assert_int_equal(row->high_bytes, 330 + 15);
    assert_int_equal(row->provenance, MT_PROVENANCE_CALIBRATED);
    mt_estimate_destroy(estimate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_devices_share_the_layers_and_the_output),
        cmocka_unit_test(test_one_layer_on_a_device_is_the_output),
        cmocka_unit_test(test_the_norm_of_lfm2_lies_with_the_output),
        cmocka_unit_test(test_the_first_layers_stay_on_the_host),
        cmocka_unit_test(test_a_tensor_split_is_one_of_layers_and_output_together),
        cmocka_unit_test(test_devices_in_use_by_others_get_fewer_layers),
        cmocka_unit_test(test_without_a_split_one_device_has_all),
        cmocka_unit_test(test_the_cache_stays_on_the_host_where_asked_for),
        cmocka_unit_test(test_embeddings_stay_on_the_host_and_a_tied_output_is_copied),
        cmocka_unit_test(test_experts_stay_on_the_host_with_their_biases_but_not_the_router),
        cmocka_unit_test(test_the_first_override_that_matches_anywhere_in_a_name_decides),
        cmocka_unit_test(test_tensors_on_a_device_are_padded),
        cmocka_unit_test(test_types_of_ik_are_loaded_by_ik_alone),
        cmocka_unit_test(test_host_tensors_are_mapped_from_the_first_to_the_last),
        cmocka_unit_test(test_matrices_on_the_cpu_are_copied_into_another_layout),
        cmocka_unit_test(test_rotary_frequencies_are_copied_to_each_device_with_a_layer),
        cmocka_unit_test(test_rows_of_matrices_are_divided_with_a_row_split),
        cmocka_unit_test(test_draft_layers_are_loaded_only_to_draft),
        cmocka_unit_test(test_a_visible_device_without_a_layer_still_has_a_context),
        cmocka_unit_test(test_a_named_card_has_its_own_context_and_says_which_it_is),
        cmocka_unit_test(test_a_size_alone_has_the_band_of_all_cards_of_it),
        cmocka_unit_test(test_a_context_that_was_measured_here_has_no_band_of_its_own),
        cmocka_unit_test(test_what_was_learnt_replaces_the_band),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
