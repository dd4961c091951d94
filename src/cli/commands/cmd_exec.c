/* SPDX-License-Identifier: MIT */
/* memtally exec: a program that waits for room, is held to it, and leaves nothing unseen. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <memtally/error.h>

#include "base/ticks.h"
#include "cli/budget/admit.h"
#include "cli/budget/held_run.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/forward.h"
#include "cli/shared_options.h"
#include "cli/words.h"

#define ASK_MS       100
#define LOOK_MS      100
#define EXEC_NO_ROOM 124 /* as timeout(1) */
#define RENEW_EVERY  5   /* looks */

struct exec_options {
    struct budget_options budget;
    struct cli_texts needs;
    const char *wait;
    const char *spec;
    int quiet;
};

#define AT(member) offsetof(struct exec_options, member)

static const struct cli_option exec_options[] = {
    {.name = "need",
     .letter = 'n',
     .kind = CLI_TEXTS,
     .argument = "PLACE=SIZE[,...]",
     .offset = AT(needs),
     .help = "what CMD needs: host=2GiB, gpu0=4GiB; gpu=4GiB is any device with room, and a second "
             "one is another device"},
    {.name = "wait",
     .letter = 'w',
     .kind = CLI_TEXT,
     .argument = "TIME",
     .fallback = "0",
     .offset = AT(wait),
     .help = "how long to wait for room: 90s, 10m, 1.5h"},
    BUDGET_OPTIONS(AT(budget)),
    {.name = "resource-spec",
     .kind = CLI_FILE,
     .argument = "FILE",
     .offset = AT(spec),
     .help = "write what memtally holds, in slots of 256 MiB, for ctest --resource-spec-file"},
    CLI_OPTION_QUIET(AT(quiet), "say nothing about waiting or about how memtally holds CMD"),
    {0},
};

/* ---- room ---- */

static int complain_of_room(struct budget_world *world, struct budget_held *held, int status,
                            const struct mt_error *error)
{
    struct mt_strbuf holders = {0};
    budget_release(world, held);
    held->id = 0;
    if (status != MT_EBUSY) {
        cli_complain("exec: %s", error->text);
        return CLI_EXIT_FAILED;
    }
    budget_put_holders(world, &holders);
    cli_complain("exec: no room; wait longer with --wait, or ask for less");
    budget_put_room(world, &holders);
    cli_complain_lines(mt_strbuf_text(&holders), "  ", 1);
    mt_strbuf_finish(&holders);
    return EXEC_NO_ROOM;
}

/* A signal ends the waiting as it ends any program, and the request with it. */
static int wait_for_room(struct budget_world *world, const struct exec_options *options,
                         uint64_t wait_ns, struct budget_held *held,
                         const struct budget_needs *needs)
{
    const struct timespec moment = {.tv_nsec = ASK_MS * 1000000};
    struct mt_error error;
    uint64_t until = mt_monotonic_ns() + wait_ns;
    int says = !options->quiet;
    int status = budget_ask(world, needs, held, &error);
    while (status == 0) {
        int code = budget_world_look(world);
        if (code)
            return code;
        status = budget_take(world, held, &error);
        if (status == 0)
            return CLI_EXIT_OK;
        if (status != MT_EBUSY || mt_monotonic_ns() >= until)
            break;
        if (says)
            cli_complain("exec: waits for room: %s", error.text);
        says = 0;
        status = 0;
        nanosleep(&moment, NULL);
    }
    return complain_of_room(world, held, status, &error);
}

/* ---- the run ---- */

static void watch(struct budget_world *world, const struct budget_held *held,
                  struct budget_run *run)
{
    struct mt_job_status status = {.running = 1};
    for (unsigned i = 0; status.running; i++) {
        budget_run_wait(run, LOOK_MS, &status);
        if (i % RENEW_EVERY == 0)
            budget_renew(world, held, &status);
    }
}

static void tell_end(const struct budget_run *run, const struct budget_end *end)
{
    struct mt_strbuf left = {0};
    if (end->job.is_past_cap)
        cli_complain("exec: CMD went past what it needs, and was refused more or killed; ask for "
                     "more with --need");
    if (end->n_refusals)
        cli_complain("exec: a device refused memory past what CMD needs, %zu time%s; ask for more "
                     "with --need",
                     end->n_refusals, end->n_refusals == 1 ? "" : "s");
    budget_put_left(run, end, &left);
    for (char *at = left.data, *line; at && (line = strsep(&at, "\n")) && *line;)
        cli_complain("exec: %s", line);
    mt_strbuf_finish(&left);
}

static int run_held(struct budget_world *world, const struct exec_options *options,
                    struct budget_held *held, char **argv)
{
    struct mt_job_options job = {
        .argv = argv, .environment = environ, .stdout_fd = -1, .stderr_fd = -1};
    struct budget_run run;
    struct budget_end end;
    int code = options->spec ? budget_write_spec(world, held, options->spec) : CLI_EXIT_OK;
    if (code)
        return CLI_EXIT_FAILED;
    cli_forward_begin();
    code = budget_run_start(&run, world, held, (enum mt_job_cap)options->budget.cap, &job);
    if (code)
        return code;
    cli_forward_to_job(run.job);
    watch(world, held, &run);
    cli_forward_to_job(NULL);
    budget_run_finish(&run, &end);
    if (!options->quiet && options->budget.cap == MT_JOB_CAP_AUTO &&
        end.job.cap == MT_JOB_CAP_RLIMIT)
        cli_complain("exec: each process of CMD was held to its need by itself, not all together: "
                     "'memtally doctor' says why");
    tell_end(&run, &end);
    return end.job.exit_code;
}

static int read_options(const struct exec_options *options, struct budget_needs *needs,
                        uint64_t *wait_ns)
{
    struct mt_error error;
    needs->n = 0;
    for (size_t i = 0; i < options->needs.n; i++)
        if (budget_parse_needs(options->needs.items[i], needs, &error) < 0) {
            cli_complain("exec: %s", error.text);
            return CLI_EXIT_USAGE;
        }
    if (needs->n == 0) {
        cli_complain("exec: say what CMD needs with --need, as in --need host=2GiB,gpu0=4GiB");
        return CLI_EXIT_USAGE;
    }
    if (budget_parse_time(options->wait, wait_ns) < 0) {
        cli_complain("exec: '%s' is no time, as in --wait 10m", options->wait);
        return CLI_EXIT_USAGE;
    }
    return CLI_EXIT_OK;
}

static int run_exec(const struct cli_call *call)
{
    const struct exec_options *options = call->options;
    struct budget_needs needs;
    struct budget_world world;
    struct budget_held held;
    uint64_t wait_ns;
    int code = read_options(options, &needs, &wait_ns);
    if (code)
        return code;
    code = budget_world_init(&world, "exec", &options->budget);
    if (code == CLI_EXIT_OK) {
        held.id = 0;
        code = wait_for_room(&world, options, wait_ns, &held, &needs);
        if (code == CLI_EXIT_OK)
            code = run_held(&world, options, &held, call->operands);
        budget_release(&world, &held);
    }
    budget_world_finish(&world);
    return code;
}

static const char *const description[] = {
    "Reserves what CMD needs of the host and of devices, waits for room, runs CMD, and gives it "
    "back at CMD's end, however memtally ends. So programs share the machine without guessing. "
    "What other programs hold counts as taken.",
    "If there is room, memtally serves the first that asked. A later request that fits may pass "
    "an earlier one that does not, up to 8 times.",
    "CMD sees only those real devices that memtally holds for it, by CUDA_VISIBLE_DEVICES. "
    "memtally holds CMD to what it needs: --cap says how. No driver holds a program to a part of a "
    "real device. So memtally preloads its recorder into CMD, which refuses what is past the need "
    "as the driver would (CUDA), and tells CMD that no more is free. If the recorder cannot enter "
    "CMD, memtally does not run it there unless --cap is watch or none. Pretended devices refuse "
    "by themselves.",
    "When CMD has ended, memtally names what it left behind, if that is more than 100 MiB: in "
    "processes that still live a second later, in shared memory, on devices.",
    NULL,
};

static const struct cli_example examples[] = {
    {"memtally exec --need host=2GiB,gpu=4GiB --wait 10m -- ./serve",
     "Any device with 4 GiB free, of which ./serve gets no more; at most 10 minutes of waiting."},
    {"memtally exec --need host=512MiB -- make check", "All processes of make in 512 MiB."},
    {"memtally exec --on 24GiB --need gpu0=4GiB -- python3 train.py",
     "A pretended device that refuses past 4 GiB."},
    {0},
};

static const struct cli_status statuses[] = {
    {"status of CMD", "CMD was run; 128+n if signal n killed it"},
    {"2", "wrong usage"},
    {"124", "there was no room within the time of --wait"},
    {"125", "memtally itself failed, or cannot hold CMD to its need here"},
    {"126", "CMD was found and cannot be run"},
    {"127", "CMD was not found"},
    {0},
};

const struct cmd_entry cmd_exec = {
    .name = "exec",
    .synopsis = "--need PLACE=SIZE[,...] [options] [--] CMD [ARGUMENT...]",
    .summary = "run a program once there is room, and hold it to what it needs",
    .description = description,
    .examples = examples,
    .statuses = statuses,
    .options = exec_options,
    .options_size = sizeof(struct exec_options),
    .operands = CLI_OPERANDS_PROGRAM,
    .least_operands = 1,
    .run = run_exec,
};
