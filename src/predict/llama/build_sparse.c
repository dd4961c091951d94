/* SPDX-License-Identifier: MIT */
/* The indexer of sparse attention (DeepSeek V3.2, GLM-5): it chooses the tokens that a layer reads,
 * by small keys of its own. A layer without one takes the choice of the layer before. */
#include "build.h"

static struct mt_node *indexer_keys(struct mt_net *net, struct mt_node *x, size_t il)
{
    struct mt_graph *g = net->graph;
    uint64_t size = net->d->indexer_head_size;
    struct mt_node *k = mt_net_project(net, x, il, MT_SLOT_INDEXER_K, size);
    k = mt_net_norm(net, k, il, MT_SLOT_INDEXER_K_NORM, MT_NET_LAYER_NORM);
    k = mt_op_reshape(g, k, size, 1, net->tokens, 1);
    k = mt_op_rope(g, k, net->positions, NULL);
    return mt_op_mul_mat(g, net->indexer.k_rotation, k);
}

static struct mt_node *indexer_queries(struct mt_net *net, struct mt_node *x, size_t il)
{
    struct mt_graph *g = net->graph;
    uint64_t size = net->d->indexer_head_size;
    uint64_t heads = net->d->indexer_heads;
    uint64_t n = net->tokens / net->streams;
    struct mt_node *q = mt_net_project(net, x, il, MT_SLOT_INDEXER_Q, heads * size);
    q = mt_op_rope(g, mt_op_reshape(g, q, size, heads, net->tokens, 1), net->positions, NULL);
    q = mt_op_mul_mat(g, net->indexer.k_rotation, q);
    return mt_op_view(g, q, (uint64_t[4]){size, heads, n, net->streams},
                      (uint64_t[4]){q->nb[0], q->nb[1], q->nb[2], q->nb[2] * n});
}

/* How much each cached token is worth, and the best of them. */
static struct mt_node *best_tokens(struct mt_net *net, struct mt_node *q, struct mt_node *weights,
                                   size_t il)
{
    struct mt_graph *g = net->graph;
    struct mt_node *cache = net->layers[il].indexer;
    uint64_t cells = cache->ne[1];
    uint64_t n = net->tokens / net->streams;
    uint64_t best = net->d->indexer_top_k < cells ? net->d->indexer_top_k : cells;
    struct mt_node *k =
        mt_op_view(g, cache, (uint64_t[4]){cache->ne[0], 1, cells, net->streams},
                   (uint64_t[4]){cache->nb[0], cache->nb[1], cache->nb[1], cache->nb[2]});
    weights = mt_op_view(
        g, weights, (uint64_t[4]){weights->ne[0], n, 1, net->streams},
        (uint64_t[4]){weights->nb[0], weights->nb[1], weights->nb[1] * n, weights->nb[1] * n});
    weights = mt_op_map(g, weights, NULL);
    const uint64_t ne[4] = {cells, n, 1, net->streams};
    struct mt_node *score = mt_op_make(g, ne, q, k, weights);
    score->sources[3] = net->indexer.mask;
    struct mt_node *ids = mt_op_make(g, (uint64_t[4]){best, n, 1, net->streams}, score, NULL, NULL);
    ids->type = MT_TYPE_I32;
    return mt_op_like(g, ids);
}

/* The mask with all tokens out but the best. */
static struct mt_node *mask_of_best(struct mt_net *net)
{
    struct mt_graph *g = net->graph;
    struct mt_node *mask = net->global.mask;
    struct mt_node *best = net->best;
    const uint64_t flat[4] = {1, mask->ne[0], mask->ne[1], mask->ne[3]};
    const uint64_t rows[4] = {1, best->ne[0], best->ne[1], best->ne[3]};
    struct mt_node *all = mt_op_map(g, mask, NULL);
    all =
        mt_op_view(g, all, flat, (uint64_t[4]){mask->nb[0], mask->nb[0], mask->nb[1], mask->nb[2]});
    struct mt_node *ids =
        mt_op_view(g, best, (uint64_t[4]){best->ne[0], best->ne[1], best->ne[3], 1},
                   (uint64_t[4]){best->nb[0], best->nb[1], best->nb[3], best->nb[3] * best->ne[3]});
    struct mt_node *zeros = mt_op_map(g, mt_node_new(g, MT_OP_NONE, MT_TYPE_F32, rows), NULL);
    struct mt_node *open = mt_op_set_rows(g, all, zeros, ids);
    open = mt_op_view(g, open, mask->ne, mask->nb);
    return mt_op_map(g, open, mask);
}

void mt_net_choose_tokens(struct mt_net *net, struct mt_node *x, struct mt_node *compressed,
                          size_t il)
{
    if (net->layers[il].indexer) {
        struct mt_node *q = indexer_queries(net, compressed, il);
        struct mt_node *k = indexer_keys(net, x, il);
        mt_net_store_rows(net, k, net->layers[il].indexer, net->indexer.k_rows);
        struct mt_node *weights =
            mt_net_project(net, x, il, MT_SLOT_INDEXER_PROJ, net->d->indexer_heads);
        net->best = best_tokens(net, q, weights, il);
    }
    net->mask_of_layer = net->best ? mask_of_best(net) : NULL;
}
