/* SPDX-License-Identifier: MIT */
/* An estimate as text for people: the verdict, what was asked, each place, the pool, the flags. */
#include <inttypes.h>
#include <memtally/predict.h>
#include <memtally/provenance.h>
#include <memtally/settings.h>
#include <memtally/tally.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/document/shell.h"
#include "cli/document/verdict.h"
#include "emit/text.h"
#include "internal.h"

static void put_verdict(const struct cli_document *document, const struct cli_terminal *terminal,
                        struct mt_strbuf *out)
{
    const struct mt_estimate *estimate = document->estimate;
    const char *reason = estimate->reason ? estimate->reason
                                          : "no capacity was given; --here asks this machine, "
                                            "--device and --host name one";
    cli_table_verdict(terminal, out, estimate->verdict, reason);
}

/* "RTX3070, 2 x RTX3050-6GB". */
static void put_cards(const struct cli_document_answer *answer, const struct cli_terminal *terminal,
                      struct mt_strbuf *out)
{
    struct mt_strbuf text = {0};
    for (size_t i = 0; i < answer->n_cards; i++) {
        mt_strbuf_puts(&text, i ? ", or " : "");
        if (answer->cards[i].n > 1)
            mt_strbuf_printf(&text, "%zu x ", answer->cards[i].n);
        mt_strbuf_puts(&text, answer->cards[i].gpu);
    }
    if (answer->n_cards)
        cli_table_fact(terminal, out, "cards", "%s", mt_strbuf_text(&text));
    mt_strbuf_finish_part(&text, out);
}

static void put_answer(const struct cli_document_answer *answer,
                       const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    char text[MT_SIZE_TEXT + 16];
    if (!answer)
        return;
    if (!answer->value && answer->is_size) {
        cli_table_fact(terminal, out, "answer", "no device is large enough");
        return;
    }
    if (!answer->value) {
        cli_table_fact(terminal, out, "answer", "no number of %s fits; this is the least",
                       answer->what);
        return;
    }
    if (answer->is_size)
        mt_format_size(answer->value, text);
    else
        snprintf(text, sizeof text, "%" PRIu64, answer->value);
    cli_table_fact(terminal, out, "answer", "%s %s%s%s", text, answer->what,
                   answer->limit ? "; " : "", answer->limit ? answer->limit : "");
    put_cards(answer, terminal, out);
}

static void put_model(const struct cli_document *document, const struct cli_terminal *terminal,
                      struct mt_strbuf *out)
{
    const struct cli_document_model *model = document->model;
    struct mt_strbuf text = {0};
    if (!model)
        return;
    cli_table_fact(terminal, out, "model", "%s", model->path);
    if (model->name)
        mt_strbuf_printf(&text, "%s, ", model->name);
    if (model->architecture)
        mt_strbuf_printf(&text, "%s, ", model->architecture);
    if (model->dtype)
        mt_strbuf_printf(&text, "%s, ", model->dtype);
    if (model->parameters < 1000000000)
        mt_strbuf_printf(&text, "%.1f million", (double)model->parameters / 1e6);
    else
        mt_strbuf_printf(&text, "%.2f billion", (double)model->parameters / 1e9);
    mt_strbuf_printf(&text, " parameters, %" PRIu64 " layers", model->layers);
    cli_table_fact(terminal, out, "", "%s", mt_strbuf_text(&text));
    mt_strbuf_finish_part(&text, out);
}

static void put_count(struct mt_strbuf *text, const char *name, uint64_t count)
{
    if (count && count != MT_UNKNOWN)
        mt_strbuf_printf(text, "%s%s %" PRIu64, text->length ? ", " : "", name, count);
}

static void put_word(struct mt_strbuf *text, const char *name, const char *word)
{
    if (word)
        mt_strbuf_printf(text, "%s%s %s", text->length ? ", " : "", name, word);
}

/* What was asked and what the engine takes where nothing was, as one sentence. */
static void put_settings(const struct mt_predict_settings *settings,
                         const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    static const char *const switches[] = {
        [MT_SWITCH_AUTO] = NULL,
        [MT_SWITCH_ON] = "on",
        [MT_SWITCH_OFF] = "off",
    };
    struct mt_strbuf text = {0};
    put_count(&text, "context", settings->context_tokens);
    put_count(&text, "sequences", settings->sequences);
    put_count(&text, "batch", settings->batch);
    put_count(&text, "ubatch", settings->ubatch);
    put_count(&text, "batched tokens", settings->batched_tokens);
    put_word(&text, "K", settings->kv_type_k);
    put_word(&text, "V", settings->kv_type_v);
    put_word(&text, "flash attention", switches[settings->flash_attention]);
    if (settings->n_devices && settings->gpu_layers == MT_ALL)
        put_word(&text, "gpu layers", "all");
    else if (settings->n_devices && settings->gpu_layers)
        mt_strbuf_printf(&text, ", gpu layers %" PRIu64, settings->gpu_layers);
    if (settings->memory_share > 0)
        mt_strbuf_printf(&text, ", memory share %.3g", settings->memory_share);
    if (settings->tensor_parallel > 1)
        put_count(&text, "tensor parallel", settings->tensor_parallel);
    if (settings->pipeline_parallel > 1)
        put_count(&text, "pipeline parallel", settings->pipeline_parallel);
    put_count(&text, "draft tokens", settings->draft_tokens);
    put_count(&text, "highest concurrency", settings->max_concurrency);
    put_count(&text, "largest graph", settings->graph_batch);
    if (settings->graph_padding)
        mt_strbuf_puts(&text, ", padded to graphs");
    if (settings->eager)
        mt_strbuf_puts(&text, ", eager");
    cli_table_fact(terminal, out, "settings", "%s", mt_strbuf_text(&text));
    mt_strbuf_finish_part(&text, out);
}

/* What other processes use at a place. */
static uint64_t used_at(const struct mt_predict_settings *settings, size_t place)
{
    if (place == 0)
        return settings->host_used_bytes;
    return settings->device_used_bytes ? settings->device_used_bytes[place - 1] : 0;
}

/* Whether two places hold the same, so that one table will do for both. */
static int is_same(const struct cli_document *document, size_t a, size_t b)
{
    const struct mt_predict_settings *settings = &document->estimate->settings;
    const struct mt_tally_place *one = &document->tally->places[a];
    const struct mt_tally_place *other = &document->tally->places[b];
    if (!a || !b || one->n_rows != other->n_rows || !one->n_rows ||
        one->capacity_bytes != other->capacity_bytes ||
        used_at(settings, a) != used_at(settings, b) ||
        one->total_low_bytes != other->total_low_bytes ||
        one->total_high_bytes != other->total_high_bytes)
        return 0;
    for (size_t i = 0; i < one->n_rows; i++)
        if (!cli_estimate_rows_are_same(&one->rows[i], &other->rows[i]))
            return 0;
    return 1;
}

/* The places that are the same as `first`, as "gpu:0, gpu:2 to gpu:5"; returns their number. */
static size_t name_places(const struct cli_document *document, size_t first, struct mt_strbuf *name)
{
    const struct mt_tally *tally = document->tally;
    size_t n = 0;
    for (size_t i = first; i < tally->n_places; i++) {
        size_t last = i;
        if (i > first && !is_same(document, first, i))
            continue;
        while (last + 1 < tally->n_places && is_same(document, first, last + 1))
            last++;
        mt_strbuf_printf(name, "%s%s", n ? ", " : "", tally->places[i].place);
        if (last > i)
            mt_strbuf_printf(name, "%s%s", last > i + 1 ? " to " : ", ", tally->places[last].place);
        n += last - i + 1;
        i = last;
    }
    return n;
}

static int is_shown_before(const struct cli_document *document, size_t place)
{
    for (size_t i = 1; i < place; i++)
        if (is_same(document, i, place))
            return 1;
    return 0;
}

static void put_places(const struct cli_document *document, const struct cli_terminal *terminal,
                       struct mt_strbuf *out)
{
    const struct mt_tally *tally = document->tally;
    for (size_t i = 0; i < tally->n_places; i++) {
        struct mt_strbuf names = {0};
        char heading[32];
        if (is_shown_before(document, i))
            continue;
        size_t n = name_places(document, i, &names);
        snprintf(heading, sizeof heading, "each of %zu", n);
        cli_table_estimate_place(&tally->places[i], n > 1 ? heading : tally->places[i].place,
                                 used_at(&document->estimate->settings, i), terminal, out);
        if (n > 1)
            cli_table_fact(terminal, out, "devices", "%s", mt_strbuf_text(&names));
        mt_strbuf_finish_part(&names, out);
    }
}

static void add_step(struct mt_text_table *table, const char *name, int64_t bytes,
                     enum mt_row_style style)
{
    char size[MT_SIZE_TEXT];
    char text[MT_SIZE_TEXT + 1];
    uint64_t magnitude = bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes;
    snprintf(text, sizeof text, "%s%s", bytes < 0 ? "-" : "", mt_format_size(magnitude, size));
    const struct mt_cell cells[] = {{.text = name}, {.text = text}};
    mt_text_table_add(table, 0, style, cells);
}

static void put_subtraction(const struct mt_estimate_pool *pool,
                            const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    static const struct mt_text_table_column columns[] = {
        {"the engine's budget, each device", MT_CELL_TEXT, 0}, {"bytes", MT_CELL_TEXT_RIGHT, 0}};
    struct mt_text_table table;
    mt_text_table_init(&table, columns, 2, terminal->utf8);
    add_step(&table, "requested", (int64_t)pool->requested_bytes, MT_ROW_PLAIN);
    add_step(&table, "less weights", -(int64_t)pool->weights_bytes, MT_ROW_PLAIN);
    add_step(&table, "less activations", -(int64_t)pool->activations_bytes, MT_ROW_PLAIN);
    add_step(&table, "less driver, communication and the like", -(int64_t)pool->other_bytes,
             MT_ROW_PLAIN);
    add_step(&table, "less CUDA graphs", -(int64_t)pool->graphs_bytes, MT_ROW_PLAIN);
    mt_text_table_add_rule(&table);
    add_step(&table, pool->bytes_per_token ? "pool of keys and values" : "pool of states",
             pool->pool_bytes, MT_ROW_BOLD);
    cli_table_draw(&table, terminal, out);
}

/* Whether the pool is for anything: keys, values or states. */
static int keeps_state(const struct mt_estimate *estimate)
{
    for (size_t i = 0; i < estimate->tally.n_places; i++)
        if (mt_tally_row_of(&estimate->tally.places[i], MT_CATEGORY_KV_CACHE) ||
            mt_tally_row_of(&estimate->tally.places[i], MT_CATEGORY_RECURRENT_STATE))
            return 1;
    return 0;
}

static void put_tokens(const struct mt_estimate *estimate, const struct cli_terminal *terminal,
                       struct mt_strbuf *out)
{
    const struct mt_estimate_pool *pool = &estimate->pool;
    char size[MT_SIZE_TEXT];
    cli_table_fact(terminal, out, "tokens",
                   "%" PRIu64 " (%" PRIu64 " to %" PRIu64 "), each %s in each device",
                   pool->pool_tokens, pool->pool_tokens_low, pool->pool_tokens_high,
                   mt_format_size(pool->bytes_per_token, size));
    cli_table_fact(terminal, out, "concurrency", "%.2f sequences of %" PRIu64 " tokens at once",
                   pool->concurrency, estimate->settings.context_tokens);
}

/* A pool of recurrent states: of how many sequences, however long they are. */
static void put_states(const struct mt_estimate *estimate, const struct cli_terminal *terminal,
                       struct mt_strbuf *out)
{
    const struct mt_estimate_pool *pool = &estimate->pool;
    uint64_t states = (uint64_t)pool->concurrency;
    uint64_t sequences = estimate->settings.sequences;
    if (sequences && sequences < states)
        cli_table_fact(terminal, out, "states",
                       "of %" PRIu64 " sequences, however long they are; %" PRIu64
                       " are run at once",
                       states, sequences);
    else
        cli_table_fact(terminal, out, "states", "of %" PRIu64 " sequences, however long they are",
                       states);
}

static void put_pool(const struct mt_estimate *estimate, const struct cli_terminal *terminal,
                     struct mt_strbuf *out)
{
    const struct mt_estimate_pool *pool = &estimate->pool;
    if (!pool->present)
        return;
    if (!pool->bytes_per_token && (!keeps_state(estimate) || pool->concurrency < 1)) {
        cli_table_fact(terminal, out, "pool", "none: the model keeps no keys and values");
        return;
    }
    put_subtraction(pool, terminal, out);
    if (pool->bytes_per_token)
        put_tokens(estimate, terminal, out);
    else
        put_states(estimate, terminal, out);
    if (pool->graphs_note)
        cli_table_fact(terminal, out, "graphs", "%s", pool->graphs_note);
}

/* "64: draft_len_4: 32 of 1 to 32 requests, draft_len_0: 32 of 1 to 32 requests". */
static void put_graphs(const struct mt_estimate_graphs *graphs, const struct cli_terminal *terminal,
                       struct mt_strbuf *out)
{
    struct mt_strbuf text = {0};
    char pool[MT_SIZE_TEXT], driver[MT_SIZE_TEXT], beside[MT_SIZE_TEXT + 32] = "";
    for (size_t i = 0; i < graphs->n_groups; i++) {
        const struct mt_estimate_graph_group *group = &graphs->groups[i];
        int is_of_tokens = group->draft_tokens == MT_UNKNOWN || graphs->is_of_tokens;
        mt_strbuf_puts(&text, i ? ", " : "");
        if (group->draft_tokens == MT_UNKNOWN)
            mt_strbuf_printf(&text, "%s: ", group->kind);
        else
            mt_strbuf_printf(&text, "draft_len_%" PRIu64 ": ", group->draft_tokens);
        mt_strbuf_printf(&text, "%" PRIu64 " of %" PRIu64 " to %" PRIu64 " %s", group->n,
                         group->least, group->largest, is_of_tokens ? "tokens" : "requests");
    }
    if (graphs->static_bytes)
        snprintf(beside, sizeof beside, ", buffers of %s",
                 mt_format_size(graphs->static_bytes, driver));
    if (graphs->n)
        cli_table_fact(terminal, out, "captured",
                       "%" PRIu64 " CUDA graphs (%s); a pool of %s%s, and %s of the driver's",
                       graphs->n, mt_strbuf_text(&text), mt_format_size(graphs->pool_bytes, pool),
                       beside, mt_format_size(graphs->driver_bytes, driver));
    mt_strbuf_finish_part(&text, out);
}

/* The length of the flag at `text`: up to a blank outside quotes. */
static size_t flag_length(const char *text)
{
    char quote = '\0';
    size_t i = 0;
    for (; text[i]; i++) {
        if (quote)
            quote = text[i] == quote ? '\0' : quote;
        else if (text[i] == '\\' && text[i + 1])
            i++;
        else if (text[i] == '\'' || text[i] == '"')
            quote = text[i];
        else if (text[i] == ' ')
            break;
    }
    return i;
}

/* A command line stays fit to be pasted: a line that goes on ends as its language
 * wants it. */
static void put_flags(const struct cli_document *document, const struct cli_terminal *terminal,
                      struct mt_strbuf *out)
{
    struct mt_strbuf command = {0};
    struct mt_strbuf escaped = {0};
    char heading[96];
    size_t column = 0;
    if (!document->estimate->flags || !*document->estimate->flags)
        return;
    snprintf(heading, sizeof heading, "Command line for %s", document->tally->engine_name);
    cli_table_heading(terminal, heading, out);
    cli_put_engine_command(&command, document);
    mt_text_escape(&escaped, mt_strbuf_text(&command), terminal->utf8);
    mt_strbuf_finish_part(&command, out);
    for (const char *flag = mt_strbuf_text(&escaped); *flag;) {
        size_t length = flag_length(flag);
        if (column && column + 1 + length + 2 > (size_t)terminal->columns) {
            mt_strbuf_printf(out, "%s\n", cli_engine_command_goes_on(document));
            column = 0;
        }
        mt_strbuf_puts(out, column ? " " : "");
        column += (column ? 1 : 0) + length;
        mt_strbuf_append(out, flag, length);
        flag += length;
        flag += strspn(flag, " ");
    }
    mt_strbuf_puts(out, "\n");
    mt_strbuf_finish_part(&escaped, out);
}

static void put_term(const struct mt_estimate_term *term, const struct cli_terminal *terminal,
                     struct mt_strbuf *out)
{
    char size[MT_SIZE_TEXT];
    char low[MT_SIZE_TEXT];
    char high[MT_SIZE_TEXT];
    mt_strbuf_puts(out, "\n");
    cli_table_fact(terminal, out, term->place, "%s, %s: %s, %s", mt_category_name(term->category),
                   term->name, mt_format_size(term->bytes, size),
                   mt_provenance_name(term->provenance));
    cli_table_fact(terminal, out, "", "%s = %" PRIu64 " bytes", term->formula, term->bytes);
    if (term->low_bytes != term->high_bytes)
        cli_table_fact(terminal, out, "band", "%s to %s", mt_format_size(term->low_bytes, low),
                       mt_format_size(term->high_bytes, high));
    cli_table_fact(terminal, out, "rule", "%s", term->rule);
    if (term->source)
        cli_table_fact(terminal, out, "source", "%s", term->source);
}

static void put_terms(const struct mt_estimate *estimate, const struct cli_terminal *terminal,
                      struct mt_strbuf *out)
{
    cli_table_heading(terminal, "How each figure comes about", out);
    for (size_t i = 0; i < estimate->n_terms; i++)
        put_term(&estimate->terms[i], terminal, out);
}

/* The program too, where it was rehearsed. */
static void put_engine(const struct cli_document *document, const struct cli_terminal *terminal,
                       struct mt_strbuf *out)
{
    const char *path = document->engine ? document->engine->path : NULL;
    cli_table_fact(terminal, out, "engine", "%s%s%s%s%s", document->tally->engine_name,
                   document->tally->engine_version ? " " : "",
                   document->tally->engine_version ? document->tally->engine_version : "",
                   path                  ? ", rehearsed: "
                   : document->rehearsal ? ", rehearsed: exact figures are its own"
                                         : "",
                   path ? path : "");
}

void cli_table_estimate(const struct cli_document *document, const struct cli_terminal *terminal,
                        struct mt_strbuf *out)
{
    const struct mt_estimate *estimate = document->estimate;
    put_verdict(document, terminal, out);
    put_answer(document->answer, terminal, out);
    put_model(document, terminal, out);
    put_engine(document, terminal, out);
    if (document->rehearsal)
        cli_table_rehearsal(document, terminal, out);
    if (document->model || !document->rehearsal)
        put_settings(&estimate->settings, terminal, out);
    put_places(document, terminal, out);
    if (document->rehearsal)
        cli_table_rehearsal_late(document, terminal, out);
    if (document->rehearsal)
        cli_table_rehearsal_phases(document, terminal, out);
    put_pool(estimate, terminal, out);
    put_graphs(&estimate->graphs, terminal, out);
    put_flags(document, terminal, out);
    if (document->explain)
        put_terms(estimate, terminal, out);
    cli_table_notes(document, terminal, out);
}
