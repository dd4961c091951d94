/* SPDX-License-Identifier: MIT */
/* Writing a model's header with a hole in place of its weights: the parts, one for each kind of
 * model. Knows files and their grammar, nothing of engines' memory. */
#ifndef MT_MODEL_SPARSE_H
#define MT_MODEL_SPARSE_H

#include "model/gguf/gguf.h"
#include "model/out_file.h"

/* Copies the header of a GGUF model into *file and makes the file as long as the model's. */
int mt_gguf_copy_sparse(const struct mt_model *model, const struct mt_sparse_options *options,
                        struct mt_out_file *file, struct mt_error *error);

/* The same with other system calls than the real ones, for tests. */
int mt_model_write_sparse_with(const struct mt_out_file_os *os, const struct mt_model *model,
                               const char *path, const struct mt_sparse_options *options,
                               struct mt_error *error);

#endif
