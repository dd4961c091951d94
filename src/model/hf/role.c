/* SPDX-License-Identifier: MIT */
/* What a tensor is for, by its name in the checkpoints of Hugging Face, and sums over tensors. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "config.h"

static int has(const char *name, size_t length, const char *part)
{
    return memmem(name, length, part, strlen(part)) != NULL;
}

static int starts(const char *name, size_t length, const char *part)
{
    return length >= strlen(part) && memcmp(name, part, strlen(part)) == 0;
}

/* The number after ".layers." and the like, MT_NO_LAYER where there is none. */
static uint32_t layer_of(const char *name, size_t length)
{
    static const char *const lists[] = {"layers.", "h.", "layer.", "blocks."};
    const char *end = name + length;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        size_t list_length = strlen(lists[i]);
        const char *at = memmem(name, length, lists[i], list_length);
        if (!at || (at > name && at[-1] != '.'))
            continue;
        uint64_t number = 0;
        const char *digit = at + list_length;
        while (digit < end && *digit >= '0' && *digit <= '9' && number < MT_NO_LAYER / 10 - 1)
            number = number * 10 + (uint64_t)(*digit++ - '0');
        if (digit > at + list_length && digit < end && *digit == '.')
            return (uint32_t)number;
    }
    return MT_NO_LAYER;
}

static int is_encoder(const char *name, size_t length)
{
    static const char *const parts[] = {"vision_tower",   "visual.",      "vision_model",
                                        "audio_tower",    "mm_projector", "multi_modal_projector",
                                        "vision_encoder", "embed_vision", "embed_audio",
                                        "audio_encoder",  "aligner.",     "talker.",
                                        "token2wav.",     "code2wav."};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (has(name, length, parts[i]))
            return 1;
    }
    return 0;
}

static int is_experts(const char *name, size_t length)
{
    return has(name, length, ".experts.") || has(name, length, "moe.input_linear") ||
           has(name, length, "moe.output_linear");
}

static enum mt_tensor_role role_outside(const char *name, size_t length)
{
    if (has(name, length, "embed_tokens_per_layer"))
        return MT_TENSOR_PER_LAYER_EMBEDDING;
    if (has(name, length, "lm_head.weight") || has(name, length, "lm_head.qweight") ||
        has(name, length, "embed_out.weight") || starts(name, length, "output.weight") ||
        starts(name, length, "head.weight"))
        return MT_TENSOR_OUTPUT;
    if (has(name, length, "embed_tokens") || has(name, length, "word_embeddings.") ||
        has(name, length, "wte.") || has(name, length, "embeddings.weight") ||
        has(name, length, "tok_embeddings") || has(name, length, "embed_in.") ||
        has(name, length, "embed.weight"))
        return MT_TENSOR_TOKEN_EMBEDDING;
    if (has(name, length, "embed") || has(name, length, "wpe.") ||
        has(name, length, "per_layer_model_projection") ||
        has(name, length, "per_layer_projection_norm") || has(name, length, "altup_projections"))
        return MT_TENSOR_INPUT;
    return MT_TENSOR_OUTPUT_OTHER;
}

void mt_tensor_role_of_hf(const char *name, size_t length, struct mt_model_tensor *tensor)
{
    static const char usual[] = "model.layers."; /* the language model of most checkpoints */
    tensor->layer = MT_NO_LAYER;
    if (!starts(name, length, usual) && is_encoder(name, length)) {
        tensor->role = MT_TENSOR_PROJECTOR;
        return;
    }
    tensor->layer = layer_of(name, length);
    if (tensor->layer == MT_NO_LAYER)
        tensor->role = role_outside(name, length);
    else
        tensor->role = is_experts(name, length) ? MT_TENSOR_EXPERTS : MT_TENSOR_LAYER;
}

/* Bytes by type; the types are few and their names are borrowed, so that pointers tell them
 * apart. */
struct type_sums {
    const char *names[64];
    uint64_t bytes[64];
    size_t n;
};

static void add_type(struct type_sums *sums, const char *name, uint64_t bytes)
{
    size_t i = 0;
    while (i < sums->n && sums->names[i] != name)
        i++;
    if (i == sizeof sums->names / sizeof *sums->names)
        return;
    sums->names[i] = name;
    sums->bytes[i] += bytes;
    sums->n += i == sums->n;
}

static const char *largest_type(const struct type_sums *sums)
{
    size_t largest = 0;
    for (size_t i = 1; i < sums->n; i++) {
        if (sums->bytes[i] > sums->bytes[largest])
            largest = i;
    }
    return sums->n ? sums->names[largest] : NULL;
}

/* Draft layers of some families have names of their own ("mtp.layers.0."), past the model's. */
static uint32_t layer_in_model(const struct mt_model_description *description,
                               const struct mt_model_tensor *tensor)
{
    uint64_t own = description->n_layers - description->n_draft_layers;
    if (tensor->layer != MT_NO_LAYER && starts(tensor->name, tensor->name_length, "mtp."))
        return (uint32_t)(own + tensor->layer);
    return tensor->layer;
}

static int add_tensor(struct mt_model_description *description, struct mt_model_layer *layers,
                      const struct mt_model_tensor *tensor, uint64_t *elements)
{
    uint32_t layer = layer_in_model(description, tensor);
    if (__builtin_add_overflow(description->weight_bytes, tensor->bytes,
                               &description->weight_bytes) ||
        __builtin_add_overflow(*elements, tensor->elements, elements))
        return MT_ELIMIT;
    if (layer < description->n_layers) {
        layers[layer].weight_bytes += tensor->bytes;
        if (tensor->role == MT_TENSOR_EXPERTS)
            layers[layer].expert_bytes += tensor->bytes;
    }
    return 0;
}

int mt_hf_sum(struct mt_model *model, struct mt_error *error)
{
    struct mt_model_description *description = &model->description;
    struct mt_model_layer *layers = (struct mt_model_layer *)description->layers;
    struct type_sums sums = {.n = 0};
    uint64_t elements = 0;
    description->weight_bytes = 0;
    for (uint64_t i = 0; i < description->n_tensors; i++) {
        struct mt_model_tensor tensor;
        model->tensor_at(model, i, &tensor);
        if (add_tensor(description, layers, &tensor, &elements))
            return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET,
                           "%s: the tensors have more than 2^64 bytes or elements together",
                           description->path);
        add_type(&sums, tensor.type, tensor.bytes);
    }
    if (!description->parameters)
        description->parameters = elements;
    description->dtype = largest_type(&sums);
    return 0;
}
