/* SPDX-License-Identifier: MIT */
/* How many numbers the encoders have that a config.json describes, about: what all of them consist
 * of is counted, layers of attention with a feed-forward and the matrices into the text model. */
#include <memtally/units.h>

#include "config.h"

#define LAYERS_MAX 4096
#define ITEMS_MAX  64
#define WIDTH_MAX  (UINT64_C(1) << 20)

/* Names of one thing, in the order in which they are asked for. */
static uint64_t entry(const struct mt_hf_config *config, enum mt_hf_field field,
                      const char *const *keys, uint64_t most)
{
    for (; *keys; keys++) {
        const struct mt_hf_value value = mt_hf_entry(config, field, *keys);
        if (value.is_there && value.number != MT_UNKNOWN && value.number <= most)
            return value.number;
    }
    return 0;
}

static int entry_is(const struct mt_hf_config *config, enum mt_hf_field field, const char *key,
                    const char *text)
{
    const struct mt_hf_value value = mt_hf_entry(config, field, key);
    return value.is_there && value.token.type == MT_JSON_STRING && mt_json_is(&value.token, text);
}

static uint64_t items_of(const struct mt_hf_config *config, enum mt_hf_field field, const char *key)
{
    const struct mt_hf_value value = mt_hf_entry(config, field, key);
    uint64_t n = 0;
    if (!value.is_there || value.token.type != MT_JSON_ARRAY)
        return 0;
    for (size_t i = 0; i < value.token.length; i++)
        n += value.token.text[i] == ',';
    return value.token.length > 2 && n < ITEMS_MAX ? n + 1 : 0;
}

static uint64_t encoder(const struct mt_hf_config *config, enum mt_hf_field field,
                        uint64_t embedding)
{
    static const char *const hidden_keys[] = {"embed_dim", "hidden_size", "d_model", "width", NULL};
    static const char *const layer_keys[] = {"depth", "num_hidden_layers", "encoder_layers",
                                             "layers", NULL};
    static const char *const inner_keys[] = {"intermediate_size", "encoder_ffn_dim", NULL};
    static const char *const ratio_keys[] = {"mlp_ratio", NULL};
    static const char *const merge_keys[] = {"spatial_merge_size", NULL};
    uint64_t hidden = entry(config, field, hidden_keys, WIDTH_MAX);
    uint64_t layers = entry(config, field, layer_keys, LAYERS_MAX);
    uint64_t inner = entry(config, field, inner_keys, WIDTH_MAX);
    uint64_t merge = entry(config, field, merge_keys, 16);
    if (!inner)
        inner = hidden * entry(config, field, ratio_keys, 16);
    if (!hidden || !layers || !inner || embedding > WIDTH_MAX)
        return 0;
    int is_gated = entry_is(config, field, "hidden_act", "silu") ||
                   entry_is(config, field, "model_type", "pixtral");
    uint64_t wide = hidden * (merge ? merge * merge : 1);
    uint64_t mergers = 1 + items_of(config, field, "deepstack_visual_indexes");
    return layers * (4 * hidden * hidden + (is_gated ? 3 : 2) * hidden * inner) +
           mergers * wide * (wide + embedding);
}

uint64_t mt_hf_encoder_parameters(const struct mt_hf_config *config, uint64_t embedding)
{
    static const enum mt_hf_field fields[] = {MT_HF_vision_config, MT_HF_audio_config};
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!config->values[fields[i]].is_there)
            continue;
        uint64_t parameters = encoder(config, fields[i], embedding);
        if (!parameters)
            return 0;
        sum += parameters;
    }
    return config->values[MT_HF_talker_config].is_there ? 0 : sum;
}

void mt_hf_vision(const struct mt_hf_config *config, struct mt_model_description *description)
{
    static const char *const layer_keys[] = {"num_hidden_layers", NULL};
    static const char *const width_keys[] = {"hidden_size", NULL};
    description->sees = config->values[MT_HF_vision_config].is_there;
    if (!description->sees)
        return;
    description->vision_layers = entry(config, MT_HF_vision_config, layer_keys, LAYERS_MAX);
    description->vision_width = entry(config, MT_HF_vision_config, width_keys, WIDTH_MAX);
}
