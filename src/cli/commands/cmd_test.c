/* SPDX-License-Identifier: MIT */
/* memtally test: tests beside each other, as far as memory goes. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memtally/error.h>

#include "cli/budget/suite.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/interrupt.h"
#include "cli/state_file.h"
#include "cli/words.h"

struct test_options {
    struct budget_options budget;
    int list;
    uint64_t jobs;
    int resume;
    const char *history;
    const char *junit;
    const char *spec;
};

#define AT(member) offsetof(struct test_options, member)

static const struct cli_option test_options[] = {
    {.name = "ctest",
     .kind = CLI_FLAG,
     .value = BUDGET_LIST_CTEST,
     .offset = AT(list),
     .help = "MANIFEST is a build folder of CMake, or a file of what ctest --show-only=json-v1 "
             "printed"},
    {.name = "meson",
     .kind = CLI_FLAG,
     .value = BUDGET_LIST_MESON,
     .offset = AT(list),
     .help = "MANIFEST is a build folder of meson, or a file of what meson introspect --tests "
             "printed"},
    {.name = "pytest",
     .kind = CLI_FLAG,
     .value = BUDGET_LIST_PYTEST,
     .offset = AT(list),
     .help = "MANIFEST is a folder or file of tests in Python, or a file of what pytest "
             "--collect-only -q printed; each test is a process"},
    {.name = "jobs",
     .letter = 'j',
     .kind = CLI_COUNT,
     .argument = "N",
     .least = 1,
     .most = 64,
     .offset = AT(jobs),
     .help = "how many tests run at a time, at most; by default as many as there are processors"},
    {.name = "resume",
     .kind = CLI_FLAG,
     .offset = AT(resume),
     .help = "leave out what passed in the last run, finished or not"},
    {.name = "history",
     .kind = CLI_FILE,
     .argument = "FILE",
     .offset = AT(history),
     .help = "the file that keeps peaks and times; by default one for each MANIFEST in "
             "memtally's folder"},
    {.name = "junit",
     .kind = CLI_FILE,
     .argument = "FILE",
     .offset = AT(junit),
     .help = "write the results also as JUnit's XML"},
    BUDGET_OPTIONS(AT(budget)),
    {.name = "resource-spec",
     .kind = CLI_FILE,
     .argument = "FILE",
     .offset = AT(spec),
     .help = "write what is free, in slots of 256 MiB, for ctest --resource-spec-file"},
    {0},
};

/* What is told of the run while it goes on. */
struct telling {
    struct budget_suite suite;
    size_t n_told;
    int code;
};

static void tell(void *context, size_t test)
{
    struct telling *telling = context;
    struct mt_strbuf out = {0};
    budget_put_tap(&telling->suite, test, ++telling->n_told, &out);
    int code = cli_print(&out);
    telling->code = telling->code ? telling->code : code;
    mt_strbuf_finish(&out);
}

static int put_head(size_t n)
{
    struct mt_strbuf out = {0};
    mt_strbuf_printf(&out, "TAP version 14\n1..%zu\n", n);
    int code = cli_print(&out);
    mt_strbuf_finish(&out);
    return code;
}

static void put_count(const struct budget_suite *suite, enum budget_outcome outcome,
                      const char *name, struct mt_strbuf *out)
{
    size_t n = 0;
    size_t first = 0;
    for (size_t i = suite->tests->n; i > 0; i--)
        if (suite->results[i - 1].outcome == outcome) {
            n++;
            first = i - 1;
        }
    if (n)
        mt_strbuf_printf(out, "%s%zu %s", out->length ? ", " : "", n, name);
    if (n && outcome != BUDGET_PASSED && outcome != BUDGET_SKIPPED && outcome != BUDGET_WAITS)
        mt_strbuf_printf(out, " (%s%s)", suite->tests->items[first].name, n > 1 ? ", ..." : "");
}

static void sum_up(const struct budget_suite *suite)
{
    struct mt_strbuf out = {0};
    put_count(suite, BUDGET_PASSED, "passed", &out);
    put_count(suite, BUDGET_FAILED, "failed", &out);
    put_count(suite, BUDGET_MEMORY, "failed for memory", &out);
    put_count(suite, BUDGET_LEAKED, "left memory behind", &out);
    put_count(suite, BUDGET_TIMEOUT, "took too long", &out);
    put_count(suite, BUDGET_CANNOT, "could not be run", &out);
    put_count(suite, BUDGET_SKIPPED, "skipped", &out);
    put_count(suite, BUDGET_WAITS, "not run", &out);
    fprintf(stderr, "memtally: test: %s\n", mt_strbuf_text(&out));
    if (suite->planned_seconds > 0)
        fprintf(stderr,
                "memtally: test: by the times of the last run this order takes %.1f s, and none "
                "takes less than %.1f s\n",
                suite->planned_seconds, suite->least_seconds);
    mt_strbuf_finish(&out);
}

/* A file for each manifest, by its path, in memtally's folder. */
static int choose_history(const struct test_options *options, const char *manifest,
                          struct mt_strbuf *path)
{
    struct mt_error error;
    char whole[PATH_MAX];
    if (options->history) {
        mt_strbuf_puts(path, options->history);
        return CLI_EXIT_OK;
    }
    if (!realpath(manifest, whole))
        snprintf(whole, sizeof whole, "%s", manifest);
    int status = cli_state_folder(path, &error);
    if (status == 0) {
        mt_strbuf_puts(path, "/tests");
        status = cli_state_make_folders(path->data, &error);
    }
    if (status < 0) {
        cli_complain("test: %s; name a file with --history", error.text);
        return CLI_EXIT_CANNOT;
    }
    mt_strbuf_puts(path, "/");
    for (const char *at = whole; *at; at++) {
        char c = *at == '/' ? '%' : *at;
        mt_strbuf_append(path, &c, 1);
    }
    mt_strbuf_puts(path, ".json");
    return CLI_EXIT_OK;
}

static int write_files(const struct test_options *options, const struct budget_suite *suite)
{
    struct mt_strbuf junit = {0};
    int code = CLI_EXIT_OK;
    if (options->junit) {
        budget_put_junit(suite, &junit);
        code = cli_write_output(&junit, options->junit);
    }
    mt_strbuf_finish(&junit);
    return code;
}

static int run_tests(const struct test_options *options, struct budget_world *world,
                     const struct budget_tests *tests, const char *history)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    struct telling telling = {.suite = {.world = world,
                                        .tests = tests,
                                        .results = calloc(tests->n, sizeof *telling.suite.results),
                                        .n_jobs = options->jobs    ? (size_t)options->jobs
                                                  : processors > 0 ? (size_t)processors
                                                                   : 1,
                                        .cap = options->budget.cap,
                                        .leaves_out_passed = options->resume,
                                        .history = history,
                                        .interrupted = cli_catch_signals(),
                                        .tell = tell,
                                        .context = &telling}};
    if (!telling.suite.results) {
        cli_complain("test: out of memory");
        return CLI_EXIT_CANNOT;
    }
    int code = put_head(tests->n);
    if (!code && options->spec && !(code = budget_world_look(world)))
        code = budget_write_spec(world, NULL, options->spec);
    if (!code) {
        code = budget_suite_run(&telling.suite);
        sum_up(&telling.suite);
        int failed = write_files(options, &telling.suite);
        code = telling.code ? telling.code : failed ? failed : code;
    }
    for (size_t i = 0; i < tests->n; i++) {
        free(telling.suite.results[i].why);
        free(telling.suite.results[i].output);
    }
    free(telling.suite.results);
    return code;
}

static int run_test(const struct cli_call *call)
{
    const struct test_options *options = call->options;
    struct mt_error error;
    struct budget_tests tests;
    struct budget_world world;
    struct mt_strbuf history = {0};
    if (budget_tests_load(&tests, (enum budget_list)options->list, call->operands[0], &error) < 0) {
        cli_complain("test: %s", error.text);
        return cli_exit_of(error.code) == CLI_EXIT_CANNOT ? CLI_EXIT_CANNOT : CLI_EXIT_USAGE;
    }
    int code = budget_world_init(&world, "test", &options->budget);
    if (code == CLI_EXIT_FAILED)
        code = CLI_EXIT_CANNOT;
    if (!code)
        code = choose_history(options, call->operands[0], &history);
    if (!code)
        code = run_tests(options, &world, &tests, history.data);
    budget_world_finish(&world);
    budget_tests_finish(&tests);
    mt_strbuf_finish(&history);
    return code;
}

static const char *const description[] = {
    "Runs tests, each a process of its own, beside each other as far as memory goes, and holds "
    "each to what it may have. The list is a manifest in TOML, or that of ctest, meson or pytest.",
    "A test may have what the manifest says that it needs; else a quarter more than it took in "
    "the last run; else the manifest's default, or 1 GiB of the host. Small tests run first, "
    "unless that takes a tenth longer than the best order by the times of the last run.",
    "If a test was refused memory, or says that memory ran out, memtally does not count it as "
    "failed: it runs the test once more with twice as much. A test that leaves more than 100 MiB "
    "behind does not pass: memtally says where it left it, and ends the processes that it left.",
    "Results go to standard output as TAP 14, in the order in which tests end.",
    NULL,
};

static const struct cli_example examples[] = {
    {"memtally test tests.toml", "A manifest."},
    {"memtally test --ctest build --junit results.xml", "The tests of a CMake project."},
    {"memtally test --pytest tests/ --on 2x24GiB --resume",
     "Each test of Python on pretended devices, without those that passed."},
    {0},
};

static const struct cli_status statuses[] = {
    {"0", "all tests passed or were skipped"},
    {"1", "a test did not pass"},
    {"2", "wrong usage, or a manifest that cannot be read"},
    {"3", "this machine cannot: no place for files, or no tool that lists the tests"},
    {0},
};

const struct cmd_entry cmd_test = {
    .name = "test",
    .synopsis = "[options] MANIFEST",
    .summary = "run tests beside each other as far as memory goes",
    .description = description,
    .examples = examples,
    .statuses = statuses,
    .options = test_options,
    .options_size = sizeof(struct test_options),
    .operands = CLI_OPERANDS_FILES,
    .least_operands = 1,
    .most_operands = 1,
    .run = run_test,
};
