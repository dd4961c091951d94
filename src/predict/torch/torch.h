/* SPDX-License-Identifier: MIT */
/* What the engines on PyTorch have in common: how weights and caches are divided among ranks.
 *
 * A rank is one device. Ranks of a stage share its layers (tensor parallel), stages share the
 * layers among them (pipeline parallel); rank `stage * tensor_parallel + r` is device of that
 * number. */
#ifndef MT_PREDICT_TORCH_H
#define MT_PREDICT_TORCH_H

#include "predict/input.h"
#include "predict/sums.h"

/* One stage of the pipeline: layers [first, end), and what the two ends hold beside them. */
struct mt_torch_stage {
    uint64_t first;
    uint64_t end;
    int is_first;
    int is_last;
};

/* Weights of one rank of a stage. The parts are of `bytes`; what blocks are rounded up by is not.
 */
struct mt_torch_weights {
    uint64_t bytes;
    uint64_t vocabulary_bytes; /* embeddings and output, padded and divided */
    uint64_t replicated_bytes; /* held whole by every rank */
    uint64_t mxfp4_bytes;      /* experts that kernels lay out anew */
    uint64_t rounding_bytes;
    uint64_t reused_bytes;  /* of freed blocks: what their tensors leave of them */
    uint64_t encoder_bytes; /* of encoders that only a config.json tells of, about */
    uint64_t encoder_low_bytes;
    uint64_t encoder_high_bytes;
};

/* How the weights' types change when they are loaded: 0: not at all; 2: floats become 16 bit; 1:
 * the matrices of the layers become 8 bit with a scale for each row, other floats 16 bit; 4: 32
 * bit. */
struct mt_torch_load {
    uint64_t tensor_parallel;
    uint64_t vocabulary_padding; /* rows of embeddings are a multiple of it */
    int float_bytes;
    uint64_t whole_bytes;     /* as mt_torch_block_bytes() has it */
    uint64_t rotation_bytes;  /* of sines in 32 bit, made and given back in the first layer */
    int keeps_rotations;      /* cosines and sines stay in 32 bit */
    uint64_t attention_bytes; /* of a tensor that the first layer's attention makes, or 0 */
    int is_fused; /* matrices of a layer that read the same input are one tensor; so are experts */
};

/* Whether the model's layer `index` is loaded: layers that only draft are not, unless tokens are
 * drafted. The number of layers that are. */
uint64_t mt_torch_layers(const struct mt_predict_input *in);

/* Divides the layers: as many for each stage, the rest to those before the last. */
void mt_torch_stage_of(const struct mt_predict_input *in, uint64_t stage, uint64_t n_stages,
                       struct mt_torch_stage *part);

/* A walk over all ranks in the order of their devices, from {0} on: the function goes to the next
 * one and returns 0 behind the last. Ranks of one stage follow each other; the first opens it. */
struct mt_torch_walk {
    uint64_t next;
    uint64_t stage;
    uint64_t device;
    int opens_stage;
};
int mt_torch_next_rank(const struct mt_predict_input *in, struct mt_torch_walk *walk);

/* What a rank has room for, of what all ranks hold as many of as the tightest one has room for. A
 * rank that holds none of these is no bound: MT_FAR units. Without bytes left there is no room, and
 * the engine does not start. */
struct mt_torch_room {
    uint64_t units; /* blocks, tokens */
    int64_t left_bytes;
};
int mt_torch_is_tighter(struct mt_torch_room room, struct mt_torch_room other);

void mt_torch_weights_of(const struct mt_predict_input *in, const struct mt_torch_load *load,
                         const struct mt_torch_stage *stage, struct mt_torch_weights *weights);

/* Writes the term of encoders that only a config.json tells of. */
void mt_torch_write_encoders(const struct mt_torch_weights *weights, int place,
                             struct mt_sheet *sheet);

/* How floats are loaded by the settings' weight_type ("auto", "bf16", "float16", "fp8", "float32").
 * Errors: MT_EARG. */
int mt_torch_float_bytes(const struct mt_predict_input *in, int *float_bytes,
                         struct mt_error *error);

/* What PyTorch calls a weight_type: "bfloat16" for "bf16". */
const char *mt_torch_dtype_name(const char *weight_type);

/* Bytes that one token takes in a layer's cache on one rank. `cell` is what a type stores. */
struct mt_torch_cell {
    const char *name;
    double bytes;           /* of an element */
    uint64_t bytes_of_head; /* more for each head of K and of V: scales */
    uint64_t latent_bytes;  /* of a whole vector of a latent layer; 0: as any other */
};
const struct mt_torch_cell *mt_torch_cell_of(const char *name);
uint64_t mt_torch_token_bytes(const struct mt_model_layer *layer, const struct mt_torch_cell *cell,
                              uint64_t tensor_parallel);
/* What the cache of these settings stores, where "auto" is the type that the model runs in. */
struct mt_torch_cell mt_torch_cache_of(const struct mt_predict_settings *settings);
/* Bytes of a float that the model runs in: 2, or 4 where the settings' weight_type is 32 bit. */
uint64_t mt_torch_float_width(const struct mt_predict_settings *settings);

/* What PyTorch's allocator takes for a tensor. From 10 MiB on it asks for whole 2 MiB, and keeps a
 * rest of up to 1 MiB in the block (c10/cuda/CUDACachingAllocator.cpp: get_allocation_size,
 * should_split). From `whole_bytes` on, where that is not 0, it keeps any rest: max_split_size_mb.
 */
uint64_t mt_torch_block_bytes(uint64_t bytes, uint64_t whole_bytes);

/* Bytes of a layer's recurrent state for one sequence on one rank: its convolution's inputs in
 * `conv_bytes` an element with `rows` more of them, and its state in `state_bytes` an element. */
uint64_t mt_torch_state_bytes(const struct mt_model_description *d,
                              const struct mt_model_layer *layer, uint64_t tensor_parallel,
                              uint64_t conv_bytes, uint64_t state_bytes, uint64_t rows);

/* Bytes of an element of the recurrent state: some families say 32 bit, others have the model's. */
uint64_t mt_torch_state_element_bytes(const struct mt_predict_input *in);

/* The forward pass of `tokens` through the widest layer of a stage. */
struct mt_torch_forward {
    uint64_t bytes;
    uint64_t hidden_bytes; /* of it, for the residual stream */
    uint64_t mlp_bytes;    /* of it, inside the feed-forward or the experts */
};
void mt_torch_forward_of(const struct mt_predict_input *in, const struct mt_torch_stage *stage,
                         uint64_t tokens, struct mt_torch_forward *forward);

/* What a reason why it cannot be ends with where devices lie idle: ", on one device;
 * --tensor-parallel 4 would use all 4", the most that the heads can be divided by; "" otherwise. */
#define MT_IDLE_TEXT 96
const char *mt_torch_idle_devices(const struct mt_predict_input *in, char text[MT_IDLE_TEXT]);

/* Refuses the settings that only llama.cpp and its kin know, and drafts that nothing draws up;
 * `batch_name` is what the engine calls the tokens of a batch. Errors: MT_EARG. */
int mt_torch_refuse(const struct mt_model *model, const struct mt_engine *engine,
                    const struct mt_predict_settings *settings, const char *batch_name,
                    struct mt_error *error);
/* Refuses a model whose format is not in the engine's key "formats". Errors: MT_EUNSUPPORTED. */
int mt_torch_refuse_format(const struct mt_model *model, const struct mt_engine *engine,
                           struct mt_error *error);
/* Puts in the parallel sizes and checks them against the devices and the heads. Errors: MT_EARG. */
int mt_torch_complete_parallel(const struct mt_model *model, const struct mt_engine *engine,
                               struct mt_predict_settings *settings, struct mt_error *error);
/* All of the checks above that an engine with a budget begins with, and the cache's type and the
 * context (`fallback_context` of a model that does not say). Errors: MT_EARG, MT_EUNSUPPORTED. */
int mt_torch_begin(const struct mt_model *model, const struct mt_engine *engine,
                   struct mt_predict_settings *settings, const char *batch_name,
                   uint64_t fallback_context, struct mt_error *error);
/* Puts in the cache's type; those of the key "kv_types" are known, the first one is the default.
 * Errors: MT_EARG, which names the nearest. */
int mt_torch_complete_kv_type(const struct mt_engine *engine, struct mt_predict_settings *settings,
                              struct mt_error *error);

#endif
