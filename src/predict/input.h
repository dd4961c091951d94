/* SPDX-License-Identifier: MIT */
/* What predictors work on, and the predictors themselves. */
#ifndef MT_PREDICT_INPUT_H
#define MT_PREDICT_INPUT_H

#include <memtally/model_file.h>
#include <stdint.h>

#include "engine/engine.h"

struct mt_predict_settings; /* <memtally/settings.h> */
struct mt_sheet;            /* "predict/sheet.h" */

/* What a predictor works on. Settings are complete: no default is open any more. */
struct mt_predict_input {
    const struct mt_model *model;
    const struct mt_model_description *d;
    const struct mt_predict_settings *settings;
    const struct mt_engine *engine;
};

/* Widens a band of what was fitted or assumed, where the engine's version came after the last one
 * whose memory was read (the key "read_up_to"), by the percent of the key `unread`. Terms with
 * bounds are widened by the key "unread" when they are written; an engine that divides a budget has
 * keys of its own for the parts of it ("unread.activations"). */
void mt_widen_unread(const struct mt_engine *engine, const char *unread, uint64_t *low,
                     uint64_t *high);

/* Refuses drafted tokens of a model that they change nothing of. Errors: MT_EARG. */
int mt_refuse_drafting(const struct mt_model_description *d,
                       const struct mt_predict_settings *settings, struct mt_error *error);

/* The predictors, one for each kind of engine. `settings` of complete() is the caller's copy, whose
 * open fields it fills; it refuses what the engine does not know. */
struct mt_predictor {
    const char *engine;
    int (*complete)(const struct mt_model *model, const struct mt_engine *engine,
                    struct mt_predict_settings *settings, struct mt_error *error);
    int (*predict)(const struct mt_predict_input *input, struct mt_sheet *sheet,
                   struct mt_error *error);
    /* The same of what the engine itself never says: the driver's context, the program's heap. NULL
     * for an engine that cannot be rehearsed. */
    int (*predict_unplanned)(const struct mt_predict_input *input, struct mt_sheet *sheet,
                             struct mt_error *error);
    int counts_encoders; /* also those that only a config.json tells of */
};

extern const struct mt_predictor mt_predict_llama_cpp; /* llama.cpp, ik_llama.cpp, ollama */
extern const struct mt_predictor mt_predict_vllm;
extern const struct mt_predictor mt_predict_sglang;
extern const struct mt_predictor mt_predict_trt_llm;
extern const struct mt_predictor mt_predict_transformers;
extern const struct mt_predictor mt_predict_exllamav3;

#endif
