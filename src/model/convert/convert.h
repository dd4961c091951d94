/* SPDX-License-Identifier: MIT */
/* From a config.json to the header of a GGUF file, as llama.cpp's own converter would write it. The
 * families are tables: which tensors a layer has, how large they are in terms of the model's
 * numbers, and which keys tell an engine so. Knows the names on both sides, no engine's memory. */
#ifndef MT_MODEL_CONVERT_H
#define MT_MODEL_CONVERT_H

#include "model/gguf/write.h"
#include "model/hf/config.h"
#include "model/out_file.h"
#include "model/tensors.h"

/* The numbers that dimensions and conditions are made of. */
enum mt_convert_value {
#define V(name) MT_V_##name,
#include "values.def"
#undef V
    MT_CONVERT_VALUES
};

/* A tensor of a block. `dims` are expressions with commas between; `when` is one too, "" for
 * always. A name that begins with a dot is within a layer. */
struct mt_convert_tensor {
    const char *block;
    const char *when;
    const char *name;
    const char *dims;
};

enum mt_convert_kind {
    MT_CONVERT_COUNT,       /* an expression; an array where layers differ */
    MT_CONVERT_FLAGS,       /* the same, always an array, of bools */
    MT_CONVERT_TRUNK_FLAGS, /* the same, without draft layers */
    MT_CONVERT_SWITCH,      /* one bool */
    MT_CONVERT_REAL,        /* the name of a real number of values.def */
    MT_CONVERT_TEXT,        /* a text as it stands */
    MT_CONVERT_SECTIONS     /* of positions: numbers that the config may replace */
};

/* A key of a group. */
struct mt_convert_key {
    const char *group;
    const char *when;
    enum mt_convert_kind kind;
    const char *key;
    const char *value;
};

/* A family: what the description calls it, and what llama.cpp does where `when` holds. `tensors`
 * are names of blocks and `keys` names of groups, with blanks between. */
struct mt_convert_family {
    enum mt_arch described_as;
    const char *when;
    enum mt_arch arch;
    int keeps_drafts;    /* layers that predict further tokens are part of the file */
    double rotary_share; /* of a head that turns with the position, where the config is silent */
    const char *tensors;
    const char *keys;
};

/* The tables; each ends in an entry whose first member is NULL, or MT_ARCH_UNKNOWN. */
extern const struct mt_convert_tensor mt_convert_tensors[];
extern const struct mt_convert_key mt_convert_keys[];
extern const struct mt_convert_family mt_convert_families[];

/* One model on its way. */
struct mt_convert {
    const struct mt_model_description *description;
    const struct mt_hf_config *config;
    const struct mt_convert_family *family;
    enum mt_file_type type;
    int drop_vocabulary;
    uint64_t values[MT_CONVERT_VALUES];
    struct mt_tensor *tensors;
    size_t n_tensors;
    size_t capacity;
    struct mt_error *error;
};

/* Sets the numbers of the whole model, and those of one layer. */
void mt_convert_set_model(struct mt_convert *convert);
void mt_convert_set_layer(struct mt_convert *convert, uint64_t layer);

/* The number of that name, or MT_CONVERT_VALUES where there is none. */
enum mt_convert_value mt_convert_value_find(const char *name, size_t length);

/* Evaluates sums and products of names and numbers ("2*inner + rank", "heads*(nope+rope)") up to a
 * comma or the end of the text; *end is there. "" is 1. Errors: MT_ELIMIT (more than 2^64 or less
 * than 0), MT_EFORMAT (not an expression, or a division by 0). */
int mt_convert_evaluate(const char *text, const uint64_t *values, uint64_t *result,
                        const char **end);

/* The real number of that name: as the config says it, or as it is where it does not. Returns 1; 0
 * where the key is better left out; MT_ENOTFOUND where there is no such name. */
int mt_convert_real(const struct mt_convert *convert, const char *name, double *value);

/* An entry of what the config says of rotary positions, wherever it does; absent if nowhere. */
struct mt_hf_value mt_convert_rope_entry(const struct mt_hf_config *config, const char *key);

/* Puts the keys of the family into the header. Errors: MT_ELIMIT, MT_EFORMAT, MT_ENOMEM. */
int mt_convert_put_keys(struct mt_convert *convert, struct mt_gguf_header *header);

/* Chooses the types of tensors that are in the order of llama.cpp's quantiser. */
void mt_convert_choose_types(struct mt_convert *convert);

/* The number of general.file_type. */
uint64_t mt_convert_file_type(enum mt_file_type type);

/* Writes the header that the model's config.json makes into *file, and the hole. */
int mt_convert_sparse(const struct mt_model *model, const struct mt_sparse_options *options,
                      struct mt_out_file *file, struct mt_error *error);

#endif
