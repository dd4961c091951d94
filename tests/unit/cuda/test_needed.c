/* SPDX-License-Identifier: MIT */
/* What a shared object asks for, by its file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "pretend/cuda/driver/needed.h"

static int is_runtime(const char *name)
{
    return strcmp(name, "libcudart.so.13") == 0;
}

static int count(const char *name)
{
    return strlen(name) > SIZE_MAX / 2;
}

static void test_a_library_names_what_it_needs(void **state)
{
    (void)state;
    assert_int_equal(pretend_needed(NEEDS_RUNTIME_PATH, is_runtime), 1);
    assert_int_equal(pretend_needed(NEEDS_RUNTIME_PATH, count), 0);
    assert_int_equal(pretend_needed("/proc/self/exe", is_runtime), 0);
    assert_int_equal(pretend_needed("/nowhere", is_runtime), 0);
    assert_int_equal(pretend_needed("/", is_runtime), 0);
}

/* Files that are cut short or changed anywhere are refused or read, and nothing more. */
static void test_files_that_are_no_libraries_do_no_harm(void **state)
{
    static unsigned char bytes[16384];
    char path[64];
    (void)state;
    FILE *file = fopen(NEEDS_RUNTIME_PATH, "r");
    assert_non_null(file);
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_true(size > 4096);
    snprintf(path, sizeof path, "/tmp/memtally-needed-%d", (int)getpid());
    for (size_t i = 0; i < 600; i++) {
        size_t at = i < 400 ? i : size * (i - 400) / 200;
        unsigned char was = bytes[at];
        bytes[at] = (unsigned char)(was + 0x7F);
        file = fopen(path, "w");
        assert_int_equal(fwrite(bytes, 1, i % 2 ? size : at + 1, file), i % 2 ? size : at + 1);
        fclose(file);
        pretend_needed(path, count);
        bytes[at] = was;
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_library_names_what_it_needs),
        cmocka_unit_test(test_files_that_are_no_libraries_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
