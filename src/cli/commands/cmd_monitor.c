/* SPDX-License-Identifier: MIT */
/* memtally monitor: how full places are, again and again. */
#include <inttypes.h>
#include <limits.h>
#include <memtally/alarm.h>
#include <memtally/error.h>
#include <memtally/monitor.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "cli/budget/needs.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/document/grown.h"
#include "cli/grown.h"
#include "cli/interrupt.h"
#include "cli/shared_options.h"
#include "emit/sparkline.h"

#define PLACES      CLI_TEXTS_MAX
#define CURVE       40u /* snapshots */
#define NS_PER_S    1000000000u
#define MOST_STORM  100000000u /* between two looks that alarms ask for */
#define MOST_GPUS   16
#define PLACE_CHARS 24

struct monitor_options {
    struct cli_texts devices;
    uint64_t pid;
    const char *interval;
    const char *up_to;
    uint64_t count;
    int json;
};

#define AT(member) offsetof(struct monitor_options, member)

static const struct cli_option monitor_cli_options[] = {
    {.name = "device",
     .letter = 'd',
     .kind = CLI_TEXTS,
     .argument = "PLACE",
     .offset = AT(devices),
     .help = "host, cgroup, or gpu0 and so on by the driver's numbers; you may give it several "
             "times. Without it: the host, a control group that has a limit, and all of NVIDIA's "
             "devices"},
    CLI_OPTION_PID(AT(pid), "this program and its descendants: what they have resident"),
    {.name = "interval",
     .letter = 'i',
     .kind = CLI_TEXT,
     .argument = "TIME",
     .fallback = "1s",
     .offset = AT(interval),
     .help = "the time between two looks, at least 1ms; shorter if the kernel says that memory "
             "is short"},
    {.name = "up-to",
     .kind = CLI_TEXT,
     .argument = "TIME",
     .offset = AT(up_to),
     .help = "the longest time between two looks, if no place can reach the next level of "
             "pressure sooner; without it memtally always waits for --interval"},
    {.name = "count",
     .letter = 'n',
     .kind = CLI_COUNT,
     .argument = "N",
     .offset = AT(count),
     .help = "end after this number of looks; 0: go on until a signal, or the end of --pid"},
    {.name = "json",
     .kind = CLI_FLAG,
     .offset = AT(json),
     .help = "print a line with an object for each place and look"},
    {0},
};

/* ---- places ---- */

struct place {
    char name[PLACE_CHARS];
    struct mt_monitor *monitor;
    struct mt_monitor_snapshot seen;
    int pid; /* of a program, else 0 */
    size_t n_leaks;
};

struct view {
    struct place places[PLACES + 1];
    size_t n;
    struct mt_alarm *alarm; /* or NULL */
    struct mt_alarm_counts alarms;
    struct cli_grown grown;
    const struct mt_recording_growth *growth; /* that is new, or on a terminal shown */
    struct cli_terminal terminal;
    int json;
    uint64_t least_ns; /* from one look to the next */
    uint64_t most_ns;
    uint64_t begin_ns;
    size_t n_drawn; /* lines that are drawn over */
};

static int add_place(struct view *view, const char *name, struct mt_error *error)
{
    struct place *place = &view->places[view->n];
    struct mt_monitor_source source;
    if (strlen(name) < PLACE_CHARS)
        strcpy(place->name, name);
    int status = mt_monitor_open_source(name, &source, error);
    if (status == 0)
        status = mt_monitor_create(&source, NULL, &place->monitor, error);
    view->n += status == 0;
    return status;
}

static int add_all(struct view *view, struct mt_error *error)
{
    int status = add_place(view, "host", error);
    if (status == 0)
        add_place(view, "cgroup", NULL);
    for (int i = 0; status == 0 && i < MOST_GPUS; i++) {
        char name[PLACE_CHARS];
        snprintf(name, sizeof name, "gpu%d", i);
        if (add_place(view, name, NULL) < 0)
            break;
    }
    return status;
}

static int open_places(struct view *view, const struct monitor_options *options,
                       struct mt_error *error)
{
    int status = 0;
    char name[PLACE_CHARS];
    if (options->devices.n == 0 && !options->pid)
        return add_all(view, error);
    snprintf(name, sizeof name, "pid:%" PRIu64, options->pid);
    if (options->pid)
        status = add_place(view, name, error);
    view->places[0].pid = (int)options->pid;
    for (size_t i = 0; status == 0 && i < options->devices.n; i++)
        status = add_place(view, options->devices.items[i], error);
    return status;
}

static void close_places(struct view *view)
{
    for (size_t i = 0; i < view->n; i++)
        mt_monitor_destroy(view->places[i].monitor);
    mt_alarm_close(view->alarm);
    cli_grown_finish(&view->grown);
}

/* ---- lines ---- */

static double seconds_of(const struct view *view, const struct place *place)
{
    return (double)(place->seen.time_ns - view->begin_ns) / NS_PER_S;
}

static const char *leak_name(enum mt_leak leak)
{
    return leak == MT_LEAK_FAST ? "fast" : leak == MT_LEAK_SLOW ? "slow" : "none";
}

static void put_leak(struct mt_strbuf *out, const struct mt_monitor_growth *growth)
{
    char each[MT_SIZE_TEXT];
    if (growth->leak == MT_LEAK_NONE)
        return;
    mt_strbuf_printf(out, "; leaks %s a minute",
                     mt_format_size((uint64_t)(growth->bytes_per_s * 60), each));
    if (growth->full_ns != MT_UNKNOWN)
        mt_strbuf_printf(out, ", full in %.0f min", (double)growth->full_ns / NS_PER_S / 60);
}

static void put_figures(struct mt_strbuf *out, const struct place *place)
{
    const struct mt_monitor_snapshot *seen = &place->seen;
    char allocated[MT_SIZE_TEXT];
    char total[MT_SIZE_TEXT];
    mt_strbuf_printf(out, "%-8s %5.1f %%  %10s of %10s  %s", place->name,
                     seen->utilisation_ratio * 100,
                     mt_format_size(seen->allocated_bytes, allocated),
                     mt_format_size(seen->total_bytes, total), mt_pressure_name(seen->pressure));
}

static void put_line(struct mt_strbuf *out, const struct view *view, const struct place *place)
{
    struct mt_monitor_stats stats;
    mt_monitor_stats_read(place->monitor, &stats);
    mt_strbuf_printf(out, "%9.3f s  ", seconds_of(view, place));
    put_figures(out, place);
    put_leak(out, &stats.growth);
    mt_strbuf_puts(out, "\n");
}

static void put_alarms_json(struct mt_strbuf *out, const struct view *view)
{
    const char *before = "";
    mt_strbuf_puts(out, ", \"alarms\": {");
    for (int kind = 0; view->alarm && kind < MT_N_ALARMS; kind++) {
        if (!view->alarms.is_waited_for[kind])
            continue;
        mt_strbuf_printf(out, "%s\"%s\": %" PRIu64, before,
                         mt_alarm_kind_name((enum mt_alarm_kind)kind), view->alarms.n[kind]);
        before = ", ";
    }
    mt_strbuf_puts(out, "}");
}

static void put_json(struct mt_strbuf *out, const struct view *view, const struct place *place)
{
    const struct mt_monitor_snapshot *seen = &place->seen;
    struct mt_monitor_stats stats;
    mt_monitor_stats_read(place->monitor, &stats);
    mt_strbuf_printf(out,
                     "{\"schema\": \"memtally/1\", \"kind\": \"monitor\", \"place\": \"%s\", "
                     "\"elapsed_s\": %.3f, \"total_bytes\": %" PRIu64
                     ", \"allocated_bytes\": %" PRIu64 ", \"available_bytes\": %" PRIu64
                     ", \"utilisation_ratio\": %.6f, \"pressure\": \"%s\", \"peak_bytes\": %" PRIu64
                     ", \"leak\": \"%s\", \"growth_bytes_per_s\": %.0f, \"full_s\": ",
                     place->name, seconds_of(view, place), seen->total_bytes, seen->allocated_bytes,
                     seen->available_bytes, seen->utilisation_ratio,
                     mt_pressure_name(seen->pressure), stats.peak_bytes,
                     leak_name(stats.growth.leak), stats.growth.bytes_per_s);
    if (stats.growth.full_ns == MT_UNKNOWN)
        mt_strbuf_puts(out, "null");
    else
        mt_strbuf_printf(out, "%.0f", (double)stats.growth.full_ns / NS_PER_S);
    put_alarms_json(out, view);
    mt_strbuf_puts(out, "}\n");
}

/* ---- what grew ---- */

/* A leak of a program that is recorded is asked for as it begins. The answer comes at a later look.
 */
static void follow_leak(struct view *view, struct place *place)
{
    struct mt_monitor_stats stats;
    mt_monitor_stats_read(place->monitor, &stats);
    if (stats.n_leaks > place->n_leaks)
        cli_grown_ask(&view->grown, place->pid,
                      stats.growth.leak == MT_LEAK_FAST ? CLI_GROWN_FAST_NS : CLI_GROWN_SLOW_NS);
    place->n_leaks = stats.n_leaks;
}

static void put_growth(struct mt_strbuf *out, struct view *view)
{
    if (!view->growth)
        return;
    view->n_drawn = 0; /* it stays where it is, and places are drawn anew below it */
    if (view->json)
        cli_document_grown_json(view->growth, view->places[0].name, out);
    else
        cli_document_grown(view->growth, out);
    view->growth = NULL;
}

/* ---- the live view ---- */

static void put_curve(struct mt_strbuf *out, const struct view *view, const struct place *place)
{
    struct mt_monitor_snapshot seen[CURVE];
    uint64_t values[CURVE];
    size_t room = view->terminal.columns > 60 ? (size_t)view->terminal.columns - 56 : 4;
    size_t n = mt_monitor_history(place->monitor, seen, room < CURVE ? room : CURVE);
    for (size_t i = 0; i < n; i++)
        values[i] = seen[i].allocated_bytes;
    mt_sparkline(out, values, n, place->seen.total_bytes, view->terminal.utf8);
}

static void put_view(struct mt_strbuf *out, struct view *view)
{
    static const enum cli_tone tones[MT_N_PRESSURES] = {CLI_TONE_GOOD, CLI_TONE_NONE,
                                                        CLI_TONE_DOUBTFUL, CLI_TONE_BAD};
    if (view->n_drawn)
        mt_strbuf_printf(out, "\033[%zuA", view->n_drawn);
    for (size_t i = 0; i < view->n; i++) {
        const struct place *place = &view->places[i];
        struct mt_monitor_stats stats;
        mt_monitor_stats_read(place->monitor, &stats);
        mt_strbuf_puts(out, "\r\033[K");
        mt_strbuf_puts(out, cli_tone(&view->terminal, tones[place->seen.pressure]));
        put_figures(out, place);
        mt_strbuf_puts(out, cli_plain(&view->terminal));
        mt_strbuf_printf(out, "%*s", 10 - (int)strlen(mt_pressure_name(place->seen.pressure)), "");
        if (stats.growth.leak == MT_LEAK_NONE)
            put_curve(out, view, place);
        else
            put_leak(out, &stats.growth);
        mt_strbuf_puts(out, "\n");
    }
    view->n_drawn = view->n;
}

/* ---- the run ---- */

/* Returns CLI_EXIT_OK, or MT_ENOTFOUND where a program has ended, or another code. */
static int look(struct view *view, struct mt_error *error)
{
    int status = 0;
    for (size_t i = 0; status == 0 && i < view->n; i++)
        status = mt_monitor_record(view->places[i].monitor, &view->places[i].seen, error);
    if (status == 0 && view->begin_ns == 0)
        view->begin_ns = view->places[0].seen.time_ns;
    if (status == 0 && view->places[0].pid)
        follow_leak(view, &view->places[0]);
    if (!view->growth)
        view->growth = cli_grown_take(&view->grown, 0);
    return status;
}

static int show(struct view *view)
{
    struct mt_strbuf out;
    mt_strbuf_init(&out);
    if (view->terminal.cursor && !view->json)
        put_view(&out, view);
    else
        for (size_t i = 0; i < view->n; i++)
            view->json ? put_json(&out, view, &view->places[i])
                       : put_line(&out, view, &view->places[i]);
    put_growth(&out, view);
    int code = cli_print(&out);
    mt_strbuf_finish(&out);
    return code;
}

static void sleep_ns(uint64_t ns)
{
    const struct timespec time = {.tv_sec = (time_t)(ns / NS_PER_S),
                                  .tv_nsec = (long)(ns % NS_PER_S)};
    nanosleep(&time, NULL);
}

/* Waits for the next look. A kernel that tells again and again is heard ten times a second. */
static void wait_for_next(struct view *view)
{
    uint64_t interval_ns = view->most_ns;
    for (size_t i = 0; i < view->n; i++)
        interval_ns = mt_monitor_wait_ns(view->places[i].monitor, view->least_ns, interval_ns);
    uint64_t least_ns = interval_ns < MOST_STORM ? interval_ns : MOST_STORM;
    if (!view->alarm) {
        sleep_ns(interval_ns);
        return;
    }
    sleep_ns(least_ns);
    if (interval_ns > least_ns &&
        mt_alarm_wait(view->alarm, interval_ns - least_ns, &view->alarms, NULL) == MT_EUNSUPPORTED)
        sleep_ns(interval_ns - least_ns);
    mt_alarm_read(view->alarm, &view->alarms);
}

static int run_view(struct view *view, const struct monitor_options *options)
{
    const volatile sig_atomic_t *interrupted = cli_catch_signals();
    struct mt_error error;
    for (uint64_t n = 1;; n++) {
        int status = look(view, &error);
        if (status == MT_ENOTFOUND && options->pid && n > 1)
            return CLI_EXIT_OK;
        if (status)
            return cli_fail(&error);
        int code = show(view);
        if (code)
            return code;
        if (n == options->count || *interrupted)
            return CLI_EXIT_OK;
        wait_for_next(view);
        if (*interrupted)
            return CLI_EXIT_OK;
    }
}

static int read_times(const struct monitor_options *options, struct view *view)
{
    const char *up_to = options->up_to ? options->up_to : options->interval;
    if (budget_parse_time(options->interval, &view->least_ns) < 0 || view->least_ns < 1000000) {
        cli_complain("monitor: option '--interval' wants a time of 1ms or more, as 100ms, not '%s'",
                     options->interval);
        return -1;
    }
    if (budget_parse_time(up_to, &view->most_ns) < 0 || view->most_ns < view->least_ns) {
        cli_complain(
            "monitor: option '--up-to' wants a time of at least the interval, as 5s, not '%s'",
            up_to);
        return -1;
    }
    return 0;
}

static int run_monitor(const struct cli_call *call)
{
    const struct monitor_options *options = call->options;
    struct view *view = calloc(1, sizeof *view);
    struct mt_error error;
    if (!view) {
        cli_complain("monitor: no memory");
        return CLI_EXIT_NO;
    }
    if (read_times(options, view) < 0) {
        free(view);
        return CLI_EXIT_USAGE;
    }
    view->json = options->json;
    view->terminal = cli_terminal_of(STDOUT_FILENO);
    int code = open_places(view, options, &error) < 0 ? cli_fail(&error) : CLI_EXIT_OK;
    if (code == CLI_EXIT_OK) {
        if (mt_alarm_open((int)options->pid, NULL, &view->alarm, NULL) == 0)
            mt_alarm_read(view->alarm, &view->alarms);
        code = run_view(view, options);
    }
    close_places(view);
    free(view);
    return code;
}

static const char *const description[] = {
    "Shows how full the host, a control group, NVIDIA's devices or a program's share of the host "
    "are. On a terminal it redraws a line for each place, with a curve of the last looks. "
    "Elsewhere it prints a line for each place and look, or with --json an object. Looks at "
    "the host or a control group that follow each other within a quarter of a second read it again "
    "only if free memory moved or is short, or pressure is high.",
    "Pressure is low, moderate, high or critical: from 60, 80 and 90 % of a place on. After "
    "eight minutes memtally says what leaks, and when the place will be full; after five, if a "
    "place grew by more than a fifth. If 'memtally run' records the program of --pid, memtally "
    "says which categories and which call stacks grew.",
    NULL,
};

static const struct cli_example examples[] = {
    {"memtally monitor", "The host and all devices, until Ctrl-C."},
    {"memtally monitor --interval 10ms --up-to 1s --json",
     "Ten milliseconds apart if memory is nearly short, else a second."},
    {"memtally monitor --pid 4711 --interval 100ms --json > memory.jsonl",
     "What a program has, ten times a second until it ends."},
    {0},
};

const struct cmd_entry cmd_monitor = {
    .name = "monitor",
    .synopsis = "[options]",
    .summary = "show how full host and devices are, and what leaks",
    .description = description,
    .examples = examples,
    .options = monitor_cli_options,
    .options_size = sizeof(struct monitor_options),
    .run = run_monitor,
};
