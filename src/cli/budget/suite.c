/* SPDX-License-Identifier: MIT */
/* Starting tests as room is there, ending them, and telling what came of each. */
#include "cli/budget/suite.h"

#include <memtally/error.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ticks.h"
#include "cli/budget/admit.h"
#include "cli/budget/held_run.h"
#include "cli/budget/turns.h"
#include "cli/console.h"

#define LOOK_MS        20
#define ASK_EVERY_NS   200000000u
#define RENEW_EVERY_NS 500000000u
#define KEPT_BYTES     16384
#define RUNNING_MAX    64

/* ---- what a test is to have ---- */

/* Twice as much, as far as there is. Returns whether that is more. */
static int double_needs(const struct budget_suite *suite, struct budget_needs *needs)
{
    int is_more = 0;
    for (size_t i = 0; i < needs->n; i++) {
        struct mt_budget_need *need = &needs->items[i];
        uint64_t most = 0;
        for (size_t k = 0; k < suite->world->machine.n; k++) {
            const struct mt_budget_place *place = &suite->world->machine.places[k];
            int is_device = strcmp(place->name, "host") != 0;
            int is_meant = strcmp(need->place, "host") == 0 ? !is_device : is_device;
            uint64_t kept = place->min_free_bytes + place->overhead_bytes;
            if (is_meant && place->capacity_bytes > kept && place->capacity_bytes - kept > most)
                most = place->capacity_bytes - kept;
        }
        uint64_t wanted = need->bytes < most / 2 ? need->bytes * 2 : most;
        is_more |= wanted > need->bytes;
        need->bytes = wanted > need->bytes ? wanted : need->bytes;
    }
    return is_more;
}

/* ---- one test ---- */

struct running {
    size_t test;
    struct budget_held held;
    struct budget_run run;
    FILE *output;
    int was_ended; /* for its time */
    uint64_t renewed_ns;
};

static void conclude(struct budget_suite *suite, size_t test, enum budget_outcome outcome,
                     struct mt_strbuf *why)
{
    struct budget_result *result = &suite->results[test];
    result->outcome = outcome;
    free(result->why);
    result->why = why->length ? mt_strbuf_take(why) : NULL;
    mt_strbuf_finish(why);
    suite->tell(suite->context, test);
}

static int start(struct budget_suite *suite, size_t test, struct running *running)
{
    const struct budget_test *given = &suite->tests->items[test];
    struct mt_strbuf why = {0};
    memset(&running->run, 0, sizeof running->run);
    running->test = test;
    running->was_ended = 0;
    running->renewed_ns = 0;
    running->output = tmpfile();
    if (!running->output) {
        mt_strbuf_puts(&why, "no temporary file for its output\n");
        conclude(suite, test, BUDGET_CANNOT, &why);
        return 0;
    }
    struct mt_job_options options = {
        .argv = given->argv,
        .environment = given->environment,
        .directory = given->directory,
        .is_apart = 1,
        .stdout_fd = fileno(running->output),
        .stderr_fd = fileno(running->output),
    };
    int code = budget_run_start(&running->run, suite->world, &running->held,
                                (enum mt_job_cap)suite->cap, &options);
    if (code == CLI_EXIT_OK)
        return 1;
    fclose(running->output);
    mt_strbuf_puts(&why, "it could not be started\n");
    conclude(suite, test, BUDGET_CANNOT, &why);
    return 0;
}

/* Returns 1 where it runs, 0 where there is no room now, negative where it will never run. */
static int try_start(struct budget_suite *suite, size_t test, struct running *running)
{
    struct budget_needs needs;
    struct mt_error error;
    struct mt_strbuf why = {0};
    budget_needs_of(suite, test, &needs);
    int status = budget_ask(suite->world, &needs, &running->held, &error);
    if (status == 0)
        status = budget_take(suite->world, &running->held, &error);
    if (status == 0 && start(suite, test, running)) {
        suite->results[test].needs = needs;
        suite->results[test].n_tries++;
        return 1;
    }
    budget_release(suite->world, &running->held);
    if (status == MT_EBUSY)
        return 0;
    if (status < 0) {
        mt_strbuf_printf(&why, "%s\n", error.text);
        conclude(suite, test, BUDGET_CANNOT, &why);
    }
    return -1;
}

/* The last of what it wrote. */
static char *read_output(FILE *file)
{
    char *text = calloc(1, KEPT_BYTES + 1);
    int fd = fileno(file);
    off_t end = lseek(fd, 0, SEEK_END);
    off_t from = end > KEPT_BYTES ? end - KEPT_BYTES : 0;
    ssize_t n = text ? pread(fd, text, KEPT_BYTES, from) : 0;
    for (ssize_t i = 0; i < n; i++)
        if (!text[i])
            text[i] = ' ';
    return text;
}

static int says_memory(const char *output)
{
    static const char *const words[] = {
        "out of memory",           "Out of memory", "OutOfMemory",
        "std::bad_alloc",          "MemoryError",   "Cannot allocate memory",
        "CUDA_ERROR_OUT_OF_MEMORY"};
    for (size_t i = 0; output && i < sizeof words / sizeof *words; i++)
        if (strstr(output, words[i]))
            return 1;
    return 0;
}

static enum budget_outcome judge(const struct budget_test *test, const struct running *running,
                                 const struct budget_end *end, const char *output,
                                 struct mt_strbuf *why)
{
    int failed = end->job.exit_code != 0;
    if (running->was_ended) {
        mt_strbuf_printf(why, "it was ended after %.0f s\n", (double)test->timeout_ns / 1e9);
        return BUDGET_TIMEOUT;
    }
    if (failed && test->skip_status && end->job.exit_code == test->skip_status) {
        mt_strbuf_puts(why, "it says that it cannot run here\n");
        return BUDGET_SKIPPED;
    }
    if (failed && (end->job.is_past_cap || end->n_refusals || says_memory(output))) {
        mt_strbuf_puts(why, end->n_refusals        ? "a device refused it memory\n"
                            : end->job.is_past_cap ? "it went past what it may have of the host\n"
                                                   : "it says that memory ran out\n");
        return BUDGET_MEMORY;
    }
    if (failed != test->fails_well) {
        mt_strbuf_printf(why,
                         failed ? "it ended with status %d\n"
                                : "it was meant to fail, and ended with status %d\n",
                         end->job.exit_code);
        return BUDGET_FAILED;
    }
    budget_put_left(&running->run, end, why);
    return why->length ? BUDGET_LEAKED : BUDGET_PASSED;
}

/* Returns 1 where it is to be tried again. */
static int finish(struct budget_suite *suite, struct running *running)
{
    struct budget_result *result = &suite->results[running->test];
    struct budget_end end;
    struct mt_strbuf why = {0};
    budget_run_finish(&running->run, &end);
    budget_release(suite->world, &running->held);
    free(result->output);
    result->output = read_output(running->output);
    fclose(running->output);
    result->exit_code = end.job.exit_code;
    result->seconds = (double)end.job.wall_ns / 1e9;
    result->host_peak_bytes = end.job.host_peak_bytes;
    result->device_peak_bytes = 0;
    for (size_t i = 0; i < running->run.n_devices; i++)
        if (end.device_peak_bytes[i] > result->device_peak_bytes)
            result->device_peak_bytes = end.device_peak_bytes[i];
    enum budget_outcome outcome =
        judge(&suite->tests->items[running->test], running, &end, result->output, &why);
    if (outcome == BUDGET_MEMORY && result->n_tries == 1 && double_needs(suite, &result->needs)) {
        mt_strbuf_finish(&why);
        return 1;
    }
    conclude(suite, running->test, outcome, &why);
    return 0;
}

/* ---- all of them ---- */

struct loop {
    struct running *running;
    size_t n_running;
    size_t *waiting;
    size_t n_waiting;
    uint64_t asked_ns; /* 0: something changed since */
};

/* What our own tests left of a place, whatever others hold: less is not worth asking for. */
static uint64_t room_beside_ours(const struct budget_suite *suite, const struct loop *loop,
                                 size_t place_number)
{
    const struct mt_budget_place *place = &suite->world->machine.places[place_number];
    uint64_t taken = place->min_free_bytes;
    for (size_t i = 0; i < loop->n_running; i++) {
        const struct budget_needs *needs = &loop->running[i].held.needs;
        for (size_t k = 0; k < needs->n; k++) {
            int is_host = strcmp(needs->items[k].place, "host") == 0;
            if (is_host ? place_number == 0
                        : place_number > 0 && budget_device_number(needs->items[k].place) ==
                                                  budget_device_number(place->name))
                taken += needs->items[k].bytes + place->overhead_bytes;
        }
    }
    return place->capacity_bytes > taken ? place->capacity_bytes - taken : 0;
}

/* Asking costs a look at the budget's file. With nothing of ours running all is asked for, so that
 * what there never is gets refused. */
static int is_worth_asking(const struct budget_suite *suite, const struct loop *loop, size_t test)
{
    struct budget_needs needs;
    budget_needs_of(suite, test, &needs);
    for (size_t i = 0; loop->n_running > 0 && i < needs.n; i++) {
        const char *wanted = needs.items[i].place;
        int has_room = 0;
        for (size_t k = 0; k < suite->world->machine.n; k++) {
            int is_meant = strcmp(wanted, "host") == 0 ? k == 0 : k > 0;
            has_room |= is_meant && needs.items[i].bytes <= room_beside_ours(suite, loop, k);
        }
        if (!has_room)
            return 0;
    }
    return 1;
}

static enum budget_turn turn_of(struct budget_suite *suite, const struct loop *loop, size_t test)
{
    size_t running[RUNNING_MAX];
    struct mt_strbuf why = {0};
    for (size_t i = 0; i < loop->n_running; i++)
        running[i] = loop->running[i].test;
    enum budget_turn turn = budget_turn_of(suite, test, running, loop->n_running, &why);
    if (turn == BUDGET_TURN_NEVER)
        conclude(suite, test, BUDGET_CANNOT, &why);
    else
        mt_strbuf_finish(&why);
    return turn;
}

/* Nothing runs, and each that waits waits for another one. */
static void give_up(struct budget_suite *suite, struct loop *loop)
{
    for (size_t i = 0; i < loop->n_waiting; i++) {
        struct mt_strbuf why = {0};
        mt_strbuf_puts(&why, "it waits for tests that wait for it\n");
        conclude(suite, loop->waiting[i], BUDGET_CANNOT, &why);
    }
    loop->n_waiting = 0;
}

static int start_what_fits(struct budget_suite *suite, struct loop *loop)
{
    size_t n_later = 0;
    uint64_t now_ns = mt_monotonic_ns();
    if (loop->asked_ns && now_ns - loop->asked_ns < ASK_EVERY_NS)
        return CLI_EXIT_OK;
    size_t kept = 0;
    int code = budget_world_look(suite->world);
    for (size_t i = 0; i < loop->n_waiting; i++) {
        size_t test = loop->waiting[i];
        enum budget_turn turn = turn_of(suite, loop, test);
        int started = turn == BUDGET_TURN_NEVER ? -1 : 0;
        n_later += turn == BUDGET_TURN_LATER;
        if (turn == BUDGET_TURN_NOW && !code && loop->n_running < suite->n_jobs &&
            is_worth_asking(suite, loop, test))
            started = try_start(suite, test, &loop->running[loop->n_running]);
        if (started > 0)
            loop->n_running++;
        if (started == 0)
            loop->waiting[kept++] = test;
    }
    int has_changed = loop->n_waiting != kept;
    loop->n_waiting = kept;
    loop->asked_ns = now_ns;
    if (loop->n_running == 0 && !has_changed && n_later == kept)
        give_up(suite, loop);
    return code;
}

static int end_what_ended(struct budget_suite *suite, struct loop *loop)
{
    struct mt_error error;
    for (size_t i = 0; i < loop->n_running;) {
        struct running *running = &loop->running[i];
        struct mt_job_status status;
        budget_run_wait(&running->run, i == 0 ? LOOK_MS : 0, &status);
        if (status.elapsed_ns - running->renewed_ns > RENEW_EVERY_NS) {
            budget_renew(suite->world, &running->held, &status);
            running->renewed_ns = status.elapsed_ns;
        }
        if (status.running && status.elapsed_ns > suite->tests->items[running->test].timeout_ns) {
            mt_job_signal(running->run.job, SIGKILL);
            running->was_ended = 1;
        }
        if (status.running) {
            i++;
            continue;
        }
        if (finish(suite, running))
            loop->waiting[loop->n_waiting++] = running->test;
        loop->running[i] = loop->running[--loop->n_running];
        loop->asked_ns = 0;
        if (budget_history_write(suite, &error) < 0) {
            cli_complain("test: %s", error.text);
            return CLI_EXIT_CANNOT;
        }
    }
    return CLI_EXIT_OK;
}

static void end_all(struct budget_suite *suite, struct loop *loop)
{
    for (size_t i = 0; i < loop->n_running; i++) {
        struct running *running = &loop->running[i];
        struct budget_end end;
        mt_job_signal(running->run.job, SIGKILL);
        budget_run_finish(&running->run, &end);
        budget_release(suite->world, &running->held);
        fclose(running->output);
    }
}

static void leave_out(struct budget_suite *suite)
{
    for (size_t i = 0; suite->leaves_out_passed && i < suite->tests->n; i++)
        if (suite->results[i].passed_last && !budget_is_fixture(&suite->tests->items[i])) {
            struct mt_strbuf why = {0};
            mt_strbuf_puts(&why, "it passed in the last run\n");
            conclude(suite, i, BUDGET_SKIPPED, &why);
        }
}

static int count_bad(const struct budget_suite *suite)
{
    int n = 0;
    for (size_t i = 0; i < suite->tests->n; i++)
        n += suite->results[i].outcome != BUDGET_PASSED &&
             suite->results[i].outcome != BUDGET_SKIPPED;
    return n;
}

int budget_suite_run(struct budget_suite *suite)
{
    struct mt_error error;
    struct loop loop = {.running = calloc(RUNNING_MAX, sizeof *loop.running),
                        .waiting = calloc(suite->tests->n, sizeof *loop.waiting)};
    suite->n_jobs = suite->n_jobs < RUNNING_MAX ? suite->n_jobs : RUNNING_MAX;
    int code = loop.running && loop.waiting ? budget_world_look(suite->world) : CLI_EXIT_CANNOT;
    if (code == CLI_EXIT_OK && budget_history_read(suite, &error) < 0) {
        cli_complain("test: %s", error.text);
        code = CLI_EXIT_USAGE;
    }
    if (code == CLI_EXIT_OK) {
        leave_out(suite);
        loop.n_waiting = budget_order(suite, loop.waiting);
    }
    while (code == CLI_EXIT_OK && (loop.n_waiting || loop.n_running) && !*suite->interrupted) {
        code = start_what_fits(suite, &loop);
        if (code == CLI_EXIT_OK && loop.n_running)
            code = end_what_ended(suite, &loop);
        else
            usleep(LOOK_MS * 1000);
    }
    end_all(suite, &loop);
    free(loop.running);
    free(loop.waiting);
    return code ? code : count_bad(suite) ? CLI_EXIT_NO : CLI_EXIT_OK;
}
