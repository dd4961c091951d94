/* SPDX-License-Identifier: MIT */
/* How often experts are used. */
#ifndef MT_PLACE_TRAFFIC_H
#define MT_PLACE_TRAFFIC_H

#include "units.h"

/* Rows of a problem's expert_use, for the caller to free; NULL where nothing is known. Errors:
 * MT_EARG (an expert that the model does not have), MT_ENOMEM. */
int mt_place_expert_use(const struct mt_place_options *options, const struct mt_place_units *units,
                        double **use, struct mt_error *error);

#endif
