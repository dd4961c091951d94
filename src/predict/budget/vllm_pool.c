/* SPDX-License-Identifier: MIT */
/* vLLM's groups of layers. Layers of one kind are one bucket. With one kind there is one group;
 * with several, every page is made as large as the largest, and buckets are divided into groups of
 * as many layers as the smallest bucket has, so that all groups can share blocks. */
#include "vllm.h"

#include <memtally/settings.h>

#define BUCKETS_MAX 16

enum kind { KIND_FULL, KIND_WINDOW, KIND_CHUNK, KIND_STATE };

struct bucket {
    enum kind kind;
    uint64_t window;
    uint64_t token_bytes; /* of a state: the bytes of all of it */
    uint64_t n_layers;
    uint64_t block_tokens;
    int is_alone; /* no layer of the model has attention */
};

struct layout {
    struct bucket buckets[BUCKETS_MAX];
    size_t n;
    int is_hybrid; /* the engine drops what windowed layers do not see */
};

/* Kinds beyond the last one that fits are put into the last: no model has as many. */
static void add_layer(struct layout *layout, struct bucket wanted)
{
    for (size_t i = 0; i < layout->n; i++) {
        struct bucket *bucket = &layout->buckets[i];
        if ((bucket->kind == wanted.kind && bucket->window == wanted.window &&
             bucket->token_bytes == wanted.token_bytes) ||
            i + 1 == BUCKETS_MAX) {
            bucket->n_layers++;
            return;
        }
    }
    wanted.n_layers = 1;
    layout->buckets[layout->n++] = wanted;
}

static void add_attention(const struct mt_predict_input *in, const struct mt_model_layer *layer,
                          struct layout *layout)
{
    const struct mt_torch_cell cell = mt_torch_cache_of(in->settings);
    struct bucket bucket = {.token_bytes =
                                mt_torch_token_bytes(layer, &cell, in->settings->tensor_parallel)};
    if (!bucket.token_bytes)
        return;
    if (layout->is_hybrid && layer->attention == MT_ATTENTION_SLIDING && layer->window) {
        bucket.kind = KIND_WINDOW;
        bucket.window = layer->window;
    } else if (layout->is_hybrid && layer->attention == MT_ATTENTION_CHUNKED && layer->window) {
        bucket.kind = KIND_CHUNK;
        bucket.window = layer->window;
    }
    add_layer(layout, bucket);
}

static void collect(const struct mt_predict_input *in, const struct mt_torch_stage *stage,
                    struct layout *layout)
{
    layout->is_hybrid = mt_engine_has(in->engine, "hybrid_manager", "yes");
    for (uint64_t i = stage->first; i < stage->end && i < in->d->n_layers; i++) {
        const struct mt_model_layer *layer = &in->d->layers[i];
        if (layer->cache_layer == i)
            add_attention(in, layer, layout);
        uint64_t state = mt_torch_state_bytes(
            in->d, layer, in->settings->tensor_parallel, mt_torch_float_width(in->settings),
            mt_torch_state_element_bytes(in), in->settings->draft_tokens);
        if (state)
            add_layer(layout, (struct bucket){.kind = KIND_STATE, .token_bytes = state});
    }
}

static const struct bucket *find(const struct layout *layout, enum kind kind)
{
    for (size_t i = 0; i < layout->n; i++)
        if (layout->buckets[i].kind == kind)
            return &layout->buckets[i];
    return NULL;
}

static uint64_t largest_state(const struct layout *layout)
{
    uint64_t largest = 0;
    for (size_t i = 0; i < layout->n; i++)
        if (layout->buckets[i].kind == KIND_STATE && layout->buckets[i].token_bytes > largest)
            largest = layout->buckets[i].token_bytes;
    return largest;
}

static int recurs_by(const struct mt_model_description *d, enum mt_recurrence recurrence)
{
    for (uint64_t i = 0; i < d->n_layers; i++)
        if (d->layers[i].recurrence == recurrence)
            return 1;
    return 0;
}

static int has_attention(const struct mt_model_description *d)
{
    for (uint64_t i = 0; i < d->n_layers; i++)
        if (d->layers[i].attention != MT_ATTENTION_NONE)
            return 1;
    return 0;
}

/* Whether prompts run through FlashInfer's kernel of delta nets, which writes states down at steps
 * of its own: it is for Hopper and later. */
static int has_stepping_delta_nets(const struct mt_predict_input *in)
{
    unsigned capability = mt_budget_card(in).capability;
    return recurs_by(in->d, MT_RECURRENCE_DELTA_NET) && (!capability || capability >= 90);
}

/* Tokens of an attention page. Beside recurrent layers a page is at least as large as their state,
 * in steps of the kernel's own block. */
static uint64_t block_tokens(const struct mt_predict_input *in, const struct layout *layout)
{
    uint64_t step = mt_engine_number(in->engine, "block_tokens", 16);
    uint64_t state = largest_state(layout);
    const struct bucket *full = find(layout, KIND_FULL);
    if (!state || !full)
        return step;
    if (in->d->kv_lora_rank)
        step = mt_engine_number(in->engine, "block_tokens.latent", 128);
    else if (has_stepping_delta_nets(in))
        step = mt_engine_number(in->engine, "block_tokens.delta", step);
    return mt_mul(step, mt_ceil_div(state, mt_mul(step, full->token_bytes)));
}

static uint64_t page_bytes(const struct bucket *bucket)
{
    return bucket->kind == KIND_STATE ? bucket->token_bytes
                                      : mt_mul(bucket->token_bytes, bucket->block_tokens);
}

/* Makes all pages one size: an attention page that divides the largest gets more tokens, others are
 * padded. Returns the size. */
static uint64_t unify_pages(struct layout *layout)
{
    uint64_t largest = 0;
    for (size_t i = 0; i < layout->n; i++) {
        uint64_t page = page_bytes(&layout->buckets[i]);
        largest = page > largest ? page : largest;
    }
    for (size_t i = 0; i < layout->n; i++) {
        struct bucket *bucket = &layout->buckets[i];
        uint64_t page = page_bytes(bucket);
        if (bucket->kind != KIND_STATE && largest % page == 0)
            bucket->block_tokens = mt_mul(bucket->block_tokens, largest / page);
    }
    return largest;
}

static int all_full(const struct layout *layout)
{
    for (size_t i = 0; i < layout->n; i++)
        if (layout->buckets[i].kind != KIND_FULL)
            return 0;
    return 1;
}

/* Layers of a group. */
static uint64_t group_size(const struct mt_predict_input *in, const struct layout *layout)
{
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    for (size_t i = 0; i < layout->n; i++) {
        uint64_t n = layout->buckets[i].n_layers;
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    double near = mt_engine_real(in->engine, "group_size.near", 1.5);
    return (double)most < (double)least * near ? most : least;
}

/* Tokens that are scheduled before those of an earlier pass are done, whose blocks are kept. Each
 * stage of a pipeline has a pass of its own, and one more is made ready meanwhile. */
static uint64_t tokens_in_flight(const struct mt_predict_input *in)
{
    uint64_t passes = mt_engine_number(in->engine, "flight.passes", 1);
    uint64_t stages = in->settings->pipeline_parallel;
    if (passes > 1 && stages > 1)
        passes = mt_add(passes, stages - 1);
    return mt_mul(passes, in->settings->batched_tokens);
}

/* States that a request keeps of a recurrent layer. Engines keep those of former tokens where
 * layers with attention keep theirs; a kernel that writes them down as it reads a prompt keeps one
 * more. */
static uint64_t pages_of_states(const struct mt_predict_input *in, const struct bucket *bucket)
{
    uint64_t n = mt_engine_number(in->engine, "recurrent_state", 1);
    if (bucket->is_alone)
        n = 1;
    else if (recurs_by(in->d, MT_RECURRENCE_MAMBA2))
        n = mt_engine_number(in->engine, "recurrent_state.mamba2", n);
    else if (has_stepping_delta_nets(in))
        n = mt_engine_number(in->engine, "recurrent_state.delta", n);
    return mt_add(n, in->settings->draft_tokens);
}

static uint64_t pages_of_request(const struct mt_predict_input *in, const struct bucket *bucket,
                                 uint64_t tokens)
{
    uint64_t flight = mt_add(bucket->window, tokens_in_flight(in));
    switch (bucket->kind) {
    case KIND_STATE:
        return pages_of_states(in, bucket);
    case KIND_WINDOW:
        flight = flight - 1 < tokens ? flight - 1 : tokens;
        return mt_ceil_div(flight, bucket->block_tokens) + 1;
    case KIND_CHUNK:
        return mt_ceil_div(flight < tokens ? flight : tokens, bucket->block_tokens);
    case KIND_FULL:
        break;
    }
    return mt_ceil_div(tokens, bucket->block_tokens);
}

/* What a token adds to layers that keep all of them; where there are none, to those with a window.
 * It is 0 of states alone. */
static uint64_t growing_bytes(const struct layout *layout)
{
    int has_full = find(layout, KIND_FULL) != NULL;
    uint64_t bytes = 0;
    for (size_t i = 0; i < layout->n; i++) {
        const struct bucket *bucket = &layout->buckets[i];
        if (has_full ? bucket->kind == KIND_FULL : bucket->kind != KIND_STATE)
            bytes = mt_add(bytes, mt_mul(bucket->token_bytes, bucket->n_layers));
    }
    return bytes;
}

/* One group for all layers: there is one kind, or all keep the whole context. */
static void fill_one_group(const struct mt_predict_input *in, const struct layout *layout,
                           struct mt_vllm_pool *pool)
{
    pool->n_groups = layout->n ? 1 : 0;
    for (size_t i = 0; i < layout->n; i++) {
        const struct bucket *bucket = &layout->buckets[i];
        uint64_t pages = pages_of_request(in, bucket, in->settings->context_tokens);
        pool->bytes_per_block =
            mt_add(pool->bytes_per_block, mt_mul(page_bytes(bucket), bucket->n_layers));
        pool->blocks_per_request =
            pages > pool->blocks_per_request ? pages : pool->blocks_per_request;
    }
}

static void fill_groups(const struct mt_predict_input *in, struct layout *layout,
                        struct mt_vllm_pool *pool)
{
    uint64_t size = group_size(in, layout);
    pool->bytes_per_block = mt_mul(unify_pages(layout), size);
    for (size_t i = 0; i < layout->n; i++) {
        const struct bucket *bucket = &layout->buckets[i];
        uint64_t groups = mt_ceil_div(bucket->n_layers, size);
        pool->n_groups += groups;
        pool->padding_layers += mt_mul(groups, size) - bucket->n_layers;
        pool->blocks_per_request =
            mt_add(pool->blocks_per_request,
                   mt_mul(groups, pages_of_request(in, bucket, in->settings->context_tokens)));
    }
}

void mt_vllm_pool_of(const struct mt_predict_input *in, const struct mt_torch_stage *stage,
                     struct mt_vllm_pool *pool)
{
    struct layout layout = {.n = 0};
    *pool = (struct mt_vllm_pool){0};
    collect(in, stage, &layout);
    pool->state_bytes = largest_state(&layout);
    pool->block_tokens = block_tokens(in, &layout);
    pool->bytes_per_token = growing_bytes(&layout);
    for (size_t i = 0; i < layout.n; i++) {
        layout.buckets[i].block_tokens = pool->block_tokens;
        layout.buckets[i].is_alone = !has_attention(in->d);
    }
    if (layout.n <= 1 || all_full(&layout))
        fill_one_group(in, &layout, pool);
    else
        fill_groups(in, &layout, pool);
}

uint64_t mt_vllm_blocks_of(const struct mt_predict_input *in, const struct mt_torch_stage *stage,
                           uint64_t tokens)
{
    struct mt_predict_settings settings = *in->settings;
    settings.context_tokens = tokens;
    const struct mt_predict_input other = {
        .model = in->model, .d = in->d, .settings = &settings, .engine = in->engine};
    struct mt_vllm_pool pool;
    mt_vllm_pool_of(&other, stage, &pool);
    return pool.blocks_per_request;
}
