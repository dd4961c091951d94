/* SPDX-License-Identifier: MIT */
/* TensorRT-LLM. The cache takes a share of what is free once weights, the shared pool of
 * activations and the buffers of runtime and decoder are there. */
#include <inttypes.h>

#include "base/error.h"
#include "predict/torch/torch.h"

struct rank {
    int device;
    struct mt_torch_stage stage;
    struct mt_torch_weights weights;
    uint64_t activations;
    uint64_t workspace;
    uint64_t context;
    uint64_t token_bytes;
    uint64_t state_bytes;
    uint64_t blocks;
    int64_t left; /* the share of what is free */
    struct mt_torch_room room;
};

static int complete(const struct mt_model *model, const struct mt_engine *engine,
                    struct mt_predict_settings *settings, struct mt_error *error)
{
    int result = mt_torch_begin(model, engine, settings, "--max_num_tokens", 4096, error);
    if (result < 0)
        return result;
    if (settings->memory_share == 0)
        settings->memory_share = mt_engine_real(engine, "memory_share", 0.9);
    if (!(settings->memory_share > 0 && settings->memory_share <= 1))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "free_gpu_memory_fraction is above 0 and at most 1, not %g",
                       settings->memory_share);
    if (!settings->batched_tokens)
        settings->batched_tokens = mt_engine_number(engine, "batched_tokens", 8192);
    if (!settings->sequences)
        settings->sequences = mt_engine_number(engine, "sequences", 2048);
    return 0;
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
    for (uint64_t i = rank->stage.first; i < rank->stage.end && i < in->d->n_layers; i++) {
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

static void make_rank(const struct mt_predict_input *in, uint64_t stage, int float_bytes,
                      struct rank *rank)
{
    const struct mt_torch_load load = {.tensor_parallel = in->settings->tensor_parallel,
                                       .vocabulary_padding =
                                           mt_engine_number(in->engine, "weights", 64),
                                       .float_bytes = float_bytes};
    *rank = (struct rank){.activations = activation_bytes(in),
                          .context = mt_engine_number(in->engine, "context", 0)};
    mt_torch_stage_of(in, stage, in->settings->pipeline_parallel, &rank->stage);
    mt_torch_weights_of(in, &load, &rank->stage, &rank->weights);
    uint64_t rows = mt_mul(mt_mul(in->settings->sequences, in->d->vocabulary), 4);
    if (rank->stage.is_last)
        rank->workspace = mt_scale(rows, mt_engine_real(in->engine, "workspace", 2));
    cache_of(in, rank);
}

static uint64_t block_bytes(const struct mt_predict_input *in, const struct rank *rank)
{
    return mt_mul(rank->token_bytes, mt_engine_number(in->engine, "block_tokens", 32));
}

static int64_t spent_by(const struct rank *rank)
{
    return (int64_t)(rank->weights.bytes + rank->activations + rank->workspace + rank->context +
                     rank->state_bytes);
}

static int64_t share_of(const struct mt_predict_input *in, const struct rank *rank, int64_t more)
{
    int64_t capacity = (int64_t)in->settings->device_bytes[rank->device];
    int64_t left = capacity - spent_by(rank) - more;
    return left > 0 ? (int64_t)mt_scale((uint64_t)left, in->settings->memory_share) : left;
}

static uint64_t blocks_in(const struct mt_predict_input *in, const struct rank *rank, int64_t bytes)
{
    uint64_t block = block_bytes(in, rank);
    return bytes > 0 && block ? (uint64_t)bytes / block : 0;
}

static void budget(const struct mt_predict_input *in, struct rank *rank, uint64_t device)
{
    rank->device = (int)device;
    rank->left = share_of(in, rank, 0);
    rank->blocks = blocks_in(in, rank, rank->left);
    rank->room = (struct mt_torch_room){.units = rank->token_bytes ? rank->blocks : MT_FAR,
                                        .left_bytes = rank->left};
}

static void add(struct mt_sheet *sheet, const struct rank *rank, enum mt_category category,
                const char *rule, uint64_t bytes, double low, double high, const char *formula)
{
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = rank->device,
                                         .category = category,
                                         .name = rule,
                                         .rule = rule,
                                         .bytes = bytes,
                                         .low_bytes = mt_scale(bytes, low),
                                         .high_bytes = mt_scale(bytes, high),
                                         .provenance = low < 1 ? MT_PROVENANCE_INFERRED
                                                               : MT_PROVENANCE_DERIVED},
                 "%s", formula);
}

static void write_rank(const struct mt_predict_input *in, const struct rank *rank, uint64_t blocks,
                       struct mt_sheet *sheet)
{
    add(sheet, rank, MT_CATEGORY_WEIGHTS, "weights", rank->weights.bytes, 1, 1,
        "the rank's part of each tensor");
    add(sheet, rank, MT_CATEGORY_KV_CACHE, "kv_cache", mt_mul(blocks, block_bytes(in, rank)), 1, 1,
        "blocks that fit into the share of what is free");
    add(sheet, rank, MT_CATEGORY_RECURRENT_STATE, "recurrent_state", rank->state_bytes, 1, 1,
        "a state for each sequence");
    add(sheet, rank, MT_CATEGORY_ACTIVATIONS, "activations", rank->activations, 0.5, 1.5,
        "2 B * tokens * hidden * coefficient");
    add(sheet, rank, MT_CATEGORY_WORKSPACE, "workspace", rank->workspace, 0.5, 1.3,
        "sequences * vocabulary * 4 B * buffers");
    uint64_t low = mt_engine_number(in->engine, "context.low", rank->context);
    uint64_t high = mt_engine_number(in->engine, "context.high", rank->context);
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = rank->device,
                                         .category = MT_CATEGORY_CONTEXT,
                                         .name = "driver, modules, communication",
                                         .rule = "context",
                                         .bytes = rank->context,
                                         .low_bytes = low,
                                         .high_bytes = high,
                                         .provenance = MT_PROVENANCE_INFERRED},
                 "%.2f GiB, %.2f to %.2f", mt_gib(rank->context), mt_gib(low), mt_gib(high));
    uint64_t graphs = in->settings->eager ? 0 : mt_engine_number(in->engine, "graphs", 0);
    add(sheet, rank, MT_CATEGORY_GRAPHS, "graphs", graphs, 0.5, 16, "60 MiB a graph");
    uint64_t used = rank->weights.bytes + mt_mul(blocks, block_bytes(in, rank)) +
                    rank->state_bytes + rank->activations + rank->workspace + rank->context +
                    graphs;
    mt_widen_unread(in->engine, "unread", &low, &high); /* the total's; the term has its own */
    uint64_t more = high - rank->context + graphs * 15;
    mt_sheet_bound(sheet, rank->device, used - graphs,
                   used + mt_scale(more, 1 - in->settings->memory_share) + graphs);
}

static void fill_pool(const struct mt_predict_input *in, const struct rank *rank,
                      struct mt_sheet *sheet)
{
    uint64_t block = mt_engine_number(in->engine, "block_tokens", 32);
    uint64_t least = 0;
    uint64_t context = mt_engine_number(in->engine, "context.high", rank->context) - rank->context;
    uint64_t spread = rank->activations / 2 + rank->workspace / 2;
    mt_widen_unread(in->engine, "unread", &least, &context);
    mt_widen_unread(in->engine, "unread", &least, &spread);
    uint64_t tokens = mt_mul(rank->blocks, block);
    *mt_sheet_pool(sheet) = (struct mt_estimate_pool){
        .present = 1,
        .requested_bytes = (uint64_t)(rank->left + spent_by(rank)),
        .weights_bytes = rank->weights.bytes,
        .activations_bytes = rank->activations + rank->workspace,
        .other_bytes = rank->context + rank->state_bytes,
        .pool_bytes = rank->left,
        .bytes_per_token = rank->token_bytes,
        .pool_tokens = tokens,
        .pool_tokens_low =
            block * blocks_in(in, rank, share_of(in, rank, (int64_t)(spread + context))),
        .pool_tokens_high = block * blocks_in(in, rank, share_of(in, rank, -(int64_t)spread)),
        .concurrency = (double)tokens / (double)in->settings->context_tokens,
        .graphs_note =
            in->settings->eager
                ? NULL
                : "CUDA graphs take some 60 MiB each of the tenth that the pool leaves free"};
}

static void judge(const struct mt_predict_input *in, const struct rank *rank,
                  struct mt_sheet *sheet)
{
    uint64_t tokens = mt_mul(rank->blocks, mt_engine_number(in->engine, "block_tokens", 32));
    char idle[MT_IDLE_TEXT];
    mt_torch_idle_devices(in, idle);
    if (rank->left <= 0)
        mt_sheet_cannot(sheet, "nothing of the %.2f GiB is free once the engine is loaded%s",
                        mt_gib(in->settings->device_bytes[rank->device]), idle);
    else if (rank->token_bytes && tokens < in->settings->context_tokens)
        mt_sheet_note(sheet,
                      "TensorRT-LLM takes no request of more than the %" PRIu64
                      " tokens that its cache holds; --max_seq_len %" PRIu64 " says so%s.",
                      tokens, tokens, idle);
}

static void write_flags(const struct mt_predict_input *in, struct mt_sheet *sheet)
{
    const struct mt_predict_settings *settings = in->settings;
    mt_sheet_flag(sheet, "--kv_cache_free_gpu_memory_fraction %g", settings->memory_share);
    mt_sheet_flag(sheet, "--max_seq_len %" PRIu64, settings->context_tokens);
    mt_sheet_flag(sheet, "--max_batch_size %" PRIu64, settings->sequences);
    mt_sheet_flag(sheet, "--max_num_tokens %" PRIu64, settings->batched_tokens);
    if (settings->tensor_parallel > 1)
        mt_sheet_flag(sheet, "--tp_size %" PRIu64, settings->tensor_parallel);
    if (settings->pipeline_parallel > 1)
        mt_sheet_flag(sheet, "--pp_size %" PRIu64, settings->pipeline_parallel);
}

static int predict(const struct mt_predict_input *in, struct mt_sheet *sheet,
                   struct mt_error *error)
{
    struct rank tightest = {.room = {MT_FAR, INT64_MAX}};
    struct rank rank;
    int float_bytes;
    int result = mt_torch_float_bytes(in, &float_bytes, error);
    if (result < 0)
        return result;
    for (int writes = 0; writes < 2; writes++)
        for (struct mt_torch_walk walk = {0}; mt_torch_next_rank(in, &walk);) {
            if (walk.opens_stage)
                make_rank(in, walk.stage, float_bytes, &rank);
            budget(in, &rank, walk.device);
            if (writes)
                write_rank(in, &rank, tightest.blocks, sheet);
            else if (mt_torch_is_tighter(rank.room, tightest.room))
                tightest = rank;
        }
    fill_pool(in, &tightest, sheet);
    judge(in, &tightest, sheet);
    write_flags(in, sheet);
    return 0;
}

const struct mt_predictor mt_predict_trt_llm = {"trt-llm", complete, predict};
