/* SPDX-License-Identifier: MIT */
/* Copies of GGUF headers with a hole for the weights: what is the same, what is left out, and that
 * a failure leaves nothing. */
#include "tests/unit/model/gguf_image.h"

#include "tests/support/unit.h"

#include "gguf_reader.h"
#include "model/sample/sparse.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PARTS 3

static char directory[64];
static char path[96];
static struct image images[PARTS];
static struct memory_file files[PARTS + 1];
static struct memory_files memory;
static struct mt_model_files table;

/* A file of its own, or part `number` of three: a vocabulary of 4 tokens, and two tensors whose
 * bytes are no multiple of the alignment. */
static void make_part(struct image *image, unsigned number, unsigned count)
{
    static const char *const tensors[PARTS][2] = {
        {"token_embd.weight", "output_norm.weight"}, {"a", "b"}, {"c", "d"}};
    image_init(image);
    if (number == 0) {
        image_architecture(image, "llama");
        image_u32(image, ".block_count", 1);
        image_key(image, "tokenizer.ggml.tokens", IMAGE_ARRAY);
        image_number(image, &image->pairs, IMAGE_STRING, 4);
        image_number(image, &image->pairs, 4, 8);
        for (int i = 0; i < 4; i++)
            image_text(image, &image->pairs, "token");
        image_u32(image, "some.maker's.key", 7);
    }
    if (count > 1) {
        image_u16(image, "split.no", (uint16_t)number);
        image_u16(image, "split.count", (uint16_t)count);
        image_i32(image, "split.tensors.count", 6);
    }
    image_f16(image, tensors[number][0], 64, 4);
    image_f16(image, tensors[number][1], 5, 1);
    image_seal(image);
}

static void use_files(unsigned n)
{
    static const char *const names[PARTS] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                             "m-00003-of-00003.gguf"};
    memset(files, 0, sizeof files);
    for (unsigned i = 0; i < n; i++) {
        make_part(&images[i], i, n);
        files[i] = image_file(&images[i], n > 1 ? names[i] : "model.gguf");
    }
    memory = (struct memory_files){.files = files, .step_bytes = 1};
    memory_files_table(&memory, &table);
}

static int setup(void **state)
{
    (void)state;
    memset(images, 0, sizeof images);
    strcpy(directory, "/tmp/memtally-sparse-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof path, "%s/copy.gguf", directory);
    return 0;
}

/* Fails where anything but the copy was left. */
static int teardown(void **state)
{
    (void)state;
    for (unsigned i = 0; i < PARTS; i++)
        if (images[i].file.data)
            image_finish(&images[i]);
    unlink(path);
    return rmdir(directory);
}

static struct mt_model *open_first(void)
{
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    if (mt_model_open(files[0].path, &table, &model, &error))
        fail_msg("%s", error.text);
    return model;
}

static void must_write(const struct mt_model *model, int drop_vocabulary)
{
    const struct mt_sparse_options options = {.files = &table, .drop_vocabulary = drop_vocabulary};
    struct mt_error error = {0};
    if (mt_model_write_sparse(model, path, &options, &error))
        fail_msg("%s", error.text);
    assert_int_equal(memory.open_sources, 0);
}

static struct mt_model *open_copy(void)
{
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    if (mt_model_open(path, NULL, &model, &error))
        fail_msg("%s", error.text);
    return model;
}

static void test_a_copy_has_the_bytes_of_the_header_and_the_length_of_the_file(void **state)
{
    (void)state;
    use_files(1);
    struct mt_model *model = open_first();
    must_write(model, 0);
    mt_model_close(model);
    uint8_t bytes[4096];
    struct stat status;
    FILE *stream = fopen(path, "r");
    assert_non_null(stream);
    assert_true(files[0].length <= sizeof bytes);
    assert_int_equal(fread(bytes, 1, files[0].length, stream), files[0].length);
    fclose(stream);
    assert_memory_equal(bytes, files[0].bytes, files[0].length);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_size, files[0].size_bytes);
}

/* Four and one rows of f16 in each part, 512 and 10 bytes, each tensor begun at a multiple of 32.
 */
static void test_parts_are_joined(void **state)
{
    (void)state;
    static const char *const names[] = {
        "token_embd.weight", "output_norm.weight", "a", "b", "c", "d"};
    use_files(PARTS);
    struct mt_model *model = open_first();
    must_write(model, 0);
    mt_model_close(model);
    model = open_copy();
    const struct mt_model_description *d = mt_model_describe(model);
    assert_int_equal(d->n_files, 1);
    assert_int_equal(d->n_tensors, 6);
    assert_int_equal(d->weight_bytes, 3 * (512 + 10));
    assert_int_equal(d->file_bytes, d->header_bytes + 3 * (512 + 32));
    for (uint64_t i = 0; i < 6; i++) {
        struct mt_model_tensor tensor;
        assert_int_equal(mt_model_tensor_at(model, i, &tensor), 0);
        assert_int_equal(tensor.name_length, strlen(names[i]));
        assert_memory_equal(tensor.name, names[i], tensor.name_length);
        assert_int_equal(tensor.offset, d->header_bytes + i / 2 * (512 + 32) + (i % 2 ? 512 : 0));
    }
    mt_model_close(model);
}

static void read_copy(struct read_file *file)
{
    struct mt_model *model = open_copy();
    uint64_t header_bytes = mt_model_describe(model)->header_bytes;
    mt_model_close(model);
    gguf_open(file, path, header_bytes);
}

static void test_a_joined_copy_says_nothing_of_parts_and_all_the_rest(void **state)
{
    (void)state;
    struct read_file file;
    use_files(PARTS);
    struct mt_model *model = open_first();
    must_write(model, 0);
    mt_model_close(model);
    read_copy(&file);
    assert_int_equal(file.n_pairs, 4);
    assert_int_equal(gguf_u32(&file, "some.maker's.key"), 7);
    assert_int_equal(gguf_pair(&file, "tokenizer.ggml.tokens")->n_items, 4);
    gguf_close(&file);
}

static void test_without_its_vocabulary_a_copy_says_how_many_tokens_there_are(void **state)
{
    (void)state;
    struct read_file file;
    char text[256];
    use_files(1);
    struct mt_model *model = open_first();
    must_write(model, 1);
    mt_model_close(model);
    read_copy(&file);
    assert_int_equal(file.n_pairs, 5);
    assert_int_equal(gguf_u32(&file, "llama.vocab_size"), 4);
    assert_int_equal(gguf_u32(&file, "some.maker's.key"), 7);
    gguf_string(&file, gguf_pair(&file, "tokenizer.ggml.model")->value, text);
    assert_string_equal(text, "no_vocab");
    assert_int_equal(file.n_tensors, 2);
    gguf_close(&file);
}

static void test_a_model_does_not_become_its_own_hole(void **state)
{
    (void)state;
    use_files(1);
    struct mt_model *model = open_first();
    must_write(model, 0);
    mt_model_close(model);
    model = open_copy();
    struct mt_error error = {0};
    assert_int_equal(mt_model_write_sparse(model, path, NULL, &error), MT_EARG);
    assert_non_null(strstr(error.text, "is the model itself"));
    mt_model_close(model);
}

static void test_a_copy_lies_under_an_odd_name_too(void **state)
{
    (void)state;
    char odd[160];
    use_files(1);
    struct mt_model *model = open_first();
    const struct mt_sparse_options options = {.files = &table};
    snprintf(odd, sizeof odd, "%s/ -a\n\"%%s\" \xc3\xa9.gguf", directory);
    assert_int_equal(mt_model_write_sparse(model, odd, &options, NULL), 0);
    assert_int_equal(unlink(odd), 0);
    mt_model_close(model);
}

static void assert_nothing_is_left(void)
{
    DIR *stream = opendir(directory);
    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream));)
        if (entry->d_name[0] != '.')
            fail_msg("%s was left", entry->d_name);
    closedir(stream);
}

static void test_a_read_that_fails_leaves_nothing(void **state)
{
    (void)state;
    use_files(1);
    struct mt_model *model = open_first();
    const struct mt_sparse_options options = {.files = &table};
    int code = MT_EIO;
    for (unsigned n = 1; code == MT_EIO; n++) {
        assert_true(n < 100);
        memory.reads = 0;
        memory.failing_read = n;
        code = mt_model_write_sparse(model, path, &options, NULL);
        assert_int_equal(memory.open_sources, 0);
        if (code)
            assert_nothing_is_left();
    }
    assert_int_equal(code, 0);
    mt_model_close(model);
}

static void test_a_file_that_has_changed_is_not_copied(void **state)
{
    (void)state;
    use_files(1);
    struct mt_model *model = open_first();
    const struct mt_sparse_options options = {.files = &table};
    struct mt_error error = {0};
    files[0].size_bytes += 32;
    assert_int_equal(mt_model_write_sparse(model, path, &options, &error), MT_EFORMAT);
    assert_non_null(strstr(error.text, "has changed"));
    assert_nothing_is_left();
    mt_model_close(model);
}

/* The n-th call fails; nothing does where it is 0. */
static int calls, failing_call;

static int fails(int errno_value)
{
    errno = errno_value;
    return ++calls == failing_call;
}

static int fake_open(const char *name, int flags, mode_t mode)
{
    return fails(EACCES) ? -1 : mt_out_file_os.open(name, flags, mode);
}

static ssize_t fake_write(int fd, const void *bytes, size_t length)
{
    return fails(ENOSPC) ? -1 : write(fd, bytes, length);
}

static int fake_truncate(int fd, off_t length)
{
    return fails(EFBIG) ? -1 : ftruncate(fd, length);
}

static int fake_rename(const char *from, const char *to)
{
    return fails(EROFS) ? -1 : rename(from, to);
}

static void test_a_call_that_fails_leaves_nothing(void **state)
{
    (void)state;
    struct mt_out_file_os faulty = mt_out_file_os;
    faulty.open = fake_open;
    faulty.write = fake_write;
    faulty.truncate = fake_truncate;
    faulty.rename = fake_rename;
    use_files(PARTS);
    struct mt_model *model = open_first();
    const struct mt_sparse_options options = {.files = &table};
    int code = -1;
    for (failing_call = 1; code; failing_call++) {
        struct mt_error error = {0};
        assert_true(failing_call < 100);
        calls = 0;
        code = mt_model_write_sparse_with(&faulty, model, path, &options, &error);
        if (code) {
            assert_true(code == MT_EIO || code == MT_EPERM);
            assert_non_null(strstr(error.text, path));
            assert_nothing_is_left();
        }
    }
    assert_true(failing_call > 5);
    mt_model_close(model);
}

static void test_a_type_outside_the_list_is_refused(void **state)
{
    (void)state;
    use_files(1);
    struct mt_model *model = open_first();
    struct mt_sparse_options options = {.files = &table};
    options.type = (enum mt_file_type)99;
    assert_int_equal(mt_model_write_sparse(model, path, &options, NULL), MT_EARG);
    mt_model_close(model);
}

static void test_types_have_names(void **state)
{
    (void)state;
    enum mt_file_type type = MT_FILE_F16;
    assert_int_equal(mt_file_type_by_name("Q4_K_M", &type), 0);
    assert_int_equal(type, MT_FILE_Q4_K_M);
    assert_string_equal(mt_file_type_name(MT_FILE_MXFP4), "mxfp4");
    assert_int_equal(mt_file_type_by_name("q4_k_l", &type), MT_ENOTFOUND);
    assert_int_equal(type, MT_FILE_Q4_K_M);
    assert_string_equal(mt_file_type_name((enum mt_file_type)99), "?");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_copy_has_the_bytes_of_the_header_and_the_length_of_the_file),
        TEST(test_parts_are_joined),
        TEST(test_a_joined_copy_says_nothing_of_parts_and_all_the_rest),
        TEST(test_without_its_vocabulary_a_copy_says_how_many_tokens_there_are),
        TEST(test_a_model_does_not_become_its_own_hole),
        TEST(test_a_copy_lies_under_an_odd_name_too),
        TEST(test_a_read_that_fails_leaves_nothing),
        TEST(test_a_file_that_has_changed_is_not_copied),
        TEST(test_a_call_that_fails_leaves_nothing),
        TEST(test_a_type_outside_the_list_is_refused),
        cmocka_unit_test(test_types_have_names),
    };
    return RUN_TESTS(tests);
}
