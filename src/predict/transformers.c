/* SPDX-License-Identifier: MIT */
/* The prediction of transformers. */
#include "base/error.h"
#include "predict/sheet.h"

static int complete(const struct mt_model *model, const struct mt_engine *engine,
                    struct mt_predict_settings *settings, struct mt_error *error)
{
    (void)model;
    (void)settings;
    return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET, "%s cannot be predicted yet",
                   engine->name);
}

static int predict(const struct mt_predict_input *input, struct mt_sheet *sheet,
                   struct mt_error *error)
{
    (void)sheet;
    return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET, "%s cannot be predicted yet",
                   input->engine->name);
}

const struct mt_predictor mt_predict_transformers = {"transformers", complete, predict};
