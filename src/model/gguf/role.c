/* SPDX-License-Identifier: MIT */
/* What a tensor of a GGUF file is for, by its name. Engines place tensors by the same names. */
#include "model/model.h"

#include <string.h>

/* A name, or the beginning of one where it ends in '*'. */
struct rule {
    const char *name;
    enum mt_tensor_role role;
};

/* The first that fits counts. What is a layer's here goes with the first one. */
static const struct rule rules[] = {
    {"token_embd.*", MT_TENSOR_TOKEN_EMBEDDING},
    {"per_layer_token_embd.*", MT_TENSOR_PER_LAYER_EMBEDDING},
    {"position_embd.*", MT_TENSOR_INPUT},
    {"token_types.*", MT_TENSOR_INPUT},
    {"token_embd_norm.*", MT_TENSOR_LAYER},
    {"rope_freqs.*", MT_TENSOR_LAYER},
    {"rope_factors_*", MT_TENSOR_LAYER},
    {"per_layer_model_proj.*", MT_TENSOR_LAYER},
    {"per_layer_proj_norm.*", MT_TENSOR_LAYER},
    {"mtp.centroids.*", MT_TENSOR_INPUT},
    {"mtp.token_ordering.*", MT_TENSOR_INPUT},
    {"output.weight", MT_TENSOR_OUTPUT},
    {"v.*", MT_TENSOR_PROJECTOR},
    {"a.*", MT_TENSOR_PROJECTOR},
    {"mm.*", MT_TENSOR_PROJECTOR},
    {"mm_*", MT_TENSOR_PROJECTOR},
    {"resampler.*", MT_TENSOR_PROJECTOR},
    {"adapter.*", MT_TENSOR_PROJECTOR},
    {"model.image_newline", MT_TENSOR_PROJECTOR},
};

#define N_RULES (sizeof rules / sizeof *rules)

static int fits(const char *name, size_t length, const char *pattern)
{
    size_t n = strlen(pattern);
    if (pattern[n - 1] == '*')
        return length >= n - 1 && memcmp(name, pattern, n - 1) == 0;
    return length == n && memcmp(name, pattern, n) == 0;
}

/* Reads the number after "blk." and the dot that follows; returns where the rest begins, or 0. */
static size_t read_layer(const char *name, size_t length, uint32_t *layer)
{
    uint32_t number = 0;
    size_t at = 4;
    if (length < 6 || memcmp(name, "blk.", 4) != 0)
        return 0;
    for (; at < length && name[at] >= '0' && name[at] <= '9' && at < 13; at++)
        number = number * 10 + (uint32_t)(name[at] - '0');
    if (at == 4 || at >= length || name[at] != '.')
        return 0;
    *layer = number;
    return at + 1;
}

/* The first word of stacked experts ends in "exps"; very old files have one tensor for each:
 * "ffn_up.7.weight". */
static int is_expert(const char *rest, size_t length)
{
    static const char *const old[] = {"ffn_gate", "ffn_down", "ffn_up"};
    const char *dot = memchr(rest, '.', length);
    size_t word = dot ? (size_t)(dot - rest) : length;
    if (word >= 4 && memcmp(rest + word - 4, "exps", 4) == 0)
        return 1;
    if (word + 1 >= length || rest[word + 1] < '0' || rest[word + 1] > '9')
        return 0;
    for (size_t i = 0; i < sizeof old / sizeof *old; i++)
        if (word == strlen(old[i]) && memcmp(rest, old[i], word) == 0)
            return 1;
    return 0;
}

void mt_tensor_role_of_gguf(const char *name, size_t length, struct mt_model_tensor *tensor)
{
    uint32_t layer;
    size_t rest = read_layer(name, length, &layer);
    tensor->layer = MT_NO_LAYER;
    tensor->role = MT_TENSOR_OUTPUT_OTHER;
    if (rest != 0) {
        tensor->layer = layer;
        tensor->role = is_expert(name + rest, length - rest) ? MT_TENSOR_EXPERTS : MT_TENSOR_LAYER;
        return;
    }
    for (size_t i = 0; i < N_RULES; i++)
        if (fits(name, length, rules[i].name)) {
            tensor->role = rules[i].role;
            if (tensor->role == MT_TENSOR_LAYER)
                tensor->layer = 0;
            return;
        }
}
