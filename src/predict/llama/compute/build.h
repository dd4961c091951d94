/* SPDX-License-Identifier: MIT */
/* llama.cpp's graphs: what the builders of the families share.
 *
 * A build is one reserved graph of a model: a batch of `tokens` tokens in `sequences` sequences
 * against full caches. The parts add operations in the order in which llama.cpp does, since the
 * allocator's holes depend on it. */
#ifndef MT_PREDICT_LLAMA_NET_H
#define MT_PREDICT_LLAMA_NET_H

#include "model/families.h"
#include "predict/graph/graph.h"
#include "predict/llama/llama.h"

/* Weights that graphs read, by the end of their name in GGUF. X(SLOT, "ending"). */
#define MT_SLOT_LIST(X)                                                                            \
    X(ATTN_NORM, "attn_norm.weight")                                                               \
    X(ATTN_NORM_B, "attn_norm.bias")                                                               \
    X(ATTN_NORM_2, "attn_norm_2.weight")                                                           \
    X(ATTN_Q, "attn_q.weight")                                                                     \
    X(ATTN_Q_B, "attn_q.bias")                                                                     \
    X(ATTN_K, "attn_k.weight")                                                                     \
    X(ATTN_K_BIAS, "attn_k.bias")                                                                  \
    X(ATTN_V, "attn_v.weight")                                                                     \
    X(ATTN_V_BIAS, "attn_v.bias")                                                                  \
    X(ATTN_QKV, "attn_qkv.weight")                                                                 \
    X(ATTN_QKV_B, "attn_qkv.bias")                                                                 \
    X(ATTN_OUT, "attn_output.weight")                                                              \
    X(ATTN_OUT_B, "attn_output.bias")                                                              \
    X(ATTN_Q_NORM, "attn_q_norm.weight")                                                           \
    X(ATTN_K_NORM, "attn_k_norm.weight")                                                           \
    X(ATTN_SINKS, "attn_sinks.weight")                                                             \
    X(ATTN_GATE, "attn_gate.weight")                                                               \
    X(ATTN_Q_A, "attn_q_a.weight")                                                                 \
    X(ATTN_Q_A_NORM, "attn_q_a_norm.weight")                                                       \
    X(ATTN_Q_LORA_B, "attn_q_b.weight")                                                            \
    X(ATTN_KV_A, "attn_kv_a_mqa.weight")                                                           \
    X(ATTN_KV_A_NORM, "attn_kv_a_norm.weight")                                                     \
    X(ATTN_K_LORA_B, "attn_k_b.weight")                                                            \
    X(ATTN_V_LORA_B, "attn_v_b.weight")                                                            \
    X(ATTN_KV_LORA_B, "attn_kv_b.weight")                                                          \
    X(ATTN_POST_NORM, "post_attention_norm.weight")                                                \
    X(FFN_NORM, "ffn_norm.weight")                                                                 \
    X(FFN_NORM_B, "ffn_norm.bias")                                                                 \
    X(FFN_POST_NORM, "post_ffw_norm.weight")                                                       \
    X(FFN_GATE, "ffn_gate.weight")                                                                 \
    X(FFN_GATE_B, "ffn_gate.bias")                                                                 \
    X(FFN_UP, "ffn_up.weight")                                                                     \
    X(FFN_UP_B, "ffn_up.bias")                                                                     \
    X(FFN_DOWN, "ffn_down.weight")                                                                 \
    X(FFN_DOWN_B, "ffn_down.bias")                                                                 \
    X(ROUTER, "ffn_gate_inp.weight")                                                               \
    X(ROUTER_B, "ffn_gate_inp.bias")                                                               \
    X(ROUTER_SCALE, "ffn_gate_inp.scale")                                                          \
    X(EXPERT_BIAS, "exp_probs_b.bias")                                                             \
    X(EXPERTS_GATE, "ffn_gate_exps.weight")                                                        \
    X(EXPERTS_GATE_B, "ffn_gate_exps.bias")                                                        \
    X(EXPERTS_UP, "ffn_up_exps.weight")                                                            \
    X(EXPERTS_UP_B, "ffn_up_exps.bias")                                                            \
    X(EXPERTS_DOWN, "ffn_down_exps.weight")                                                        \
    X(EXPERTS_DOWN_B, "ffn_down_exps.bias")                                                        \
    X(EXPERTS_GATE_UP, "ffn_gate_up_exps.weight")                                                  \
    X(SHARED_ROUTER, "ffn_gate_inp_shexp.weight")                                                  \
    X(SHARED_GATE, "ffn_gate_shexp.weight")                                                        \
    X(SHARED_UP, "ffn_up_shexp.weight")                                                            \
    X(SHARED_DOWN, "ffn_down_shexp.weight")                                                        \
    X(FFN_PRE_NORM_2, "pre_ffw_norm_2.weight")                                                     \
    X(FFN_POST_NORM_1, "post_ffw_norm_1.weight")                                                   \
    X(FFN_POST_NORM_2, "post_ffw_norm_2.weight")                                                   \
    X(SSM_IN, "ssm_in.weight")                                                                     \
    X(SSM_CONV, "ssm_conv1d.weight")                                                               \
    X(SSM_CONV_B, "ssm_conv1d.bias")                                                               \
    X(SSM_X, "ssm_x.weight")                                                                       \
    X(SSM_DT, "ssm_dt.weight")                                                                     \
    X(SSM_DT_B, "ssm_dt.bias")                                                                     \
    X(SSM_DT_NORM, "ssm_dt_norm.weight")                                                           \
    X(SSM_B_NORM, "ssm_b_norm.weight")                                                             \
    X(SSM_C_NORM, "ssm_c_norm.weight")                                                             \
    X(SSM_A, "ssm_a")                                                                              \
    X(SSM_D, "ssm_d")                                                                              \
    X(SSM_NORM, "ssm_norm.weight")                                                                 \
    X(SSM_OUT, "ssm_out.weight")                                                                   \
    X(SSM_BETA, "ssm_beta.weight")                                                                 \
    X(SSM_ALPHA, "ssm_alpha.weight")                                                               \
    X(SSM_BETA_ALPHA, "ssm_ba.weight")                                                             \
    X(CONV_KERNEL, "shortconv.conv.weight")                                                        \
    X(CONV_IN, "shortconv.in_proj.weight")                                                         \
    X(CONV_OUT, "shortconv.out_proj.weight")                                                       \
    X(OUT_SCALE, "layer_output_scale.weight")                                                      \
    X(PER_LAYER_GATE, "inp_gate.weight")                                                           \
    X(PER_LAYER_PROJ, "proj.weight")                                                               \
    X(PER_LAYER_POST_NORM, "post_norm.weight")                                                     \
    X(ALTUP_CORRECT, "altup_correct_coef.weight")                                                  \
    X(ALTUP_CORRECT_SCALE, "altup_correct_scale.weight")                                           \
    X(ALTUP_PREDICT, "altup_predict_coef.weight")                                                  \
    X(ALTUP_ROUTER, "altup_router.weight")                                                         \
    X(ALTUP_ROUTER_NORM, "altup_router_norm.weight")                                               \
    X(LAUREL_L, "laurel_l.weight")                                                                 \
    X(LAUREL_R, "laurel_r.weight")                                                                 \
    X(LAUREL_POST_NORM, "laurel_post_norm.weight")                                                 \
    X(KDA_CONV_Q, "ssm_conv1d_q.weight")                                                           \
    X(KDA_CONV_K, "ssm_conv1d_k.weight")                                                           \
    X(KDA_CONV_V, "ssm_conv1d_v.weight")                                                           \
    X(KDA_F_A, "ssm_f_a.weight")                                                                   \
    X(KDA_F_B, "ssm_f_b.weight")                                                                   \
    X(KDA_G_A, "ssm_g_a.weight")                                                                   \
    X(KDA_G_B, "ssm_g_b.weight")                                                                   \
    X(INDEXER_K_NORM, "indexer.k_norm.weight")                                                     \
    X(INDEXER_K_NORM_B, "indexer.k_norm.bias")                                                     \
    X(INDEXER_PROJ, "indexer.proj.weight")                                                         \
    X(INDEXER_K, "indexer.attn_k.weight")                                                          \
    X(INDEXER_Q, "indexer.attn_q_b.weight")                                                        \
    X(ATTN_OUT_NORM, "attn_output_norm.weight")                                                    \
    X(ATTN_OUT_NORM_B, "attn_output_norm.bias")                                                    \
    X(LAYER_OUT_NORM, "layer_output_norm.weight")                                                  \
    X(LAYER_OUT_NORM_B, "layer_output_norm.bias")                                                  \
    /* of the model as a whole */                                                                  \
    X(TOKEN_EMBEDDING, "token_embd.weight")                                                        \
    X(OUTPUT, "output.weight")                                                                     \
    X(OUTPUT_B, "output.bias")                                                                     \
    X(OUTPUT_NORM, "output_norm.weight")                                                           \
    X(OUTPUT_NORM_B, "output_norm.bias")                                                           \
    X(TOKEN_EMBEDDING_NORM, "token_embd_norm.weight")                                              \
    X(TOKEN_EMBEDDING_NORM_B, "token_embd_norm.bias")                                              \
    X(TOKEN_TYPES, "token_types.weight")                                                           \
    X(POSITION_EMBEDDING, "position_embd.weight")                                                  \
    X(ROPE_FREQS, "rope_freqs.weight")                                                             \
    X(ROPE_LONG, "rope_factors_long.weight")                                                       \
    X(PER_LAYER_EMBEDDING, "per_layer_token_embd.weight")                                          \
    X(PER_LAYER_MODEL_PROJ, "per_layer_model_proj.weight")                                         \
    X(PER_LAYER_PROJ_NORM, "per_layer_proj_norm.weight")                                           \
    X(ALTUP_PROJ, "altup_proj.weight")                                                             \
    X(ALTUP_UNEMBED, "altup_unembd_proj.weight")

enum mt_slot {
#define MT_SLOT_ENUM(SLOT, ending) MT_SLOT_##SLOT,
    MT_SLOT_LIST(MT_SLOT_ENUM)
#undef MT_SLOT_ENUM
        MT_SLOT_COUNT
};

/* A weight of the file. `node` is its leaf once the graph reads it. */
struct mt_build_weight {
    uint64_t ne[4];
    uint64_t bytes;
    const char *type;
    struct mt_node *node;
    int8_t place; /* a device, or MT_HOST_PLACE */
    uint8_t present;
    uint8_t quantised;
};

struct mt_build_layer {
    struct mt_build_weight weights[MT_SLOT_COUNT];
    struct mt_node *indexer; /* keys by which sparse attention chooses */
    struct mt_node *k;       /* of the cache; of a layer that reads another one's, NULL */
    struct mt_node *v;
    struct mt_node *conv_state;
    struct mt_node *state;
};

/* One cache's inputs: of all global layers, or of all windowed ones. */
struct mt_build_cache {
    uint64_t cells;
    struct mt_node *k_rows;
    struct mt_node *v_rows;
    struct mt_node *mask;
    struct mt_node *k_rotation; /* of a quantised cache */
    struct mt_node *v_rotation;
};

struct mt_build {
    struct mt_graph *graph;
    const struct mt_llama_plan *plan;
    const struct mt_model_description *d;
    enum mt_arch arch;
    struct mt_build_layer
        *layers; /* one more than layers: the last holds the model's own weights */
    size_t n_layers;
    uint64_t tokens;
    uint64_t sequences;
    uint64_t outputs;
    uint64_t streams;
    int host;
    unsigned traits;    /* of the family */
    int pins_attention; /* it runs on the host, where the cache lies */
    int pins_norms; /* norms run where their layer's weights lie, however the scheduler sees it */
    int mixed_embeddings;       /* the batch may mix tokens with embeddings: two more inputs */
    int late_rows;              /* hybrids pick the rows of the output after the last layer */
    int windows_rotate_plainly; /* the file's frequencies are for global layers alone */
    unsigned newer;             /* MT_NEWER_…: parts that are as later builds have them */
    int knows_recent;           /* the build is one of those that recent families were read of */
    struct mt_build_cache global;
    struct mt_build_cache windowed;
    struct mt_build_cache indexer; /* of sparse attention */
    struct mt_node *best;          /* tokens that the last indexer chose */
    struct mt_node *mask_of_layer; /* of the layer at hand */
    struct mt_node *positions;
    struct mt_node *output_rows;
    struct mt_node *state_rows;
    struct mt_node *state_rows_main;
    struct mt_node *state_rows_tail;
    struct mt_node *attention_scale;
    struct mt_node *factors[MT_GRAPH_DEVICES_MAX + 1]; /* of the rotation, on each backend */
    struct mt_node *per_layer; /* inputs of each layer of gemma3n and gemma4 */
    struct mt_node *embedded;  /* the batch with its features for the first layers */
};

/* A build without operations, for batches of `tokens` of all sequences together. */
int mt_build_init(struct mt_build *build, struct mt_graph *graph, const struct mt_llama_plan *plan,
                  struct mt_error *error);

/* A weight, or NULL where the file has none. `il` n_layers: the model's own. */
struct mt_node *mt_build_maybe(struct mt_build *build, size_t il, enum mt_slot slot);
/* The same where a file without it is taken to have one of that shape. */
struct mt_node *mt_build_weight(struct mt_build *build, size_t il, enum mt_slot slot, uint64_t ne0,
                                uint64_t ne1, uint64_t ne2);
int mt_build_has(const struct mt_build *build, size_t il, enum mt_slot slot);
/* The same; of a model that is no GGUF file, whether its family usually has one. */
int mt_build_expects(const struct mt_build *build, size_t il, enum mt_slot slot);
/* The backend of layer il. */
int mt_build_backend(const struct mt_build *build, size_t il);
int mt_build_is_windowed(const struct mt_build *build, size_t il);

/* What families do differently in the parts that they share. */
enum {
    MT_BUILD_SCALES_TOKENS = 1,    /* embeddings of tokens are scaled, those of images not */
    MT_BUILD_SCALES_EMBEDDING = 2, /* all embeddings are */
    MT_BUILD_SCALES_RESIDUAL = 4,  /* what a layer adds is scaled */
    MT_BUILD_SCALES_LOGITS = 8,
    MT_BUILD_CAPS_LOGITS = 16,      /* scale, tanh, scale */
    MT_BUILD_SCALES_QUERIES = 32,   /* a step of their own after the rotation */
    MT_BUILD_ROWS_LATE = 64,        /* the output's rows are picked after the last layer */
    MT_BUILD_ROWS_AFTER_NORM = 128, /* and after the output norm */
    MT_BUILD_HALVES = 256,          /* up and gate of the feed-forward are one matrix */
    MT_BUILD_PARALLEL = 512,        /* attention and feed-forward read the same norm */
    MT_BUILD_POST_NORMS = 1024,     /* norms behind attention and feed-forward too */
    MT_BUILD_NORM_AFTER = 2048,     /* the feed-forward's norm is called post_attention_norm */
    MT_BUILD_LAYER_NORM = 4096,     /* mean and variance: never in place */
    MT_BUILD_ROPE_WINDOWED = 8192,  /* only windowed layers rotate */
    MT_BUILD_ADDS_RESIDUAL_FIRST = 16384,
    MT_BUILD_RELU_SQUARE = 32768,
    MT_BUILD_WEIGHTS_FIRST = 65536,  /* experts get their input weighted, not their output */
    MT_BUILD_NORMS_WEIGHTS = 131072, /* weights of experts add up to one */
    MT_BUILD_SCALES_WEIGHTS = 262144,
    MT_BUILD_NORMS_QK_AFTER = 524288, /* queries and keys are normed after the rotation */
    MT_BUILD_TEMPERATURE = 1048576,   /* layers without rotation scale queries by position */
    MT_BUILD_NO_ROPE = 2097152,
    MT_BUILD_SOFTMAX_LATE = 4194304, /* soft max over the chosen experts only */
    MT_BUILD_EMBEDDING_NORM = 8388608,
    MT_BUILD_NORMS_QK = 16777216, /* queries and keys have norms of their own */
    MT_BUILD_PINS_POST_NORMS =
        33554432, /* those behind the feed-forward run where the layer lies */
    MT_BUILD_ATTENTION_FIRST = 67108864, /* of a parallel layer's sum */
    MT_BUILD_ROPE_THREE_OF_FOUR = 134217728,
    MT_BUILD_SHARED_BY_RATIO = 268435456, /* the shared expert's gate is silu(x) / x */
    MT_BUILD_ONE_PART = 1073741824,       /* a layer is attention, a state or a feed-forward */
    MT_BUILD_RESIDUAL_FIRST = 536870912   /* also before the feed-forward */
};

/* Inputs. */
struct mt_node *mt_build_embedding(struct mt_build *build, unsigned traits);
void mt_build_positions(struct mt_build *build);
void mt_build_output_rows(struct mt_build *build);
void mt_build_attention_inputs(struct mt_build *build);
void mt_build_state_inputs(struct mt_build *build);
int mt_build_is_sparse(const struct mt_build *build);

/* Norm with weight `slot` of layer `il`. The scheduler places its node, unless norms are pinned to
 * their layer's device. */
struct mt_node *mt_build_norm(struct mt_build *build, struct mt_node *x, size_t il,
                              enum mt_slot slot, unsigned traits);
struct mt_node *mt_build_norm_unpinned(struct mt_build *build, struct mt_node *x, size_t il,
                                       enum mt_slot slot);
/* A matrix product with a weight of the layer. */
struct mt_node *mt_build_project(struct mt_build *build, struct mt_node *x, size_t il,
                                 enum mt_slot slot, uint64_t out);
struct mt_node *mt_build_biased(struct mt_build *build, struct mt_node *x, size_t il,
                                enum mt_slot slot);

/* Feed-forward of the layer: dense, or experts where the layer has them. */
struct mt_node *mt_build_ffn(struct mt_build *build, struct mt_node *x, size_t il, unsigned traits);
struct mt_node *mt_build_dense_ffn(struct mt_build *build, struct mt_node *x, size_t il,
                                   const enum mt_slot slots[3], uint64_t width, unsigned traits);
struct mt_node *mt_build_experts(struct mt_build *build, struct mt_node *x, struct mt_node *logits,
                                 size_t il, unsigned traits);

/* Attention. q, k and v are shaped {head size, heads, tokens}; k and v NULL: an earlier layer's
 * cache is read. */
struct mt_build_qkv {
    struct mt_node *q;
    struct mt_node *k;
    struct mt_node *v;
};
struct mt_build_qkv mt_build_qkv(struct mt_build *build, struct mt_node *x, size_t il);
/* As numbers of 16 bits, and an input that masks attention, as flash attention reads both. */
struct mt_node *mt_build_as_halves(struct mt_build *build, struct mt_node *x);
struct mt_node *mt_build_mask(struct mt_build *build, const uint64_t ne[4]);
/* Without the output matrix. `decompress`: of latent attention, else NULL. */
struct mt_node *mt_build_attend(struct mt_build *build, const struct mt_build_qkv *qkv, size_t il,
                                struct mt_node *decompress);
/* How many keys a batch has of its own tokens: newer builds pad them. */
uint64_t mt_build_keys_of_batch(const struct mt_build *build);
/* The same among the batch's own tokens, of which nothing is kept. */
struct mt_node *mt_build_attend_batch(struct mt_build *build, const struct mt_build_qkv *qkv,
                                      size_t il, struct mt_node *mask);
struct mt_node *mt_build_attention(struct mt_build *build, struct mt_node *x, size_t il,
                                   unsigned traits);
struct mt_node *mt_build_latent_attention(struct mt_build *build, struct mt_node *x, size_t il,
                                          unsigned traits);
struct mt_node *mt_build_latent_in_heads(struct mt_build *build, struct mt_node *x, size_t il,
                                         unsigned traits);
/* Chooses the tokens that a layer of sparse attention reads; `compressed` are its queries before
 * they are spread over the heads. */
void mt_build_choose_tokens(struct mt_build *build, struct mt_node *x, struct mt_node *compressed,
                            size_t il);
/* Keeps the current keys or values as rows of a cache. */
void mt_build_store_rows(struct mt_build *build, struct mt_node *x, struct mt_node *cache,
                         struct mt_node *rows);
struct mt_node *mt_build_gated_attention(struct mt_build *build, struct mt_node *x, size_t il);
struct mt_node *mt_build_rope(struct mt_build *build, struct mt_node *x, size_t il);

/* Layers that carry a state. */
struct mt_node *mt_build_mamba2(struct mt_build *build, struct mt_node *x, size_t il);
struct mt_node *mt_build_mamba(struct mt_build *build, struct mt_node *x, size_t il);
struct mt_node *mt_build_delta_net(struct mt_build *build, struct mt_node *x, size_t il);
struct mt_node *mt_build_kimi_delta(struct mt_build *build, struct mt_node *x, size_t il);
struct mt_node *mt_build_short_convolution(struct mt_build *build, struct mt_node *x, size_t il);

/* Output: norm, rows, logits. */
void mt_build_output(struct mt_build *build, struct mt_node *x, unsigned traits);

/* Adds all operations of the model. Returns how well its family is known: */
enum mt_build_knowledge {
    MT_BUILD_EXACT,  /* its graph is written down here */
    MT_BUILD_RECENT, /* exact in the builds of compute.recent; older ones were not asked */
    MT_BUILD_LIKELY, /* its parts are; they were put together as its kind usually is */
    MT_BUILD_GUESSED /* an unknown family, taken for an ordinary one */
};
enum mt_build_knowledge mt_build_graph(struct mt_build *build);
void mt_build_gemma4(struct mt_build *build, unsigned traits);
/* Encoders. Returns 0 where the family's graph is not written down. */
int mt_build_encoder(struct mt_build *build);
void mt_build_gemma3n(struct mt_build *build, unsigned traits);

#endif
