/* SPDX-License-Identifier: MIT */
/* vLLM. A share of each device is requested; weights, the activations of a profiling run, what
 * PyTorch does not see and, in newer versions, CUDA graphs are subtracted from it; the rest is
 * divided into blocks. So the total stays, and what is wrong in one term is missing in the cache.
 */
#include "vllm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <memtally/predict.h>

#include "graphs.h"
#include "predict/sheet.h"

#define HUGE_DEVICE_GIB  160
#define LARGE_DEVICE_GIB 70
#define AWQ_BITS         4

enum part { WEIGHTS, ACTIVATIONS, OTHER, COMMUNICATION, GRAPHS, KEPT };

struct rank {
    struct mt_budget_rank budget; /* first */
    struct mt_vllm_pool pool;
    struct mt_vllm_experts experts;
    uint64_t rope_bytes;
    uint64_t latent_bytes; /* beside the matrices that decompress latent vectors */
    uint64_t zero_bytes;   /* of zero points in a wider type */
    uint64_t scale_bytes;  /* of queries, keys and values, in blocks of their own */
    uint64_t weight_slack; /* that loading may leave */
};

static struct rank *own(struct mt_budget_rank *budget)
{
    return (struct rank *)budget;
}

static const struct rank *own_const(const struct mt_budget_rank *budget)
{
    return (const struct rank *)budget;
}

/* Whether the version's list of cards that get the sizes of smaller ones has this one. */
static int is_taken_for_small(const struct mt_engine *engine,
                              const struct mt_predict_settings *settings)
{
    char family[sizeof settings->device_known->gpu];
    if (!settings->device_known)
        return 0;
    snprintf(family, sizeof family, "%s", settings->device_known[0].gpu);
    family[strcspn(family, "-")] = '\0';
    return *family && mt_engine_has(engine, "batched_tokens.as_small", family);
}

static void complete_batch(const struct mt_engine *engine, struct mt_predict_settings *settings)
{
    uint64_t device = mt_budget_smallest_device(settings);
    int is_large = device >= LARGE_DEVICE_GIB * MT_GIB && !is_taken_for_small(engine, settings);
    const char *tokens = device >= HUGE_DEVICE_GIB * MT_GIB ? "batched_tokens.huge"
                         : is_large                         ? "batched_tokens.large"
                                                            : "batched_tokens.small";
    uint64_t batched = mt_engine_number(engine, tokens, 2048);
    if (mt_engine_has(engine, "batched_tokens.rule", "context"))
        batched = settings->context_tokens > 2048 ? settings->context_tokens : 2048;
    if (!settings->sequences)
        settings->sequences =
            mt_engine_number(engine, is_large ? "sequences.large" : "sequences.small", 256);
    if (!settings->batched_tokens)
        settings->batched_tokens = batched;
}

static int complete(const struct mt_model *model, const struct mt_engine *engine,
                    struct mt_predict_settings *settings, struct mt_error *error)
{
    int result = mt_torch_begin(model, engine, settings, "--max-num-batched-tokens", 2048, error);
    if (result < 0)
        return result;
    result = mt_budget_complete_share(engine, settings, error);
    if (result < 0)
        return result;
    complete_batch(engine, settings);
    return 0;
}

static uint64_t rope_cache(const struct mt_predict_input *in)
{
    return mt_mul(mt_budget_rotations(in), mt_budget_rotation_width(in));
}

static int is_quantised(const struct mt_model_description *d)
{
    return d->dtype && strcmp(d->dtype, "bf16") != 0 && strcmp(d->dtype, "f16") != 0 &&
           strcmp(d->dtype, "f32") != 0;
}

/* Matrices from latent vectors to keys and values, which decoding has in another shape: views where
 * they are floats. And the workspace of a backend that is only looked at. */
static uint64_t latent_bytes(const struct mt_predict_input *in, const struct mt_torch_stage *stage)
{
    const struct mt_model_description *d = in->d;
    uint64_t row = mt_mul(d->kv_lora_rank, mt_torch_float_width(in->settings));
    uint64_t copies = 0;
    int is_there = 0;
    int copied = is_quantised(d) && mt_engine_has(in->engine, "weights.latent", "copied");
    for (uint64_t i = stage->first; i < stage->end && i < d->n_layers; i++) {
        uint64_t heads = mt_ceil_div(d->layers[i].heads, in->settings->tensor_parallel);
        uint64_t copy = mt_mul(mt_mul(heads, d->qk_nope_head_size + d->value_head_size), row);
        if (d->layers[i].attention != MT_ATTENTION_LATENT)
            continue;
        is_there = 1;
        copies = mt_add(copies, copied ? copy : 0);
    }
    uint64_t workspace = mt_engine_number(in->engine, "weights.latent.workspace", 0) +
                         mt_engine_number(in->engine, "weights.latent.tensor", 0);
    return mt_add(copies, is_there ? workspace : 0);
}

static int is_named(const struct mt_model_tensor *tensor, const char *part)
{
    return memmem(tensor->name, tensor->name_length, part, strlen(part)) != NULL;
}

/* What zero points of AWQ take more than the file has of them where the kernels want them in the
 * type of the activations. No kernel reads those of GPTQ. AWQ packs columns of weights as it does
 * those of zero points, GPTQ packs rows of weights: so their columns tell the two apart. */
static uint64_t widened_zero_points(const struct mt_predict_input *in,
                                    const struct mt_torch_stage *stage)
{
    const char *key = mt_vllm_is_hopper(in) ? "weights.zero_points.hopper" : "weights.zero_points";
    uint64_t wide = mt_torch_float_width(in->settings) * 8;
    struct mt_model_tensor tensor;
    uint64_t bytes = 0, columns = 0, zero_columns = 0;
    if (!mt_engine_has(in->engine, key, "wide"))
        return 0;
    for (uint64_t i = 0; i < in->d->n_tensors; i++) {
        if (mt_model_tensor_at(in->model, i, &tensor) < 0 || tensor.layer < stage->first ||
            tensor.layer >= stage->end)
            continue;
        if (is_named(&tensor, ".qweight"))
            columns = mt_add(columns, tensor.dims[0]);
        if (is_named(&tensor, ".qzeros")) {
            zero_columns = mt_add(zero_columns, tensor.dims[0]);
            bytes = mt_add(bytes, mt_mul(tensor.bytes / AWQ_BITS, wide - AWQ_BITS));
        }
    }
    return columns == zero_columns ? mt_ceil_div(bytes, in->settings->tensor_parallel) : 0;
}

/* Each layer of attention has single numbers, a tensor each: scales, and ranges before 0.15. */
static uint64_t attention_scales(const struct mt_predict_input *in,
                                 const struct mt_torch_stage *stage)
{
    uint64_t layers = 0;
    for (uint64_t i = stage->first; i < stage->end && i < in->d->n_layers; i++)
        layers += in->d->layers[i].attention != MT_ATTENTION_NONE;
    return mt_mul(layers, mt_engine_number(in->engine, "weights.scales", 0));
}

static void weigh(const struct mt_predict_input *in, struct rank *rank)
{
    const struct mt_torch_weights *w = &rank->budget.weights;
    mt_vllm_experts_of(in, &rank->budget.stage, w->mxfp4_bytes, &rank->experts);
    rank->rope_bytes = rope_cache(in);
    rank->latent_bytes = latent_bytes(in, &rank->budget.stage);
    rank->zero_bytes = widened_zero_points(in, &rank->budget.stage);
    rank->scale_bytes = attention_scales(in, &rank->budget.stage);
    uint64_t made = rank->rope_bytes + rank->latent_bytes + rank->zero_bytes + rank->scale_bytes;
    uint64_t tensors = w->bytes + w->rounding_bytes + w->reused_bytes;
    struct mt_budget_part weight = {.stand = MT_BUDGET_WITHIN};
    weight.bytes = tensors + w->encoder_bytes + rank->experts.more_bytes + made;
    weight.low = w->bytes + w->encoder_low_bytes + rank->experts.low_bytes + made;
    if (in->settings->tensor_parallel > 1) /* four logs are met within 0.04 % */
        rank->weight_slack = mt_scale(weight.bytes, 0.001);
    weight.high =
        tensors + w->encoder_high_bytes + rank->experts.high_bytes + made + rank->weight_slack;
    mt_budget_add(&rank->budget, weight);
}

/* The keys KEY, KEY.low and KEY.high; nothing where the settings have no such part. */
static struct mt_budget_part part_of(const struct mt_predict_input *in, const char *key,
                                     enum mt_budget_stand stand, int is_there)
{
    char low[32], high[32], unread[32];
    struct mt_budget_part part = {.stand = stand};
    snprintf(low, sizeof low, "%s.low", key);
    snprintf(high, sizeof high, "%s.high", key);
    snprintf(unread, sizeof unread, "unread.%s", key);
    if (!is_there)
        return part;
    part.bytes = mt_engine_number(in->engine, key, 0);
    part.low = mt_engine_number(in->engine, low, 0);
    part.high = mt_engine_number(in->engine, high, 0);
    mt_widen_unread(in->engine, unread, &part.low, &part.high);
    return part;
}

static int graphs_are_reserved(const struct mt_predict_input *in)
{
    const char *key = mt_vllm_has_second_runner(in) ? "graphs.reserved.second" : "graphs.reserved";
    return !in->settings->eager && mt_engine_has(in->engine, key, "yes");
}

static void add_runtime(const struct mt_predict_input *in, struct mt_budget_rank *rank)
{
    const struct mt_predict_settings *settings = in->settings;
    int is_parallel = settings->tensor_parallel * settings->pipeline_parallel > 1;
    int is_reserved = graphs_are_reserved(in);
    struct mt_budget_part graphs = part_of(
        in, "graphs", is_reserved ? MT_BUDGET_SET_ASIDE : MT_BUDGET_BESIDE, !settings->eager);
    if (mt_budget_graphs_part(in, &rank->stage, &graphs))
        mt_widen_unread(in->engine, "unread.graphs", &graphs.low, &graphs.high);
    uint64_t least = is_reserved ? 51 * MT_MIB : 0;
    graphs.low = graphs.low > least ? graphs.low : least;
    mt_budget_add(rank, part_of(in, "non_torch", MT_BUDGET_WITHIN, 1));
    mt_budget_add(rank, part_of(in, "communication", MT_BUDGET_WITHIN, is_parallel));
    mt_budget_add(rank, graphs);
}

static uint64_t blocks_in(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                          uint64_t bytes)
{
    (void)in;
    uint64_t block = own_const(rank)->pool.bytes_per_block;
    return block ? bytes / block : MT_FAR;
}

static uint64_t cache_bytes(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                            uint64_t blocks)
{
    (void)in;
    return mt_mul(blocks, own_const(rank)->pool.bytes_per_block);
}

/* Tokens, as the version's log counts them. */
static uint64_t tokens_of(const struct mt_predict_input *in, const struct mt_vllm_pool *pool,
                          uint64_t blocks)
{
    if (!pool->n_groups || !pool->blocks_per_request)
        return 0;
    if (mt_engine_has(in->engine, "pool_tokens", "concurrency"))
        return (uint64_t)((double)blocks / (double)pool->blocks_per_request *
                          (double)in->settings->context_tokens);
    return mt_mul(blocks / pool->n_groups, pool->block_tokens);
}

static void write_weights(const struct rank *rank, struct mt_sheet *sheet)
{
    const struct mt_torch_weights *w = &rank->budget.weights;
    int place = rank->budget.device;
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = place,
                                         .category = MT_CATEGORY_WEIGHTS,
                                         .name = "tensors",
                                         .rule = "weights",
                                         .bytes = w->bytes,
                                         .low_bytes = w->bytes,
                                         .high_bytes = w->bytes + rank->weight_slack,
                                         .provenance = MT_PROVENANCE_READ},
                 "%" PRIu64 " divided + %" PRIu64 " embeddings + %" PRIu64 " whole",
                 w->bytes - w->vocabulary_bytes - w->replicated_bytes, w->vocabulary_bytes,
                 w->replicated_bytes);
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = place,
                                         .category = MT_CATEGORY_WEIGHTS,
                                         .name = "rounded blocks",
                                         .rule = "blocks",
                                         .bytes = w->rounding_bytes + w->reused_bytes,
                                         .high_bytes = w->rounding_bytes + w->reused_bytes,
                                         .provenance = MT_PROVENANCE_DERIVED},
                 "whole 2 MiB of PyTorch's allocator, for tensors from 10 MiB on");
    mt_torch_write_encoders(w, place, sheet);
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = place,
                                         .category = MT_CATEGORY_WEIGHTS,
                                         .name = "MXFP4 layout",
                                         .rule = "weights.mxfp4",
                                         .bytes = rank->experts.more_bytes,
                                         .low_bytes = rank->experts.low_bytes,
                                         .high_bytes = rank->experts.high_bytes,
                                         .provenance = MT_PROVENANCE_INFERRED},
                 "%" PRIu64 " of experts laid out anew", w->mxfp4_bytes);
    mt_budget_write_rotations(rank->rope_bytes, place, sheet);
    if (rank->latent_bytes)
        mt_sheet_add(
            sheet,
            &(struct mt_sheet_term){.place = place,
                                    .category = MT_CATEGORY_WEIGHTS,
                                    .name = "latent matrices",
                                    .rule = "weights.latent",
                                    .bytes = rank->latent_bytes,
                                    .provenance = MT_PROVENANCE_DERIVED},
            "of quantised ones layers * heads * latent width * (key + value), and a workspace");
    if (rank->scale_bytes)
        mt_sheet_add(sheet,
                     &(struct mt_sheet_term){.place = place,
                                             .category = MT_CATEGORY_WEIGHTS,
                                             .name = "scales of attention",
                                             .rule = "weights.scales",
                                             .bytes = rank->scale_bytes,
                                             .provenance = MT_PROVENANCE_DERIVED},
                     "single numbers of each layer of attention, in 512 bytes each");
    if (rank->zero_bytes)
        mt_sheet_add(sheet,
                     &(struct mt_sheet_term){.place = place,
                                             .category = MT_CATEGORY_WEIGHTS,
                                             .name = "zero points",
                                             .rule = "weights.zero_points",
                                             .bytes = rank->zero_bytes,
                                             .provenance = MT_PROVENANCE_DERIVED},
                     "those of 4 bits in the type of the activations");
}

static void write_part(const struct mt_budget_rank *rank, enum part which,
                       enum mt_category category, const char *name, const char *rule,
                       struct mt_sheet *sheet)
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
                 "%.2f GiB, %.2f to %.2f seen", mt_gib(part->bytes), mt_gib(part->low),
                 mt_gib(part->high));
}

static void write_activation(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                             struct mt_sheet *sheet)
{
    const struct mt_budget_part *part = &rank->parts[ACTIVATIONS];
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = rank->device,
                                         .category = MT_CATEGORY_ACTIVATIONS,
                                         .name = "peak of the profiling run",
                                         .rule = "activations",
                                         .bytes = part->bytes,
                                         .low_bytes = part->low,
                                         .high_bytes = part->high,
                                         .provenance = MT_PROVENANCE_DERIVED},
                 "max of sampling %" PRIu64 " rows of %" PRIu64 " logits and a forward pass of "
                 "%" PRIu64 " tokens",
                 mt_vllm_logit_rows(in->settings), in->d->vocabulary, in->settings->batched_tokens);
}

static void write_kept(const struct mt_budget_rank *rank, struct mt_sheet *sheet)
{
    const struct mt_budget_part *part = &rank->parts[KEPT];
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = rank->device,
                                         .category = MT_CATEGORY_WORKSPACE,
                                         .name = "requests and experts",
                                         .rule = "runner.logits",
                                         .bytes = part->bytes,
                                         .low_bytes = part->low,
                                         .high_bytes = part->high,
                                         .provenance = MT_PROVENANCE_DERIVED},
                 "counters of all tokens for each request, and rows of experts");
}

static void write_rank(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                       const struct mt_budget_units *blocks, struct mt_sheet *sheet)
{
    const struct mt_vllm_pool *pool = &own_const(rank)->pool;
    write_weights(own_const(rank), sheet);
    write_activation(in, rank, sheet);
    write_part(rank, OTHER, MT_CATEGORY_CONTEXT, "driver and modules", "non_torch", sheet);
    write_part(rank, COMMUNICATION, MT_CATEGORY_COMMUNICATION, "between devices", "communication",
               sheet);
    write_part(rank, GRAPHS, MT_CATEGORY_GRAPHS, "CUDA graphs", "graphs", sheet);
    if (rank->parts[KEPT].bytes)
        write_kept(rank, sheet);
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = rank->device,
                                         .category = MT_CATEGORY_KV_CACHE,
                                         .name = "blocks",
                                         .rule = "kv_cache",
                                         .bytes = cache_bytes(in, rank, blocks->n),
                                         .low_bytes = cache_bytes(in, rank, blocks->low),
                                         .high_bytes = cache_bytes(in, rank, blocks->high),
                                         .provenance = MT_PROVENANCE_DERIVED},
                 "%" PRIu64 " blocks * %" PRIu64 " B, of %" PRIu64 " tokens in %" PRIu64 " groups",
                 blocks->n, pool->bytes_per_block, pool->block_tokens, pool->n_groups);
}

static const char *graphs_note(const struct mt_predict_input *in)
{
    if (in->settings->eager)
        return NULL;
    return graphs_are_reserved(in)
               ? "the engine sets its own estimate aside; it was 14 % too high in one log, 2.4 GiB "
                 "too high in another, where nothing was used, and cost two thirds of the tokens "
                 "in a third; one start ran out of memory all the same"
               : "this version sets nothing aside for the model's CUDA graphs: they come on top "
                 "of the budget, 0.06 to 1.03 GiB in logs";
}

static void fill_pool(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                      const struct mt_budget_units *blocks, struct mt_estimate_pool *pool)
{
    const struct mt_vllm_pool *own_pool = &own_const(rank)->pool;
    uint64_t request = own_pool->blocks_per_request;
    pool->weights_bytes = rank->parts[WEIGHTS].bytes;
    pool->activations_bytes = rank->parts[ACTIVATIONS].bytes;
    pool->other_bytes = rank->parts[OTHER].bytes + rank->parts[COMMUNICATION].bytes;
    if (rank->parts[KEPT].stand == MT_BUDGET_WITHIN)
        pool->other_bytes += rank->parts[KEPT].bytes;
    pool->graphs_bytes = graphs_are_reserved(in) ? rank->parts[GRAPHS].bytes : 0;
    pool->bytes_per_token = own_pool->bytes_per_token;
    pool->pool_tokens = tokens_of(in, own_pool, blocks->n);
    pool->pool_tokens_low = tokens_of(in, own_pool, blocks->low);
    pool->pool_tokens_high = tokens_of(in, own_pool, blocks->high);
    pool->concurrency = request ? (double)blocks->n / (double)request : 0;
    pool->graphs_note = graphs_note(in);
}

/* The longest context that the blocks hold for one request, in steps of a block. */
static uint64_t longest_context(const struct mt_predict_input *in, const struct rank *rank,
                                uint64_t blocks)
{
    uint64_t step = rank->pool.block_tokens;
    uint64_t low = 0;
    uint64_t high = in->settings->context_tokens / step + 1;
    while (low + 1 < high) {
        uint64_t middle = low + (high - low) / 2;
        if (mt_vllm_blocks_of(in, &rank->budget.stage, mt_mul(middle, step)) <= blocks)
            low = middle;
        else
            high = middle;
    }
    return low * step;
}

static void write_notes(const struct mt_vllm_pool *pool, struct mt_sheet *sheet)
{
    if (pool->state_bytes && pool->bytes_per_token)
        mt_sheet_note(sheet,
                      "the block size is set to %" PRIu64
                      " tokens, so that a page of attention holds a recurrent layer's %" PRIu64
                      " bytes",
                      pool->block_tokens, pool->state_bytes);
    if (pool->state_bytes)
        mt_sheet_note(sheet, "the profiling run sees less than a long prompt of recurrent layers "
                             "takes later");
    if (pool->padding_layers)
        mt_sheet_note(sheet, "groups of layers are filled up with %" PRIu64 " padding layers",
                      pool->padding_layers);
}

static void judge(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                  const struct mt_budget_units *blocks, const char *idle, struct mt_sheet *sheet)
{
    const struct rank *whole = own_const(rank);
    if (rank->left <= 0)
        mt_sheet_cannot(sheet,
                        "nothing is left for the KV cache: %.2f GiB are requested, %.2f are needed "
                        "before it%s",
                        mt_gib(rank->requested),
                        (double)((int64_t)rank->requested - rank->left) / (double)MT_GIB, idle);
    else if (blocks->n < whole->pool.blocks_per_request)
        mt_sheet_cannot(sheet,
                        "vLLM does not start: the cache of one request of %" PRIu64
                        " tokens does not fit; --max-model-len %" PRIu64 " would%s",
                        in->settings->context_tokens, longest_context(in, whole, blocks->n), idle);
    write_notes(&whole->pool, sheet);
}

static void make_rank(const struct mt_predict_input *in, struct mt_budget_rank *rank)
{
    weigh(in, own(rank));
    mt_budget_add(rank, mt_vllm_profile_of(in, &rank->stage, rank->weights.mxfp4_bytes));
    add_runtime(in, rank);
    mt_budget_add(rank, mt_vllm_kept_of(in, &rank->stage, rank->weights.mxfp4_bytes));
    mt_vllm_pool_of(in, &rank->stage, &own(rank)->pool);
}

static int predict(const struct mt_predict_input *in, struct mt_sheet *sheet,
                   struct mt_error *error)
{
    static const struct mt_budget_engine engine = {.rank_bytes = sizeof(struct rank),
                                                   .is_fused = 1,
                                                   .make = make_rank,
                                                   .units = blocks_in,
                                                   .cache_bytes = cache_bytes,
                                                   .write = write_rank,
                                                   .fill_pool = fill_pool,
                                                   .judge = judge};
    struct rank rank, tightest;
    return mt_budget_predict(&engine, in, &rank.budget, &tightest.budget, sheet, error);
}

const struct mt_predictor mt_predict_vllm = {
    .engine = "vllm", .complete = complete, .predict = predict, .counts_encoders = 1};
