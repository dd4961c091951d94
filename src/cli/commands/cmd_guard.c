/* SPDX-License-Identifier: MIT */
/* memtally guard: a program that is kept below a limit, and what was done to keep it there. */
#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <memtally/error.h>
#include <memtally/guard.h>
#include <memtally/units.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/budget/needs.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/document/grown.h"
#include "cli/forward.h"
#include "cli/grown.h"
#include "cli/interrupt.h"
#include "cli/shared_options.h"
#include "drive/give_back.h"
#include "net/http_client.h"

struct guard_options {
    uint64_t limit_bytes;
    const char *device_limit;
    uint64_t pid;
    double percent;
    const char *call;
    const char *signal;
    int empty_slots;
    const char *grace;
    const char *freeze;
    const char *end;
    int quiet;
};

#define AT(member) offsetof(struct guard_options, member)

static const struct cli_option guard_cli_options[] = {
    {.name = "limit",
     .letter = 'l',
     .kind = CLI_SIZE,
     .argument = "SIZE",
     .offset = AT(limit_bytes),
     .help = "what CMD and all its processes may use of the host's memory together"},
    {.name = "device-limit",
     .kind = CLI_TEXT,
     .argument = "gpu0=SIZE,...",
     .offset = AT(device_limit),
     .help =
         "what CMD may use of NVIDIA's devices, by the driver's numbers and figures; the memory "
         "of other programs does not count"},
    CLI_OPTION_PID(AT(pid), "guard a running process and its descendants"),
    {.name = "from",
     .kind = CLI_REAL,
     .argument = "PERCENT",
     .fallback = "85",
     .least = 1,
     .most = 100,
     .offset = AT(percent),
     .help = "the share of the limit from which memtally acts"},
    {.name = "call",
     .kind = CLI_TEXT,
     .argument = "COMMAND",
     .offset = AT(call),
     .help = "first, run COMMAND by sh, with MEMTALLY_PID and MEMTALLY_USED_BYTES in its "
             "environment; not again before it has ended"},
    {.name = "signal",
     .kind = CLI_TEXT,
     .argument = "NAME",
     .offset = AT(signal),
     .help = "then send CMD this signal, on which it gives memory back: USR1, USR2, HUP, WINCH or "
             "a number"},
    {.name = "empty-slots",
     .kind = CLI_FLAG,
     .offset = AT(empty_slots),
     .help = "then ask CMD, if it is a llama-server, to empty the slots that serve no request; it "
             "must have been started with --slot-save-path"},
    {.name = "grace",
     .kind = CLI_TEXT,
     .argument = "TIME",
     .fallback = "2s",
     .offset = AT(grace),
     .help = "how long memtally waits for a command, a signal or a server before the next step"},
    {.name = "freeze",
     .kind = CLI_TEXT,
     .argument = "TIME",
     .fallback = "0",
     .offset = AT(freeze),
     .help = "then stop CMD for this time; 0 leaves this step out"},
    {.name = "end",
     .kind = CLI_TEXT,
     .argument = "TIME",
     .fallback = "10s",
     .offset = AT(end),
     .help = "then send CMD SIGTERM, and kill it after this time"},
    CLI_OPTION_QUIET(AT(quiet), "do not say what memtally does, nor how it holds CMD"),
    {0},
};

/* ---- what is asked for ---- */

/* Returns the signal's number, 0 where none is named, or -1. */
static int signal_of(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } known[] = {{"HUP", SIGHUP}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"WINCH", SIGWINCH}};
    char *end;
    if (!name)
        return 0;
    if (strncasecmp(name, "SIG", 3) == 0)
        name += 3;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcasecmp(name, known[i].name) == 0)
            return known[i].number;
    long number = strtol(name, &end, 10);
    return *name && !*end && number > 0 && number < NSIG ? (int)number : -1;
}

static int check_times(const struct guard_options *options, struct mt_guard_options *asked)
{
    const struct {
        const char *text;
        uint64_t *ns;
        const char *option;
    } times[] = {{options->grace, &asked->grace_ns, "--grace 2s"},
                 {options->freeze, &asked->freeze_ns, "--freeze 30s"},
                 {options->end, &asked->end_ns, "--end 10s"}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (budget_parse_time(times[i].text, times[i].ns) < 0) {
            cli_complain("guard: '%s' is no time, as in %s", times[i].text, times[i].option);
            return CLI_EXIT_USAGE;
        }
    /* 0 would be the library's own time. */
    asked->grace_ns += asked->grace_ns == 0;
    asked->end_ns += asked->end_ns == 0;
    return CLI_EXIT_OK;
}

static int read_device_limits(const char *text, struct mt_job_device devices[MT_JOB_DEVICES],
                              size_t *n)
{
    struct budget_needs needs = {.n = 0};
    struct mt_error error;
    if (text && budget_parse_needs(text, &needs, &error) < 0) {
        cli_complain("guard: %s", error.text);
        return CLI_EXIT_USAGE;
    }
    for (size_t i = 0; i < needs.n; i++) {
        const char *place = needs.items[i].place;
        if (strncmp(place, "gpu", 3) != 0 || !isdigit((unsigned char)place[3])) {
            cli_complain("guard: --device-limit takes gpu0=SIZE and so on; the host's is --limit");
            return CLI_EXIT_USAGE;
        }
        devices[*n].index = (unsigned)strtoul(place + 3, NULL, 10);
        devices[(*n)++].bytes = needs.items[i].bytes;
    }
    return CLI_EXIT_OK;
}

static int read_options(const struct cli_call *call, struct mt_guard_options *asked,
                        struct mt_job_device devices[MT_JOB_DEVICES])
{
    const struct guard_options *options = call->options;
    int code = read_device_limits(options->device_limit, devices, &asked->n_devices);
    if (code)
        return code;
    asked->devices = devices;
    asked->limit_bytes = options->limit_bytes;
    asked->act_ratio = options->percent / 100;
    asked->pid = (int)options->pid;
    asked->argv = call->n_operands ? call->operands : NULL;
    asked->environment = environ;
    asked->signal = signal_of(options->signal);
    if (!options->limit_bytes && !asked->n_devices)
        cli_complain("guard: say what CMD may use with --limit, as in --limit 2GiB");
    else if (asked->pid && asked->n_devices)
        cli_complain("guard: --device-limit is for a program that guard starts");
    else if (!asked->argv == !asked->pid)
        cli_complain("guard: name a program after --, or a process with --pid, and not both");
    else if (asked->signal < 0)
        cli_complain("guard: '%s' is no signal; name USR1, USR2, HUP, WINCH or a number",
                     options->signal);
    else
        return check_times(options, asked);
    return CLI_EXIT_USAGE;
}

/* ---- the server that is asked ---- */

#define ASK_MS 5000

/* What the last question came to; written by the guard's thread. */
struct asked {
    pthread_mutex_t lock;
    int is_untold;
    struct mt_drive_given given;
};

struct called {
    struct asked asked;
    const char *command;
    int guarded_pid;
    struct mt_guard *guard;
    pid_t pid; /* of the one that runs, or 0 */
};

static int guarded_pid(const struct called *called)
{
    return called->guard ? mt_guard_pid(called->guard) : called->guarded_pid;
}

static void ask(void *context, uint64_t used_bytes)
{
    struct called *called = context;
    struct asked *asked = &called->asked;
    struct mt_drive_given given;
    (void)used_bytes;
    mt_drive_give_back("/proc", guarded_pid(called), ASK_MS, &given);
    pthread_mutex_lock(&asked->lock);
    asked->given = given;
    asked->is_untold = 1;
    pthread_mutex_unlock(&asked->lock);
}

static void tell_asked(struct asked *asked, int is_quiet)
{
    pthread_mutex_lock(&asked->lock);
    struct mt_drive_given given = asked->given;
    int is_untold = asked->is_untold && !is_quiet;
    asked->is_untold = 0;
    pthread_mutex_unlock(&asked->lock);
    if (!is_untold)
        return;
    if (given.n_slots)
        cli_complain("guard: its server emptied %u slot%s of %" PRIu64 " tokens, and serves in %u",
                     given.n_slots, given.n_slots == 1 ? "" : "s", given.n_tokens, given.n_busy);
    else if (!*given.problem)
        cli_complain("guard: its server had no slot to empty, and serves in %u", given.n_busy);
    if (*given.problem)
        cli_complain("guard: %s", given.problem);
}

/* ---- the command that is called ---- */

/* The environment with two more lines; both are NULL-terminated. The caller frees the array. */
static char **with_lines(char *first, char *second)
{
    size_t n = 0;
    while (environ[n])
        n++;
    char **made = malloc((n + 3) * sizeof *made);
    if (!made)
        return NULL;
    memcpy(made, environ, n * sizeof *made);
    made[n] = first;
    made[n + 1] = second;
    made[n + 2] = NULL;
    return made;
}

static void call(void *context, uint64_t used_bytes)
{
    struct called *called = context;
    char shell[] = "sh";
    char dash[] = "-c";
    char *command = strdup(called->command);
    char *argv[] = {shell, dash, command, NULL};
    char pid[48];
    char used[48];
    if (called->pid && waitpid(called->pid, NULL, WNOHANG) == 0) {
        free(command);
        return; /* still at the last one */
    }
    called->pid = 0;
    snprintf(pid, sizeof pid, "MEMTALLY_PID=%d", guarded_pid(called));
    snprintf(used, sizeof used, "MEMTALLY_USED_BYTES=%" PRIu64, used_bytes);
    char **environment = with_lines(pid, used);
    if (!command || !environment ||
        posix_spawn(&called->pid, "/bin/sh", NULL, NULL, argv, environment) != 0)
        called->pid = 0;
    free(environment);
    free(command);
}

/* ---- telling ---- */

static const char *const deeds[] = {
    [MT_GUARD_CALL] = "runs the command of --call",
    [MT_GUARD_SIGNAL] = "sends its signal",
    [MT_GUARD_ASK] = "asks its server to empty slots",
    [MT_GUARD_FREEZE] = "lets it stand still",
    [MT_GUARD_END] = "sends SIGTERM",
    [MT_GUARD_KILL] = "kills it",
};

/* "" for the host, else " of gpu0". */
static const char *of_place(const struct mt_guard_act *act, char text[24])
{
    *text = '\0';
    if (act->device != MT_GUARD_HOST)
        snprintf(text, 24, " of gpu%d", act->device);
    return text;
}

static void tell_new(const struct mt_guard *guard, size_t n_before, size_t n_now)
{
    struct mt_guard_act acts[MT_GUARD_ACTS];
    char used[MT_SIZE_TEXT];
    char limit[MT_SIZE_TEXT];
    char place[24];
    size_t n = n_now - n_before < MT_GUARD_ACTS ? n_now - n_before : MT_GUARD_ACTS;
    n = mt_guard_acts(guard, acts, n);
    for (size_t i = 0; i < n; i++)
        cli_complain("guard: the program uses %s of %s%s; memtally %s",
                     mt_format_size(acts[i].used_bytes, used),
                     mt_format_size(acts[i].limit_bytes, limit), of_place(&acts[i], place),
                     deeds[acts[i].step]);
}

static void tell_act(const struct mt_guard_act *act)
{
    char line[160];
    char used[MT_SIZE_TEXT];
    char least[MT_SIZE_TEXT];
    char place[24];
    snprintf(line, sizeof line, "%8.2f s  %-6s  %s%s, then %s", (double)act->elapsed_ns / 1e9,
             mt_guard_step_name(act->step), mt_format_size(act->used_bytes, used),
             of_place(act, place), mt_format_size(act->least_bytes, least));
    cli_complain_lines(line, "  ", 1);
}

static void tell_end(const struct mt_guard_result *result, uint64_t limit_bytes)
{
    char peak[MT_SIZE_TEXT];
    char limit[MT_SIZE_TEXT];
    if (!result->n_acts)
        return;
    mt_format_size(result->peak_bytes, peak);
    if (limit_bytes)
        cli_complain("guard: the program used %s of %s at most; memtally acted %zu time%s", peak,
                     mt_format_size(limit_bytes, limit), result->n_acts,
                     result->n_acts == 1 ? "" : "s");
    else
        cli_complain("guard: the program used %s of the host at most; memtally acted %zu time%s",
                     peak, result->n_acts, result->n_acts == 1 ? "" : "s");
    size_t n = result->n_acts < MT_GUARD_ACTS ? result->n_acts : MT_GUARD_ACTS;
    for (size_t i = 0; i < n; i++)
        tell_act(&result->acts[i]);
}

/* ---- what grew ---- */

/* If the program is recorded, memtally asks what grew when it tells of a leak and when it takes a
 * step. */
static void follow_growth(struct cli_grown *grown, const struct mt_guard *guard,
                          const struct mt_guard_status *before, const struct mt_guard_status *now)
{
    const struct mt_monitor_growth *growth = &now->growth;
    char each[MT_SIZE_TEXT];
    char when[64] = "";
    if (now->n_leaks > before->n_leaks) {
        if (growth->full_ns != MT_UNKNOWN)
            snprintf(when, sizeof when, ", and is at its limit in %.0f min",
                     (double)growth->full_ns / 60e9);
        cli_complain("guard: the program leaks %s a minute%s",
                     mt_format_size((uint64_t)(growth->bytes_per_s * 60), each), when);
    }
    if (now->n_leaks > before->n_leaks || now->n_acts > before->n_acts)
        cli_grown_ask(grown, mt_guard_pid(guard),
                      growth->leak == MT_LEAK_FAST ? CLI_GROWN_FAST_NS : CLI_GROWN_SLOW_NS);
}

static void tell_growth(struct cli_grown *grown, int waits)
{
    const struct mt_recording_growth *growth = cli_grown_take(grown, waits);
    struct mt_strbuf lines = {0};
    if (!growth)
        return;
    cli_document_grown(growth, &lines);
    cli_complain("guard: what the program has more than before");
    cli_complain_lines(mt_strbuf_text(&lines), "  ", 1);
    mt_strbuf_finish(&lines);
}

/* ---- the run ---- */

/* Watches until the program ends, or until somebody asks memtally to end. A program that memtally
 * starts hears of that itself. */
static void watch(struct mt_guard *guard, struct called *called, struct cli_grown *grown,
                  int is_quiet)
{
    static const volatile sig_atomic_t never;
    const volatile sig_atomic_t *is_over = mt_guard_job(guard) ? &never : cli_catch_signals();
    struct mt_guard_status status = {0};
    do {
        struct mt_guard_status before = status;
        mt_guard_wait(guard, &status);
        if (!is_quiet && status.n_acts > before.n_acts)
            tell_new(guard, before.n_acts, status.n_acts);
        if (!is_quiet)
            follow_growth(grown, guard, &before, &status);
        tell_growth(grown, 0);
        tell_asked(&called->asked, is_quiet);
    } while (status.running && !*is_over);
}

static int exit_of(const struct mt_error *error, int starts)
{
    cli_complain("guard: %s", error->text);
    if (!starts)
        return CLI_EXIT_FAILED;
    return error->code == MT_ENOTFOUND ? CLI_EXIT_NOT_FOUND
           : error->code == MT_EPERM   ? CLI_EXIT_NOT_EXECUTABLE
                                       : CLI_EXIT_FAILED;
}

static int run_guard(const struct cli_call *call_line)
{
    const struct guard_options *options = call_line->options;
    struct mt_guard_options asked = {0};
    struct mt_job_device devices[MT_JOB_DEVICES];
    struct called called = {.asked = {.lock = PTHREAD_MUTEX_INITIALIZER},
                            .command = options->call,
                            .guarded_pid = (int)options->pid};
    struct mt_guard *guard;
    struct cli_grown grown = {0};
    struct mt_guard_result result;
    struct mt_error error;
    int code = read_options(call_line, &asked, devices);
    if (code)
        return code;
    asked.call = options->call ? call : NULL;
    if (options->empty_slots && mt_http_start(&error) < 0)
        return exit_of(&error, 0);
    asked.ask = options->empty_slots ? ask : NULL;
    asked.context = &called;
    if (asked.argv)
        cli_forward_begin();
    if (mt_guard_start(&asked, &guard, &error) < 0)
        return exit_of(&error, asked.argv != NULL);
    called.guard = guard;
    if (asked.argv)
        cli_forward_to_job(mt_guard_job(guard));
    watch(guard, &called, &grown, options->quiet);
    cli_forward_to_job(NULL);
    mt_guard_finish(guard, &result);
    if (!options->quiet)
        tell_end(&result, asked.limit_bytes);
    tell_growth(&grown, 1);
    cli_grown_finish(&grown);
    tell_asked(&called.asked, options->quiet);
    if (options->empty_slots)
        mt_http_stop();
    return asked.argv ? result.job.exit_code : CLI_EXIT_OK;
}

static const char *const description[] = {
    "Runs CMD, or finds a process that runs, and keeps what it uses of the host's memory below a "
    "limit. From 85 % of the limit on memtally acts, one step after the other: it runs the "
    "command of --call, sends the signal of --signal, has a server empty its slots with "
    "--empty-slots, stops CMD for the time of --freeze, sends SIGTERM, and kills CMD. memtally "
    "takes the last two steps always, and the others if you ask for them. If CMD then uses less, "
    "the steps begin anew the next time.",
    "If CMD would reach its limit before memtally looks again, it gets no time between the first "
    "steps.",
    "At the end memtally says what it did, and how little CMD used after each step.",
    "If CMD's use of the host grows without end, memtally says so, and when it will reach the "
    "limit. If you record CMD too (guard -- memtally run -- CMD), memtally says with each leak "
    "and each step which categories and which call stacks grew.",
    NULL,
};

static const struct cli_example examples[] = {
    {"memtally guard --limit 8GiB --signal USR1 -- ./serve",
     "SIGUSR1 from 6.8 GiB on; SIGTERM if that does not help."},
    {"memtally guard --limit 16GiB --empty-slots -- llama-server -m model.gguf --slot-save-path "
     "/tmp",
     "The server first empties what it keeps for later requests."},
    {"memtally guard --limit 8GiB -- memtally run -o recording -- ./serve",
     "Says what grew, by category and call stack, when memory runs short."},
    {"memtally guard --limit 20GiB --call ./drop-cache --pid 4711",
     "A script asks the process for its cache."},
    {0},
};

static const struct cli_status statuses[] = {
    {"status of CMD",
     "CMD was run, and ended by itself or by memtally; 128+n if signal n killed it"},
    {"0", "the process of --pid has ended"},
    {"2", "wrong usage"},
    {"125", "memtally itself failed, or there is no such process"},
    {"126", "CMD was found and cannot be run"},
    {"127", "CMD was not found"},
    {0},
};

const struct cmd_entry cmd_guard = {
    .name = "guard",
    .synopsis = "--limit SIZE [options] (--pid PID | [--] CMD [ARGUMENT...])",
    .summary = "keep a program below a limit before the kernel kills it",
    .description = description,
    .examples = examples,
    .statuses = statuses,
    .options = guard_cli_options,
    .options_size = sizeof(struct guard_options),
    .operands = CLI_OPERANDS_PROGRAM,
    .run = run_guard,
};
