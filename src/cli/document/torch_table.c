/* SPDX-License-Identifier: MIT */
/* What layers of models hold and what operators of PyTorch take, as table, JSON or CSV. */
#include "cli/document/torch_table.h"

#include <inttypes.h>
#include <memtally/error.h>
#include <memtally/units.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "emit/csv.h"
#include "emit/json.h"
#include "emit/text_table.h"
#include "internal.h"

static const char *const names[] = {
    [MT_TORCH_TABLE_LAYERS] = "layers", [MT_TORCH_TABLE_OPERATIONS] = "operations"};

static void put_json(const char *recording, enum mt_torch_table_kind kind,
                     const struct mt_torch_table *told, struct mt_strbuf *out)
{
    struct mt_json json = {0};
    mt_json_begin_object(&json, NULL);
    mt_json_text(&json, "schema", "memtally/1");
    mt_json_text(&json, "recording", recording);
    mt_json_begin_array(&json, names[kind]);
    for (size_t i = 0; i < told->n_rows; i++) {
        const struct mt_torch_table_row *row = &told->rows[i];
        mt_json_begin_object(&json, NULL);
        mt_json_count(&json, "pid", row->pid);
        for (size_t k = 0; k < told->n_columns; k++) {
            int64_t number;
            if (told->columns[k].type == MT_TORCH_TABLE_TEXT)
                mt_json_text(&json, told->columns[k].key, row->text[k]);
            else if (mt_torch_table_number(row, k, &number))
                mt_json_signed(&json, told->columns[k].key, number);
            else
                mt_json_null(&json, told->columns[k].key);
        }
        mt_json_end(&json);
    }
    mt_json_end(&json);
    mt_json_end(&json);
    mt_json_finish(&json, out);
}

static void put_csv(const struct mt_torch_table *told, struct mt_strbuf *out)
{
    struct mt_csv csv = {out, 0};
    mt_csv_text(&csv, "pid");
    for (size_t k = 0; k < told->n_columns; k++)
        mt_csv_text(&csv, told->columns[k].key);
    mt_csv_end_line(&csv);
    for (size_t i = 0; i < told->n_rows; i++) {
        mt_csv_count(&csv, told->rows[i].pid);
        for (size_t k = 0; k < told->n_columns; k++) {
            const char *text = told->rows[i].text[k];
            int is_unknown = told->columns[k].type != MT_TORCH_TABLE_TEXT && strcmp(text, "-") == 0;
            mt_csv_text(&csv, is_unknown ? NULL : text);
        }
        mt_csv_end_line(&csv);
    }
}

#define CELL_TEXT (MT_SIZE_TEXT + 2)

/* The sum of two cells as a size; "" where neither is known. What an operator left may be less than
 * nothing. */
static const char *size_of(const struct mt_torch_table_row *row, size_t one, size_t other,
                           char text[CELL_TEXT])
{
    int64_t a;
    int64_t b = 0;
    int is_known = mt_torch_table_number(row, one, &a);
    if (other != one)
        is_known |= mt_torch_table_number(row, other, &b);
    int64_t sum;
    if (!is_known || __builtin_add_overflow(a, b, &sum) || sum == INT64_MIN)
        return "";
    char size[MT_SIZE_TEXT];
    mt_format_size((uint64_t)(sum < 0 ? -sum : sum), size);
    snprintf(text, CELL_TEXT, "%s%s", sum < 0 ? "-" : "", size);
    return text;
}

static void put_layers(const struct mt_torch_table *told, size_t most,
                       const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    static const struct mt_text_table_column columns[] = {
        {"layer", MT_CELL_TEXT, 0},
        {"calls", MT_CELL_TEXT_RIGHT, 3},
        {"weights", MT_CELL_TEXT_RIGHT, 0},
        {"cache", MT_CELL_TEXT_RIGHT, 0},
        {"forward, device", MT_CELL_TEXT_RIGHT, 0},
        {"backward, device", MT_CELL_TEXT_RIGHT, 0},
        {"forward, host", MT_CELL_TEXT_RIGHT, 2},
        {"backward, host", MT_CELL_TEXT_RIGHT, 1},
    };
    struct mt_text_table table;
    mt_text_table_init(&table, columns, 8, terminal->utf8);
    for (size_t i = 0; i < told->n_rows && i < most; i++) {
        const struct mt_torch_table_row *row = &told->rows[i];
        char text[6][CELL_TEXT], name[512];
        int64_t depth;
        mt_torch_table_number(row, MT_LAYER_DEPTH, &depth);
        snprintf(name, sizeof name, "%.300s %.100s", row->text[MT_LAYER_MODULE],
                 row->text[MT_LAYER_CLASS]);
        const struct mt_cell cells[] = {
            {.text = name},
            {.text = row->text[MT_LAYER_CALLS]},
            {.text = size_of(row, MT_LAYER_WEIGHTS_HOST, MT_LAYER_WEIGHTS_DEVICE, text[0])},
            {.text = size_of(row, MT_LAYER_CACHE_HOST, MT_LAYER_CACHE_DEVICE, text[1])},
            {.text = size_of(row, MT_LAYER_FORWARD_DEVICE, MT_LAYER_FORWARD_DEVICE, text[2])},
            {.text = size_of(row, MT_LAYER_BACKWARD_DEVICE, MT_LAYER_BACKWARD_DEVICE, text[3])},
            {.text = size_of(row, MT_LAYER_FORWARD_HOST, MT_LAYER_FORWARD_HOST, text[4])},
            {.text = size_of(row, MT_LAYER_BACKWARD_HOST, MT_LAYER_BACKWARD_HOST, text[5])},
        };
        size_t indent = depth > 0 && depth < 8 ? 2 * (size_t)depth : 0;
        mt_text_table_add(&table, indent, depth ? MT_ROW_PLAIN : MT_ROW_BOLD, cells);
    }
    cli_table_draw(&table, terminal, out);
}

static void put_operations(const struct mt_torch_table *told, size_t most,
                           const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    static const struct mt_text_table_column columns[] = {
        {"operator", MT_CELL_TEXT, 0},          {"count", MT_CELL_TEXT_RIGHT, 0},
        {"own, device", MT_CELL_TEXT_RIGHT, 0}, {"total, device", MT_CELL_TEXT_RIGHT, 2},
        {"own, host", MT_CELL_TEXT_RIGHT, 0},   {"total, host", MT_CELL_TEXT_RIGHT, 1},
    };
    struct mt_text_table table;
    mt_text_table_init(&table, columns, 6, terminal->utf8);
    for (size_t i = 0; i < told->n_rows && i < most; i++) {
        const struct mt_torch_table_row *row = &told->rows[i];
        char text[4][CELL_TEXT], name[512];
        snprintf(name, sizeof name, "%.150s %.300s", row->text[MT_OPERATION_NAME],
                 row->text[MT_OPERATION_SHAPES]);
        const struct mt_cell cells[] = {
            {.text = name},
            {.text = row->text[MT_OPERATION_COUNT]},
            {.text = size_of(row, MT_OPERATION_OWN_DEVICE, MT_OPERATION_OWN_DEVICE, text[0])},
            {.text = size_of(row, MT_OPERATION_TOTAL_DEVICE, MT_OPERATION_TOTAL_DEVICE, text[1])},
            {.text = size_of(row, MT_OPERATION_OWN_HOST, MT_OPERATION_OWN_HOST, text[2])},
            {.text = size_of(row, MT_OPERATION_TOTAL_HOST, MT_OPERATION_TOTAL_HOST, text[3])},
        };
        mt_text_table_add(&table, 0, MT_ROW_PLAIN, cells);
    }
    cli_table_draw(&table, terminal, out);
}

static void put_table(enum mt_torch_table_kind kind, const struct mt_torch_table *told, size_t most,
                      const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    most = most ? most : told->n_rows;
    if (kind == MT_TORCH_TABLE_LAYERS)
        put_layers(told, most, terminal, out);
    else
        put_operations(told, most, terminal, out);
    if (told->n_rows > most)
        mt_strbuf_printf(out, "and %zu more; --all shows them\n", told->n_rows - most);
}

int cli_document_torch_table(const char *recording, enum mt_torch_table_kind kind,
                             enum cli_format format, size_t most,
                             const struct cli_terminal *terminal, struct mt_strbuf *out,
                             struct mt_error *error)
{
    struct mt_torch_table told;
    int result = mt_torch_table_read(recording, kind, &told, error);
    if (result < 0)
        return result;
    if (!told.n_rows)
        result = mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                         "%s: has no %s; record with 'memtally run --%s'", recording, names[kind],
                         names[kind]);
    else if (format == CLI_FORMAT_JSON)
        put_json(recording, kind, &told, out);
    else if (format == CLI_FORMAT_CSV)
        put_csv(&told, out);
    else
        put_table(kind, &told, most, terminal, out);
    mt_torch_table_finish(&told);
    return result;
}

#define SHOWN 30 /* where a summary has no room for all */

/* A program may have no model, and end before any operator ran. */
void cli_print_torch_table(const char *command, const char *recording,
                           enum mt_torch_table_kind kind, FILE *stream)
{
    struct mt_strbuf out = {0};
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct cli_terminal terminal = cli_terminal_of(fileno(stream));
    mt_strbuf_puts(&out, "\n");
    if (cli_document_torch_table(recording, kind, CLI_FORMAT_TABLE, SHOWN, &terminal, &out,
                                 &error) == 0)
        fputs(mt_strbuf_text(&out), stream);
    else
        cli_complain("%s: %s were not seen: PyTorch was not used, or not by Python", command,
                     kind == MT_TORCH_TABLE_LAYERS ? "layers of models" : "operators of PyTorch");
    mt_strbuf_finish(&out);
}
