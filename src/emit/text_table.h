/* SPDX-License-Identifier: MIT */
/* A table of text in a terminal's width.
 *
 * Columns of text are aligned left, figures right. Where the rows are too wide, the first text
 * column is cut in the middle of its cells. Texts are escaped. */
#ifndef MT_EMIT_TEXT_TABLE_H
#define MT_EMIT_TEXT_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

enum mt_cell_kind {
    MT_CELL_TEXT,
    MT_CELL_TEXT_RIGHT,
    MT_CELL_SIZE,
    MT_CELL_COUNT,
    MT_CELL_PERCENT
};

/* Where the table is too wide, columns with a `goes` go before the first one is cut below 24
 * columns: those with 1 first, then those with 2 and 3. */
struct mt_text_table_column {
    const char *heading;
    enum mt_cell_kind kind;
    int goes;
};

/* A cell: `text` of a text column (MT_CELL_TEXT_RIGHT: a figure that is text already); `number` of
 * the others. A percentage is in `percent`. Unknown (UINT64_MAX, or a negative percentage) is drawn
 * as "?"; what does not apply has `empty` set. */
struct mt_cell {
    const char *text;
    uint64_t number;
    double percent;
    int empty;
    const char
        *style; /* the terminal's sequence for this cell, borrowed until it is drawn, or NULL */
};

enum mt_row_style { MT_ROW_PLAIN, MT_ROW_BOLD, MT_ROW_FAINT };

#define MT_TEXT_TABLE_COLUMNS_MAX 12

struct mt_text_table {
    const struct mt_text_table_column *columns;
    size_t n_columns;
    struct mt_text_table_line *lines;
    size_t n_lines;
    size_t capacity;
    int utf8;
    int failed;
};

/* How a table is drawn. `bold`, `faint` and `plain` are the terminal's sequences, or "". */
struct mt_text_table_look {
    size_t columns;
    const char *bold;
    const char *faint;
    const char *plain;
};

/* `columns` (at most MT_TEXT_TABLE_COLUMNS_MAX) is borrowed until the end of the table. */
void mt_text_table_init(struct mt_text_table *table, const struct mt_text_table_column *columns,
                        size_t n_columns, int utf8);
void mt_text_table_finish(struct mt_text_table *table);

/* Adds a row of n_columns cells; the first is moved `indent` columns to the right. */
void mt_text_table_add(struct mt_text_table *table, size_t indent, enum mt_row_style style,
                       const struct mt_cell *cells);

/* Adds a line across the table. */
void mt_text_table_add_rule(struct mt_text_table *table);

/* Draws the headings and the rows. A failed allocation is left in `out` as a failed append. */
void mt_text_table_draw(const struct mt_text_table *table, const struct mt_text_table_look *look,
                        struct mt_strbuf *out);

#endif
