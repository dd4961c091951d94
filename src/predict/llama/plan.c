/* SPDX-License-Identifier: MIT */
/* The plan of a llama.cpp run: padded counts, and which device each layer is put on. Follows
 * llama.cpp's own arithmetic, single precision included. */
#include <stdlib.h>
#include <string.h>

#include <memtally/settings.h>

#include "base/out_of_memory.h"
#include "gpu/gpus.h"
#include "internal.h"
#include "model/gguf/family.h"
#include "predict/sheet.h"

#define CELL_STEP 256

/* The part of the layers that each device ends at, as the loader works it out. */
static void split_points(const struct mt_predict_settings *s, float *points)
{
    float sum = 0;
    for (size_t i = 0; i < s->n_devices; i++) {
        uint64_t used = s->device_used_bytes ? s->device_used_bytes[i] : 0;
        uint64_t free_bytes = s->device_bytes[i] > used ? s->device_bytes[i] - used : 0;
        float share = (float)free_bytes;
        if (s->n_tensor_split)
            share = i < s->n_tensor_split ? (float)s->tensor_split[i] : 0;
        sum += share;
        points[i] = sum;
    }
    for (size_t i = 0; i < s->n_devices; i++)
        points[i] = sum > 0 ? points[i] / sum : (float)(i + 1) / (float)s->n_devices;
}

/* The first device whose end lies past `at`. */
static int device_at(const float *points, size_t n_devices, float at)
{
    for (size_t i = 0; i < n_devices; i++)
        if (at < points[i])
            return (int)i;
    return (int)n_devices - 1;
}

static void place_layers(struct mt_llama_plan *plan, const float *points, int *device_of)
{
    const struct mt_predict_settings *s = plan->in->settings;
    uint64_t places = plan->n_layers + 1;
    uint64_t on_devices = s->gpu_layers < places ? s->gpu_layers : places;
    if (!s->n_devices)
        on_devices = 0;
    uint64_t start = places - on_devices;
    /* Older versions put the output on a device only after all layers. */
    uint64_t end = places;
    if (start && mt_engine_has(plan->in->engine, "placement.output", "last")) {
        start--;
        end--;
    }
    plan->all_on_devices = s->n_devices && !start && end == places;
    for (uint64_t i = 0; i < places; i++) {
        if (i < start || i >= end)
            device_of[i] = MT_HOST_PLACE;
        else if (s->split == MT_SPLIT_NONE)
            device_of[i] = 0;
        else
            device_of[i] = device_at(points, s->n_devices, (float)(i - start) / (float)on_devices);
    }
    plan->device_of = device_of;
}

static int make_devices(struct mt_llama_plan *plan, struct mt_error *error)
{
    const struct mt_predict_settings *s = plan->in->settings;
    int *device_of = calloc(plan->n_layers + 1, sizeof *device_of);
    float *points = calloc(s->n_devices + 1, sizeof *points);
    if (device_of && points) {
        split_points(s, points);
        place_layers(plan, points, device_of);
        free(points);
        return 0;
    }
    free(points);
    free(device_of);
    return mt_out_of_memory(error);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Context, batches, sequences, cells. */
static void count_cells(struct mt_llama_plan *plan)
{
    const struct mt_predict_settings *s = plan->in->settings;
    const struct mt_engine *engine = plan->in->engine;
    const char *pad_key = plan->flash_attention ? "cache.pad.flash" : "cache.pad.plain";
    uint64_t pad = mt_engine_number(engine, pad_key, CELL_STEP);
    uint64_t context = s->context_tokens;
    if (mt_engine_has(engine, "flag.style", "ollama"))
        context *= s->sequences;
    int unified = s->unified_kv == MT_SWITCH_ON;
    plan->sequences = s->sequences;
    plan->streams = unified ? 1 : s->sequences;
    plan->ubatch = least(s->ubatch, least(s->batch, context));
    plan->cells = mt_llama_padded(context, pad);
    if (!unified)
        plan->cells = mt_llama_padded(plan->cells / s->sequences, pad);
    if (!plan->cells)
        plan->cells = pad;
    plan->context = plan->cells * plan->streams;
}

static int is_windowed(const struct mt_model_layer *layer)
{
    return layer->attention == MT_ATTENTION_SLIDING || layer->attention == MT_ATTENTION_CHUNKED;
}

/* A config.json may have windows that llama.cpp's form of the family has not: Mistral is a llama.
 */
static int knows_windows(const char *architecture)
{
    const struct mt_family *family = architecture ? mt_family_of_gguf(architecture) : NULL;
    return family && family->window != MT_WINDOW_NEVER;
}

static void count_windowed_cells(struct mt_llama_plan *plan)
{
    const struct mt_model_description *d = plan->in->d;
    const struct mt_predict_settings *s = plan->in->settings;
    uint64_t window = 0;
    plan->ignores_windows = !knows_windows(d->architecture);
    for (uint64_t i = 0; i < d->n_layers && !plan->ignores_windows; i++)
        if (is_windowed(&d->layers[i]) && d->layers[i].window > window)
            window = d->layers[i].window;
    if (!window)
        return;
    uint64_t wanted =
        mt_llama_add(mt_llama_times(window, s->sequences / plan->streams), plan->ubatch);
    plan->swa_cells = mt_llama_padded(least(plan->cells, wanted), CELL_STEP);
    if (s->swa_full || !mt_engine_has(plan->in->engine, "cache.windowed", "yes"))
        plan->swa_cells = plan->cells;
}

/* Rows of logits that the graph is reserved for. */
static void count_outputs(struct mt_llama_plan *plan)
{
    const struct mt_predict_settings *s = plan->in->settings;
    plan->output_rows = plan->ubatch;
    if (s->program == MT_PROGRAM_SERVER && !plan->in->d->is_embedder &&
        mt_engine_has(plan->in->engine, "outputs.server", "sequences"))
        plan->output_rows =
            least(plan->ubatch, s->sequences * (1 + least(s->draft_tokens, 1 << 20)));
}

static int has_copies(const struct mt_llama_plan *plan)
{
    const struct mt_predict_settings *s = plan->in->settings;
    return plan->n_devices > 1 && plan->all_on_devices && s->split == MT_SPLIT_LAYER &&
           !s->kv_on_host && !s->n_overrides && !s->cpu_moe_layers &&
           mt_engine_has(plan->in->engine, "pipeline.kinds", s->device_kind);
}

/* Whether any expert of a layer that lies on a device lies elsewhere. */
static int find_experts_on_host(struct mt_llama_plan *plan, struct mt_error *error)
{
    const struct mt_predict_settings *s = plan->in->settings;
    struct mt_llama_placement placement;
    struct mt_model_tensor tensor;
    if (!plan->n_devices || (!s->n_overrides && !s->cpu_moe_layers))
        return 0;
    int result = mt_llama_placement_init(&placement, plan, error);
    if (result < 0)
        return result;
    for (uint64_t i = 0; i < plan->in->d->n_tensors && !plan->experts_on_host; i++)
        if (mt_model_tensor_at(plan->in->model, i, &tensor) == 0 && tensor.layer < plan->n_layers &&
            mt_llama_is_expert(&tensor))
            plan->experts_on_host = plan->device_of[tensor.layer] != MT_HOST_PLACE &&
                                    mt_llama_place_of(&placement, &tensor) == MT_HOST_PLACE;
    mt_llama_placement_finish(&placement);
    return 0;
}

/* The capability of a device's card as ggml counts, 0 where none is known. */
static uint32_t capability_of(const struct mt_predict_settings *settings, size_t device)
{
    const char *kind = settings->device_kind ? settings->device_kind : "cuda";
    struct mt_gpu_row row;
    if (!settings->device_known[device].gpu[0] ||
        mt_gpu_find(settings->device_known[device].gpu, &row, NULL) < 0 ||
        strcmp(kind, row.kind) != 0)
        return 0;
    return row.gpu.capability > MT_GPU_AMD ? row.gpu.capability : row.gpu.capability * 10;
}

static void find_capabilities(struct mt_llama_plan *plan)
{
    const struct mt_predict_settings *s = plan->in->settings;
    for (size_t i = 0; s->device_known && i < plan->n_devices && i < MT_GRAPH_DEVICES_MAX; i++) {
        int is_alike = i && !strcmp(s->device_known[i].gpu, s->device_known[i - 1].gpu);
        plan->capability[i] = is_alike ? plan->capability[i - 1] : capability_of(s, i);
    }
}

int mt_llama_plan_init(struct mt_llama_plan *plan, const struct mt_predict_input *in,
                       struct mt_error *error)
{
    *plan = (struct mt_llama_plan){.in = in,
                                   .n_devices = in->settings->n_devices,
                                   .n_layers = (size_t)in->d->n_layers,
                                   .flash_attention = in->settings->flash_attention == MT_SWITCH_ON,
                                   .type_k = in->settings->kv_type_k,
                                   .type_v = in->settings->kv_type_v,
                                   .copies = 1};
    count_cells(plan);
    count_windowed_cells(plan);
    count_outputs(plan);
    find_capabilities(plan);
    int result = make_devices(plan, error);
    if (result < 0)
        return result;
    if (has_copies(plan))
        plan->copies = mt_engine_number(in->engine, "pipeline.copies", 4);
    result = find_experts_on_host(plan, error);
    if (result < 0)
        mt_llama_plan_finish(plan);
    return result;
}

void mt_llama_plan_finish(struct mt_llama_plan *plan)
{
    free((void *)(uintptr_t)plan->device_of);
    plan->device_of = NULL;
}
