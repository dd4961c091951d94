/* SPDX-License-Identifier: MIT */
/* Shapes of language models, and sample model files of such a shape.
 *
 * A sample model is a GGUF file that an engine loads and runs like the real one, with weights drawn
 * at random, or with a hole in place of the weights for planning only. Nothing here keeps state;
 * any function may be called from any thread. */
#ifndef MEMTALLY_MODEL_H
#define MEMTALLY_MODEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */

/* The numbers that give a model its size. Fill it from {0}; a field left 0 (or NULL) takes the
 * default given beside it, "none" where nothing is said. */
struct mt_model_shape {
    const char *name;          /* "llama-3.2-1b"; NULL: "sample" */
    const char *source;        /* where the numbers of a named shape were published; not needed */
    const char *architecture;  /* llama, qwen2, qwen3, qwen3moe, gemma3, deepseek2; NULL: llama */
    uint64_t layers;           /* required */
    uint64_t embedding_length; /* required */
    uint64_t ff_length;        /* required, of the dense layers; 0 only where none is dense */
    uint64_t heads;            /* required */
    uint64_t kv_heads;         /* default: heads. Divides heads */
    uint64_t head_size;        /* default: embedding_length / heads, which must divide */
    uint64_t vocabulary;       /* tokens; required, at least MT_MODEL_VOCABULARY_MIN */
    uint64_t context_length;   /* tokens that the model was trained for; default 8192 */
    int tied_embeddings;       /* 1: the output matrix is the token embedding */
    double rope_freq_base;     /* default 10000 */
    double rope_llama3_factor; /* stretches low frequencies as Llama 3.1 does (8 or 32) */
    double rope_linear_factor; /* divides positions as Gemma 3 does (8) */
    double norm_epsilon;       /* default 1e-5 */
    uint64_t sliding_window;   /* tokens; required by gemma3 */
    uint64_t experts;          /* per layer */
    uint64_t experts_used;     /* per token; required with experts */
    uint64_t experts_shared;   /* run for every token; deepseek2 only */
    uint64_t expert_ff_length; /* default: ff_length */
    uint64_t leading_dense_layers; /* layers before the first with experts; deepseek2 only */
    double expert_weights_scale;   /* default 1 */
    int sigmoid_router;            /* 1: experts are chosen as in DeepSeek-V3; deepseek2 only */
    uint64_t q_lora_rank;          /* deepseek2; 0: the query is not compressed */
    uint64_t kv_lora_rank;         /* deepseek2, required there */
    uint64_t qk_rope_head_size;    /* deepseek2, required there */
    uint64_t qk_nope_head_size;    /* deepseek2, required there */
    uint64_t value_head_size;      /* deepseek2, required there */
};

/* Room for the control tokens, the 256 bytes and the visible ASCII characters. */
#define MT_MODEL_VOCABULARY_MIN 384

/* The named shape at `index`, NULL past the last. Borrowed, static. */
const struct mt_model_shape *mt_model_shape_at(size_t index);

/* The shape called `name` ("smollm-135m"), in any letter case, or NULL. Borrowed, static. */
const struct mt_model_shape *mt_model_shape_by_name(const char *name);

/* How weights are stored. X(NAME, number in GGUF files, "name"). */
#define MT_WEIGHT_TYPE_LIST(X)                                                                     \
    X(F32, 0, "f32")                                                                               \
    X(F16, 1, "f16")                                                                               \
    X(BF16, 30, "bf16")                                                                            \
    X(Q8_0, 8, "q8_0")                                                                             \
    X(Q6_K, 14, "q6_k")                                                                            \
    X(Q4_K, 12, "q4_k")                                                                            \
    X(Q4_0, 2, "q4_0")

enum mt_weight_type {
#define MT_WEIGHT_TYPE_ENUM(NAME, number, name) MT_WEIGHT_##NAME = number,
    MT_WEIGHT_TYPE_LIST(MT_WEIGHT_TYPE_ENUM)
#undef MT_WEIGHT_TYPE_ENUM
};

/* The name of a type ("q4_k"), "?" for a number outside the list. Borrowed, static. */
const char *mt_weight_type_name(enum mt_weight_type type);

/* Finds the type called `name`, in any letter case. Errors: MT_ENOTFOUND. */
int mt_weight_type_by_name(const char *name, enum mt_weight_type *type);

enum mt_sample_mode {
    MT_SAMPLE_RANDOM, /* weights drawn at random: the model runs, its text means nothing */
    MT_SAMPLE_SPARSE  /* a hole in place of the weights: for planning, takes no room on disk */
};

struct mt_sample_options {
    enum mt_weight_type type; /* of the matrices. A matrix whose rows do not divide into blocks of
                                 this type takes the one that llama.cpp's quantiser would take;
                                 vectors and expert routers are always f32 */
    enum mt_sample_mode mode;
    const char *mixture; /* "q4_k_s", "q4_k_m" or "q5_k_m": each tensor as llama.cpp's quantiser
                            would store it, whatever `type` says; NULL: all matrices of `type` */
    uint64_t seed;       /* the same seed gives the same bytes */
    /* Called now and then with the share done, 0 to 1 and never falling, and at the end with 1; a
     * result other than 0 stops the writing. May be NULL. */
    int (*progress)(void *argument, double share);
    void *progress_argument;
};

struct mt_sample_facts {
    uint64_t parameters; /* elements of all tensors */
    uint64_t n_tensors;
    uint64_t tensor_bytes; /* of all tensors, without the padding between them */
    uint64_t header_bytes; /* before the first tensor */
    uint64_t file_bytes;   /* apparent size of the file */
};

/* Tells what mt_sample_model_write() would write, without writing.
 * Errors: MT_EARG (the numbers of the shape make no model; error->text says which), MT_ELIMIT (too
 * large to be a file, or more layers or experts than engines take), MT_ENOMEM. */
int mt_sample_model_plan(const struct mt_model_shape *shape,
                         const struct mt_sample_options *options, struct mt_sample_facts *facts,
                         struct mt_error *error);

/* Writes a sample model to `path`, replacing a regular file of that name. It is written beside its
 * place under another name and moved there when complete; on failure the other file is removed
 * and `path` is as it was. `facts` may be NULL. Takes a few MiB of memory whatever the model's
 * size. Errors: those of mt_sample_model_plan(), and MT_EARG (`path` is there and is no regular
 * file), MT_ENOTFOUND (no such directory), MT_EPERM, MT_EIO (disk full, file too large for the file
 * system), MT_ECANCELLED (`progress` said so). */
int mt_sample_model_write(const char *path, const struct mt_model_shape *shape,
                          const struct mt_sample_options *options, struct mt_sample_facts *facts,
                          struct mt_error *error);

#ifdef __cplusplus
}
#endif
#endif
