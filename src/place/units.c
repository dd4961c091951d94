/* SPDX-License-Identifier: MIT */
/* A model as a chain of units: weights as they are loaded, and the cache that each layer keeps. */
#include "units.h"

#include <inttypes.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/out_of_memory.h"

#define TENSOR_NAME_BYTES 512

/* What the weights of a layer's matrices become; all other weights are loaded in two bytes.
 * Bits of a weight as a fraction. */
struct quantisation {
    const char *name;
    uint64_t bits;
    uint64_t of;
};

/* bitsandbytes: a scale in f32 for each 64 weights, or in 8 bits with another one in f32 for each
 * 256 of these (its functional.py, quantize_4bit); int8 has a scale for each row. */
static const struct quantisation quantisations[] = {
    {.name = "nf4", .bits = 9, .of = 2},
    {.name = "nf4-double", .bits = 2113, .of = 512},
    {.name = "int8", .bits = 8, .of = 1},
};

static const char *const way_names[MT_PLACE_WAY_COUNT] = {
    [MT_PLACE_TENSOR_SPLIT] = "tensor-split",
    [MT_PLACE_LAYERS] = "layers",
    [MT_PLACE_DEVICE_MAP] = "device-map",
    [MT_PLACE_GPU_SPLIT] = "gpu-split",
    [MT_PLACE_STAGES] = "stages",
};

const char *mt_place_way_name(enum mt_place_way way)
{
    return way_names[way];
}

int mt_place_way_of(const struct mt_engine *engine, enum mt_place_way *way, struct mt_error *error)
{
    for (int i = 0; i < MT_PLACE_WAY_COUNT; i++)
        if (mt_engine_has(engine, "place", way_names[i])) {
            *way = (enum mt_place_way)i;
            return 0;
        }
    return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                   "%s takes no placement of layers on devices; --tensor-parallel of 'memtally "
                   "estimate' divides each layer",
                   engine->name);
}

static int is_on_host(enum mt_place_way way)
{
    return way == MT_PLACE_TENSOR_SPLIT || way == MT_PLACE_LAYERS;
}

static int find_quantisation(const char *name, const struct quantisation **found,
                             struct mt_error *error)
{
    *found = NULL;
    for (size_t i = 0; name && i < sizeof quantisations / sizeof *quantisations; i++)
        if (!strcmp(name, quantisations[i].name))
            *found = &quantisations[i];
    return !name || *found ? 0
                           : mt_fail(error, MT_EARG, MT_NO_OFFSET,
                                     "no quantisation is called %.40s; there are nf4, nf4-double "
                                     "and int8",
                                     name);
}

static uint64_t loaded_bytes(const struct mt_model_tensor *tensor,
                             const struct quantisation *quantisation)
{
    int is_of_layer = tensor->role == MT_TENSOR_LAYER || tensor->role == MT_TENSOR_EXPERTS;
    if (!quantisation)
        return tensor->bytes;
    if (tensor->elements > UINT64_MAX / 4096)
        return tensor->bytes;
    return is_of_layer && tensor->n_dims > 1
               ? tensor->elements * quantisation->bits / quantisation->of / 8
               : tensor->elements * 2;
}

static void name_units(const struct mt_model_description *d, struct mt_place_units *units)
{
    for (size_t i = 0; i < units->n; i++) {
        units->units[i] = (struct mt_place_unit){
            .name = units->names[i], .layer = MT_NO_LAYER, .pinned = MT_PLACE_ANY};
        snprintf(units->names[i], MT_PLACE_NAME_BYTES, "%s",
                 i == units->input                               ? "embedding"
                 : i == units->output && !units->output_is_input ? "output"
                                                                 : "norm");
    }
    for (uint64_t l = 0; l < units->n_layers; l++) {
        struct mt_place_unit *unit = &units->units[units->first + l];
        unit->layer = (uint32_t)l;
        unit->experts = (uint32_t)d->layers[l].experts;
        unit->experts_used = (uint32_t)d->layers[l].experts_used;
        snprintf(units->names[units->first + l], MT_PLACE_NAME_BYTES, "layer %" PRIu64, l);
    }
}

/* Where a tensor goes; SIZE_MAX: to no device. */
static size_t unit_of(const struct mt_place_units *units, const struct mt_model_tensor *tensor)
{
    if (tensor->layer != MT_NO_LAYER)
        return tensor->layer < units->n_layers ? units->first + tensor->layer : SIZE_MAX;
    switch (tensor->role) {
    case MT_TENSOR_OUTPUT:
        return units->output;
    case MT_TENSOR_OUTPUT_OTHER:
        return units->first + units->n_layers < units->n ? units->first + units->n_layers
                                                         : units->output;
    case MT_TENSOR_PROJECTOR:
        return SIZE_MAX;
    default:
        return units->input;
    }
}

struct pins {
    const struct mt_place_options *options;
    regex_t *patterns;
    int *hits;
    size_t n;
};

static void pins_finish(struct pins *pins)
{
    for (size_t i = 0; i < pins->n; i++)
        regfree(&pins->patterns[i]);
    free(pins->patterns);
    free(pins->hits);
}

static int pins_init(struct pins *pins, const struct mt_place_options *options,
                     struct mt_error *error)
{
    *pins = (struct pins){.options = options};
    if (!options->n_pins)
        return 0;
    pins->patterns = calloc(options->n_pins, sizeof *pins->patterns);
    pins->hits = calloc(options->n_pins, sizeof *pins->hits);
    if (!pins->patterns || !pins->hits)
        return mt_out_of_memory(error);
    for (; pins->n < options->n_pins; pins->n++)
        if (regcomp(&pins->patterns[pins->n], options->pins[pins->n].pattern,
                    REG_EXTENDED | REG_NOSUB))
            return mt_fail(error, MT_EARG, MT_NO_OFFSET, "%.80s is no regular expression",
                           options->pins[pins->n].pattern);
    return 0;
}

static int pin(struct pins *pins, const struct mt_model_tensor *tensor, struct mt_place_unit *unit,
               struct mt_error *error)
{
    char name[TENSOR_NAME_BYTES];
    snprintf(name, sizeof name, "%.*s", (int)tensor->name_length, tensor->name);
    for (size_t i = 0; i < pins->n; i++) {
        if (regexec(&pins->patterns[i], name, 0, NULL, 0))
            continue;
        int device = (int)pins->options->pins[i].device;
        pins->hits[i] = 1;
        if (unit && unit->pinned != MT_PLACE_ANY && unit->pinned != device)
            return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                           "%s is pinned to device %d and to device %d; a layer lies on one device",
                           unit->name, unit->pinned, device);
        if (unit)
            unit->pinned = device;
    }
    return 0;
}

static int check_hits(const struct pins *pins, struct mt_error *error)
{
    for (size_t i = 0; i < pins->n; i++)
        if (!pins->hits[i])
            return mt_fail(error, MT_EARG, MT_NO_OFFSET, "no tensor's name matches %.80s",
                           pins->options->pins[i].pattern);
    return 0;
}

static int add_tensors(const struct mt_model *model, struct pins *pins,
                       const struct quantisation *quantisation, struct mt_place_units *units,
                       struct mt_error *error)
{
    const struct mt_model_description *d = mt_model_describe(model);
    for (uint64_t i = 0; i < d->n_tensors; i++) {
        struct mt_model_tensor tensor;
        if (mt_model_tensor_at(model, i, &tensor) < 0)
            continue;
        size_t at = unit_of(units, &tensor);
        struct mt_place_unit *unit = at == SIZE_MAX ? NULL : &units->units[at];
        uint64_t bytes = loaded_bytes(&tensor, quantisation);
        int result = pin(pins, &tensor, unit, error);
        if (result)
            return result;
        if (tensor.role == MT_TENSOR_TOKEN_EMBEDDING && d->tied_output && !units->output_is_input)
            units->units[units->output].dense_bytes += bytes;
        units->output_bytes += tensor.role == MT_TENSOR_OUTPUT ? bytes : 0;
        if (!unit)
            continue;
        *(tensor.role == MT_TENSOR_EXPERTS ? &unit->expert_bytes : &unit->dense_bytes) += bytes;
    }
    return check_hits(pins, error);
}

static int allocate(const struct mt_model_description *d, enum mt_place_way way,
                    struct mt_place_units *units, struct mt_error *error)
{
    int is_stages = way == MT_PLACE_STAGES;
    int has_input = !is_on_host(way) && !is_stages;
    int has_norm = way == MT_PLACE_DEVICE_MAP;
    units->n_layers = d->n_layers - d->n_draft_layers;
    if (!units->n_layers)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET, "%s: no layers are known of it",
                       d->path);
    units->output_is_input = d->tied_output && way == MT_PLACE_DEVICE_MAP;
    units->input = has_input || is_stages ? 0 : SIZE_MAX;
    units->first = (size_t)has_input;
    units->n = units->first + units->n_layers + (size_t)!is_stages +
               (size_t)(has_norm && !units->output_is_input);
    units->output = units->n - 1;
    units->units = calloc(units->n, sizeof *units->units);
    units->names = calloc(units->n, sizeof *units->names);
    return units->units && units->names ? 0 : mt_out_of_memory(error);
}

int mt_place_units_of(const struct mt_model *model, enum mt_place_way way,
                      const struct mt_place_options *options, struct mt_place_units *units,
                      struct mt_error *error)
{
    const struct mt_model_description *d = mt_model_describe(model);
    const struct quantisation *quantisation;
    struct pins pins = {0};
    *units = (struct mt_place_units){0};
    int result = find_quantisation(options->quantisation, &quantisation, error);
    if (!result && quantisation && is_on_host(way))
        result = mt_fail(error, MT_EARG, MT_NO_OFFSET,
                         "a GGUF file is quantised already; only engines on PyTorch quantise");
    if (!result)
        result = allocate(d, way, units, error);
    if (!result) {
        name_units(d, units);
        result = pins_init(&pins, options, error);
        if (!result)
            result = add_tensors(model, &pins, quantisation, units, error);
        pins_finish(&pins);
    }
    if (result)
        mt_place_units_finish(units);
    return result;
}

void mt_place_units_finish(struct mt_place_units *units)
{
    free(units->units);
    free(units->names);
    *units = (struct mt_place_units){0};
}

/* ---- the cache ---- */

/* What a layer keeps of a token, in numbers, and of how many of `tokens`. */
static double kept(const struct mt_model_description *d, uint64_t index, uint64_t tokens,
                   double *each)
{
    const struct mt_model_layer *layer = &d->layers[index];
    int is_windowed =
        layer->attention == MT_ATTENTION_SLIDING || layer->attention == MT_ATTENTION_CHUNKED;
    *each = 0;
    if (layer->attention == MT_ATTENTION_NONE || layer->cache_layer != index)
        return 0;
    double width = (double)layer->kv_heads * (double)(layer->key_size + layer->value_size);
    if (is_windowed && layer->window < tokens)
        return width * (double)layer->window;
    *each = width;
    return width * (double)tokens;
}

void mt_place_units_add_cache(const struct mt_model_description *d, struct mt_place_units *units,
                              uint64_t tokens, uint64_t bytes, uint64_t state_bytes)
{
    double all = 0;
    double each;
    uint64_t states = 0;
    for (uint64_t l = 0; l < units->n_layers; l++) {
        all += kept(d, l, tokens, &each);
        states += d->layers[l].recurrence != MT_RECURRENCE_NONE;
    }
    for (uint64_t l = 0; l < units->n_layers; l++) {
        struct mt_place_unit *unit = &units->units[units->first + l];
        double part = kept(d, l, tokens, &each);
        unit->cache_bytes = all > 0 ? (uint64_t)((double)bytes * part / all) : 0;
        unit->token_bytes = all > 0 ? (uint64_t)((double)bytes * each / all) : 0;
        if (states && d->layers[l].recurrence != MT_RECURRENCE_NONE)
            unit->cache_bytes += state_bytes / states;
    }
}
