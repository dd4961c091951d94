/* SPDX-License-Identifier: MIT */
/* Reading headers of safetensors files into a list of tensors. */
#ifndef MT_MODEL_SAFETENSORS_H
#define MT_MODEL_SAFETENSORS_H

#include "list.h"

#define MT_ST_HEADER_MAX UINT64_C(100000000) /* says the format */

/* Adds the tensors of file number `file` to the list, and the size of its header. Errors:
 * MT_EFORMAT, MT_ETRUNCATED, MT_ELIMIT, MT_ENOMEM, those of the source. */
int mt_st_read_header(struct mt_st_list *list, const struct mt_model_source *source,
                      const char *path, uint32_t file, uint64_t *header_bytes,
                      struct mt_error *error);

#endif
