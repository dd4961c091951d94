/* SPDX-License-Identifier: MIT */
/* Reading model files: what a model consists of, before it is loaded.
 *
 * Only headers are read, never weights. Every format gives the same description, so that what works
 * on a GGUF file works on a folder of safetensors or a bare config.json. Model files are untrusted:
 * every length is checked, time and memory are linear in the size of the header. */
#ifndef MEMTALLY_MODEL_FILE_H
#define MEMTALLY_MODEL_FILE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */

enum mt_model_format {
    MT_MODEL_GGUF,        /* one file or split ones */
    MT_MODEL_SAFETENSORS, /* one file or sharded ones, with a config.json or without */
    MT_MODEL_CONFIG       /* a config.json alone: tensors follow from the shapes */
};

/* How a layer attends; what it keeps of past tokens follows from that. */
enum mt_attention {
    MT_ATTENTION_NONE,    /* keeps no keys and values */
    MT_ATTENTION_GLOBAL,  /* all past tokens */
    MT_ATTENTION_SLIDING, /* the last `window` tokens */
    MT_ATTENTION_CHUNKED, /* the tokens of its own chunk of `window` */
    MT_ATTENTION_LATENT,  /* multi-head latent attention: one compressed vector for all heads */
    MT_ATTENTION_CROSS    /* the tokens of an encoder or an image, not those of the text */
};

/* What a layer carries from token to token beside a cache of keys and values. */
enum mt_recurrence {
    MT_RECURRENCE_NONE,
    MT_RECURRENCE_MAMBA,
    MT_RECURRENCE_MAMBA2,
    MT_RECURRENCE_DELTA_NET,         /* gated delta net: Qwen3-Next, Qwen3.5 */
    MT_RECURRENCE_KIMI_DELTA,        /* Kimi linear attention */
    MT_RECURRENCE_SHORT_CONVOLUTION, /* LFM2 */
    MT_RECURRENCE_RWKV
};

/* One layer. A layer may have both attention and recurrence (Falcon-H1). `key_size` and
 * `value_size` are of one head as it is cached; of a latent layer `kv_heads` is 1, `key_size` the
 * compressed vector with its rotary part and `value_size` 0. `cache_layer` is the layer whose cache
 * it reads, its own index where it has one. Sizes that do not apply are 0. */
struct mt_model_layer {
    enum mt_attention attention;
    enum mt_recurrence recurrence;
    int is_draft; /* a layer that predicts further tokens (NextN, MTP), past the model's own */
    uint64_t heads;
    uint64_t kv_heads;
    uint64_t key_size;
    uint64_t value_size;
    uint64_t window;
    uint64_t cache_layer;
    uint64_t ff_length; /* of the dense feed-forward; 0 where the layer has only experts */
    uint64_t experts;
    uint64_t experts_used;
    uint64_t expert_ff_length;
    uint64_t shared_ff_length; /* of all shared experts together */
    uint64_t weight_bytes;     /* of all its tensors */
    uint64_t expert_bytes;     /* of its routed experts, part of weight_bytes */
};

/* What a file may leave open. */
enum mt_said { MT_NOT_SAID, MT_SAID_NO, MT_SAID_YES };

/* The model as a whole. Texts are borrowed from the model and NULL where unknown; a number that the
 * model does not have is 0. `architecture` is llama.cpp's name of the family ("qwen3moe"), whatever
 * the format; `family_known` is 0 where the layers are a guess, and `notes` say what is not known.
 */
struct mt_model_description {
    enum mt_model_format format;
    const char *path; /* as it was opened */
    const char *name; /* what the model calls itself */
    const char *architecture;
    int family_known;
    const char *dtype; /* of most of its weight bytes: "q4_k", "bf16" */
    uint64_t n_files;
    uint64_t file_bytes;   /* of all files together; 0 of a bare config.json */
    uint64_t header_bytes; /* of all headers together */
    uint64_t n_tensors;
    uint64_t parameters;
    uint64_t weight_bytes; /* of all tensors, without padding */

    uint64_t n_layers; /* with draft layers, which come last */
    uint64_t n_draft_layers;
    const struct mt_model_layer *layers;
    uint64_t embedding_length;
    uint64_t vocabulary;
    uint64_t context_length; /* that it was trained for */
    uint64_t heads;          /* the most of any layer */
    uint64_t sliding_window;
    uint64_t position_streams; /* 1, or 4 where positions have sections (M-RoPE) */
    int tied_output;           /* the output matrix is the token embedding */
    int is_embedder;           /* no language model: bert and the like */
    int is_projector;          /* an image or audio encoder for another model (mmproj) */
    int lacks_encoders; /* it has encoders of which no tensor is known: weights are too few */
    uint64_t encoder_parameters; /* about what these have; 0 where that is not known either */
    int sees;                    /* its config has an encoder of pictures, */
    uint64_t vision_layers; /* of so many layers by num_hidden_layers, 0 where that is missing, */
    uint64_t vision_width;  /* and of that hidden_size, likewise */

    /* Latent attention. */
    uint64_t q_lora_rank;
    uint64_t kv_lora_rank;
    uint64_t qk_rope_head_size;
    uint64_t qk_nope_head_size;
    uint64_t value_head_size;
    /* Sparse attention's indexer (DeepSeek V3.2, GLM-5). */
    uint64_t indexer_heads;
    uint64_t indexer_head_size;
    uint64_t indexer_top_k;
    /* Recurrent layers. */
    uint64_t conv_kernel;
    uint64_t inner_size;
    uint64_t state_size;
    uint64_t time_step_rank; /* heads of the state */
    uint64_t group_count;
    uint64_t short_conv_cache; /* l_cache of LFM2 */
    /* Gemma 3n and 4. */
    uint64_t per_layer_embedding_length;
    uint64_t altup_inputs;
    uint64_t leading_dense_layers;
    uint64_t experts;
    uint64_t experts_used;
    /* How experts are chosen and weighed, where the file says so. */
    enum mt_said norms_expert_weights;  /* to a sum of one */
    enum mt_said scales_expert_weights; /* by another factor than one */
    uint64_t expert_groups;
    uint64_t expert_groups_used;
    uint64_t deepstack_layers;      /* first layers that image features are added to once more */
    int scales_queries_by_position; /* attention has a temperature */

    size_t n_notes;
    const char *const *notes; /* sentences */
};

/* What a tensor is for, as far as it matters where it is put. */
enum mt_tensor_role {
    MT_TENSOR_LAYER,               /* of a layer, other than its routed experts */
    MT_TENSOR_EXPERTS,             /* routed experts of a layer */
    MT_TENSOR_TOKEN_EMBEDDING,     /* the input embedding */
    MT_TENSOR_PER_LAYER_EMBEDDING, /* a second input embedding, one part for each layer */
    MT_TENSOR_INPUT,               /* another one that belongs to the input: positions, its norm */
    MT_TENSOR_OUTPUT,              /* the output matrix */
    MT_TENSOR_OUTPUT_OTHER,        /* another one that belongs to the output: norm, bias, heads */
    MT_TENSOR_PROJECTOR            /* of an image or audio encoder */
};

#define MT_MODEL_DIMENSIONS_MAX 8
#define MT_NO_LAYER             UINT32_MAX

/* One tensor. `dims[0]` is the row, as in GGUF; safetensors' shapes are turned round. `name` is not
 * terminated and borrowed from the model; `type` is the format's own name of the type in lower case
 * ("q4_k", "bf16"), and for an unknown one "unknown type 250": then `bytes` is known only as the
 * space up to the next tensor, and `elements` from its shape. `offset` is from the start of file
 * number `file`. */
struct mt_model_tensor {
    const char *name;
    size_t name_length;
    const char *type;
    int type_known;
    uint32_t n_dims;
    uint64_t dims[MT_MODEL_DIMENSIONS_MAX];
    uint64_t elements;
    uint64_t bytes;
    uint64_t offset;
    uint32_t file;
    uint32_t layer; /* MT_NO_LAYER where it belongs to none */
    enum mt_tensor_role role;
};

/* An open file of a model. `step_bytes` is how much is worth to ask for at once: small for a disk,
 * larger where each question costs a round trip. */
struct mt_model_source {
    void *argument;
    uint64_t size_bytes;
    uint64_t step_bytes;
    /* Reads `length` bytes at `offset`, which lie within the file; less only where the file has
     * become shorter, which is MT_ETRUNCATED. */
    int (*read)(void *argument, uint64_t offset, void *to, size_t length, struct mt_error *error);
    void (*close)(void *argument);
};

/* Where files come from: the local file system, or something that looks like it. Paths are joined
 * with '/'. */
struct mt_model_files {
    void *argument;
    /* Opens a regular file. Errors: MT_ENOTFOUND, MT_EPERM, MT_EARG (a folder), MT_EIO. */
    int (*open)(void *argument, const char *path, struct mt_model_source *source,
                struct mt_error *error);
    /* Whether `path` is a folder; one that looks remote files up by known names may say yes to any
     * path that ends in '/'. */
    int (*is_folder)(void *argument, const char *path);
    /* Calls `each` with the name of every entry of a folder until it returns other than 0, which is
     * then the result. NULL where folders cannot be listed. */
    int (*list)(void *argument, const char *path, int (*each)(void *to, const char *name), void *to,
                struct mt_error *error);
};

/* The files of this machine. Borrowed, static. */
const struct mt_model_files *mt_model_files_local(void);

struct mt_model;

/* What a file is. Both texts are borrowed, static. */
struct mt_file_kind {
    const char *what;   /* "a PNG image" */
    const char *advice; /* what to do about one in the place of a model, or NULL */
};

/* What a file that begins with these bytes is, also where it is no model; NULL where that is not
 * known. The first 262 bytes tell all that can be told. Borrowed, static. Any thread. */
const struct mt_file_kind *mt_file_kind_of(const void *bytes, size_t length);

/* Opens a model and reads its headers. `path` is a GGUF file (of a split model any part), a
 * safetensors file or index, a config.json, an Ollama manifest, or a folder that holds one of them
 * (also a snapshot, or a model's folder, in the cache of Hugging Face). `files` NULL means
 * mt_model_files_local(). On success the caller owns *model; mt_model_close() frees it. A model is
 * not changed after that: any thread may read it.
 * Errors: MT_ENOTFOUND, MT_EPERM, MT_EIO, MT_ENOMEM, MT_EFORMAT (it is no model, or not a valid
 * one), MT_ETRUNCATED, MT_EVERSION (a version of GGUF that is not known), MT_ELIMIT. The error's
 * text names the file and what was expected, its offset the place. */
int mt_model_open(const char *path, const struct mt_model_files *files, struct mt_model **model,
                  struct mt_error *error);

/* Frees a model and all that was borrowed from it. NULL is fine. */
void mt_model_close(struct mt_model *model);

/* Writes the path of the manifest that a name stands for in Ollama's store: "llama3.2:1b",
 * "user/model", "hf.co/user/model:Q4_K_M". `store` is the folder that holds "manifests" and
 * "blobs". Nothing is opened. Any thread. Returns 0, MT_EARG (no such name can be), MT_ELIMIT (it
 * does not fit in `size` bytes). */
int mt_ollama_manifest_path(const char *store, const char *name, char *path, size_t size);

/* Writes what the FROM line of a Modelfile of `length` bytes names: a path or a name. Any thread.
 * Returns 0, MT_ENOTFOUND (there is no such line), MT_EFORMAT (it names nothing, or more than fits
 * in `size` bytes). */
int mt_ollama_modelfile_from(const char *text, size_t length, char *from, size_t size);

/* The description. Borrowed until mt_model_close(). */
const struct mt_model_description *mt_model_describe(const struct mt_model *model);

/* The tensor at `index`, below n_tensors of the description; in file order. Returns 0, MT_EARG. */
int mt_model_tensor_at(const struct mt_model *model, uint64_t index,
                       struct mt_model_tensor *tensor);

/* What the weights of a converted model would be stored as. X(NAME, "name"); "q4_k_m" and its like
 * are the mixtures that llama.cpp's quantiser makes, tensor by tensor. */
#define MT_FILE_TYPE_LIST(X)                                                                       \
    X(F16, "f16")                                                                                  \
    X(F32, "f32")                                                                                  \
    X(BF16, "bf16")                                                                                \
    X(Q8_0, "q8_0")                                                                                \
    X(Q4_0, "q4_0")                                                                                \
    X(Q4_K, "q4_k")                                                                                \
    X(Q4_K_S, "q4_k_s")                                                                            \
    X(Q6_K, "q6_k")                                                                                \
    X(Q4_K_M, "q4_k_m")                                                                            \
    X(Q5_K_M, "q5_k_m")                                                                            \
    X(MXFP4, "mxfp4")

enum mt_file_type {
#define MT_FILE_TYPE_ENUM(NAME, name) MT_FILE_##NAME,
    MT_FILE_TYPE_LIST(MT_FILE_TYPE_ENUM)
#undef MT_FILE_TYPE_ENUM
};

/* The name of a type ("q4_k_m"), "?" for a number outside the list. Borrowed, static. */
const char *mt_file_type_name(enum mt_file_type type);

/* Finds the type called `name`, in any letter case. Errors: MT_ENOTFOUND. */
int mt_file_type_by_name(const char *name, enum mt_file_type *type);

/* Fill it from {0}. */
struct mt_sparse_options {
    const struct mt_model_files *files; /* that the model was opened with; NULL: the local ones */
    enum mt_file_type type; /* of a model that is no GGUF file; others stay as they are */
    int drop_vocabulary;    /* 1: only the number of tokens; the engine starts faster, and takes no
                               text */
};

/* Writes a GGUF file to `path` whose header is the model's and whose weights are a hole: an engine
 * plans memory with it as with the real one, and it takes no room on disk. Of a GGUF model the
 * header is copied, of a split one joined; of any other, where the family is known, it is made as
 * llama.cpp's converter makes it, with a vocabulary of numbered tokens. A regular file of that name
 * is replaced, once the new one is complete; on failure `path` is as it was. `options` may be NULL.
 * Any thread.
 * Errors: MT_EUNSUPPORTED (llama.cpp has no such family, or the converter here does not know it;
 * error->text says what would work), MT_EARG (`path` is there and is no regular file, or is the
 * model itself; a type outside the list), MT_ELIMIT (more than a file can hold), MT_EFORMAT (the
 * files of the model have changed, or their numbers make no model), MT_ENOTFOUND, MT_EPERM, MT_EIO
 * (disk full, file too large for the file system), MT_ENOMEM, and those of the files. */
int mt_model_write_sparse(const struct mt_model *model, const char *path,
                          const struct mt_sparse_options *options, struct mt_error *error);

/* "GGUF", "safetensors", "config.json". Borrowed, static. */
const char *mt_model_format_name(enum mt_model_format format);

/* "global", "sliding", "chunked", "latent", "cross", "none". Borrowed, static. */
const char *mt_attention_name(enum mt_attention attention);

/* "none", "mamba", "mamba2", "delta_net", "kimi_delta", "short_convolution", "rwkv". Borrowed. */
const char *mt_recurrence_name(enum mt_recurrence recurrence);

#ifdef __cplusplus
}
#endif
#endif
