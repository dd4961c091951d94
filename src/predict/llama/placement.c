/* SPDX-License-Identifier: MIT */
/* Which tensor lies where: the layer's device, unless an override says otherwise. The same
 * decisions as llama.cpp's loader takes. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <memtally/settings.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "internal.h"
#include "predict/sheet.h"

#define NAME_BYTES 512

int mt_llama_buffer_place(const char *buffer, size_t n_devices, int *place)
{
    if (!strcasecmp(buffer, "CPU")) {
        *place = MT_HOST_PLACE;
        return 0;
    }
    const char *digits = buffer;
    while (isalpha((unsigned char)*digits))
        digits++;
    if (!isdigit((unsigned char)*digits) || strlen(digits) > 4)
        return MT_EARG;
    char *end;
    unsigned long number = strtoul(digits, &end, 10);
    if (*end || number >= n_devices)
        return MT_EARG;
    *place = (int)number;
    return 0;
}

static int compile(struct mt_llama_placement *placement, const struct mt_predict_settings *settings,
                   struct mt_error *error)
{
    for (size_t i = 0; i < settings->n_overrides; i++) {
        const struct mt_tensor_override *override = &settings->overrides[i];
        if (mt_llama_buffer_place(override->buffer, settings->n_devices, &placement->places[i]) < 0)
            return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                           "--override-tensor: there is no buffer %.40s; CPU is the nearest",
                           override->buffer);
        if (regcomp(&placement->patterns[i], override->pattern, REG_EXTENDED | REG_NOSUB))
            return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                           "--override-tensor: %.80s is no regular expression", override->pattern);
        placement->n_patterns++;
    }
    return 0;
}

int mt_llama_placement_init(struct mt_llama_placement *placement, const struct mt_llama_plan *plan,
                            struct mt_error *error)
{
    const struct mt_predict_settings *settings = plan->in->settings;
    *placement = (struct mt_llama_placement){.plan = plan};
    if (!settings->n_overrides)
        return 0;
    placement->patterns = calloc(settings->n_overrides, sizeof *placement->patterns);
    placement->places = calloc(settings->n_overrides, sizeof *placement->places);
    int result = placement->patterns && placement->places ? compile(placement, settings, error)
                                                          : mt_out_of_memory(error);
    if (result < 0)
        mt_llama_placement_finish(placement);
    return result;
}

void mt_llama_placement_finish(struct mt_llama_placement *placement)
{
    for (size_t i = 0; i < placement->n_patterns; i++)
        regfree(&placement->patterns[i]);
    free(placement->patterns);
    free(placement->places);
    *placement = (struct mt_llama_placement){0};
}

int mt_llama_is_expert(const struct mt_model_tensor *tensor)
{
    return tensor->role == MT_TENSOR_EXPERTS;
}

static int overridden(const struct mt_llama_placement *placement,
                      const struct mt_model_tensor *tensor, int *place)
{
    char name[NAME_BYTES];
    if (!placement->n_patterns || tensor->name_length >= sizeof name)
        return 0;
    memcpy(name, tensor->name, tensor->name_length);
    name[tensor->name_length] = 0;
    for (size_t i = 0; i < placement->n_patterns; i++)
        if (!regexec(&placement->patterns[i], name, 0, NULL, 0)) {
            *place = placement->places[i];
            return 1;
        }
    return 0;
}

/* What one family calls the norm of its embeddings is that of its output. */
static int is_output_norm(const struct mt_llama_plan *plan, const struct mt_model_tensor *tensor)
{
    static const char name[] = "token_embd_norm.weight";
    const char *architecture = plan->in->d->architecture;
    return tensor->name_length == sizeof name - 1 && !memcmp(tensor->name, name, sizeof name - 1) &&
           architecture && mt_engine_has(plan->in->engine, "weights.norm_last", architecture);
}

int mt_llama_place_of(const struct mt_llama_placement *placement,
                      const struct mt_model_tensor *tensor)
{
    const struct mt_llama_plan *plan = placement->plan;
    int place;
    if (overridden(placement, tensor, &place))
        return place;
    if (is_output_norm(plan, tensor))
        return plan->device_of[plan->n_layers];
    if (tensor->layer != MT_NO_LAYER && tensor->layer < plan->n_layers) {
        int on_host =
            tensor->layer < plan->in->settings->cpu_moe_layers && mt_llama_is_expert(tensor);
        return on_host ? MT_HOST_PLACE : plan->device_of[tensor->layer];
    }
    switch (tensor->role) {
    case MT_TENSOR_OUTPUT:
    case MT_TENSOR_OUTPUT_OTHER:
        return plan->device_of[plan->n_layers];
    default:
        return MT_HOST_PLACE;
    }
}
