/* SPDX-License-Identifier: MIT */
/* Copying a model's header with a hole in place of its weights. */
#ifndef MT_MODEL_GGUF_COPY_H
#define MT_MODEL_GGUF_COPY_H

#include <memtally/model_file.h>

#include "model/model.h"
#include "model/out_file.h"

/* Copies the header of a GGUF model into *file and makes the file as long as the model's. */
int mt_gguf_copy_sparse(const struct mt_model *model, const struct mt_sparse_options *options,
                        struct mt_out_file *file, struct mt_error *error);

#endif
