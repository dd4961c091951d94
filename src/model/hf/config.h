/* SPDX-License-Identifier: MIT */
/* The parts of reading a config.json: its fields, the families, the layers and tensors that follow
 * from them. Private to the readers of Hugging Face's formats. */
#ifndef MT_MODEL_HF_CONFIG_H
#define MT_MODEL_HF_CONFIG_H

#include "model/families.h"
#include "model/json_reader.h"
#include "model/model.h"

#define MT_HF_CONFIG_BYTES_MAX (UINT64_C(16) << 20)
#define MT_HF_LAYERS_MAX       4096
#define MT_HF_NUMBER_MAX       (UINT64_C(1) << 40)

enum mt_hf_field {
#define X(field) MT_HF_##field,
#include "fields.def"
#undef X
    MT_HF_FIELDS
};

/* A field's value. A whole number has `number`, so have true (1) and false (0); any other value has
 * MT_UNKNOWN there. A null is not there, and keeps a default from taking its place. */
struct mt_hf_value {
    int is_there;
    int is_null;
    uint64_t number;
    struct mt_json_token token;
};

/* What tells a family's layers and tensors from llama's. */
enum mt_hf_trait {
    MT_HF_QKV_BIAS = 1 << 0,          /* biases on query, key and value, whatever the config says */
    MT_HF_NO_OUTPUT_BIAS = 1 << 1,    /* attention_bias does not hold for the output projection */
    MT_HF_QK_NORM = 1 << 2,           /* norms of query and key, of one head's size */
    MT_HF_QK_NORM_WIDE = 1 << 3,      /* the same, of all heads' size */
    MT_HF_NORM_BIAS = 1 << 4,         /* norms have biases too */
    MT_HF_PLAIN_MLP = 1 << 5,         /* two matrices, no gate */
    MT_HF_ALL_BIAS = 1 << 6,          /* every linear layer has a bias */
    MT_HF_SINKS = 1 << 7,             /* an attention sink for each head */
    MT_HF_GATED_QUERY = 1 << 8,       /* the query projection gives a gate as well */
    MT_HF_ROUTER_BIAS = 1 << 9,       /* a correction for each expert */
    MT_HF_SHARED_GATE = 1 << 10,      /* the shared expert has a gate */
    MT_HF_POSITIONS = 1 << 11,        /* learned positions */
    MT_HF_EMBEDDER = 1 << 12,         /* no output matrix; norms of the embedding */
    MT_HF_FIRST_IS_GLOBAL = 1 << 13,  /* of a period the first layer is global, not the last */
    MT_HF_CHUNKED = 1 << 14,          /* local layers attend to chunks */
    MT_HF_WINDOW_SWITCH = 1 << 15,    /* use_sliding_window decides */
    MT_HF_LINEAR_ATTENTION = 1 << 16, /* gated delta net */
    MT_HF_MAMBA = 1 << 17,
    MT_HF_MAMBA2 = 1 << 18,
    MT_HF_KIMI_DELTA = 1 << 19,
    MT_HF_SHORT_CONVOLUTION = 1 << 20,
    MT_HF_BOTH = 1 << 21,      /* every layer has attention and recurrence */
    MT_HF_ONE_MIXER = 1 << 22, /* a layer is attention, recurrence, or feed-forward alone */
    MT_HF_GEMMA3N = 1 << 23,
    MT_HF_GEMMA4 = 1 << 24,
    MT_HF_DEEPSEEK4 = 1 << 25,
    MT_HF_EXPERT_BIAS = 1 << 26,    /* experts and router have biases */
    MT_HF_OUTPUT_BIAS = 1 << 27,    /* the output matrix has a bias */
    MT_HF_MAMBA_NORMS = 1 << 28,    /* norms of the step and of both projections of the state */
    MT_HF_EMBEDDING_NORM = 1 << 30, /* the embedding is normalised, though it is no embedder */
    MT_HF_DRAFT_HEAD = 1 << 29,     /* draft layers bring embeddings and an output matrix along */
};

#define MT_HF_BARE_MAMBA_NORMS (1u << 31) /* such norms without weights */

struct mt_hf_default {
    enum mt_hf_field field;
    uint64_t number;
};

/* A family. `norms` of the hidden size lie in each layer; of `period` layers the last is global and
 * the others are local; with 1 all are local, with 0 none. `defaults` end in a field MT_HF_FIELDS.
 */
struct mt_hf_family {
    const char *model_type;
    enum mt_arch arch;
    unsigned norms;
    unsigned period;
    unsigned traits;
    const struct mt_hf_default *defaults;
};

/* The family of a model_type, or NULL. Borrowed, static. */
const struct mt_hf_family *mt_hf_family_find(const char *model_type, size_t length);
/* The one that unknown model types are taken for. */
const struct mt_hf_family *mt_hf_family_llama(void);

struct mt_hf_config {
    const char *path;
    const char *text;
    const struct mt_hf_family *family;
    struct mt_hf_value values[MT_HF_FIELDS];
};

/* Frees a config and its text. NULL is fine. */
void mt_hf_config_free(struct mt_hf_config *config);

/* Takes the fields of the object that `text` is, over those that are there. Errors: MT_EFORMAT. */
int mt_hf_config_scan(struct mt_hf_config *config, const char *text, size_t length,
                      uint64_t base_offset, struct mt_error *error);

/* A field's number, or `otherwise` where the field is absent or no whole number. */
uint64_t mt_hf_number(const struct mt_hf_config *config, enum mt_hf_field field,
                      uint64_t otherwise);
/* The first of several names that is there, 0 if none is. */
uint64_t mt_hf_first(const struct mt_hf_config *config, const enum mt_hf_field *fields, size_t n);
#define MT_HF_FIRST(config, ...)                                                                   \
    mt_hf_first((config), (const enum mt_hf_field[]){__VA_ARGS__},                                 \
                sizeof((const enum mt_hf_field[]){__VA_ARGS__}) / sizeof(enum mt_hf_field))
int mt_hf_is(const struct mt_hf_config *config, enum mt_hf_field field, const char *text);
/* How many bytes of a string a note shows: no more than 60, and no character cut. */
int mt_hf_shown_length(const struct mt_json_token *token);
/* The entry of an object that is a field's value, or an absent value. */
struct mt_hf_value mt_hf_entry(const struct mt_hf_config *config, enum mt_hf_field field,
                               const char *key);

/* Calls `each` for every value of a field that is an array, until it returns other than 0. Values
 * that are arrays or objects are given whole. */
int mt_hf_each(const struct mt_hf_config *config, enum mt_hf_field field,
               int (*each)(void *to, size_t index, const struct mt_json_token *value), void *to);

/* Numbers in the encoders that the config describes, of a text model of that width; 0 where it does
 * not say what one of them consists of. About: within a tenth where their feed-forwards are known.
 */
uint64_t mt_hf_encoder_parameters(const struct mt_hf_config *config, uint64_t embedding);

/* What the config says of an encoder of pictures. */
void mt_hf_vision(const struct mt_hf_config *config, struct mt_model_description *description);

/* Fails because of a field, at its place. */
int mt_hf_fail(const struct mt_hf_config *config, enum mt_hf_field field, int code,
               const char *what, struct mt_error *error);

/* Makes the layers and the other numbers of model->description. Errors: MT_EFORMAT, MT_ELIMIT,
 * MT_ENOMEM. */
int mt_hf_describe(struct mt_model *model, const struct mt_hf_config *config,
                   struct mt_error *error);

/* Derives the tensors from the description. Where `only_count` is set the tensors that the model
 * has stay, and only the parameters are counted. */
int mt_hf_derive(struct mt_model *model, const struct mt_hf_config *config, int only_count,
                 struct mt_error *error);

/* Sums up the tensors into the description: bytes of the model, of the layers, the usual type. */
int mt_hf_sum(struct mt_model *model, struct mt_error *error);

/* Reads safetensors that lie beside `path` (a config.json), if there are any. *found says so. */
int mt_safetensors_beside(struct mt_model *model, const struct mt_model_files *files,
                          const char *path, int *found, struct mt_error *error);

/* Reads a whole file of at most `limit` bytes into *text, which the caller frees. */
int mt_hf_read_text(const struct mt_model_source *source, const char *path, uint64_t limit,
                    char **text, size_t *length, struct mt_error *error);

/* Reads `length` bytes of JSON at `offset` into *text, which the caller frees. A zero byte among
 * them is MT_EFORMAT. */
int mt_hf_read_span(const struct mt_model_source *source, const char *path, uint64_t offset,
                    size_t length, char **text, struct mt_error *error);

/* `name` in the folder of `path`; allocated in the arena, NULL without memory. */
const char *mt_hf_sibling(struct mt_arena *arena, const char *path, const char *name);

#endif
