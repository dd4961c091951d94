/* SPDX-License-Identifier: MIT */
/* Safetensors made byte by byte. */
#include "tests/support/memory_files.h"
#include "tests/support/unit.h"

#include <memtally/model_file.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILES_MAX 6

static struct memory_file files[FILES_MAX + 1];
static uint8_t *images[FILES_MAX];
static size_t n_files;

static int setup(void **state)
{
    (void)state;
    memset(files, 0, sizeof files);
    n_files = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_files; i++)
        free(images[i]);
    return 0;
}

static void add_bytes(const char *path, const void *bytes, size_t length, uint64_t hole)
{
    assert_true(n_files < FILES_MAX);
    images[n_files] = malloc(length ? length : 1);
    assert_non_null(images[n_files]);
    memcpy(images[n_files], bytes, length);
    files[n_files] = (struct memory_file){path, images[n_files], length, length + hole};
    n_files++;
}

/* A header of `claimed` bytes by its first eight, and `data_bytes` of zeros behind the text. */
static void add_claimed(const char *path, const char *header, uint64_t claimed, uint64_t data_bytes)
{
    size_t length = strlen(header);
    uint8_t *image = malloc(8 + length);
    assert_non_null(image);
    for (int i = 0; i < 8; i++)
        image[i] = (uint8_t)(claimed >> (8 * i));
    memcpy(image + 8, header, length);
    add_bytes(path, image, 8 + length, data_bytes);
    free(image);
}

static void add_tensors(const char *path, const char *header, uint64_t data_bytes)
{
    add_claimed(path, header, strlen(header), data_bytes);
}

static void add_text(const char *path, const char *text)
{
    add_bytes(path, text, strlen(text), 0);
}

static int open_first(const char *path, struct mt_model **model, struct mt_error *error)
{
    struct memory_files memory = {.files = files, .step_bytes = 1};
    struct mt_model_files table;
    memory_files_table(&memory, &table);
    int code = mt_model_open(path, &table, model, error);
    assert_int_equal(memory.open_sources, 0);
    return code;
}

static struct mt_model *must_open(const char *path)
{
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    if (open_first(path, &model, &error))
        fail_msg("%s", error.text);
    return model;
}

static void assert_refused(const char *path, int code, uint64_t offset, const char *words)
{
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    int got = open_first(path, &model, &error);
    mt_model_close(model);
    if (got != code || error.offset != offset || !strstr(error.text, words))
        fail_msg("%d at %llu: %s; expected %d at %llu: %s", got, (unsigned long long)error.offset,
                 error.text, code, (unsigned long long)offset, words);
}

static void assert_header_refused(const char *header, uint64_t data_bytes, int code,
                                  uint64_t offset, const char *words)
{
    add_tensors("m.safetensors", header, data_bytes);
    assert_refused("m.safetensors", code, offset, words);
    free(images[--n_files]);
    files[n_files].path = NULL;
}

static void test_tensors_are_read_as_they_lie(void **state)
{
    (void)state;
    const char *header = "{\"__metadata__\":{\"format\":\"pt\"},"
                         "\"a\":{\"dtype\":\"BF16\",\"shape\":[3,5],\"data_offsets\":[0,30]},"
                         "\"scalar\":{\"data_offsets\":[30,34],\"shape\":[],\"dtype\":\"F32\"},"
                         "\"half\":{\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[34,37]},"
                         "\"none\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[37,37]}}  ";
    add_tensors("m.safetensors", header, 37);
    struct mt_model *model = must_open("m.safetensors");
    const struct mt_model_description *d = mt_model_describe(model);
    struct mt_model_tensor tensor;
    assert_int_equal(d->n_tensors, 4);
    assert_int_equal(d->weight_bytes, 37);
    assert_int_equal(d->file_bytes, 8 + strlen(header) + 37);
    assert_int_equal(d->header_bytes, 8 + strlen(header));
    mt_model_tensor_at(model, 0, &tensor);
    assert_string_equal(tensor.type, "bf16");
    assert_int_equal(tensor.dims[0], 5);
    assert_int_equal(tensor.dims[1], 3);
    assert_int_equal(tensor.elements, 15);
    assert_int_equal(tensor.offset, 8 + strlen(header));
    mt_model_tensor_at(model, 1, &tensor);
    assert_int_equal(tensor.n_dims, 0);
    assert_int_equal(tensor.elements, 1);
    mt_model_tensor_at(model, 2, &tensor);
    assert_int_equal(tensor.bytes, 3);
    mt_model_close(model);
}

static void test_an_unknown_type_spoils_its_tensor_only(void **state)
{
    (void)state;
    add_tensors("m.safetensors",
                "{\"a\":{\"dtype\":\"Q9\",\"shape\":[4],\"data_offsets\":[0,9]},"
                "\"b\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[9,17]}}",
                17);
    struct mt_model *model = must_open("m.safetensors");
    struct mt_model_tensor tensor;
    mt_model_tensor_at(model, 0, &tensor);
    assert_false(tensor.type_known);
    assert_string_equal(tensor.type, "unknown type Q9");
    assert_int_equal(tensor.bytes, 9);
    mt_model_tensor_at(model, 1, &tensor);
    assert_true(tensor.type_known);
    mt_model_close(model);
}

static void test_headers_that_lie_are_refused(void **state)
{
    (void)state;
#define TENSOR(shape, span)                                                                        \
    "{\"a\":{\"dtype\":\"F16\",\"shape\":" shape ",\"data_offsets\":" span "}}"
    assert_header_refused(TENSOR("[4]", "[0,6]"), 8, MT_EFORMAT, 10, "6 bytes by its data_offsets");
    assert_header_refused(TENSOR("[4]", "[0,8]"), 7, MT_EFORMAT, 10, "outside of the file");
    assert_header_refused(TENSOR("[4]", "[8,0]"), 8, MT_EFORMAT, 10, "outside of the file");
    assert_header_refused(TENSOR("[4]", "[0]"), 8, MT_EFORMAT, 10, "two data_offsets");
    assert_header_refused(TENSOR("[-1]", "[0,8]"), 8, MT_EFORMAT, 10, "whole number");
    assert_header_refused(TENSOR("[4294967296,4294967296]", "[0,8]"), 8, MT_ELIMIT, 10,
                          "2^64 elements");
    assert_header_refused(TENSOR("[9223372036854775808]", "[0,0]"), 0, MT_ELIMIT, 10, "2^61");
    assert_header_refused(TENSOR("[1,1,1,1,1,1,1,1,1]", "[0,2]"), 2, MT_ELIMIT, 10, "too many");
    assert_header_refused("{\"a\":{\"dtype\":\"F16\",\"shape\":[4]}}", 8, MT_EFORMAT, 10,
                          "data_offsets");
    assert_header_refused("{\"a\":3}", 8, MT_EFORMAT, 10, "expected an object");
    assert_header_refused("{\"a\":{\"dtype\":\"F16\",\"dtype\":\"F32\"}}", 8, MT_EFORMAT, 10,
                          "occurs twice");
    assert_header_refused("{\"\xff\":{}}", 8, MT_EFORMAT, 10, "UTF-8");
    assert_header_refused("{\"a\":{}} x", 8, MT_EFORMAT, 10, "expected dtype");
}

static void test_tensors_that_share_bytes_are_refused(void **state)
{
    (void)state;
    const char *header = "{\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]},"
                         "\"a\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[0,5]}}";
    assert_header_refused(header, 8, MT_EFORMAT, 8 + strlen(header) + 4, "share bytes");
    add_tensors("m.safetensors",
                "{\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]},"
                "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
                8);
    mt_model_close(must_open("m.safetensors"));
}

static void test_a_name_that_occurs_twice_is_refused(void **state)
{
    (void)state;
    add_tensors("m.safetensors",
                "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
                8);
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    assert_int_equal(open_first("m.safetensors", &model, &error), MT_EFORMAT);
    assert_non_null(strstr(error.text, "occurs twice"));
}

static void test_lengths_of_headers_are_checked(void **state)
{
    (void)state;
    add_claimed("m.safetensors", "{}", 3, 0);
    assert_refused("m.safetensors", MT_ETRUNCATED, 8, "more than the file");
    files[0].path = "n";
    add_claimed("m.safetensors", "{}", UINT64_C(100000001), UINT64_C(1) << 40);
    assert_refused("m.safetensors", MT_ELIMIT, 0, "100000000");
}

#define LAYER "model.layers.0.self_attn."

static void add_two_shards(const char *second_in_index)
{
    static char index[512];
    snprintf(index, sizeof index,
             "{\"weight_map\":{\"" LAYER "k_proj.weight\":\"model-00001-of-00002.safetensors\","
             "\"model.layers.1.mlp.experts.0.up_proj.weight\":\"%s\"}}",
             second_in_index);
    add_text("d/model.safetensors.index.json", index);
    add_tensors("d/model-00001-of-00002.safetensors",
                "{\"" LAYER
                "k_proj.weight\":{\"dtype\":\"F16\",\"shape\":[6,4],\"data_offsets\":[0,48]}}",
                48);
}

static void test_shards_make_one_model(void **state)
{
    (void)state;
    add_two_shards("model-00002-of-00002.safetensors");
    add_tensors("d/model-00002-of-00002.safetensors",
                "{\"model.layers.1.mlp.experts.0.up_proj.weight\":"
                "{\"dtype\":\"F8_E4M3\",\"shape\":[6,4],\"data_offsets\":[0,24]}}",
                24);
    static const char *const paths[] = {"d/model.safetensors.index.json",
                                        "d/model-00002-of-00002.safetensors"};
    for (int i = 0; i < 2; i++) {
        struct mt_model *model = must_open(paths[i]);
        const struct mt_model_description *d = mt_model_describe(model);
        struct mt_model_tensor tensor;
        assert_int_equal(d->n_files, 2);
        assert_int_equal(d->weight_bytes, 72);
        assert_int_equal(d->n_layers, 2);
        assert_false(d->family_known);
        assert_int_equal(d->layers[0].key_size, 6); /* by the shape of its matrix */
        assert_int_equal(d->layers[1].expert_bytes, 24);
        mt_model_tensor_at(model, 1, &tensor);
        assert_int_equal(tensor.file, 1);
        assert_int_equal(tensor.role, MT_TENSOR_EXPERTS);
        mt_model_close(model);
    }
}

static void test_parts_that_speak_are_no_layers_of_the_text_model(void **state)
{
    (void)state;
    add_tensors("m.safetensors",
                "{\"thinker.model.layers.0.mlp.up_proj.weight\":"
                "{\"dtype\":\"F16\",\"shape\":[6,4],\"data_offsets\":[0,48]},"
                "\"talker.model.layers.7.mlp.up_proj.weight\":"
                "{\"dtype\":\"F16\",\"shape\":[2,4],\"data_offsets\":[48,64]}}",
                64);
    struct mt_model *model = must_open("m.safetensors");
    const struct mt_model_description *d = mt_model_describe(model);
    struct mt_model_tensor tensor;
    assert_int_equal(d->n_layers, 1);
    assert_int_equal(d->layers[0].weight_bytes, 48);
    assert_int_equal(d->weight_bytes, 64);
    mt_model_tensor_at(model, 1, &tensor);
    assert_int_equal(tensor.role, MT_TENSOR_PROJECTOR);
    mt_model_close(model);
}

static void test_a_missing_shard_is_named(void **state)
{
    (void)state;
    add_two_shards("model-00002-of-00002.safetensors");
    assert_refused("d/model.safetensors.index.json", MT_ENOTFOUND, MT_NO_OFFSET,
                   "d/model-00002-of-00002.safetensors");
}

static void assert_place_refused(const char *place)
{
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    add_two_shards(place);
    assert_int_equal(open_first("d/model.safetensors.index.json", &model, &error), MT_EFORMAT);
    if (!strstr(error.text, "beside the index") || error.offset == MT_NO_OFFSET)
        fail_msg("%s: %s", place, error.text);
    for (int i = 0; i < 2; i++)
        free(images[--n_files]);
    memset(files, 0, sizeof files);
}

static void test_an_index_that_places_nothing_is_refused(void **state)
{
    (void)state;
    add_text("d/model.safetensors.index.json", "{\"metadata\":{}}");
    assert_refused("d/model.safetensors.index.json", MT_EFORMAT, 0, "expected a weight_map");
}

static void test_shards_lie_beside_their_index(void **state)
{
    (void)state;
    assert_place_refused("../m.safetensors");
    assert_place_refused("/etc/passwd");
    assert_place_refused("..");
    assert_place_refused("e/m.safetensors");
    assert_place_refused("");
    assert_place_refused("a\\u0000b");
}

/* An index that names itself is read as a header, which it is not; nothing goes round in circles.
 */
static void test_an_index_that_names_itself_is_no_shard(void **state)
{
    (void)state;
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    add_two_shards("model.safetensors.index.json");
    assert_int_equal(open_first("d/model.safetensors.index.json", &model, &error), MT_EFORMAT);
    assert_non_null(strstr(error.text, "it is JSON, not a safetensors file"));
}

static void test_a_config_beside_them_describes_the_layers(void **state)
{
    (void)state;
    add_tensors("d/model.safetensors",
                "{\"" LAYER
                "k_proj.weight\":{\"dtype\":\"F16\",\"shape\":[6,4],\"data_offsets\":[0,48]}}",
                48);
    add_text("d/config.json",
             "{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"hidden_size\":64,"
             "\"num_attention_heads\":8,\"num_key_value_heads\":2}");
    static const char *const paths[] = {"d/model.safetensors", "d/config.json"};
    for (int i = 0; i < 2; i++) {
        struct mt_model *model = must_open(paths[i]);
        const struct mt_model_description *d = mt_model_describe(model);
        assert_int_equal(d->format, MT_MODEL_SAFETENSORS);
        assert_true(d->family_known);
        assert_int_equal(d->weight_bytes, 48); /* what is there, not what the shapes give */
        assert_int_equal(d->parameters, 24);
        assert_int_equal(d->layers[0].kv_heads, 2);
        assert_int_equal(d->layers[0].key_size, 8);
        assert_int_equal(d->layers[0].weight_bytes, 48);
        mt_model_close(model);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_tensors_are_read_as_they_lie),
        TEST(test_an_unknown_type_spoils_its_tensor_only),
        TEST(test_headers_that_lie_are_refused),
        TEST(test_tensors_that_share_bytes_are_refused),
        TEST(test_a_name_that_occurs_twice_is_refused),
        TEST(test_lengths_of_headers_are_checked),
        TEST(test_shards_make_one_model),
        TEST(test_parts_that_speak_are_no_layers_of_the_text_model),
        TEST(test_a_missing_shard_is_named),
        TEST(test_an_index_that_places_nothing_is_refused),
        TEST(test_shards_lie_beside_their_index),
        TEST(test_an_index_that_names_itself_is_no_shard),
        TEST(test_a_config_beside_them_describes_the_layers),
    };
    return RUN_TESTS(tests);
}
