/* SPDX-License-Identifier: MIT */
/* The breakdown of each place as a table, and the processes behind it. */
#include <inttypes.h>
#include <memtally/provenance.h>
#include <memtally/tally.h>
#include <memtally/units.h>
#include <stdio.h>
#include <string.h>

#include "emit/text_table.h"
#include "internal.h"

#define PROCESSES_SHOWN 20

/* A place while its table is built. `total_bytes` is what shares are of. */
struct breakdown {
    struct mt_text_table table;
    uint64_t total_bytes;
    int measured;
    size_t details_shown;
};

static double share_of(const struct breakdown *breakdown, uint64_t bytes)
{
    if (bytes == MT_UNKNOWN || breakdown->total_bytes == MT_UNKNOWN || !breakdown->total_bytes)
        return -1;
    return 100 * (double)bytes / (double)breakdown->total_bytes;
}

/* One line of a breakdown. */
struct line {
    size_t indent;
    enum mt_row_style style;
    const char *name;
    uint64_t allocated_bytes;
    uint64_t resident_bytes;
    const char *provenance;
    int without_allocated;
};

static void add_line(struct breakdown *breakdown, const struct line *line)
{
    uint64_t bytes = breakdown->measured ? line->resident_bytes : line->allocated_bytes;
    const struct mt_cell cells[] = {
        {.text = line->name},
        {.percent = share_of(breakdown, bytes)},
        {.number = line->allocated_bytes, .empty = line->without_allocated},
        {.number = line->resident_bytes},
        {.text = line->provenance, .empty = !line->provenance},
    };
    mt_text_table_add(&breakdown->table, line->indent, line->style, cells);
}

static void add_detail(struct breakdown *breakdown, const struct mt_tally_detail *detail)
{
    add_line(breakdown, &(struct line){.indent = 2,
                                       .style = MT_ROW_FAINT,
                                       .name = detail->name,
                                       .allocated_bytes = detail->allocated_bytes,
                                       .resident_bytes = detail->resident_bytes,
                                       .provenance = mt_provenance_name(detail->provenance)});
}

/* The details past `first` as one line. */
static void add_the_rest(struct breakdown *breakdown, const struct mt_tally_row *row, size_t first)
{
    char name[32];
    struct line rest = {.indent = 2, .style = MT_ROW_FAINT, .name = name};
    for (size_t i = first; i < row->n_details; i++) {
        rest.allocated_bytes = cli_sum(rest.allocated_bytes, row->details[i].allocated_bytes);
        rest.resident_bytes = cli_sum(rest.resident_bytes, row->details[i].resident_bytes);
    }
    snprintf(name, sizeof name, "%zu more", row->n_details - first);
    add_line(breakdown, &rest);
}

static void add_row(struct breakdown *breakdown, const struct mt_tally_row *row)
{
    const char *provenance = cli_row_provenance(row);
    add_line(breakdown, &(struct line){.name = mt_category_name(row->category),
                                       .allocated_bytes = row->allocated_bytes,
                                       .resident_bytes = row->resident_bytes,
                                       .provenance = provenance ? provenance : "unknown"});
    if (breakdown->details_shown == 0)
        return;
    /* "1 more" would take the room of the line that it hides. */
    size_t shown = row->n_details;
    if (shown > breakdown->details_shown && shown - breakdown->details_shown > 1)
        shown = breakdown->details_shown;
    for (size_t i = 0; i < shown; i++)
        add_detail(breakdown, &row->details[i]);
    if (shown < row->n_details)
        add_the_rest(breakdown, row, shown);
}

static uint64_t allocated_of(const struct mt_tally_place *place)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < place->n_rows; i++)
        sum = cli_sum(sum, place->rows[i].allocated_bytes);
    return sum;
}

static void add_rows(struct breakdown *breakdown, const struct mt_tally_place *place)
{
    for (size_t i = 0; i < place->n_rows; i++)
        add_row(breakdown, &place->rows[i]);
    if (breakdown->measured)
        add_line(breakdown, &(struct line){.name = "unattributed",
                                           .without_allocated = 1,
                                           .resident_bytes = place->unattributed_bytes});
    mt_text_table_add_rule(&breakdown->table);
    uint64_t allocated = allocated_of(place);
    add_line(breakdown, &(struct line){.style = MT_ROW_BOLD,
                                       .name = "total",
                                       .allocated_bytes = allocated,
                                       .without_allocated = allocated == MT_UNKNOWN,
                                       .resident_bytes = place->total_resident_bytes});
}

static const char *why_no_skew(const struct mt_tally *tally)
{
    int is_missing = 0;
    for (size_t i = 0; i < tally->n_processes; i++) {
        if (tally->processes[i].is_carried)
            return "none to tell: events lead to this moment, there is no picture of it";
        is_missing |= !tally->processes[i].n_places;
    }
    return is_missing ? "unknown: nothing says what one of the processes held"
                      : "unknown: the kernel's figure could not be read";
}

/* The kernel's own figure against the picture: what the program did while it was taken. */
static void put_skew(const struct mt_tally *tally, const struct mt_tally_place *place,
                     const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    char size[MT_SIZE_TEXT];
    if (!place->skew_known) {
        cli_table_fact(terminal, out, "skew", "%s", why_no_skew(tally));
        return;
    }
    uint64_t skew = place->picture_skew_bytes < 0 ? 0 - (uint64_t)place->picture_skew_bytes
                                                  : (uint64_t)place->picture_skew_bytes;
    if (skew == 0)
        cli_table_fact(terminal, out, "skew", "none: the kernel says the same");
    else
        cli_table_fact(terminal, out, "skew", "the kernel says %s %s", mt_format_size(skew, size),
                       place->picture_skew_bytes < 0 ? "less" : "more");
}

#define UUID_SHORT  12 /* "GPU-01234567" */
#define UUID_ENDING 8

/* A device by its name and as much of its UUID as tells it from the others. */
static const char *heading_of(const struct mt_tally *tally, const struct mt_tally_place *place,
                              char *heading, size_t size)
{
    int is_alone = 1;
    if (!place->uuid)
        return place->place;
    for (size_t i = 0; i < tally->n_places; i++)
        is_alone &= &tally->places[i] == place || !tally->places[i].uuid ||
                    strncmp(tally->places[i].uuid, place->uuid, UUID_SHORT) != 0;
    size_t length = strlen(place->uuid);
    if (is_alone || length <= UUID_SHORT + UUID_ENDING)
        snprintf(heading, size, "%.60s %.*s", place->device_name, UUID_SHORT, place->uuid);
    else
        snprintf(heading, size, "%.60s …%s", place->device_name,
                 place->uuid + length - UUID_ENDING);
    return heading;
}

static void put_place(const struct cli_document *document, const struct mt_tally_place *place,
                      const struct cli_terminal *terminal, size_t details_shown,
                      struct mt_strbuf *out)
{
    char heading[128];
    const struct mt_text_table_column columns[] = {
        {heading_of(document->tally, place, heading, sizeof heading), MT_CELL_TEXT, 0},
        {"share", MT_CELL_PERCENT, 2},
        {"allocated", MT_CELL_SIZE, 0},
        {"resident", MT_CELL_SIZE, 0},
        {"how known", MT_CELL_TEXT, 1},
    };
    struct breakdown breakdown = {.measured = document->tally->kind == MT_TALLY_MEASUREMENT,
                                  .details_shown = details_shown};
    breakdown.total_bytes = breakdown.measured ? place->total_resident_bytes : allocated_of(place);
    mt_text_table_init(&breakdown.table, columns, 5, terminal->utf8);
    add_rows(&breakdown, place);
    cli_table_draw(&breakdown.table, terminal, out);
    char size[MT_SIZE_TEXT];
    if (place->uuid && place->others_bytes && place->others_bytes != MT_UNKNOWN)
        cli_table_fact(terminal, out, "others", "%s more is used by other programs",
                       mt_format_size(place->others_bytes, size));
    if (breakdown.measured && details_shown && strcmp(place->place, "host") == 0)
        put_skew(document->tally, place, terminal, out);
}

void cli_table_places(const struct cli_document *document, const struct cli_terminal *terminal,
                      size_t details_shown, struct mt_strbuf *out)
{
    const struct mt_tally *tally = document->tally;
    for (size_t i = 0; i < tally->n_places; i++)
        put_place(document, &tally->places[i], terminal, details_shown, out);
    if (details_shown && tally->n_processes > 1 && tally->shared_rule)
        cli_table_fact(terminal, out, "shared", "%s", tally->shared_rule);
}

/* What a process holds at the moment shown, over its places. */
static uint64_t resident_of(const struct mt_tally_process *process)
{
    uint64_t sum = process->n_places ? 0 : MT_UNKNOWN;
    for (size_t i = 0; i < process->n_places; i++)
        sum = cli_sum(sum, process->places[i].total_resident_bytes);
    return sum;
}

static void add_process(struct mt_text_table *table, const struct mt_tally_process *process)
{
    char pid[24];
    snprintf(pid, sizeof pid, "%" PRIu64, process->pid);
    const struct mt_cell cells[] = {
        {.text = process->command},       {.text = pid},
        {.number = resident_of(process)}, {.number = process->peak_resident_bytes},
        {.text = process->end},
    };
    mt_text_table_add(table, 0, MT_ROW_PLAIN, cells);
}

static void add_more_processes(struct mt_text_table *table, size_t n)
{
    char name[32];
    snprintf(name, sizeof name, "%zu more", n);
    const struct mt_cell cells[] = {
        {.text = name}, {.empty = 1}, {.empty = 1}, {.empty = 1}, {.empty = 1}};
    mt_text_table_add(table, 0, MT_ROW_FAINT, cells);
}

/* Those that did not live at the moment; past a few only their number. */
static void add_others(struct mt_text_table *table, const struct cli_document *document)
{
    const struct mt_tally *tally = document->tally;
    size_t shown = tally->n_other_processes;
    if (document->details_shown && shown > PROCESSES_SHOWN)
        shown = PROCESSES_SHOWN;
    for (size_t i = 0; i < shown; i++)
        add_process(table, &tally->other_processes[i]);
    if (shown < tally->n_other_processes)
        add_more_processes(table, tally->n_other_processes - shown);
}

void cli_table_processes(const struct cli_document *document, const struct cli_terminal *terminal,
                         struct mt_strbuf *out)
{
    static const struct mt_text_table_column columns[] = {
        {"process", MT_CELL_TEXT, 0}, {"pid", MT_CELL_TEXT_RIGHT, 2}, {"resident", MT_CELL_SIZE, 0},
        {"peak", MT_CELL_SIZE, 0},    {"end", MT_CELL_TEXT, 1},
    };
    const struct mt_tally *tally = document->tally;
    if (tally->n_processes + tally->n_other_processes < 2)
        return;
    struct mt_text_table table;
    mt_text_table_init(&table, columns, 5, terminal->utf8);
    size_t shown = tally->n_processes;
    if (document->details_shown && shown > PROCESSES_SHOWN)
        shown = PROCESSES_SHOWN;
    for (size_t i = 0; i < shown; i++)
        add_process(&table, &tally->processes[i]);
    if (shown < tally->n_processes)
        add_more_processes(&table, tally->n_processes - shown);
    add_others(&table, document);
    cli_table_draw(&table, terminal, out);
}
