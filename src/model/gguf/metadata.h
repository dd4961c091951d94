/* SPDX-License-Identifier: MIT */
/* The pairs of a GGUF header that describe a model of a shape. */
#ifndef MT_MODEL_METADATA_H
#define MT_MODEL_METADATA_H

#include "write.h"

/* Appends the general.* pairs and those of the architecture. */
void mt_metadata_put(struct mt_gguf_header *header, const struct mt_model_shape *full,
                     const struct mt_architecture *architecture, uint64_t file_type);

/* The number of general.file_type for a file of mostly this type. */
uint64_t mt_metadata_file_type(enum mt_weight_type type);

#endif
