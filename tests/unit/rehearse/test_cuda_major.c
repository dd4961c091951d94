/* SPDX-License-Identifier: MIT */
/* Which CUDA a program is of, by the PyTorch that is installed beside its interpreter. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "rehearse/program.h"

static char folder[] = "/tmp/memtally-major-XXXXXX";
static char program[PATH_MAX];

/* Writes a version.py of PyTorch below lib/PYTHON of the folder. */
static void install(const char *python, const char *text)
{
    char path[PATH_MAX];
    char *rest = path + snprintf(path, sizeof path, "%s/", folder);
    snprintf(rest, 256, "lib/%s/site-packages/torch/", python);
    for (char *slash = strchr(rest, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    strcat(path, "version.py");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void test_nothing_is_told_of_a_program_without_pytorch(void **state)
{
    (void)state;
    assert_int_equal(mt_cuda_major_beside(program), 0);
    assert_int_equal(mt_cuda_major_beside("python"), 0);
}

/* The file as PyTorch 2.9.1 and 2.15.0 bring it, shortened. */
static void test_the_version_is_what_pytorch_was_built_with(void **state)
{
    (void)state;
    install("python3.11", "from typing import Optional\n__all__ = ['__version__', 'cuda']\n"
                          "__version__ = '2.9.1+cu128'\ncuda: Optional[str] = '12.8'\n"
                          "hip: Optional[str] = None\n");
    assert_int_equal(mt_cuda_major_beside(program), 12);
    install("python3.11", "__version__ = '2.15.0+cu132'\ncuda: Optional[str] = '13.2'\n");
    assert_int_equal(mt_cuda_major_beside(program), 13);
}

static void test_a_build_without_cuda_or_of_an_old_one_tells_nothing(void **state)
{
    (void)state;
    install("python3.11", "cuda: Optional[str] = None\nhip = '6.4'\n");
    assert_int_equal(mt_cuda_major_beside(program), 0);
    install("python3.11", "cuda = '11.8'\n");
    assert_int_equal(mt_cuda_major_beside(program), 0);
}

static void test_two_that_differ_tell_nothing(void **state)
{
    (void)state;
    install("python3.11", "cuda = '12.6'\n");
    install("python3.12", "cuda = '12.8'\n");
    assert_int_equal(mt_cuda_major_beside(program), 12);
    install("python3.12", "cuda = '13.0'\n");
    assert_int_equal(mt_cuda_major_beside(program), 0);
}

static int set_up(void **state)
{
    char path[64];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/bin", folder);
    mkdir(path, 0700);
    snprintf(program, sizeof program, "%s/bin/python", folder);
    return 0;
}

static int tear_down(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_told_of_a_program_without_pytorch),
        cmocka_unit_test(test_the_version_is_what_pytorch_was_built_with),
        cmocka_unit_test(test_a_build_without_cuda_or_of_an_old_one_tells_nothing),
        cmocka_unit_test(test_two_that_differ_tell_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
