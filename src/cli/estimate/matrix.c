/* SPDX-License-Identifier: MIT */
/* Types by contexts, by rules alone: each file, or each type that the model could be converted to,
 * or each type of its cache, at contexts that double. */
#include <limits.h>
#include <memtally/error.h>
#include <memtally/predict.h>
#include <memtally/tally.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memtally/units.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "cli/document/internal.h"
#include "cli/document/verdict.h"
#include "cli/estimate/estimate.h"
#include "cli/residue_store.h"
#include "drive/engines.h"
#include "emit/csv.h"
#include "emit/text.h"

#define ROWS_MAX      64
#define COLUMNS_MAX   6
#define LEAST_CONTEXT UINT64_C(4096)
#define TEXT_BYTES    32 /* of a point in the table */
#define NAME_COLUMNS  24 /* that a name has at least, where there is room */
#define GAP           2  /* columns between two of the table */

/* One file or type. */
struct row {
    const char *name;
    struct mt_model *model; /* owned; NULL: it could not be read, for the reason in `error` */
    const char *kv_type;    /* NULL: as it was asked for */
    struct mt_error error;
};

/* What a row takes at a context, of the place that decides. */
struct point {
    int is_known;
    enum mt_verdict verdict;
    char place[32];
    uint64_t bytes;
    uint64_t low_bytes;
    uint64_t high_bytes;
};

struct matrix {
    const struct estimate_request *request;
    const struct estimate_options *options;
    struct row rows[ROWS_MAX];
    size_t n_rows;
    uint64_t contexts[COLUMNS_MAX];
    size_t n_contexts;
    struct point points[ROWS_MAX][COLUMNS_MAX];
    char engine[64];
    char why[512]; /* the first point that could not be estimated, "" where all could */
};

static void add_type(struct matrix *matrix, const char *name, struct mt_model *model,
                     const char *kv_type)
{
    matrix->rows[matrix->n_rows++] = (struct row){name, model, kv_type, {.code = 0}};
}

/* The header that llama.cpp's converter would make of a model, read back. The file is gone before
 * it is used: only headers are read. */
static int convert(const struct mt_model *model, int remote, enum mt_file_type type,
                   struct mt_model **converted, struct mt_error *error)
{
    const char *base = getenv("TMPDIR");
    char path[PATH_MAX];
    const struct mt_sparse_options sparse = {.type = type, .drop_vocabulary = 1};
    int n = snprintf(path, sizeof path, "%s/memtally-matrix-XXXXXX", base && *base ? base : "/tmp");
    int fd = n < PATH_MAX ? mkstemp(path) : -1;
    if (fd < 0)
        return mt_fail(error, MT_EPERM, MT_NO_OFFSET,
                       "estimate: cannot make a file in %.200s (TMPDIR says where temporary files "
                       "go)",
                       base && *base ? base : "/tmp");
    close(fd);
    int code = estimate_write_sparse(model, remote, path, &sparse, error);
    if (!code)
        code = mt_model_open(path, NULL, converted, error);
    unlink(path);
    return code;
}

static int is_of_llama(const char *engine)
{
    char rules[MT_DRIVE_ENGINE_TEXT];
    return mt_drive_engine_is(engine, "rules", mt_drive_engine_text(NULL, "rules", rules));
}

static int add_weight_types(struct matrix *matrix, const struct mt_model *model,
                            struct mt_error *error)
{
    static const enum mt_file_type types[] = {MT_FILE_F16,    MT_FILE_Q8_0,   MT_FILE_Q6_K,
                                              MT_FILE_Q5_K_M, MT_FILE_Q4_K_M, MT_FILE_Q4_0};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct mt_model *converted = NULL;
        int code = convert(model, matrix->options->remote, types[i], &converted, error);
        if (code)
            return code;
        add_type(matrix, mt_file_type_name(types[i]), converted, NULL);
    }
    return 0;
}

/* Serves a model whose weights have their type already. */
static int add_cache_types(struct matrix *matrix, const char *name, struct mt_error *error)
{
    static const char *const of_llama[] = {"f16", "q8_0", "q4_0", NULL};
    static const char *const of_torch[] = {"auto", "fp8", NULL};
    const char *const *types = is_of_llama(matrix->options->engine) ? of_llama : of_torch;
    for (size_t i = 0; types[i]; i++) {
        struct mt_model *model = NULL;
        int code = estimate_open_model(name, matrix->options->remote, &model, error);
        if (code)
            return code;
        add_type(matrix, types[i], model, types[i]);
    }
    return 0;
}

/* A row for each file. One that cannot be read keeps its error; where none can, that is the answer.
 */
static int add_files(struct matrix *matrix, const struct cli_call *call, struct mt_error *error)
{
    size_t n_failed = 0;
    if (call->n_operands > ROWS_MAX)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "estimate: --matrix takes at most %d files",
                       ROWS_MAX);
    for (size_t i = 0; i < call->n_operands; i++) {
        struct row *row = &matrix->rows[matrix->n_rows++];
        struct mt_error why = {.offset = MT_NO_OFFSET};
        *row = (struct row){.name = call->operands[i], .error = {.code = 0}};
        if (estimate_open_model(row->name, matrix->options->remote, &row->model, &why) == 0)
            continue;
        row->model = NULL;
        row->error = why;
        n_failed++;
    }
    if (n_failed < matrix->n_rows)
        return 0;
    *error = matrix->rows[0].error;
    return error->code;
}

static int add_types(struct matrix *matrix, const struct cli_call *call, struct mt_error *error)
{
    struct mt_model *model = NULL;
    int code = estimate_open_model(call->operands[0], matrix->options->remote, &model, error);
    if (code)
        return code;
    int is_open = mt_model_describe(model)->format != MT_MODEL_GGUF;
    code = is_open && is_of_llama(matrix->options->engine)
               ? add_weight_types(matrix, model, error)
               : add_cache_types(matrix, call->operands[0], error);
    mt_model_close(model);
    return code;
}

/* The context that was asked for, or powers of two up to what the first model that could be read
 * was trained for. */
static void set_contexts(struct matrix *matrix)
{
    size_t first = 0;
    while (!matrix->rows[first].model)
        first++;
    uint64_t trained = mt_model_describe(matrix->rows[first].model)->context_length;
    uint64_t asked = matrix->request->settings.context_tokens;
    if (asked || !trained || trained <= LEAST_CONTEXT) {
        matrix->contexts[matrix->n_contexts++] = asked ? asked : trained ? trained : LEAST_CONTEXT;
        return;
    }
    for (uint64_t n = LEAST_CONTEXT; n < trained && matrix->n_contexts < COLUMNS_MAX - 1; n *= 2)
        matrix->contexts[matrix->n_contexts++] = n;
    matrix->contexts[matrix->n_contexts++] = trained;
}

/* The device that holds most, or the host where there is none. */
static void take_place(struct point *point, const struct mt_tally *tally)
{
    for (size_t i = 0; i < tally->n_places; i++) {
        const struct mt_tally_place *place = &tally->places[i];
        int is_host = strcmp(place->place, "host") == 0;
        if ((is_host && tally->n_places > 1) || place->total_high_bytes < point->high_bytes)
            continue;
        snprintf(point->place, sizeof point->place, "%s", place->place);
        point->bytes = place->total_allocated_bytes;
        point->low_bytes = place->total_low_bytes;
        point->high_bytes = place->total_high_bytes;
    }
}

static void estimate_point(struct matrix *matrix, size_t r, size_t c)
{
    struct mt_predict_settings settings = matrix->request->settings;
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct point *point = &matrix->points[r][c];
    const struct row *row = &matrix->rows[r];
    struct mt_estimate *estimate;
    settings.context_tokens = matrix->contexts[c];
    if (row->kv_type && !settings.kv_type_k && !settings.kv_type_v)
        settings.kv_type_k = settings.kv_type_v = row->kv_type;
    if (cli_estimate_calibrated(row->model, &settings, &estimate, &error)) {
        if (!*matrix->why)
            snprintf(matrix->why, sizeof matrix->why, "%s", error.text);
        return;
    }
    point->is_known = 1;
    point->verdict = estimate->verdict;
    take_place(point, &estimate->tally);
    snprintf(matrix->engine, sizeof matrix->engine, "%.31s %.31s", estimate->tally.engine_name,
             estimate->tally.engine_version ? estimate->tally.engine_version : "");
    mt_estimate_destroy(estimate);
}

/* ---- how it is written ---- */

static const char *mark_of(enum mt_verdict verdict)
{
    static const char *const marks[] = {
        [MT_VERDICT_UNKNOWN] = "",  [MT_VERDICT_FITS] = " F",  [MT_VERDICT_TIGHT] = " T",
        [MT_VERDICT_SPILLS] = " S", [MT_VERDICT_PAGES] = " P", [MT_VERDICT_CANNOT] = " C"};
    return marks[verdict];
}

/* The contexts from `first` on that a table has. */
struct part {
    size_t first;
    size_t n;
};

static void say_point(const struct point *point, char text[TEXT_BYTES])
{
    snprintf(text, TEXT_BYTES, "%.2f%s", (double)point->high_bytes / (double)(UINT64_C(1) << 30),
             mark_of(point->verdict));
}

/* How many contexts a terminal has room for beside the names. */
static size_t contexts_at_once(const struct matrix *matrix, const struct cli_terminal *terminal)
{
    size_t names = 0, widest = sizeof "1024k" - 1;
    char text[TEXT_BYTES];
    for (size_t r = 0; r < matrix->n_rows; r++) {
        size_t wide = mt_text_columns(matrix->rows[r].name);
        names = wide > names ? wide : names;
        for (size_t c = 0; c < matrix->n_contexts; c++) {
            say_point(&matrix->points[r][c], text);
            widest = strlen(text) > widest ? strlen(text) : widest;
        }
    }
    names = names < NAME_COLUMNS ? names : NAME_COLUMNS;
    size_t columns = (size_t)terminal->columns;
    size_t n = columns > names ? (columns - names) / (widest + GAP) : 0;
    return n ? n : 1;
}

static void put_row(const struct matrix *matrix, size_t r, const struct part *part,
                    const struct cli_terminal *terminal, struct mt_text_table *table)
{
    struct mt_cell cells[COLUMNS_MAX + 1] = {{.text = matrix->rows[r].name}};
    char texts[COLUMNS_MAX][TEXT_BYTES];
    for (size_t c = 1; c <= part->n; c++)
        cells[c].empty = 1;
    if (!matrix->rows[r].model)
        cells[1] = (struct mt_cell){.text = "FAILED", .style = cli_tone(terminal, CLI_TONE_BAD)};
    for (size_t c = 0; matrix->rows[r].model && c < part->n; c++) {
        const struct point *point = &matrix->points[r][part->first + c];
        say_point(point, texts[c]);
        cells[c + 1] = (struct mt_cell){.text = point->is_known ? texts[c] : "-",
                                        .style = cli_verdict_style(terminal, point->verdict)};
    }
    mt_text_table_add(table, 0, MT_ROW_PLAIN, cells);
}

static void draw_part(const struct matrix *matrix, const struct part *part,
                      const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    struct mt_text_table_column columns[COLUMNS_MAX + 1] = {{"type", MT_CELL_TEXT, 0}};
    char headings[COLUMNS_MAX][24];
    struct mt_text_table table;
    for (size_t c = 0; c < part->n; c++) {
        uint64_t n = matrix->contexts[part->first + c];
        snprintf(headings[c], sizeof headings[c], n % 1024 ? "%llu" : "%lluk",
                 (unsigned long long)(n % 1024 ? n : n / 1024));
        columns[c + 1] = (struct mt_text_table_column){headings[c], MT_CELL_TEXT_RIGHT, 0};
    }
    mt_text_table_init(&table, columns, part->n + 1, terminal->utf8);
    for (size_t r = 0; r < matrix->n_rows; r++)
        put_row(matrix, r, part, terminal, &table);
    cli_table_draw(&table, terminal, out);
}

/* Contexts for which a narrow terminal has no room stand in further tables below. */
static void render_table(const struct matrix *matrix, struct mt_strbuf *out)
{
    const struct cli_terminal terminal = cli_terminal_of_output(matrix->options->output);
    int is_plain = !matrix->request->settings.n_devices && !matrix->request->settings.host_bytes;
    size_t most = contexts_at_once(matrix, &terminal);
    cli_table_fact(&terminal, out, "engine", "%s, by rules", matrix->engine);
    cli_table_fact(&terminal, out, "figures", "GiB %s, at most, by tokens of context%s",
                   matrix->request->settings.n_devices ? "of the fullest device" : "of the host",
                   is_plain ? "" : ": F fits, T tight, S spills, P pages, C cannot");
    for (struct part part = {0, most}; part.first < matrix->n_contexts; part.first += most) {
        size_t left = matrix->n_contexts - part.first;
        part.n = left < most ? left : most;
        draw_part(matrix, &part, &terminal, out);
    }
    for (size_t r = 0; r < matrix->n_rows; r++)
        if (matrix->rows[r].error.code)
            cli_table_fact(&terminal, out, "not read", "%s", matrix->rows[r].error.text);
    if (*matrix->why)
        cli_table_fact(&terminal, out, "-", "not estimated: %s", matrix->why);
}

static void put_failures(const struct matrix *matrix, struct mt_json *json)
{
    mt_json_begin_array(json, "failures");
    for (size_t r = 0; r < matrix->n_rows; r++)
        if (matrix->rows[r].error.code)
            estimate_put_failure(matrix->rows[r].name, &matrix->rows[r].error, json);
    mt_json_end(json);
}

static void render_json(const struct matrix *matrix, struct mt_strbuf *out)
{
    struct mt_json writer = {0};
    struct mt_json *json = &writer;
    mt_json_begin_object(json, NULL);
    mt_json_text(json, "schema", "memtally/1");
    mt_json_text(json, "kind", "matrix");
    mt_json_text(json, "engine", matrix->engine);
    mt_json_begin_array(json, "points");
    for (size_t i = 0; i < matrix->n_rows * matrix->n_contexts; i++) {
        size_t r = i / matrix->n_contexts;
        size_t c = i % matrix->n_contexts;
        const struct point *point = &matrix->points[r][c];
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "type", matrix->rows[r].name);
        mt_json_count(json, "context_tokens", matrix->contexts[c]);
        mt_json_text(json, "verdict", point->is_known ? mt_verdict_name(point->verdict) : NULL);
        mt_json_text(json, "place", point->is_known ? point->place : NULL);
        mt_json_count(json, "total_allocated_bytes", point->is_known ? point->bytes : MT_UNKNOWN);
        mt_json_count(json, "total_low_bytes", point->is_known ? point->low_bytes : MT_UNKNOWN);
        mt_json_count(json, "total_high_bytes", point->is_known ? point->high_bytes : MT_UNKNOWN);
        mt_json_end(json);
    }
    mt_json_end(json);
    mt_json_text(json, "not_estimated", *matrix->why ? matrix->why : NULL);
    put_failures(matrix, json);
    mt_json_end(json);
    mt_json_finish(json, out);
}

static void render_csv(const struct matrix *matrix, struct mt_strbuf *out)
{
    struct mt_csv csv = {out, 0};
    mt_csv_headings(&csv, "type,context_tokens,verdict,place,allocated_bytes,low_bytes,high_bytes");
    for (size_t i = 0; i < matrix->n_rows * matrix->n_contexts; i++) {
        const struct point *point = &matrix->points[i / matrix->n_contexts][i % matrix->n_contexts];
        mt_csv_text(&csv, matrix->rows[i / matrix->n_contexts].name);
        mt_csv_count(&csv, matrix->contexts[i % matrix->n_contexts]);
        mt_csv_text(&csv, point->is_known ? mt_verdict_name(point->verdict) : NULL);
        mt_csv_text(&csv, point->is_known ? point->place : NULL);
        mt_csv_count(&csv, point->is_known ? point->bytes : MT_UNKNOWN);
        mt_csv_count(&csv, point->is_known ? point->low_bytes : MT_UNKNOWN);
        mt_csv_count(&csv, point->is_known ? point->high_bytes : MT_UNKNOWN);
        mt_csv_end_line(&csv);
    }
}

static int fits_somewhere(const struct matrix *matrix)
{
    for (size_t i = 0; i < matrix->n_rows * matrix->n_contexts; i++) {
        const struct point *point = &matrix->points[i / matrix->n_contexts][i % matrix->n_contexts];
        if (point->is_known &&
            (point->verdict == MT_VERDICT_FITS || point->verdict == MT_VERDICT_TIGHT ||
             point->verdict == MT_VERDICT_UNKNOWN))
            return 1;
    }
    return 0;
}

static int fill(struct matrix *matrix, const struct cli_call *call, struct mt_error *error)
{
    int code =
        call->n_operands > 1 ? add_files(matrix, call, error) : add_types(matrix, call, error);
    if (code)
        return code;
    set_contexts(matrix);
    for (size_t r = 0; r < matrix->n_rows; r++)
        for (size_t c = 0; matrix->rows[r].model && c < matrix->n_contexts; c++)
            estimate_point(matrix, r, c);
    if (!*matrix->engine)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "%s", matrix->why);
    return 0;
}

static void complain_of_failures(const struct matrix *matrix)
{
    for (size_t r = 0; r < matrix->n_rows; r++)
        if (matrix->rows[r].error.code)
            cli_complain("%s", matrix->rows[r].error.text);
}

int estimate_matrix(const struct cli_call *call, const struct estimate_request *request,
                    struct mt_strbuf *out, int *found, struct mt_error *error)
{
    struct matrix *matrix = calloc(1, sizeof *matrix);
    if (!matrix)
        return mt_out_of_memory(error);
    matrix->request = request;
    matrix->options = call->options;
    int code = fill(matrix, call, error);
    if (!code && matrix->options->format == CLI_FORMAT_JSON)
        render_json(matrix, out);
    else if (!code && matrix->options->format == CLI_FORMAT_CSV)
        render_csv(matrix, out);
    else if (!code)
        render_table(matrix, out);
    if (!code && matrix->options->format != CLI_FORMAT_TABLE)
        complain_of_failures(matrix);
    *found = !code && fits_somewhere(matrix);
    for (size_t r = 0; r < matrix->n_rows; r++)
        mt_model_close(matrix->rows[r].model);
    free(matrix);
    return code;
}
