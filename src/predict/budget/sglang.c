/* SPDX-License-Identifier: MIT */
/* SGLang. What it keeps free for activations and graphs follows from a formula of its own, not from
 * a measurement; weights and cache get the rest. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "predict/driver.h"
#include "predict/torch/torch.h"

/* Bytes of the stage's layers on one rank: those that see all, those with a window, and states. */
struct cell {
    uint64_t full;
    uint64_t window;
    uint64_t state;
};

struct rank {
    int device;
    struct mt_torch_stage stage;
    struct mt_torch_weights weights;
    uint64_t loaded;
    struct mt_torch_forward forward;
    struct cell cell;
    uint64_t requested;
    int64_t left;
    uint64_t tokens;
    uint64_t state_bytes;
    struct mt_torch_room room;
};

static uint64_t smallest_device(const struct mt_predict_settings *settings)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < settings->n_devices; i++)
        least = settings->device_bytes[i] < least ? settings->device_bytes[i] : least;
    return least;
}

/* The engine's classes of devices. */
static const char *class_of(uint64_t bytes)
{
    uint64_t gib = bytes / MT_GIB;
    return gib < 20    ? "tiny"
           : gib < 35  ? "small"
           : gib < 60  ? "middle"
           : gib < 160 ? "large"
                       : "huge";
}

static uint64_t class_number(const struct mt_engine *engine, const char *what, uint64_t device,
                             int is_parallel, uint64_t fallback)
{
    char key[64];
    snprintf(key, sizeof key, "%s.%s", what, class_of(device));
    uint64_t number = mt_engine_number(engine, key, fallback);
    snprintf(key, sizeof key, "%s.%s.parallel", what, class_of(device));
    return is_parallel ? mt_engine_number(engine, key, number) : number;
}

/* How many prompts' sizes are captured: 4, 8 … 32, 48 … 256, and so on. */
static uint64_t prefill_graphs(uint64_t largest)
{
    static const uint64_t ranges[][3] = {{4, 32, 4},        {48, 256, 16},
                                         {288, 512, 32},    {576, 1024, 64},
                                         {1280, 4096, 256}, {4608, UINT64_MAX, 512}};
    uint64_t n = 0;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        uint64_t last = largest < ranges[i][1] ? largest : ranges[i][1];
        if (last >= ranges[i][0])
            n += (last - ranges[i][0]) / ranges[i][2] + 1;
    }
    return n;
}

static double static_share(const struct mt_engine *engine,
                           const struct mt_predict_settings *settings, uint64_t graph_batch)
{
    double device = (double)smallest_device(settings) / (double)MT_MIB;
    uint64_t chunk = settings->batched_tokens > 2048 ? settings->batched_tokens : 2048;
    uint64_t ranks = settings->tensor_parallel * settings->pipeline_parallel;
    double reserve = mt_engine_real(engine, "reserve", 512);
    reserve += (double)chunk * mt_engine_real(engine, "reserve.token", 1.5);
    reserve += (double)ranks * mt_engine_real(engine, "reserve.rank", 128);
    if (!settings->eager) {
        reserve += (double)graph_batch * mt_engine_real(engine, "reserve.graph", 2);
        reserve += (double)prefill_graphs(settings->batched_tokens) *
                   mt_engine_real(engine, "reserve.prefill_graph", 0);
    }
    double least = mt_engine_real(engine, "reserve.large", 10240);
    if (device > 60 * 1024 && reserve < least)
        reserve = least;
    double share = round((device - reserve) / device * 1000) / 1000;
    return share > 0 ? share : 0.001;
}

static int complete(const struct mt_model *model, const struct mt_engine *engine,
                    struct mt_predict_settings *settings, struct mt_error *error)
{
    int result = mt_torch_begin(model, engine, settings, "--chunked-prefill-size", 4096, error);
    if (result < 0)
        return result;
    uint64_t device = smallest_device(settings);
    int is_parallel = settings->tensor_parallel >= 4;
    uint64_t batch = class_number(engine, "graph_batch", device, is_parallel, 160);
    if (!settings->batched_tokens)
        settings->batched_tokens = class_number(engine, "chunk", device, 0, 4096);
    if (!settings->sequences)
        settings->sequences = batch;
    if (settings->memory_share == 0)
        settings->memory_share = static_share(
            engine, settings, batch < settings->sequences ? batch : settings->sequences);
    if (!(settings->memory_share > 0 && settings->memory_share < 1))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "--mem-fraction-static is between 0 and 1, not %g", settings->memory_share);
    return 0;
}

static struct cell cell_of(const struct mt_predict_input *in, const struct mt_torch_stage *stage)
{
    const struct mt_torch_cell type = mt_torch_cache_of(in->settings);
    struct cell cell = {0};
    for (uint64_t i = stage->first; i < stage->end && i < in->d->n_layers; i++) {
        const struct mt_model_layer *layer = &in->d->layers[i];
        cell.state =
            mt_add(cell.state, mt_torch_state_bytes(in->d, layer, in->settings->tensor_parallel,
                                                    mt_torch_float_width(in->settings), 4,
                                                    in->settings->draft_tokens));
        if (layer->cache_layer != i)
            continue;
        uint64_t bytes = mt_torch_token_bytes(layer, &type, in->settings->tensor_parallel);
        int is_short = layer->window && (layer->attention == MT_ATTENTION_SLIDING ||
                                         layer->attention == MT_ATTENTION_CHUNKED);
        uint64_t *sum = is_short ? &cell.window : &cell.full;
        *sum = mt_add(*sum, bytes);
    }
    if (!cell.full) { /* with windowed layers alone there is one pool */
        cell.full = cell.window;
        cell.window = 0;
    }
    return cell;
}

/* Divides what is left: states first, then tokens of both kinds of layers. */
static void divide(const struct mt_predict_input *in, struct rank *rank)
{
    double ratio = mt_engine_real(in->engine, "recurrent_state", 0.9);
    double window = mt_engine_real(in->engine, "kv_cache.window", 0.8);
    uint64_t left = rank->left > 0 ? (uint64_t)rank->left : 0;
    if (rank->cell.state) {
        uint64_t slots = mt_scale(left, ratio / (1 + ratio)) / rank->cell.state;
        rank->state_bytes = slots * rank->cell.state;
        left -= rank->state_bytes;
    }
    uint64_t token = rank->cell.full + mt_scale(rank->cell.window, window);
    rank->tokens = token ? left / token : 0;
    rank->room =
        (struct mt_torch_room){.units = token ? rank->tokens : MT_FAR, .left_bytes = rank->left};
}

static void make_rank(const struct mt_predict_input *in, uint64_t stage, int float_bytes,
                      struct rank *rank)
{
    const struct mt_torch_load load = {.tensor_parallel = in->settings->tensor_parallel,
                                       .vocabulary_padding =
                                           mt_engine_number(in->engine, "weights", 64),
                                       .float_bytes = float_bytes,
                                       .is_fused = 1};
    *rank = (struct rank){.device = 0};
    mt_torch_stage_of(in, stage, in->settings->pipeline_parallel, &rank->stage);
    mt_torch_weights_of(in, &load, &rank->stage, &rank->weights);
    rank->loaded = rank->weights.bytes + rank->weights.rounding_bytes + rank->weights.encoder_bytes;
    mt_torch_forward_of(in, &rank->stage, in->settings->batched_tokens, &rank->forward);
    rank->cell = cell_of(in, &rank->stage);
}

static void budget(const struct mt_predict_input *in, struct rank *rank, uint64_t device)
{
    struct mt_driver driver;
    mt_driver_of_torch(in, device, 0, &driver);
    uint64_t context = driver.band.bytes;
    uint64_t capacity = in->settings->device_bytes[device];
    uint64_t free_bytes = capacity > context ? capacity - context : 0;
    rank->device = (int)device;
    rank->requested = mt_scale(free_bytes, in->settings->memory_share);
    rank->left = (int64_t)rank->requested - (int64_t)rank->loaded;
    divide(in, rank);
}

/* A chunk's activations and a row of logits for each sequence of a batch. */
static uint64_t activation_bytes(const struct mt_predict_input *in, const struct rank *rank)
{
    uint64_t rows = in->settings->sequences;
    uint64_t logits = rank->stage.is_last ? mt_mul(mt_mul(rows, in->d->vocabulary), 4) : 0;
    return rank->forward.bytes > 2 * logits ? rank->forward.bytes : 2 * logits;
}

static void add(struct mt_sheet *sheet, const struct rank *rank, enum mt_category category,
                const char *name, const char *rule, uint64_t bytes, enum mt_provenance provenance,
                const char *formula)
{
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = rank->device,
                                         .category = category,
                                         .name = name,
                                         .rule = rule,
                                         .bytes = bytes,
                                         .provenance = provenance},
                 "%s", formula);
}

static void write_cache(const struct mt_predict_input *in, const struct rank *rank, uint64_t tokens,
                        struct mt_sheet *sheet)
{
    uint64_t window_tokens = mt_scale(tokens, mt_engine_real(in->engine, "kv_cache.window", 0.8));
    char formula[160];
    snprintf(formula, sizeof formula, "%" PRIu64 " tokens * %" PRIu64 " B", tokens,
             rank->cell.full);
    add(sheet, rank, MT_CATEGORY_KV_CACHE, "tokens", "kv_cache", mt_mul(tokens, rank->cell.full),
        MT_PROVENANCE_DERIVED, formula);
    snprintf(formula, sizeof formula, "%" PRIu64 " tokens * %" PRIu64 " B", window_tokens,
             rank->cell.window);
    add(sheet, rank, MT_CATEGORY_KV_CACHE, "tokens of windowed layers", "kv_cache.window",
        mt_mul(window_tokens, rank->cell.window), MT_PROVENANCE_DERIVED, formula);
    snprintf(formula, sizeof formula, "%" PRIu64 " states * %" PRIu64 " B",
             rank->cell.state ? rank->state_bytes / rank->cell.state : 0, rank->cell.state);
    add(sheet, rank, MT_CATEGORY_RECURRENT_STATE, "states", "recurrent_state", rank->state_bytes,
        MT_PROVENANCE_DERIVED, formula);
}

static void write_bounded(struct mt_sheet *sheet, const struct rank *rank,
                          enum mt_category category, const char *name, const char *rule,
                          uint64_t bytes, uint64_t low, uint64_t high)
{
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = rank->device,
                                         .category = category,
                                         .name = name,
                                         .rule = rule,
                                         .bytes = bytes,
                                         .low_bytes = low,
                                         .high_bytes = high,
                                         .provenance = MT_PROVENANCE_INFERRED},
                 "%.2f GiB, %.2f to %.2f", mt_gib(bytes), mt_gib(low), mt_gib(high));
}

static void write_rank(const struct mt_predict_input *in, const struct rank *rank, uint64_t tokens,
                       struct mt_sheet *sheet)
{
    uint64_t activations = activation_bytes(in, rank);
    uint64_t graphs = in->settings->eager ? 0 : mt_mul(in->settings->sequences, 2 * MT_MIB);
    add(sheet, rank, MT_CATEGORY_WEIGHTS, "tensors", "weights", rank->weights.bytes,
        MT_PROVENANCE_READ, "the rank's part of each tensor");
    add(sheet, rank, MT_CATEGORY_WEIGHTS, "rounded blocks", "blocks", rank->weights.rounding_bytes,
        MT_PROVENANCE_DERIVED, "whole 2 MiB of PyTorch's allocator, for tensors from 10 MiB on");
    mt_torch_write_encoders(&rank->weights, rank->device, sheet);
    write_cache(in, rank, tokens, sheet);
    write_bounded(sheet, rank, MT_CATEGORY_ACTIVATIONS, "a chunk's forward pass", "reserve.token",
                  activations, activations / 2, mt_mul(activations, 2));
    write_bounded(sheet, rank, MT_CATEGORY_GRAPHS, "CUDA graphs", "reserve.graph", graphs,
                  graphs / 4, mt_mul(graphs, 2));
    mt_driver_write_torch(in, rank->device, sheet);
}

static void fill_pool(const struct mt_predict_input *in, const struct rank *rank,
                      struct mt_sheet *sheet)
{
    struct mt_driver driver;
    mt_driver_of_torch(in, (size_t)rank->device, 0, &driver);
    uint64_t low = 0;
    uint64_t high = driver.band.high_bytes;
    mt_widen_unread(in->engine, "unread", &low, &high);
    uint64_t span =
        high - driver.band.bytes + rank->weights.encoder_high_bytes - rank->weights.encoder_bytes;
    double window = mt_engine_real(in->engine, "kv_cache.window", 0.8);
    uint64_t token = rank->cell.full + mt_scale(rank->cell.window, window);
    uint64_t less = token ? mt_scale(span, in->settings->memory_share) / token : 0;
    uint64_t context_tokens = in->settings->context_tokens;
    double concurrency = context_tokens ? (double)rank->tokens / (double)context_tokens : 0;
    if (!token && rank->cell.state)
        concurrency = (double)(rank->state_bytes / rank->cell.state);
    *mt_sheet_pool(sheet) = (struct mt_estimate_pool){
        .present = 1,
        .requested_bytes = rank->requested,
        .weights_bytes = rank->loaded,
        .activations_bytes = 0,

        .pool_bytes = rank->left,
        .bytes_per_token = rank->cell.full,
        .pool_tokens = rank->tokens,
        .pool_tokens_low = rank->tokens > less ? rank->tokens - less : 0,
        .pool_tokens_high = rank->tokens + less,
        .concurrency = concurrency,
        .graphs_note =
            in->settings->eager
                ? NULL
                : "SGLang reserves 2 MiB for each sequence of the largest graph, whatever "
                  "the model"};
}

static void judge(const struct mt_predict_input *in, const struct rank *rank,
                  struct mt_sheet *sheet)
{
    char idle[MT_IDLE_TEXT];
    mt_torch_idle_devices(in, idle);
    if (rank->left <= 0)
        mt_sheet_cannot(sheet,
                        "SGLang does not start: the static share of %.2f GiB does not hold the "
                        "weights of %.2f%s",
                        mt_gib(rank->requested), mt_gib(rank->loaded), idle);
    else if (rank->cell.full && rank->tokens < in->settings->context_tokens)
        mt_sheet_note(sheet,
                      "SGLang starts, and takes no request of more than the %" PRIu64
                      " tokens that its cache holds; --context-length %" PRIu64 " says so%s.",
                      rank->tokens, rank->tokens, idle);
    if (rank->cell.state)
        mt_sheet_note(sheet, "recurrent states get 0.9 bytes for each byte of cache: "
                             "--mamba-full-memory-ratio");
}

static void write_flags(const struct mt_predict_input *in, struct mt_sheet *sheet)
{
    const struct mt_predict_settings *settings = in->settings;
    mt_sheet_flag(sheet, "--mem-fraction-static %g", settings->memory_share);
    mt_sheet_flag(sheet, "--context-length %" PRIu64, settings->context_tokens);
    mt_sheet_flag(sheet, "--chunked-prefill-size %" PRIu64, settings->batched_tokens);
    mt_sheet_flag(sheet, "--max-running-requests %" PRIu64, settings->sequences);
    mt_sheet_flag(sheet, "--kv-cache-dtype %s", settings->kv_type_k);
    if (settings->tensor_parallel > 1)
        mt_sheet_flag(sheet, "--tp-size %" PRIu64, settings->tensor_parallel);
    if (settings->pipeline_parallel > 1)
        mt_sheet_flag(sheet, "--pp-size %" PRIu64, settings->pipeline_parallel);
    if (settings->weight_type)
        mt_sheet_flag(sheet,
                      mt_begins(settings->weight_type, "fp8") ? "--quantization %s" : "--dtype %s",
                      mt_torch_dtype_name(settings->weight_type));
    if (settings->eager)
        mt_sheet_flag(sheet, "--disable-cuda-graph");
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
                write_rank(in, &rank, tightest.tokens, sheet);
            else if (mt_torch_is_tighter(rank.room, tightest.room))
                tightest = rank;
        }
    fill_pool(in, &tightest, sheet);
    judge(in, &tightest, sheet);
    write_flags(in, sheet);
    return 0;
}

const struct mt_predictor mt_predict_sglang = {
    .engine = "sglang", .complete = complete, .predict = predict, .counts_encoders = 1};
