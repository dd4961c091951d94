/* SPDX-License-Identifier: MIT */
/* What documents of several formats count, and how they call it. */
#include <inttypes.h>
#include <memtally/provenance.h>
#include <memtally/recording.h>
#include <memtally/tally.h>
#include <memtally/units.h>
#include <stdio.h>
#include <string.h>

#include "document.h"
#include "internal.h"

uint64_t cli_sum(uint64_t a, uint64_t b)
{
    return a == MT_UNKNOWN || b == MT_UNKNOWN ? MT_UNKNOWN : a + b;
}

const char *cli_row_provenance(const struct mt_tally_row *row)
{
    int is_unknown =
        !row->n_details && row->resident_bytes == MT_UNKNOWN && row->allocated_bytes == MT_UNKNOWN;
    return is_unknown ? NULL : mt_provenance_name(row->provenance);
}

const struct mt_tally_process *cli_main_process(const struct mt_tally *tally)
{
    const struct mt_tally_process *last = tally->n_processes ? &tally->processes[0] : NULL;
    for (size_t i = 1; i < tally->n_processes; i++)
        if (tally->processes[i].pid == last->pid)
            last = &tally->processes[i];
    return last;
}

const char *cli_format_time(uint64_t time_ns, char text[CLI_TIME_TEXT])
{
    /* Rounded first, so that 59.999 s is a minute and not 60.00 s. */
    uint64_t seconds = time_ns / 1000000000 + (time_ns % 1000000000 >= 995000000);
    if (time_ns == MT_UNKNOWN)
        snprintf(text, CLI_TIME_TEXT, "?");
    else if (time_ns < 1000000000)
        snprintf(text, CLI_TIME_TEXT, "%" PRIu64 " ms", time_ns / 1000000);
    else if (seconds < 60)
        snprintf(text, CLI_TIME_TEXT, "%.2f s", (double)time_ns / 1e9);
    else
        snprintf(text, CLI_TIME_TEXT, "%" PRIu64 " min %02" PRIu64 " s", seconds / 60,
                 seconds % 60);
    return text;
}

static double figure_of(const struct cli_document_run *run, enum cli_figure figure)
{
    switch (figure) {
    case CLI_FIGURE_LATENCY:
        return run->latency_ms;
    case CLI_FIGURE_PREFILL:
        return run->prefill_ms;
    case CLI_FIGURE_DECODE:
        return run->decode_ms;
    case CLI_FIGURE_PEAK:
        return run->peak_memory_bytes == MT_UNKNOWN ? -1 : (double)run->peak_memory_bytes;
    }
    return -1;
}

/* How many of the runs that count have a figure less than `value`, and how many the same. */
static void rank(const struct cli_document *document, enum cli_figure figure, double value,
                 size_t *less, size_t *same)
{
    *less = 0;
    *same = 0;
    for (size_t i = 0; i < document->n_runs; i++) {
        double other = figure_of(&document->runs[i], figure);
        if (document->runs[i].warm_up || other < 0)
            continue;
        *less += other < value;
        *same += other == value;
    }
}

/* The figure that `position` others stand below; runs are few, so that sorting is not worth an
 * allocation that can fail. */
static double figure_at(const struct cli_document *document, enum cli_figure figure,
                        size_t position)
{
    for (size_t i = 0; i < document->n_runs; i++) {
        double value = figure_of(&document->runs[i], figure);
        size_t less;
        size_t same;
        if (document->runs[i].warm_up || value < 0)
            continue;
        rank(document, figure, value, &less, &same);
        if (less <= position && position < less + same)
            return value;
    }
    return -1;
}

struct cli_spread cli_document_spread(const struct cli_document *document, enum cli_figure figure)
{
    struct cli_spread spread = {.least = -1, .median = -1, .most = -1};
    for (size_t i = 0; i < document->n_runs; i++)
        spread.n += !document->runs[i].warm_up && figure_of(&document->runs[i], figure) >= 0;
    if (spread.n == 0)
        return spread;
    spread.least = figure_at(document, figure, 0);
    spread.most = figure_at(document, figure, spread.n - 1);
    spread.median = (figure_at(document, figure, (spread.n - 1) / 2) +
                     figure_at(document, figure, spread.n / 2)) /
                    2;
    return spread;
}

int cli_is_no_stack(const struct mt_stack_entry *entry)
{
    return entry->n_frames == 1 && !entry->complete && strcmp(entry->frames[0], "[no stack]") == 0;
}

int cli_has_no_stacks(const struct mt_stack_list *stacks)
{
    for (size_t i = 0; i < stacks->n_entries; i++)
        if (!cli_is_no_stack(&stacks->entries[i]))
            return 0;
    return stacks->n_entries > 0;
}
