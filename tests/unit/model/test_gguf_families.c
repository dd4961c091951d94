/* SPDX-License-Identifier: MIT */
/* Headers as converters write them, with the numbers of published config.json files. What a layer
 * keeps follows from those files; the letters are written out from them by hand. */
#include "tests/unit/model/gguf_image.h"

#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

static struct image image;
static struct mt_model *model;
static const struct mt_model_description *d;

static int setup(void **state)
{
    (void)state;
    image_init(&image);
    model = NULL;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mt_model_close(model);
    image_finish(&image);
    return 0;
}

static void start(const char *architecture, uint32_t layers, uint32_t embedding, uint32_t heads,
                  uint32_t kv_heads)
{
    image_architecture(&image, architecture);
    image_u32(&image, ".block_count", layers);
    image_u32(&image, ".embedding_length", embedding);
    image_u32(&image, ".attention.head_count", heads);
    if (kv_heads)
        image_u32(&image, ".attention.head_count_kv", kv_heads);
}

static void head_size(uint32_t size)
{
    image_u32(&image, ".attention.key_length", size);
    image_u32(&image, ".attention.value_length", size);
}

static void experts(uint32_t layers, uint32_t first, uint32_t n, uint32_t used)
{
    char name[64];
    image_u32(&image, ".expert_count", n);
    image_u32(&image, ".expert_used_count", used);
    for (uint32_t i = 0; i < layers; i++) {
        snprintf(name, sizeof name, "blk.%u.ffn_down%s.weight", i, i < first ? "" : "_exps");
        image_tensor(&image, name, 1, 2 * 96 * 64 * (i < first ? 1 : n),
                     (const uint64_t[4]){96, 64, i < first ? 0 : n});
    }
}

static void done(void)
{
    struct mt_error error = {0};
    image_seal(&image);
    if (image_open(&image, &model, &error) != 0)
        fail_msg("%s", error.text);
    d = mt_model_describe(model);
}

static char letter(const struct mt_model_layer *layer)
{
    static const char attention[] = "-GSCLX";
    static const char recurrence[] = "-mMdksr";
    if (layer->attention != MT_ATTENTION_NONE && layer->recurrence != MT_RECURRENCE_NONE)
        return '+';
    return layer->recurrence ? recurrence[layer->recurrence] : attention[layer->attention];
}

/* The kinds of all layers, one letter each, are `unit` over and over. */
static void assert_layers(const char *unit)
{
    size_t n = strlen(unit);
    assert_true(d->n_layers > 0);
    assert_true(d->family_known);
    for (uint64_t i = 0; i < d->n_layers; i++)
        if (letter(&d->layers[i]) != unit[i % n])
            fail_msg("layer %llu is %c, expected %c", (unsigned long long)i, letter(&d->layers[i]),
                     unit[i % n]);
}

static void assert_heads(uint64_t layer, uint64_t kv_heads, uint64_t key, uint64_t value)
{
    assert_int_equal(d->layers[layer].kv_heads, kv_heads);
    assert_int_equal(d->layers[layer].key_size, key);
    assert_int_equal(d->layers[layer].value_size, value);
}

static void test_gemma_3_is_global_in_every_sixth_layer(void **state)
{
    (void)state;
    start("gemma3", 26, 1152, 4, 1);
    head_size(256);
    image_u32(&image, ".attention.sliding_window", 512);
    done();
    assert_layers("SSSSSGSSSSSGSSSSSGSSSSSGSS");
    assert_heads(0, 1, 256, 256);
    assert_int_equal(d->layers[0].window, 512);
    assert_int_equal(d->layers[5].window, 0);
}

static void test_gemma_2_alternates_with_a_window_of_4096(void **state)
{
    (void)state;
    start("gemma2", 4, 2304, 8, 4);
    head_size(256);
    done();
    assert_layers("SG");
    assert_int_equal(d->sliding_window, 4096);
}

static void test_gemma_3n_reads_the_caches_of_layers_18_and_19(void **state)
{
    (void)state;
    start("gemma3n", 35, 2048, 8, 2);
    head_size(256);
    image_u32(&image, ".attention.sliding_window", 512);
    done();
    assert_layers("SSSSG");
    assert_int_equal(d->layers[19].cache_layer, 19);
    assert_int_equal(d->layers[20].cache_layer, 18);
    assert_int_equal(d->layers[24].cache_layer, 19);
    assert_int_equal(d->layers[34].cache_layer, 19);
    assert_int_equal(d->altup_inputs, 4);
}

/* E4B: 42 layers, the last 18 without a cache of their own. */
static void test_gemma_4_has_heads_of_two_sizes(void **state)
{
    (void)state;
    uint8_t pattern[42];
    for (int i = 0; i < 42; i++)
        pattern[i] = (i + 1) % 6 != 0;
    start("gemma4", 42, 2560, 8, 2);
    head_size(512);
    image_u32(&image, ".attention.key_length_swa", 256);
    image_u32(&image, ".attention.value_length_swa", 256);
    image_u32(&image, ".attention.sliding_window", 512);
    image_u32(&image, ".attention.shared_kv_layers", 18);
    image_u32(&image, ".embedding_length_per_layer_input", 256);
    image_bool_array(&image, ".attention.sliding_window_pattern", 42, pattern);
    done();
    assert_layers("SSSSSG");
    assert_heads(0, 2, 256, 256);
    assert_heads(5, 2, 512, 512);
    assert_int_equal(d->layers[23].cache_layer, 23);
    assert_int_equal(d->layers[24].cache_layer, 22);
    assert_int_equal(d->layers[29].cache_layer, 23);
    assert_int_equal(d->per_layer_embedding_length, 256);
}

static void test_gpt_oss_begins_with_a_window(void **state)
{
    (void)state;
    start("gpt-oss", 24, 2880, 64, 8);
    head_size(64);
    image_u32(&image, ".attention.sliding_window", 128);
    experts(24, 0, 32, 4);
    done();
    assert_layers("SG");
    assert_int_equal(d->layers[0].experts, 32);
    assert_int_equal(d->layers[0].experts_used, 4);
    assert_int_equal(d->layers[0].expert_ff_length, 96);
    assert_int_equal(d->layers[0].ff_length, 0);
    assert_int_equal(d->layers[0].expert_bytes, 2 * 96 * 64 * 32);
}

static void test_command_r7b_is_global_in_every_fourth_layer(void **state)
{
    (void)state;
    start("cohere2", 32, 4096, 32, 8);
    head_size(128);
    image_u32(&image, ".attention.sliding_window", 4096);
    done();
    assert_layers("SSSG");
}

static void test_modern_windows_may_come_after_a_global_layer(void **state)
{
    (void)state;
    start("cohere2moe", 8, 4096, 32, 8);
    image_u32(&image, ".attention.sliding_window", 4096);
    done();
    assert_layers("GSSS");
}

static void test_llama_4_attends_to_chunks_of_8192(void **state)
{
    (void)state;
    start("llama4", 48, 5120, 40, 8);
    head_size(128);
    done();
    assert_layers("CCCG");
    assert_int_equal(d->layers[0].window, 8192);
}

/* Windows that llama.cpp does not use are none: Phi 3 and the first Mistral. */
static void test_some_families_keep_all_tokens_whatever_they_say(void **state)
{
    (void)state;
    start("phi3", 32, 3072, 32, 32);
    image_u32(&image, ".attention.sliding_window", 2047);
    done();
    assert_layers("G");
    assert_heads(0, 32, 96, 96);
    assert_int_equal(d->sliding_window, 0);
}

static void test_a_period_in_the_file_counts(void **state)
{
    (void)state;
    start("gemma3", 8, 1152, 4, 1);
    image_u32(&image, ".attention.sliding_window", 512);
    image_u32(&image, ".attention.sliding_window_pattern", 4);
    done();
    assert_layers("SSSG");
}

static void put_latent(void)
{
    image_u32(&image, ".attention.q_lora_rank", 1536);
    image_u32(&image, ".attention.kv_lora_rank", 512);
    image_u32(&image, ".rope.dimension_count", 64);
}

static void test_deepseek_3_keeps_576_numbers_for_all_heads(void **state)
{
    (void)state;
    start("deepseek2", 61, 7168, 128, 1);
    put_latent();
    image_u32(&image, ".attention.key_length", 576);
    image_u32(&image, ".attention.value_length", 512);
    image_u32(&image, ".attention.key_length_mla", 192);
    image_u32(&image, ".attention.value_length_mla", 128);
    image_u32(&image, ".leading_dense_block_count", 3);
    experts(61, 3, 4, 2);
    done();
    assert_layers("L");
    assert_heads(0, 1, 576, 0);
    assert_int_equal(d->layers[0].heads, 128);
    assert_int_equal(d->layers[2].ff_length, 96);
    assert_int_equal(d->layers[2].experts, 0);
    assert_int_equal(d->layers[3].experts, 4);
    assert_int_equal(d->qk_nope_head_size, 128);
    assert_int_equal(d->qk_rope_head_size, 64);
    assert_int_equal(d->value_head_size, 128);
    assert_int_equal(d->n_notes, 0);
}

/* Files of before April 2025 have no *_mla keys; engines cache all heads. */
static void test_old_deepseek_files_cache_every_head(void **state)
{
    (void)state;
    start("deepseek2", 27, 2048, 16, 16);
    put_latent();
    image_u32(&image, ".attention.key_length", 192);
    image_u32(&image, ".attention.value_length", 128);
    done();
    assert_layers("G");
    assert_heads(26, 16, 192, 128);
    assert_int_equal(d->n_notes, 1);
    assert_non_null(strstr(d->notes[0], "key_length_mla"));
}

static void test_glm_5_has_an_indexer_and_a_draft_layer(void **state)
{
    (void)state;
    start("glm-dsa", 79, 6144, 64, 1);
    put_latent();
    image_u32(&image, ".nextn_predict_layers", 1);
    image_u32(&image, ".attention.key_length", 576);
    image_u32(&image, ".attention.value_length", 512);
    image_u32(&image, ".attention.key_length_mla", 256);
    image_u32(&image, ".attention.value_length_mla", 256);
    image_u32(&image, ".attention.indexer.head_count", 32);
    image_u32(&image, ".attention.indexer.key_length", 128);
    image_u32(&image, ".attention.indexer.top_k", 2048);
    done();
    assert_layers("L");
    assert_int_equal(d->n_draft_layers, 1);
    assert_true(d->layers[78].is_draft);
    assert_false(d->layers[77].is_draft);
    assert_int_equal(d->indexer_heads, 32);
    assert_int_equal(d->indexer_head_size, 128);
    assert_int_equal(d->indexer_top_k, 2048);
}

static void put_ssm(uint32_t conv, uint32_t inner, uint32_t state, uint32_t rank, uint32_t groups)
{
    image_u32(&image, ".ssm.conv_kernel", conv);
    image_u32(&image, ".ssm.inner_size", inner);
    image_u32(&image, ".ssm.state_size", state);
    image_u32(&image, ".ssm.time_step_rank", rank);
    image_u32(&image, ".ssm.group_count", groups);
}

static void test_qwen_3_6_attends_in_every_fourth_layer(void **state)
{
    (void)state;
    start("qwen35", 64, 5120, 24, 4);
    head_size(256);
    put_ssm(4, 6144, 128, 48, 16);
    image_u32_array(&image, ".rope.dimension_sections", 4, (const uint32_t[]){11, 11, 10, 0});
    done();
    assert_layers("dddG");
    assert_heads(3, 4, 256, 256);
    assert_heads(0, 0, 0, 0);
    assert_int_equal(d->layers[0].heads, 0);
    assert_int_equal(d->layers[3].heads, 24);
    assert_int_equal(d->position_streams, 4);
    /* 16 layers of 2 * 4 heads of 256 numbers of 2 bytes: 65,536 bytes for each token. */
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < 64; i++)
        bytes += 2 * d->layers[i].kv_heads * (d->layers[i].key_size + d->layers[i].value_size);
    assert_int_equal(bytes, 65536);
    assert_int_equal(d->inner_size, 6144);
    assert_int_equal(d->group_count, 16);
}

static void test_a_draft_layer_of_a_hybrid_attends(void **state)
{
    (void)state;
    start("qwen35moe", 41, 2048, 16, 2);
    image_u32(&image, ".nextn_predict_layers", 1);
    image_u32(&image, ".full_attention_interval", 4);
    done();
    assert_int_equal(letter(&d->layers[39]), 'G');
    assert_int_equal(letter(&d->layers[38]), 'd');
    assert_int_equal(letter(&d->layers[40]), 'G');
    assert_true(d->layers[40].is_draft);
}

static void test_granite_4_attends_where_it_has_key_heads(void **state)
{
    (void)state;
    uint32_t kv[40] = {0};
    kv[5] = kv[15] = kv[25] = kv[35] = 4;
    start("granitehybrid", 40, 1536, 12, 0);
    image_u32_array(&image, ".attention.head_count_kv", 40, kv);
    put_ssm(4, 3072, 128, 48, 1);
    done();
    assert_layers("MMMMMGMMMM");
    assert_heads(5, 4, 128, 128);
    assert_heads(6, 0, 0, 0);
}

static void test_jamba_lfm2_and_kimi_linear_recur_where_they_do_not_attend(void **state)
{
    (void)state;
    static const char *const names[] = {"jamba", "lfm2", "kimi-linear"};
    static const char *const units[] = {"mmG", "ssG", "kkL"};
    for (size_t i = 0; i < 3; i++) {
        teardown(NULL);
        setup(NULL);
        start(names[i], 3, 2048, 32, 0);
        image_u32_array(&image, ".attention.head_count_kv", 3, (const uint32_t[]){0, 0, 8});
        if (i == 2) {
            put_latent();
            image_u32(&image, ".kda.head_dim", 128);
            image_u32(&image, ".attention.key_length_mla", 192);
            image_u32(&image, ".attention.value_length_mla", 128);
        }
        image_u32(&image, ".shortconv.l_cache", 3);
        done();
        assert_layers(units[i]);
    }
    assert_heads(2, 1, 576, 0);
    assert_int_equal(d->state_size, 128);
    assert_int_equal(d->inner_size, 32 * 128);
    assert_int_equal(d->short_conv_cache, 3);
}

static void test_falcon_h1_does_both_in_each_layer(void **state)
{
    (void)state;
    start("falcon-h1", 44, 3072, 12, 2);
    head_size(128);
    put_ssm(4, 3072, 256, 24, 1);
    done();
    assert_layers("+");
    assert_heads(0, 2, 128, 128);
    assert_int_equal(d->layers[0].recurrence, MT_RECURRENCE_MAMBA2);
}

/* Layers of Nemotron-H do one thing each: M, attention or feed-forward. */
static void test_nemotron_h_has_layers_that_keep_nothing(void **state)
{
    (void)state;
    start("nemotron_h", 4, 4096, 32, 0);
    image_u32_array(&image, ".attention.head_count_kv", 4, (const uint32_t[]){0, 0, 8, 0});
    image_u32_array(&image, ".feed_forward_length", 4, (const uint32_t[]){0, 21504, 0, 0});
    put_ssm(4, 8192, 128, 128, 8);
    done();
    assert_layers("M-GM");
}

static void test_mamba_never_attends(void **state)
{
    (void)state;
    start("mamba", 24, 768, 0, 0);
    put_ssm(4, 1536, 16, 48, 0);
    done();
    assert_layers("m");
    assert_int_equal(d->heads, 0);
}

static void test_rwkv_keeps_a_square_for_each_head(void **state)
{
    (void)state;
    start("rwkv7", 24, 2048, 0, 0);
    image_u32(&image, ".wkv.head_size", 64);
    done();
    assert_layers("r");
    assert_int_equal(d->inner_size * d->state_size, 2048 * 64);
    assert_int_equal((d->conv_kernel - 1) * d->inner_size, 2 * 2048);
}

static void test_mixtral_is_a_llama_with_experts(void **state)
{
    (void)state;
    start("llama", 2, 4096, 32, 8);
    experts(2, 0, 8, 2);
    done();
    assert_layers("G");
    assert_heads(0, 8, 128, 128);
    assert_int_equal(d->experts, 8);
    assert_int_equal(d->layers[1].experts_used, 2);
}

static void test_plain_families_are_global(void **state)
{
    (void)state;
    static const char *const names[] = {
        "qwen2", "qwen2moe",  "qwen3",   "qwen3moe",   "glm4",     "glm4moe", "mistral3",
        "phi2",  "command-r", "granite", "granitemoe", "lfm2moe",  "olmoe",   "starcoder2",
        "olmo2", "dots1",     "bitnet",  "ernie4_5",   "deepseek", "gemma"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        teardown(NULL);
        setup(NULL);
        start(names[i], 4, 2048, 16, 4);
        done();
        assert_layers("G");
        assert_heads(3, 4, 128, 128);
        assert_int_equal(d->position_streams, 1);
        assert_int_equal(d->n_notes, 0);
    }
}

static void test_pictures_need_positions_in_sections(void **state)
{
    (void)state;
    static const uint32_t sections[] = {16, 24, 24, 0};
    start("qwen2vl", 2, 1536, 12, 2);
    done();
    assert_int_equal(d->position_streams, 4);
    teardown(NULL);
    setup(NULL);
    start("glm4moe", 2, 4096, 96, 8);
    image_u32_array(&image, ".rope.dimension_sections", 4, sections);
    done();
    assert_int_equal(d->position_streams, 4);
}

static void test_encoders_keep_nothing(void **state)
{
    (void)state;
    start("bert", 12, 384, 12, 0);
    image_f16(&image, "token_embd.weight", 384, 30522);
    done();
    assert_layers("-");
    assert_true(d->is_embedder);
    assert_int_equal(d->heads, 12);
    assert_int_equal(d->vocabulary, 30522);
}

static void test_a_projector_belongs_to_another_model(void **state)
{
    (void)state;
    image_architecture(&image, "clip");
    image_u32(&image, "clip.vision.embedding_length", 1152);
    image_f16(&image, "v.blk.0.attn_q.weight", 64, 64);
    image_f16(&image, "mm.0.weight", 64, 64);
    image_f16(&image, "anything", 64, 64);
    done();
    assert_true(d->is_projector);
    assert_int_equal(d->n_layers, 0);
    assert_int_equal(d->embedding_length, 1152);
    assert_int_equal(d->n_notes, 0);
    for (uint64_t i = 0; i < 3; i++) {
        struct mt_model_tensor tensor;
        assert_int_equal(mt_model_tensor_at(model, i, &tensor), 0);
        assert_int_equal(tensor.role, MT_TENSOR_PROJECTOR);
        assert_int_equal(tensor.layer, MT_NO_LAYER);
    }
}

static void test_a_family_of_tomorrow_has_weights_and_a_guess(void **state)
{
    (void)state;
    start("llama9", 2, 2048, 16, 4);
    image_f16(&image, "blk.0.attn_q.weight", 2048, 2048);
    image_f16(&image, "blk.1.attn_q.weight", 2048, 2048);
    image_f16(&image, "output.weight", 2048, 100);
    done();
    assert_false(d->family_known);
    assert_int_equal(letter(&d->layers[0]), 'G');
    assert_heads(0, 4, 128, 128);
    assert_int_equal(d->layers[1].weight_bytes, 2 * 2048 * 2048);
    assert_false(d->tied_output);
    assert_int_equal(d->n_notes, 1);
    assert_non_null(strstr(d->notes[0], "does not know the family 'llama9'"));
}

static void test_roles_follow_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum mt_tensor_role role;
        uint32_t layer;
    } rows[] = {
        {"token_embd.weight", MT_TENSOR_TOKEN_EMBEDDING, MT_NO_LAYER},
        {"per_layer_token_embd.weight", MT_TENSOR_PER_LAYER_EMBEDDING, MT_NO_LAYER},
        {"position_embd.weight", MT_TENSOR_INPUT, MT_NO_LAYER},
        {"token_types.weight", MT_TENSOR_INPUT, MT_NO_LAYER},
        {"output.weight", MT_TENSOR_OUTPUT, MT_NO_LAYER},
        {"output_norm.weight", MT_TENSOR_OUTPUT_OTHER, MT_NO_LAYER},
        {"output.bias", MT_TENSOR_OUTPUT_OTHER, MT_NO_LAYER},
        {"rope_freqs.weight", MT_TENSOR_LAYER, 0},
        {"blk.17.attn_q.weight", MT_TENSOR_LAYER, 17},
        {"blk.3.ffn_gate_inp.weight", MT_TENSOR_LAYER, 3},
        {"blk.3.ffn_up_exps.weight", MT_TENSOR_EXPERTS, 3},
        {"blk.3.ffn_gate_up_exps.weight", MT_TENSOR_EXPERTS, 3},
        {"blk.3.ffn_up_shexp.weight", MT_TENSOR_LAYER, 3},
        {"blk.3.ffn_up.7.weight", MT_TENSOR_EXPERTS, 3},
        {"blk.x.ffn_up.weight", MT_TENSOR_OUTPUT_OTHER, MT_NO_LAYER},
        {"mm.input_projection.weight", MT_TENSOR_PROJECTOR, MT_NO_LAYER},
        {"v.patch_embd.weight", MT_TENSOR_PROJECTOR, MT_NO_LAYER},
    };
    const size_t n = sizeof rows / sizeof *rows;
    start("llama", 20, 64, 1, 1);
    for (size_t i = 0; i < n; i++)
        image_f16(&image, rows[i].name, 64, 1);
    done();
    for (size_t i = 0; i < n; i++) {
        struct mt_model_tensor tensor;
        assert_int_equal(mt_model_tensor_at(model, i, &tensor), 0);
        if (tensor.role != rows[i].role || tensor.layer != rows[i].layer)
            fail_msg("%s: role %d of layer %u", rows[i].name, (int)tensor.role, tensor.layer);
    }
    assert_int_equal(d->layers[3].weight_bytes, 5 * 128);
    assert_int_equal(d->layers[3].expert_bytes, 3 * 128);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_gemma_3_is_global_in_every_sixth_layer),
        TEST(test_gemma_2_alternates_with_a_window_of_4096),
        TEST(test_gemma_3n_reads_the_caches_of_layers_18_and_19),
        TEST(test_gemma_4_has_heads_of_two_sizes),
        TEST(test_gpt_oss_begins_with_a_window),
        TEST(test_command_r7b_is_global_in_every_fourth_layer),
        TEST(test_modern_windows_may_come_after_a_global_layer),
        TEST(test_llama_4_attends_to_chunks_of_8192),
        TEST(test_some_families_keep_all_tokens_whatever_they_say),
        TEST(test_a_period_in_the_file_counts),
        TEST(test_deepseek_3_keeps_576_numbers_for_all_heads),
        TEST(test_old_deepseek_files_cache_every_head),
        TEST(test_glm_5_has_an_indexer_and_a_draft_layer),
        TEST(test_qwen_3_6_attends_in_every_fourth_layer),
        TEST(test_a_draft_layer_of_a_hybrid_attends),
        TEST(test_granite_4_attends_where_it_has_key_heads),
        TEST(test_jamba_lfm2_and_kimi_linear_recur_where_they_do_not_attend),
        TEST(test_falcon_h1_does_both_in_each_layer),
        TEST(test_nemotron_h_has_layers_that_keep_nothing),
        TEST(test_mamba_never_attends),
        TEST(test_rwkv_keeps_a_square_for_each_head),
        TEST(test_mixtral_is_a_llama_with_experts),
        TEST(test_plain_families_are_global),
        TEST(test_pictures_need_positions_in_sections),
        TEST(test_encoders_keep_nothing),
        TEST(test_a_projector_belongs_to_another_model),
        TEST(test_a_family_of_tomorrow_has_weights_and_a_guess),
        TEST(test_roles_follow_names),
    };
    return RUN_TESTS(tests);
}
