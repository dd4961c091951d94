/* SPDX-License-Identifier: MIT */
/* A document as text for people: what was run, the breakdown, the machine, what was not seen. */
#include <inttypes.h>
#include <memtally/units.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "emit/text.h"
#include "emit/text_table.h"
#include "internal.h"

#define LABEL_COLUMNS 13

void cli_table_heading(const struct cli_terminal *terminal, const char *text, struct mt_strbuf *out)
{
    mt_strbuf_printf(out, "\n%s%s%s\n", cli_bold(terminal), text, cli_plain(terminal));
}

void cli_table_draw(struct mt_text_table *table, const struct cli_terminal *terminal,
                    struct mt_strbuf *out)
{
    const struct mt_text_table_look look = {(size_t)terminal->columns, cli_bold(terminal),
                                            cli_faint(terminal), cli_plain(terminal)};
    mt_strbuf_puts(out, "\n");
    mt_text_table_draw(table, &look, out);
    mt_text_table_finish(table);
}

/* A label in a style, and a text that may hold anything. */
static void put_fact(const struct cli_terminal *terminal, struct mt_strbuf *out, const char *style,
                     const char *label, const char *text)
{
    struct mt_strbuf escaped = {0};
    struct mt_strbuf wrapped = {0};
    mt_text_escape(&escaped, text, terminal->utf8);
    mt_text_wrap(&wrapped, mt_strbuf_text(&escaped), LABEL_COLUMNS, cli_text_columns(terminal));
    int used = (int)strlen(label);
    mt_strbuf_printf(out, "%s%s%s%*s", style, label, *style ? cli_plain(terminal) : "",
                     used < LABEL_COLUMNS ? LABEL_COLUMNS - used : 0, "");
    /* The first line's indent is where the label stands. */
    if (wrapped.length > LABEL_COLUMNS)
        mt_strbuf_puts(out, mt_strbuf_text(&wrapped) + LABEL_COLUMNS);
    else
        mt_strbuf_puts(out, "\n");
    mt_strbuf_finish_part(&escaped, out);
    mt_strbuf_finish_part(&wrapped, out);
}

void cli_table_fact(const struct cli_terminal *terminal, struct mt_strbuf *out, const char *label,
                    const char *format, ...)
{
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    put_fact(terminal, out, "", label, text);
}

const char *cli_verdict_style(const struct cli_terminal *terminal, enum mt_verdict verdict)
{
    switch (verdict) {
    case MT_VERDICT_FITS:
        return cli_tone(terminal, CLI_TONE_GOOD);
    case MT_VERDICT_TIGHT:
    case MT_VERDICT_SPILLS:
    case MT_VERDICT_PAGES:
        return cli_tone(terminal, CLI_TONE_DOUBTFUL);
    case MT_VERDICT_CANNOT:
        return cli_tone(terminal, CLI_TONE_BAD);
    case MT_VERDICT_UNKNOWN:
    case MT_VERDICT_COUNT:
        break;
    }
    return "";
}

void cli_table_verdict(const struct cli_terminal *terminal, struct mt_strbuf *out,
                       enum mt_verdict verdict, const char *reason)
{
    put_fact(terminal, out, cli_verdict_style(terminal, verdict), mt_verdict_name(verdict), reason);
}

static void put_command(const struct cli_document *document, const struct cli_terminal *terminal,
                        struct mt_strbuf *out)
{
    const struct mt_tally_process *process = cli_main_process(document->tally);
    struct mt_strbuf escaped = {0};
    mt_text_escape(&escaped, process && process->command ? process->command : "?", terminal->utf8);
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
    uint64_t start_ns = tally->processes[0].start_ns;
    int timed =
        process->end_ns != MT_UNKNOWN && start_ns != MT_UNKNOWN && process->end_ns >= start_ns;
    cli_format_time(timed ? process->end_ns - start_ns : MT_UNKNOWN, duration);
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
    mt_strbuf_finish(&text);
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

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static void put_damage(const struct mt_recording_damage *damage,
                       const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    if (!damage)
        return;
    if (damage->files_unreadable)
        cli_table_fact(terminal, out, "damaged", "%" PRIu64 " file%s could not be read",
                       damage->files_unreadable, plural(damage->files_unreadable));
    if (damage->blocks_bad)
        cli_table_fact(terminal, out, "damaged", "%" PRIu64 " block%s could not be read",
                       damage->blocks_bad, plural(damage->blocks_bad));
    if (damage->first[0])
        cli_table_fact(terminal, out, "", "first: %s", damage->first);
    if (damage->blocks_open)
        cli_table_fact(terminal, out, "unfinished",
                       "%" PRIu64 " block%s read as far as written when the process ended",
                       damage->blocks_open, plural(damage->blocks_open));
    if (damage->events_lost)
        cli_table_fact(terminal, out, "lost", "%" PRIu64 " event%s that the recorder had to drop",
                       damage->events_lost, plural(damage->events_lost));
}

void cli_table_notes(const struct cli_document *document, const struct cli_terminal *terminal,
                     struct mt_strbuf *out)
{
    struct mt_strbuf notes = {0};
    put_damage(document->damage, terminal, &notes);
    for (size_t i = 0; i < document->tally->n_notes; i++)
        cli_table_fact(terminal, &notes, "note", "%s", document->tally->notes[i]);
    for (size_t i = 0; i < document->n_notes; i++)
        cli_table_fact(terminal, &notes, "note", "%s", document->notes[i]);
    if (notes.length) {
        mt_strbuf_puts(out, "\n");
        mt_strbuf_puts(out, mt_strbuf_text(&notes));
    }
    mt_strbuf_finish_part(&notes, out);
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
    put_engine(document, terminal, out);
    put_peak(tally, terminal, out);
    put_moment(tally, terminal, out);
    cli_table_places(document, terminal, shown, out);
    cli_table_timeline(document, terminal, out);
    cli_table_phases(document, terminal, out);
    cli_table_marks(document, terminal, out);
    cli_table_runs(document, terminal, out);
    cli_table_processes(document, terminal, out);
    cli_table_stacks(document, terminal, out);
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
