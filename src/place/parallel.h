/* SPDX-License-Identifier: MIT */
/* Tensor and pipeline parallel sizes of engines that know both. */
#ifndef MT_PLACE_PARALLEL_H
#define MT_PLACE_PARALLEL_H

#include <memtally/model_file.h>
#include <memtally/settings.h>

struct mt_place_parallel; /* <memtally/place.h> */

/* The caller frees *ways with free(). Errors: MT_ENOMEM. */
int mt_place_parallel_ways(const struct mt_model *model, const struct mt_predict_settings *settings,
                           struct mt_place_parallel **ways, size_t *n, struct mt_error *error);

#endif
