/* SPDX-License-Identifier: MIT */
#include "tests/unit/model/gguf_image.h"

#include "tests/support/unit.h"

#include <memtally/model.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define F32  0
#define F16  1
#define Q4_K 12

static struct image image;

static int setup(void **state)
{
    (void)state;
    image_init(&image);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    image_finish(&image);
    return 0;
}

static struct mt_model *open_image(void)
{
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    image_seal(&image);
    if (image_open(&image, &model, &error) != 0)
        fail_msg("%s", error.text);
    return model;
}

/* Opening fails with `code` at `offset`, and the text has `words` in it. */
static void assert_refused(int code, uint64_t offset, const char *words)
{
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    int result = image_open(&image, &model, &error);
    mt_model_close(model);
    if (result != code || error.offset != offset || !strstr(error.text, words) ||
        strncmp(error.text, "model.gguf: ", 12) != 0)
        fail_msg("%d at %llu: %s; expected %d at %llu: … %s", result,
                 (unsigned long long)error.offset, error.text, code, (unsigned long long)offset,
                 words);
}

static void assert_sealed_refused(int code, uint64_t offset, const char *words)
{
    image_seal(&image);
    assert_refused(code, offset, words);
}

/* Where the pairs end and the tensors begin. */
static uint64_t tensors_at(void)
{
    return 24 + image.pairs.length;
}

static void test_samples_are_read_back_as_they_were_planned(void **state)
{
    (void)state;
    char path[] = "/tmp/memtally-gguf-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    const struct mt_sample_options options = {.type = MT_WEIGHT_Q4_K, .mode = MT_SAMPLE_SPARSE};
    const struct mt_model_shape *shape;
    for (size_t i = 0; (shape = mt_model_shape_at(i)); i++) {
        struct mt_sample_facts facts;
        struct mt_model *model = NULL;
        assert_int_equal(mt_sample_model_write(path, shape, &options, &facts, NULL), 0);
        assert_int_equal(mt_model_open(path, NULL, &model, NULL), 0);
        const struct mt_model_description *d = mt_model_describe(model);
        assert_int_equal(d->format, MT_MODEL_GGUF);
        assert_true(d->family_known);
        assert_int_equal(d->parameters, facts.parameters);
        assert_int_equal(d->n_tensors, facts.n_tensors);
        assert_int_equal(d->weight_bytes, facts.tensor_bytes);
        assert_int_equal(d->header_bytes, facts.header_bytes);
        assert_int_equal(d->file_bytes, facts.file_bytes);
        assert_string_equal(d->name, shape->name);
        assert_string_equal(d->architecture, shape->architecture);
        assert_int_equal(d->n_layers, shape->layers);
        assert_int_equal(d->vocabulary, shape->vocabulary);
        assert_int_equal(d->embedding_length, shape->embedding_length);
        assert_int_equal(d->heads, shape->heads);
        assert_int_equal(d->tied_output, shape->tied_embeddings);
        assert_int_equal(d->experts, shape->experts);
        assert_int_equal(d->experts_used, shape->experts_used);
        assert_int_equal(d->sliding_window, shape->sliding_window);
        assert_int_equal(d->n_notes, 0);
        mt_model_close(model);
    }
    unlink(path);
}

static void put_small_model(void)
{
    image_architecture(&image, "llama");
    image_string(&image, "general.name", "small");
    image_u32(&image, ".block_count", 1);
    image_u32(&image, ".embedding_length", 512);
    image_u32(&image, ".attention.head_count", 8);
    image_u32(&image, ".attention.head_count_kv", 2);
    image_u32(&image, ".context_length", 4096);
    image_tensor(&image, "token_embd.weight", Q4_K, 512 * 100 / 256 * 144,
                 (const uint64_t[4]){512, 100});
    image_f16(&image, "blk.0.attn_q.weight", 512, 512);
    image_tensor(&image, "output_norm.weight", F32, 2048, (const uint64_t[4]){512});
}

static void assert_small_model(const struct mt_model *model)
{
    const struct mt_model_description *d = mt_model_describe(model);
    struct mt_model_tensor tensor;
    assert_string_equal(d->name, "small");
    assert_int_equal(d->n_tensors, 3);
    assert_int_equal(d->parameters, 512 * 100 + 512 * 512 + 512);
    assert_int_equal(d->weight_bytes, 28800 + 524288 + 2048);
    assert_string_equal(d->dtype, "f16");
    assert_int_equal(d->vocabulary, 100);
    assert_int_equal(d->tied_output, 1);
    assert_int_equal(d->layers[0].attention, MT_ATTENTION_GLOBAL);
    assert_int_equal(d->layers[0].kv_heads, 2);
    assert_int_equal(d->layers[0].key_size, 64);
    assert_int_equal(d->layers[0].weight_bytes, 524288);
    assert_int_equal(mt_model_tensor_at(model, 1, &tensor), 0);
    assert_int_equal(tensor.name_length, 19);
    assert_memory_equal(tensor.name, "blk.0.attn_q.weight", 19);
    assert_string_equal(tensor.type, "f16");
    assert_int_equal(tensor.dims[1], 512);
    assert_int_equal(tensor.offset, d->header_bytes + 28800);
    assert_int_equal(tensor.layer, 0);
    assert_int_equal(tensor.role, MT_TENSOR_LAYER);
    assert_int_equal(mt_model_tensor_at(model, 2, &tensor), 0);
    assert_int_equal(tensor.layer, MT_NO_LAYER);
    assert_int_equal(tensor.role, MT_TENSOR_OUTPUT_OTHER);
    assert_int_equal(mt_model_tensor_at(model, 3, &tensor), MT_EARG);
}

static void test_versions_and_byte_orders_give_the_same_model(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        image_finish(&image);
        image_init(&image);
        image.version = i & 1 ? 2 : 3;
        image.big_endian = i >> 1;
        put_small_model();
        struct mt_model *model = open_image();
        assert_small_model(model);
        mt_model_close(model);
    }
}

static void test_versions_that_nobody_reads_are_refused(void **state)
{
    (void)state;
    put_small_model();
    image.version = 1;
    assert_sealed_refused(MT_EVERSION, 4, "version 1");
    image.version = 4;
    assert_sealed_refused(MT_EVERSION, 4, "version 4");
    image.version = 0;
    assert_sealed_refused(MT_EVERSION, 4, "version 0");
}

static void test_other_files_are_no_models(void **state)
{
    (void)state;
    mt_strbuf_puts(&image.file, "PK\x03\x04 and so on");
    assert_refused(MT_EFORMAT, MT_NO_OFFSET, "zip archive");
    image_finish(&image);
    image_init(&image);
    mt_strbuf_puts(&image.file, "\x01\x02\x03\x04 and so on");
    assert_refused(MT_EFORMAT, 0, "01 02 03 04");
    image_finish(&image);
    image_init(&image);
    assert_refused(MT_EFORMAT, 0, "empty");
}

static void test_every_cut_of_a_header_is_named_as_such(void **state)
{
    (void)state;
    put_small_model();
    image_seal(&image);
    size_t whole = image.file.length;
    image.next_offset = 0;
    for (size_t length = 8; length < whole; length++) {
        struct mt_model *model = NULL;
        struct mt_error error = {0};
        image.file.length = length;
        int code = image_open(&image, &model, &error);
        assert_true(code == MT_ETRUNCATED || code == MT_EFORMAT);
        assert_true(error.offset <= length);
        assert_non_null(strstr(error.text, "model.gguf: "));
    }
}

static void test_missing_data_are_counted(void **state)
{
    (void)state;
    put_small_model();
    image_seal(&image);
    uint64_t end = image.file.length + 28800 + 524288 + 2048;
    image.next_offset -= 1000;
    assert_refused(MT_ETRUNCATED, end - 1000, "1000 bytes are missing");
}

static void test_counts_near_two_to_the_64_are_refused(void **state)
{
    (void)state;
    put_small_model();
    image.n_tensors = UINT64_MAX;
    assert_sealed_refused(MT_EFORMAT, 8, "18446744073709551615 tensors");
    image.n_tensors = 3;
    image.n_pairs = UINT64_MAX - 1;
    assert_sealed_refused(MT_EFORMAT, 16, "18446744073709551614 key");
}

static void test_lengths_near_two_to_the_64_are_refused(void **state)
{
    (void)state;
    image_number(&image, &image.pairs, UINT64_MAX - 7, 8);
    image.n_pairs = 1;
    image.next_offset = 4096;
    assert_sealed_refused(MT_EFORMAT, 24, "18446744073709551608 bytes long");
}

static void test_a_text_longer_than_the_file_is_refused(void **state)
{
    (void)state;
    image_key(&image, "general.name", IMAGE_STRING);
    uint64_t at = tensors_at();
    image_number(&image, &image.pairs, 1 << 20, 8);
    assert_sealed_refused(MT_EFORMAT, at, "1048576 bytes long");
}

static void test_an_array_longer_than_the_file_is_refused(void **state)
{
    (void)state;
    image_key(&image, "tokenizer.ggml.scores", IMAGE_ARRAY);
    image_number(&image, &image.pairs, IMAGE_F32, 4);
    uint64_t at = tensors_at();
    image_number(&image, &image.pairs, UINT64_C(1) << 62, 8);
    assert_sealed_refused(MT_EFORMAT, at, "4611686018427387904 items");
}

static void test_nested_arrays_and_unknown_value_types_are_refused(void **state)
{
    (void)state;
    image_key(&image, "a", IMAGE_ARRAY);
    image_number(&image, &image.pairs, IMAGE_ARRAY, 4);
    uint64_t at = tensors_at();
    image_number(&image, &image.pairs, 1, 8);
    image_number(&image, &image.pairs, 0, 8);
    assert_sealed_refused(MT_EFORMAT, at, "array of arrays");
    image_finish(&image);
    image_init(&image);
    image_key(&image, "a", 13);
    image_number(&image, &image.pairs, 0, 8);
    assert_sealed_refused(MT_EFORMAT, tensors_at() - 12, "type 13");
}

static void test_a_bool_is_0_or_1(void **state)
{
    (void)state;
    image_key(&image, "a", IMAGE_BOOL);
    image_number(&image, &image.pairs, 2, 1);
    assert_sealed_refused(MT_EFORMAT, tensors_at() - 1, "bool");
}

static void test_keys_are_text_and_not_empty(void **state)
{
    (void)state;
    image_u32(&image, "a\xff", 1);
    assert_sealed_refused(MT_EFORMAT, 24, "UTF-8");
    image_finish(&image);
    image_init(&image);
    image_u32(&image, "", 1);
    image_u32(&image, "b", 1);
    assert_sealed_refused(MT_EFORMAT, 24, "0 bytes long");
}

static void test_a_key_given_twice_is_refused(void **state)
{
    (void)state;
    image_u32(&image, "one", 1);
    uint64_t at = tensors_at();
    image_u32(&image, "one", 1);
    assert_sealed_refused(MT_EFORMAT, at, "there already, at byte 24");
}

static void test_an_alignment_is_a_power_of_2(void **state)
{
    (void)state;
    image_u32(&image, "general.alignment", 48);
    assert_sealed_refused(MT_EFORMAT, 24, "power of 2");
    image_finish(&image);
    image_init(&image);
    image_u32(&image, "general.alignment", 0);
    assert_sealed_refused(MT_EFORMAT, 24, "power of 2");
}

static void test_the_files_own_alignment_places_tensors(void **state)
{
    (void)state;
    image.alignment = 4096;
    image_u32(&image, "general.alignment", 4096);
    image_f16(&image, "a.weight", 3, 1);
    image_f16(&image, "b.weight", 3, 1);
    struct mt_model *model = open_image();
    struct mt_model_tensor tensor;
    assert_int_equal(mt_model_describe(model)->header_bytes, 4096);
    assert_int_equal(mt_model_tensor_at(model, 1, &tensor), 0);
    assert_int_equal(tensor.offset, 8192);
    assert_int_equal(tensor.bytes, 6);
    mt_model_close(model);
}

static void test_dimensions_are_checked(void **state)
{
    (void)state;
    image_tensor_at(&image, "t", F16, 0, 5, (const uint64_t[]){1, 1, 1, 1, 1});
    image.next_offset = 64;
    assert_sealed_refused(MT_EFORMAT, 24, "5 dimensions");
    static const uint64_t wrong[][4] = {
        {0, 4}, {UINT64_MAX, 2}, {UINT64_C(1) << 31, 1 << 30, 4, 1}};
    static const char *const words[] = {"dimension of 0", "2^63", "2^63"};
    for (size_t i = 0; i < 3; i++) {
        image_finish(&image);
        image_init(&image);
        image_tensor_at(&image, "t", F32, 0, 4,
                        (const uint64_t[]){wrong[i][0], wrong[i][1], wrong[i][2] ? wrong[i][2] : 1,
                                           wrong[i][3] ? wrong[i][3] : 1});
        image.next_offset = 64;
        assert_sealed_refused(MT_EFORMAT, 24, words[i]);
    }
}

static void test_a_row_is_a_whole_number_of_blocks(void **state)
{
    (void)state;
    image_tensor(&image, "t", Q4_K, 144, (const uint64_t[4]){300});
    assert_sealed_refused(MT_EFORMAT, 24, "rows of 300 elements, q4_k comes in blocks of 256");
}

static void test_tensors_do_not_overlap(void **state)
{
    (void)state;
    image_tensor_at(&image, "first", F16, 64, 1, (const uint64_t[]){64});
    image_tensor_at(&image, "second", F16, 0, 1, (const uint64_t[]){64});
    image.next_offset = 4096;
    uint64_t second_at = tensors_at() + 8 + 5 + 4 + 8 + 4 + 8;
    assert_sealed_refused(MT_EFORMAT, second_at, "overlaps 'first'");
}

static void test_tensors_may_stand_in_any_order_and_leave_gaps(void **state)
{
    (void)state;
    image_tensor_at(&image, "last", F16, 1024, 1, (const uint64_t[]){64});
    image_tensor_at(&image, "first", F16, 0, 1, (const uint64_t[]){64});
    image.next_offset = 4096;
    struct mt_model *model = open_image();
    assert_int_equal(mt_model_describe(model)->weight_bytes, 256);
    mt_model_close(model);
}

static void test_tensors_lie_in_the_file(void **state)
{
    (void)state;
    image_tensor_at(&image, "far", F16, UINT64_C(1) << 40, 1, (const uint64_t[]){64});
    image.next_offset = 4096;
    assert_sealed_refused(MT_EFORMAT, 24, "beyond the end");
    image_finish(&image);
    image_init(&image);
    image_tensor_at(&image, "far", F16, UINT64_MAX - 31, 1, (const uint64_t[]){64});
    image.next_offset = 4096;
    assert_sealed_refused(MT_EFORMAT, 24, "2^63");
    image_finish(&image);
    image_init(&image);
    image_tensor_at(&image, "odd", F16, 8, 1, (const uint64_t[]){64});
    image.next_offset = 4096;
    assert_sealed_refused(MT_EFORMAT, 24, "general.alignment");
}

static void test_two_tensors_of_a_name_are_refused(void **state)
{
    (void)state;
    image_f16(&image, "same", 64, 1);
    uint64_t at = tensors_at() + image.tensors.length;
    image_f16(&image, "same", 64, 1);
    assert_sealed_refused(MT_EFORMAT, at, "name of another, at byte 24");
}

static void test_an_unknown_type_spoils_its_tensor_only(void **state)
{
    (void)state;
    image_architecture(&image, "llama");
    image_f16(&image, "before", 64, 1);
    image_tensor(&image, "odd", 250, 160, (const uint64_t[4]){77, 3});
    image_f16(&image, "after", 64, 1);
    struct mt_model *model = open_image();
    const struct mt_model_description *d = mt_model_describe(model);
    struct mt_model_tensor tensor;
    assert_int_equal(mt_model_tensor_at(model, 1, &tensor), 0);
    assert_string_equal(tensor.type, "unknown type 250");
    assert_false(tensor.type_known);
    assert_int_equal(tensor.elements, 231);
    assert_int_equal(tensor.bytes, 160);
    assert_int_equal(d->weight_bytes, 128 + 160 + 128);
    assert_int_equal(d->n_notes, 1);
    assert_non_null(strstr(d->notes[0], "odd, of unknown type 250"));
    mt_model_close(model);
}

static void test_an_array_of_a_million_items_is_passed_over(void **state)
{
    (void)state;
    image_architecture(&image, "llama");
    image_key(&image, "llama.attention.head_count", IMAGE_ARRAY);
    image_number(&image, &image.pairs, IMAGE_U32, 4);
    image_number(&image, &image.pairs, 1000000, 8);
    for (int i = 0; i < 1000000; i++)
        image_number(&image, &image.pairs, 1, 4);
    struct mt_model *model = open_image();
    assert_int_equal(mt_model_describe(model)->n_layers, 0);
    mt_model_close(model);
}

static void test_a_per_layer_array_that_is_too_short_is_refused(void **state)
{
    (void)state;
    image_architecture(&image, "llama");
    image_u32(&image, ".block_count", 4);
    uint64_t at = tensors_at();
    image_u32_array(&image, ".attention.head_count_kv", 2, (const uint32_t[]){1, 1});
    image.next_offset = 64;
    assert_sealed_refused(MT_EFORMAT, at, "fewer numbers than the model has layers");
}

static void test_counts_that_are_negative_or_no_numbers_are_refused(void **state)
{
    (void)state;
    image_architecture(&image, "llama");
    uint64_t at = tensors_at();
    image_i32(&image, ".block_count", -1);
    image.next_offset = 64;
    assert_sealed_refused(MT_EFORMAT, at, "llama.block_count");
    image_finish(&image);
    image_init(&image);
    image_architecture(&image, "llama");
    image_string(&image, ".block_count", "many");
    image.next_offset = 64;
    assert_sealed_refused(MT_EFORMAT, at, "llama.block_count");
}

static void test_more_layers_than_a_model_has_are_refused(void **state)
{
    (void)state;
    image_architecture(&image, "llama");
    uint64_t at = tensors_at();
    image_u32(&image, ".block_count", UINT32_MAX);
    image.next_offset = 64;
    assert_sealed_refused(MT_EFORMAT, at, "more layers");
}

static void test_zero_heads_divide_nothing(void **state)
{
    (void)state;
    image_architecture(&image, "llama");
    image_u32(&image, ".block_count", 2);
    image_u32(&image, ".embedding_length", 512);
    image_u32(&image, ".attention.head_count", 0);
    image_u32(&image, ".attention.head_count_kv", 0);
    struct mt_model *model = open_image();
    const struct mt_model_description *d = mt_model_describe(model);
    assert_int_equal(d->layers[1].attention, MT_ATTENTION_NONE);
    assert_int_equal(d->layers[1].key_size, 0);
    mt_model_close(model);
}

/* Engines keep these numbers in 32 bits. */
static void test_numbers_of_more_than_32_bits_are_refused(void **state)
{
    (void)state;
    image_architecture(&image, "llama");
    uint64_t at = tensors_at();
    image_key(&image, ".embedding_length", IMAGE_U64);
    image_number(&image, &image.pairs, UINT64_C(1) << 32, 8);
    image.next_offset = 64;
    assert_sealed_refused(MT_EFORMAT, at, "expected a number of 32 bits");
}

static int has_note(const struct mt_model_description *d, const char *words)
{
    for (size_t i = 0; i < d->n_notes; i++)
        if (strstr(d->notes[i], words))
            return 1;
    return 0;
}

static void test_keys_and_values_of_heads_without_a_size_are_said_not_to_count(void **state)
{
    (void)state;
    image_architecture(&image, "llama");
    image_u32(&image, ".block_count", 1);
    image_u32(&image, ".embedding_length", 512);
    image_u32(&image, ".attention.head_count", 0);
    image_u32(&image, ".attention.head_count_kv", 2);
    struct mt_model *model = open_image();
    assert_true(has_note(mt_model_describe(model), "counts no keys and values"));
    mt_model_close(model);
}

static void test_layers_and_tensors_that_do_not_agree_are_noted(void **state)
{
    (void)state;
    image_architecture(&image, "llama");
    image_u32(&image, ".block_count", 2);
    image_u32(&image, ".embedding_length", 512);
    image_u32(&image, ".attention.head_count", 8);
    image_f16(&image, "blk.0.attn_q.weight", 512, 512);
    image_f16(&image, "blk.2.attn_q.weight", 512, 512);
    struct mt_model *model = open_image();
    const struct mt_model_description *d = mt_model_describe(model);
    assert_true(has_note(d, "have no tensors"));
    assert_true(has_note(d, "block_count does not count"));
    assert_int_equal(d->weight_bytes, 2 * 512 * 512 * 2);
    mt_model_close(model);
}

static void test_a_file_without_an_architecture_still_has_tensors(void **state)
{
    (void)state;
    image_f16(&image, "some.weight", 64, 2);
    struct mt_model *model = open_image();
    const struct mt_model_description *d = mt_model_describe(model);
    assert_null(d->architecture);
    assert_false(d->family_known);
    assert_int_equal(d->weight_bytes, 256);
    assert_int_equal(d->n_notes, 1);
    mt_model_close(model);
}

/* A hole of a terabyte must not be walked: zeros are no pairs and no tensors. */
static void test_a_header_that_runs_into_a_hole_ends_soon(void **state)
{
    (void)state;
    image_u32(&image, "one", 1);
    image_f16(&image, "t", 64, 1);
    image.n_tensors = UINT64_C(1) << 23;
    image_seal(&image);
    image.next_offset = UINT64_C(1) << 40;
    assert_refused(MT_EFORMAT, tensors_at() + image.tensors.length, "0 bytes long");
}

/* Nor one of empty texts. */
static void test_a_vocabulary_that_runs_into_a_hole_ends_soon(void **state)
{
    (void)state;
    image_key(&image, "tokenizer.ggml.tokens", IMAGE_ARRAY);
    image_number(&image, &image.pairs, IMAGE_STRING, 4);
    image_number(&image, &image.pairs, UINT64_C(1) << 36, 8);
    image_seal(&image);
    image.next_offset = UINT64_C(1) << 40;
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    assert_int_equal(image_open(&image, &model, &error), MT_ELIMIT);
    assert_non_null(strstr(error.text, "the header is longer than 64 MiB"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_samples_are_read_back_as_they_were_planned),
        TEST(test_versions_and_byte_orders_give_the_same_model),
        TEST(test_versions_that_nobody_reads_are_refused),
        TEST(test_other_files_are_no_models),
        TEST(test_every_cut_of_a_header_is_named_as_such),
        TEST(test_missing_data_are_counted),
        TEST(test_counts_near_two_to_the_64_are_refused),
        TEST(test_lengths_near_two_to_the_64_are_refused),
        TEST(test_a_text_longer_than_the_file_is_refused),
        TEST(test_an_array_longer_than_the_file_is_refused),
        TEST(test_nested_arrays_and_unknown_value_types_are_refused),
        TEST(test_a_bool_is_0_or_1),
        TEST(test_keys_are_text_and_not_empty),
        TEST(test_a_key_given_twice_is_refused),
        TEST(test_an_alignment_is_a_power_of_2),
        TEST(test_the_files_own_alignment_places_tensors),
        TEST(test_dimensions_are_checked),
        TEST(test_a_row_is_a_whole_number_of_blocks),
        TEST(test_tensors_do_not_overlap),
        TEST(test_tensors_may_stand_in_any_order_and_leave_gaps),
        TEST(test_tensors_lie_in_the_file),
        TEST(test_two_tensors_of_a_name_are_refused),
        TEST(test_an_unknown_type_spoils_its_tensor_only),
        TEST(test_an_array_of_a_million_items_is_passed_over),
        TEST(test_a_per_layer_array_that_is_too_short_is_refused),
        TEST(test_counts_that_are_negative_or_no_numbers_are_refused),
        TEST(test_more_layers_than_a_model_has_are_refused),
        TEST(test_zero_heads_divide_nothing),
        TEST(test_numbers_of_more_than_32_bits_are_refused),
        TEST(test_keys_and_values_of_heads_without_a_size_are_said_not_to_count),
        TEST(test_layers_and_tensors_that_do_not_agree_are_noted),
        TEST(test_a_file_without_an_architecture_still_has_tensors),
        TEST(test_a_header_that_runs_into_a_hole_ends_soon),
        TEST(test_a_vocabulary_that_runs_into_a_hole_ends_soon),
    };
    return RUN_TESTS(tests);
}
