/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drive/model_file.h"

static char folder[] = "/tmp/memtally-test.XXXXXX";
static char path[PATH_MAX];

static int begin(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/memtally-test.XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    return 0;
}

static int end(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void test_gguf_file_is_found_by_its_absolute_path(void **state)
{
    (void)state;
    char absolute[PATH_MAX];
    char given[PATH_MAX + 8];
    write_file("GGUF and so on");
    snprintf(given, sizeof given, "%s/./model.gguf", folder);
    assert_int_equal(mt_profile_model_file(given, absolute, NULL), 0);
    assert_string_equal(absolute, path);
}

static void test_path_that_does_not_exist_says_so(void **state)
{
    (void)state;
    char absolute[PATH_MAX] = "untouched";
    struct mt_error error;
    assert_int_equal(mt_profile_model_file(path, absolute, &error), MT_ENOTFOUND);
    assert_non_null(strstr(error.text, path));
    assert_string_equal(absolute, "untouched");
}

static void test_what_is_no_gguf_file_is_refused(void **state)
{
    (void)state;
    char absolute[PATH_MAX];
    assert_int_equal(mt_profile_model_file(folder, absolute, NULL), MT_EFORMAT);
    write_file("");
    assert_int_equal(mt_profile_model_file(path, absolute, NULL), MT_EFORMAT);
    write_file("GGU");
    assert_int_equal(mt_profile_model_file(path, absolute, NULL), MT_EFORMAT);
    write_file("GGML is older");
    assert_int_equal(mt_profile_model_file(path, absolute, NULL), MT_EFORMAT);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(mt_profile_model_file(path, absolute, NULL), MT_EFORMAT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_gguf_file_is_found_by_its_absolute_path),
        TEST(test_path_that_does_not_exist_says_so),
        TEST(test_what_is_no_gguf_file_is_refused),
    };
    return RUN_TESTS(tests);
}
