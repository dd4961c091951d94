/* SPDX-License-Identifier: MIT */
/* The other parts of a document's text: timeline, phases, runs and call stacks. */
#include <inttypes.h>
#include <memtally/units.h>
#include <stdint.h>
#include <stdio.h>

#include "emit/sparkline.h"
#include "emit/text.h"
#include "emit/text_table.h"
#include "internal.h"

#define FRAMES_SHOWN 12
#define MARKS_SHOWN  20

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

void cli_table_timeline(const struct cli_document *document, const struct cli_terminal *terminal,
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

void cli_table_phases(const struct cli_document *document, const struct cli_terminal *terminal,
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

void cli_table_marks(const struct cli_document *document, const struct cli_terminal *terminal,
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

void cli_table_runs(const struct cli_document *document, const struct cli_terminal *terminal,
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
    mt_strbuf_printf(out, "%s%s%s in %" PRIu64 " block%s%s\n", cli_bold(terminal),
                     mt_format_size(entry->bytes, size), cli_plain(terminal), entry->count,
                     entry->count == 1 ? "" : "s", how_it_ends(entry));
    if (cli_is_no_stack(entry))
        return;
    for (size_t i = 0; i < shown; i++)
        put_frame(entry->frames[i], terminal, out);
    if (shown < entry->n_frames)
        mt_strbuf_printf(out, "    and %zu more\n", entry->n_frames - shown);
}

void cli_table_stacks(const struct cli_document *document, const struct cli_terminal *terminal,
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
