/* SPDX-License-Identifier: MIT */
/* The points of a sweep as a table, CSV and JSON. Points that are not done are left out. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <memtally/units.h>

#include "cli/document/internal.h"
#include "cli/document/verdict.h"
#include "cli/rehearse/sweep_output.h"
#include "emit/csv.h"

#define COLUMNS_MAX MT_TEXT_TABLE_COLUMNS_MAX

static const char *verdict_of(const struct mt_advise_point *point)
{
    return point->totals ? mt_verdict_name(point->verdict) : "FAILED";
}

static const char *word_of(const struct mt_advise_sweep *sweep, size_t point, size_t axis)
{
    const struct mt_advise_axes *axes = &sweep->axes;
    return axes->items[axis].words[mt_advise_axes_value(axes, point, axis)];
}

/* The columns of the table: axes one by one where there is room, else together; devices one by one
 * where there is room, else the fullest. */
struct layout {
    struct mt_text_table_column columns[COLUMNS_MAX];
    char headings[COLUMNS_MAX][32];
    size_t n;
    size_t n_axes;    /* columns of axes */
    size_t n_devices; /* columns of devices */
};

static void add_column(struct layout *layout, const char *heading, enum mt_cell_kind kind)
{
    snprintf(layout->headings[layout->n], sizeof layout->headings[0], "%s", heading);
    layout->columns[layout->n] =
        (struct mt_text_table_column){layout->headings[layout->n], kind, 0};
    layout->n++;
}

static void lay_out(const struct mt_advise_sweep *sweep, struct layout *layout)
{
    const size_t others = 2; /* the host, the verdict */
    size_t n_axes = sweep->axes.n;
    size_t n_devices = sweep->settings.n_devices;
    layout->n_devices = n_devices <= 3 ? n_devices : 1;
    layout->n_axes = n_axes + layout->n_devices + others <= COLUMNS_MAX ? n_axes : 1;
    for (size_t i = 0; i < layout->n_axes; i++)
        add_column(layout,
                   layout->n_axes == n_axes ? mt_advise_key_name(sweep->axes.items[i].key)
                                            : "settings",
                   layout->n_axes == n_axes ? MT_CELL_TEXT_RIGHT : MT_CELL_TEXT);
    for (size_t i = 0; i < layout->n_devices; i++) {
        char name[32];
        snprintf(name, sizeof name, "gpu:%zu", i);
        add_column(layout, layout->n_devices == n_devices ? name : "fullest gpu", MT_CELL_SIZE);
    }
    add_column(layout, "host", MT_CELL_SIZE);
    add_column(layout, "verdict", MT_CELL_TEXT);
}

static void join_words(const struct mt_advise_sweep *sweep, size_t point, struct mt_strbuf *text)
{
    for (size_t i = 0; i < sweep->axes.n; i++)
        mt_strbuf_printf(text, "%s%s %s", i ? ", " : "",
                         mt_advise_key_name(sweep->axes.items[i].key), word_of(sweep, point, i));
}

static uint64_t fullest(const struct mt_advise_sweep *sweep, const struct mt_advise_point *point)
{
    uint64_t most = 0;
    for (size_t i = 1; i <= sweep->settings.n_devices; i++)
        if (point->totals[i].bytes > most)
            most = point->totals[i].bytes;
    return most;
}

static void put_row(const struct mt_advise_sweep *sweep, size_t index, const struct layout *layout,
                    const struct cli_terminal *terminal, struct mt_text_table *table)
{
    const struct mt_advise_point *point = &sweep->points[index];
    struct mt_cell cells[COLUMNS_MAX] = {{0}};
    struct mt_strbuf words = {0};
    size_t n = 0;
    join_words(sweep, index, &words);
    for (size_t i = 0; i < layout->n_axes; i++)
        cells[n++].text =
            layout->n_axes == sweep->axes.n ? word_of(sweep, index, i) : mt_strbuf_text(&words);
    for (size_t i = 0; i < layout->n_devices; i++, n++) {
        cells[n].empty = !point->totals;
        if (point->totals)
            cells[n].number = layout->n_devices == sweep->settings.n_devices
                                  ? point->totals[i + 1].bytes
                                  : fullest(sweep, point);
    }
    cells[n].empty = !point->totals;
    cells[n++].number = point->totals ? point->totals[0].bytes : 0;
    cells[n].style = point->totals ? cli_verdict_style(terminal, point->verdict)
                                   : cli_tone(terminal, CLI_TONE_BAD);
    cells[n++].text = verdict_of(point);
    mt_text_table_add(
        table, 0,
        point->verdict == MT_VERDICT_CANNOT || !point->totals ? MT_ROW_FAINT : MT_ROW_PLAIN, cells);
    mt_strbuf_finish(&words);
}

static int is_one_of(const char *text, const char *const *others, size_t n)
{
    while (n && strcmp(others[n - 1], text) != 0)
        n--;
    return n > 0;
}

/* Each way of failing once. */
static void put_failures(const struct mt_advise_sweep *sweep, const struct cli_terminal *terminal,
                         struct mt_strbuf *out)
{
    const char *shown[5];
    size_t n = 0;
    for (size_t i = 0; i < sweep->n_points && n < sizeof shown / sizeof *shown; i++) {
        const struct mt_advise_point *point = &sweep->points[i];
        if (!point->is_done || point->totals || !point->reason ||
            is_one_of(point->reason, shown, n))
            continue;
        struct mt_strbuf words = {0};
        join_words(sweep, i, &words);
        cli_table_fact(terminal, out, "failed", "%s: %s", mt_strbuf_text(&words), point->reason);
        mt_strbuf_finish(&words);
        shown[n++] = point->reason;
    }
}

void rehearse_sweep_table(const struct mt_advise_sweep *sweep,
                          const struct cli_document_model *model,
                          const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    struct layout layout = {.n = 0};
    struct mt_text_table table;
    lay_out(sweep, &layout);
    cli_table_fact(terminal, out, "model", "%s", model->path);
    cli_table_fact(terminal, out, "engine", "llama.cpp %s, rehearsed: %s", sweep->stage.version,
                   sweep->stage.program_path);
    if (sweep->n_done < sweep->n_points)
        cli_table_fact(terminal, out, "points", "%zu of %zu: it was interrupted", sweep->n_done,
                       sweep->n_points);
    else
        cli_table_fact(terminal, out, "points", "%zu", sweep->n_points);
    mt_text_table_init(&table, layout.columns, layout.n, terminal->utf8);
    for (size_t i = 0; i < sweep->n_points; i++)
        if (sweep->points[i].is_done)
            put_row(sweep, i, &layout, terminal, &table);
    if (sweep->n_done)
        cli_table_draw(&table, terminal, out);
    else
        mt_text_table_finish(&table);
    put_failures(sweep, terminal, out);
}

static void put_headings(const struct mt_advise_sweep *sweep, struct mt_strbuf *out)
{
    struct mt_strbuf text = {0};
    for (size_t i = 0; i < sweep->axes.n; i++)
        mt_strbuf_printf(&text, "%s,", mt_advise_key_name(sweep->axes.items[i].key));
    for (size_t i = 0; i <= sweep->settings.n_devices; i++) {
        char place[32] = "host";
        if (i)
            snprintf(place, sizeof place, "gpu:%zu", i - 1);
        mt_strbuf_printf(&text, "%s_bytes,%s_low_bytes,%s_high_bytes,", place, place, place);
    }
    mt_strbuf_puts(&text, "verdict,reason");
    struct mt_csv csv = {out, 0};
    mt_csv_headings(&csv, mt_strbuf_text(&text));
    mt_strbuf_finish(&text);
}

void rehearse_sweep_csv(const struct mt_advise_sweep *sweep, struct mt_strbuf *out)
{
    struct mt_csv csv = {out, 0};
    put_headings(sweep, out);
    for (size_t p = 0; p < sweep->n_points; p++) {
        const struct mt_advise_point *point = &sweep->points[p];
        const struct mt_advise_total unknown = {MT_UNKNOWN, MT_UNKNOWN, MT_UNKNOWN};
        if (!point->is_done)
            continue;
        for (size_t i = 0; i < sweep->axes.n; i++)
            mt_csv_text(&csv, word_of(sweep, p, i));
        for (size_t i = 0; i <= sweep->settings.n_devices; i++) {
            const struct mt_advise_total *total = point->totals ? &point->totals[i] : &unknown;
            mt_csv_count(&csv, total->bytes);
            mt_csv_count(&csv, total->low_bytes);
            mt_csv_count(&csv, total->high_bytes);
        }
        mt_csv_text(&csv, verdict_of(point));
        mt_csv_text(&csv, point->reason);
        mt_csv_end_line(&csv);
    }
}

static void put_point(const struct mt_advise_sweep *sweep, size_t index, struct mt_json *json)
{
    const struct mt_advise_point *point = &sweep->points[index];
    mt_json_begin_object(json, NULL);
    mt_json_begin_object(json, "values");
    for (size_t i = 0; i < sweep->axes.n; i++)
        mt_json_text(json, mt_advise_key_name(sweep->axes.items[i].key), word_of(sweep, index, i));
    mt_json_end(json);
    mt_json_text(json, "verdict", verdict_of(point));
    mt_json_text(json, "reason", point->reason);
    mt_json_count(json, "context_tokens",
                  point->context_tokens ? point->context_tokens : MT_UNKNOWN);
    mt_json_begin_array(json, "places");
    for (size_t i = 0; point->totals && i <= sweep->settings.n_devices; i++) {
        char place[32] = "host";
        if (i)
            snprintf(place, sizeof place, "gpu:%zu", i - 1);
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "place", place);
        mt_json_count(json, "total_allocated_bytes", point->totals[i].bytes);
        mt_json_count(json, "total_low_bytes", point->totals[i].low_bytes);
        mt_json_count(json, "total_high_bytes", point->totals[i].high_bytes);
        mt_json_end(json);
    }
    mt_json_end(json);
    mt_json_end(json);
}

void rehearse_sweep_json(const struct mt_advise_sweep *sweep,
                         const struct cli_document_model *model, struct mt_strbuf *out)
{
    struct mt_json json = {0};
    mt_json_begin_object(&json, NULL);
    mt_json_text(&json, "schema", "memtally/1");
    mt_json_text(&json, "kind", "sweep");
    mt_json_begin_object(&json, "model");
    mt_json_text(&json, "path", model->path);
    mt_json_text(&json, "architecture", model->architecture);
    mt_json_end(&json);
    mt_json_begin_object(&json, "engine");
    mt_json_text(&json, "name", "llama.cpp");
    mt_json_text(&json, "version", sweep->stage.version);
    mt_json_text(&json, "path", sweep->stage.program_path);
    mt_json_end(&json);
    mt_json_bool(&json, "complete", sweep->n_done == sweep->n_points);
    mt_json_begin_array(&json, "points");
    for (size_t i = 0; i < sweep->n_points; i++)
        if (sweep->points[i].is_done)
            put_point(sweep, i, &json);
    mt_json_end(&json);
    mt_json_end(&json);
    mt_json_finish(&json, out);
}
