/* SPDX-License-Identifier: MIT */
/* Weights and inputs of llama.cpp's graphs, and the small steps that all families share. */
#include "build.h"

#include <stdlib.h>
#include <string.h>

#include <memtally/settings.h>

#include "base/out_of_memory.h"
#include "predict/llama/internal.h"
#include "predict/sheet.h"

#define CACHE_STEP 64

static const char *const endings[MT_SLOT_COUNT] = {
#define MT_SLOT_ENDING(SLOT, ending) [MT_SLOT_##SLOT] = ending,
    MT_SLOT_LIST(MT_SLOT_ENDING)
#undef MT_SLOT_ENDING
};

/* The part of a tensor's name behind "blk.N."; *own is set where the tensor is not named so. */
static const char *ending_of(const struct mt_model_tensor *tensor, size_t *length, int *own)
{
    const char *name = tensor->name;
    const char *end = name + tensor->name_length;
    *own = tensor->name_length < 4 || memcmp(name, "blk.", 4) != 0;
    for (int dots = 0; !*own && dots < 2 && name < end; name++)
        dots += *name == '.';
    *length = (size_t)(end - name);
    return name;
}

static int slot_of(const struct mt_model_tensor *tensor, int *own)
{
    size_t length;
    const char *ending = ending_of(tensor, &length, own);
    for (int i = 0; i < MT_SLOT_COUNT; i++)
        if (endings[i][0] == ending[0] && strlen(endings[i]) == length &&
            memcmp(endings[i], ending, length) == 0)
            return i;
    return -1;
}

static int is_whole_type(const char *type)
{
    return type[0] == 'f' || strncmp(type, "bf", 2) == 0 || (type[0] == 'i' && type[1] != 'q');
}

static void take_tensor(struct mt_build *build, const struct mt_llama_placement *placement,
                        const struct mt_model_tensor *tensor)
{
    int own;
    int slot = slot_of(tensor, &own);
    if (slot < 0 || (!own && tensor->layer >= build->n_layers))
        return;
    size_t il = own ? build->n_layers : tensor->layer;
    struct mt_build_weight *weight = &build->layers[il].weights[slot];
    for (uint32_t i = 0; i < 4; i++)
        weight->ne[i] = i < tensor->n_dims ? tensor->dims[i] : 1;
    weight->bytes = tensor->bytes;
    weight->type = tensor->type;
    weight->quantised = !is_whole_type(tensor->type);
    weight->place = (int8_t)mt_llama_place_of(placement, tensor);
    weight->present = 1;
}

static int take_weights(struct mt_build *build, struct mt_error *error)
{
    const struct mt_predict_input *in = build->plan->in;
    struct mt_llama_placement placement;
    struct mt_model_tensor tensor;
    if (build->d->format != MT_MODEL_GGUF)
        return 0;
    int result = mt_llama_placement_init(&placement, build->plan, error);
    if (result < 0)
        return result;
    for (uint64_t i = 0; i < build->d->n_tensors; i++)
        if (mt_model_tensor_at(in->model, i, &tensor) == 0)
            take_tensor(build, &placement, &tensor);
    mt_llama_placement_finish(&placement);
    return 0;
}

int mt_build_init(struct mt_build *build, struct mt_graph *graph, const struct mt_llama_plan *plan,
                  struct mt_error *error)
{
    *build = (struct mt_build){.graph = graph,
                               .plan = plan,
                               .d = plan->in->d,
                               .arch = mt_arch_of(plan->in->d->architecture)};
    build->n_layers = (size_t)(build->d->n_layers - build->d->n_draft_layers);
    build->host = (int)plan->n_devices;
    build->sequences = plan->sequences;
    build->streams = plan->streams;
    build->tokens = mt_llama_add(plan->ubatch, plan->sequences - 1) / plan->sequences;
    build->tokens *= plan->sequences;
    build->outputs = plan->output_rows;
    build->global.cells = plan->cells;
    build->windowed.cells = plan->swa_cells;
    build->layers = mt_arena_array(graph->arena, build->n_layers + 1, sizeof *build->layers);
    if (!build->layers)
        return mt_out_of_memory(error);
    return take_weights(build, error);
}

int mt_build_backend(const struct mt_build *build, size_t il)
{
    int device = build->plan->device_of[il < build->n_layers ? il : build->plan->n_layers];
    return device == MT_HOST_PLACE ? build->host : device;
}

int mt_build_is_windowed(const struct mt_build *build, size_t il)
{
    enum mt_attention attention = build->d->layers[il].attention;
    return !build->plan->ignores_windows &&
           (attention == MT_ATTENTION_SLIDING || attention == MT_ATTENTION_CHUNKED);
}

int mt_build_has(const struct mt_build *build, size_t il, enum mt_slot slot)
{
    return build->layers[il].weights[slot].present;
}

int mt_build_expects(const struct mt_build *build, size_t il, enum mt_slot slot)
{
    if (build->d->format == MT_MODEL_GGUF)
        return mt_build_has(build, il, slot);
    switch (slot) {
    case MT_SLOT_ATTN_Q_NORM:
    case MT_SLOT_ATTN_K_NORM:
        return !!(build->traits & MT_BUILD_NORMS_QK);
    case MT_SLOT_SSM_BETA_ALPHA:
    case MT_SLOT_SHARED_ROUTER:
        return build->arch == MT_ARCH_QWEN3NEXT;
    case MT_SLOT_SSM_NORM:
    case MT_SLOT_FFN_GATE:
    case MT_SLOT_EXPERTS_GATE:
        return 1;
    default:
        return 0;
    }
}

static struct mt_node *leaf_of(struct mt_build *build, size_t il, struct mt_build_weight *weight)
{
    if (weight->node)
        return weight->node;
    int backend = weight->place == MT_HOST_PLACE ? build->host : weight->place;
    weight->node = mt_op_external(build->graph, MT_TYPE_F32, weight->ne, backend);
    weight->node->flags |= MT_NODE_WEIGHT;
    weight->node->bytes = weight->bytes;
    weight->node->weight_type = weight->type;
    weight->node->quantised = weight->quantised;
    uint64_t rows = mt_node_elements(weight->node) / (weight->ne[0] ? weight->ne[0] : 1);
    weight->node->nb[1] = rows ? weight->bytes / rows : 0;
    (void)il;
    return weight->node;
}

struct mt_node *mt_build_maybe(struct mt_build *build, size_t il, enum mt_slot slot)
{
    struct mt_build_weight *weight = &build->layers[il].weights[slot];
    return weight->present ? leaf_of(build, il, weight) : NULL;
}

struct mt_node *mt_build_weight(struct mt_build *build, size_t il, enum mt_slot slot, uint64_t ne0,
                                uint64_t ne1, uint64_t ne2)
{
    struct mt_build_weight *weight = &build->layers[il].weights[slot];
    if (!weight->present) {
        const struct mt_model_description *d = build->d;
        double bytes = d->parameters ? (double)d->weight_bytes / (double)d->parameters : 2;
        int backend = mt_build_backend(build, il);
        *weight = (struct mt_build_weight){.ne = {ne0, ne1, ne2, 1}, .present = 1};
        weight->bytes = (uint64_t)(bytes * (double)ne0 * (double)ne1 * (double)ne2);
        weight->place = (int8_t)(backend == build->host ? MT_HOST_PLACE : backend);
    }
    return leaf_of(build, il, weight);
}

static struct mt_node *vector_input(struct mt_build *build, enum mt_graph_type type, uint64_t n)
{
    return mt_op_input(build->graph, type, (uint64_t[4]){n, 1, 1, 1});
}

/* Image features for the first layers lie beside the embeddings. */
static uint64_t input_width(const struct mt_build *build)
{
    return build->d->embedding_length * (1 + build->d->deepstack_layers);
}

/* With room for image features beside the rows. */
static struct mt_node *widened(struct mt_build *build, struct mt_node *x)
{
    const uint64_t ne[4] = {input_width(build), build->tokens, 1, 1};
    return build->d->deepstack_layers ? mt_op_make(build->graph, ne, x, NULL, NULL) : x;
}

/* The rows of the tokens; newer builds widen them once all rows are looked up. */
static struct mt_node *embed(struct mt_build *build, struct mt_node *tokens)
{
    struct mt_node *table = mt_build_weight(build, build->n_layers, MT_SLOT_TOKEN_EMBEDDING,
                                            build->d->embedding_length, build->d->vocabulary, 1);
    table->backend = (int8_t)build->host;
    struct mt_node *x = mt_op_get_rows(build->graph, table, tokens);
    return build->newer & MT_NEWER_EMBEDDINGS ? x : widened(build, x);
}

/* The rows of tokens in a batch of embeddings: built into the graph although the batch that memory
 * is reserved with has tokens only. */
static struct mt_node *mix_embeddings(struct mt_build *build, struct mt_node *x)
{
    struct mt_graph *g = build->graph;
    const uint64_t ne[4] = {input_width(build), build->tokens, 1, 1};
    struct mt_node *tokens = vector_input(build, MT_TYPE_I32, build->tokens);
    struct mt_node *rows = vector_input(build, MT_TYPE_I64, build->tokens);
    struct mt_node *embeddings = mt_op_input(g, MT_TYPE_F32, ne);
    struct mt_node *own = embed(build, tokens);
    if (build->newer & MT_NEWER_EMBEDDINGS) {
        mt_graph_expand(g, own);
        x = widened(build, x);
        mt_graph_expand(g, x);
        own = widened(build, own);
    }
    struct mt_node *copy = mt_op_like(g, embeddings);
    mt_graph_expand(g, mt_op_set_rows(g, copy, own, rows));
    return x;
}

struct mt_node *mt_build_embedding(struct mt_build *build, unsigned traits)
{
    struct mt_graph *g = build->graph;
    const uint64_t ne[4] = {input_width(build), build->tokens, 1, 1};
    struct mt_node *tokens = vector_input(build, MT_TYPE_I32, build->tokens);
    struct mt_node *embeddings = mt_op_input(g, MT_TYPE_F32, ne);
    struct mt_node *x = embed(build, tokens);
    mt_graph_expand(g, x);
    mt_graph_expand(g, embeddings);
    if (build->mixed_embeddings)
        x = mix_embeddings(build, x);
    if (build->d->deepstack_layers)
        x = mt_op_columns(g, x, build->d->embedding_length);
    build->embedded = x;
    if (traits & MT_BUILD_SCALES_EMBEDDING)
        x = mt_op_map(g, x, NULL);
    if (build->mixed_embeddings && traits & MT_BUILD_SCALES_TOKENS)
        x = mt_op_map(g, x, mt_op_input(g, MT_TYPE_F32, (uint64_t[4]){1, build->tokens, 1, 1}));
    mt_graph_expand(g, x);
    if (!build->mixed_embeddings && traits & MT_BUILD_SCALES_TOKENS)
        x = mt_op_map(g, x, NULL);
    return x;
}

void mt_build_positions(struct mt_build *build)
{
    build->positions = vector_input(build, MT_TYPE_I32, build->tokens * build->d->position_streams);
}

void mt_build_output_rows(struct mt_build *build)
{
    build->output_rows = vector_input(build, MT_TYPE_I32, build->outputs);
}

/* The largest row of values that any layer's cache has. */
static uint64_t widest_values(const struct mt_build *build)
{
    uint64_t widest = 0;
    for (size_t i = 0; i < build->n_layers; i++) {
        const struct mt_model_layer *layer = &build->d->layers[i];
        uint64_t width =
            layer->attention == MT_ATTENTION_NONE ? 0 : layer->kv_heads * layer->value_size;
        if (width > widest)
            widest = width;
    }
    return widest;
}

/* The head size that all layers of a cache share, or 0. */
static uint64_t common_head_size(const struct mt_build *build, int windowed, int of_values)
{
    uint64_t common = 0;
    for (size_t i = 0; i < build->n_layers; i++) {
        const struct mt_model_layer *layer = &build->d->layers[i];
        uint64_t size = of_values ? layer->value_size : layer->key_size;
        if (layer->attention == MT_ATTENTION_NONE || mt_build_is_windowed(build, i) != windowed)
            continue;
        if (common && common != size)
            return 0;
        common = size;
    }
    return common;
}

/* A quantised cache is rotated by a Hadamard matrix, where heads are whole steps wide. */
static struct mt_node *rotation(struct mt_build *build, const char *type, uint64_t head_size,
                                int grows)
{
    if (!mt_llama_is_quantised(type) || !head_size || head_size % CACHE_STEP)
        return NULL;
    uint64_t n = CACHE_STEP;
    while (grows && head_size % (2 * n) == 0)
        n *= 2;
    return mt_op_input(build->graph, MT_TYPE_F32, (uint64_t[4]){n, n, 1, 1});
}

struct mt_node *mt_build_mask(struct mt_build *build, const uint64_t ne[4])
{
    if (!build->plan->flash_attention)
        return mt_op_input(build->graph, MT_TYPE_F32, ne);
    if (build->newer & MT_NEWER_MASK)
        return mt_op_input(build->graph, MT_TYPE_F16, ne);
    return mt_build_as_halves(build, mt_op_input(build->graph, MT_TYPE_F32, ne));
}

static void cache_inputs(struct mt_build *build, struct mt_build_cache *cache, int windowed)
{
    const struct mt_llama_plan *plan = build->plan;
    int latent = build->d->kv_lora_rank && !windowed && common_head_size(build, 0, 1) == 0;
    uint64_t values = plan->flash_attention ? 1 : widest_values(build);
    const uint64_t mask[4] = {cache->cells, build->tokens / build->streams, 1, build->streams};
    cache->k_rows = vector_input(build, MT_TYPE_I64, build->tokens);
    if (!latent)
        cache->v_rows = vector_input(build, MT_TYPE_I64, build->tokens * values);
    cache->mask = mt_build_mask(build, mask);
    if (latent)
        return;
    cache->k_rotation = rotation(build, plan->type_k, common_head_size(build, windowed, 0), 1);
    cache->v_rotation = rotation(build, plan->type_v, common_head_size(build, windowed, 1), 0);
}

static void make_cache(struct mt_build *build, size_t il)
{
    const struct mt_llama_plan *plan = build->plan;
    const struct mt_model_layer *layer = &build->d->layers[il];
    struct mt_build_layer *out = &build->layers[il];
    if (layer->attention == MT_ATTENTION_NONE || layer->cache_layer != il)
        return;
    uint64_t cells = mt_build_is_windowed(build, il) ? plan->swa_cells : plan->cells;
    int backend = plan->in->settings->kv_on_host ? build->host : mt_build_backend(build, il);
    uint64_t width = layer->kv_heads * layer->value_size;
    if (!plan->flash_attention && width)
        width = widest_values(build);
    const uint64_t k[4] = {layer->kv_heads * layer->key_size, cells, build->streams, 1};
    const uint64_t v[4] = {width, cells, build->streams, 1};
    out->k = mt_op_external(build->graph, mt_graph_type_of(plan->type_k), k, backend);
    if (width)
        out->v = mt_op_external(build->graph, mt_graph_type_of(plan->type_v), v, backend);
    if (!mt_build_is_sparse(build) || !mt_build_has(build, il, MT_SLOT_INDEXER_K))
        return;
    const uint64_t indexer[4] = {build->d->indexer_head_size, cells, build->streams, 1};
    out->indexer = mt_op_external(build->graph, mt_graph_type_of(plan->type_k), indexer, backend);
}

int mt_build_is_sparse(const struct mt_build *build)
{
    return build->d->indexer_heads && build->d->indexer_head_size && build->d->indexer_top_k &&
           mt_llama_indexes(build->plan->in);
}

/* Sparse attention chooses tokens by keys of its own, always rotated. */
static void indexer_inputs(struct mt_build *build)
{
    struct mt_build_cache *cache = &build->indexer;
    uint64_t n = CACHE_STEP;
    while (build->d->indexer_head_size % (2 * n) == 0)
        n *= 2;
    const uint64_t mask[4] = {build->global.cells, build->tokens / build->streams, 1,
                              build->streams};
    cache->k_rows = vector_input(build, MT_TYPE_I64, build->tokens);
    cache->mask = mt_op_input(build->graph, MT_TYPE_F16, mask);
    cache->k_rotation = mt_op_input(build->graph, MT_TYPE_F32, (uint64_t[4]){n, n, 1, 1});
}

void mt_build_attention_inputs(struct mt_build *build)
{
    int windowed = 0;
    for (size_t i = 0; i < build->n_layers; i++) {
        windowed |= mt_build_is_windowed(build, i);
        make_cache(build, i);
    }
    cache_inputs(build, &build->global, 0);
    if (mt_build_is_sparse(build))
        indexer_inputs(build);
    if (windowed)
        cache_inputs(build, &build->windowed, 1);
}

struct mt_node *mt_build_norm_unpinned(struct mt_build *build, struct mt_node *x, size_t il,
                                       enum mt_slot slot)
{
    struct mt_node *weight = mt_build_weight(build, il, slot, x->ne[0], 1, 1);
    return mt_op_map(build->graph, mt_op_map(build->graph, x, NULL), weight);
}

/* The bias that belongs to a norm's weight. */
static enum mt_slot bias_of(enum mt_slot slot)
{
    switch (slot) {
    case MT_SLOT_ATTN_NORM:
        return MT_SLOT_ATTN_NORM_B;
    case MT_SLOT_FFN_NORM:
        return MT_SLOT_FFN_NORM_B;
    case MT_SLOT_OUTPUT_NORM:
        return MT_SLOT_OUTPUT_NORM_B;
    case MT_SLOT_ATTN_OUT_NORM:
        return MT_SLOT_ATTN_OUT_NORM_B;
    case MT_SLOT_LAYER_OUT_NORM:
        return MT_SLOT_LAYER_OUT_NORM_B;
    case MT_SLOT_INDEXER_K_NORM:
        return MT_SLOT_INDEXER_K_NORM_B;
    default:
        return MT_SLOT_COUNT;
    }
}

struct mt_node *mt_build_norm(struct mt_build *build, struct mt_node *x, size_t il,
                              enum mt_slot slot, unsigned traits)
{
    struct mt_graph *g = build->graph;
    x = traits & MT_BUILD_LAYER_NORM ? mt_op_like(g, x) : mt_op_map(g, x, NULL);
    if (build->pins_norms && il < build->n_layers)
        x->backend = (int8_t)mt_build_backend(build, il);
    x = mt_op_map(g, x, mt_build_weight(build, il, slot, x->ne[0], 1, 1));
    enum mt_slot bias = bias_of(slot);
    return bias == MT_SLOT_COUNT ? x : mt_build_biased(build, x, il, bias);
}

struct mt_node *mt_build_biased(struct mt_build *build, struct mt_node *x, size_t il,
                                enum mt_slot slot)
{
    struct mt_node *bias = mt_build_maybe(build, il, slot);
    return bias ? mt_op_map(build->graph, x, bias) : x;
}

struct mt_node *mt_build_project(struct mt_build *build, struct mt_node *x, size_t il,
                                 enum mt_slot slot, uint64_t out)
{
    return mt_op_mul_mat(build->graph, mt_build_weight(build, il, slot, x->ne[0], out, 1), x);
}

static struct mt_node *logits_of(struct mt_build *build, struct mt_node *x)
{
    size_t own = build->n_layers;
    if (mt_build_has(build, own, MT_SLOT_OUTPUT) || !build->d->tied_output)
        return mt_build_project(build, x, own, MT_SLOT_OUTPUT, build->d->vocabulary);
    /* The token embedding once more, where the output layer lies. */
    struct mt_build_weight *twin = &build->layers[own].weights[MT_SLOT_OUTPUT];
    *twin = build->layers[own].weights[MT_SLOT_TOKEN_EMBEDDING];
    twin->node = NULL;
    twin->place = (int8_t)build->plan->device_of[build->plan->n_layers];
    return mt_build_project(build, x, own, MT_SLOT_OUTPUT, build->d->vocabulary);
}

void mt_build_output(struct mt_build *build, struct mt_node *x, unsigned traits)
{
    struct mt_graph *g = build->graph;
    g->part = MT_PART_OUTPUT;
    enum mt_slot norm =
        traits & MT_BUILD_EMBEDDING_NORM ? MT_SLOT_TOKEN_EMBEDDING_NORM : MT_SLOT_OUTPUT_NORM;
    build->layers[build->n_layers].weights[norm].place =
        (int8_t)build->plan->device_of[build->plan->n_layers];
    if (traits & MT_BUILD_ROWS_LATE && !(traits & MT_BUILD_ROWS_AFTER_NORM)) {
        x->flags |= MT_NODE_OUTPUT;
        x = mt_op_get_rows(g, x, build->output_rows);
    }
    x = mt_build_norm(build, x, build->n_layers, norm, traits);
    if (traits & MT_BUILD_ROWS_AFTER_NORM) {
        x->flags |= MT_NODE_OUTPUT;
        x = mt_op_get_rows(g, x, build->output_rows);
    }
    x->flags |= MT_NODE_OUTPUT;
    x = mt_build_biased(build, logits_of(build, x), build->n_layers, MT_SLOT_OUTPUT_B);
    if (traits & MT_BUILD_SCALES_LOGITS)
        x = mt_op_map(g, x, NULL);
    for (int i = 0; traits & MT_BUILD_CAPS_LOGITS && i < 3; i++)
        x = mt_op_map(g, x, NULL);
    x->flags |= MT_NODE_OUTPUT;
    mt_graph_expand(g, x);
}
