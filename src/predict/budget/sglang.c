/* SPDX-License-Identifier: MIT */
/* SGLang. What it keeps free for activations and graphs follows from a formula of its own, not from
 * a measurement; weights and cache get the rest. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <memtally/predict.h>

#include "budget.h"
#include "graphs.h"
#include "predict/driver.h"
#include "predict/sums.h"
#include "predict/term.h"

/* Bytes of the stage's layers on one rank: those that see all, those with a window, and states. */
struct cell {
    uint64_t full;
    uint64_t window;
    uint64_t state;
};

enum part {
    CONTEXT,
    WEIGHTS,
    ENCODERS,
    ACTIVATIONS,
    GRAPHS,
    COMMUNICATORS,
    PICTURES,
    PICTURES_KEPT
};

struct rank {
    struct mt_budget_rank budget; /* first */
    struct cell cell;
    uint64_t rope_bytes;
    uint64_t anew_bytes; /* of experts that are laid out anew when they are loaded */
    uint64_t pictures_bytes;
};

static const struct cell *cell_of(const struct mt_budget_rank *rank)
{
    return &((const struct rank *)rank)->cell;
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

static int is_latent(const struct mt_model_description *d)
{
    return d->kv_lora_rank != 0;
}

/* Whether a share is left free for graphs of "decode" or "prefill": some versions leave it where
 * none are captured. */
static int reserves(const struct mt_engine *engine, const struct mt_predict_settings *settings,
                    const char *what)
{
    return !settings->eager || mt_engine_has(engine, "reserve.eager", what);
}

/* Whether graphs of prompts are captured for a model: for most that see they are not. */
static int captures_prompts(const struct mt_model_description *d, const struct mt_engine *engine)
{
    return !mt_engine_has(engine, "graphs.prefill.never", d->architecture) &&
           (!d->sees || mt_engine_has(engine, "graphs.prefill.seeing", d->architecture));
}

/* MiB for graphs of prompts, which a pipeline does not capture. */
static double prefill_reserve(const struct mt_model_description *d, const struct mt_engine *engine,
                              const struct mt_predict_settings *settings)
{
    uint64_t sizes =
        mt_budget_count_sizes(engine, "graphs.prefill.sizes", settings->batched_tokens);
    if (!sizes || settings->pipeline_parallel > 1 || !captures_prompts(d, engine))
        return 0;
    return is_latent(d) ? mt_engine_real(engine, "reserve.prefill_latent", 0)
                        : (double)sizes * mt_engine_real(engine, "reserve.prefill_graph", 0);
}

/* What of the share is left for a model that sees: the larger its encoder, the less. */
static double seeing(const struct mt_model_description *d, const struct mt_engine *engine)
{
    double usual_layers = mt_engine_real(engine, "reserve.vision.layers", 24);
    double usual_width = mt_engine_real(engine, "reserve.vision.width", 1024);
    double layers = d->vision_layers ? (double)d->vision_layers : usual_layers;
    double width = d->vision_width ? (double)d->vision_width : usual_width;
    double size = layers * width * width / (usual_layers * usual_width * usual_width);
    double factor = 1 - 0.1 * (size - 1);
    factor = factor < 0.8 ? 0.8 : factor > 1.05 ? 1.05 : factor;
    return d->sees ? mt_engine_real(engine, "reserve.vision", 0.95) * factor : 1;
}

static double static_share(const struct mt_model_description *d, const struct mt_engine *engine,
                           const struct mt_predict_settings *settings, uint64_t graph_batch)
{
    double device = (double)mt_budget_smallest_device(settings) / (double)MT_MIB;
    uint64_t chunk = settings->batched_tokens > 2048 ? settings->batched_tokens : 2048;
    uint64_t ranks = settings->tensor_parallel * settings->pipeline_parallel;
    double reserve = mt_engine_real(engine, "reserve", 512);
    reserve += (double)chunk * mt_engine_real(engine, "reserve.token", 1.5);
    reserve += (double)ranks * mt_engine_real(engine, "reserve.rank", 128);
    if (reserves(engine, settings, "decode"))
        reserve += (double)graph_batch * mt_engine_real(engine, "reserve.graph", 2);
    if (reserves(engine, settings, "prefill"))
        reserve += prefill_reserve(d, engine, settings);
    double least = mt_engine_real(engine, "reserve.large", 10240);
    if (device > 60 * 1024 && reserve < least)
        reserve = least;
    double share = round((device - reserve) / device * 1000) / 1000 * seeing(d, engine);
    return share > 0 ? share : 0.001;
}

static int complete(const struct mt_model *model, const struct mt_engine *engine,
                    struct mt_predict_settings *settings, struct mt_error *error)
{
    int result = mt_torch_begin(model, engine, settings, "--chunked-prefill-size", 4096, error);
    if (result < 0)
        return result;
    uint64_t device = mt_budget_smallest_device(settings);
    int is_parallel = settings->tensor_parallel >= 4;
    uint64_t batch = class_number(engine, "graph_batch", device, is_parallel, 160);
    if (!settings->batched_tokens)
        settings->batched_tokens = class_number(engine, "chunk", device, 0, 4096);
    if (!settings->sequences)
        settings->sequences = batch;
    if (!settings->graph_batch && settings->sequences > batch && !settings->eager)
        settings->graph_batch = batch;
    if (settings->graph_batch)
        batch = settings->graph_batch;
    if (settings->memory_share == 0)
        settings->memory_share = static_share(mt_model_describe(model), engine, settings, batch);
    return mt_budget_complete_share(engine, settings, error);
}

/* States are in 32 bit, and what the convolution keeps in 16 bit, whatever the model runs in. */
static struct cell make_cell(const struct mt_predict_input *in, const struct mt_torch_stage *stage)
{
    const struct mt_torch_cell type = mt_torch_cache_of(in->settings);
    uint64_t parallel = in->settings->tensor_parallel;
    uint64_t conv = mt_engine_number(in->engine, "recurrent_state.conv", 2);
    uint64_t state = mt_engine_number(in->engine, "recurrent_state.element", 4);
    int has_two = mt_engine_has(in->engine, "kv_cache.window.models", in->d->architecture);
    struct cell cell = {0};
    for (uint64_t i = stage->first; i < stage->end && i < in->d->n_layers; i++) {
        const struct mt_model_layer *layer = &in->d->layers[i];
        cell.state = mt_add(cell.state, mt_torch_state_bytes(in->d, layer, parallel, conv, state,
                                                             in->settings->draft_tokens));
        if (layer->cache_layer != i)
            continue;
        uint64_t bytes = mt_torch_token_bytes(layer, &type, parallel);
        int is_short =
            has_two && layer->window &&
            (layer->attention == MT_ATTENTION_SLIDING || layer->attention == MT_ATTENTION_CHUNKED);
        uint64_t *sum = is_short ? &cell.window : &cell.full;
        *sum = mt_add(*sum, bytes);
    }
    if (!cell.full) { /* with windowed layers alone there is one pool */
        cell.full = cell.window;
        cell.window = 0;
    }
    return cell;
}

static double window_ratio(const struct mt_predict_input *in)
{
    return mt_engine_real(in->engine, "kv_cache.window", 0.8);
}

/* States that so many bytes hold beside the tokens. */
static uint64_t states_in(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                          uint64_t bytes)
{
    double ratio = mt_engine_real(in->engine, "recurrent_state", 0.9);
    uint64_t state = cell_of(rank)->state;
    return state ? mt_scale(bytes, ratio / (1 + ratio)) / state : 0;
}

/* The bytes of a token; windowed layers have fewer tokens, and count by their share. */
static uint64_t token_bytes(const struct mt_predict_input *in, const struct cell *cell)
{
    return cell->full + mt_scale(cell->window, window_ratio(in));
}

/* What is left is divided: states first, then tokens of both kinds of layers. */
static uint64_t tokens_in(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                          uint64_t bytes)
{
    const struct cell *cell = cell_of(rank);
    uint64_t token = token_bytes(in, cell);
    return token ? (bytes - states_in(in, rank, bytes) * cell->state) / token : MT_FAR;
}

static uint64_t state_bytes(const struct mt_predict_input *in, const struct mt_budget_rank *rank)
{
    uint64_t left = rank->left > 0 ? (uint64_t)rank->left : 0;
    return states_in(in, rank, left) * cell_of(rank)->state;
}

static uint64_t cache_bytes(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                            uint64_t tokens)
{
    const struct cell *cell = cell_of(rank);
    return mt_add(mt_add(mt_mul(tokens, cell->full),
                         mt_mul(mt_scale(tokens, window_ratio(in)), cell->window)),
                  state_bytes(in, rank));
}

/* A chunk's activations and a row of logits for each sequence of a batch. */
static uint64_t activation_bytes(const struct mt_predict_input *in,
                                 const struct mt_torch_stage *stage)
{
    struct mt_torch_forward forward;
    uint64_t rows = in->settings->sequences;
    uint64_t logits = stage->is_last ? mt_mul(mt_mul(rows, in->d->vocabulary), 4) : 0;
    mt_torch_forward_of(in, stage, in->settings->batched_tokens, &forward);
    return forward.bytes > 2 * logits ? forward.bytes : 2 * logits;
}

/* The communicators of ranks that add up what each has, or hand it on. The engine makes them before
 * it looks at what is free. */
static struct mt_budget_part communicators_of(const struct mt_predict_input *in)
{
    struct mt_budget_part part = {.stand = MT_BUDGET_BEFORE};
    int adds_up = in->settings->tensor_parallel > 1;
    if (!adds_up && in->settings->pipeline_parallel < 2)
        return part;
    part.bytes =
        mt_engine_number(in->engine, adds_up ? "communicators" : "communicators.pipeline", 0);
    part.low = mt_engine_number(in->engine, "communicators.low", part.bytes);
    part.high = mt_engine_number(in->engine, "communicators.high", part.bytes);
    return part;
}

/* Whether pictures go to the engine through a pool on the card: of some families, on large Hoppers.
 */
static int pools_pictures(const struct mt_predict_input *in)
{
    uint64_t least = mt_engine_number(in->engine, "pictures.device", 0);
    return mt_engine_has(in->engine, "pictures.models", in->d->architecture) &&
           mt_budget_card(in).capability / 10 == 9 &&
           mt_budget_smallest_device(in->settings) >= least;
}

/* What the first stage leaves free of the cache's share for pictures, and what their pool takes. */
static void add_pictures(const struct mt_predict_input *in, struct mt_budget_rank *rank)
{
    int is_there = in->d->sees && rank->stage.is_first;
    int has_pool = is_there && pools_pictures(in);
    uint64_t pool = has_pool ? mt_engine_number(in->engine, "pictures.pool", 0) : 0;
    uint64_t kept = is_there ? mt_engine_number(in->engine, "pictures.kept", 0) : 0;
    kept = has_pool ? pool : kept;
    mt_budget_add(rank, (struct mt_budget_part){.stand = MT_BUDGET_BEFORE}); /* by the device */
    mt_budget_add(rank, (struct mt_budget_part){MT_BUDGET_SET_ASIDE, kept, kept, kept});
    ((struct rank *)rank)->pictures_bytes = pool;
}

static void make_rank(const struct mt_predict_input *in, struct mt_budget_rank *rank)
{
    const struct mt_torch_weights *w = &rank->weights;
    uint64_t rope = mt_mul(mt_budget_rotations(in), mt_engine_number(in->engine, "rope_cache", 4));
    uint64_t tensors = w->bytes + w->rounding_bytes + rope;
    uint64_t anew = mt_scale(w->mxfp4_bytes, mt_engine_real(in->engine, "weights.mxfp4", 0));
    uint64_t loose = mt_engine_number(in->engine, "weights.loose", 0);
    struct mt_budget_part weights = {MT_BUDGET_WITHIN, tensors + anew, tensors,
                                     tensors + 2 * anew + loose};
    uint64_t activations = activation_bytes(in, &rank->stage);
    double graph = mt_engine_real(in->engine, "reserve.graph", 2) * (double)MT_MIB;
    uint64_t bytes = in->settings->eager ? 0 : mt_scale(in->settings->sequences, graph);
    struct mt_budget_part graphs = {MT_BUDGET_BESIDE, bytes, bytes / 4, mt_mul(bytes, 2)};
    mt_budget_graphs_part(in, &rank->stage, &graphs);
    mt_budget_add(rank, (struct mt_budget_part){.stand = MT_BUDGET_BEFORE}); /* by the device */
    mt_budget_add(rank, weights);
    mt_budget_add(rank, (struct mt_budget_part){MT_BUDGET_WITHIN, w->encoder_bytes,
                                                w->encoder_low_bytes, w->encoder_high_bytes});
    mt_budget_add(rank, (struct mt_budget_part){MT_BUDGET_BESIDE, activations, activations / 2,
                                                mt_mul(activations, 2)});
    mt_budget_add(rank, graphs);
    mt_budget_add(rank, communicators_of(in));
    add_pictures(in, rank);
    ((struct rank *)rank)->cell = make_cell(in, &rank->stage);
    ((struct rank *)rank)->rope_bytes = rope;
    ((struct rank *)rank)->anew_bytes = anew;
}

static void place_rank(const struct mt_predict_input *in, struct mt_budget_rank *rank)
{
    struct mt_driver driver;
    mt_driver_of_torch(in, (size_t)rank->device, 0, &driver);
    rank->parts[CONTEXT] = (struct mt_budget_part){MT_BUDGET_BEFORE, driver.band.bytes,
                                                   driver.band.low_bytes, driver.band.high_bytes};
    uint64_t pool = rank->device == 0 ? ((const struct rank *)rank)->pictures_bytes : 0;
    if (pool) /* the process that prepares them is one, and has a context of its own */
        rank->parts[PICTURES] =
            (struct mt_budget_part){MT_BUDGET_BEFORE, mt_add(pool, driver.band.bytes), 0,
                                    mt_add(pool, driver.band.high_bytes)};
    else
        rank->parts[PICTURES] = (struct mt_budget_part){.stand = MT_BUDGET_BEFORE};
}

static void add(struct mt_sheet *sheet, const struct mt_budget_rank *rank,
                enum mt_category category, const char *name, const char *rule, uint64_t bytes,
                enum mt_provenance provenance, const char *formula)
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

static void write_cache(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                        uint64_t tokens, struct mt_sheet *sheet)
{
    const struct cell *cell = cell_of(rank);
    uint64_t window_tokens = mt_scale(tokens, window_ratio(in));
    uint64_t states = state_bytes(in, rank);
    char formula[160];
    snprintf(formula, sizeof formula, "%" PRIu64 " tokens * %" PRIu64 " B", tokens, cell->full);
    add(sheet, rank, MT_CATEGORY_KV_CACHE, "tokens", "kv_cache", mt_mul(tokens, cell->full),
        MT_PROVENANCE_DERIVED, formula);
    snprintf(formula, sizeof formula, "%" PRIu64 " tokens * %" PRIu64 " B", window_tokens,
             cell->window);
    add(sheet, rank, MT_CATEGORY_KV_CACHE, "tokens of windowed layers", "kv_cache.window",
        mt_mul(window_tokens, cell->window), MT_PROVENANCE_DERIVED, formula);
    snprintf(formula, sizeof formula, "%" PRIu64 " states * %" PRIu64 " B",
             cell->state ? states / cell->state : 0, cell->state);
    add(sheet, rank, MT_CATEGORY_RECURRENT_STATE, "states", "recurrent_state", states,
        MT_PROVENANCE_DERIVED, formula);
}

static void write_bounded(struct mt_sheet *sheet, const struct mt_budget_rank *rank,
                          enum part which, enum mt_category category, const char *name,
                          const char *rule)
{
    const struct mt_budget_part *part = &rank->parts[which];
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = rank->device,
                                         .category = category,
                                         .name = name,
                                         .rule = rule,
                                         .bytes = part->bytes,
                                         .low_bytes = part->low,
                                         .high_bytes = part->high,
                                         .provenance = MT_PROVENANCE_INFERRED},
                 "%.2f GiB, %.2f to %.2f", mt_gib(part->bytes), mt_gib(part->low),
                 mt_gib(part->high));
}

static void write_rank(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                       const struct mt_budget_units *tokens, struct mt_sheet *sheet)
{
    const struct rank *own = (const struct rank *)rank;
    add(sheet, rank, MT_CATEGORY_WEIGHTS, "tensors", "weights", rank->weights.bytes,
        MT_PROVENANCE_READ, "the rank's part of each tensor");
    add(sheet, rank, MT_CATEGORY_WEIGHTS, "rounded blocks", "blocks", rank->weights.rounding_bytes,
        MT_PROVENANCE_DERIVED, "whole 2 MiB of PyTorch's allocator, for tensors from 10 MiB on");
    mt_budget_write_rotations(own->rope_bytes, rank->device, sheet);
    if (own->anew_bytes)
        add(sheet, rank, MT_CATEGORY_WEIGHTS, "MXFP4 layout", "weights.mxfp4", own->anew_bytes,
            MT_PROVENANCE_INFERRED, "what is left free between experts that are laid out anew");
    mt_torch_write_encoders(&rank->weights, rank->device, sheet);
    write_cache(in, rank, tokens->n, sheet);
    write_bounded(sheet, rank, ACTIVATIONS, MT_CATEGORY_ACTIVATIONS, "a chunk's forward pass",
                  "reserve.token");
    write_bounded(sheet, rank, GRAPHS, MT_CATEGORY_GRAPHS, "CUDA graphs", "reserve.graph");
    if (in->settings->tensor_parallel > 1)
        write_bounded(sheet, rank, COMMUNICATORS, MT_CATEGORY_COMMUNICATION, "communicators",
                      "communicators");
    if (rank->parts[PICTURES].bytes)
        write_bounded(sheet, rank, PICTURES, MT_CATEGORY_WORKSPACE, "pool of pictures",
                      "pictures.pool");
    if (rank->parts[PICTURES_KEPT].bytes)
        write_bounded(sheet, rank, PICTURES_KEPT, MT_CATEGORY_WORKSPACE, "kept for pictures",
                      "pictures.kept");
    mt_driver_write_torch(in, rank->device, sheet);
}

static void fill_pool(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                      const struct mt_budget_units *tokens, struct mt_estimate_pool *pool)
{
    const struct cell *cell = cell_of(rank);
    uint64_t context_tokens = in->settings->context_tokens;
    pool->weights_bytes = rank->parts[WEIGHTS].bytes + rank->parts[ENCODERS].bytes;
    pool->other_bytes = rank->parts[PICTURES_KEPT].bytes;
    pool->bytes_per_token = cell->full;
    pool->pool_tokens = tokens->n;
    pool->pool_tokens_low = tokens->low;
    pool->pool_tokens_high = tokens->high;
    pool->concurrency = context_tokens ? (double)tokens->n / (double)context_tokens : 0;
    if (!token_bytes(in, cell) && cell->state)
        pool->concurrency = (double)(state_bytes(in, rank) / cell->state);
    pool->graphs_note =
        in->settings->eager
            ? NULL
            : "SGLang reserves 2 MiB for each sequence of the largest graph, whatever the model";
}

static void judge(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                  const struct mt_budget_units *tokens, const char *idle, struct mt_sheet *sheet)
{
    const struct cell *cell = cell_of(rank);
    if (rank->left <= 0)
        mt_sheet_cannot(sheet,
                        "SGLang does not start: the static share of %.2f GiB does not hold the "
                        "weights of %.2f%s",
                        mt_gib(rank->requested),
                        mt_gib(rank->parts[WEIGHTS].bytes + rank->parts[ENCODERS].bytes), idle);
    else if (cell->full && tokens->n < in->settings->context_tokens)
        mt_sheet_note(sheet,
                      "SGLang starts, and takes no request of more than the %" PRIu64
                      " tokens that its cache holds; --context-length %" PRIu64 " says so%s.",
                      tokens->n, tokens->n, idle);
    if (cell->state)
        mt_sheet_note(sheet,
                      "recurrent states get %g bytes for each byte of cache: "
                      "--mamba-full-memory-ratio",
                      mt_engine_real(in->engine, "recurrent_state", 0.9));
}

static int predict(const struct mt_predict_input *in, struct mt_sheet *sheet,
                   struct mt_error *error)
{
    static const struct mt_budget_engine engine = {.rank_bytes = sizeof(struct rank),
                                                   .is_fused = 1,
                                                   .make = make_rank,
                                                   .place = place_rank,
                                                   .units = tokens_in,
                                                   .cache_bytes = cache_bytes,
                                                   .write = write_rank,
                                                   .fill_pool = fill_pool,
                                                   .judge = judge};
    struct rank rank, tightest;
    return mt_budget_predict(&engine, in, &rank.budget, &tightest.budget, sheet, error);
}

const struct mt_predictor mt_predict_sglang = {
    .engine = "sglang", .complete = complete, .predict = predict, .counts_encoders = 1};
