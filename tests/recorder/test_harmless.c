/* SPDX-License-Identifier: MIT */
/* A recorded program does what it does unrecorded: the same output, errors and status. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recorder/harness.h"

static const char *program(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", program_path("MEMTALLY_TEST_PROGRAMS"), name);
    return path;
}

/* The libraries beside a program are to be found by what it says itself. */
static void forget_library_path(void)
{
    unsetenv("LD_LIBRARY_PATH");
}

static int is_there(const char *name)
{
    char command[200];
    snprintf(command, sizeof command, "command -v %s >/dev/null", name);
    return system(command) == 0;
}

static void is_same_with(const struct how *how, const char *const argv[])
{
    struct how unrecorded = *how;
    unrecorded.unrecorded = 1;
    struct ran *without = run(&unrecorded, argv);
    struct ran *with = run(how, argv);
    if (strcmp(with->out, without->out) != 0 || strcmp(with->err, without->err) != 0 ||
        with->status != without->status)
        fail_msg("%s %s: status %#x, said\n%s%sinstead of %#x and\n%s%s", argv[0],
                 argv[1] ? argv[1] : "", (unsigned)with->status, with->out, with->err,
                 (unsigned)without->status, without->out, without->err);
    assert_true(strlen(with->out) > 0);
    assert_int_equal(WEXITSTATUS(without->status) == 99, 0);
    assert_true(with->n_files > 0);
    for (size_t i = 0; i < with->n_files; i++)
        assert_int_equal(with->files[i]->blocks_bad, 0);
    ran_free(with);
    ran_free(without);
}

/* In both depths and with each kind of stack. */
static void is_same(const char *const argv[])
{
    static const struct how ways[] = {
        {.depth = DEPTH_DEFAULT, .stacks = STACKS_FP, .prepare = forget_library_path},
        {.depth = DEPTH_FULL, .stacks = STACKS_FP, .prepare = forget_library_path},
        {.depth = DEPTH_FULL, .stacks = STACKS_UNWIND, .prepare = forget_library_path},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        is_same_with(&ways[i], argv);
}

#define SAME(...) is_same((const char *const[]){__VA_ARGS__, NULL})

static void test_system_programs_do_the_same(void **state)
{
    (void)state;
    SAME("ls", "-l", "/usr/include");
    SAME("ls", "/no/such/place", "/");
    SAME("bash", "-c", "seq 1 2000 | sort -rn | head -n 3 | (read a; echo $a; exit 4)");
    SAME("bash", "-c", "for i in 1 2 3 4 5; do (echo $i; exit $i) & wait $!; echo $?; done");
    SAME("bash", "-c", "trap 'echo trapped' TERM; kill -TERM $$; kill -KILL $$");
}

static void test_python_does_the_same(void **state)
{
    (void)state;
    if (!is_there("python3"))
        NOT_HERE();
    SAME("python3", "-c",
         "import json, subprocess, threading, sys\n"
         "rows = []\n"
         "threads = [threading.Thread(target=lambda: "
         "rows.append(len(json.dumps(list(range(9999))))))"
         " for i in range(8)]\n"
         "[t.start() for t in threads]; [t.join() for t in threads]\n"
         "print(rows, subprocess.run(['sh', '-c', 'echo out; exit 3']).returncode)\n"
         "try:\n"
         "    subprocess.run(['/no/such/program'])\n"
         "except FileNotFoundError as e:\n"
         "    print(e)\n"
         "sys.exit(5)");
}

static void test_node_does_the_same(void **state)
{
    (void)state;
    if (!is_there("node"))
        NOT_HERE();
    SAME("node", "-e",
         "const a = Array.from({length: 200000}, (_, i) => ({i}));"
         "console.log(a.length, require('child_process').execSync('echo child').toString());"
         "setTimeout(() => process.exit(6), 10)");
}

static void test_exceptions_loaders_and_own_allocators_do_the_same(void **state)
{
    (void)state;
    SAME(program("scope_cpp"));
    SAME(program("loader"));
    SAME(program("own_malloc"));
    SAME(program("locked_malloc"));
}

static void test_closed_descriptors_and_signal_handlers_do_the_same(void **state)
{
    (void)state;
    SAME(CHILD, "descriptors");
    SAME(CHILD, "signals");
}

/* Another allocator, preloaded after the recorder. */
static void is_same_on(const char *const libraries[])
{
    for (size_t i = 0; libraries[i]; i++) {
        struct how how = {.depth = DEPTH_FULL, .preload = libraries[i]};
        if (access(libraries[i], R_OK) < 0)
            continue;
        is_same_with(&how, (const char *const[]){CHILD, "small", "50000", NULL});
        is_same_with(&how, (const char *const[]){CHILD, "handover", "4", "20000", NULL});
        is_same_with(&how, (const char *const[]){"ls", "-l", "/usr/include", NULL});
        return;
    }
    NOT_HERE();
}

static void test_jemalloc_does_the_same(void **state)
{
    (void)state;
    is_same_on((const char *const[]){"/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
                                     "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2", NULL});
}

static void test_mimalloc_does_the_same(void **state)
{
    (void)state;
    is_same_on((const char *const[]){"/usr/lib/x86_64-linux-gnu/libmimalloc.so.2.0",
                                     "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2",
                                     "/usr/lib/aarch64-linux-gnu/libmimalloc.so.2.0", NULL});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_system_programs_do_the_same),
        cmocka_unit_test(test_python_does_the_same),
        cmocka_unit_test(test_node_does_the_same),
        cmocka_unit_test(test_exceptions_loaders_and_own_allocators_do_the_same),
        cmocka_unit_test(test_closed_descriptors_and_signal_handlers_do_the_same),
        cmocka_unit_test(test_jemalloc_does_the_same),
        cmocka_unit_test(test_mimalloc_does_the_same),
    };
    return RUN_TESTS(tests);
}
