/* SPDX-License-Identifier: MIT */
/* Published configurations: parameters as their makers count them, and the cache of one token by
 * hand. */
#include "tests/support/memory_files.h"
#include "tests/support/unit.h"

#include <memtally/model_file.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct published {
    const char *file;
    const char *architecture;
    uint64_t parameters; /* without draft layers */
    uint64_t kv_bytes;   /* of one token in 16 bits, all layers that keep one, drafts aside */
};

/* layers * heads * (key + value) * 2 bytes; latent: layers * 576 * 2. */
static const struct published models[] = {
    {"Meta-Llama-3.1-8B", "llama", 8030261248, 32 * 8 * (128 + 128) * 2},
    {"Meta-Llama-3.1-70B", "llama", 70553706496, 80 * 8 * (128 + 128) * 2},
    {"Mistral-7B-v0.1", "llama", 7241732096, 32 * 8 * 256 * 2},
    {"Mixtral-8x7B-v0.1", "llama", 46702792704, 32 * 8 * 256 * 2},
    {"Qwen2.5-7B-Instruct", "qwen2", 7615616512, 28 * 4 * 256 * 2},
    {"Qwen3-0.6B", "qwen3", 596049920, 28 * 8 * 256 * 2},
    {"Qwen3-32B-FP8", "qwen3", 32762123264, 64 * 8 * 256 * 2},
    {"Qwen3-30B-A3B", "qwen3moe", 30532122624, 48 * 4 * 256 * 2},
    {"Qwen3-Coder-480B-A35B-Instruct", "qwen3moe", 480154875392, 62 * 8 * 256 * 2},
    {"Qwen3-VL-8B-Instruct", "qwen3vl", 8190735360, 36 * 8 * 256 * 2},
    {"Qwen3.5-35B-A3B", "qwen35moe", 34660610688, 10 * 2 * 512 * 2},
    {"DeepSeek-V2-Lite", "deepseek2", 15706484224, 27 * 576 * 2},
    {"DeepSeek-V3", "deepseek2", 671026419200, 61 * 576 * 2},
    {"DeepSeek-V3.2", "deepseek32", 671877944064, 61 * 576 * 2},
    {"Kimi-K2-Instruct", "deepseek2", 1026408232448, 61 * 576 * 2},
    {"GLM-5", "glm-dsa", 743911218432, 78 * 576 * 2},
    {"gemma-2-2b", "gemma2", 2614341888, 26 * 4 * 512 * 2},
    {"gemma-3-27b", "gemma3", 27009346304, 62 * 16 * 256 * 2},
    {"gemma-4-26B-A4B", "gemma4", 25233141760, (25 * 8 * 512 + 5 * 2 * 1024) * 2},
    {"gpt-oss-20b", "gpt-oss", 20914757184, 24 * 8 * 128 * 2},
    {"gpt-oss-120b", "gpt-oss", 116829156672, 36 * 8 * 128 * 2},
    {"Llama-4-Scout-17B-16E-Instruct", "llama4", 107769861120, 48 * 8 * 256 * 2},
    {"Llama-4-Maverick-17B-128E-Instruct", "llama4", 400711848960, 48 * 8 * 256 * 2},
    {"MiniMax-M2.7", "minimax-m2", 228689764864, 62 * 8 * 256 * 2},
    {"MiMo-V2-Flash", "mimo2", 308778780864, (9 * 4 + 39 * 8) * (192 + 128) * 2},
    {"Phi-3-mini-4k-instruct", "phi3", 3821079552, 32 * 32 * 192 * 2},
    {"Phi-3.5-MoE-instruct", "phimoe", 41873153344, 32 * 8 * 256 * 2},
    {"Jamba-v0.1", "jamba", 51570323328, 4 * 8 * 256 * 2},
    {"Nemotron-H-56B-Base-8K", "nemotron_h", 56324350464, 10 * 8 * 256 * 2},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron_h", 31577940288, 6 * 2 * 256 * 2},
    {"mamba-130m-hf", "mamba", 129135360, 0},
    {"bert-base-uncased", "bert", 109482240, 0}, /* sees the whole text at once */
    {"gpt2", "gpt2", 124439808, 12 * 12 * 128 * 2},
};

static struct mt_model *open_published(const char *name)
{
    char path[512];
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    snprintf(path, sizeof path, "%s/%s.json", CONFIG_DIR, name);
    if (mt_model_open(path, NULL, &model, &error))
        fail_msg("%s", error.text);
    return model;
}

static int open_text(const char *text, struct mt_model **model, struct mt_error *error)
{
    const struct memory_file files[] = {
        {"config.json", (const uint8_t *)text, strlen(text), strlen(text)}, {0}};
    struct memory_files memory = {.files = files, .step_bytes = 1};
    struct mt_model_files table;
    memory_files_table(&memory, &table);
    int code = mt_model_open("config.json", &table, model, error);
    assert_int_equal(memory.open_sources, 0);
    return code;
}

static struct mt_model *must_open(const char *text)
{
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    if (open_text(text, &model, &error))
        fail_msg("%s", error.text);
    return model;
}

static void assert_refused(const char *text, int code, const char *words)
{
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    assert_int_equal(open_text(text, &model, &error), code);
    assert_null(model);
    if (!strstr(error.text, words) || strncmp(error.text, "config.json: ", 13) != 0)
        fail_msg("\"%s\" lacks \"%s\"", error.text, words);
}

/* Draft layers' share, from the tensors. Only of weights that are not packed. */
static uint64_t draft_parameters(const struct mt_model *model)
{
    const struct mt_model_description *d = mt_model_describe(model);
    struct mt_model_tensor tensor;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < d->n_tensors; i++) {
        assert_int_equal(mt_model_tensor_at(model, i, &tensor), 0);
        int is_scale = memmem(tensor.name, tensor.name_length, "scale", 5) != NULL;
        if (tensor.layer != MT_NO_LAYER && tensor.layer < d->n_layers &&
            d->layers[tensor.layer].is_draft && !is_scale)
            sum += tensor.elements;
    }
    return sum;
}

static uint64_t kv_bytes(const struct mt_model_description *d)
{
    uint64_t values = 0;
    for (uint64_t i = 0; i < d->n_layers; i++) {
        const struct mt_model_layer *layer = &d->layers[i];
        if (layer->cache_layer == i && !layer->is_draft)
            values += layer->kv_heads * (layer->key_size + layer->value_size);
    }
    return 2 * values;
}

static void test_published_models_have_their_parameters(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct mt_model *model = open_published(models[i].file);
        const struct mt_model_description *d = mt_model_describe(model);
        uint64_t parameters = d->parameters - draft_parameters(model);
        assert_true(d->family_known);
        assert_int_equal(d->format, MT_MODEL_CONFIG);
        if (parameters != models[i].parameters)
            fail_msg("%s: %llu parameters, expected %llu", models[i].file,
                     (unsigned long long)parameters, (unsigned long long)models[i].parameters);
        if (kv_bytes(d) != models[i].kv_bytes)
            fail_msg("%s: a token takes %llu bytes, expected %llu", models[i].file,
                     (unsigned long long)kv_bytes(d), (unsigned long long)models[i].kv_bytes);
        assert_string_equal(d->architecture, models[i].architecture);
        mt_model_close(model);
    }
}

/* Sums of the published files, less their headers. */
static void test_packed_models_have_the_bytes_of_their_files(void **state)
{
    (void)state;
    struct mt_model *model = open_published("gpt-oss-20b");
    assert_true(mt_model_describe(model)->weight_bytes == 13761264768);
    mt_model_close(model);
    /* 8-bit matrices with a float for each block of 128 by 128; embeddings and norms in 16 bits. */
    model = open_published("Qwen3-32B-FP8");
    uint64_t layer = 5120 * 64 * 128 * UINT64_C(2) + 5120 * 8 * 128 * 2 + 3 * 5120 * 25600;
    uint64_t norms = 64 * (2 * 5120 + 2 * 128) + 5120;
    uint64_t expected =
        64 * (layer + layer / (128 * 128) * 4) + 2 * (2 * UINT64_C(151936) * 5120 + norms);
    assert_true(mt_model_describe(model)->weight_bytes == expected);
    mt_model_close(model);
}

#define SMALL                                                                                      \
    "{\"model_type\":\"llama\",\"hidden_size\":128,\"num_hidden_layers\":1,"                       \
    "\"num_attention_heads\":4,\"intermediate_size\":256,\"vocab_size\":100,"                      \
    "\"torch_dtype\":\"float16\",\"quantization_config\":"

static void assert_bytes(const char *text, uint64_t expected)
{
    struct mt_model *model = must_open(text);
    const struct mt_model_description *d = mt_model_describe(model);
    if (d->weight_bytes != expected)
        fail_msg("%s: %llu bytes, expected %llu", text, (unsigned long long)d->weight_bytes,
                 (unsigned long long)expected);
    assert_int_equal(d->parameters, 4 * 128 * 128 + 3 * 128 * 256 + 2 * 100 * 128 + 3 * 128);
    assert_true(d->n_notes > 0);
    mt_model_close(model);
}

/* Four matrices of 128 by 128, two of 256 by 128, one of 128 by 256, in groups of 128. */
static void test_four_bits_come_with_scales_and_zeros_for_each_group(void **state)
{
    (void)state;
    uint64_t rest = 2 * 100 * 128 * 2 + 3 * 128 * 2; /* embedding, output, norms */
    uint64_t square = 128 * 128 / 2 + 128 * 2 + 128 / 2;
    uint64_t oblong = 128 * 256 / 2 + 256 * 2 + 256 / 2;
    uint64_t grouped = rest + 4 * square + 3 * oblong;
    assert_bytes(SMALL "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128}}", grouped);
    /* The group of each column: six matrices of 128, one of 256. */
    assert_bytes(SMALL "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128}}",
                 grouped + (6 * 128 + 256) * 4);
    /* Attention left as it is. */
    assert_bytes(SMALL "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128,"
                       "\"modules_to_not_convert\":[\"self_attn\"]}}",
                 rest + 4 * 128 * 128 * 2 + 3 * oblong);
    /* A word of a pattern is a whole word: "gate" is no "gate_proj". */
    assert_bytes(SMALL "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128,"
                       "\"modules_to_not_convert\":[\"gate\"]}}",
                 grouped);
    assert_bytes(SMALL "{\"quant_method\":\"newest\"}}",
                 rest + 2 * (4 * 128 * 128 + 3 * 128 * 256));
}

#define REST   (2 * 100 * 128 * 2 + 3 * 128 * 2) /* embedding, output and norms in 16 bits */
#define SQUARE UINT64_C(128 * 128)
#define OBLONG UINT64_C(128 * 256)

/* Four bits for a weight, a byte for each 64 weights, a float for each 256 of these bytes, and for
 * each matrix the 16 values of nf4 and the 256 of the bytes (QLoRA's double quantisation). Eight
 * bits for a weight, and a float for each row (LLM.int8). */
static void test_bitsandbytes_has_blocks_of_64_or_rows(void **state)
{
    (void)state;
    uint64_t maps = 4 * (16 + 256);
    uint64_t square = SQUARE / 2 + SQUARE / 64 + 4 * 1 + maps;
    uint64_t oblong = OBLONG / 2 + OBLONG / 64 + 4 * 2 + maps;
    assert_bytes(SMALL "{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true}}",
                 REST + 4 * square + 3 * oblong);
    assert_bytes(SMALL "{\"quant_method\":\"bitsandbytes\",\"load_in_8bit\":true}}",
                 REST + 4 * (SQUARE + 4 * 128) + 3 * OBLONG + 4 * (256 + 256 + 128));
    assert_bytes(SMALL "{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true,"
                       "\"llm_int8_skip_modules\":[\"mlp\"]}}",
                 REST + 4 * square + 3 * OBLONG * 2);
}

/* Four bits for a weight, eight for each 16 weights of a row, and two floats for each matrix. */
static void test_nvfp4_has_a_scale_for_each_sixteen_weights(void **state)
{
    (void)state;
    uint64_t weights = 4 * SQUARE + 3 * OBLONG;
    uint64_t packed = REST + weights / 2 + weights / 16 + 7 * 8;
    assert_bytes(SMALL "{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\"}}", packed);
    assert_bytes(SMALL "{\"quant_method\":\"compressed-tensors\","
                       "\"format\":\"nvfp4-pack-quantized\",\"config_groups\":{\"group_0\":"
                       "{\"weights\":{\"num_bits\":4,\"type\":\"float\",\"group_size\":16}}}}}",
                 packed);
}

/* What lies two levels deep in config_groups tells the packing: bits, kind of number, and whether
 * scales are of rows. */
static void test_compressed_tensors_say_their_packing_in_groups(void **state)
{
    (void)state;
    uint64_t weights = 4 * SQUARE + 3 * OBLONG;
    uint64_t rows = 4 * 128 + 256 + 256 + 128;
#define GROUPS(weights)                                                                            \
    SMALL "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"group_0\":{"              \
          "\"weights\":{" weights "}}},\"ignore\":[\"lm_head\"]}}"
    /* A scale in 16 bits for each group of 32 weights; each matrix has its two dimensions. */
    assert_bytes(GROUPS("\"num_bits\":4,\"type\":\"int\",\"group_size\":32"),
                 REST + weights / 2 + weights / 32 * 2 + 7 * 2 * 4);
    assert_bytes(GROUPS("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"channel\""),
                 REST + weights + 2 * rows);
    assert_bytes(GROUPS("\"num_bits\":8,\"type\":\"int\",\"strategy\":\"channel\""),
                 REST + weights + 4 * rows);
#undef GROUPS
}

/* Patterns are names, names with a '*', or plain regular expressions; of a layer that is not there
 * they hold for nothing. What is no such pattern is passed over. */
static void test_modules_are_left_as_they_are_by_patterns(void **state)
{
#define SKIPS(key, pattern)                                                                        \
    SMALL "{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\",\"" key "\":[" pattern "]}}"
    (void)state;
    uint64_t squares = 4 * (SQUARE / 2 + SQUARE / 16 + 8);
    uint64_t oblongs = 3 * (OBLONG / 2 + OBLONG / 16 + 8);
    uint64_t plain = 4 * SQUARE * 2;
    assert_bytes(SKIPS("exclude_modules", "\"model.layers.0.self_attn*\""), REST + plain + oblongs);
    assert_bytes(SKIPS("ignore", "\"re:.*self_attn.*\""), REST + plain + oblongs);
    assert_bytes(SKIPS("ignored_layers", "\"model.layers.1.self_attn*\",\"model.layers.10.mlp\""),
                 REST + squares + oblongs);
    assert_bytes(SKIPS("exclude_modules", "\"re:(a|b)self_attn\",7,\"\",\"*\""),
                 REST + squares + oblongs);
#undef SKIPS
}

/* No matrix has so many bits: the packing is then not known. */
static void test_a_packing_that_cannot_be_counts_as_none(void **state)
{
    (void)state;
    uint64_t plain = REST + 2 * (4 * SQUARE + 3 * OBLONG);
    assert_bytes(SMALL "{\"quant_method\":\"gptq\",\"bits\":16,\"group_size\":128}}", plain);
    assert_bytes(SMALL "{\"quant_method\":\"awq\",\"bits\":1}}", plain);
    assert_bytes(SMALL "{\"quant_method\":7}}", plain);
    assert_bytes(SMALL "{}}", plain);
}

static void test_windows_of_gemma_3_leave_every_sixth_layer_global(void **state)
{
    (void)state;
    struct mt_model *model = open_published("gemma-3-27b");
    const struct mt_model_description *d = mt_model_describe(model);
    for (uint64_t i = 0; i < d->n_layers; i++) {
        int global = i % 6 == 5;
        assert_int_equal(d->layers[i].attention,
                         global ? MT_ATTENTION_GLOBAL : MT_ATTENTION_SLIDING);
        assert_int_equal(d->layers[i].window, global ? 0 : 1024);
    }
    assert_true(d->tied_output);
    mt_model_close(model);
}

static void test_a_gemma_3n_reads_the_caches_of_earlier_layers(void **state)
{
    (void)state;
    struct mt_model *model = must_open("{\"model_type\":\"gemma3n_text\"}");
    const struct mt_model_description *d = mt_model_describe(model);
    /* 35 layers, the last 15 share: 18 is the last with a window before 20, 19 the last without. */
    assert_int_equal(d->layers[19].cache_layer, 19);
    assert_int_equal(d->layers[20].cache_layer, 18);
    assert_int_equal(d->layers[24].cache_layer, 19);
    assert_int_equal(d->layers[34].cache_layer, 19);
    assert_int_equal(d->per_layer_embedding_length, 256);
    mt_model_close(model);
}

static void test_recurrent_layers_of_qwen_3_5(void **state)
{
    (void)state;
    struct mt_model *model = open_published("Qwen3.5-35B-A3B");
    const struct mt_model_description *d = mt_model_describe(model);
    assert_int_equal(d->n_layers, 41);
    assert_int_equal(d->n_draft_layers, 1);
    assert_true(d->layers[40].is_draft);
    for (uint64_t i = 0; i < 40; i++) {
        assert_int_equal(d->layers[i].recurrence,
                         i % 4 == 3 ? MT_RECURRENCE_NONE : MT_RECURRENCE_DELTA_NET);
        assert_int_equal(d->layers[i].attention,
                         i % 4 == 3 ? MT_ATTENTION_GLOBAL : MT_ATTENTION_NONE);
        assert_int_equal(d->layers[i].experts, 256);
    }
    assert_int_equal(d->conv_kernel, 4);
    assert_int_equal(d->state_size, 128);
    assert_int_equal(d->group_count, 16);
    assert_int_equal(d->time_step_rank, 32);
    assert_int_equal(d->inner_size, 32 * 128);
    assert_int_equal(d->position_streams, 4);
    mt_model_close(model);
}

/* Qwen3-VL's encoder has a depth, and no num_hidden_layers; that of Gemma 3 has both words. */
static void test_what_a_config_says_of_an_encoder_is_described(void **state)
{
    (void)state;
    struct mt_model *model = open_published("Qwen3-VL-8B-Instruct");
    assert_true(mt_model_describe(model)->sees);
    assert_int_equal(mt_model_describe(model)->vision_layers, 0);
    assert_int_equal(mt_model_describe(model)->vision_width, 1152);
    mt_model_close(model);
    model = open_published("gemma-3-27b");
    assert_int_equal(mt_model_describe(model)->vision_layers, 27);
    mt_model_close(model);
    model = open_published("Qwen3-30B-A3B");
    assert_false(mt_model_describe(model)->sees);
    mt_model_close(model);
}

static void test_an_unknown_type_is_described_and_said_to_be_a_guess(void **state)
{
    (void)state;
    struct mt_model *model =
        must_open("{\"model_type\":\"newest\",\"hidden_size\":64,\"num_hidden_layers\":2,"
                  "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":128,"
                  "\"vocab_size\":100}");
    const struct mt_model_description *d = mt_model_describe(model);
    assert_false(d->family_known);
    assert_string_equal(d->architecture, "newest");
    assert_non_null(strstr(d->notes[0], "does not know the model type \"newest\""));
    /* q, k, v, o; gate, up, down; two norms. Embedding, output, a last norm. */
    uint64_t layer = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 64 * 128 + 2 * 64;
    assert_int_equal(d->parameters, 2 * layer + 2 * 100 * 64 + 64);
    mt_model_close(model);
}

#define BARE                                                                                       \
    "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"                        \
    "\"intermediate_size\":128,\"vocab_size\":100}"

static void assert_notes(const char *text, const char *note)
{
    struct mt_model *model = must_open(text);
    const struct mt_model_description *d = mt_model_describe(model);
    int found = 0;
    for (uint64_t i = 0; i < d->n_notes; i++) {
        found |= strstr(d->notes[i], note) != NULL;
        assert_null(strstr(d->notes[i], "\"\""));
    }
    if (!found)
        fail_msg("no note of %s says \"%s\"", text, note);
    mt_model_close(model);
}

static void test_a_config_without_a_model_type_is_said_to_be_so(void **state)
{
    (void)state;
    assert_notes("{\"architectures\":[\"NewestForCausalLM\"]," BARE,
                 "names no model type, only the class \"NewestForCausalLM\": memtally assumes "
                 "layers like those of llama");
    assert_notes("{" BARE, "names no model type: memtally assumes layers like those of llama");
    assert_notes("{\"model_type\":\"\",\"architectures\":[7,\"x\"]," BARE,
                 "names no model type: memtally assumes layers like those of llama");
    /* 59 bytes and a character of two, which would be cut at 60. */
#define A59 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    assert_notes("{\"model_type\":\"" A59 "\xc3\xa9\"," BARE,
                 A59 "\": it assumes layers like those of llama");
}

static void test_a_type_that_is_not_known_is_not_a_type_that_is_missing(void **state)
{
    (void)state;
    assert_notes("{\"model_type\":\"llama\"}",
                 "does not say what type the weights have: memtally assumes bf16");
    assert_notes("{\"model_type\":\"llama\",\"torch_dtype\":\"float7\"}",
                 "of a type that memtally does not know, float7: it assumes bf16");
    assert_notes("{\"model_type\":\"llama\",\"dtype\":16}", "does not know, 16: it assumes");
}

/* The text model of Qwen3-Omni-30B-A3B has the shapes of Qwen3-30B-A3B, but for the vocabulary. */
static void test_a_text_model_may_lie_nested_within_another_object(void **state)
{
    (void)state;
    struct mt_model *model = must_open(
        "{\"model_type\":\"qwen3_omni_moe\",\"talker_config\":{\"text_config\":{"
        "\"num_hidden_layers\":20}},\"thinker_config\":{\"audio_config\":{\"num_hidden_layers\":32}"
        ","
        "\"model_type\":\"qwen3_omni_moe_thinker\",\"dtype\":\"bfloat16\",\"text_config\":{"
        "\"hidden_size\":2048,\"intermediate_size\":768,\"model_type\":\"qwen3_omni_moe_text\","
        "\"moe_intermediate_size\":768,\"num_attention_heads\":32,\"num_experts\":128,"
        "\"head_dim\":128,\"num_hidden_layers\":48,\"num_key_value_heads\":4,"
        "\"tie_word_embeddings\":false,\"vocab_size\":152064},\"vision_config\":{\"depth\":27}}}");
    const struct mt_model_description *d = mt_model_describe(model);
    assert_true(d->family_known);
    assert_string_equal(d->architecture, "qwen3vlmoe");
    assert_int_equal(d->n_layers, 48);
    uint64_t more = UINT64_C(2) * (152064 - 151936) * 2048;
    assert_true(d->parameters == 30532122624 + more);
    assert_int_equal(kv_bytes(d), 48 * 4 * 256 * 2);
    assert_int_equal(d->n_notes, 2);
    assert_non_null(strstr(d->notes[0], "speaks"));
    assert_non_null(strstr(d->notes[1], "images and one of audio"));
    mt_model_close(model);
}

static uint64_t encoder_of(const char *vision)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{\"model_type\":\"qwen3_vl\",\"text_config\":{\"model_type\":\"qwen3_vl_text\","
             "\"hidden_size\":4096,\"num_hidden_layers\":2,\"num_attention_heads\":32,"
             "\"intermediate_size\":64,\"vocab_size\":128},\"vision_config\":{%s}}",
             vision);
    struct mt_model *model = must_open(text);
    const struct mt_model_description *d = mt_model_describe(model);
    assert_true(d->lacks_encoders);
    uint64_t parameters = d->encoder_parameters;
    mt_model_close(model);
    return parameters;
}

/* Qwen3-VL-8B has 8.77 billion numbers, of which 8.19 are the text model's: 27 layers of 4 * 1,152
 * * 1,152 and 2 * 1,152 * 4,304, and one merger and three of deep layers from 4 * 1,152 to 4,096.
 */
static void test_what_encoders_consist_of_is_counted(void **state)
{
    (void)state;
    uint64_t counted =
        encoder_of("\"depth\":27,\"hidden_size\":1152,\"intermediate_size\":4304,"
                   "\"spatial_merge_size\":2,\"deepstack_visual_indexes\":[8, 16, 24]");
    assert_int_equal(counted, 27 * (4 * 1152 * 1152 + 2 * 1152 * 4304) + 4 * 4608 * (4608 + 4096));
    assert_in_range(counted, 570000000, 580000000);
    assert_int_equal(encoder_of("\"depth\":27"), 0);
    assert_int_equal(encoder_of("\"depth\":99999999,\"hidden_size\":1152,"
                                "\"intermediate_size\":4304"),
                     0);
}

static void test_nesting_without_end_is_refused(void **state)
{
    (void)state;
    assert_refused("{\"text_config\":{\"text_config\":{\"llm_config\":{\"text_config\":"
                   "{\"text_config\":{\"num_hidden_layers\":1}}}}}}",
                   MT_ELIMIT, "nested deeper than 4 levels");
}

static void test_null_keeps_a_default_away(void **state)
{
    (void)state;
    struct mt_model *model = must_open("{\"model_type\":\"mistral\",\"sliding_window\":null}");
    assert_int_equal(mt_model_describe(model)->sliding_window, 0);
    mt_model_close(model);
    model = must_open("{\"model_type\":\"mistral\",\"sliding_window\":128}");
    assert_int_equal(mt_model_describe(model)->layers[0].window, 128);
    mt_model_close(model);
}

static void test_configurations_that_cannot_be_are_refused(void **state)
{
    (void)state;
    assert_refused("{\"model_type\":\"qwen3\",\"num_hidden_layers\":3,\"layer_types\":"
                   "[\"full_attention\",\"full_attention\"]}",
                   MT_EFORMAT, "as many kinds of layers");
    assert_refused("{\"model_type\":\"llama\",\"num_attention_heads\":0}", MT_EFORMAT,
                   "num_attention_heads");
    assert_refused("{\"model_type\":\"llama\",\"num_key_value_heads\":0}", MT_EFORMAT,
                   "num_key_value_heads");
    assert_refused("{\"model_type\":\"llama\",\"num_hidden_layers\":1000000}", MT_EFORMAT,
                   "num_hidden_layers");
    assert_refused("{\"model_type\":\"llama\",\"hidden_size\":18446744073709551615}", MT_ELIMIT,
                   "hidden_size");
    assert_refused("{\"model_type\":\"llama\",\"hidden_size\":1e12,\"vocab_size\":1e12,"
                   "\"intermediate_size\":1e12}",
                   MT_ELIMIT, "2^64");
    assert_refused("{\"hidden_size\":1,\"hidden_size\":2}", MT_EFORMAT, "occurs twice");
    assert_refused("{\"num_attention_heads\":4,\"num_key_value_heads\":8,\"hidden_size\":64,"
                   "\"num_hidden_layers\":1}",
                   MT_EFORMAT, "num_key_value_heads");
    assert_refused("{\"model_type\":\"\xff\"}", MT_EFORMAT, "UTF-8");
    assert_refused("{\"model_type\":\"llama\"", MT_EFORMAT, "ends");
}

static void test_layers_hold_all_weights_but_those_around_them(void **state)
{
    (void)state;
    struct mt_model *model = open_published("Mixtral-8x7B-v0.1");
    const struct mt_model_description *d = mt_model_describe(model);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < d->n_layers; i++) {
        assert_int_equal(d->layers[i].expert_bytes, UINT64_C(8) * 3 * 4096 * 14336 * 2);
        sum += d->layers[i].weight_bytes;
    }
    assert_true(sum + 2 * (2 * UINT64_C(32000) * 4096 + 4096) == d->weight_bytes);
    mt_model_close(model);
}

/* The class's default; published files name the sections, cut ones may not. */
static void test_positions_of_qwen_3_5_have_sections(void **state)
{
    (void)state;
    struct mt_model *model = must_open("{\"model_type\":\"qwen3_5_text\"}");
    assert_int_equal(mt_model_describe(model)->position_streams, 4);
    mt_model_close(model);
    model = must_open("{\"model_type\":\"qwen3\"}");
    assert_int_equal(mt_model_describe(model)->position_streams, 1);
    mt_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_models_have_their_parameters),
        cmocka_unit_test(test_packed_models_have_the_bytes_of_their_files),
        cmocka_unit_test(test_four_bits_come_with_scales_and_zeros_for_each_group),
        cmocka_unit_test(test_bitsandbytes_has_blocks_of_64_or_rows),
        cmocka_unit_test(test_nvfp4_has_a_scale_for_each_sixteen_weights),
        cmocka_unit_test(test_compressed_tensors_say_their_packing_in_groups),
        cmocka_unit_test(test_modules_are_left_as_they_are_by_patterns),
        cmocka_unit_test(test_a_packing_that_cannot_be_counts_as_none),
        cmocka_unit_test(test_windows_of_gemma_3_leave_every_sixth_layer_global),
        cmocka_unit_test(test_a_gemma_3n_reads_the_caches_of_earlier_layers),
        cmocka_unit_test(test_recurrent_layers_of_qwen_3_5),
        cmocka_unit_test(test_what_a_config_says_of_an_encoder_is_described),
        cmocka_unit_test(test_an_unknown_type_is_described_and_said_to_be_a_guess),
        cmocka_unit_test(test_a_config_without_a_model_type_is_said_to_be_so),
        cmocka_unit_test(test_a_type_that_is_not_known_is_not_a_type_that_is_missing),
        cmocka_unit_test(test_a_text_model_may_lie_nested_within_another_object),
        cmocka_unit_test(test_what_encoders_consist_of_is_counted),
        cmocka_unit_test(test_nesting_without_end_is_refused),
        cmocka_unit_test(test_null_keeps_a_default_away),
        cmocka_unit_test(test_configurations_that_cannot_be_are_refused),
        cmocka_unit_test(test_layers_hold_all_weights_but_those_around_them),
        cmocka_unit_test(test_positions_of_qwen_3_5_have_sections),
    };
    return RUN_TESTS(tests);
}
