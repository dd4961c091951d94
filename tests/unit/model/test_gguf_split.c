/* SPDX-License-Identifier: MIT */
#include "tests/unit/model/gguf_image.h"

#include "tests/support/unit.h"

#include <string.h>

#define PARTS 3

static struct image images[PARTS];
static struct memory_file files[PARTS + 1];
static struct memory_files memory;
static struct mt_model_files table;

static const char *const names[PARTS] = {"dir/m-00001-of-00003.gguf", "dir/m-00002-of-00003.gguf",
                                         "dir/m-00003-of-00003.gguf"};

static void put_split(struct image *image, unsigned number, unsigned count, int n_tensors)
{
    image_u16(image, "split.no", (uint16_t)number);
    image_u16(image, "split.count", (uint16_t)count);
    image_i32(image, "split.tensors.count", n_tensors);
}

/* Part n has one tensor, tN, of n + 1 rows of 64 f16. */
static void put_parts(unsigned count, int n_tensors)
{
    static const char *const tensors[PARTS] = {"t0", "t1", "t2"};
    for (unsigned i = 0; i < PARTS; i++) {
        image_init(&images[i]);
        if (i == 0)
            image_architecture(&images[i], "llama");
        put_split(&images[i], i, count, n_tensors);
        image_f16(&images[i], tensors[i], 64, i + 1);
        image_seal(&images[i]);
        files[i] = image_file(&images[i], names[i]);
    }
    memory = (struct memory_files){.files = files, .step_bytes = 64};
    memory_files_table(&memory, &table);
}

static int setup(void **state)
{
    (void)state;
    memset(files, 0, sizeof files);
    put_parts(PARTS, PARTS);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (unsigned i = 0; i < PARTS; i++)
        image_finish(&images[i]);
    return 0;
}

static void test_any_part_opens_the_whole_model(void **state)
{
    (void)state;
    for (unsigned i = 0; i < PARTS; i++) {
        struct mt_model *model = NULL;
        struct mt_model_tensor tensor;
        assert_int_equal(mt_model_open(names[i], &table, &model, NULL), 0);
        const struct mt_model_description *d = mt_model_describe(model);
        assert_string_equal(d->path, names[i]);
        assert_string_equal(d->architecture, "llama");
        assert_int_equal(d->n_files, 3);
        assert_int_equal(d->n_tensors, 3);
        assert_int_equal(d->weight_bytes, 128 * (1 + 2 + 3));
        assert_int_equal(d->file_bytes,
                         files[0].size_bytes + files[1].size_bytes + files[2].size_bytes);
        assert_int_equal(d->header_bytes, files[0].length + files[1].length + files[2].length);
        assert_int_equal(mt_model_tensor_at(model, 2, &tensor), 0);
        assert_int_equal(tensor.file, 2);
        assert_int_equal(tensor.offset, files[2].length);
        assert_memory_equal(tensor.name, "t2", 2);
        mt_model_close(model);
        assert_int_equal(memory.open_sources, 0);
    }
}

static void assert_refused(const char *path, int code, const char *words)
{
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    int result = mt_model_open(path, &table, &model, &error);
    if (result != code || !strstr(error.text, words))
        fail_msg("%d: %s; expected %d: … %s", result, error.text, code, words);
    assert_int_equal(memory.open_sources, 0);
}

/* The pairs of a part other than the first begin with split.no. */
static void test_a_wrong_part_is_refused_at_its_number(void **state)
{
    (void)state;
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    image_finish(&images[1]);
    image_init(&images[1]);
    put_split(&images[1], 2, 3, 3);
    image_seal(&images[1]);
    files[1] = image_file(&images[1], names[1]);
    assert_int_equal(mt_model_open(names[0], &table, &model, &error), MT_EFORMAT);
    assert_int_equal(error.offset, 24);
}

static void test_a_part_that_says_it_is_alone_is_noted(void **state)
{
    (void)state;
    struct mt_model *model = NULL;
    image_finish(&images[0]);
    image_init(&images[0]);
    put_split(&images[0], 0, 1, 3);
    image_f16(&images[0], "t0", 64, 1);
    image_seal(&images[0]);
    files[0] = image_file(&images[0], names[0]);
    assert_int_equal(mt_model_open(names[0], &table, &model, NULL), 0);
    assert_non_null(strstr(mt_model_describe(model)->notes[0], "says 3 tensors, the file has 1"));
    mt_model_close(model);
}

static void test_a_missing_part_is_named(void **state)
{
    (void)state;
    files[1].path = "dir/elsewhere.gguf";
    assert_refused(names[0], MT_ENOTFOUND, "dir/m-00002-of-00003.gguf: part 2 of 3 is missing");
    assert_refused(names[2], MT_ENOTFOUND, "dir/m-00002-of-00003.gguf: part 2 of 3 is missing");
}

static void test_a_part_under_another_name_is_refused(void **state)
{
    (void)state;
    files[0].path = "dir/model.gguf";
    assert_refused("dir/model.gguf", MT_EFORMAT, "-00001-of-00003.gguf");
    files[0].path = "dir/m-00001-of-00004.gguf";
    assert_refused("dir/m-00001-of-00004.gguf", MT_EFORMAT, "-00001-of-00003.gguf");
}

/* The second file is the first one again, which names the second as the next. */
static void test_parts_in_a_circle_are_refused(void **state)
{
    (void)state;
    files[1].bytes = files[0].bytes;
    files[1].length = files[0].length;
    files[1].size_bytes = files[0].size_bytes;
    assert_refused(names[0], MT_EFORMAT, "it says that it is part 1 of 3, expected part 2 of 3");
    assert_refused(names[1], MT_EFORMAT, "-00001-of-00003.gguf");
}

static void test_counts_of_parts_must_agree(void **state)
{
    (void)state;
    teardown(NULL);
    put_parts(PARTS, 5);
    assert_refused(names[0], MT_EFORMAT, "the parts have 3 tensors, split.tensors.count says 5");
    teardown(NULL);
    put_parts(2, 3);
    assert_refused(names[0], MT_EFORMAT, "-00001-of-00002.gguf");
}

static void test_a_number_beyond_the_count_is_refused(void **state)
{
    (void)state;
    image_finish(&images[0]);
    image_init(&images[0]);
    put_split(&images[0], 7, 3, 3);
    image_seal(&images[0]);
    files[0] = image_file(&images[0], names[0]);
    assert_refused(names[0], MT_EFORMAT, "part 7 (split.no, from 0) of 3");
}

static void test_a_name_in_two_parts_is_refused(void **state)
{
    (void)state;
    image_finish(&images[2]);
    image_init(&images[2]);
    put_split(&images[2], 2, 3, 3);
    image_f16(&images[2], "t0", 64, 1);
    image_seal(&images[2]);
    files[2] = image_file(&images[2], names[2]);
    assert_refused(names[0], MT_EFORMAT, "dir/m-00003-of-00003.gguf: the tensor 't0'");
}

static void test_a_part_cut_short_is_named(void **state)
{
    (void)state;
    files[2].size_bytes -= 100;
    assert_refused(names[0], MT_ETRUNCATED, "dir/m-00003-of-00003.gguf: 100 bytes are missing");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_any_part_opens_the_whole_model),
        TEST(test_a_wrong_part_is_refused_at_its_number),
        TEST(test_a_part_that_says_it_is_alone_is_noted),
        TEST(test_a_missing_part_is_named),
        TEST(test_a_part_under_another_name_is_refused),
        TEST(test_parts_in_a_circle_are_refused),
        TEST(test_counts_of_parts_must_agree),
        TEST(test_a_number_beyond_the_count_is_refused),
        TEST(test_a_name_in_two_parts_is_refused),
        TEST(test_a_part_cut_short_is_named),
    };
    return RUN_TESTS(tests);
}
