/* SPDX-License-Identifier: MIT */
/* Putting a model's tensors together from its shapes: the parts of deriving. */
#ifndef MT_MODEL_HF_BUILD_H
#define MT_MODEL_HF_BUILD_H

#include "config.h"
#include "list.h"

enum mt_hf_packing {
    MT_HF_UNPACKED,
    MT_HF_FP8,         /* a scale for each block, row or matrix */
    MT_HF_AWQ,         /* four bits, eight to an integer, with scales and zeros for each group */
    MT_HF_GPTQ,        /* the same, and the group of each column */
    MT_HF_BNB4,        /* bitsandbytes: 64 values to a block */
    MT_HF_INT8,        /* a scale for each row */
    MT_HF_MXFP4,       /* 32 values to a block, a byte of scale each */
    MT_HF_NVFP4,       /* 16 values to a block */
    MT_HF_PACKED_INT4, /* compressed-tensors: packed to integers, a scale for each group */
    MT_HF_FP4_PAIRS    /* two to a byte, a byte of scale for each 32: experts of DeepSeek V4 */
};

/* A pattern of modules' names. Most name a layer, so that only those of the layer at hand and those
 * of none, which come first, need comparing. */
struct mt_hf_skipped {
    const char *pattern;
    uint64_t layer; /* counted from 1; 0: none */
};

struct mt_hf_build {
    struct mt_model *model;
    const struct mt_hf_config *config;
    const struct mt_model_description *description;
    struct mt_st_list *list; /* NULL: parameters are only counted */
    char prefix[48];         /* of the names of the layer at hand */
    enum mt_st_type type;
    enum mt_hf_packing packing;
    enum mt_hf_packing expert_packing;
    unsigned bits;
    uint64_t group;
    uint64_t block_rows; /* of FP8 scales; 0: one for each matrix, 1: one for each row */
    uint64_t block_columns;
    int scale_is_e8m0;
    struct mt_hf_skipped *skipped; /* modules that are not packed, by layer */
    size_t n_skipped;
    uint32_t layer;   /* at hand, or MT_NO_LAYER */
    uint64_t *ratios; /* of the compression of each layer: DeepSeek V4 */
    uint64_t parameters;
    uint64_t offset;
    int code; /* the first failure */
};

/* Reads quantization_config. */
int mt_hf_quantization(struct mt_hf_build *build, struct mt_error *error);

/* Adds a tensor as it is, `n_dims` from the front of `dims`; the row is the last. */
void mt_hf_add(struct mt_hf_build *build, const char *name, enum mt_st_type type,
               const uint64_t *dims, unsigned n_dims);
/* Counts parameters that a packed tensor stands for. */
void mt_hf_count(struct mt_hf_build *build, uint64_t a, uint64_t b, uint64_t c);

/* A vector, and a matrix that is never packed: embeddings, routers, convolutions. */
void mt_hf_vector(struct mt_hf_build *build, const char *name, uint64_t n);
void mt_hf_matrix(struct mt_hf_build *build, const char *name, uint64_t out, uint64_t in);
/* A linear layer, which may be packed; `name` without ".weight". */
void mt_hf_linear(struct mt_hf_build *build, const char *name, uint64_t out, uint64_t in, int bias);
/* The same of all experts of a layer, as one tensor. */
void mt_hf_experts(struct mt_hf_build *build, const char *name, uint64_t n, uint64_t out,
                   uint64_t in);

int mt_hf_trait(const struct mt_hf_build *build, unsigned trait);
/* A norm of the hidden size, with its bias where the family has one. */
void mt_hf_norm(struct mt_hf_build *build, const char *name);

/* Whether query, key and value have biases, the attention's output, the feed-forward; and whether
 * a layer has an indexer of its own. */
int mt_hf_attention_bias(const struct mt_hf_build *build);
int mt_hf_output_bias(const struct mt_hf_build *build);
int mt_hf_mlp_bias(const struct mt_hf_build *build);
int mt_hf_has_indexer(const struct mt_hf_build *build, uint64_t index);

/* What mixes tokens in a layer: attention, recurrence. */
void mt_hf_mixers(struct mt_hf_build *build, const struct mt_model_layer *layer, uint64_t index);

#endif
