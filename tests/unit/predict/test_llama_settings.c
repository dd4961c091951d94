/* SPDX-License-Identifier: MIT */
/* Defaults of llama.cpp by version, refused contradictions, and the flags that come out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <memtally/error.h>

#include "hand_model.h"

static const uint64_t devices[] = {UINT64_C(24) << 30, UINT64_C(24) << 30};

static struct hand_model plain_model(void)
{
    struct hand_model hand;
    hand_model_init(&hand, "qwen3", 4, 32, 8, 128);
    return hand;
}

static void test_open_settings_get_the_defaults_of_the_version(void **state)
{
    (void)state;
    static const struct {
        const char *engine;
        enum mt_program program;
        uint64_t context;
        uint64_t sequences;
        enum mt_switch unified;
        enum mt_switch flash;
    } cases[] = {
        {"llama.cpp@11434", MT_PROGRAM_SERVER, 131072, 4, MT_SWITCH_ON, MT_SWITCH_ON},
        {"llama.cpp@11434", MT_PROGRAM_FIT_PARAMS, 131072, 1, MT_SWITCH_OFF, MT_SWITCH_ON},
        {"llama.cpp@11434", MT_PROGRAM_BENCH, 640, 1, MT_SWITCH_OFF, MT_SWITCH_ON},
        {"llama.cpp@6000", MT_PROGRAM_SERVER, 4096, 1, MT_SWITCH_OFF, MT_SWITCH_OFF},
        {"llama.cpp@5000", MT_PROGRAM_SERVER, 4096, 1, MT_SWITCH_ON, MT_SWITCH_OFF},
        {"ik_llama.cpp@3800", MT_PROGRAM_SERVER, 131072, 1, MT_SWITCH_ON, MT_SWITCH_OFF},
    };
    struct hand_model hand = plain_model();
    hand.model.description.layers = hand.layers;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mt_predict_settings settings = {.engine = cases[i].engine,
                                               .program = cases[i].program};
        struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
        assert_int_equal(estimate->settings.context_tokens, cases[i].context);
        assert_int_equal(estimate->settings.sequences, cases[i].sequences);
        assert_int_equal(estimate->settings.unified_kv, cases[i].unified);
        assert_int_equal(estimate->settings.flash_attention, cases[i].flash);
        assert_int_equal(estimate->settings.batch, 2048);
        assert_int_equal(estimate->settings.ubatch, 512);
        assert_string_equal(estimate->settings.kv_type_k, "f16");
        mt_estimate_destroy(estimate);
    }
}

/* ollama/server/routes.go, Serve: tiers of all devices' memory, just below 24 and 48 GiB;
 * llm/server.go takes no more than the model was trained for, here 131072 tokens. */
static void test_ollamas_context_goes_by_the_memory_of_all_devices(void **state)
{
    (void)state;
    static const struct {
        const char *engine;
        uint64_t gib[2];
        size_t n_devices;
        uint64_t context;
    } cases[] = {
        {"ollama@0.15.5", {22}, 1, 4096},      {"ollama@0.15.5", {23}, 1, 32768},
        {"ollama@0.15.5", {24, 22}, 2, 32768}, {"ollama@0.15.5", {24, 23}, 2, 131072},
        {"ollama@0.15.4", {24, 23}, 2, 4096},  {"ollama@0.31.0", {0}, 0, 4096},
        {"llama.cpp@11434", {24}, 1, 131072},
    };
    struct hand_model hand = plain_model();
    hand.model.description.layers = hand.layers;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint64_t bytes[] = {cases[i].gib[0] << 30, cases[i].gib[1] << 30};
        struct mt_predict_settings settings = {
            .engine = cases[i].engine, .device_bytes = bytes, .n_devices = cases[i].n_devices};
        struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
        assert_int_equal(estimate->settings.context_tokens, cases[i].context);
        mt_estimate_destroy(estimate);
    }
}

/* llama-server -np 4 -c 5000 of build 11434 says n_ctx = 5120, n_ctx_seq = 1280; -np 3 -c 1000 with
 * one cache says 1024. */
static void test_the_context_is_padded_as_the_server_pads_it(void **state)
{
    (void)state;
    struct hand_model hand = plain_model();
    hand.model.description.layers = hand.layers;
    struct mt_predict_settings settings = {.context_tokens = 5000, .sequences = 4};
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    assert_int_equal(hand_model_bytes(estimate, "host", MT_CATEGORY_KV_CACHE, NULL),
                     4 * 4 * 1280 * 2 * 8 * 128 * 2);
    assert_non_null(strstr(estimate->flags, "-c 5120 "));
    mt_estimate_destroy(estimate);
    settings = (struct mt_predict_settings){
        .context_tokens = 1000, .sequences = 3, .unified_kv = MT_SWITCH_ON};
    estimate = hand_model_estimate(&hand, &settings);
    assert_int_equal(hand_model_bytes(estimate, "host", MT_CATEGORY_KV_CACHE, NULL),
                     4 * 1024 * 2 * 8 * 128 * 2);
    assert_non_null(strstr(estimate->flags, "--kv-unified"));
    mt_estimate_destroy(estimate);
}

static void test_flash_attention_is_off_where_a_device_does_not_know_the_head_size(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "odd", 4, 32, 8, 144);
    struct mt_predict_settings settings = {.device_bytes = devices, .n_devices = 1};
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    assert_int_equal(estimate->settings.flash_attention, MT_SWITCH_OFF);
    mt_estimate_destroy(estimate);
}

static int says(const struct mt_estimate *estimate, const char *words)
{
    for (size_t i = 0; i < estimate->tally.n_notes; i++)
        if (strstr(estimate->tally.notes[i], words))
            return 1;
    return 0;
}

static void test_flash_attention_that_a_device_does_not_know_is_said_to_be_uncounted(void **state)
{
    (void)state;
    const struct {
        uint64_t head;
        int is_said;
    } cases[] = {{144, 1}, {128, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hand_model hand;
        hand_model_init(&hand, "llama", 4, 32, 8, cases[i].head);
        struct mt_predict_settings settings = {
            .device_bytes = devices, .n_devices = 1, .flash_attention = MT_SWITCH_ON};
        struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
        assert_int_equal(says(estimate, "no flash attention for heads of this size"),
                         cases[i].is_said);
        assert_int_equal(estimate->verdict, cases[i].is_said ? MT_VERDICT_TIGHT : MT_VERDICT_FITS);
        mt_estimate_destroy(estimate);
    }
}

static void test_contradictions_are_refused_with_the_nearest_setting(void **state)
{
    (void)state;
    static const double three[] = {1, 1, 1};
    static const struct mt_tensor_override bad[] = {{"ffn", "TPU"}, {"(", "CPU"}};
    const struct {
        struct mt_predict_settings settings;
        const char *says;
    } cases[] = {
        {{.kv_type_k = "q8_1"}, "q8_0 is the nearest"},
        {{.kv_type_v = "iq4"}, "iq4_nl is the nearest"},
        {{.kv_type_k = "turbo3"}, "no cache type turbo3"},
        {{.kv_type_v = "q8_0", .flash_attention = MT_SWITCH_OFF}, "needs flash attention"},
        {{.device_bytes = devices, .n_devices = 2, .tensor_split = three, .n_tensor_split = 3},
         "3 parts for 2 devices"},
        {{.device_bytes = devices, .n_devices = 1, .tensor_split = three, .n_tensor_split = 3},
         "3 parts for 1 device;"},
        {{.tensor_split = three, .n_tensor_split = 3}, "--tensor-split without a device"},
        {{.has_gpu_layers = 1, .gpu_layers = 20}, "--gpu-layers without a device"},
        {{.cpu_moe_layers = 3}, "no experts"},
        {{.sequences = 257}, "at most 256"},
        {{.context_tokens = UINT64_C(1) << 40}, "at most 2147483648"},
        {{.has_mla_mode = 1, .mla_mode = 2}, "does not know -mla"},
        {{.attn_max_batch_mib = 512}, "does not know -amb"},
        {{.memory_share = 0.9}, "--gpu-layers is the nearest"},
        {{.tensor_parallel = 2}, "--split layer"},
        {{.tensor_parallel = 2, .engine = "llama.cpp@9889"}, "--split row"},
        {{.split = MT_SPLIT_ROW}, "does not load a model that is split by rows"},
        {{.split = MT_SPLIT_ROW, .engine = "llama.cpp@9890"}, "--split layer is the nearest"},
        {{.batched_tokens = 2048}, "--ubatch"},
        {{.eager = 1}, "eager"},
        {{.weight_type = "fp8"}, "does not convert"},
        {{.engine = "llama.cpp@5000", .swa_full = 1}, "came with b5427"},
        {{.engine = "llama.cpp@5500", .unified_kv = MT_SWITCH_ON}, "came with b5913"},
        {{.engine = "llama.cpp@6000", .cpu_moe_layers = 1}, "--override-tensor is the nearest"},
        {{.engine = "llama.cpp@4000", .overrides = bad, .n_overrides = 1}, "came with b5028"},
        {{.engine = "ik_llama.cpp", .swa_full = 1}, "does not know --swa-full"},
        {{.engine = "ik_llama.cpp", .has_mla_mode = 1, .mla_mode = 7}, "3 is the nearest"},
        {{.engine = "ollama", .kv_type_k = "q8_0", .kv_type_v = "f16"}, "one cache type"},
        {{.overrides = bad, .n_overrides = 1}, "no buffer TPU"},
        {{.overrides = bad + 1, .n_overrides = 1}, "no regular expression"},
    };
    struct hand_model hand = plain_model();
    hand.model.description.layers = hand.layers;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text = hand_model_refusal(&hand, &cases[i].settings, MT_EARG);
        if (!strstr(text, cases[i].says))
            fail_msg("%s is not in: %s", cases[i].says, text);
    }
}

/* PR 25871: values that are a part of the keys have no type of their own. */
static void test_two_cache_types_of_latent_attention_are_refused(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "deepseek2", 4, 128, 1, 576);
    hand.model.description.kv_lora_rank = 512;
    hand.model.description.qk_rope_head_size = 64;
    hand.model.description.qk_nope_head_size = 128;
    hand.model.description.value_head_size = 128;
    for (int i = 0; i < 4; i++) {
        hand.layers[i].attention = MT_ATTENTION_LATENT;
        hand.layers[i].value_size = 0;
    }
    struct mt_predict_settings settings = {
        .engine = "llama.cpp@11434", .kv_type_k = "q8_0", .sequences = 1, .context_tokens = 4096};
    const char *text = hand_model_refusal(&hand, &settings, MT_EARG);
    assert_non_null(strstr(text, "not q8_0 and f16"));
    settings.kv_type_v = "q8_0";
    mt_estimate_destroy(hand_model_estimate(&hand, &settings));
    settings.kv_type_v = "f16";
    settings.engine = "llama.cpp@10152";
    mt_estimate_destroy(hand_model_estimate(&hand, &settings));
}

static void test_flags_are_spelled_as_the_version_spells_them(void **state)
{
    (void)state;
    static const double split[] = {3, 1};
    struct hand_model hand = plain_model();
    hand.model.description.layers = hand.layers;
    struct mt_predict_settings settings = {.engine = "llama.cpp@11434",
                                           .context_tokens = 8192,
                                           .sequences = 1,
                                           .kv_type_k = "Q8_0",
                                           .kv_type_v = "q8_0",
                                           .mmap = MT_SWITCH_OFF,
                                           .device_bytes = devices,
                                           .n_devices = 2,
                                           .tensor_split = split,
                                           .n_tensor_split = 2};
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    assert_string_equal(estimate->flags,
                        "-c 8192 -b 2048 -ub 512 -np 1 -ctk q8_0 -ctv q8_0 -fa on -ngl 5 -sm layer "
                        "-ts 3,1 --load-mode none");
    mt_estimate_destroy(estimate);
    settings.engine = "llama.cpp@6000";
    settings.flash_attention = MT_SWITCH_ON;
    estimate = hand_model_estimate(&hand, &settings);
    assert_string_equal(estimate->flags,
                        "-c 8192 -b 2048 -ub 512 -np 1 -ctk q8_0 -ctv q8_0 -fa -ngl 5 -sm layer "
                        "-ts 3,1 --no-mmap");
    mt_estimate_destroy(estimate);
}

/* llama-fit-params takes -np as the server does; llama-bench has no such flag. */
static void test_sequences_are_in_the_flags_of_programs_that_have_them(void **state)
{
    (void)state;
    static const struct {
        enum mt_program program;
        int is_said;
    } cases[] = {{MT_PROGRAM_SERVER, 1}, {MT_PROGRAM_FIT_PARAMS, 1}, {MT_PROGRAM_BENCH, 0}};
    struct hand_model hand = plain_model();
    hand.model.description.layers = hand.layers;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mt_predict_settings settings = {.program = cases[i].program, .sequences = 4};
        struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
        assert_int_equal(strstr(estimate->flags, "-np 4 ") != NULL, cases[i].is_said);
        mt_estimate_destroy(estimate);
    }
}

/* Settings of zeros are the engine's defaults, -mla among them: PR 943 made 3 the default. */
static void test_a_mode_of_latent_attention_left_open_is_the_engines(void **state)
{
    (void)state;
    static const struct {
        const char *engine;
        uint64_t mode;
    } cases[] = {{"ik_llama.cpp@3982", 0}, {"ik_llama.cpp@3983", 3}};
    struct hand_model hand = plain_model();
    hand.model.description.layers = hand.layers;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mt_predict_settings settings = {.engine = cases[i].engine};
        struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
        assert_int_equal(estimate->settings.mla_mode, cases[i].mode);
        mt_estimate_destroy(estimate);
        settings.has_mla_mode = 1;
        settings.mla_mode = 1;
        estimate = hand_model_estimate(&hand, &settings);
        assert_int_equal(estimate->settings.mla_mode, 1);
        mt_estimate_destroy(estimate);
    }
}

/* Four layers of 2 GiB, which take 16 KiB of cache for each token. */
static struct hand_model large_model(void)
{
    static const char *const names[] = {"blk.0.ffn_up.weight", "blk.1.ffn_up.weight",
                                        "blk.2.ffn_up.weight", "blk.3.ffn_up.weight"};
    struct hand_model hand = plain_model();
    for (uint32_t i = 0; i < 4; i++)
        hand_model_tensor(&hand, names[i], "f16", 1 << 15, 1 << 15, 0, i, MT_TENSOR_LAYER);
    return hand;
}

static struct mt_estimate *open_estimate(const struct hand_model *hand, uint64_t *device,
                                         uint64_t gib, uint64_t context, const char *engine)
{
    *device = gib << 30;
    struct mt_predict_settings settings = {.engine = engine,
                                           .context_tokens = context,
                                           .sequences = 1,
                                           .device_bytes = device,
                                           .n_devices = 1};
    return hand_model_estimate(hand, &settings);
}

/* 6 GiB: the driver takes a third of one, the experts of two layers take four. */
static void test_experts_leave_the_device_before_whole_layers(void **state)
{
    (void)state;
    static const char *const names[] = {"blk.0.ffn_up_exps.weight", "blk.1.ffn_up_exps.weight",
                                        "blk.2.ffn_up_exps.weight", "blk.3.ffn_up_exps.weight"};
    struct hand_model hand = plain_model();
    uint64_t device;
    hand.model.description.layers = hand.layers;
    hand.model.description.experts = 32;
    for (uint32_t i = 0; i < 4; i++)
        hand_model_tensor(&hand, names[i], "f16", 1 << 10, 1 << 15, 32, i, MT_TENSOR_EXPERTS);
    struct mt_estimate *estimate = open_estimate(&hand, &device, 6, 4096, "llama.cpp@11434");
    assert_int_equal(estimate->settings.cpu_moe_layers, 2);
    assert_int_equal(estimate->verdict, MT_VERDICT_SPILLS);
    assert_int_equal(hand_model_bytes(estimate, "gpu:0", MT_CATEGORY_WEIGHTS, NULL), UINT64_C(4)
                                                                                         << 30);
    assert_non_null(strstr(estimate->flags, "--n-cpu-moe 2"));
    mt_estimate_destroy(estimate);
}

static void test_layers_that_were_asked_for_do_not_leave_the_device(void **state)
{
    (void)state;
    struct hand_model hand = large_model();
    uint64_t device;
    hand.model.description.layers = hand.layers;
    struct mt_estimate *estimate = open_estimate(&hand, &device, 8, 16384, "llama.cpp@11434");
    assert_int_equal(estimate->settings.context_tokens, 16384);
    assert_int_equal(estimate->verdict, MT_VERDICT_SPILLS);
    mt_estimate_destroy(estimate);
    struct mt_predict_settings settings = {.context_tokens = 4096,
                                           .sequences = 1,
                                           .has_gpu_layers = 1,
                                           .gpu_layers = MT_ALL,
                                           .device_bytes = &device,
                                           .n_devices = 1};
    estimate = hand_model_estimate(&hand, &settings);
    assert_int_equal(estimate->verdict, MT_VERDICT_CANNOT);
    mt_estimate_destroy(estimate);
}

static void test_a_projector_alone_is_refused(void **state)
{
    (void)state;
    struct hand_model hand = plain_model();
    hand.model.description.layers = hand.layers;
    hand.model.description.is_projector = 1;
    struct mt_predict_settings settings = {0};
    assert_non_null(strstr(hand_model_refusal(&hand, &settings, MT_EUNSUPPORTED), "projector"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_settings_get_the_defaults_of_the_version),
        cmocka_unit_test(test_ollamas_context_goes_by_the_memory_of_all_devices),
        cmocka_unit_test(test_the_context_is_padded_as_the_server_pads_it),
        cmocka_unit_test(test_flash_attention_is_off_where_a_device_does_not_know_the_head_size),
        cmocka_unit_test(test_flash_attention_that_a_device_does_not_know_is_said_to_be_uncounted),
        cmocka_unit_test(test_contradictions_are_refused_with_the_nearest_setting),
        cmocka_unit_test(test_sequences_are_in_the_flags_of_programs_that_have_them),
        cmocka_unit_test(test_a_mode_of_latent_attention_left_open_is_the_engines),
        cmocka_unit_test(test_two_cache_types_of_latent_attention_are_refused),
        cmocka_unit_test(test_flags_are_spelled_as_the_version_spells_them),
        cmocka_unit_test(test_experts_leave_the_device_before_whole_layers),
        cmocka_unit_test(test_layers_that_were_asked_for_do_not_leave_the_device),
        cmocka_unit_test(test_a_projector_alone_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
