/* SPDX-License-Identifier: MIT */
/* Headers made from a config.json: parameters as the makers count them, bytes as llama.cpp's logs
 * of real files have them, keys as its converter writes them. */
#include "tests/support/memory_files.h"
#include "tests/support/unit.h"

#include "gguf_reader.h"
#include "model/convert/convert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[64];
static char path[96];

static int setup(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/memtally-convert-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof path, "%s/model.gguf", directory);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(directory);
}

static int convert_text(const char *text, enum mt_file_type type, struct mt_error *error)
{
    const struct memory_file files[] = {
        {"config.json", (const uint8_t *)text, strlen(text), strlen(text)}, {0}};
    const struct mt_sparse_options options = {.type = type};
    struct memory_files memory = {.files = files, .step_bytes = 1};
    struct mt_model_files table;
    struct mt_model *model = NULL;
    memory_files_table(&memory, &table);
    int code = mt_model_open("config.json", &table, &model, error);
    if (code)
        return code;
    code = mt_model_write_sparse(model, path, &options, error);
    mt_model_close(model);
    return code;
}

static void must_convert(const char *name, enum mt_file_type type)
{
    char config[512];
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    const struct mt_sparse_options options = {.type = type};
    snprintf(config, sizeof config, "%s/%s.json", CONFIG_DIR, name);
    if (mt_model_open(config, NULL, &model, &error) ||
        mt_model_write_sparse(model, path, &options, &error))
        fail_msg("%s", error.text);
    mt_model_close(model);
}

static struct mt_model *open_written(void)
{
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    if (mt_model_open(path, NULL, &model, &error))
        fail_msg("%s", error.text);
    return model;
}

/* Parameters without draft layers, as published. `beside` are elements that are not trained, or
 * that llama.cpp has no use for: factors of rotary frequencies (half a head), a pooler (768 * 768 +
 * 768), one scale for each layer. */
static const struct {
    const char *config;
    const char *architecture;
    uint64_t parameters;
    int64_t beside;
} published[] = {
    {"Meta-Llama-3.1-8B", "llama", 8030261248, 64},
    {"Meta-Llama-3.1-70B", "llama", 70553706496, 64},
    {"Mistral-7B-v0.1", "llama", 7241732096, 0},
    {"Mixtral-8x7B-v0.1", "llama", 46702792704, 0},
    {"Qwen2.5-7B-Instruct", "qwen2", 7615616512, 0},
    {"Qwen3-0.6B", "qwen3", 596049920, 0},
    {"Qwen3-32B-FP8", "qwen3", 32762123264, 0},
    {"Qwen3-30B-A3B", "qwen3moe", 30532122624, 0},
    {"Qwen3-Coder-480B-A35B-Instruct", "qwen3moe", 480154875392, 0},
    {"Qwen3-VL-8B-Instruct", "qwen3vl", 8190735360, 0},
    {"Qwen3.5-35B-A3B", "qwen35moe", 34660610688, 0},
    {"DeepSeek-V2-Lite", "deepseek2", 15706484224, 0},
    {"DeepSeek-V3", "deepseek2", 671026419200, 0},
    {"DeepSeek-V3.2", "deepseek32", 671877944064, 0},
    {"Kimi-K2-Instruct", "deepseek2", 1026408232448, 0},
    {"GLM-5", "glm-dsa", 743911218432, 0},
    {"gemma-2-2b", "gemma2", 2614341888, 0},
    {"gemma-3-27b", "gemma3", 27009346304, 0},
    {"gemma-4-26B-A4B", "gemma4", 25233141760, 256 + 30},
    {"gpt-oss-20b", "gpt-oss", 20914757184, 0},
    {"gpt-oss-120b", "gpt-oss", 116829156672, 0},
    {"Llama-4-Scout-17B-16E-Instruct", "llama4", 107769861120, 64},
    {"Llama-4-Maverick-17B-128E-Instruct", "llama4", 400711848960, 0},
    {"MiniMax-M2.7", "minimax-m2", 228689764864, 0},
    {"MiMo-V2-Flash", "mimo2", 308778780864, 0},
    {"Phi-3-mini-4k-instruct", "phi3", 3821079552, 0},
    {"Phi-3.5-MoE-instruct", "phimoe", 41873153344, 0},
    {"Jamba-v0.1", "jamba", 51570323328, 0},
    {"Nemotron-H-56B-Base-8K", "nemotron_h", 56324350464, 0},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron_h_moe", 31577940288, 0},
    {"mamba-130m-hf", "mamba", 129135360, 0},
    {"bert-base-uncased", "bert", 109482240, -(768 * 768 + 768)},
    {"gpt2", "gpt2", 124439808, 0},
};

static uint64_t draft_parameters(const struct mt_model *model)
{
    const struct mt_model_description *d = mt_model_describe(model);
    struct mt_model_tensor tensor;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < d->n_tensors; i++) {
        assert_int_equal(mt_model_tensor_at(model, i, &tensor), 0);
        if (tensor.layer != MT_NO_LAYER && tensor.layer >= d->n_layers - d->n_draft_layers)
            sum += tensor.elements;
    }
    return sum;
}

static void test_published_models_keep_their_parameters(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        must_convert(published[i].config, MT_FILE_F16);
        struct mt_model *model = open_written();
        const struct mt_model_description *d = mt_model_describe(model);
        int64_t parameters = (int64_t)(d->parameters - draft_parameters(model));
        assert_string_equal(d->architecture, published[i].architecture);
        if (parameters != (int64_t)published[i].parameters + published[i].beside)
            fail_msg("%s: %lld parameters, expected %lld", published[i].config,
                     (long long)parameters,
                     (long long)published[i].parameters + published[i].beside);
        mt_model_close(model);
    }
}

#define QWEN3_4B                                                                                   \
    "{\"model_type\": \"qwen3\", \"hidden_size\": 2560, \"num_hidden_layers\": 36, "               \
    "\"intermediate_size\": 9728, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, "       \
    "\"head_dim\": 128, \"vocab_size\": 151936, \"tie_word_embeddings\": true}"

/* MiB of all weights together, as the loads of published files were logged (sums of the buffers; of
 * a file with one embedding for input and output, that of the device alone). gpt-oss's experts stay
 * in four bits; that log counts their biases twice, 36 * 128 * (2 * 2880 + 2880) floats. */
static const struct {
    const char *config;
    enum mt_file_type type;
    double mib;
} logged[] = {
    {NULL, MT_FILE_Q4_K_M, 2375.91}, /* Qwen3-4B */
    {"Meta-Llama-3.1-8B", MT_FILE_Q4_0, 4155.99 + 281.81},
    {"Meta-Llama-3.1-8B", MT_FILE_Q4_K_M, 4403.50 + 281.81},
    {"qwen3-235b-a22b", MT_FILE_Q8_0, 41723.89 + 196631.84},
    {"gpt-oss-120b", MT_FILE_F16, 58244.06 + 1104.61 + 3131.54 - 151.875},
};

static void test_weights_have_the_bytes_of_published_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof logged / sizeof *logged; i++) {
        struct mt_error error = {0};
        if (logged[i].config)
            must_convert(logged[i].config, logged[i].type);
        else if (convert_text(QWEN3_4B, logged[i].type, &error))
            fail_msg("%s", error.text);
        struct mt_model *model = open_written();
        double mib = (double)mt_model_describe(model)->weight_bytes / 1048576;
        if (fabs(mib - logged[i].mib) > 0.02)
            fail_msg("%s as %s: %.2f MiB, expected %.2f",
                     logged[i].config ? logged[i].config : "Qwen3-4B",
                     mt_file_type_name(logged[i].type), mib, logged[i].mib);
        mt_model_close(model);
    }
}

static void open_header(struct read_file *file)
{
    struct mt_model *model = open_written();
    uint64_t header_bytes = mt_model_describe(model)->header_bytes;
    mt_model_close(model);
    gguf_open(file, path, header_bytes);
}

/* 61 layers and no draft layer, which the converter leaves out; one key and value for all heads. */
static void test_latent_attention_has_its_keys(void **state)
{
    (void)state;
    struct read_file file;
    must_convert("DeepSeek-V3", MT_FILE_Q8_0);
    open_header(&file);
    assert_int_equal(gguf_u32(&file, "deepseek2.block_count"), 61);
    assert_int_equal(gguf_u32(&file, "deepseek2.attention.head_count_kv"), 1);
    assert_int_equal(gguf_u32(&file, "deepseek2.attention.key_length"), 576);
    assert_int_equal(gguf_u32(&file, "deepseek2.attention.key_length_mla"), 192);
    assert_int_equal(gguf_u32(&file, "deepseek2.expert_count"), 256);
    assert_int_equal(gguf_u32(&file, "deepseek2.expert_group_used_count"), 4);
    assert_int_equal(gguf_u32(&file, "deepseek2.expert_gating_func"), 2);
    assert_int_equal(gguf_u32(&file, "deepseek2.leading_dense_block_count"), 3);
    assert_float_equal(gguf_f32(&file, "deepseek2.expert_weights_scale"), 2.5F, 1e-6F);
    assert_int_equal(gguf_u32(&file, "general.file_type"), 7);
    assert_int_equal(gguf_tensor(&file, "blk.3.attn_v_b.weight")->dims[2], 128);
    for (size_t i = 0; i < file.n_pairs; i++)
        assert_string_not_equal(file.pairs[i].key, "deepseek2.nextn_predict_layers");
    gguf_close(&file);
}

/* Layers with attention are told by their heads of keys and values: 6 of 52. */
static void test_numbers_that_differ_by_layer_are_arrays(void **state)
{
    (void)state;
    struct read_file file;
    must_convert("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", MT_FILE_Q8_0);
    open_header(&file);
    const struct read_pair *pair = gguf_pair(&file, "nemotron_h_moe.attention.head_count_kv");
    assert_non_null(pair);
    assert_int_equal(pair->type, 9);
    assert_int_equal(pair->n_items, 52);
    int attends = 0;
    for (size_t i = 0; i < 52; i++) {
        uint32_t heads;
        memcpy(&heads, pair->value + 4 * i, 4);
        attends += heads == 2;
        assert_true(heads == 0 || heads == 2);
    }
    assert_int_equal(attends, 6);
    gguf_close(&file);
}

static void test_norms_and_routers_are_f32(void **state)
{
    (void)state;
    struct read_file file;
    must_convert("Qwen3-30B-A3B", MT_FILE_Q4_K_M);
    open_header(&file);
    assert_int_equal(gguf_tensor(&file, "blk.0.attn_norm.weight")->type, 0);
    assert_int_equal(gguf_tensor(&file, "blk.0.ffn_gate_inp.weight")->type, 0);
    assert_int_equal(gguf_tensor(&file, "blk.0.attn_q.weight")->type, 12);        /* q4_k */
    assert_int_equal(gguf_tensor(&file, "blk.0.ffn_down_exps.weight")->type, 14); /* q6_k */
    assert_int_equal(gguf_tensor(&file, "output.weight")->type, 14);
    gguf_close(&file);
}

static void assert_refused(const char *text, int code, const char *words)
{
    struct mt_error error = {0};
    assert_int_equal(convert_text(text, MT_FILE_F16, &error), code);
    if (!strstr(error.text, words))
        fail_msg("\"%s\" lacks \"%s\"", error.text, words);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void test_a_family_that_is_not_known_is_named(void **state)
{
    (void)state;
    assert_refused("{\"model_type\": \"nonesuch\", \"hidden_size\": 64, \"num_hidden_layers\": 1, "
                   "\"num_attention_heads\": 1}",
                   MT_EUNSUPPORTED, "family \"nonesuch\" are not converted; take a GGUF");
    assert_refused("{\"model_type\": \"deepseek_v4\"}", MT_EUNSUPPORTED, "\"deepseek4\"");
}

static void test_absurd_numbers_are_refused(void **state)
{
    (void)state;
    assert_refused("{\"model_type\": \"llama\", \"num_hidden_layers\": 600}", MT_ELIMIT,
                   "more layers than llama.cpp takes");
    assert_refused("{\"model_type\": \"llama\", \"num_hidden_layers\": 1152921504606846976}",
                   MT_ELIMIT, "more than 2^40");
    assert_refused("{\"model_type\": \"qwen3_moe\", \"num_experts\": 5000}", MT_ELIMIT,
                   "more experts than llama.cpp takes");
    assert_refused("{\"model_type\": \"llama\", \"vocab_size\": 1000000000}", MT_ELIMIT,
                   "1 to 2^20 tokens");
    assert_refused("{\"model_type\": \"llama\", \"vocab_size\": 0}", MT_EFORMAT,
                   "1 to 2^20 tokens");
    assert_refused("{\"model_type\": \"llama\", \"hidden_size\": 1099511627776, "
                   "\"intermediate_size\": 1048576}",
                   MT_ELIMIT, "");
    assert_refused("{\"model_type\": \"llama\", \"hidden_size\": 1048576, "
                   "\"intermediate_size\": 1099511627776}",
                   MT_ELIMIT, "");
    assert_refused("{\"model_type\": \"mamba2\", \"n_groups\": 0}", MT_EFORMAT,
                   "its numbers make no model of the family mamba2: 'inner/groups");
    assert_refused("{\"model_type\": \"gemma3n\", \"altup_num_inputs\": 0}", MT_ELIMIT, "altup");
}

static void set_all(uint64_t *values, uint64_t number)
{
    for (int i = 0; i < MT_CONVERT_VALUES; i++)
        values[i] = number;
}

static uint64_t evaluated(const char *text, const uint64_t *values)
{
    uint64_t result = 0;
    if (mt_convert_evaluate(text, values, &result, NULL))
        fail_msg("'%s' is no expression", text);
    return result;
}

static void test_expressions(void **state)
{
    (void)state;
    uint64_t values[MT_CONVERT_VALUES];
    const char *end = NULL;
    uint64_t result = 0;
    set_all(values, 0);
    values[MT_V_heads] = 32;
    values[MT_V_key] = 128;
    values[MT_V_kv] = 8;
    assert_int_equal(evaluated("", values), 1);
    assert_int_equal(evaluated("heads*key + 2*kv*key", values), 4096 + 2048);
    assert_int_equal(evaluated("2*(heads - kv)/ 3", values), 16);
    assert_int_equal(evaluated("!heads", values), 0);
    assert_int_equal(evaluated("kv*!!heads*!q_lora", values), 8);
    assert_int_equal(mt_convert_evaluate("kv*3, heads", values, &result, &end), 0);
    assert_int_equal(result, 24);
    assert_string_equal(end, ", heads");
}

static void test_what_is_no_expression_or_no_number_is_refused(void **state)
{
    (void)state;
    static const char *const no_expressions[] = {"nonesuch", "head", "headsx",  "1+",
                                                 "(1",       "1)",   "heads 1", "1//1",
                                                 "1/q_lora", "-1",   "*",       "((((((((((1"};
    static const char *const no_numbers[] = {"1-2", "18446744073709551616", "4294967296*4294967296",
                                             "18446744073709551615+1"};
    uint64_t values[MT_CONVERT_VALUES];
    uint64_t result = 5;
    set_all(values, 0);
    for (size_t i = 0; i < sizeof no_expressions / sizeof *no_expressions; i++)
        if (mt_convert_evaluate(no_expressions[i], values, &result, NULL) != MT_EFORMAT)
            fail_msg("'%s' was taken", no_expressions[i]);
    for (size_t i = 0; i < sizeof no_numbers / sizeof *no_numbers; i++)
        assert_int_equal(mt_convert_evaluate(no_numbers[i], values, &result, NULL), MT_ELIMIT);
    assert_int_equal(result, 5);
}

static int is_block(const char *word, size_t length)
{
    for (const struct mt_convert_tensor *row = mt_convert_tensors; row->block; row++)
        if (strlen(row->block) == length && memcmp(row->block, word, length) == 0)
            return 1;
    return 0;
}

static int is_group(const char *word, size_t length)
{
    for (const struct mt_convert_key *row = mt_convert_keys; row->group; row++)
        if (strlen(row->group) == length && memcmp(row->group, word, length) == 0)
            return 1;
    return 0;
}

static void assert_words(const char *list, int (*is_word)(const char *, size_t))
{
    while (*list) {
        size_t length = strcspn(list, " ");
        if (!is_word(list, length))
            fail_msg("'%.*s' is in no table", (int)length, list);
        list += length;
        list += strspn(list, " ");
    }
}

/* With every number 1 all expressions have a value, so that a name which is misspelt shows. */
static void test_tables_speak_of_what_there_is(void **state)
{
    (void)state;
    uint64_t values[MT_CONVERT_VALUES];
    set_all(values, 1);
    for (const struct mt_convert_tensor *row = mt_convert_tensors; row->block; row++) {
        evaluated(row->when, values);
        const char *at = row->dims;
        uint64_t size = 0;
        for (int more = 1; more; at++) {
            if (mt_convert_evaluate(at, values, &size, &at))
                fail_msg("'%s' of %s", row->dims, row->name);
            more = *at == ',';
        }
    }
    for (const struct mt_convert_key *row = mt_convert_keys; row->group; row++) {
        evaluated(row->when, values);
        if (row->kind == MT_CONVERT_COUNT || row->kind == MT_CONVERT_FLAGS)
            evaluated(row->value, values);
    }
    for (const struct mt_convert_family *row = mt_convert_families;
         row->described_as != MT_ARCH_UNKNOWN; row++) {
        evaluated(row->when, values);
        assert_words(row->tensors, is_block);
        assert_words(row->keys, is_group);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_published_models_keep_their_parameters),
        TEST(test_weights_have_the_bytes_of_published_files),
        TEST(test_latent_attention_has_its_keys),
        TEST(test_numbers_that_differ_by_layer_are_arrays),
        TEST(test_norms_and_routers_are_f32),
        TEST(test_a_family_that_is_not_known_is_named),
        TEST(test_absurd_numbers_are_refused),
        cmocka_unit_test(test_expressions),
        cmocka_unit_test(test_what_is_no_expression_or_no_number_is_refused),
        cmocka_unit_test(test_tables_speak_of_what_there_is),
    };
    return RUN_TESTS(tests);
}
