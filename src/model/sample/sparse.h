/* SPDX-License-Identifier: MIT */
/* Writing a model's header with a hole in place of its weights. Knows files, nothing of engines'
 * memory. */
#ifndef MT_MODEL_SPARSE_H
#define MT_MODEL_SPARSE_H

#include <memtally/model_file.h>

#include "model/out_file.h"

/* mt_model_write_sparse() with other system calls than the real ones, for tests. */
int mt_model_write_sparse_with(const struct mt_out_file_os *os, const struct mt_model *model,
                               const char *path, const struct mt_sparse_options *options,
                               struct mt_error *error);

#endif
