/* SPDX-License-Identifier: MIT */
#include "tests/unit/model/gguf_image.h"

#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/failing_allocations.h"

#define TENSORS 200

static struct image image;
static struct memory_file files[2];
static struct memory_files memory;
static struct mt_model_files table;

static int setup(void **state)
{
    (void)state;
    char name[32];
    image_init(&image);
    image_architecture(&image, "a-family-that-is-not-known");
    image_u32(&image, ".block_count", 20);
    image_u32(&image, ".attention.head_count", 8);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "some.key.%d", i);
        image_string(&image, name, "some text");
    }
    for (int i = 0; i < TENSORS; i++) {
        snprintf(name, sizeof name, "blk.%d.weight", i);
        image_f16(&image, name, 64, 1);
    }
    image_tensor(&image, "odd", 99, 64, (const uint64_t[4]){64});
    image_seal(&image);
    files[0] = image_file(&image, "model.gguf");
    memory = (struct memory_files){.files = files, .step_bytes = 1};
    memory_files_table(&memory, &table);
    allocations = failing_allocation = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    image_finish(&image);
    return 0;
}

static void test_whichever_allocation_fails_nothing_is_left_behind(void **state)
{
    (void)state;
    int code, n = 0;
    do {
        struct mt_model *model = NULL;
        struct mt_error error = {0};
        allocations = 0;
        failing_allocation = ++n;
        code = mt_model_open("model.gguf", &table, &model, &error);
        failing_allocation = 0;
        assert_int_equal(memory.open_sources, 0);
        if (code) {
            assert_int_equal(code, MT_ENOMEM);
            assert_int_equal(error.code, MT_ENOMEM);
            assert_null(model);
        }
        mt_model_close(model);
    } while (code);
    assert_true(n > 10);
}

static void test_whichever_read_fails_nothing_is_left_behind(void **state)
{
    (void)state;
    int code;
    unsigned n = 0;
    do {
        struct mt_model *model = NULL;
        struct mt_error error = {0};
        memory.reads = 0;
        memory.failing_read = ++n;
        code = mt_model_open("model.gguf", &table, &model, &error);
        assert_int_equal(memory.open_sources, 0);
        if (code) {
            assert_int_equal(code, MT_EIO);
            assert_string_equal(error.text, "model.gguf: made to fail");
            assert_null(model);
        }
        mt_model_close(model);
    } while (code);
    assert_true(n > 2);
}

static void test_only_the_header_is_read(void **state)
{
    (void)state;
    struct mt_model *model = NULL;
    files[0].size_bytes += UINT64_C(1) << 40;
    assert_int_equal(mt_model_open("model.gguf", &table, &model, NULL), 0);
    assert_true(memory.read_bytes < files[0].length + 3 * 4096);
    mt_model_close(model);
}

static void test_vocabularies_are_not_kept(void **state)
{
    (void)state;
    struct mt_model *model = NULL;
    struct image large;
    image_init(&large);
    image_architecture(&large, "llama");
    image_key(&large, "tokenizer.ggml.tokens", IMAGE_ARRAY);
    image_number(&large, &large.pairs, IMAGE_STRING, 4);
    image_number(&large, &large.pairs, 500000, 8);
    for (int i = 0; i < 500000; i++)
        image_text(&large, &large.pairs, "token");
    image_f16(&large, "token_embd.weight", 64, 500000);
    image_seal(&large);
    allocations = 0;
    assert_int_equal(image_open(&large, &model, NULL), 0);
    assert_int_equal(mt_model_describe(model)->vocabulary, 500000);
    assert_true(allocations < 50);
    mt_model_close(model);
    image_finish(&large);
}

/* A file that another program makes shorter: the size was true when it was opened. */
static void test_a_file_that_shrinks_is_an_error_and_no_signal(void **state)
{
    (void)state;
    char path[] = "/tmp/memtally-gguf-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    struct mt_model_source source;
    struct mt_error error = {0};
    const struct mt_model_files *local = mt_model_files_local();
    assert_int_equal(local->open(local->argument, path, &source, NULL), 0);
    assert_int_equal(source.size_bytes, 1 << 20);
    assert_int_equal(ftruncate(fd, 100), 0);
    char bytes[64];
    assert_int_equal(source.read(source.argument, 4096, bytes, sizeof bytes, &error),
                     MT_ETRUNCATED);
    assert_int_equal(error.offset, 4096);
    assert_int_equal(source.read(source.argument, 0, bytes, sizeof bytes, &error), 0);
    source.close(source.argument);
    close(fd);
    unlink(path);
}

static void test_folders_and_devices_are_no_files(void **state)
{
    (void)state;
    struct mt_model_source source;
    struct mt_error error = {0};
    const struct mt_model_files *local = mt_model_files_local();
    assert_int_equal(local->open(local->argument, "/tmp", &source, &error), MT_EARG);
    assert_int_equal(local->open(local->argument, "/dev/zero", &source, &error), MT_EARG);
    assert_int_equal(local->open(local->argument, "/no/such/file", &source, &error), MT_ENOTFOUND);
    assert_true(local->is_folder(local->argument, "/tmp"));
    assert_false(local->is_folder(local->argument, "/dev/zero"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_whichever_allocation_fails_nothing_is_left_behind),
        TEST(test_whichever_read_fails_nothing_is_left_behind),
        TEST(test_only_the_header_is_read),
        TEST(test_vocabularies_are_not_kept),
        TEST(test_a_file_that_shrinks_is_an_error_and_no_signal),
        TEST(test_folders_and_devices_are_no_files),
    };
    return RUN_TESTS(tests);
}
