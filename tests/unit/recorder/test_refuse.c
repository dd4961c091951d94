/* SPDX-License-Identifier: MIT */
/* Where the recorder stays away: under Valgrind, and in a program with a sanitizer's runtime. */
#include "tests/support/unit.h"

#include "recorder/real.h"
#include "recorder/recorder.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WATCHED 42

struct real memtally_real;

static void test_a_plain_program_is_recorded(void **state)
{
    (void)state;
    memtally_real.has_sanitizer = 0;
    assert_false(is_watched_by_another());
}

static void test_a_program_with_a_sanitizer_is_left_alone(void **state)
{
    (void)state;
    memtally_real.has_sanitizer = 1;
    assert_true(is_watched_by_another());
    memtally_real.has_sanitizer = 0;
}

static void test_a_program_under_valgrind_is_left_alone(void **state)
{
    char self[PATH_MAX];
    int status = 0;
    (void)state;
    assert_non_null(realpath("/proc/self/exe", self));
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        execlp("valgrind", "valgrind", "-q", "--tool=none", self, "ask", (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), WATCHED);
}

/* Valgrind runs no program that has a sanitizer in it, or that an emulator runs. */
static int has_valgrind(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 0;
#else
    return !getenv("MESON_EXE_WRAPPER") && system("valgrind --version >/dev/null 2>&1") == 0;
#endif
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_plain_program_is_recorded),
        cmocka_unit_test(test_a_program_with_a_sanitizer_is_left_alone),
        cmocka_unit_test(test_a_program_under_valgrind_is_left_alone), /* the last one */
    };
    size_t n = sizeof tests / sizeof *tests;
    if (argc == 2 && !strcmp(argv[1], "ask"))
        return is_watched_by_another() ? WATCHED : 0;
    return _cmocka_run_group_tests("tests", tests, has_valgrind() ? n : n - 1, NULL, NULL);
}
