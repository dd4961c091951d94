/* SPDX-License-Identifier: MIT */
/* Writing a sample model with other system calls than the real ones, for tests. */
#ifndef MT_MODEL_SAMPLE_H
#define MT_MODEL_SAMPLE_H

#include "model/out_file.h"

#include <memtally/model.h>
#include <memtally/model_file.h>

#include "model/tensors.h"

int mt_sample_model_write_with(const struct mt_out_file_os *os, const char *path,
                               const struct mt_model_shape *shape,
                               const struct mt_sample_options *options,
                               struct mt_sample_facts *facts, struct mt_error *error);

/* Gives tensors the types of a mixture, and the places that follow from them. Errors: MT_ELIMIT,
 * MT_ENOMEM. */
int mt_sample_mix(const struct mt_model_shape *shape, const struct mt_architecture *architecture,
                  enum mt_file_type type, struct mt_tensor_list *list, struct mt_error *error);

#endif
