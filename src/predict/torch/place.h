/* SPDX-License-Identifier: MIT */
/* Where whole layers lie when devices hold one part of the model each, one after the other. */
#ifndef MT_PREDICT_TORCH_PLACE_H
#define MT_PREDICT_TORCH_PLACE_H

#include "torch.h"

/* device_of[i] is the device of layer i, MT_HOST_PLACE for the host; entry n_layers is that of the
 * norm and output behind them, `input` that of the embedding. Arrays are of n_layers + 1. */
struct mt_torch_place {
    uint64_t n_layers;
    int *device_of;
    uint64_t *layer_bytes; /* as loaded; entry n_layers: norm and output */
    uint64_t input_bytes;
    int input;
    uint64_t host_layers; /* for which no device had room */
};

/* Divides layers of which each takes layer_bytes[i] and `more[i]`; device d has limits[d] for them.
 * Free with mt_torch_place_finish(). Errors: MT_ENOMEM. */
int mt_torch_place_init(struct mt_torch_place *place, const struct mt_predict_input *in,
                        int float_bytes, struct mt_error *error);
void mt_torch_place_fill(struct mt_torch_place *place, const uint64_t *more, const uint64_t *limits,
                         size_t n_devices);
void mt_torch_place_finish(struct mt_torch_place *place);

#endif
