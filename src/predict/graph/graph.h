/* SPDX-License-Identifier: MIT */
/* A graph of tensors as ggml builds one before it reserves memory: shapes, strides, who reads whom.
 *
 * Only what decides about memory is kept: whether an operation makes new bytes, looks at another
 * tensor's, or may take its parent's place. Knows nothing of models; nothing is computed. The
 * functions below stand for ggml's operations of the same name and never return NULL: where memory
 * is short the graph is marked as failed and a spare tensor is handed out. */
#ifndef MT_PREDICT_GRAPH_H
#define MT_PREDICT_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "engine/fused.h"

#define MT_GRAPH_SOURCES_MAX 8
#define MT_GRAPH_DEVICES_MAX 64

/* What an operation does to memory. */
enum mt_op {
    MT_OP_NONE,    /* a leaf: a weight, a cache, an input */
    MT_OP_VIEW,    /* looks at another tensor's bytes: view, reshape, permute, transpose */
    MT_OP_STORE,   /* writes into another tensor, whose bytes it is: copies into a cache */
    MT_OP_NEW,     /* new bytes */
    MT_OP_INPLACE, /* may take the place of a source of the same layout that nobody else reads */
    MT_OP_ROPE,    /* as INPLACE */
    MT_OP_GET_ROWS,
    MT_OP_MUL_MAT,
    MT_OP_MUL_MAT_ID,
    MT_OP_FLASH_ATTENTION
};

enum mt_graph_type {
    MT_TYPE_F32,
    MT_TYPE_F16,
    MT_TYPE_BF16,
    MT_TYPE_I32,
    MT_TYPE_I64,
    MT_TYPE_Q8_0,
    MT_TYPE_Q5_1,
    MT_TYPE_Q5_0,
    MT_TYPE_Q4_1,
    MT_TYPE_Q4_0,
    MT_TYPE_IQ4_NL,
    MT_TYPE_COUNT
};

/* Parts of a model, as tensors of its graph are marked. */
enum mt_graph_part { MT_PART_INPUT, MT_PART_ATTENTION, MT_PART_STATE, MT_PART_FFN, MT_PART_OUTPUT };

#define MT_NODE_INPUT    1u /* filled from outside before the graph runs */
#define MT_NODE_OUTPUT   2u /* read afterwards: its bytes are never used again */
#define MT_NODE_WEIGHT   4u /* in a buffer of weights */
#define MT_NODE_EXTERNAL 8u /* in some buffer already: weights and caches */

#define MT_UNPLACED (-1)

struct mt_node_list;

struct mt_node {
    uint8_t op;
    uint8_t type;
    uint8_t flags;
    uint8_t visited;
    int8_t backend; /* where it is computed or lies; MT_UNPLACED until that is decided */
    int8_t buffer;  /* that the allocator put it into */
    uint8_t owned;  /* has bytes of that buffer at the moment */
    uint8_t quantised;
    uint8_t part;    /* enum mt_graph_part */
    uint8_t kind;    /* enum mt_kind */
    int32_t uses;    /* as a source, in the graph as it was built */
    int32_t readers; /* left, while the allocator walks the graph */
    int32_t views;
    uint64_t ne[4];
    uint64_t nb[4]; /* strides in bytes */
    uint64_t bytes;
    uint64_t offset;         /* in its buffer */
    struct mt_node *view_of; /* NULL where it has bytes of its own */
    struct mt_node *sources[MT_GRAPH_SOURCES_MAX];
    const char *weight_type;   /* of the file, static; NULL where that is not known */
    struct mt_node_list *kept; /* until this node is computed; or NULL */
    struct mt_node **copies;   /* per backend, `n_copies` each; NULL until one is needed */
};

struct mt_node_list {
    struct mt_node **at;
    size_t n;
    size_t capacity;
};

struct mt_graph {
    struct mt_arena *arena;
    struct mt_node *slab; /* nodes not handed out yet */
    size_t slab_left;
    size_t n_made;
    struct mt_node_list nodes; /* in the order they are computed */
    struct mt_node_list leafs;
    int failed;
    uint8_t part; /* that new tensors belong to */
    struct mt_node spare;
};

void mt_graph_init(struct mt_graph *graph, struct mt_arena *arena);
int mt_node_list_add(struct mt_arena *arena, struct mt_node_list *list, struct mt_node *node);

/* The type called `name` ("f16", "q8_0"), or MT_TYPE_F32. */
enum mt_graph_type mt_graph_type_of(const char *name);
uint64_t mt_graph_row_bytes(enum mt_graph_type type, uint64_t n);

struct mt_node *mt_node_new(struct mt_graph *graph, enum mt_op op, enum mt_graph_type type,
                            const uint64_t ne[4]);
/* Says what kind a node is, where the function that made it stands for several. */
struct mt_node *mt_node_of_kind(struct mt_node *node, enum mt_kind kind);
/* A fresh tensor of the shape, type and strides of another, to copy it into. */
struct mt_node *mt_node_twin(struct mt_graph *graph, const struct mt_node *node);

/* Leaves. An input; a tensor of `bytes` that lies in a buffer of `backend` already. */
struct mt_node *mt_op_input(struct mt_graph *graph, enum mt_graph_type type, const uint64_t ne[4]);
struct mt_node *mt_op_external(struct mt_graph *graph, enum mt_graph_type type,
                               const uint64_t ne[4], int backend);

/* Views. */
struct mt_node *mt_op_view(struct mt_graph *graph, struct mt_node *a, const uint64_t ne[4],
                           const uint64_t nb[4]);
struct mt_node *mt_op_reshape(struct mt_graph *graph, struct mt_node *a, uint64_t ne0, uint64_t ne1,
                              uint64_t ne2, uint64_t ne3);
struct mt_node *mt_op_permute(struct mt_graph *graph, struct mt_node *a, int to0, int to1, int to2,
                              int to3);
struct mt_node *mt_op_transpose(struct mt_graph *graph, struct mt_node *a);
/* Columns `ne0` wide of a contiguous a, kept apart by a's own strides. */
struct mt_node *mt_op_columns(struct mt_graph *graph, struct mt_node *a, uint64_t ne0);
/* A part of `ne1` rows by `ne2` of rows of a's own strides, each `ne0` wide. */
struct mt_node *mt_op_heads(struct mt_graph *graph, struct mt_node *a, uint64_t ne0, uint64_t ne1,
                            uint64_t nb1);

/* Computing. */
struct mt_node *mt_op_mul_mat(struct mt_graph *graph, struct mt_node *a, struct mt_node *b);
struct mt_node *mt_op_mul_mat_id(struct mt_graph *graph, struct mt_node *experts, struct mt_node *b,
                                 struct mt_node *ids);
struct mt_node *mt_op_get_rows(struct mt_graph *graph, struct mt_node *a, struct mt_node *rows);
struct mt_node *mt_op_rope(struct mt_graph *graph, struct mt_node *a, struct mt_node *positions,
                           struct mt_node *factors);
/* Element by element: scale, silu, rms_norm with b NULL; add, mul, div with b. */
struct mt_node *mt_op_map(struct mt_graph *graph, struct mt_node *a, struct mt_node *b);
struct mt_node *mt_op_add_id(struct mt_graph *graph, struct mt_node *a, struct mt_node *b,
                             struct mt_node *ids);
struct mt_node *mt_op_soft_max(struct mt_graph *graph, struct mt_node *a, struct mt_node *mask,
                               struct mt_node *sinks);
/* A gated unit: of two tensors, or of the halves of one where b is NULL. */
struct mt_node *mt_op_glu(struct mt_graph *graph, struct mt_node *a, struct mt_node *b);
struct mt_node *mt_op_concat(struct mt_graph *graph, struct mt_node *a, struct mt_node *b,
                             int dimension);
/* New bytes of the given shape, read from up to three sources. */
struct mt_node *mt_op_make(struct mt_graph *graph, const uint64_t ne[4], struct mt_node *a,
                           struct mt_node *b, struct mt_node *c);
/* New bytes of a's shape: cont, dup, norm, tri. */
struct mt_node *mt_op_like(struct mt_graph *graph, struct mt_node *a);
struct mt_node *mt_op_cont(struct mt_graph *graph, struct mt_node *a, uint64_t ne0, uint64_t ne1,
                           uint64_t ne2);
struct mt_node *mt_op_repeat(struct mt_graph *graph, struct mt_node *a, uint64_t ne0, uint64_t ne1,
                             uint64_t ne2, uint64_t ne3);
struct mt_node *mt_op_sum_rows(struct mt_graph *graph, struct mt_node *a);
struct mt_node *mt_op_top_k(struct mt_graph *graph, struct mt_node *a, uint64_t k);
struct mt_node *mt_op_flash_attention(struct mt_graph *graph, struct mt_node *q, struct mt_node *k,
                                      struct mt_node *v, struct mt_node *mask,
                                      struct mt_node *sinks);

/* Writing into another tensor. */
struct mt_node *mt_op_copy(struct mt_graph *graph, struct mt_node *from, struct mt_node *to);
struct mt_node *mt_op_set_rows(struct mt_graph *graph, struct mt_node *to, struct mt_node *from,
                               struct mt_node *rows);
struct mt_node *mt_op_store(struct mt_graph *graph, struct mt_node *to, struct mt_node *from);

/* Adds a tensor and all that it reads to the graph, sources first. */
void mt_graph_expand(struct mt_graph *graph, struct mt_node *node);

/* Sets `bytes` from shape and strides: what a copy of the tensor, or of the view, spans. */
void mt_node_measure(struct mt_node *node);
uint64_t mt_node_elements(const struct mt_node *node);
int mt_node_is_contiguous(const struct mt_node *node);

/* Where a graph runs: devices 0 .. n_devices-1, then the host as number n_devices. */
struct mt_graph_machine {
    int n_devices;
    unsigned n_copies;        /* of inputs: with pipeline parallelism 4, else 1 */
    int copies_inputs_unused; /* also of inputs that no operation reads */
    uint64_t device_alignment;
    uint64_t host_alignment;
    uint64_t quantised_row_padding; /* elements that rows of quantised tensors are padded to */
    int attention_scratch;          /* flash attention wants a cache of another type as f16 */
    int has_any_pair; /* attention of types that no kernel was compiled for is taken */
    uint64_t build;   /* of the engine, by which devices choose kernels */
    uint32_t capability[MT_GRAPH_DEVICES_MAX]; /* as ggml counts; 0: not known, scratch for all */
    unsigned keeps;                            /* MT_KEEP_… of the devices */
    uint64_t offload_batch; /* rows from which work on host weights moves to a device */
};

/* The buffer of a backend: bytes = inputs + working + holes at the moment that decides. */
struct mt_graph_buffer {
    uint64_t bytes;
    uint64_t inputs;  /* with their copies */
    uint64_t working; /* other tensors alive */
    uint8_t part;     /* of the tensor that reached highest */
};

/* What each backend's buffer has to hold for the graph; buffers[n_devices] is the host's. Returns
 * 0, MT_ELIMIT or MT_ENOMEM. */
int mt_graph_reserve(struct mt_graph *graph, const struct mt_graph_machine *machine,
                     struct mt_graph_buffer *buffers);

/* The halves of that: where each operation runs and what is copied for it; what is allocated. */
struct mt_schedule {
    struct mt_node_list nodes; /* with copies put in where they are made */
    struct mt_node_list leafs;
    int8_t *node_backends;
    int8_t *leaf_backends;
};
int mt_graph_schedule(struct mt_graph *graph, const struct mt_graph_machine *machine,
                      struct mt_schedule *schedule);
int mt_graph_allocate(struct mt_graph *graph, const struct mt_graph_machine *machine,
                      const struct mt_schedule *schedule, struct mt_graph_buffer *buffers);

/* Every operation and leaf has a place; no buffer is smaller than what was alive in it. */
int mt_schedule_is_valid(const struct mt_schedule *schedule,
                         const struct mt_graph_machine *machine);
int mt_graph_buffers_are_valid(const struct mt_graph_buffer *buffers, size_t n);

#endif
