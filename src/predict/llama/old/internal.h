/* SPDX-License-Identifier: MIT */
/* The graph of ik_llama.cpp and of llama.cpp before 2026, as far as its memory goes: what the parts
 * of its builder hand each other. */
#ifndef MT_PREDICT_LLAMA_OLD_PARTS_H
#define MT_PREDICT_LLAMA_OLD_PARTS_H

#include "predict/graph/graph.h"
#include "predict/llama/llama.h"

/* What distinguishes a family's layers. */
enum {
    MT_OLD_QK_NORM = 1 << 0, /* of each head's keys and queries */
    MT_OLD_QKV_BIAS = 1 << 1,
    MT_OLD_POST_NORM = 1 << 2,  /* after attention and feed-forward, before they are added */
    MT_OLD_PARALLEL = 1 << 3,   /* feed-forward beside attention */
    MT_OLD_PLAIN_NORM = 1 << 4, /* a mean is subtracted: never fused */
    MT_OLD_FUSED_GATE = 1 << 5, /* gate and up in one matrix */
    MT_OLD_TWO_MASKS = 1 << 6,  /* of windowed layers and of the others */
    MT_OLD_FUSED_QKV = 1 << 7,
    MT_OLD_SUB_NORM = 1 << 8, /* before the last matrix of attention and feed-forward (BitNet) */
    MT_OLD_SCALED_INPUT = 1 << 9,
    MT_OLD_EXPERT_BIAS = 1 << 10, /* added to what each expert gives (gpt-oss) */
    MT_OLD_SCORE_BIAS = 1 << 11   /* added to the experts' scores (DeepSeek V3) */
};

/* What a tensor belongs to. */
enum mt_old_part { MT_OLD_INPUTS, MT_OLD_ATTENTION, MT_OLD_FFN, MT_OLD_EXPERTS, MT_OLD_LOGITS };

/* The weights of a layer by their size in bytes; 0 where there is none of the name. X(NAME, name)
 */
#define MT_OLD_WEIGHTS(X)                                                                          \
    X(ATTN_Q, "attn_q")                                                                            \
    X(ATTN_K, "attn_k")                                                                            \
    X(ATTN_V, "attn_v")                                                                            \
    X(ATTN_QKV, "attn_qkv")                                                                        \
    X(ATTN_OUTPUT, "attn_output")                                                                  \
    X(ATTN_Q_A, "attn_q_a")                                                                        \
    X(ATTN_Q_B, "attn_q_b")                                                                        \
    X(ATTN_KV_A, "attn_kv_a_mqa")                                                                  \
    X(ATTN_KV_B, "attn_kv_b")                                                                      \
    X(FFN_UP, "ffn_up")                                                                            \
    X(FFN_GATE, "ffn_gate")                                                                        \
    X(FFN_DOWN, "ffn_down")                                                                        \
    X(FFN_UP_SHEXP, "ffn_up_shexp")                                                                \
    X(FFN_GATE_SHEXP, "ffn_gate_shexp")                                                            \
    X(FFN_DOWN_SHEXP, "ffn_down_shexp")                                                            \
    X(FFN_UP_EXPS, "ffn_up_exps")                                                                  \
    X(FFN_GATE_EXPS, "ffn_gate_exps")                                                              \
    X(FFN_DOWN_EXPS, "ffn_down_exps")

enum mt_old_weight {
#define MT_OLD_WEIGHT_ENUM(NAME, name) MT_OLD_##NAME,
    MT_OLD_WEIGHTS(MT_OLD_WEIGHT_ENUM)
#undef MT_OLD_WEIGHT_ENUM
        MT_OLD_N_WEIGHTS
};

/* What a version of the engine does, from its table. */
struct mt_old_rules {
    int ik;                /* ik_llama.cpp's graph: fused norms and gates */
    uint64_t copies;       /* of each graph input */
    int fused_experts;     /* up and gate of the experts in one operation */
    int half_mask;         /* the mask comes as f16 with flash attention */
    uint64_t stream_batch; /* rows from which weights on the host are used on a device; 0: never */
    int stream_experts;    /* whether that holds for experts */
    int stream_experts_share; /* with the batch divided by the share of experts used */
    int early_latent;         /* -mla 2 as it was before it went in steps */
    int half_latent;          /* keys and values are decompressed to f16 on the CPU too */
    uint64_t mla_mode;
    uint64_t attn_max_batch_mib; /* 0: no limit */
};

/* The builder. `tokens` are the rows of a batch, `backend` the one of the layer at hand. */
struct mt_old {
    struct mt_graph *graph;
    const struct mt_llama_plan *plan;
    const struct mt_model_description *d;
    const struct mt_model_layer *layer;
    struct mt_old_rules rules;
    unsigned traits;
    uint64_t tokens;
    int host;
    int backend;
    int expert_backend;
    int cache_backend;
    const uint64_t *weights; /* of the layer at hand, MT_OLD_N_WEIGHTS */
    struct mt_node *positions;
    struct mt_node *masks[2]; /* of global layers, of windowed ones */
    struct mt_node *mask;     /* of the layer at hand */
    uint64_t kv_cells;
};

#define MT_OLD_SOURCES 5

struct mt_old_shape {
    uint64_t ne[4];
    uint64_t bytes;
};

struct mt_old_shape mt_old_f32(uint64_t ne0, uint64_t ne1, uint64_t ne2);
struct mt_old_shape mt_old_f16(uint64_t ne0, uint64_t ne1, uint64_t ne2);
struct mt_node *mt_old_op(struct mt_old *b, struct mt_old_shape shape, struct mt_node *x,
                          struct mt_node *y);
struct mt_node *mt_old_inplace(struct mt_old *b, struct mt_old_shape shape, struct mt_node *x,
                               struct mt_node *y);
struct mt_node *mt_old_view(struct mt_old *b, struct mt_old_shape shape, struct mt_node *x);
/* An operation of several sources, NULL where there is none. */
struct mt_node *mt_old_make(struct mt_old *b, struct mt_old_shape shape,
                            struct mt_node *const sources[MT_OLD_SOURCES]);
struct mt_node *mt_old_weight(struct mt_old *b, int backend, uint64_t bytes);
struct mt_node *mt_old_cache(struct mt_old *b, int backend);
/* Rows that are not side by side. */
struct mt_node *mt_old_slice(struct mt_old *b, struct mt_old_shape shape, struct mt_node *x);
/* A small weight of f32 (a norm, a bias) that lies on the layer's backend. */
struct mt_node *mt_old_small_weight(struct mt_old *b, uint64_t elements);
/* Work on a weight that lies on the host is done on the first device where enough rows come to it.
 */
struct mt_node *mt_old_streamed(const struct mt_old *b, struct mt_node *y);
/* A matrix of the layer's backend times x, `ne0` wide; on the first device where enough rows come
 * to a matrix on the host. */
struct mt_node *mt_old_product(struct mt_old *b, uint64_t weight_bytes, struct mt_node *x,
                               uint64_t ne0);
/* The same for a weight of the layer. */
struct mt_node *mt_old_matrix(struct mt_old *b, enum mt_old_weight weight, struct mt_node *x,
                              uint64_t ne0);
struct mt_node *mt_old_norm(struct mt_old *b, struct mt_node *x, struct mt_old_shape shape);
struct mt_node *mt_old_rope(struct mt_old *b, struct mt_node *x, struct mt_old_shape shape);
/* Keys and values go into the cache; returns what attention gives, before its last matrix. */
struct mt_node *mt_old_attention(struct mt_old *b, struct mt_node *q, struct mt_node *k,
                                 struct mt_node *v);
struct mt_node *mt_old_attention_block(struct mt_old *b, struct mt_node *x);
struct mt_node *mt_old_mla_block(struct mt_old *b, struct mt_node *x);
struct mt_node *mt_old_ffn(struct mt_old *b, struct mt_node *x);
struct mt_node *mt_old_experts(struct mt_old *b, struct mt_node *x);

#endif
