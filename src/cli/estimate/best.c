/* SPDX-License-Identifier: MIT */
/* Which of several files is the largest that fits. */
#include <memtally/error.h>
#include <memtally/predict.h>
#include <memtally/tally.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/out_of_memory.h"
#include "cli/document/internal.h"
#include "cli/document/verdict.h"
#include "cli/estimate/estimate.h"

/* All files with their estimates, or why one could not be estimated (a code other than 0); `best`
 * is the index of the largest that fits, `n` where none does. */
struct contest {
    struct estimate_request *request;
    const struct estimate_options *options;
    char **names;
    struct estimate_result *results;
    struct mt_error *errors;
    size_t n;
    size_t n_failed;
    size_t best;
};

static uint64_t weight_of(const struct estimate_result *result)
{
    return mt_model_describe(result->model)->weight_bytes;
}

static void choose(struct contest *contest)
{
    contest->best = contest->n;
    for (size_t i = 0; i < contest->n; i++) {
        const struct estimate_result *result = &contest->results[i];
        if (contest->errors[i].code || result->estimate->verdict != MT_VERDICT_FITS)
            continue;
        if (contest->best == contest->n ||
            weight_of(result) > weight_of(&contest->results[contest->best]))
            contest->best = i;
    }
}

static int is_device(const struct mt_tally_place *place)
{
    return strcmp(place->place, "host") != 0;
}

/* The high end of the fullest device, or of the host: each has a room of its own. */
static uint64_t high_of(const struct mt_tally *tally, int of_devices)
{
    uint64_t most = 0;
    for (size_t i = 0; i < tally->n_places; i++)
        if (is_device(&tally->places[i]) == of_devices && tally->places[i].n_rows &&
            tally->places[i].total_high_bytes > most)
            most = tally->places[i].total_high_bytes;
    return most;
}

static void put_row(const struct contest *contest, size_t index, size_t has_devices,
                    const struct cli_terminal *terminal, struct mt_text_table *table)
{
    const struct estimate_result *result = &contest->results[index];
    struct mt_cell cells[] = {
        {.text = contest->names[index]},
        {.empty = 1},
        {.empty = 1},
        {.empty = 1},
        {.empty = 1},
        {.text = "FAILED", .style = cli_tone(terminal, CLI_TONE_BAD)},
    };
    if (!contest->errors[index].code) {
        const struct mt_tally *tally = &result->estimate->tally;
        enum mt_verdict verdict = result->estimate->verdict;
        cells[1] = (struct mt_cell){.text = result->document_model.dtype,
                                    .empty = !result->document_model.dtype};
        cells[2] = (struct mt_cell){.number = weight_of(result)};
        cells[3] = (struct mt_cell){.number = high_of(tally, 0)};
        cells[4] = (struct mt_cell){.number = high_of(tally, 1), .empty = !high_of(tally, 1)};
        cells[5] = (struct mt_cell){.text = mt_verdict_name(verdict),
                                    .style = cli_verdict_style(terminal, verdict)};
    }
    if (!has_devices)
        cells[4] = cells[5];
    mt_text_table_add(table, 0, index == contest->best ? MT_ROW_BOLD : MT_ROW_PLAIN, cells);
}

static void put_table(const struct contest *contest, const struct cli_terminal *terminal,
                      struct mt_strbuf *out)
{
    size_t n_devices = contest->request->settings.n_devices;
    const struct mt_text_table_column columns[] = {
        {"file", MT_CELL_TEXT, 0},
        {"type", MT_CELL_TEXT, 1},
        {"weights", MT_CELL_SIZE, 2},
        {"host, at most", MT_CELL_SIZE, 0},
        {n_devices > 1    ? "fullest device"
         : n_devices == 1 ? "device, at most"
                          : "verdict",
         n_devices ? MT_CELL_SIZE : MT_CELL_TEXT, 0},
        {"verdict", MT_CELL_TEXT, 0},
    };
    struct mt_text_table table;
    mt_text_table_init(&table, columns, n_devices ? 6 : 5, terminal->utf8);
    for (size_t i = 0; i < contest->n; i++)
        put_row(contest, i, n_devices, terminal, &table);
    cli_table_draw(&table, terminal, out);
    for (size_t i = 0; i < contest->n; i++)
        if (contest->errors[i].code)
            cli_table_fact(terminal, out, "not read", "%s", contest->errors[i].text);
}

static int render_table(const struct contest *contest, struct mt_strbuf *out,
                        struct mt_error *error)
{
    struct cli_terminal terminal = cli_terminal_of_output(contest->options->output);
    if (contest->best == contest->n)
        cli_table_fact(&terminal, out, "answer", "none of the %zu files fits",
                       contest->n - contest->n_failed);
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

void estimate_put_failure(const char *name, const struct mt_error *error, struct mt_json *json)
{
    mt_json_begin_object(json, NULL);
    mt_json_text(json, "path", name);
    mt_json_text(json, "code", mt_error_name(error->code));
    mt_json_text(json, "sentence", error->text);
    mt_json_end(json);
}

static void put_failures(const struct contest *contest, struct mt_json *json)
{
    mt_json_begin_array(json, "failures");
    for (size_t i = 0; i < contest->n; i++)
        if (contest->errors[i].code)
            estimate_put_failure(contest->names[i], &contest->errors[i], json);
    mt_json_end(json);
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
        if (contest->errors[i].code)
            continue;
        struct cli_document document =
            estimate_document(&contest->results[i], contest->request, contest->options);
        cli_document_put_json(&document, &json);
    }
    mt_json_end(&json);
    put_failures(contest, &json);
    mt_json_end(&json);
    mt_json_finish(&json, out);
}

static int render_csv(const struct contest *contest, struct mt_strbuf *out, struct mt_error *error)
{
    const struct cli_terminal terminal = {.columns = CLI_COLUMNS_PLAIN};
    int result = 0;
    for (size_t i = 0; i < contest->n && !result; i++) {
        if (contest->errors[i].code)
            continue;
        struct cli_document document =
            estimate_document(&contest->results[i], contest->request, contest->options);
        document.follows_another = out->length > 0;
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

/* A file that cannot be estimated is left out and said; where none can, that is the answer. */
static int judge_all(struct contest *contest, struct mt_error *error)
{
    for (size_t i = 0; i < contest->n; i++) {
        struct mt_error why = {.offset = MT_NO_OFFSET};
        if (estimate_make(&contest->results[i], contest->names[i], contest->options->remote,
                          &contest->request->settings, -1, &why) == 0)
            continue;
        contest->errors[i] = why;
        contest->n_failed++;
    }
    choose(contest);
    if (contest->n_failed < contest->n)
        return 0;
    *error = contest->errors[0];
    return error->code;
}

/* The engine itself says whether what rules chose fits; where it does not, it is asked of the next.
 */
static int confirm(struct contest *contest, struct mt_error *error)
{
    const struct estimate_options *options = contest->options;
    size_t asked = contest->n;
    while (contest->best != asked && contest->best < contest->n) {
        asked = contest->best;
        int failed = estimate_confirm(&contest->results[asked], contest->names[asked],
                                      contest->request, options, error);
        if (failed)
            return failed;
        choose(contest);
    }
    return 0;
}

static void complain_of_failures(const struct contest *contest)
{
    for (size_t i = 0; i < contest->n; i++)
        if (contest->errors[i].code)
            cli_complain("%s", contest->errors[i].text);
}

static void finish(struct contest *contest)
{
    for (size_t i = 0; contest->results && i < contest->n; i++)
        estimate_result_finish(&contest->results[i]);
    free(contest->results);
    free(contest->errors);
}

int estimate_best(const struct cli_call *call, struct estimate_request *request,
                  struct mt_strbuf *out, int *found, struct mt_error *error)
{
    struct contest contest = {.request = request,
                              .options = call->options,
                              .names = call->operands,
                              .n = call->n_operands,
                              .best = call->n_operands};
    contest.results = calloc(contest.n, sizeof *contest.results);
    contest.errors = calloc(contest.n, sizeof *contest.errors);
    int result =
        contest.results && contest.errors ? judge_all(&contest, error) : mt_out_of_memory(error);
    if (!result)
        result = confirm(&contest, error);
    if (!result)
        result = render(&contest, out, error);
    if (!result && contest.options->format != CLI_FORMAT_TABLE)
        complain_of_failures(&contest);
    *found = contest.best < contest.n;
    finish(&contest);
    return result;
}
