/* SPDX-License-Identifier: MIT */
/* Weights and inputs of llama.cpp's graphs, and the small steps that all families share. */
#include "predict/llama_net.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "predict/llama_parts.h"

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

static void take_tensor(struct mt_net *net, const struct mt_llama_placement *placement,
                        const struct mt_model_tensor *tensor)
{
    int own;
    int slot = slot_of(tensor, &own);
    if (slot < 0 || (!own && tensor->layer >= net->n_layers))
        return;
    size_t il = own ? net->n_layers : tensor->layer;
    struct mt_net_weight *weight = &net->layers[il].weights[slot];
    for (uint32_t i = 0; i < 4; i++)
        weight->ne[i] = i < tensor->n_dims ? tensor->dims[i] : 1;
    weight->bytes = tensor->bytes;
    weight->type = tensor->type;
    weight->quantised = !is_whole_type(tensor->type);
    weight->place = (int8_t)mt_llama_place_of(placement, tensor);
    weight->present = 1;
}

static int take_weights(struct mt_net *net, struct mt_error *error)
{
    const struct mt_predict_input *in = net->plan->in;
    struct mt_llama_placement placement;
    struct mt_model_tensor tensor;
    if (net->d->format != MT_MODEL_GGUF)
        return 0;
    int result = mt_llama_placement_init(&placement, net->plan, error);
    if (result < 0)
        return result;
    for (uint64_t i = 0; i < net->d->n_tensors; i++)
        if (mt_model_tensor_at(in->model, i, &tensor) == 0)
            take_tensor(net, &placement, &tensor);
    mt_llama_placement_finish(&placement);
    return 0;
}

int mt_net_init(struct mt_net *net, struct mt_graph *graph, const struct mt_llama_plan *plan,
                struct mt_error *error)
{
    *net = (struct mt_net){.graph = graph, .plan = plan, .d = plan->in->d};
    net->n_layers = (size_t)(net->d->n_layers - net->d->n_draft_layers);
    net->host = (int)plan->n_devices;
    net->sequences = plan->sequences;
    net->streams = plan->streams;
    net->tokens = mt_llama_add(plan->ubatch, plan->sequences - 1) / plan->sequences;
    net->tokens *= plan->sequences;
    net->outputs = plan->output_rows;
    net->global.cells = plan->cells;
    net->windowed.cells = plan->swa_cells;
    net->layers = mt_arena_array(graph->arena, net->n_layers + 1, sizeof *net->layers);
    if (!net->layers)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    return take_weights(net, error);
}

int mt_net_backend(const struct mt_net *net, size_t il)
{
    int device = net->plan->device_of[il < net->n_layers ? il : net->plan->n_layers];
    return device == MT_HOST_PLACE ? net->host : device;
}

int mt_net_is_windowed(const struct mt_net *net, size_t il)
{
    enum mt_attention attention = net->d->layers[il].attention;
    return !net->plan->ignores_windows &&
           (attention == MT_ATTENTION_SLIDING || attention == MT_ATTENTION_CHUNKED);
}

int mt_net_has(const struct mt_net *net, size_t il, enum mt_slot slot)
{
    return net->layers[il].weights[slot].present;
}

int mt_net_expects(const struct mt_net *net, size_t il, enum mt_slot slot)
{
    if (net->d->format == MT_MODEL_GGUF)
        return mt_net_has(net, il, slot);
    switch (slot) {
    case MT_SLOT_ATTN_Q_NORM:
    case MT_SLOT_ATTN_K_NORM:
        return !!(net->traits & MT_NET_NORMS_QK);
    case MT_SLOT_SSM_BETA_ALPHA:
    case MT_SLOT_SHARED_ROUTER:
        return strcmp(net->d->architecture ? net->d->architecture : "", "qwen3next") == 0;
    case MT_SLOT_SSM_NORM:
    case MT_SLOT_FFN_GATE:
    case MT_SLOT_EXPERTS_GATE:
        return 1;
    default:
        return 0;
    }
}

static struct mt_node *leaf_of(struct mt_net *net, size_t il, struct mt_net_weight *weight)
{
    if (weight->node)
        return weight->node;
    int backend = weight->place == MT_HOST_PLACE ? net->host : weight->place;
    weight->node = mt_op_external(net->graph, MT_TYPE_F32, weight->ne, backend);
    weight->node->flags |= MT_NODE_WEIGHT;
    weight->node->bytes = weight->bytes;
    weight->node->weight_type = weight->type;
    weight->node->quantised = weight->quantised;
    uint64_t rows = mt_node_elements(weight->node) / (weight->ne[0] ? weight->ne[0] : 1);
    weight->node->nb[1] = rows ? weight->bytes / rows : 0;
    (void)il;
    return weight->node;
}

struct mt_node *mt_net_maybe(struct mt_net *net, size_t il, enum mt_slot slot)
{
    struct mt_net_weight *weight = &net->layers[il].weights[slot];
    return weight->present ? leaf_of(net, il, weight) : NULL;
}

struct mt_node *mt_net_weight(struct mt_net *net, size_t il, enum mt_slot slot, uint64_t ne0,
                              uint64_t ne1, uint64_t ne2)
{
    struct mt_net_weight *weight = &net->layers[il].weights[slot];
    if (!weight->present) {
        const struct mt_model_description *d = net->d;
        double bytes = d->parameters ? (double)d->weight_bytes / (double)d->parameters : 2;
        int backend = mt_net_backend(net, il);
        *weight = (struct mt_net_weight){.ne = {ne0, ne1, ne2, 1}, .present = 1};
        weight->bytes = (uint64_t)(bytes * (double)ne0 * (double)ne1 * (double)ne2);
        weight->place = (int8_t)(backend == net->host ? MT_HOST_PLACE : backend);
    }
    return leaf_of(net, il, weight);
}

static struct mt_node *vector_input(struct mt_net *net, enum mt_graph_type type, uint64_t n)
{
    return mt_op_input(net->graph, type, (uint64_t[4]){n, 1, 1, 1});
}

/* Image features for the first layers lie beside the embeddings. */
static uint64_t input_width(const struct mt_net *net)
{
    return net->d->embedding_length * (1 + net->d->deepstack_layers);
}

/* With room for image features beside the rows. */
static struct mt_node *widened(struct mt_net *net, struct mt_node *x)
{
    const uint64_t ne[4] = {input_width(net), net->tokens, 1, 1};
    return net->d->deepstack_layers ? mt_op_make(net->graph, ne, x, NULL, NULL) : x;
}

/* The rows of the tokens; newer builds widen them once all rows are looked up. */
static struct mt_node *embed(struct mt_net *net, struct mt_node *tokens)
{
    struct mt_node *table = mt_net_weight(net, net->n_layers, MT_SLOT_TOKEN_EMBEDDING,
                                          net->d->embedding_length, net->d->vocabulary, 1);
    table->backend = (int8_t)net->host;
    struct mt_node *x = mt_op_get_rows(net->graph, table, tokens);
    return net->newer & MT_NEWER_EMBEDDINGS ? x : widened(net, x);
}

/* The rows of tokens in a batch of embeddings: built into the graph although the batch that memory
 * is reserved with has tokens only. */
static struct mt_node *mix_embeddings(struct mt_net *net, struct mt_node *x)
{
    struct mt_graph *g = net->graph;
    const uint64_t ne[4] = {input_width(net), net->tokens, 1, 1};
    struct mt_node *tokens = vector_input(net, MT_TYPE_I32, net->tokens);
    struct mt_node *rows = vector_input(net, MT_TYPE_I64, net->tokens);
    struct mt_node *embeddings = mt_op_input(g, MT_TYPE_F32, ne);
    struct mt_node *own = embed(net, tokens);
    if (net->newer & MT_NEWER_EMBEDDINGS) {
        mt_graph_expand(g, own);
        x = widened(net, x);
        mt_graph_expand(g, x);
        own = widened(net, own);
    }
    struct mt_node *copy = mt_op_like(g, embeddings);
    mt_graph_expand(g, mt_op_set_rows(g, copy, own, rows));
    return x;
}

struct mt_node *mt_net_embedding(struct mt_net *net, unsigned traits)
{
    struct mt_graph *g = net->graph;
    const uint64_t ne[4] = {input_width(net), net->tokens, 1, 1};
    struct mt_node *tokens = vector_input(net, MT_TYPE_I32, net->tokens);
    struct mt_node *embeddings = mt_op_input(g, MT_TYPE_F32, ne);
    struct mt_node *x = embed(net, tokens);
    mt_graph_expand(g, x);
    mt_graph_expand(g, embeddings);
    if (net->mixed_embeddings)
        x = mix_embeddings(net, x);
    if (net->d->deepstack_layers)
        x = mt_op_columns(g, x, net->d->embedding_length);
    net->embedded = x;
    if (traits & MT_NET_SCALES_EMBEDDING)
        x = mt_op_map(g, x, NULL);
    if (net->mixed_embeddings && traits & MT_NET_SCALES_TOKENS)
        x = mt_op_map(g, x, mt_op_input(g, MT_TYPE_F32, (uint64_t[4]){1, net->tokens, 1, 1}));
    mt_graph_expand(g, x);
    if (!net->mixed_embeddings && traits & MT_NET_SCALES_TOKENS)
        x = mt_op_map(g, x, NULL);
    return x;
}

void mt_net_positions(struct mt_net *net)
{
    net->positions = vector_input(net, MT_TYPE_I32, net->tokens * net->d->position_streams);
}

void mt_net_output_rows(struct mt_net *net)
{
    net->output_rows = vector_input(net, MT_TYPE_I32, net->outputs);
}

/* The largest row of values that any layer's cache has. */
static uint64_t widest_values(const struct mt_net *net)
{
    uint64_t widest = 0;
    for (size_t i = 0; i < net->n_layers; i++) {
        const struct mt_model_layer *layer = &net->d->layers[i];
        uint64_t width =
            layer->attention == MT_ATTENTION_NONE ? 0 : layer->kv_heads * layer->value_size;
        if (width > widest)
            widest = width;
    }
    return widest;
}

/* The head size that all layers of a cache share, or 0. */
static uint64_t common_head_size(const struct mt_net *net, int windowed, int of_values)
{
    uint64_t common = 0;
    for (size_t i = 0; i < net->n_layers; i++) {
        const struct mt_model_layer *layer = &net->d->layers[i];
        uint64_t size = of_values ? layer->value_size : layer->key_size;
        if (layer->attention == MT_ATTENTION_NONE || mt_net_is_windowed(net, i) != windowed)
            continue;
        if (common && common != size)
            return 0;
        common = size;
    }
    return common;
}

/* A quantised cache is rotated by a Hadamard matrix, where heads are whole steps wide. */
static struct mt_node *rotation(struct mt_net *net, const char *type, uint64_t head_size, int grows)
{
    if (!mt_llama_is_quantised(type) || !head_size || head_size % CACHE_STEP)
        return NULL;
    uint64_t n = CACHE_STEP;
    while (grows && head_size % (2 * n) == 0)
        n *= 2;
    return mt_op_input(net->graph, MT_TYPE_F32, (uint64_t[4]){n, n, 1, 1});
}

struct mt_node *mt_net_mask(struct mt_net *net, const uint64_t ne[4])
{
    if (!net->plan->flash_attention)
        return mt_op_input(net->graph, MT_TYPE_F32, ne);
    if (net->newer & MT_NEWER_MASK)
        return mt_op_input(net->graph, MT_TYPE_F16, ne);
    return mt_net_as_halves(net, mt_op_input(net->graph, MT_TYPE_F32, ne));
}

static void cache_inputs(struct mt_net *net, struct mt_net_cache *cache, int windowed)
{
    const struct mt_llama_plan *plan = net->plan;
    int latent = net->d->kv_lora_rank && !windowed && common_head_size(net, 0, 1) == 0;
    uint64_t values = plan->flash_attention ? 1 : widest_values(net);
    const uint64_t mask[4] = {cache->cells, net->tokens / net->streams, 1, net->streams};
    cache->k_rows = vector_input(net, MT_TYPE_I64, net->tokens);
    if (!latent)
        cache->v_rows = vector_input(net, MT_TYPE_I64, net->tokens * values);
    cache->mask = mt_net_mask(net, mask);
    if (latent)
        return;
    cache->k_rotation = rotation(net, plan->type_k, common_head_size(net, windowed, 0), 1);
    cache->v_rotation = rotation(net, plan->type_v, common_head_size(net, windowed, 1), 0);
}

static void make_cache(struct mt_net *net, size_t il)
{
    const struct mt_llama_plan *plan = net->plan;
    const struct mt_model_layer *layer = &net->d->layers[il];
    struct mt_net_layer *out = &net->layers[il];
    if (layer->attention == MT_ATTENTION_NONE || layer->cache_layer != il)
        return;
    uint64_t cells = mt_net_is_windowed(net, il) ? plan->swa_cells : plan->cells;
    int backend = plan->in->settings->kv_on_host ? net->host : mt_net_backend(net, il);
    uint64_t width = layer->kv_heads * layer->value_size;
    if (!plan->flash_attention && width)
        width = widest_values(net);
    const uint64_t k[4] = {layer->kv_heads * layer->key_size, cells, net->streams, 1};
    const uint64_t v[4] = {width, cells, net->streams, 1};
    out->k = mt_op_external(net->graph, mt_graph_type_of(plan->type_k), k, backend);
    if (width)
        out->v = mt_op_external(net->graph, mt_graph_type_of(plan->type_v), v, backend);
    if (!mt_net_is_sparse(net) || !mt_net_has(net, il, MT_SLOT_INDEXER_K))
        return;
    const uint64_t indexer[4] = {net->d->indexer_head_size, cells, net->streams, 1};
    out->indexer = mt_op_external(net->graph, mt_graph_type_of(plan->type_k), indexer, backend);
}

int mt_net_is_sparse(const struct mt_net *net)
{
    return net->d->indexer_heads && net->d->indexer_head_size && net->d->indexer_top_k &&
           mt_llama_indexes(net->plan->in);
}

/* Sparse attention chooses tokens by keys of its own, always rotated. */
static void indexer_inputs(struct mt_net *net)
{
    struct mt_net_cache *cache = &net->indexer;
    uint64_t n = CACHE_STEP;
    while (net->d->indexer_head_size % (2 * n) == 0)
        n *= 2;
    const uint64_t mask[4] = {net->global.cells, net->tokens / net->streams, 1, net->streams};
    cache->k_rows = vector_input(net, MT_TYPE_I64, net->tokens);
    cache->mask = mt_op_input(net->graph, MT_TYPE_F16, mask);
    cache->k_rotation = mt_op_input(net->graph, MT_TYPE_F32, (uint64_t[4]){n, n, 1, 1});
}

void mt_net_attention_inputs(struct mt_net *net)
{
    int windowed = 0;
    for (size_t i = 0; i < net->n_layers; i++) {
        windowed |= mt_net_is_windowed(net, i);
        make_cache(net, i);
    }
    cache_inputs(net, &net->global, 0);
    if (mt_net_is_sparse(net))
        indexer_inputs(net);
    if (windowed)
        cache_inputs(net, &net->windowed, 1);
}

struct mt_node *mt_net_norm_unpinned(struct mt_net *net, struct mt_node *x, size_t il,
                                     enum mt_slot slot)
{
    struct mt_node *weight = mt_net_weight(net, il, slot, x->ne[0], 1, 1);
    return mt_op_map(net->graph, mt_op_map(net->graph, x, NULL), weight);
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

struct mt_node *mt_net_norm(struct mt_net *net, struct mt_node *x, size_t il, enum mt_slot slot,
                            unsigned traits)
{
    struct mt_graph *g = net->graph;
    x = traits & MT_NET_LAYER_NORM ? mt_op_like(g, x) : mt_op_map(g, x, NULL);
    if (net->pins_norms && il < net->n_layers)
        x->backend = (int8_t)mt_net_backend(net, il);
    x = mt_op_map(g, x, mt_net_weight(net, il, slot, x->ne[0], 1, 1));
    enum mt_slot bias = bias_of(slot);
    return bias == MT_SLOT_COUNT ? x : mt_net_biased(net, x, il, bias);
}

struct mt_node *mt_net_biased(struct mt_net *net, struct mt_node *x, size_t il, enum mt_slot slot)
{
    struct mt_node *bias = mt_net_maybe(net, il, slot);
    return bias ? mt_op_map(net->graph, x, bias) : x;
}

struct mt_node *mt_net_project(struct mt_net *net, struct mt_node *x, size_t il, enum mt_slot slot,
                               uint64_t out)
{
    return mt_op_mul_mat(net->graph, mt_net_weight(net, il, slot, x->ne[0], out, 1), x);
}

static struct mt_node *logits_of(struct mt_net *net, struct mt_node *x)
{
    size_t own = net->n_layers;
    if (mt_net_has(net, own, MT_SLOT_OUTPUT) || !net->d->tied_output)
        return mt_net_project(net, x, own, MT_SLOT_OUTPUT, net->d->vocabulary);
    /* The token embedding once more, where the output layer lies. */
    struct mt_net_weight *twin = &net->layers[own].weights[MT_SLOT_OUTPUT];
    *twin = net->layers[own].weights[MT_SLOT_TOKEN_EMBEDDING];
    twin->node = NULL;
    twin->place = (int8_t)net->plan->device_of[net->plan->n_layers];
    return mt_net_project(net, x, own, MT_SLOT_OUTPUT, net->d->vocabulary);
}

void mt_net_output(struct mt_net *net, struct mt_node *x, unsigned traits)
{
    struct mt_graph *g = net->graph;
    g->part = MT_PART_OUTPUT;
    enum mt_slot norm =
        traits & MT_NET_EMBEDDING_NORM ? MT_SLOT_TOKEN_EMBEDDING_NORM : MT_SLOT_OUTPUT_NORM;
    net->layers[net->n_layers].weights[norm].place =
        (int8_t)net->plan->device_of[net->plan->n_layers];
    if (traits & MT_NET_ROWS_LATE && !(traits & MT_NET_ROWS_AFTER_NORM)) {
        x->flags |= MT_NODE_OUTPUT;
        x = mt_op_get_rows(g, x, net->output_rows);
    }
    x = mt_net_norm(net, x, net->n_layers, norm, traits);
    if (traits & MT_NET_ROWS_AFTER_NORM) {
        x->flags |= MT_NODE_OUTPUT;
        x = mt_op_get_rows(g, x, net->output_rows);
    }
    x->flags |= MT_NODE_OUTPUT;
    x = mt_net_biased(net, logits_of(net, x), net->n_layers, MT_SLOT_OUTPUT_B);
    if (traits & MT_NET_SCALES_LOGITS)
        x = mt_op_map(g, x, NULL);
    for (int i = 0; traits & MT_NET_CAPS_LOGITS && i < 3; i++)
        x = mt_op_map(g, x, NULL);
    x->flags |= MT_NODE_OUTPUT;
    mt_graph_expand(g, x);
}
