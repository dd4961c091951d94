/* SPDX-License-Identifier: MIT */
/* A document as text for people: what was run, the breakdown, the machine, what was not seen; how
 * it went over time, its runs and call stacks. */
#include <inttypes.h>
#include <memtally/recording.h>
#include <memtally/tally.h>
#include <memtally/units.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cli/document/verdict.h"
#include "emit/sparkline.h"
#include "emit/text.h"
#include "emit/text_table.h"
#include "internal.h"

#define FRAMES_SHOWN 12
#define MARKS_SHOWN  20

static void put_command(const struct cli_document *document, const struct cli_terminal *terminal,
                        struct mt_strbuf *out)
{
    const struct mt_tally_process *process = cli_main_process(document->tally);
    const char *name = document->recording && !process ? document->recording : "?";
    struct mt_strbuf escaped = {0};
    mt_text_escape(&escaped, process && process->command ? process->command : name, terminal->utf8);
    mt_strbuf_puts(out, cli_bold(terminal));
    mt_text_cut(out, mt_strbuf_text(&escaped), (size_t)terminal->columns, terminal->utf8);
    mt_strbuf_printf(out, "%s\n", cli_plain(terminal));
    mt_strbuf_finish_part(&escaped, out);
}

static void put_end(const struct mt_tally *tally, const struct cli_terminal *terminal,
                    struct mt_strbuf *out)
{
    const struct mt_tally_process *process = cli_main_process(tally);
    char duration[CLI_TIME_TEXT];
    if (!process)
        return;
    /* Since the recording's start, as every moment is: a process that calls exec starts again. */
    cli_format_time(process->end_ns, duration);
    cli_table_fact(terminal, out, "ended", "%s after %s",
                   process->end ? process->end : "in a way that was not seen,", duration);
    if (process->observed && strcmp(process->observed, "recorder") == 0)
        cli_table_fact(terminal, out, "seen by", "the recorder in the program");
    else
        cli_table_fact(terminal, out, "seen by", "a look from outside only: %s",
                       process->observed_reason ? process->observed_reason : "reason unknown");
}

/* The most that one process held, and how much of it the picture shows that was taken there. */
static void put_peak_of_one(const struct mt_tally_process *process,
                            const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    uint64_t peak = process->peak_resident_bytes;
    uint64_t caught = process->peak_caught_bytes;
    char most[MT_SIZE_TEXT];
    char shown[MT_SIZE_TEXT];
    if (peak == MT_UNKNOWN)
        return;
    mt_format_size(peak, most);
    if (caught == MT_UNKNOWN) {
        cli_table_fact(terminal, out, "peak", "%s (VmHWM)", most);
        return;
    }
    double missed = (double)peak - (double)caught;
    cli_table_fact(terminal, out, "peak", "%s caught of %s (VmHWM), %.2f %% missed",
                   mt_format_size(caught, shown), most,
                   missed > 0 ? 100 * missed / (double)peak : 0);
}

/* The peak of several processes is a sum in which a shared page is counted in each of them; the
 * picture counts it once. So neither is a part of the other, and no share of it was missed. */
static void put_peak_of_several(const struct mt_tally *tally, const struct cli_terminal *terminal,
                                struct mt_strbuf *out)
{
    char sum[MT_SIZE_TEXT];
    char shown[MT_SIZE_TEXT];
    if (tally->n_places == 0 || tally->places[0].peak_resident_bytes == MT_UNKNOWN)
        return;
    mt_format_size(tally->places[0].peak_resident_bytes, sum);
    uint64_t total = tally->places[0].total_resident_bytes;
    if (tally->moment.kind != MT_MOMENT_PEAK || total == MT_UNKNOWN)
        cli_table_fact(terminal, out, "peak", "%s the largest sum of its processes", sum);
    else
        cli_table_fact(terminal, out, "peak",
                       "%s shown, shared pages once; %s the largest sum of its processes",
                       mt_format_size(total, shown), sum);
}

static void put_peak(const struct mt_tally *tally, const struct cli_terminal *terminal,
                     struct mt_strbuf *out)
{
    if (tally->n_processes == 1)
        put_peak_of_one(&tally->processes[0], terminal, out);
    else
        put_peak_of_several(tally, terminal, out);
}

static void put_engine(const struct cli_document *document, const struct cli_terminal *terminal,
                       struct mt_strbuf *out)
{
    const struct mt_tally *tally = document->tally;
    const char *name = document->engine ? document->engine->name : tally->engine_name;
    const char *version = document->engine ? document->engine->version : tally->engine_version;
    const char *model = document->model ? document->model->path : tally->model_path;
    if (name)
        cli_table_fact(terminal, out, "engine", "%s%s%s", name, version ? " " : "",
                       version ? version : "");
    if (model)
        cli_table_fact(terminal, out, "model", "%s", model);
}

static int is_shown(const struct mt_tally *tally, const struct mt_tally_moment *moment)
{
    return moment->moment.kind == tally->moment.kind &&
           moment->moment.category == tally->moment.category;
}

/* "heap-peak 2.40 GiB at 3.1 s, kv_cache-peak 512.00 MiB at 2.0 s": where else to look. */
static void put_other_moments(const struct mt_tally *tally, const struct cli_terminal *terminal,
                              struct mt_strbuf *out)
{
    struct mt_strbuf text = {0};
    char bytes[MT_SIZE_TEXT];
    char time[CLI_TIME_TEXT];
    for (size_t i = 0; i < tally->n_moments; i++) {
        const struct mt_tally_moment *moment = &tally->moments[i];
        if (is_shown(tally, moment))
            continue;
        mt_strbuf_printf(&text, "%s%s %s at %s", text.length ? ", " : "",
                         mt_moment_text(&moment->moment), mt_format_size(moment->bytes, bytes),
                         cli_format_time(moment->time_ns, time));
    }
    if (text.length)
        cli_table_fact(terminal, out, "other peaks", "%s", mt_strbuf_text(&text));
    mt_strbuf_finish_part(&text, out);
}

static void put_moment(const struct mt_tally *tally, const struct cli_terminal *terminal,
                       struct mt_strbuf *out)
{
    char time[CLI_TIME_TEXT];
    const char *name = mt_moment_text(&tally->moment);
    if (tally->moment_ns == MT_UNKNOWN)
        cli_table_fact(terminal, out, "shown", "%s", name);
    else
        cli_table_fact(terminal, out, "shown", "%s, %s after the start", name,
                       cli_format_time(tally->moment_ns, time));
    put_other_moments(tally, terminal, out);
}

static void put_memory(const struct mt_tally_machine *machine, const struct cli_terminal *terminal,
                       struct mt_strbuf *out)
{
    char a[MT_SIZE_TEXT];
    char b[MT_SIZE_TEXT];
    char c[MT_SIZE_TEXT];
    if (machine->memory_total_bytes != MT_UNKNOWN)
        cli_table_fact(terminal, out, "memory", "%s, %s available, page cache %s",
                       mt_format_size(machine->memory_total_bytes, a),
                       mt_format_size(machine->memory_available_bytes, b),
                       mt_format_size(machine->page_cache_bytes, c));
    if (machine->swap_total_bytes != MT_UNKNOWN)
        cli_table_fact(terminal, out, "swap", "%s used of %s",
                       mt_format_size(machine->swap_used_bytes, a),
                       mt_format_size(machine->swap_total_bytes, b));
    if (machine->other_processes_resident_bytes != MT_UNKNOWN)
        cli_table_fact(terminal, out, "others", "%s resident in other processes",
                       mt_format_size(machine->other_processes_resident_bytes, a));
}

static void put_pressure(const struct mt_tally_machine *machine,
                         const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    if (machine->pressure_some_avg10_percent < 0)
        return;
    if (machine->pressure_full_avg10_percent < 0)
        cli_table_fact(terminal, out, "pressure", "some %.1f %% (10 s average)",
                       machine->pressure_some_avg10_percent);
    else
        cli_table_fact(terminal, out, "pressure", "some %.1f %%, full %.1f %% (10 s average)",
                       machine->pressure_some_avg10_percent, machine->pressure_full_avg10_percent);
}

static void put_limits(const struct mt_tally_machine *machine, const struct cli_terminal *terminal,
                       struct mt_strbuf *out)
{
    char label[24];
    char usage[MT_SIZE_TEXT];
    char limit[MT_SIZE_TEXT];
    if (machine->cgroup_version > 0 && machine->cgroup_usage_bytes != MT_UNKNOWN) {
        int limited = machine->cgroup_limit_bytes != MT_UNKNOWN;
        snprintf(label, sizeof label, "cgroup v%d", machine->cgroup_version);
        cli_table_fact(terminal, out, label, "%s used, %s%s",
                       mt_format_size(machine->cgroup_usage_bytes, usage),
                       limited ? "limit " : "no limit known",
                       limited ? mt_format_size(machine->cgroup_limit_bytes, limit) : "");
    }
    put_pressure(machine, terminal, out);
}

static void put_machine(const struct mt_tally *tally, const struct cli_terminal *terminal,
                        struct mt_strbuf *out)
{
    struct mt_strbuf facts = {0};
    put_memory(&tally->machine, terminal, &facts);
    put_limits(&tally->machine, terminal, &facts);
    if (facts.length) {
        cli_table_heading(terminal, "The machine at that moment", out);
        mt_strbuf_puts(out, mt_strbuf_text(&facts));
    }
    mt_strbuf_finish_part(&facts, out);
}

/* Spreads the points over `n` columns by time. A column shows the largest point in it; one without
 * a point goes on with what was before. Returns the largest of all. */
static uint64_t fill_columns(const struct cli_document *document, uint64_t *values, size_t n)
{
    const struct mt_timeline_point *points = document->timeline;
    uint64_t span = points[document->n_timeline - 1].time_ns + 1;
    uint64_t top = 0;
    for (size_t i = 0; i < n; i++)
        values[i] = MT_UNKNOWN;
    for (size_t i = 0; i < document->n_timeline; i++) {
        uint64_t bytes = points[i].resident_bytes;
        size_t column = (size_t)((double)points[i].time_ns / (double)span * (double)n);
        column = column < n ? column : n - 1;
        if (bytes == MT_UNKNOWN)
            continue;
        if (values[column] == MT_UNKNOWN || bytes > values[column])
            values[column] = bytes;
        top = bytes > top ? bytes : top;
    }
    for (size_t i = 1; i < n; i++)
        if (values[i] == MT_UNKNOWN)
            values[i] = values[i - 1];
    return top;
}

static void put_timeline(const struct cli_document *document, const struct cli_terminal *terminal,
                         struct mt_strbuf *out)
{
    uint64_t values[CLI_COLUMNS_MAX];
    char duration[CLI_TIME_TEXT];
    char largest[MT_SIZE_TEXT];
    if (document->n_timeline < 2)
        return;
    size_t n =
        (size_t)terminal->columns < CLI_COLUMNS_MAX ? (size_t)terminal->columns : CLI_COLUMNS_MAX;
    uint64_t top = fill_columns(document, values, n);
    cli_format_time(document->timeline[document->n_timeline - 1].time_ns, duration);
    mt_format_size(top, largest);
    mt_strbuf_printf(out, "\n%sResident over %s%s, up to %s\n", cli_bold(terminal), duration,
                     cli_plain(terminal), largest);
    mt_sparkline(out, values, n, top, terminal->utf8);
    mt_strbuf_puts(out, "\n");
}

static void put_phases(const struct cli_document *document, const struct cli_terminal *terminal,
                       struct mt_strbuf *out)
{
    static const struct mt_text_table_column columns[] = {
        {"phase", MT_CELL_TEXT},
        {"from", MT_CELL_TEXT_RIGHT},
        {"to", MT_CELL_TEXT_RIGHT},
        {"peak", MT_CELL_SIZE},
    };
    struct mt_text_table table;
    if (document->n_phases == 0)
        return;
    mt_text_table_init(&table, columns, 4, terminal->utf8);
    for (size_t i = 0; i < document->n_phases; i++) {
        const struct cli_document_phase *phase = &document->phases[i];
        char from[CLI_TIME_TEXT];
        char to[CLI_TIME_TEXT];
        const struct mt_cell cells[] = {{.text = phase->name},
                                        {.text = cli_format_time(phase->start_ns, from)},
                                        {.text = cli_format_time(phase->end_ns, to)},
                                        {.number = phase->peak_resident_bytes}};
        mt_text_table_add(&table, 0, MT_ROW_PLAIN, cells);
    }
    cli_table_draw(&table, terminal, out);
}

/* What was resident when a mark was set: the last look before it. */
static uint64_t resident_at(const struct cli_document *document, uint64_t time_ns)
{
    uint64_t resident = MT_UNKNOWN;
    for (size_t i = 0; i < document->n_timeline && document->timeline[i].time_ns <= time_ns; i++)
        resident = document->timeline[i].resident_bytes;
    return resident;
}

/* Those that a program set itself; those of memtally are the phases. */
static size_t count_marks(const struct cli_document *document)
{
    size_t n = 0;
    for (size_t i = 0; i < document->n_marks; i++)
        n += document->marks[i].pid != 0;
    return n;
}

static void put_marks(const struct cli_document *document, const struct cli_terminal *terminal,
                      struct mt_strbuf *out)
{
    static const struct mt_text_table_column columns[] = {
        {"mark", MT_CELL_TEXT, 0},
        {"process", MT_CELL_COUNT, 1},
        {"at", MT_CELL_TEXT_RIGHT, 0},
        {"resident", MT_CELL_SIZE, 0},
    };
    struct mt_text_table table;
    size_t n = count_marks(document);
    size_t most = document->details_shown ? MARKS_SHOWN : SIZE_MAX;
    if (n == 0)
        return;
    mt_text_table_init(&table, columns, 4, terminal->utf8);
    for (size_t i = 0, shown = 0; i < document->n_marks && shown < most; i++) {
        const struct mt_recording_mark *mark = &document->marks[i];
        char at[CLI_TIME_TEXT];
        const struct mt_cell cells[] = {{.text = mark->name},
                                        {.number = mark->pid},
                                        {.text = cli_format_time(mark->time_ns, at)},
                                        {.number = resident_at(document, mark->time_ns)}};
        if (mark->pid == 0)
            continue;
        mt_text_table_add(&table, 0, MT_ROW_PLAIN, cells);
        shown++;
    }
    cli_table_draw(&table, terminal, out);
    if (n > most)
        cli_table_fact(terminal, out, "marks", "%zu more; --all shows them", n - most);
}

/* A time of a run, "?" where it is negative. */
static const char *format_ms(double ms, char text[CLI_TIME_TEXT])
{
    if (ms >= 0)
        snprintf(text, CLI_TIME_TEXT, "%.1f ms", ms);
    else
        snprintf(text, CLI_TIME_TEXT, "?");
    return text;
}

static void add_run(struct mt_text_table *table, const struct cli_document_run *run)
{
    char name[40];
    char latency[CLI_TIME_TEXT];
    char prefill[CLI_TIME_TEXT];
    char decode[CLI_TIME_TEXT];
    snprintf(name, sizeof name, "%" PRIu64 "%s", run->run, run->warm_up ? " (warm-up)" : "");
    const struct mt_cell cells[] = {
        {.text = name},
        {.text = format_ms(run->latency_ms, latency)},
        {.text = format_ms(run->prefill_ms, prefill)},
        {.text = format_ms(run->decode_ms, decode)},
        {.number = run->steps},
        {.number = run->peak_memory_bytes},
    };
    mt_text_table_add(table, 0, run->warm_up ? MT_ROW_FAINT : MT_ROW_PLAIN, cells);
}

static void put_spread_of_time(const struct cli_document *document,
                               const struct cli_terminal *terminal, struct mt_strbuf *out,
                               const char *label, enum cli_figure figure)
{
    struct cli_spread spread = cli_document_spread(document, figure);
    if (spread.n)
        cli_table_fact(terminal, out, label, "%.1f ms (%.1f to %.1f over %zu run%s)", spread.median,
                       spread.least, spread.most, spread.n, spread.n == 1 ? "" : "s");
}

static void put_spread_of_peak(const struct cli_document *document,
                               const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    struct cli_spread spread = cli_document_spread(document, CLI_FIGURE_PEAK);
    char median[MT_SIZE_TEXT];
    char least[MT_SIZE_TEXT];
    char most[MT_SIZE_TEXT];
    if (spread.n)
        cli_table_fact(terminal, out, "peak", "%s (%s to %s over %zu run%s)",
                       mt_format_size((uint64_t)spread.median, median),
                       mt_format_size((uint64_t)spread.least, least),
                       mt_format_size((uint64_t)spread.most, most), spread.n,
                       spread.n == 1 ? "" : "s");
}

static void put_runs(const struct cli_document *document, const struct cli_terminal *terminal,
                     struct mt_strbuf *out)
{
    static const struct mt_text_table_column columns[] = {
        {"run", MT_CELL_TEXT, 0},           {"latency", MT_CELL_TEXT_RIGHT, 0},
        {"prefill", MT_CELL_TEXT_RIGHT, 2}, {"decode", MT_CELL_TEXT_RIGHT, 1},
        {"steps", MT_CELL_COUNT},           {"peak", MT_CELL_SIZE},
    };
    struct mt_text_table table;
    if (document->n_runs == 0)
        return;
    mt_text_table_init(&table, columns, 6, terminal->utf8);
    for (size_t i = 0; i < document->n_runs; i++)
        add_run(&table, &document->runs[i]);
    cli_table_draw(&table, terminal, out);
    put_spread_of_time(document, terminal, out, "latency", CLI_FIGURE_LATENCY);
    put_spread_of_time(document, terminal, out, "prefill", CLI_FIGURE_PREFILL);
    put_spread_of_time(document, terminal, out, "decode", CLI_FIGURE_DECODE);
    put_spread_of_peak(document, terminal, out);
}

static void put_frame(const char *name, const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    struct mt_strbuf escaped = {0};
    mt_text_escape(&escaped, name, terminal->utf8);
    mt_strbuf_puts(out, "    ");
    mt_text_cut(out, mt_strbuf_text(&escaped), (size_t)terminal->columns - 4, terminal->utf8);
    mt_strbuf_puts(out, "\n");
    mt_strbuf_finish_part(&escaped, out);
}

static const char *how_it_ends(const struct mt_stack_entry *entry)
{
    if (cli_is_no_stack(entry))
        return " (without call stacks)";
    return entry->complete ? "" : " (the stack could not be followed to its root)";
}

static void put_stack(const struct mt_stack_entry *entry, const struct cli_terminal *terminal,
                      struct mt_strbuf *out)
{
    char size[MT_SIZE_TEXT];
    size_t shown = entry->n_frames > FRAMES_SHOWN + 1 ? FRAMES_SHOWN : entry->n_frames;
    mt_strbuf_printf(out, "%s%s%s in %" PRIu64 " block%s", cli_bold(terminal),
                     mt_format_size(entry->bytes, size), cli_plain(terminal), entry->count,
                     entry->count == 1 ? "" : "s");
    if (entry->place) {
        mt_strbuf_puts(out, " of ");
        mt_text_escape(out, entry->place, terminal->utf8);
    }
    mt_strbuf_printf(out, "%s\n", how_it_ends(entry));
    if (cli_is_no_stack(entry))
        return;
    for (size_t i = 0; i < shown; i++)
        put_frame(entry->frames[i], terminal, out);
    if (shown < entry->n_frames)
        mt_strbuf_printf(out, "    and %zu more\n", entry->n_frames - shown);
}

static void put_stacks(const struct cli_document *document, const struct cli_terminal *terminal,
                       struct mt_strbuf *out)
{
    const struct mt_stack_list *stacks = document->stacks;
    char interval[MT_SIZE_TEXT];
    if (!stacks)
        return;
    cli_table_heading(terminal, "Largest by call stack", out);
    if (cli_has_no_stacks(stacks)) {
        mt_strbuf_puts(out, "the recording has no call stacks; record with --stacks fp\n");
        return;
    }
    for (size_t i = 0; i < stacks->n_entries; i++)
        put_stack(&stacks->entries[i], terminal, out);
    if (stacks->n_entries == 0)
        mt_strbuf_puts(out, "no stack was recorded\n");
    if (stacks->sampled_interval_bytes)
        cli_table_fact(terminal, out, "sampled",
                       "small blocks stand for others: the recorder took one every %s on average",
                       mt_format_size(stacks->sampled_interval_bytes, interval));
}

void cli_document_table(const struct cli_document *document, const struct cli_terminal *terminal,
                        struct mt_strbuf *out)
{
    const struct mt_tally *tally = document->tally;
    size_t shown = document->details_shown ? document->details_shown : SIZE_MAX;
    if (document->estimate) {
        cli_table_estimate(document, terminal, out);
        return;
    }
    put_command(document, terminal, out);
    put_end(tally, terminal, out);
    cli_table_container(document, terminal, out);
    put_engine(document, terminal, out);
    put_peak(tally, terminal, out);
    put_moment(tally, terminal, out);
    cli_table_places(document, terminal, shown, out);
    put_timeline(document, terminal, out);
    put_phases(document, terminal, out);
    put_marks(document, terminal, out);
    put_runs(document, terminal, out);
    cli_table_processes(document, terminal, out);
    put_stacks(document, terminal, out);
    put_machine(tally, terminal, out);
    cli_table_notes(document, terminal, out);
}

void cli_document_summary(const struct cli_document *document, const struct cli_terminal *terminal,
                          struct mt_strbuf *out)
{
    put_end(document->tally, terminal, out);
    put_peak(document->tally, terminal, out);
    put_moment(document->tally, terminal, out);
    cli_table_places(document, terminal, 0, out);
    cli_table_notes(document, terminal, out);
}
