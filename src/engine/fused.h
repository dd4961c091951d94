/* SPDX-License-Identifier: MIT */
/* What ggml's CUDA devices keep allocated for the operations that they fuse in layers of experts,
 * before the scheduler lays a split out (ggml-cuda.cu: ggml_backend_cuda_graph_optimize).
 *
 * A fused kernel reads its inputs while it writes its output, so they must not share memory. The
 * allocator then cannot give their memory to what lies between, and a plan grows. These are the
 * patterns that ggml looks for whatever the size of the batch. Rules and rehearsals share them,
 * each with its own graph behind the functions below. Knows no model and no tensor. */
#ifndef MT_ENGINE_FUSED_H
#define MT_ENGINE_FUSED_H

#include <stddef.h>
#include <stdint.h>

/* Operations by name, as far as devices look for them to fuse. */
enum mt_kind {
    MT_KIND_OTHER,
    MT_KIND_SOFT_MAX, /* without scale and bias */
    MT_KIND_SIGMOID,
    MT_KIND_SOFTPLUS,
    MT_KIND_SQRT,
    MT_KIND_RESHAPE,
    MT_KIND_VIEW,
    MT_KIND_ADD,
    MT_KIND_MUL,
    MT_KIND_DIV,
    MT_KIND_CLAMP,
    MT_KIND_SCALE,
    MT_KIND_ARGSORT,
    MT_KIND_SUM_ROWS,
    MT_KIND_GET_ROWS,
    MT_KIND_MUL_MAT,
    MT_KIND_EXPERTS, /* mul_mat_id */
    MT_KIND_GLU      /* such that are fused: swiglu, geglu */
};

/* What devices keep until the last of the operations that they fuse. */
#define MT_KEEP_TOPK      1u /* for choosing experts */
#define MT_KEEP_REDUCTION 2u /* for weighing and adding what they made */
#define MT_KEEP_SHARED    4u /* for the shared expert beside the chosen ones */

#define MT_FUSED_SOURCES_MAX 10
#define MT_FUSED_NODES_MAX   31 /* that become one */
#define MT_FUSED_ANYWHERE    UINT64_MAX

/* A node as the patterns see it. */
struct mt_fused_node {
    void *sources[MT_FUSED_SOURCES_MAX];
    void *view_of;
    uint64_t view_offset; /* in bytes, MT_FUSED_ANYWHERE where the graph does not know it */
    uint64_t ne[4];
    uint64_t nb[4];
    const char *type; /* by name; NULL where it is not known: then it is like no other */
    uint64_t variant; /* of a gated unit: its function and limit */
    int is_f32;
    int is_contiguous;
    int is_leaf;             /* no operation makes it */
    int is_quantised_weight; /* lies in a buffer already, in blocks */
};

/* The nodes of a split. */
struct mt_fused_graph {
    void *context;
    size_t n;
    size_t n_to_end; /* with those behind the split that may be looked at */
    void *(*at)(const struct mt_fused_graph *graph, size_t i);
    enum mt_kind (*kind)(const struct mt_fused_graph *graph, const void *node);
    void (*read)(const struct mt_fused_graph *graph, const void *node, struct mt_fused_node *read);
    /* Whether nobody else needs what the nodes make, but for the outputs. */
    int (*can_fuse)(const struct mt_fused_graph *graph, const size_t *at, size_t n,
                    const size_t *outputs, size_t n_outputs);
    /* Keeps a node until another one was computed. NULL: nothing is kept nor moved. */
    void (*keep)(const struct mt_fused_graph *graph, void *node, void *until);
    /* Moves the three nodes at `from` to `to`, before those that lie between. */
    void (*move_three)(const struct mt_fused_graph *graph, size_t to, size_t from);
};

/* Does what devices do that keep `kept` (MT_KEEP_…); returns for which of them there was something.
 */
unsigned mt_fused_keep(const struct mt_fused_graph *graph, unsigned kept);

#endif
