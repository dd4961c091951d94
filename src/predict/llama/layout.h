/* SPDX-License-Identifier: MIT */
/* The layouts that llama.cpp keeps matrices in on the host, by processor. */
#ifndef MT_PREDICT_LLAMA_LAYOUT_H
#define MT_PREDICT_LLAMA_LAYOUT_H

#include <stdint.h>

#include <memtally/model_file.h>
#include <memtally/processor.h>

#include "engine/engine.h"

/* In the order in which the engine asks: the first that takes a tensor has it. */
enum mt_llama_layout_kind {
    MT_LAYOUT_AMX,
    MT_LAYOUT_KLEIDIAI,
    MT_LAYOUT_REPACKED,
    MT_LAYOUT_PLAIN,
    MT_LAYOUT_COUNT = MT_LAYOUT_PLAIN /* of those that are another than the file's */
};

struct mt_llama_layout {
    enum mt_llama_layout_kind kind;
    uint64_t bytes; /* of the tensor in it, without padding */
};

/* The layout of a tensor on the host where the engine is free to choose one. `is_product` says that
 * it is used in a product at all: an embedding is not, its second use as the output is. */
struct mt_llama_layout mt_llama_layout_of(const struct mt_engine *engine,
                                          enum mt_processor processor,
                                          const struct mt_model_tensor *tensor, int is_product);

/* Whether a tensor has two dimensions, those of 1 at the end apart. */
int mt_llama_is_matrix(const struct mt_model_tensor *tensor);

#endif
