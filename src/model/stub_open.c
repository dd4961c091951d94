/* SPDX-License-Identifier: MIT */
/* Stands in until models can be opened. */
#include "model/model.h"

const struct mt_model_description *mt_model_describe(const struct mt_model *model)
{
    return &model->description;
}
