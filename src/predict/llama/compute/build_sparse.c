/* SPDX-License-Identifier: MIT */
/* The indexer of sparse attention (DeepSeek V3.2, GLM-5): it chooses the tokens that a layer reads,
 * by small keys of its own. A layer without one takes the choice of the layer before. */
#include "build.h"

static struct mt_node *indexer_keys(struct mt_build *build, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    uint64_t size = build->d->indexer_head_size;
    struct mt_node *k = mt_build_project(build, x, il, MT_SLOT_INDEXER_K, size);
    k = mt_build_norm(build, k, il, MT_SLOT_INDEXER_K_NORM, MT_BUILD_LAYER_NORM);
    k = mt_op_reshape(g, k, size, 1, build->tokens, 1);
    k = mt_op_rope(g, k, build->positions, NULL);
    return mt_op_mul_mat(g, build->indexer.k_rotation, k);
}

static struct mt_node *indexer_queries(struct mt_build *build, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    uint64_t size = build->d->indexer_head_size;
    uint64_t heads = build->d->indexer_heads;
    uint64_t n = build->tokens / build->streams;
    struct mt_node *q = mt_build_project(build, x, il, MT_SLOT_INDEXER_Q, heads * size);
    q = mt_op_rope(g, mt_op_reshape(g, q, size, heads, build->tokens, 1), build->positions, NULL);
    q = mt_op_mul_mat(g, build->indexer.k_rotation, q);
    return mt_op_view(g, q, (uint64_t[4]){size, heads, n, build->streams},
                      (uint64_t[4]){q->nb[0], q->nb[1], q->nb[2], q->nb[2] * n});
}

/* How much each cached token is worth, and the best of them. */
static struct mt_node *best_tokens(struct mt_build *build, struct mt_node *q,
                                   struct mt_node *weights, size_t il)
{
    struct mt_graph *g = build->graph;
    struct mt_node *cache = build->layers[il].indexer;
    uint64_t cells = cache->ne[1];
    uint64_t n = build->tokens / build->streams;
    uint64_t best = build->d->indexer_top_k < cells ? build->d->indexer_top_k : cells;
    struct mt_node *k =
        mt_op_view(g, cache, (uint64_t[4]){cache->ne[0], 1, cells, build->streams},
                   (uint64_t[4]){cache->nb[0], cache->nb[1], cache->nb[1], cache->nb[2]});
    weights = mt_op_view(
        g, weights, (uint64_t[4]){weights->ne[0], n, 1, build->streams},
        (uint64_t[4]){weights->nb[0], weights->nb[1], weights->nb[1] * n, weights->nb[1] * n});
    weights = mt_op_map(g, weights, NULL);
    const uint64_t ne[4] = {cells, n, 1, build->streams};
    struct mt_node *score = mt_op_make(g, ne, q, k, weights);
    score->sources[3] = build->indexer.mask;
    struct mt_node *ids =
        mt_op_make(g, (uint64_t[4]){best, n, 1, build->streams}, score, NULL, NULL);
    ids->type = MT_TYPE_I32;
    return mt_op_like(g, ids);
}

/* The mask with all tokens out but the best. */
static struct mt_node *mask_of_best(struct mt_build *build)
{
    struct mt_graph *g = build->graph;
    struct mt_node *mask = build->global.mask;
    struct mt_node *best = build->best;
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

void mt_build_choose_tokens(struct mt_build *build, struct mt_node *x, struct mt_node *compressed,
                            size_t il)
{
    if (build->layers[il].indexer) {
        struct mt_node *q = indexer_queries(build, compressed, il);
        struct mt_node *k = indexer_keys(build, x, il);
        mt_build_store_rows(build, k, build->layers[il].indexer, build->indexer.k_rows);
        struct mt_node *weights =
            mt_build_project(build, x, il, MT_SLOT_INDEXER_PROJ, build->d->indexer_heads);
        build->best = best_tokens(build, q, weights, il);
    }
    build->mask_of_layer = build->best ? mask_of_best(build) : NULL;
}
