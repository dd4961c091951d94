/* SPDX-License-Identifier: MIT */
/* CUDA graphs as tables and as JSON: of one run, or of two runs and what the second has more. */
#include "graphs.h"

#include <inttypes.h>
#include <memtally/graphs.h>
#include <memtally/units.h>
#include <stdio.h>

#include "internal.h"

enum { LETTERS = 2, DRAFTS_TEXT = 160 };

static const char *const letters[LETTERS] = {"A", "B"};

/* ---- as text ---- */

/* "draft_len_4: 32, draft_len_0: 32". */
static const char *drafts_of(const struct mt_graphs *run, char text[DRAFTS_TEXT])
{
    size_t used = 0;
    snprintf(text, DRAFTS_TEXT, "none");
    for (size_t i = 0; i < run->n_drafts && used + 1 < DRAFTS_TEXT; i++) {
        const struct mt_graph_draft *draft = &run->drafts[i];
        const char *comma = i ? ", " : "";
        int n = draft->draft == MT_UNKNOWN
                    ? snprintf(text + used, DRAFTS_TEXT - used, "%sno draft length: %" PRIu64,
                               comma, draft->n)
                    : snprintf(text + used, DRAFTS_TEXT - used, "%sdraft_len_%" PRIu64 ": %" PRIu64,
                               comma, draft->draft, draft->n);
        used += n > 0 ? (size_t)n : 0;
    }
    return text;
}

static void put_runs(const struct cli_graphs_document *document,
                     const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    static const struct mt_text_table_column columns[] = {
        {"run", MT_CELL_TEXT, 0},      {"graphs", MT_CELL_COUNT, 0},
        {"pieces", MT_CELL_COUNT, 1},  {"pool", MT_CELL_SIZE, 0},
        {"driver", MT_CELL_SIZE, 0},   {"libraries", MT_CELL_SIZE, 2},
        {"static", MT_CELL_SIZE, 2},   {"allocated", MT_CELL_SIZE, 0},
        {"reserved", MT_CELL_SIZE, 0}, {"most allocated", MT_CELL_SIZE, 1},
    };
    struct mt_text_table table;
    mt_text_table_init(&table, columns, sizeof columns / sizeof *columns, terminal->utf8);
    for (int i = 0; i < LETTERS && document->runs[i]; i++) {
        const struct mt_graphs *run = document->runs[i];
        const struct mt_cell cells[] = {
            {.text = letters[i]},
            {.number = run->n},
            {.number = run->pieces},
            {.number = run->pool_bytes},
            {.number = run->driver_bytes},
            {.number = run->library_bytes},
            {.number = run->static_bytes},
            {.number = run->allocated_bytes},
            {.number = run->reserved_bytes},
            {.number = run->most_allocated_bytes},
        };
        mt_text_table_add(&table, 0, MT_ROW_PLAIN, cells);
    }
    cli_table_draw(&table, terminal, out);
}

static void put_graphs(const struct mt_graphs *run, const struct cli_terminal *terminal,
                       struct mt_strbuf *out)
{
    static const struct mt_text_table_column columns[] = {
        {"kind", MT_CELL_TEXT, 0},   {"batch", MT_CELL_COUNT, 0},  {"tokens", MT_CELL_COUNT, 0},
        {"draft", MT_CELL_COUNT, 0}, {"pieces", MT_CELL_COUNT, 1}, {"nodes", MT_CELL_COUNT, 1},
        {"pool", MT_CELL_SIZE, 0},   {"driver", MT_CELL_SIZE, 0},  {"libraries", MT_CELL_SIZE, 3},
        {"static", MT_CELL_SIZE, 3}, {"host", MT_CELL_SIZE, 2},    {"if dropped", MT_CELL_SIZE, 2},
    };
    struct mt_text_table table;
    mt_text_table_init(&table, columns, sizeof columns / sizeof *columns, terminal->utf8);
    for (size_t i = 0; i < run->n; i++) {
        const struct mt_graph *graph = &run->graphs[i];
        const struct mt_cell cells[] = {
            {.text = *graph->kind ? graph->kind : "?"},
            {.number = graph->batch},
            {.number = graph->tokens},
            {.number = graph->draft},
            {.number = graph->pieces},
            {.number = graph->nodes},
            {.number = graph->pool_bytes},
            {.number = graph->driver_bytes},
            {.number = graph->library_bytes},
            {.number = graph->static_bytes},
            {.number = graph->host_bytes},
            {.number = graph->reclaimable_bytes},
        };
        mt_text_table_add(&table, 0, MT_ROW_PLAIN, cells);
    }
    if (run->n)
        cli_table_draw(&table, terminal, out);
    else
        mt_text_table_finish(&table);
}

/* "+38.00 MiB" */
static const char *format_signed(int64_t bytes, char text[MT_SIZE_TEXT + 1])
{
    char size[MT_SIZE_TEXT];
    uint64_t magnitude = bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes;
    snprintf(text, MT_SIZE_TEXT + 1, "%s%s", bytes < 0 ? "-" : "+",
             mt_format_size(magnitude, size));
    return text;
}

static const char *const advice[] = {
    [MT_GRAPHS_ADVICE_NONE] = "the overhead is below 500 MiB: it is not worth optimising",
    [MT_GRAPHS_ADVICE_MODERATE] =
        "the overhead is between 500 MiB and 2 GiB: there is a moderate case for fewer graphs",
    [MT_GRAPHS_ADVICE_STRONG] =
        "the overhead is above 2 GiB: there is a strong case for fewer graphs",
};

static void put_difference(const struct mt_graphs_difference *difference,
                           const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    char overhead[MT_SIZE_TEXT + 1], pool[MT_SIZE_TEXT + 1], driver[MT_SIZE_TEXT + 1];
    char libraries[MT_SIZE_TEXT + 1];
    int has_libraries = difference->library_bytes != 0;
    char each[MT_SIZE_TEXT + 1], share[32] = "";
    if (difference->overhead_ratio > -1)
        snprintf(share, sizeof share, " (%+.2f %%)", 100 * difference->overhead_ratio);
    cli_table_fact(terminal, out, "overhead", "%s%s of graphs in B: pool %s, driver %s%s%s",
                   format_signed(difference->overhead_bytes, overhead), share,
                   format_signed(difference->pool_bytes, pool),
                   format_signed(difference->driver_bytes, driver),
                   has_libraries ? ", libraries " : "",
                   has_libraries ? format_signed(difference->library_bytes, libraries) : "");
    if (difference->graphs > 0)
        cli_table_fact(terminal, out, "graphs", "%+" PRId64 ", %s for each", difference->graphs,
                       format_signed(difference->bytes_of_each, each));
    else
        cli_table_fact(terminal, out, "graphs", "%+" PRId64, difference->graphs);
    cli_table_fact(terminal, out, "advice", "%s", advice[difference->advice]);
}

/* Sizes that the engine meant to capture and did not. */
static void put_missing(const struct mt_graphs *run, const char *letter,
                        const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    char name[40] = "of tokens";
    if (!run->n)
        cli_table_fact(terminal, out, "none", "%s captured no CUDA graph", letter);
    for (size_t i = 0; i < run->n_drafts; i++) {
        const struct mt_graph_draft *draft = &run->drafts[i];
        if (draft->expected == MT_UNKNOWN || draft->n >= draft->expected)
            continue;
        if (draft->draft != MT_UNKNOWN)
            snprintf(name, sizeof name, "with draft_len_%" PRIu64, draft->draft);
        cli_table_fact(terminal, out, "missing",
                       "%s captured %" PRIu64 " of %" PRIu64
                       " graphs %s: other batches run without one",
                       letter, draft->n, draft->expected, name);
    }
}

/* The parts of the devices' total, and the notes of captures. */
static void put_sums(const struct mt_graphs *run, const char *letter,
                     const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    char workspace[MT_SIZE_TEXT], total[MT_SIZE_TEXT], rest[MT_SIZE_TEXT];
    if (run->workspace_bytes && run->workspace_bytes != MT_UNKNOWN)
        cli_table_fact(terminal, out, "workspaces", "%s of %s's pool are workspaces of libraries",
                       mt_format_size(run->workspace_bytes, workspace), letter);
    if (run->total_bytes != MT_UNKNOWN)
        cli_table_fact(terminal, out, "total",
                       "%s held %s when it captured the last one: %s beside what the graphs took",
                       letter, mt_format_size(run->total_bytes, total),
                       mt_format_size(run->rest_bytes, rest));
    if (run->late)
        cli_table_fact(terminal, out, "late",
                       "%s captured %" PRIu64 " after it had begun to replay graphs", letter,
                       run->late);
    for (size_t i = 0; i < run->n_notes; i++)
        cli_table_fact(terminal, out, "note", "%s: %s", letter, run->notes[i]);
}

void cli_graphs_table(const struct cli_graphs_document *document,
                      const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    char drafts[DRAFTS_TEXT], kept[MT_SIZE_TEXT];
    for (int i = 0; i < LETTERS && document->runs[i]; i++)
        cli_table_fact(terminal, out, letters[i], "%s; by draft length: %s",
                       document->settings[i] ? document->settings[i] : document->directories[i],
                       drafts_of(document->runs[i], drafts));
    for (int i = 0; i < LETTERS && document->runs[i]; i++)
        if (document->runs[i]->dropped)
            cli_table_fact(terminal, out, "dropped",
                           "%s dropped %" PRIu64 " before it captured the last one; of them only "
                           "the driver's %s count, which it keeps for later ones",
                           letters[i], document->runs[i]->dropped,
                           mt_format_size(document->runs[i]->dropped_driver_bytes, kept));
    for (int i = 0; i < LETTERS && document->runs[i]; i++)
        put_missing(document->runs[i], letters[i], terminal, out);
    for (int i = 0; i < LETTERS && document->runs[i]; i++)
        if (document->was_cut[i])
            cli_table_fact(
                terminal, out, "cut",
                "%s was ended before it was ready, while it still worked: it may capture "
                "more; give --timeout more seconds",
                letters[i]);
    for (int i = 0; i < LETTERS && document->runs[i]; i++)
        put_sums(document->runs[i], letters[i], terminal, out);
    if (document->difference)
        put_difference(document->difference, terminal, out);
    put_runs(document, terminal, out);
    for (int i = 0; i < LETTERS && document->runs[i]; i++)
        if (document->show_all || !document->difference)
            put_graphs(document->runs[i], terminal, out);
}

/* Graphs that an engine was to capture and did not; unknown where none says how many. */
static uint64_t missing_of(const struct mt_graphs *run)
{
    uint64_t missing = MT_UNKNOWN;
    for (size_t i = 0; i < run->n_drafts; i++) {
        const struct mt_graph_draft *draft = &run->drafts[i];
        if (draft->expected == MT_UNKNOWN)
            continue;
        missing = missing == MT_UNKNOWN ? 0 : missing;
        missing += draft->expected > draft->n ? draft->expected - draft->n : 0;
    }
    return missing;
}

/* ---- as JSON ---- */

static void json_memory(struct mt_json *json, const char *key, uint64_t allocated,
                        uint64_t reserved, uint64_t most)
{
    mt_json_begin_object(json, key);
    mt_json_count(json, "allocated_bytes", allocated);
    mt_json_count(json, "reserved_bytes", reserved);
    mt_json_count(json, "max_allocated_bytes", most);
    mt_json_end(json);
}

static void json_graphs(const struct mt_graphs *run, struct mt_json *json)
{
    mt_json_begin_array(json, "graphs");
    for (size_t i = 0; i < run->n; i++) {
        const struct mt_graph *graph = &run->graphs[i];
        mt_json_begin_object(json, NULL);
        mt_json_count(json, "pid", graph->pid);
        mt_json_count(json, "device", graph->device);
        mt_json_text(json, "kind", *graph->kind ? graph->kind : NULL);
        mt_json_count(json, "batch", graph->batch);
        mt_json_count(json, "tokens", graph->tokens);
        mt_json_count(json, "draft", graph->draft);
        mt_json_count(json, "pieces", graph->pieces);
        mt_json_count(json, "nodes", graph->nodes);
        mt_json_count(json, "pool_bytes", graph->pool_bytes);
        mt_json_count(json, "workspace_bytes", graph->workspace_bytes);
        mt_json_count(json, "driver_bytes", graph->driver_bytes);
        mt_json_count(json, "library_bytes", graph->library_bytes);
        mt_json_count(json, "static_bytes", graph->static_bytes);
        mt_json_bool(json, "late", graph->is_late);
        mt_json_count(json, "host_bytes", graph->host_bytes);
        mt_json_count(json, "reclaimable_bytes", graph->reclaimable_bytes);
        mt_json_end(json);
    }
    mt_json_end(json);
}

static void json_run(const struct cli_graphs_document *document, int which, struct mt_json *json)
{
    const struct mt_graphs *run = document->runs[which];
    mt_json_begin_object(json, NULL);
    mt_json_text(json, "directory", document->directories[which]);
    mt_json_text(json, "setting", document->settings[which]);
    mt_json_bool(json, "was_cut", document->was_cut[which]);
    /* A process begins without anything of PyTorch's allocator. */
    json_memory(json, "memory_before", 0, 0, 0);
    json_memory(json, "memory_after", run->allocated_bytes, run->reserved_bytes,
                run->most_allocated_bytes);
    mt_json_count(json, "max_reserved_bytes", run->most_reserved_bytes);
    mt_json_count(json, "num_cuda_graphs", run->n);
    mt_json_count(json, "pieces", run->pieces);
    mt_json_count(json, "dropped", run->dropped);
    mt_json_count(json, "dropped_driver_bytes", run->dropped_driver_bytes);
    mt_json_count(json, "pool_bytes", run->pool_bytes);
    mt_json_count(json, "workspace_bytes", run->workspace_bytes);
    mt_json_count(json, "driver_bytes", run->driver_bytes);
    mt_json_count(json, "library_bytes", run->library_bytes);
    mt_json_count(json, "dropped_library_bytes", run->dropped_library_bytes);
    mt_json_count(json, "static_bytes", run->static_bytes);
    mt_json_count(json, "rest_bytes", run->rest_bytes);
    mt_json_count(json, "total_bytes", run->total_bytes);
    mt_json_begin_object(json, "graph_breakdown");
    for (size_t i = 0; i < run->n_drafts; i++) {
        char key[40] = "draft_len_unknown";
        if (run->drafts[i].draft != MT_UNKNOWN)
            snprintf(key, sizeof key, "draft_len_%" PRIu64, run->drafts[i].draft);
        mt_json_count(json, key, run->drafts[i].n);
    }
    mt_json_end(json);
    mt_json_count(json, "missing", missing_of(run));
    mt_json_count(json, "late", run->late);
    mt_json_begin_array(json, "notes");
    for (size_t i = 0; i < run->n_notes; i++)
        mt_json_text(json, NULL, run->notes[i]);
    mt_json_end(json);
    json_graphs(run, json);
    mt_json_end(json);
}

static void json_difference(const struct mt_graphs_difference *difference, struct mt_json *json)
{
    mt_json_begin_object(json, "difference");
    mt_json_signed(json, "graphs", difference->graphs);
    mt_json_signed(json, "pieces", difference->pieces);
    mt_json_signed(json, "pool_bytes", difference->pool_bytes);
    mt_json_signed(json, "driver_bytes", difference->driver_bytes);
    mt_json_signed(json, "library_bytes", difference->library_bytes);
    mt_json_signed(json, "overhead_bytes", difference->overhead_bytes);
    if (difference->overhead_ratio > -1)
        mt_json_signed_real(json, "overhead_ratio", difference->overhead_ratio);
    else
        mt_json_null(json, "overhead_ratio");
    if (difference->graphs > 0)
        mt_json_signed(json, "bytes_of_each_graph", difference->bytes_of_each);
    else
        mt_json_null(json, "bytes_of_each_graph");
    mt_json_text(json, "case_for_optimising", mt_graphs_advice_name(difference->advice));
    mt_json_text(json, "advice", advice[difference->advice]);
    mt_json_end(json);
}

void cli_graphs_json(const struct cli_graphs_document *document, struct mt_strbuf *out)
{
    struct mt_json json = {0};
    mt_json_begin_object(&json, NULL);
    mt_json_text(&json, "schema", "memtally/1");
    mt_json_text(&json, "kind", "graphs");
    mt_json_begin_array(&json, "runs");
    for (int i = 0; i < LETTERS && document->runs[i]; i++)
        json_run(document, i, &json);
    mt_json_end(&json);
    if (document->difference)
        json_difference(document->difference, &json);
    else
        mt_json_null(&json, "difference");
    mt_json_end(&json);
    mt_json_finish(&json, out);
}
