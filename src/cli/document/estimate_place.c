/* SPDX-License-Identifier: MIT */
/* One place of an estimate as a table, and as an equation whose printed figures add up. */
#include <inttypes.h>
#include <math.h>
#include <memtally/provenance.h>
#include <memtally/tally.h>
#include <memtally/units.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

#define BAND_TEXT    48
#define PLACE_INDENT 2

/* "4.20 to 4.40 GiB", "512.00 MiB to 1.20 GiB". */
static const char *format_band(uint64_t low_bytes, uint64_t high_bytes, char text[BAND_TEXT])
{
    char low[MT_SIZE_TEXT];
    char high[MT_SIZE_TEXT];
    mt_format_size(low_bytes, low);
    mt_format_size(high_bytes, high);
    char *low_unit = strchr(low, ' ');
    const char *high_unit = strchr(high, ' ');
    if (low_unit && high_unit && !strcmp(low_unit, high_unit))
        *low_unit = '\0';
    snprintf(text, BAND_TEXT, "%s to %s", low, high);
    return text;
}

/* One line of the table; `rule` without the engine's name, which stands at the top. */
struct line {
    size_t indent;
    enum mt_row_style style;
    const char *name;
    uint64_t bytes;
    uint64_t low_bytes;
    uint64_t high_bytes;
    const char *provenance;
    const char *rule;
};

static void add_line(struct mt_text_table *table, const struct line *line)
{
    char band[BAND_TEXT];
    const struct mt_cell cells[] = {
        {.text = line->name},
        {.number = line->bytes},
        {.text = format_band(line->low_bytes, line->high_bytes, band),
         .empty = line->low_bytes == line->high_bytes},
        {.text = line->provenance, .empty = !line->provenance},
        {.text = line->rule, .empty = !line->rule},
    };
    mt_text_table_add(table, line->indent, line->style, cells);
}

static const char *short_rule(const char *rule)
{
    const char *slash = rule ? strchr(rule, '/') : NULL;
    return slash ? slash + 1 : rule;
}

static void add_detail(struct mt_text_table *table, const struct mt_tally_detail *detail)
{
    add_line(table, &(struct line){.indent = PLACE_INDENT,
                                   .style = MT_ROW_FAINT,
                                   .name = detail->name,
                                   .bytes = detail->allocated_bytes,
                                   .low_bytes = detail->low_bytes,
                                   .high_bytes = detail->high_bytes,
                                   .provenance = mt_provenance_name(detail->provenance),
                                   .rule = short_rule(detail->rule)});
}

/* A row that has one part needs no second line to say so. */
static void add_row(struct mt_text_table *table, const struct mt_tally_row *row)
{
    int single = row->n_details == 1;
    add_line(table, &(struct line){.name = mt_category_name(row->category),
                                   .bytes = row->allocated_bytes,
                                   .low_bytes = row->low_bytes,
                                   .high_bytes = row->high_bytes,
                                   .provenance = mt_provenance_name(row->provenance),
                                   .rule = single ? short_rule(row->details[0].rule) : NULL});
    for (size_t i = 0; !single && i < row->n_details; i++)
        add_detail(table, &row->details[i]);
}

static int is_same_detail(const struct mt_tally_detail *a, const struct mt_tally_detail *b)
{
    return !strcmp(a->name, b->name) && a->allocated_bytes == b->allocated_bytes &&
           a->low_bytes == b->low_bytes && a->high_bytes == b->high_bytes &&
           a->provenance == b->provenance &&
           !strcmp(a->rule ? a->rule : "", b->rule ? b->rule : "");
}

int cli_estimate_rows_are_same(const struct mt_tally_row *a, const struct mt_tally_row *b)
{
    if (a->category != b->category || a->n_details != b->n_details ||
        a->provenance != b->provenance)
        return 0;
    for (size_t i = 0; i < a->n_details; i++)
        if (!is_same_detail(&a->details[i], &b->details[i]))
            return 0;
    return 1;
}

/* In a rehearsal only the engine's word is exact. The table says that once for all rows, because
 * names need the room more than rules do. */
static int is_rehearsed(const struct mt_tally_place *place)
{
    for (size_t r = 0; r < place->n_rows; r++)
        for (size_t d = 0; d < place->rows[r].n_details; d++)
            if (place->rows[r].details[d].kind == MT_TERM_REHEARSED)
                return 1;
    return 0;
}

static void put_table(const struct mt_tally_place *place, const char *name,
                      const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    const struct mt_text_table_column columns[] = {
        {name, MT_CELL_TEXT, 0},        {"bytes", MT_CELL_SIZE, 0}, {"band", MT_CELL_TEXT_RIGHT, 3},
        {"how known", MT_CELL_TEXT, 2}, {"rule", MT_CELL_TEXT, 1},
    };
    struct mt_text_table table;
    mt_text_table_init(&table, columns, is_rehearsed(place) ? 4 : 5, terminal->utf8);
    for (size_t i = 0; i < place->n_rows; i++)
        add_row(&table, &place->rows[i]);
    mt_text_table_add_rule(&table);
    add_line(&table, &(struct line){.style = MT_ROW_BOLD,
                                    .name = "total",
                                    .bytes = place->total_allocated_bytes,
                                    .low_bytes = place->total_low_bytes,
                                    .high_bytes = place->total_high_bytes});
    cli_table_draw(&table, terminal, out);
}

/* The unit that an equation is written in. */
struct unit {
    const char *name;
    uint64_t bytes;
};

static const struct unit units[] = {{"TiB", UINT64_C(1) << 40},
                                    {"GiB", UINT64_C(1) << 30},
                                    {"MiB", UINT64_C(1) << 20},
                                    {"KiB", UINT64_C(1) << 10},
                                    {"bytes", 1}};

/* The index of the unit that the table shows a size in. */
static size_t unit_of(uint64_t bytes)
{
    char text[MT_SIZE_TEXT];
    mt_format_size(bytes, text);
    size_t i = 0;
    while (i + 1 < sizeof units / sizeof *units && !strstr(text, units[i].name))
        i++;
    return i;
}

static uint64_t decimals_of(struct unit unit)
{
    return unit.bytes == 1 ? 1 : 100;
}

/* In units of the last decimal. As the table shows it: what lies in the middle goes to the even
 * one. */
static uint64_t shown(uint64_t bytes, struct unit unit)
{
    return (uint64_t)rint((double)bytes * (double)decimals_of(unit) / (double)unit.bytes);
}

/* That of the rows where all have the same; else what is shown in GiB is added up in MiB, as
 * engines write it, and what is shown in less in the unit of the total. */
static struct unit choose_unit(const struct mt_tally_place *place)
{
    size_t of_total = unit_of(place->total_allocated_bytes);
    size_t of_rows = unit_of(place->rows[0].allocated_bytes);
    for (size_t i = 1; i < place->n_rows; i++)
        if (unit_of(place->rows[i].allocated_bytes) != of_rows)
            return units[units[of_total].bytes > UINT64_C(1) << 20 ? of_total + 1 : of_total];
    return units[of_rows];
}

static void put_figure(struct mt_strbuf *text, uint64_t figure, struct unit unit)
{
    mt_strbuf_printf(text, "%.*f", unit.bytes == 1 ? 0 : 2,
                     (double)figure / (double)decimals_of(unit));
}

/* The rows as they are shown, and what they lack of the total or have too much, where the table
 * shows the total in this unit. Returns the total. */
static uint64_t put_terms(struct mt_strbuf *text, const struct mt_tally_place *place,
                          struct unit unit)
{
    uint64_t sum = 0;
    uint64_t total = shown(place->total_allocated_bytes, unit);
    for (size_t i = 0; i < place->n_rows; i++) {
        uint64_t figure = shown(place->rows[i].allocated_bytes, unit);
        mt_strbuf_printf(text, "%s%s ", i ? " + " : "", mt_category_name(place->rows[i].category));
        put_figure(text, figure, unit);
        sum += figure;
    }
    if (sum == total || units[unit_of(place->total_allocated_bytes)].bytes != unit.bytes)
        return sum;
    mt_strbuf_puts(text, total > sum ? " + rounding " : " - rounding ");
    put_figure(text, total > sum ? total - sum : sum - total, unit);
    return total;
}

/* An end of the band, which is the total itself where it is exact. */
static uint64_t end_of_band(const struct mt_tally_place *place, uint64_t bytes, uint64_t total,
                            struct unit unit)
{
    return bytes == place->total_allocated_bytes ? total : shown(bytes, unit);
}

/* The rows' figures and their sum, all in one unit. */
static void put_equation(const struct mt_tally_place *place, uint64_t used_bytes,
                         const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    struct unit unit = choose_unit(place);
    struct mt_strbuf text = {0};
    uint64_t total = put_terms(&text, place, unit);
    mt_strbuf_puts(&text, " = ");
    put_figure(&text, total, unit);
    mt_strbuf_puts(&text, " (");
    put_figure(&text, end_of_band(place, place->total_low_bytes, total, unit), unit);
    mt_strbuf_puts(&text, " to ");
    put_figure(&text, end_of_band(place, place->total_high_bytes, total, unit), unit);
    mt_strbuf_puts(&text, ")");
    if (place->capacity_bytes != MT_UNKNOWN) {
        mt_strbuf_puts(&text, " of ");
        put_figure(&text, shown(place->capacity_bytes, unit), unit);
    }
    mt_strbuf_printf(&text, " %s", unit.name);
    if (place->capacity_bytes != MT_UNKNOWN && used_bytes) {
        mt_strbuf_puts(&text, ", of which others use ");
        put_figure(&text, shown(used_bytes, unit), unit);
    }
    cli_table_fact(terminal, out, "sum", "%s", mt_strbuf_text(&text));
    mt_strbuf_finish_part(&text, out);
}

void cli_table_estimate_place(const struct mt_tally_place *place, const char *name,
                              uint64_t used_bytes, const struct cli_terminal *terminal,
                              struct mt_strbuf *out)
{
    if (place->n_rows == 0)
        return;
    put_table(place, name, terminal, out);
    put_equation(place, used_bytes, terminal, out);
}
