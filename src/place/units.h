/* SPDX-License-Identifier: MIT */
/* A model as a chain of units. */
#ifndef MT_PLACE_UNITS_H
#define MT_PLACE_UNITS_H

#include <memtally/model_file.h>
#include <memtally/place.h>

#include "engine/engine.h"

#define MT_PLACE_NAME_BYTES 32

/* How an engine is told where its layers go; the words of the key "place" of its table. */
enum mt_place_way {
    MT_PLACE_TENSOR_SPLIT, /* llama.cpp: layers in their order, the embedding on the host */
    MT_PLACE_LAYERS,       /* Ollama: how many layers, not which devices */
    MT_PLACE_DEVICE_MAP,   /* transformers: a device for each module */
    MT_PLACE_GPU_SPLIT,    /* exllamav3: gigabytes of each device, filled in order */
    MT_PLACE_STAGES,       /* vLLM, SGLang: a stage of layers for each device */
    MT_PLACE_WAY_COUNT
};

const char *mt_place_way_name(enum mt_place_way way);

/* Errors: MT_EUNSUPPORTED. */
int mt_place_way_of(const struct mt_engine *engine, enum mt_place_way *way, struct mt_error *error);

struct mt_place_units {
    size_t n;
    struct mt_place_unit *units;
    char (*names)[MT_PLACE_NAME_BYTES];
    uint64_t n_layers; /* without those that draft */
    size_t input;      /* of the embedding; SIZE_MAX: on the host. Of stages, each of which has a
                          layer at least, the first layer's and the last one's */
    size_t first;      /* of layer 0 */
    size_t output;     /* of the last unit */
    uint64_t output_bytes; /* of the output's matrix, a part of its unit */
    int output_is_input;
    int experts_are_whole;
};

/* Weights by unit; the cache is for the caller to add. Pins that match no tensor are an error.
 * Errors: MT_EARG, MT_EUNSUPPORTED (no layers are known), MT_ENOMEM. */
int mt_place_units_of(const struct mt_model *model, enum mt_place_way way,
                      const struct mt_place_options *options, struct mt_place_units *units,
                      struct mt_error *error);
void mt_place_units_finish(struct mt_place_units *units);

/* Divides a cache of `bytes` and states of `state_bytes` among the layers that keep them. */
void mt_place_units_add_cache(const struct mt_model_description *d, struct mt_place_units *units,
                              uint64_t tokens, uint64_t bytes, uint64_t state_bytes);

#endif
