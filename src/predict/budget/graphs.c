/* SPDX-License-Identifier: MIT */
/* CUDA graphs by an engine's rule: sizes, drafts, and the bytes that follow. Knows no engine. */
#include "graphs.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/predict.h>
#include <memtally/units.h>

#include "gpu/law.h"

#define SIZES_MAX 600

struct sizes {
    uint64_t list[SIZES_MAX];
    size_t n;
};

/* ---- sizes ---- */

static void add_size(struct sizes *sizes, uint64_t size)
{
    if (sizes->n < SIZES_MAX)
        sizes->list[sizes->n++] = size;
}

static int ascending(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return one < other ? -1 : one > other;
}

static void sort_once(struct sizes *sizes)
{
    size_t n = 0;
    qsort(sizes->list, sizes->n, sizeof *sizes->list, ascending);
    for (size_t i = 0; i < sizes->n; i++)
        if (!n || sizes->list[i] != sizes->list[n - 1])
            sizes->list[n++] = sizes->list[i];
    sizes->n = n;
}

/* One word: "4", "8-248+8", "32-*2". */
static void add_word(const char *word, uint64_t most, struct sizes *sizes)
{
    char *end;
    uint64_t size = strtoull(word, &end, 10), last = size, step = 1;
    char how = '+';
    if (*end == '-') {
        int is_open = !isdigit((unsigned char)end[1]); /* strtoull() would take the sign */
        last = strtoull(end + 1, is_open ? NULL : &end, 10);
        last = is_open ? most : last;
        end += is_open;
        how = *end;
        step = strtoull(end + 1, NULL, 10);
    }
    last = last < most ? last : most;
    step += step < 2 && how == '*'; /* a factor of 1 would not end */
    while (size && size <= last && step && sizes->n < SIZES_MAX) {
        add_size(sizes, size);
        size = how == '*' ? mt_mul(size, step) : size + step;
    }
}

/* The sizes of a key, up to the largest; 0 where the table has no such key. */
static int read_sizes(const struct mt_engine *engine, const char *key, uint64_t most,
                      struct sizes *sizes)
{
    struct mt_engine_value value;
    char text[256];
    char *rest = text;
    sizes->n = 0;
    if (mt_engine_value(engine, key, &value) != 0)
        return 0;
    mt_engine_text(engine, key, text, sizeof text);
    for (char *word; (word = strtok_r(rest, " ", &rest));)
        add_word(word, most, sizes);
    sort_once(sizes);
    return 1;
}

uint64_t mt_budget_count_sizes(const struct mt_engine *engine, const char *key, uint64_t most)
{
    struct sizes sizes;
    read_sizes(engine, key, most, &sizes);
    return sizes.n;
}

/* ---- which ---- */

static void add_group(struct mt_estimate_graphs *graphs, const char *kind, uint64_t draft,
                      const struct sizes *sizes, uint64_t tokens_each)
{
    if (!sizes->n || graphs->n_groups == MT_ESTIMATE_GRAPH_GROUPS)
        return;
    uint64_t largest = sizes->list[sizes->n - 1];
    uint64_t tokens = mt_mul(largest, tokens_each);
    graphs->groups[graphs->n_groups++] = (struct mt_estimate_graph_group){.kind = kind,
                                                                          .draft_tokens = draft,
                                                                          .n = sizes->n,
                                                                          .least = sizes->list[0],
                                                                          .largest = largest};
    graphs->n += sizes->n;
    graphs->largest_tokens = tokens > graphs->largest_tokens ? tokens : graphs->largest_tokens;
}

static uint64_t draft_of(const struct mt_predict_input *in)
{
    return in->settings->draft_tokens;
}

/* The largest size by the table; of an engine without one, as many as run at a time. */
static uint64_t most_of(const struct mt_predict_input *in, uint64_t otherwise)
{
    uint64_t told = in->settings->graph_batch;
    return told ? told : mt_engine_number(in->engine, "graphs.most", otherwise);
}

static const char *sizes_key(const struct mt_predict_input *in)
{
    struct mt_engine_value value;
    const char *key = in->settings->graph_padding ? "graphs.sizes.padded"
                      : draft_of(in)              ? "graphs.sizes.draft"
                                                  : "graphs.sizes";
    return mt_engine_value(in->engine, key, &value) == 0 ? key : "graphs.sizes";
}

/* Leaves out what is above `most`. A padded batch goes to the most that there is, where a size was
 * above it. */
static void cut(struct sizes *sizes, uint64_t most, int is_padded)
{
    size_t n = 0;
    while (n < sizes->n && sizes->list[n] <= most)
        n++;
    int goes_on = n < sizes->n;
    sizes->n = n;
    if (goes_on && is_padded && most && (!n || sizes->list[n - 1] != most))
        add_size(sizes, most);
}

static void by_requests(const struct mt_predict_input *in, struct mt_estimate_graphs *graphs)
{
    const struct mt_predict_settings *settings = in->settings;
    struct sizes sizes;
    uint64_t tokens = 1 + draft_of(in);
    uint64_t most = most_of(in, settings->sequences);
    uint64_t fitting = settings->batched_tokens / tokens;
    int cuts_tokens = mt_engine_has(in->engine, "graphs.largest", "cut");
    read_sizes(in->engine, sizes_key(in), most, &sizes);
    if (mt_engine_has(in->engine, "graphs.largest", "append"))
        add_size(&sizes, most);
    sort_once(&sizes);
    fitting = cuts_tokens && fitting < settings->sequences ? fitting : settings->sequences;
    cut(&sizes, fitting, settings->graph_padding);
    add_group(graphs, "FULL", draft_of(in), &sizes, tokens);
    if (draft_of(in) && settings->max_concurrency)
        add_group(graphs, "FULL", 0, &sizes, 1);
}

static void add_prefill(const struct mt_predict_input *in, struct mt_estimate_graphs *graphs)
{
    struct sizes sizes;
    if (in->settings->pipeline_parallel < 2 &&
        read_sizes(in->engine, "graphs.prefill.sizes", in->settings->batched_tokens, &sizes))
        add_group(graphs, "PREFILL", MT_UNKNOWN, &sizes, 1);
}

/* Multiples of the tokens of a request, of sizes or of numbers of requests. */
static void scale(const struct sizes *from, uint64_t by, int is_rounding, uint64_t most,
                  struct sizes *to)
{
    for (size_t i = 0; i < from->n; i++) {
        uint64_t size = mt_mul(is_rounding ? mt_ceil_div(from->list[i], by) : from->list[i], by);
        if (size <= most)
            add_size(to, size);
    }
}

/* Where batches above a concurrency have no drafts, graphs of batches that only decode without
 * them: one token a request. */
static __attribute__((noinline)) void add_without_drafts(const struct mt_predict_input *in,
                                                         const struct sizes *pieces,
                                                         struct mt_estimate_graphs *graphs)
{
    const struct mt_predict_settings *settings = in->settings;
    struct sizes sizes = {.n = 0};
    if (!draft_of(in) || !settings->max_concurrency ||
        settings->max_concurrency >= settings->sequences)
        return;
    scale(pieces, 1, 0, settings->sequences, &sizes);
    add_group(graphs, "FULL", 0, &sizes, 1);
}

/* Whole graphs are of batches that only decode, pieces of any number of tokens. */
static void by_tokens(const struct mt_predict_input *in, struct mt_estimate_graphs *graphs)
{
    const struct mt_predict_settings *settings = in->settings;
    uint64_t each = 1 + draft_of(in);
    uint64_t decoded = mt_mul(settings->sequences, each);
    uint64_t most = settings->graph_batch;
    int adds = mt_engine_has(in->engine, "graphs.draft", "add") && !most;
    struct sizes pieces, other, whole = {.n = 0};
    if (!most) {
        most = mt_engine_number(in->engine, "graphs.most", 512);
        most = mt_mul(decoded, 2) < most ? mt_mul(decoded, 2) : most;
    }
    most = settings->batched_tokens < most ? settings->batched_tokens : most;
    read_sizes(in->engine, "graphs.sizes", most, &pieces);
    if (adds) {
        read_sizes(in->engine, "graphs.sizes", settings->sequences, &other);
        add_size(&other, settings->sequences);
        scale(&other, each, 0, most, &pieces);
        if (settings->batched_tokens <= most)
            add_size(&pieces, settings->batched_tokens);
        sort_once(&pieces);
    }
    uint64_t largest = pieces.n ? pieces.list[pieces.n - 1] : 0;
    graphs->is_of_tokens = 1;
    scale(&pieces, each, 1, decoded < largest ? decoded : largest, &whole);
    sort_once(&whole);
    if (each > 1 && mt_engine_has(in->engine, "graphs.draft", "round")) {
        other.n = 0;
        scale(&pieces, each, 1, largest, &other);
        sort_once(&other);
        pieces = other;
    }
    if (mt_engine_has(in->engine, "graphs.kinds", "PIECEWISE"))
        add_group(graphs, "PIECEWISE", MT_UNKNOWN, &pieces, 1);
    if (mt_engine_has(in->engine, "graphs.kinds", "FULL"))
        add_group(graphs, "FULL", draft_of(in), &whole, 1);
    if (mt_engine_has(in->engine, "graphs.draft", "concurrency"))
        add_without_drafts(in, &pieces, graphs);
}

void mt_budget_graphs(const struct mt_predict_input *in, struct mt_estimate_graphs *graphs)
{
    *graphs = (struct mt_estimate_graphs){0};
    if (in->settings->eager)
        return;
    if (mt_engine_has(in->engine, "graphs.rule", "requests"))
        by_requests(in, graphs);
    else if (mt_engine_has(in->engine, "graphs.rule", "tokens"))
        by_tokens(in, graphs);
    else
        return;
    add_prefill(in, graphs);
    graphs->present = 1;
}

/* ---- what they take ---- */

static int recurs(const struct mt_model_description *d)
{
    for (uint64_t i = 0; i < d->n_layers; i++)
        if (d->layers[i].recurrence != MT_RECURRENCE_NONE)
            return 1;
    return 0;
}

static double nodes_of_a_layer(const struct mt_predict_input *in)
{
    const char *key = recurs(in->d)    ? "graphs.nodes.states"
                      : in->d->experts ? "graphs.nodes.experts"
                                       : "graphs.nodes";
    return mt_engine_real(in->engine, key, mt_engine_real(in->engine, "graphs.nodes", 15));
}

static uint64_t node_bytes(const struct mt_predict_input *in)
{
    const struct mt_device_known *known = in->settings->device_known;
    return known && known[0].graph_node_bytes ? known[0].graph_node_bytes
                                              : mt_gpu_law_graph_node().bytes;
}

/* Tokens of the largest batch that only decodes: it alone has logits. */
static uint64_t decoded_tokens(const struct mt_estimate_graphs *graphs)
{
    uint64_t most = 0;
    for (size_t i = 0; i < graphs->n_groups; i++) {
        const struct mt_estimate_graph_group *group = &graphs->groups[i];
        if (group->draft_tokens == MT_UNKNOWN)
            continue;
        uint64_t each = graphs->is_of_tokens ? 1 : 1 + group->draft_tokens;
        uint64_t tokens = mt_mul(group->largest, each);
        most = tokens > most ? tokens : most;
    }
    return most;
}

void mt_budget_weigh_graphs(const struct mt_predict_input *in, const struct mt_torch_stage *stage,
                            struct mt_estimate_graphs *graphs)
{
    struct mt_torch_forward forward;
    uint64_t layers = stage->end > stage->first ? stage->end - stage->first : 0;
    uint64_t tokens = stage->is_last ? decoded_tokens(graphs) : 0;
    uint64_t logits = mt_mul(tokens, in->d->vocabulary);
    mt_torch_forward_of(in, stage, graphs->largest_tokens, &forward);
    graphs->pool_bytes =
        mt_add(forward.bytes, mt_scale(logits, mt_engine_real(in->engine, "graphs.logits", 0)));
    graphs->static_bytes = graphs->n ? mt_engine_number(in->engine, "graphs.static", 0) : 0;
    graphs->driver_bytes =
        mt_scale(mt_mul(mt_mul(graphs->n, layers), node_bytes(in)), nodes_of_a_layer(in));
}
