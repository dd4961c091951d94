/* SPDX-License-Identifier: MIT */
/* Which of several files is the largest that fits. */
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/document_parts.h"
#include "cli/estimate/estimate.h"

/* All files with their estimates; `best` is the index of the largest that fits, `n` where none
 * does. */
struct contest {
    const struct estimate_request *request;
    const struct estimate_options *options;
    struct estimate_result *results;
    size_t n;
    size_t best;
};

static uint64_t weight_of(const struct estimate_result *result)
{
    return mt_model_describe(result->model)->weight_bytes;
}

static void compare(struct contest *contest, size_t index)
{
    const struct estimate_result *result = &contest->results[index];
    if (result->estimate->verdict != MT_VERDICT_FITS)
        return;
    if (contest->best == contest->n ||
        weight_of(result) > weight_of(&contest->results[contest->best]))
        contest->best = index;
}

static uint64_t high_of(const struct mt_tally *tally)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < tally->n_places; i++)
        if (tally->places[i].n_rows)
            sum = cli_sum(sum, tally->places[i].total_high_bytes);
    return sum;
}

static void put_table(const struct contest *contest, const struct cli_terminal *terminal,
                      struct mt_strbuf *out)
{
    static const struct mt_text_table_column columns[] = {
        {"file", MT_CELL_TEXT, 0},    {"type", MT_CELL_TEXT, 1},    {"weights", MT_CELL_SIZE, 0},
        {"at most", MT_CELL_SIZE, 0}, {"verdict", MT_CELL_TEXT, 0},
    };
    struct mt_text_table table;
    mt_text_table_init(&table, columns, 5, terminal->utf8);
    for (size_t i = 0; i < contest->n; i++) {
        const struct estimate_result *result = &contest->results[i];
        const struct mt_cell cells[] = {
            {.text = result->document_model.path},
            {.text = result->document_model.dtype, .empty = !result->document_model.dtype},
            {.number = weight_of(result)},
            {.number = high_of(&result->estimate->tally)},
            {.text = mt_verdict_name(result->estimate->verdict),
             .style = cli_verdict_style(terminal, result->estimate->verdict)},
        };
        mt_text_table_add(&table, 0, i == contest->best ? MT_ROW_BOLD : MT_ROW_PLAIN, cells);
    }
    cli_table_draw(&table, terminal, out);
}

static int render_table(const struct contest *contest, struct mt_strbuf *out,
                        struct mt_error *error)
{
    struct cli_terminal terminal = cli_terminal_of_output(contest->options->output);
    if (contest->best == contest->n)
        cli_table_fact(&terminal, out, "answer", "none of the %zu files fits", contest->n);
    else
        cli_table_fact(&terminal, out, "answer", "%s is the largest that fits",
                       contest->results[contest->best].document_model.path);
    put_table(contest, &terminal, out);
    if (contest->best == contest->n)
        return 0;
    mt_strbuf_puts(out, "\n");
    struct cli_document document =
        estimate_document(&contest->results[contest->best], contest->request, contest->options);
    return cli_document_render(&document, CLI_FORMAT_TABLE, &terminal, out, error);
}

static void render_json(const struct contest *contest, struct mt_strbuf *out)
{
    struct mt_json json = {0};
    const char *best = NULL;
    if (contest->best < contest->n)
        best = contest->results[contest->best].document_model.path;
    mt_json_begin_object(&json, NULL);
    mt_json_text(&json, "schema", "memtally/1");
    mt_json_text(&json, "kind", "estimates");
    mt_json_begin_object(&json, "answer");
    mt_json_text(&json, "goal", "best_quant");
    mt_json_text(&json, "path", best);
    mt_json_end(&json);
    mt_json_begin_array(&json, "estimates");
    for (size_t i = 0; i < contest->n; i++) {
        struct cli_document document =
            estimate_document(&contest->results[i], contest->request, contest->options);
        cli_document_put_json(&document, &json);
    }
    mt_json_end(&json);
    mt_json_end(&json);
    mt_json_finish(&json, out);
}

static int render_csv(const struct contest *contest, struct mt_strbuf *out, struct mt_error *error)
{
    const struct cli_terminal terminal = {.columns = CLI_COLUMNS_PLAIN};
    int result = 0;
    for (size_t i = 0; i < contest->n && !result; i++) {
        struct cli_document document =
            estimate_document(&contest->results[i], contest->request, contest->options);
        document.follows_another = i > 0;
        result = cli_document_render(&document, CLI_FORMAT_CSV, &terminal, out, error);
    }
    return result;
}

static int render(const struct contest *contest, struct mt_strbuf *out, struct mt_error *error)
{
    if (contest->options->format == CLI_FORMAT_TABLE)
        return render_table(contest, out, error);
    if (contest->options->format == CLI_FORMAT_CSV)
        return render_csv(contest, out, error);
    render_json(contest, out);
    return 0;
}

int estimate_best(const struct cli_call *call, const struct estimate_request *request,
                  struct mt_strbuf *out, int *found, struct mt_error *error)
{
    struct contest contest = {.request = request,
                              .options = call->options,
                              .n = call->n_operands,
                              .best = call->n_operands};
    int result = 0;
    contest.results = calloc(contest.n, sizeof *contest.results);
    if (!contest.results)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    for (size_t i = 0; i < contest.n && !result; i++) {
        result = estimate_make(&contest.results[i], call->operands[i], contest.options->remote,
                               &request->settings, -1, error);
        if (!result)
            compare(&contest, i);
    }
    if (!result)
        result = render(&contest, out, error);
    *found = contest.best < contest.n;
    for (size_t i = 0; i < contest.n; i++)
        estimate_result_finish(&contest.results[i]);
    free(contest.results);
    return result;
}
