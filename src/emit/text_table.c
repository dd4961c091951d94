/* SPDX-License-Identifier: MIT */
/* The text table: cells to text, widths, lines. Knows rows, not what they are about. */
#include "emit/text_table.h"

#include <inttypes.h>
#include <memtally/units.h>
#include <stdlib.h>

#include "base/array.h"
#include "emit/text.h"

#define GAP       2
#define NARROWEST 8
#define READABLE  24 /* columns of the first cell, below which others go */
#define GONE      SIZE_MAX

/* A row as text. A rule has no cells. */
struct mt_text_table_line {
    char *cells[MT_TEXT_TABLE_COLUMNS_MAX];
    const char *styles[MT_TEXT_TABLE_COLUMNS_MAX]; /* NULL: the line's */
    size_t indent;
    enum mt_row_style style;
    int is_rule;
};

void mt_text_table_init(struct mt_text_table *table, const struct mt_text_table_column *columns,
                        size_t n_columns, int utf8)
{
    *table = (struct mt_text_table){.columns = columns, .n_columns = n_columns, .utf8 = utf8};
}

void mt_text_table_finish(struct mt_text_table *table)
{
    for (size_t i = 0; i < table->n_lines; i++)
        for (size_t c = 0; c < table->n_columns; c++)
            free(table->lines[i].cells[c]);
    free(table->lines);
    *table = (struct mt_text_table){0};
}

/* The next line, zeroed, or NULL. */
static struct mt_text_table_line *add_line(struct mt_text_table *table)
{
    if (mt_array_reserve(table->lines, table->n_lines, table->capacity, 16) < 0) {
        table->failed = 1;
        return NULL;
    }
    struct mt_text_table_line *line = &table->lines[table->n_lines++];
    *line = (struct mt_text_table_line){0};
    return line;
}

static void format_figure(struct mt_strbuf *out, enum mt_cell_kind kind, const struct mt_cell *cell)
{
    char size[MT_SIZE_TEXT];
    int unknown = kind == MT_CELL_PERCENT ? !(cell->percent >= 0) : cell->number == UINT64_MAX;
    if (unknown)
        mt_strbuf_puts(out, "?");
    else if (kind == MT_CELL_SIZE)
        mt_strbuf_puts(out, mt_format_size(cell->number, size));
    else if (kind == MT_CELL_COUNT)
        mt_strbuf_printf(out, "%" PRIu64, cell->number);
    else
        mt_strbuf_printf(out, "%.1f %%", cell->percent);
}

static char *format_cell(const struct mt_text_table *table, enum mt_cell_kind kind,
                         const struct mt_cell *cell)
{
    struct mt_strbuf out = {0};
    if (cell->empty)
        mt_strbuf_puts(&out, "");
    else if (kind == MT_CELL_TEXT || kind == MT_CELL_TEXT_RIGHT)
        mt_text_escape(&out, cell->text ? cell->text : "?", table->utf8);
    else
        format_figure(&out, kind, cell);
    return mt_strbuf_take(&out);
}

void mt_text_table_add(struct mt_text_table *table, size_t indent, enum mt_row_style style,
                       const struct mt_cell *cells)
{
    struct mt_text_table_line *line = add_line(table);
    if (!line)
        return;
    line->indent = indent;
    line->style = style;
    for (size_t c = 0; c < table->n_columns; c++) {
        line->styles[c] = cells[c].style && *cells[c].style ? cells[c].style : NULL;
        line->cells[c] = format_cell(table, table->columns[c].kind, &cells[c]);
        if (!line->cells[c])
            table->failed = 1;
    }
}

void mt_text_table_add_rule(struct mt_text_table *table)
{
    struct mt_text_table_line *line = add_line(table);
    if (line)
        line->is_rule = 1;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The width that each column wants. */
static void measure(const struct mt_text_table *table, size_t widths[MT_TEXT_TABLE_COLUMNS_MAX])
{
    for (size_t c = 0; c < table->n_columns; c++) {
        widths[c] = mt_text_columns(table->columns[c].heading);
        for (size_t i = 0; i < table->n_lines; i++) {
            const struct mt_text_table_line *line = &table->lines[i];
            if (line->is_rule)
                continue;
            size_t indent = c == 0 ? line->indent : 0;
            widths[c] = larger(widths[c], indent + mt_text_columns(line->cells[c]));
        }
    }
}

static size_t sum_with_gaps(const struct mt_text_table *table, const size_t *widths)
{
    size_t total = 0;
    for (size_t c = 0; c < table->n_columns; c++)
        if (widths[c] != GONE)
            total += widths[c] + (c ? GAP : 0);
    return total;
}

/* Lets columns go for as long as the first would have to be cut too short. */
static void let_go(const struct mt_text_table *table, size_t columns, size_t *widths)
{
    size_t spare = widths[0] > READABLE ? widths[0] - READABLE : 0;
    for (int turn = 1; turn <= 3; turn++)
        for (size_t c = 1; c < table->n_columns; c++)
            if (table->columns[c].goes == turn && sum_with_gaps(table, widths) > columns + spare)
                widths[c] = GONE;
}

/* Takes what is too much from the first text column, down to a width that still says something. */
static void fit(const struct mt_text_table *table, size_t columns,
                size_t widths[MT_TEXT_TABLE_COLUMNS_MAX])
{
    size_t total = sum_with_gaps(table, widths);
    for (size_t c = 0; c < table->n_columns && total > columns; c++) {
        if (table->columns[c].kind != MT_CELL_TEXT || widths[c] == GONE)
            continue;
        size_t excess = total - columns;
        size_t spare = widths[c] > NARROWEST ? widths[c] - NARROWEST : 0;
        size_t taken = excess < spare ? excess : spare;
        widths[c] -= taken;
        total -= taken;
    }
}

static void spaces(struct mt_strbuf *out, size_t n)
{
    mt_strbuf_printf(out, "%*s", (int)n, "");
}

/* Writes one cell; the last of a line is not padded. */
static void draw_cell(const struct mt_text_table *table, struct mt_strbuf *out, size_t column,
                      const char *text, size_t indent, size_t width)
{
    struct mt_strbuf cut = {0};
    size_t room = width > indent ? width - indent : 0;
    mt_text_cut(&cut, text, room, table->utf8);
    size_t used = mt_text_columns(mt_strbuf_text(&cut));
    size_t padding = room > used ? room - used : 0;
    int is_text = table->columns[column].kind == MT_CELL_TEXT;
    spaces(out, indent + (is_text ? 0 : padding));
    mt_strbuf_puts(out, mt_strbuf_text(&cut));
    if (is_text && column + 1 < table->n_columns)
        spaces(out, padding);
    mt_strbuf_finish_part(&cut, out);
}

/* Blanks at the end of a line help nobody. */
static void trim(struct mt_strbuf *out)
{
    while (out->length && out->data[out->length - 1] == ' ')
        out->data[--out->length] = '\0';
}

static void draw_rule(const struct mt_text_table *table, struct mt_strbuf *out,
                      const size_t *widths)
{
    size_t total = sum_with_gaps(table, widths);
    for (size_t i = 0; i < total; i++)
        mt_strbuf_puts(out, table->utf8 ? "\xe2\x94\x80" : "-");
    mt_strbuf_puts(out, "\n");
}

static void draw_headings(const struct mt_text_table *table, const struct mt_text_table_look *look,
                          struct mt_strbuf *out, const size_t *widths)
{
    mt_strbuf_puts(out, look->bold);
    for (size_t c = 0; c < table->n_columns; c++) {
        if (widths[c] == GONE)
            continue;
        if (c)
            spaces(out, GAP);
        draw_cell(table, out, c, table->columns[c].heading, 0, widths[c]);
    }
    trim(out);
    mt_strbuf_puts(out, look->plain);
    mt_strbuf_puts(out, "\n");
}

static void draw_line(const struct mt_text_table *table, const struct mt_text_table_look *look,
                      struct mt_strbuf *out, const size_t *widths,
                      const struct mt_text_table_line *line)
{
    const char *style = line->style == MT_ROW_BOLD    ? look->bold
                        : line->style == MT_ROW_FAINT ? look->faint
                                                      : "";
    mt_strbuf_puts(out, style);
    for (size_t c = 0; c < table->n_columns; c++) {
        if (widths[c] == GONE)
            continue;
        if (c)
            spaces(out, GAP);
        mt_strbuf_puts(out, line->styles[c] ? line->styles[c] : "");
        draw_cell(table, out, c, line->cells[c], c == 0 ? line->indent : 0, widths[c]);
        if (line->styles[c])
            mt_strbuf_printf(out, "%s%s", look->plain, style);
    }
    trim(out);
    if (*style)
        mt_strbuf_puts(out, look->plain);
    mt_strbuf_puts(out, "\n");
}

void mt_text_table_draw(const struct mt_text_table *table, const struct mt_text_table_look *look,
                        struct mt_strbuf *out)
{
    if (table->failed) {
        out->failed = 1;
        return;
    }
    size_t widths[MT_TEXT_TABLE_COLUMNS_MAX];
    measure(table, widths);
    let_go(table, look->columns, widths);
    fit(table, look->columns, widths);
    draw_headings(table, look, out, widths);
    for (size_t i = 0; i < table->n_lines; i++) {
        if (table->lines[i].is_rule)
            draw_rule(table, out, widths);
        else
            draw_line(table, look, out, widths, &table->lines[i]);
    }
}
