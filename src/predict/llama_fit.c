/* SPDX-License-Identifier: MIT */
/* What llama-server makes of settings that were left open where they do not fit: first a smaller
 * context, then experts and layers on the host. Follows the order of llama.cpp's --fit, which is on
 * by default, not each of its steps. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "predict/llama_parts.h"
#include "predict/sheet_parts.h"

#define CONTEXT_STEP 256

struct fitting {
    struct mt_predict_input in;
    struct mt_predict_settings settings;
    uint64_t margin_bytes; /* to stay free on each device */
    struct mt_error *error;
};

static int write_parts(const struct mt_llama_plan *plan, struct mt_sheet *sheet,
                       struct mt_error *error)
{
    int result = mt_llama_parts(plan, sheet, error);
    return result == 0 && sheet->failed ? mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory")
                                        : result;
}

static int has_room(const struct fitting *fitting, const struct mt_sheet *sheet, int device)
{
    const struct mt_predict_settings *s = &fitting->settings;
    uint64_t bytes = fitting->margin_bytes;
    for (size_t i = 0; i < sheet->n_terms; i++)
        if (sheet->terms[i].place == device)
            bytes = mt_llama_add(bytes, sheet->terms[i].term.bytes);
    return mt_llama_add(bytes, s->device_used ? s->device_used[device] : 0) <=
           s->device_bytes[device];
}

/* Whether the settings as they stand fit on every device: 1, 0, or an error. */
static int fits(struct fitting *fitting)
{
    struct mt_llama_plan plan;
    struct mt_sheet sheet = {.engine = fitting->in.engine};
    fitting->in.settings = &fitting->settings;
    int result = mt_llama_plan_init(&plan, &fitting->in, fitting->error);
    if (result < 0)
        return result;
    result = write_parts(&plan, &sheet, fitting->error);
    int fit = 1;
    for (size_t i = 0; i < plan.n_devices; i++)
        fit = fit && has_room(fitting, &sheet, (int)i);
    mt_llama_plan_finish(&plan);
    mt_arena_finish(&sheet.arena);
    return result < 0 ? result : fit;
}

/* Finds the largest value from `least` to below `most` that fits, `most` being known not to; leaves
 * it set. Returns 1, 0 where not even the least fits, which is set then, or an error. */
static int largest(struct fitting *fitting, uint64_t *setting, uint64_t least, uint64_t most,
                   uint64_t step)
{
    *setting = least;
    int fit = fits(fitting);
    if (fit <= 0)
        return fit;
    while (most - least > step) {
        uint64_t middle = least + (most - least) / step / 2 * step;
        *setting = middle;
        fit = fits(fitting);
        if (fit < 0)
            return fit;
        if (fit)
            least = middle;
        else
            most = middle;
    }
    *setting = least;
    return 1;
}

/* The fewest layers whose experts must stay on the host. */
static int fewest_experts(struct fitting *fitting)
{
    uint64_t few = 0;
    uint64_t many = fitting->in.d->n_layers;
    fitting->settings.cpu_moe_layers = many;
    int fit = fits(fitting);
    while (fit > 0 && many - few > 1) {
        uint64_t middle = few + (many - few) / 2;
        fitting->settings.cpu_moe_layers = middle;
        int now = fits(fitting);
        if (now < 0)
            return now;
        if (now)
            many = middle;
        else
            few = middle;
    }
    fitting->settings.cpu_moe_layers = many;
    return fit;
}

static int shrink(struct fitting *fitting, int context_open)
{
    struct mt_predict_settings *s = &fitting->settings;
    uint64_t least = mt_engine_number(fitting->in.engine, "fit.context", 4096);
    int fit = fits(fitting);
    if (fit)
        return fit;
    if (context_open && s->context_tokens > least) {
        fit = largest(fitting, &s->context_tokens, least, s->context_tokens, CONTEXT_STEP);
        if (fit)
            return fit;
    }
    if (fitting->in.d->experts) {
        fit = fewest_experts(fitting);
        if (fit)
            return fit;
    }
    return largest(fitting, &s->gpu_layers, 0, fitting->in.d->n_layers + 1, 1);
}

int mt_llama_fit(const struct mt_model *model, const struct mt_engine *engine,
                 struct mt_predict_settings *settings, int context_open, struct mt_error *error)
{
    struct fitting fitting = {
        .in = {.model = model, .d = mt_model_describe(model), .engine = engine},
        .settings = *settings,
        .margin_bytes = mt_engine_number(engine, "fit.margin", UINT64_C(1) << 30),
        .error = error};
    int result = shrink(&fitting, context_open);
    if (result < 0)
        return result;
    settings->context_tokens = fitting.settings.context_tokens;
    settings->gpu_layers = fitting.settings.gpu_layers;
    settings->cpu_moe_layers = fitting.settings.cpu_moe_layers;
    return 0;
}
