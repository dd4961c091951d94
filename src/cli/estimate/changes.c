/* SPDX-License-Identifier: MIT */
/* What differs between two versions of an engine, and what each difference does to a model. */
#include <inttypes.h>
#include <memtally/predict.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/units.h>

#include "cli/document/internal.h"
#include "cli/estimate/estimate.h"
#include "emit/csv.h"

#define SIGNED_TEXT 32

static int does_anything(const struct mt_estimate_changes *changes,
                         const struct mt_estimate_change *change)
{
    int does = change->pool_tokens != 0;
    for (size_t i = 0; i < changes->before->tally.n_places; i++)
        does |= change->place_bytes[i] != 0;
    return does;
}

/* The bytes on the first device that a change moves, else on the host. */
static int64_t bytes_of(const struct mt_estimate_changes *changes, const int64_t *place_bytes)
{
    size_t n = changes->before->tally.n_places;
    for (size_t i = 1; i < n; i++)
        if (place_bytes[i])
            return place_bytes[i];
    return n > 1 ? 0 : place_bytes[0];
}

static const char *signed_size(int64_t bytes, char text[SIGNED_TEXT])
{
    char size[MT_SIZE_TEXT];
    uint64_t magnitude = bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes;
    snprintf(text, SIGNED_TEXT, "%s%s",
             bytes < 0 ? "-"
             : bytes   ? "+"
                       : "",
             mt_format_size(magnitude, size));
    return text;
}

static void add_row(struct mt_text_table *table, const char *since, const char *rule, int64_t bytes,
                    int64_t tokens, enum mt_row_style style)
{
    char size[SIGNED_TEXT], count[SIGNED_TEXT];
    snprintf(count, sizeof count, "%+" PRId64, tokens);
    const struct mt_cell cells[] = {{.text = rule},
                                    {.text = since},
                                    {.text = signed_size(bytes, size)},
                                    {.text = tokens ? count : "0"}};
    mt_text_table_add(table, 0, style, cells);
}

/* What all steps do together. */
struct sum {
    int64_t bytes;
    int64_t tokens;
    size_t n_without;
};

static void put_sources(const struct mt_estimate_changes *changes,
                        const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    for (size_t i = 0; i < changes->n; i++) {
        const struct mt_estimate_change *change = &changes->changes[i];
        if (does_anything(changes, change) && *change->keys)
            cli_table_fact(terminal, out, change->since, "%s%s%s%s", change->keys,
                           change->source ? " (" : "", change->source ? change->source : "",
                           change->source ? ")" : "");
    }
}

static void render_table(const struct mt_estimate_changes *changes,
                         const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    int has_pool = changes->before->pool.present;
    const struct mt_text_table_column columns[] = {{"rule", MT_CELL_TEXT, 0},
                                                   {"since", MT_CELL_TEXT, 0},
                                                   {changes->before->tally.n_places < 2 ? "host"
                                                    : has_pool ? "beside the cache"
                                                               : "device",
                                                    MT_CELL_TEXT_RIGHT, 0},
                                                   {"tokens", MT_CELL_TEXT_RIGHT, 0}};
    struct mt_text_table table;
    struct sum sum = {0};
    cli_table_fact(terminal, out, "engine", "%s %s -> %s, by rules", changes->engine, changes->from,
                   changes->to);
    mt_text_table_init(&table, columns, has_pool ? 4 : 3, terminal->utf8);
    for (size_t i = 0; i < changes->n; i++) {
        const struct mt_estimate_change *change = &changes->changes[i];
        int64_t bytes = bytes_of(changes, change->place_bytes);
        sum.bytes += bytes;
        sum.tokens += change->pool_tokens;
        sum.n_without += !does_anything(changes, change);
        if (does_anything(changes, change))
            add_row(&table, change->since, change->rule, bytes, change->pool_tokens, MT_ROW_PLAIN);
    }
    mt_text_table_add_rule(&table);
    add_row(&table, "", "together", sum.bytes, sum.tokens, MT_ROW_BOLD);
    cli_table_draw(&table, terminal, out);
    if (has_pool)
        cli_table_fact(terminal, out, "tokens", "%" PRIu64 " -> %" PRIu64,
                       changes->before->pool.pool_tokens, changes->after->pool.pool_tokens);
    put_sources(changes, terminal, out);
    if (sum.n_without)
        cli_table_fact(terminal, out, "-", "%zu other rules differ and change nothing here",
                       sum.n_without);
}

static void put_places(const struct mt_estimate_changes *changes, const int64_t *place_bytes,
                       struct mt_json *json)
{
    mt_json_begin_array(json, "places");
    for (size_t i = 0; i < changes->before->tally.n_places; i++) {
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "place", changes->before->tally.places[i].place);
        mt_json_signed(json, "change_bytes", place_bytes[i]);
        mt_json_end(json);
    }
    mt_json_end(json);
}

static void put_pool(const struct mt_estimate_pool *pool, struct mt_json *json)
{
    if (pool->present)
        mt_json_signed(json, "pool_bytes", pool->pool_bytes);
    else
        mt_json_null(json, "pool_bytes");
    mt_json_count(json, "pool_tokens", pool->present ? pool->pool_tokens : MT_UNKNOWN);
    mt_json_end(json);
}

static void render_json(const struct mt_estimate_changes *changes, struct mt_strbuf *out)
{
    struct mt_json writer = {0};
    struct mt_json *json = &writer;
    mt_json_begin_object(json, NULL);
    mt_json_text(json, "schema", "memtally/1");
    mt_json_text(json, "kind", "changes");
    mt_json_text(json, "engine", changes->engine);
    mt_json_text(json, "from", changes->from);
    mt_json_text(json, "to", changes->to);
    mt_json_begin_object(json, "before");
    put_pool(&changes->before->pool, json);
    mt_json_begin_object(json, "after");
    put_pool(&changes->after->pool, json);
    mt_json_begin_array(json, "changes");
    for (size_t i = 0; i < changes->n; i++) {
        const struct mt_estimate_change *change = &changes->changes[i];
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "rule", change->rule);
        mt_json_text(json, "since", change->since);
        mt_json_text(json, "keys", *change->keys ? change->keys : NULL);
        mt_json_text(json, "source", change->source);
        put_places(changes, change->place_bytes, json);
        mt_json_signed(json, "change_tokens", change->pool_tokens);
        mt_json_end(json);
    }
    mt_json_end(json);
    mt_json_end(json);
    mt_json_finish(json, out);
}

static void render_csv(const struct mt_estimate_changes *changes, struct mt_strbuf *out)
{
    struct mt_csv csv = {out, 0};
    char number[SIGNED_TEXT];
    mt_csv_headings(&csv, "rule,since,place,change_bytes,change_tokens,keys");
    for (size_t i = 0; i < changes->n; i++)
        for (size_t p = 0; p < changes->before->tally.n_places; p++) {
            const struct mt_estimate_change *change = &changes->changes[i];
            mt_csv_text(&csv, change->rule);
            mt_csv_text(&csv, change->since);
            mt_csv_text(&csv, changes->before->tally.places[p].place);
            snprintf(number, sizeof number, "%" PRId64, change->place_bytes[p]);
            mt_csv_text(&csv, number);
            snprintf(number, sizeof number, "%" PRId64, change->pool_tokens);
            mt_csv_text(&csv, number);
            mt_csv_text(&csv, change->keys);
            mt_csv_end_line(&csv);
        }
}

int estimate_changes(const struct cli_call *call, const struct estimate_request *request,
                     struct mt_strbuf *out, struct mt_error *error)
{
    const struct estimate_options *options = call->options;
    const struct cli_terminal terminal = cli_terminal_of_output(options->output);
    struct mt_estimate_changes *changes = NULL;
    struct mt_model *model = NULL;
    int code = estimate_open_model(call->operands[0], options->remote, &model, error);
    if (!code)
        code = mt_estimate_changes_create(model, &request->settings, options->changes, &changes,
                                          error);
    if (!code && options->format == CLI_FORMAT_JSON)
        render_json(changes, out);
    else if (!code && options->format == CLI_FORMAT_CSV)
        render_csv(changes, out);
    else if (!code)
        render_table(changes, &terminal, out);
    mt_estimate_changes_destroy(changes);
    mt_model_close(model);
    return code;
}
