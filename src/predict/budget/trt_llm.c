/* SPDX-License-Identifier: MIT */
/* TensorRT-LLM. The cache takes a share of what is free once weights, the shared pool of
 * activations and the buffers of runtime and decoder are there. */
#include <inttypes.h>

#include <memtally/predict.h>

#include "budget.h"
#include "graphs.h"
#include "predict/term.h"

enum part { WEIGHTS, ENCODERS, ACTIVATIONS, WORKSPACE, CONTEXT, STATES, GRAPHS };

struct rank {
    struct mt_budget_rank budget; /* first */
    uint64_t token_bytes;
    uint64_t state_bytes;
    int has_graph_rule;
};

static const struct rank *own(const struct mt_budget_rank *rank)
{
    return (const struct rank *)rank;
}

static int complete(const struct mt_model *model, const struct mt_engine *engine,
                    struct mt_predict_settings *settings, struct mt_error *error)
{
    int result = mt_torch_begin(model, engine, settings, "--max_num_tokens", 4096, error);
    if (result < 0)
        return result;
    if (!settings->batched_tokens)
        settings->batched_tokens = mt_engine_number(engine, "batched_tokens", 8192);
    if (!settings->sequences)
        settings->sequences = mt_engine_number(engine, "sequences", 2048);
    return mt_budget_complete_share(engine, settings, error);
}

static double coefficient(const struct mt_predict_input *in)
{
    static const char *const keys[2][3] = {
        {"activations", "activations.tp2", "activations.more"},
        {"activations.experts", "activations.experts.tp2", "activations.experts.more"}};
    uint64_t parallel = in->settings->tensor_parallel;
    size_t which = parallel < 2 ? 0 : parallel < 4 ? 1 : 2;
    return mt_engine_real(in->engine, keys[in->d->experts > 0][which], 11);
}

static uint64_t activation_bytes(const struct mt_predict_input *in)
{
    uint64_t least = mt_engine_number(in->engine, "activations.least", 0);
    uint64_t hidden = mt_mul(mt_mul(in->settings->batched_tokens, in->d->embedding_length), 2);
    uint64_t bytes = mt_scale(hidden, coefficient(in));
    return bytes > least ? bytes : least;
}

static void cache_of(const struct mt_predict_input *in, struct rank *rank)
{
    const struct mt_torch_cell type = mt_torch_cache_of(in->settings);
    const struct mt_torch_stage *stage = &rank->budget.stage;
    for (uint64_t i = stage->first; i < stage->end && i < in->d->n_layers; i++) {
        const struct mt_model_layer *layer = &in->d->layers[i];
        if (layer->cache_layer == i)
            rank->token_bytes =
                mt_add(rank->token_bytes,
                       mt_torch_token_bytes(layer, &type, in->settings->tensor_parallel));
        rank->state_bytes = mt_add(rank->state_bytes,
                                   mt_torch_state_bytes(in->d, layer, in->settings->tensor_parallel,
                                                        mt_torch_float_width(in->settings), 4,
                                                        in->settings->draft_tokens));
    }
    rank->state_bytes = mt_mul(rank->state_bytes, in->settings->sequences);
}

/* A part with a band of factors. */
static struct mt_budget_part banded(enum mt_budget_stand stand, uint64_t bytes, double low,
                                    double high)
{
    return (struct mt_budget_part){stand, bytes, mt_scale(bytes, low), mt_scale(bytes, high)};
}

/* Whether the engine takes its share of what the rest leaves free, or leaves a share of the device
 * free beside the rest. */
static enum mt_budget_stand stand_of(const struct mt_predict_input *in)
{
    return mt_engine_has(in->engine, "memory_share.of", "rest") ? MT_BUDGET_WITHIN
                                                                : MT_BUDGET_BEFORE;
}

static void make_rank(const struct mt_predict_input *in, struct mt_budget_rank *rank)
{
    struct rank *whole = (struct rank *)rank;
    const struct mt_torch_weights *w = &rank->weights;
    uint64_t rows = mt_mul(mt_mul(in->settings->sequences, in->d->vocabulary), 4);
    uint64_t workspace =
        rank->stage.is_last ? mt_scale(rows, mt_engine_real(in->engine, "workspace", 2)) : 0;
    uint64_t context = mt_engine_number(in->engine, "context", 0);
    uint64_t one = in->settings->eager ? 0 : mt_engine_number(in->engine, "graphs", 0);
    struct mt_budget_part graphs = banded(MT_BUDGET_BESIDE, one, 0.5, 16);
    enum mt_budget_stand stand = stand_of(in);
    int has_rule = mt_budget_graphs_part(in, &rank->stage, &graphs);
    cache_of(in, whole);
    mt_budget_add(rank, banded(stand, w->bytes, 1, 1));
    mt_budget_add(rank, (struct mt_budget_part){stand, w->encoder_bytes, w->encoder_low_bytes,
                                                w->encoder_high_bytes});
    mt_budget_add(rank, banded(stand, activation_bytes(in), 0.5, 1.5));
    mt_budget_add(rank, banded(stand, workspace, 0.5, 1.3));
    mt_budget_add(rank, (struct mt_budget_part){
                            stand, context, mt_engine_number(in->engine, "context.low", context),
                            mt_engine_number(in->engine, "context.high", context)});
    mt_budget_add(rank, banded(stand, whole->state_bytes, 1, 1));
    whole->has_graph_rule = has_rule;
    mt_budget_add(rank, graphs);
}

static uint64_t block_bytes(const struct mt_predict_input *in, const struct mt_budget_rank *rank)
{
    return mt_mul(own(rank)->token_bytes, mt_engine_number(in->engine, "block_tokens", 32));
}

static uint64_t blocks_in(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                          uint64_t bytes)
{
    uint64_t block = block_bytes(in, rank);
    return block ? bytes / block : MT_FAR;
}

static uint64_t cache_bytes(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                            uint64_t blocks)
{
    return mt_mul(blocks, block_bytes(in, rank));
}

static void add(struct mt_sheet *sheet, const struct mt_budget_rank *rank,
                enum mt_category category, const char *rule, struct mt_budget_part part,
                const char *formula)
{
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = rank->device,
                                         .category = category,
                                         .name = rule,
                                         .rule = rule,
                                         .bytes = part.bytes,
                                         .low_bytes = part.low,
                                         .high_bytes = part.high,
                                         .provenance = part.low < part.bytes
                                                           ? MT_PROVENANCE_INFERRED
                                                           : MT_PROVENANCE_DERIVED},
                 "%s", formula);
}

static void write_rank(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                       const struct mt_budget_units *blocks, struct mt_sheet *sheet)
{
    const struct mt_budget_part *parts = rank->parts;
    const struct mt_budget_part *context = &parts[CONTEXT];
    add(sheet, rank, MT_CATEGORY_WEIGHTS, "weights", parts[WEIGHTS],
        "the rank's part of each tensor");
    mt_torch_write_encoders(&rank->weights, rank->device, sheet);
    add(sheet, rank, MT_CATEGORY_KV_CACHE, "kv_cache",
        banded(MT_BUDGET_BESIDE, cache_bytes(in, rank, blocks->n), 1, 1),
        "blocks that fit into the share of what is free");
    add(sheet, rank, MT_CATEGORY_RECURRENT_STATE, "recurrent_state", parts[STATES],
        "a state for each sequence");
    add(sheet, rank, MT_CATEGORY_ACTIVATIONS, "activations", parts[ACTIVATIONS],
        "2 B * tokens * hidden * coefficient");
    add(sheet, rank, MT_CATEGORY_WORKSPACE, "workspace", parts[WORKSPACE],
        "sequences * vocabulary * 4 B * buffers");
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = rank->device,
                                         .category = MT_CATEGORY_CONTEXT,
                                         .name = "driver, modules, communication",
                                         .rule = "context",
                                         .bytes = context->bytes,
                                         .low_bytes = context->low,
                                         .high_bytes = context->high,
                                         .provenance = MT_PROVENANCE_INFERRED},
                 "%.2f GiB, %.2f to %.2f", mt_gib(context->bytes), mt_gib(context->low),
                 mt_gib(context->high));
    add(sheet, rank, MT_CATEGORY_GRAPHS, "graphs", parts[GRAPHS],
        own(rank)->has_graph_rule ? "a pool for the largest graph, and nodes of all"
                                  : "60 MiB a graph");
}

static void fill_pool(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                      const struct mt_budget_units *blocks, struct mt_estimate_pool *pool)
{
    uint64_t block = mt_engine_number(in->engine, "block_tokens", 32);
    uint64_t spent = 0;
    for (size_t i = WEIGHTS; i <= STATES; i++)
        spent += rank->parts[i].bytes;
    pool->requested_bytes = (uint64_t)(rank->left + (int64_t)spent);
    pool->weights_bytes = rank->parts[WEIGHTS].bytes + rank->parts[ENCODERS].bytes;
    pool->activations_bytes = rank->parts[ACTIVATIONS].bytes + rank->parts[WORKSPACE].bytes;
    pool->other_bytes = rank->parts[CONTEXT].bytes + rank->parts[STATES].bytes;
    pool->bytes_per_token = own(rank)->token_bytes;
    pool->pool_tokens = mt_mul(blocks->n, block);
    pool->pool_tokens_low = mt_mul(blocks->low, block);
    pool->pool_tokens_high = mt_mul(blocks->high, block);
    pool->concurrency = (double)pool->pool_tokens / (double)in->settings->context_tokens;
    pool->graphs_note =
        in->settings->eager || own(rank)->has_graph_rule
            ? NULL
            : "CUDA graphs take some 60 MiB each of the tenth that the pool leaves free";
}

static void judge(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                  const struct mt_budget_units *blocks, const char *idle, struct mt_sheet *sheet)
{
    uint64_t tokens = mt_mul(blocks->n, mt_engine_number(in->engine, "block_tokens", 32));
    if (rank->left <= 0)
        mt_sheet_cannot(sheet, "nothing of the %.2f GiB is free once the engine is loaded%s",
                        mt_gib(in->settings->device_bytes[rank->device]), idle);
    else if (own(rank)->token_bytes && tokens < in->settings->context_tokens)
        mt_sheet_note(sheet,
                      "TensorRT-LLM takes no request of more than the %" PRIu64
                      " tokens that its cache holds; --max_seq_len %" PRIu64 " says so%s.",
                      tokens, tokens, idle);
}

static int predict(const struct mt_predict_input *in, struct mt_sheet *sheet,
                   struct mt_error *error)
{
    static const struct mt_budget_engine engine = {.rank_bytes = sizeof(struct rank),
                                                   .make = make_rank,
                                                   .units = blocks_in,
                                                   .cache_bytes = cache_bytes,
                                                   .write = write_rank,
                                                   .fill_pool = fill_pool,
                                                   .judge = judge};
    struct rank rank, tightest;
    return mt_budget_predict(&engine, in, &rank.budget, &tightest.budget, sheet, error);
}

const struct mt_predictor mt_predict_trt_llm = {
    .engine = "trt-llm", .complete = complete, .predict = predict};
