/* SPDX-License-Identifier: MIT */
/* vLLM. A share of each device is requested; weights, the activations of a profiling run, what
 * PyTorch does not see and, in newer versions, CUDA graphs are subtracted from it; the rest is
 * divided into blocks. So the total stays, and what is wrong in one term is missing in the cache.
 */
#include "vllm.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"

#define HUGE_DEVICE_GIB  160
#define LARGE_DEVICE_GIB 70

/* One summand of what the budget is spent on. */
struct part {
    uint64_t bytes;
    uint64_t low;
    uint64_t high;
};

/* A rank, and its budget. */
struct rank {
    int device;
    struct mt_torch_stage stage;
    struct mt_torch_weights weights;
    struct mt_vllm_pool pool;
    struct mt_vllm_experts experts;
    struct part weight;
    struct part activation;
    struct part other;
    struct part communication;
    struct part graph;
    uint64_t rope_bytes;
    uint64_t weight_slack; /* that loading may leave */
    uint64_t requested;
    int64_t left;
    int64_t left_low;
    int64_t left_high;
};

static uint64_t smallest_device(const struct mt_predict_settings *settings)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < settings->n_devices; i++)
        least = settings->device_bytes[i] < least ? settings->device_bytes[i] : least;
    return least;
}

static void complete_batch(const struct mt_engine *engine, struct mt_predict_settings *settings)
{
    uint64_t device = smallest_device(settings);
    int is_large = device >= LARGE_DEVICE_GIB * MT_GIB;
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
    if (settings->memory_share == 0)
        settings->memory_share = mt_engine_real(engine, "memory_share", 0.9);
    if (!(settings->memory_share > 0 && settings->memory_share <= 1))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "--gpu-memory-utilization is above 0 and at most 1, not %g",
                       settings->memory_share);
    complete_batch(engine, settings);
    return 0;
}

/* Rotations of all positions are kept, once for each kind of layer that rotates differently. */
static uint64_t rope_cache(const struct mt_predict_input *in)
{
    const struct mt_model_description *d = in->d;
    uint64_t width = d->qk_rope_head_size;
    for (uint64_t i = 0; i < d->n_layers && !d->kv_lora_rank; i++)
        width = d->layers[i].key_size > width ? d->layers[i].key_size : width;
    int two = mt_begins(d->architecture, "gemma3") || mt_begins(d->architecture, "gemma4");
    int is_wide = mt_begins(d->architecture, "gpt-oss"); /* asks for 32 bit */
    uint64_t numbers = mt_mul(mt_mul(d->context_length, width), two ? 2 : 1);
    return mt_mul(numbers, is_wide ? 4 : mt_torch_float_width(in->settings));
}

static void weigh(const struct mt_predict_input *in, struct rank *rank, int float_bytes)
{
    const struct mt_torch_load load = {.tensor_parallel = in->settings->tensor_parallel,
                                       .vocabulary_padding =
                                           mt_engine_number(in->engine, "weights", 64),
                                       .float_bytes = float_bytes,
                                       .is_fused = 1};
    mt_torch_weights_of(in, &load, &rank->stage, &rank->weights);
    mt_vllm_experts_of(in, &rank->stage, rank->weights.mxfp4_bytes, &rank->experts);
    rank->rope_bytes = rope_cache(in);
    const struct mt_torch_weights *w = &rank->weights;
    uint64_t tensors = w->bytes + w->rounding_bytes;
    rank->weight.bytes = tensors + w->encoder_bytes + rank->experts.more_bytes + rank->rope_bytes;
    rank->weight.low = w->bytes + w->encoder_low_bytes + rank->experts.low_bytes + rank->rope_bytes;
    if (in->settings->tensor_parallel > 1) /* four logs are met within 0.04 % */
        rank->weight_slack = mt_scale(rank->weight.bytes, 0.001);
    rank->weight.high = tensors + rank->experts.high_bytes + rank->rope_bytes + rank->weight_slack;
}

static int has_encoder(const struct mt_predict_input *in)
{
    struct mt_model_tensor tensor;
    for (uint64_t i = 0; i < in->d->n_tensors; i++)
        if (mt_model_tensor_at(in->model, i, &tensor) == 0 && tensor.role == MT_TENSOR_PROJECTOR)
            return 1;
    return in->d->lacks_encoders;
}

static uint64_t encoder_bytes(const struct mt_predict_input *in)
{
    int is_qwen = mt_begins(in->d->architecture, "qwen");
    return has_encoder(in)
               ? mt_engine_number(in->engine,
                                  is_qwen ? "activations.encoder.qwen" : "activations.encoder", 0)
               : 0;
}

/* Rows of logits that the profiling run samples from. */
static uint64_t logit_rows(const struct mt_predict_settings *settings)
{
    return settings->sequences < settings->batched_tokens ? settings->sequences
                                                          : settings->batched_tokens;
}

static uint64_t sampler_bytes(const struct mt_predict_input *in)
{
    const struct mt_predict_settings *settings = in->settings;
    uint64_t logits = mt_mul(mt_mul(logit_rows(settings), in->d->vocabulary), 4);
    uint64_t hidden = mt_mul(mt_mul(settings->batched_tokens, in->d->embedding_length), 2);
    return mt_scale(logits, mt_engine_real(in->engine, "activations.logits", 9.5)) +
           mt_scale(hidden, mt_engine_real(in->engine, "activations.hidden", 1.5));
}

static int recurs(const struct mt_model_description *d)
{
    for (uint64_t i = 0; i < d->n_layers; i++)
        if (d->layers[i].recurrence != MT_RECURRENCE_NONE)
            return 1;
    return 0;
}

/* What an encoder or a recurrent layer takes was logged of few models: there the band is that of a
 * pass, whichever of the two is larger. */
static void profile(const struct mt_predict_input *in, struct rank *rank, uint64_t encoder)
{
    struct mt_torch_forward forward;
    mt_torch_forward_of(in, &rank->stage, in->settings->batched_tokens, &forward);
    uint64_t pass = forward.bytes + encoder;
    uint64_t sampling = rank->stage.is_last ? sampler_bytes(in) : 0;
    uint64_t bytes = pass > sampling ? pass : sampling;
    int is_rough = pass > sampling || encoder || recurs(in->d);
    const char *key = is_rough ? "activations.band.pass" : "activations.band.sampler";
    double width = (double)mt_engine_number(in->engine, key, 25) / 100;
    rank->activation = (struct part){bytes, mt_scale(bytes, 1 - width), mt_scale(bytes, 1 + width)};
    if (encoder && pass <= sampling)
        rank->activation.high = rank->activation.high > pass ? rank->activation.high : pass;
    mt_widen_unread(in->engine, "unread.activations", &rank->activation.low,
                    &rank->activation.high);
}

static struct part part_of(const struct mt_predict_input *in, const char *key, const char *low,
                           const char *high)
{
    char unread[32];
    struct part part = {.bytes = mt_engine_number(in->engine, key, 0),
                        .low = mt_engine_number(in->engine, low, 0),
                        .high = mt_engine_number(in->engine, high, 0)};
    snprintf(unread, sizeof unread, "unread.%s", key);
    mt_widen_unread(in->engine, unread, &part.low, &part.high);
    return part;
}

static void add_runtime(const struct mt_predict_input *in, struct rank *rank)
{
    const struct mt_predict_settings *settings = in->settings;
    rank->other = part_of(in, "non_torch", "non_torch.low", "non_torch.high");
    if (settings->tensor_parallel * settings->pipeline_parallel > 1)
        rank->communication =
            part_of(in, "communication", "communication.low", "communication.high");
    if (!settings->eager) {
        rank->graph = part_of(in, "graphs", "graphs.low", "graphs.high");
        uint64_t least = mt_engine_has(in->engine, "graphs.reserved", "yes") ? 51 * MT_MIB : 0;
        rank->graph.low = rank->graph.low > least ? rank->graph.low : least;
    }
}

static int graphs_are_reserved(const struct mt_predict_input *in)
{
    return !in->settings->eager && mt_engine_has(in->engine, "graphs.reserved", "yes");
}

static int64_t left_of(uint64_t requested, uint64_t spent)
{
    return (int64_t)requested - (int64_t)spent;
}

static void subtract(const struct mt_predict_input *in, struct rank *rank)
{
    const struct part *parts[] = {&rank->weight, &rank->activation, &rank->other,
                                  &rank->communication, &rank->graph};
    size_t n = sizeof parts / sizeof *parts - (graphs_are_reserved(in) ? 0 : 1);
    uint64_t spent = 0;
    uint64_t low = 0;
    uint64_t high = 0;
    for (size_t i = 0; i < n; i++) {
        spent += parts[i]->bytes;
        low += parts[i]->low;
        high += parts[i]->high;
    }
    uint64_t capacity = in->settings->device_bytes[rank->device];
    rank->requested = mt_scale(capacity, in->settings->memory_share);
    rank->left = left_of(rank->requested, spent);
    rank->left_low = left_of(rank->requested, high);
    rank->left_high = left_of(rank->requested, low);
}

static uint64_t blocks_in(const struct rank *rank, int64_t bytes)
{
    if (bytes <= 0 || !rank->pool.bytes_per_block)
        return 0;
    return (uint64_t)bytes / rank->pool.bytes_per_block;
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
    const struct mt_torch_weights *w = &rank->weights;
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = rank->device,
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
                 &(struct mt_sheet_term){.place = rank->device,
                                         .category = MT_CATEGORY_WEIGHTS,
                                         .name = "rounded blocks",
                                         .rule = "blocks",
                                         .bytes = w->rounding_bytes,
                                         .high_bytes = w->rounding_bytes,
                                         .provenance = MT_PROVENANCE_DERIVED},
                 "whole 2 MiB of PyTorch's allocator, for tensors from 10 MiB on");
    mt_torch_write_encoders(w, rank->device, sheet);
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = rank->device,
                                         .category = MT_CATEGORY_WEIGHTS,
                                         .name = "MXFP4 layout",
                                         .rule = "weights.mxfp4",
                                         .bytes = rank->experts.more_bytes,
                                         .low_bytes = rank->experts.low_bytes,
                                         .high_bytes = rank->experts.high_bytes,
                                         .provenance = MT_PROVENANCE_INFERRED},
                 "%" PRIu64 " of experts laid out anew", w->mxfp4_bytes);
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = rank->device,
                                         .category = MT_CATEGORY_WEIGHTS,
                                         .name = "rotary cache",
                                         .rule = "rope_cache",
                                         .bytes = rank->rope_bytes,
                                         .provenance = MT_PROVENANCE_DERIVED},
                 "positions * rotated width * bytes of a float");
}

static void write_part(const struct rank *rank, const struct part *part, enum mt_category category,
                       const char *name, const char *rule, struct mt_sheet *sheet)
{
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

static void write_activation(const struct mt_predict_input *in, const struct rank *rank,
                             struct mt_sheet *sheet)
{
    const struct part *part = &rank->activation;
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
                 logit_rows(in->settings), in->d->vocabulary, in->settings->batched_tokens);
}

/* All ranks hold as many blocks as the one with the fewest: that one is the pool that is shown. */
struct tightest {
    struct rank rank;
    uint64_t blocks;
    uint64_t low;
    uint64_t high;
};

/* Where the rank's cache takes what is left, its parts make up for each other. Where another rank
 * is tighter they do not: the cache stays as it is. */
static void bound_total(const struct mt_predict_input *in, const struct rank *rank,
                        const struct tightest *tightest, struct mt_sheet *sheet)
{
    const struct part *parts[] = {&rank->weight, &rank->activation, &rank->other,
                                  &rank->communication};
    uint64_t block = rank->pool.bytes_per_block;
    uint64_t used = mt_mul(tightest->blocks, block);
    uint64_t low = mt_mul(tightest->low, block);
    uint64_t high = mt_mul(tightest->high, block);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        used = mt_add(used, parts[i]->bytes);
        low = mt_add(low, parts[i]->low);
        high = mt_add(high, parts[i]->high);
    }
    uint64_t reserved = graphs_are_reserved(in) ? rank->graph.bytes : 0;
    uint64_t most = rank->requested + rank->graph.high - reserved;
    low = mt_add(low, reserved ? rank->graph.low : 0);
    high = mt_add(high, rank->graph.high);
    if (blocks_in(rank, rank->left) <= tightest->blocks) {
        low = used + reserved;
        high = most;
    }
    high = high < most ? high : most;
    used += rank->graph.bytes;
    mt_sheet_bound(sheet, rank->device, low, high > used ? high : used);
}

static void write_rank(const struct mt_predict_input *in, const struct rank *rank,
                       const struct tightest *tightest, struct mt_sheet *sheet)
{
    uint64_t bytes = mt_mul(tightest->blocks, rank->pool.bytes_per_block);
    write_weights(rank, sheet);
    write_activation(in, rank, sheet);
    write_part(rank, &rank->other, MT_CATEGORY_CONTEXT, "driver and modules", "non_torch", sheet);
    write_part(rank, &rank->communication, MT_CATEGORY_COMMUNICATION, "between devices",
               "communication", sheet);
    write_part(rank, &rank->graph, MT_CATEGORY_GRAPHS, "CUDA graphs", "graphs", sheet);
    mt_sheet_add(
        sheet,
        &(struct mt_sheet_term){.place = rank->device,
                                .category = MT_CATEGORY_KV_CACHE,
                                .name = "blocks",
                                .rule = "kv_cache",
                                .bytes = bytes,
                                .low_bytes = mt_mul(tightest->low, rank->pool.bytes_per_block),
                                .high_bytes = mt_mul(tightest->high, rank->pool.bytes_per_block),
                                .provenance = MT_PROVENANCE_DERIVED},
        "%" PRIu64 " blocks * %" PRIu64 " B, of %" PRIu64 " tokens in %" PRIu64 " groups",
        tightest->blocks, rank->pool.bytes_per_block, rank->pool.block_tokens, rank->pool.n_groups);
    if (bytes)
        bound_total(in, rank, tightest, sheet);
}

static void fill_pool(const struct mt_predict_input *in, const struct rank *rank, uint64_t blocks,
                      uint64_t low, uint64_t high, struct mt_sheet *sheet)
{
    struct mt_estimate_pool *pool = mt_sheet_pool(sheet);
    uint64_t request = rank->pool.blocks_per_request;
    *pool = (struct mt_estimate_pool){
        .present = 1,
        .requested_bytes = rank->requested,
        .weights_bytes = rank->weight.bytes,
        .activations_bytes = rank->activation.bytes,
        .other_bytes = rank->other.bytes + rank->communication.bytes,
        .graphs_bytes = graphs_are_reserved(in) ? rank->graph.bytes : 0,
        .pool_bytes = rank->left,
        .bytes_per_token = rank->pool.bytes_per_token,
        .pool_tokens = tokens_of(in, &rank->pool, blocks),
        .pool_tokens_low = tokens_of(in, &rank->pool, low),
        .pool_tokens_high = tokens_of(in, &rank->pool, high),
        .concurrency = request ? (double)blocks / (double)request : 0,
        .graphs_note =
            in->settings->eager ? NULL
            : graphs_are_reserved(in)
                ? "the engine sets its own estimate aside; it was 14 % too high in one log, 2.4 "
                  "GiB "
                  "too high in another, where nothing was used, and cost two thirds of the tokens "
                  "in a third; one start ran out of memory all the same"
                : "this version sets nothing aside for CUDA graphs: they come on top of the "
                  "budget, "
                  "0.06 to 1.03 GiB in logs"};
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
        if (mt_vllm_blocks_of(in, &rank->stage, mt_mul(middle, step)) <= blocks)
            low = middle;
        else
            high = middle;
    }
    return low * step;
}

static void judge(const struct mt_predict_input *in, const struct rank *rank, uint64_t blocks,
                  struct mt_sheet *sheet)
{
    const struct mt_predict_settings *settings = in->settings;
    uint64_t capacity = settings->device_bytes[rank->device];
    uint64_t used = settings->device_used_bytes ? settings->device_used_bytes[rank->device] : 0;
    char idle[MT_IDLE_TEXT];
    mt_torch_idle_devices(in, idle);
    if (used > capacity - rank->requested)
        mt_sheet_cannot(sheet,
                        "vLLM asks for %.2f GiB of device %d, and %.2f are free: lower "
                        "--gpu-memory-utilization",
                        mt_gib(rank->requested), rank->device,
                        mt_gib(used < capacity ? capacity - used : 0));
    if (rank->left <= 0)
        mt_sheet_cannot(sheet,
                        "nothing is left for the KV cache: %.2f GiB are requested, %.2f are needed "
                        "before it%s",
                        mt_gib(rank->requested),
                        (double)((int64_t)rank->requested - rank->left) / (double)MT_GIB, idle);
    else if (blocks < rank->pool.blocks_per_request)
        mt_sheet_cannot(sheet,
                        "vLLM does not start: the cache of one request of %" PRIu64
                        " tokens does not fit; --max-model-len %" PRIu64 " would%s",
                        settings->context_tokens, longest_context(in, rank, blocks), idle);
    if (in->d->context_length && settings->context_tokens > in->d->context_length)
        mt_sheet_cannot(sheet,
                        "vLLM refuses --max-model-len %" PRIu64 " above the %" PRIu64
                        " that the model was trained for",
                        settings->context_tokens, in->d->context_length);
}

static void write_flags(const struct mt_predict_input *in, struct mt_sheet *sheet)
{
    const struct mt_predict_settings *settings = in->settings;
    mt_sheet_flag(sheet, "--gpu-memory-utilization %g", settings->memory_share);
    mt_sheet_flag(sheet, "--max-model-len %" PRIu64, settings->context_tokens);
    mt_sheet_flag(sheet, "--max-num-seqs %" PRIu64, settings->sequences);
    mt_sheet_flag(sheet, "--max-num-batched-tokens %" PRIu64, settings->batched_tokens);
    mt_sheet_flag(sheet, "--kv-cache-dtype %s", settings->kv_type_k);
    if (settings->tensor_parallel > 1)
        mt_sheet_flag(sheet, "--tensor-parallel-size %" PRIu64, settings->tensor_parallel);
    if (settings->pipeline_parallel > 1)
        mt_sheet_flag(sheet, "--pipeline-parallel-size %" PRIu64, settings->pipeline_parallel);
    if (settings->weight_type)
        mt_sheet_flag(sheet,
                      mt_begins(settings->weight_type, "fp8") ? "--quantization %s" : "--dtype %s",
                      mt_torch_dtype_name(settings->weight_type));
    if (settings->eager)
        mt_sheet_flag(sheet, "--enforce-eager");
}

static void write_notes(const struct mt_predict_input *in, const struct rank *rank,
                        struct mt_sheet *sheet)
{
    size_t used = (size_t)(in->settings->tensor_parallel * in->settings->pipeline_parallel);
    if (used < in->settings->n_devices)
        mt_sheet_note(sheet, "%zu of %zu devices are used; --tensor-parallel-size takes more", used,
                      in->settings->n_devices);
    if (rank->pool.state_bytes && rank->pool.bytes_per_token)
        mt_sheet_note(sheet,
                      "the block size is set to %" PRIu64
                      " tokens, so that a page of attention holds a recurrent layer's %" PRIu64
                      " bytes",
                      rank->pool.block_tokens, rank->pool.state_bytes);
    if (rank->pool.state_bytes)
        mt_sheet_note(sheet, "the profiling run sees less than a long prompt of recurrent layers "
                             "takes later");
    if (rank->pool.padding_layers)
        mt_sheet_note(sheet, "groups of layers are filled up with %" PRIu64 " padding layers",
                      rank->pool.padding_layers);
}

static void make_rank(const struct mt_predict_input *in, uint64_t stage, int float_bytes,
                      uint64_t encoder, struct rank *rank)
{
    *rank = (struct rank){.device = 0};
    mt_torch_stage_of(in, stage, in->settings->pipeline_parallel, &rank->stage);
    weigh(in, rank, float_bytes);
    profile(in, rank, encoder);
    add_runtime(in, rank);
    mt_vllm_pool_of(in, &rank->stage, &rank->pool);
}

static void place_rank(const struct mt_predict_input *in, struct rank *rank, uint64_t device)
{
    rank->device = (int)device;
    subtract(in, rank);
}

static void lower(uint64_t *value, uint64_t other)
{
    if (other < *value)
        *value = other;
}

static void find_tightest(const struct mt_predict_input *in, int float_bytes, uint64_t encoder,
                          struct tightest *tightest)
{
    struct mt_torch_room least = {MT_FAR, INT64_MAX};
    struct rank rank;
    *tightest = (struct tightest){.blocks = MT_FAR, .low = MT_FAR, .high = MT_FAR};
    for (struct mt_torch_walk walk = {0}; mt_torch_next_rank(in, &walk);) {
        if (walk.opens_stage)
            make_rank(in, walk.stage, float_bytes, encoder, &rank);
        place_rank(in, &rank, walk.device);
        int has_blocks = rank.pool.bytes_per_block > 0 || rank.left <= 0;
        const struct mt_torch_room room = {has_blocks ? blocks_in(&rank, rank.left) : MT_FAR,
                                           rank.left};
        if (mt_torch_is_tighter(room, least)) {
            tightest->rank = rank;
            least = room;
        }
        if (!has_blocks)
            continue;
        lower(&tightest->blocks, blocks_in(&rank, rank.left));
        lower(&tightest->low, blocks_in(&rank, rank.left_low));
        lower(&tightest->high, blocks_in(&rank, rank.left_high));
    }
    if (tightest->blocks == MT_FAR) /* a model without a cache */
        tightest->blocks = tightest->low = tightest->high = 0;
}

static int predict(const struct mt_predict_input *in, struct mt_sheet *sheet,
                   struct mt_error *error)
{
    struct tightest tightest;
    struct rank rank;
    int float_bytes;
    int result = mt_torch_float_bytes(in, &float_bytes, error);
    if (result < 0)
        return result;
    uint64_t encoder = encoder_bytes(in);
    find_tightest(in, float_bytes, encoder, &tightest);
    for (struct mt_torch_walk walk = {0}; mt_torch_next_rank(in, &walk);) {
        if (walk.opens_stage)
            make_rank(in, walk.stage, float_bytes, encoder, &rank);
        place_rank(in, &rank, walk.device);
        write_rank(in, &rank, &tightest, sheet);
    }
    fill_pool(in, &tightest.rank, tightest.blocks, tightest.low, tightest.high, sheet);
    judge(in, &tightest.rank, tightest.blocks, sheet);
    write_notes(in, &tightest.rank, sheet);
    write_flags(in, sheet);
    return 0;
}

const struct mt_predictor mt_predict_vllm = {
    .engine = "vllm", .complete = complete, .predict = predict, .counts_encoders = 1};
