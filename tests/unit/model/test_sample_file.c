/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "gguf_reader.h"

#include <math.h>
#include <memtally/model.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[64];
static char path[96];

static int make_directory(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/memtally-sample-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof path, "%s/model.gguf", directory);
    return 0;
}

/* Fails where anything was left in it. */
static int remove_directory(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(directory);
}

static void write_and_open(const struct mt_model_shape *shape, struct mt_sample_options options,
                           struct mt_sample_facts *facts, struct read_file *file)
{
    struct mt_error error = {0};
    if (mt_sample_model_write(path, shape, &options, facts, &error))
        fail_msg("%s", error.text);
    gguf_open(file, path, facts->header_bytes);
}

/* The data are the tensors one after the other, each padded to 32 bytes, and nothing else. */
static void assert_well_laid_out(const struct read_file *file, const struct mt_sample_facts *facts)
{
    uint64_t end = 0, elements = 0, bytes = 0;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct read_tensor *tensor = &file->tensors[i];
        assert_int_equal(tensor->offset, end);
        end = (tensor->offset + tensor->bytes + 31) / 32 * 32;
        elements += tensor->elements;
        bytes += tensor->bytes;
    }
    assert_int_equal(file->file_bytes, file->data_at + end);
    assert_int_equal(file->file_bytes, facts->file_bytes);
    assert_int_equal(file->n_tensors, facts->n_tensors);
    assert_int_equal(bytes, facts->tensor_bytes);
    assert_int_equal(elements, facts->parameters);
}

static void assert_disk_use_is_the_headers(const struct mt_sample_facts *facts)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_true((uint64_t)status.st_blocks * 512 < facts->header_bytes + 256 * 1024);
}

static void test_sparse_files_of_all_shapes_are_well_laid_out(void **state)
{
    (void)state;
    const struct mt_model_shape *shape;
    struct mt_sample_options options = {.type = MT_WEIGHT_Q4_K, .mode = MT_SAMPLE_SPARSE};
    for (size_t i = 0; (shape = mt_model_shape_at(i)); i++) {
        struct mt_sample_facts facts;
        struct read_file file;
        write_and_open(shape, options, &facts, &file);
        assert_well_laid_out(&file, &facts);
        assert_disk_use_is_the_headers(&facts);
        gguf_close(&file);
    }
}

static void test_every_type_takes_its_own_bytes(void **state)
{
    (void)state;
    /* smollm-135m: 134479872 weights in matrices, 35136 in norms. Rows are 576 or 1536 long. */
    const uint64_t matrices = 134479872, norms = 35136, wide = 30 * 576 * 1536;
    const struct {
        enum mt_weight_type type;
        uint64_t bytes;
    } expected[] = {
        {MT_WEIGHT_F32, matrices * 4},
        {MT_WEIGHT_F16, matrices * 2},
        {MT_WEIGHT_BF16, matrices * 2},
        {MT_WEIGHT_Q8_0, matrices / 32 * 34},
        {MT_WEIGHT_Q4_0, matrices / 32 * 18},
        {MT_WEIGHT_Q4_K, wide / 256 * 144 + (matrices - wide) / 32 * 22},
        {MT_WEIGHT_Q6_K, wide / 256 * 210 + (matrices - wide) / 32 * 34},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct mt_sample_options options = {.type = expected[i].type, .mode = MT_SAMPLE_SPARSE};
        struct mt_sample_facts facts;
        struct read_file file;
        write_and_open(mt_model_shape_by_name("smollm-135m"), options, &facts, &file);
        assert_well_laid_out(&file, &facts);
        assert_int_equal(facts.tensor_bytes, expected[i].bytes + norms * 4);
        gguf_close(&file);
    }
}

static void test_a_file_of_more_than_a_terabyte_has_right_offsets(void **state)
{
    (void)state;
    struct mt_sample_options options = {.type = MT_WEIGHT_F16, .mode = MT_SAMPLE_SPARSE};
    struct mt_sample_facts facts;
    struct read_file file;
    struct mt_error error = {0};
    int code = mt_sample_model_write(path, mt_model_shape_by_name("deepseek-v3"), &options, &facts,
                                     &error);
    if (code == MT_EIO && strstr(error.text, "cannot be")) {
        print_message("# not run: /tmp has no files so large: %s\n", error.text);
        return;
    }
    assert_int_equal(code, 0);
    gguf_open(&file, path, facts.header_bytes);
    assert_well_laid_out(&file, &facts);
    assert_true(file.file_bytes > 1300000000000);
    gguf_close(&file);
}

static void test_the_header_says_what_the_shape_says(void **state)
{
    (void)state;
    struct mt_sample_options options = {.type = MT_WEIGHT_Q4_K, .mode = MT_SAMPLE_SPARSE};
    struct mt_sample_facts facts;
    struct read_file file;
    char text[256];
    write_and_open(mt_model_shape_by_name("gemma-3-27b"), options, &facts, &file);
    gguf_string(&file, gguf_pair(&file, "general.architecture")->value, text);
    assert_string_equal(text, "gemma3");
    assert_int_equal(gguf_u32(&file, "gemma3.block_count"), 62);
    assert_int_equal(gguf_u32(&file, "gemma3.attention.head_count_kv"), 16);
    assert_int_equal(gguf_u32(&file, "gemma3.attention.key_length"), 128);
    assert_int_equal(gguf_u32(&file, "gemma3.attention.sliding_window"), 1024);
    assert_true(gguf_f32(&file, "gemma3.rope.scaling.factor") == 8.0F);
    assert_int_equal(gguf_u32(&file, "general.alignment"), 32);
    gguf_close(&file);

    write_and_open(mt_model_shape_by_name("deepseek-v3"), options, &facts, &file);
    assert_int_equal(gguf_u32(&file, "deepseek2.attention.kv_lora_rank"), 512);
    assert_int_equal(gguf_u32(&file, "deepseek2.attention.key_length"), 576);
    assert_int_equal(gguf_u32(&file, "deepseek2.attention.key_length_mla"), 192);
    assert_int_equal(gguf_u32(&file, "deepseek2.expert_used_count"), 8);
    assert_int_equal(gguf_tensor(&file, "blk.2.ffn_up.weight")->dims[1], 18432);
    assert_int_equal(gguf_tensor(&file, "blk.3.ffn_up_exps.weight")->dims[2], 256);
    gguf_close(&file);
}

/* Four layers with every kind of tensor but latent attention, about a megabyte. */
static const struct mt_model_shape small = {.architecture = "llama",
                                            .layers = 4,
                                            .embedding_length = 128,
                                            .ff_length = 160,
                                            .heads = 4,
                                            .kv_heads = 2,
                                            .vocabulary = 1500,
                                            .experts = 3,
                                            .experts_used = 2,
                                            .rope_freq_base = 500000,
                                            .rope_llama3_factor = 8};

static uint8_t *read_all(uint64_t length)
{
    uint8_t *bytes = malloc(length);
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    assert_int_equal(fread(bytes, 1, length, stream), length);
    assert_int_equal(fgetc(stream), EOF);
    fclose(stream);
    return bytes;
}

static uint8_t *write_and_read(uint64_t seed, struct mt_sample_facts *facts)
{
    struct mt_sample_options options = {.type = MT_WEIGHT_Q8_0, .seed = seed};
    assert_int_equal(mt_sample_model_write(path, &small, &options, facts, NULL), 0);
    return read_all(facts->file_bytes);
}

static void test_a_seed_gives_its_own_weights_under_the_same_header(void **state)
{
    (void)state;
    struct mt_sample_facts facts;
    uint8_t *one = write_and_read(1, &facts), *same = write_and_read(1, &facts);
    uint8_t *other = write_and_read(2, &facts);
    uint64_t at = facts.header_bytes;
    assert_memory_equal(one, same, facts.file_bytes);
    assert_memory_equal(one, other, at);
    assert_memory_not_equal(one + at, other + at, facts.file_bytes - at);
    free(one);
    free(same);
    free(other);
}

static void test_tensors_of_odd_sizes_are_padded_with_zeros(void **state)
{
    (void)state;
    const struct mt_model_shape odd = {
        .layers = 2, .embedding_length = 36, .ff_length = 50, .heads = 2, .vocabulary = 385};
    struct mt_sample_options options = {.type = MT_WEIGHT_Q4_K};
    struct mt_sample_facts facts;
    struct read_file file;
    write_and_open(&odd, options, &facts, &file);
    assert_well_laid_out(&file, &facts);
    uint8_t *bytes = read_all(facts.file_bytes);
    uint64_t padding = 0;
    for (size_t i = 0; i < file.n_tensors; i++) {
        const struct read_tensor *tensor = &file.tensors[i];
        uint64_t end = facts.header_bytes + tensor->offset + tensor->bytes;
        for (; end % 32 != 0; end++, padding++)
            assert_int_equal(bytes[end], 0);
    }
    assert_int_equal(facts.file_bytes, facts.header_bytes + facts.tensor_bytes + padding);
    assert_true(padding > 0);
    free(bytes);
    gguf_close(&file);
}

static float value_at(const uint8_t *data, const struct read_tensor *tensor, uint64_t index)
{
    float value;
    memcpy(&value, data + tensor->offset + 4 * index, sizeof value);
    return value;
}

static void test_norms_are_one_and_matrices_are_not_alike(void **state)
{
    (void)state;
    struct mt_sample_facts facts;
    struct read_file file;
    uint8_t *bytes = write_and_read(7, &facts);
    const uint8_t *data = bytes + facts.header_bytes;
    gguf_open(&file, path, facts.header_bytes);
    const struct read_tensor *norm = gguf_tensor(&file, "blk.3.ffn_norm.weight");
    assert_int_equal(norm->elements, 128);
    for (uint64_t i = 0; i < norm->elements; i++)
        assert_true(value_at(data, norm, i) == 1.0F);
    const struct read_tensor *q0 = gguf_tensor(&file, "blk.0.attn_q.weight");
    const struct read_tensor *q1 = gguf_tensor(&file, "blk.1.attn_q.weight");
    assert_memory_not_equal(data + q0->offset, data + q1->offset, q0->bytes);
    gguf_close(&file);
    free(bytes);
}

/* Llama 3.1 leaves short waves as they are and divides long ones by its factor. */
static void test_frequency_factors_rise_from_one_to_the_factor(void **state)
{
    (void)state;
    struct mt_sample_facts facts;
    struct read_file file;
    uint8_t *bytes = write_and_read(7, &facts);
    const uint8_t *data = bytes + facts.header_bytes;
    gguf_open(&file, path, facts.header_bytes);
    const struct read_tensor *factors = gguf_tensor(&file, "rope_freqs.weight");
    assert_int_equal(factors->elements, 16);
    assert_true(value_at(data, factors, 0) == 1.0F);
    assert_true(value_at(data, factors, 15) == 8.0F);
    int between = 0;
    for (uint64_t i = 0; i < 16; i++) {
        float value = value_at(data, factors, i);
        double wave = 2 * M_PI * pow(500000, (double)i / 16);
        assert_true(wave > 2048 || value == 1.0F);
        assert_true(wave < 8192 || value == 8.0F);
        between += value > 1.0F && value < 8.0F;
    }
    /* Only pair 8 lies between: its wave is 4442.9 tokens long. */
    assert_int_equal(between, 1);
    assert_true(fabs((double)value_at(data, factors, 8) - 2.6946) < 0.0005);
    gguf_close(&file);
    free(bytes);
}

struct words {
    char (*text)[256];
    uint64_t n;
};

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int is_token(const struct words *words, const char *text)
{
    return bsearch(text, words->text, words->n, 256, by_text) != NULL;
}

static struct words read_vocabulary(const struct read_file *file)
{
    const struct read_pair *tokens = gguf_pair(file, "tokenizer.ggml.tokens");
    struct words words = {calloc(tokens->n_items, 256), tokens->n_items};
    const uint8_t *at = tokens->value;
    for (uint64_t i = 0; i < words.n; i++)
        at = gguf_string(file, at, words.text[i]);
    qsort(words.text, words.n, 256, by_text);
    return words;
}

static void assert_can_be_joined(const struct words *words, const char *text)
{
    char part[256];
    for (size_t length = strlen(text) - 1; length > 3; length--) {
        snprintf(part, sizeof part, "%.*s", (int)length, text);
        if (!is_token(words, part))
            fail_msg("'%s' is a token but '%s' is not", text, part);
    }
}

static void assert_vocabulary(uint64_t n_tokens)
{
    struct mt_model_shape shape = small;
    struct mt_sample_options options = {.type = MT_WEIGHT_F16, .mode = MT_SAMPLE_SPARSE};
    struct mt_sample_facts facts;
    struct read_file file;
    shape.vocabulary = n_tokens;
    write_and_open(&shape, options, &facts, &file);
    struct words words = read_vocabulary(&file);
    assert_int_equal(words.n, n_tokens);
    assert_int_equal(gguf_pair(&file, "tokenizer.ggml.scores")->n_items, n_tokens);
    assert_int_equal(gguf_pair(&file, "tokenizer.ggml.token_type")->n_items, n_tokens);
    assert_int_equal(gguf_tensor(&file, "token_embd.weight")->dims[1], n_tokens);
    for (uint64_t i = 1; i < words.n; i++)
        assert_string_not_equal(words.text[i - 1], words.text[i]);
    for (uint64_t i = 0; i < words.n; i++)
        if (memcmp(words.text[i], "\xe2\x96\x81", 3) == 0 && words.text[i][3])
            assert_can_be_joined(&words, words.text[i]);
    assert_true(is_token(&words, "<0x0A>") && is_token(&words, "~") && is_token(&words, "</s>"));
    if (n_tokens > 2000)
        assert_true(is_token(&words, "\xe2\x96\x81the") && is_token(&words, "\xe2\x96\x81The"));
    free(words.text);
    gguf_close(&file);
}

static void test_a_vocabulary_of_any_size_has_no_token_twice_and_none_out_of_reach(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {384, 385, 600, 900, 1200, 5000, 49152};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_vocabulary(sizes[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sparse_files_of_all_shapes_are_well_laid_out),
        cmocka_unit_test(test_every_type_takes_its_own_bytes),
        cmocka_unit_test(test_a_file_of_more_than_a_terabyte_has_right_offsets),
        cmocka_unit_test(test_the_header_says_what_the_shape_says),
        cmocka_unit_test(test_a_seed_gives_its_own_weights_under_the_same_header),
        cmocka_unit_test(test_tensors_of_odd_sizes_are_padded_with_zeros),
        cmocka_unit_test(test_norms_are_one_and_matrices_are_not_alike),
        cmocka_unit_test(test_frequency_factors_rise_from_one_to_the_factor),
        cmocka_unit_test(test_a_vocabulary_of_any_size_has_no_token_twice_and_none_out_of_reach),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
