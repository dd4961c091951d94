/* SPDX-License-Identifier: MIT */
/* Settings of the engines on PyTorch: what they do not know is refused with what comes nearest. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <memtally/settings.h>
#include <memtally/units.h>

#include "base/error.h"
#include "torch.h"

static int has_key(const struct mt_engine *engine, const char *key)
{
    struct mt_engine_value value;
    return mt_engine_value(engine, key, &value) == 0;
}

int mt_torch_refuse(const struct mt_model *model, const struct mt_engine *engine,
                    const struct mt_predict_settings *settings, const char *batch_name,
                    struct mt_error *error)
{
    const struct {
        int is_set;
        const char *flag;
        const char *nearest;
    } unknown[] = {
        {settings->has_gpu_layers, "a number of layers on the device (--gpu-layers)",
         "a share of the device's memory"},
        {settings->split != MT_SPLIT_LAYER, "a split mode (--split)",
         "tensor or pipeline parallel"},
        {settings->n_tensor_split > 0, "shares of devices (--tensor-split)",
         "tensor or pipeline parallel"},
        {settings->cpu_moe_layers > 0, "experts on the host (--cpu-moe)", "expert parallel"},
        {settings->n_overrides > 0, "places of tensors (--override-tensor)",
         "tensor or pipeline parallel"},
        {settings->swa_full, "whole caches of windowed layers (--swa-full)",
         "a hybrid cache that is switched off"},
        {settings->unified_kv != MT_SWITCH_AUTO, "one cache or several (--kv-unified)",
         "leaving it out"},
        {settings->mmap == MT_SWITCH_OFF, "weights that are not mapped (--no-mmap)",
         "leaving it out"},
        {settings->repack == MT_SWITCH_OFF, "weights in another layout (--no-repack)",
         "leaving it out"},
        {settings->mla_mode && settings->mla_mode != MT_UNKNOWN, "a mode of attention (-mla)",
         "leaving it out"},
        {settings->program != MT_PROGRAM_SERVER, "programs of llama.cpp (--program)",
         "leaving it out"},
        {settings->fusion == MT_SWITCH_OFF, "a switch of fused operations (--no-fusion)",
         "leaving it out"},
        {settings->kv_on_host, "a cache on the host (--no-kv-offload)", "an 8 bit cache"},
        {settings->batch > 0, "a --batch", batch_name},
        {settings->ubatch > 0, "a --ubatch", batch_name},
        {settings->max_concurrency > 0 && !mt_engine_has(engine, "graphs.draft", "concurrency"),
         "a concurrency up to which it drafts (--max-concurrency)", "leaving it out"},
        {settings->graph_padding && !has_key(engine, "graphs.sizes.padded"),
         "batches that are padded for graphs (--graph-padding)", "leaving it out"},
        {settings->graph_batch > 0 && !has_key(engine, "graphs.rule"),
         "a largest batch with a graph (--graph-batch)", "leaving it out"},
        {settings->attn_max_batch_mib > 0, "a limit of the attention's scratch (-amb)", batch_name},
    };
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        if (unknown[i].is_set)
            return mt_fail(error, MT_EARG, MT_NO_OFFSET, "%s does not know %s; the nearest is %s",
                           engine->name, unknown[i].flag, unknown[i].nearest);
    if (settings->max_concurrency && !settings->draft_tokens)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "--max-concurrency bounds the requests that are drafted for: it needs "
                       "--draft-tokens");
    int changes_graphs = has_key(engine, "graphs.draft") && !settings->eager;
    return changes_graphs ? 0 : mt_refuse_drafting(mt_model_describe(model), settings, error);
}

int mt_torch_refuse_format(const struct mt_model *model, const struct mt_engine *engine,
                           struct mt_error *error)
{
    const struct mt_model_description *d = mt_model_describe(model);
    int is_gguf = d->format == MT_MODEL_GGUF;
    if (is_gguf && !mt_engine_has(engine, "formats", "gguf"))
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "%s %s does not load GGUF; give it the model's folder with config.json and "
                       "safetensors",
                       engine->name, engine->version_text);
    if (d->is_projector)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "%s does not run an image encoder alone", engine->name);
    return 0;
}

int mt_torch_complete_parallel(const struct mt_model *model, const struct mt_engine *engine,
                               struct mt_predict_settings *settings, struct mt_error *error)
{
    const struct mt_model_description *d = mt_model_describe(model);
    uint64_t tensor = settings->tensor_parallel ? settings->tensor_parallel : 1;
    uint64_t pipeline = settings->pipeline_parallel ? settings->pipeline_parallel : 1;
    if (!settings->n_devices)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%s takes its share of a device's memory: give --device", engine->name);
    if (tensor > settings->n_devices || pipeline > settings->n_devices / tensor)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "tensor parallel %" PRIu64 " and pipeline parallel %" PRIu64 " need %" PRIu64
                       " devices, %zu are given",
                       tensor, pipeline, mt_mul(tensor, pipeline), settings->n_devices);
    if (d->heads && d->heads % tensor)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%s cannot divide %" PRIu64 " heads by tensor parallel %" PRIu64,
                       engine->name, d->heads, tensor);
    if (d->n_layers && pipeline > d->n_layers)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "pipeline parallel %" PRIu64 " is more than the %" PRIu64 " layers",
                       pipeline, d->n_layers);
    for (size_t i = 0; i < settings->n_devices; i++)
        if (settings->device_bytes[i] >= MT_FAR)
            return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "device %zu is larger than any", i);
    settings->tensor_parallel = tensor;
    settings->pipeline_parallel = pipeline;
    return 0;
}

const char *mt_torch_idle_devices(const struct mt_predict_input *in, char text[MT_IDLE_TEXT])
{
    const struct mt_predict_settings *settings = in->settings;
    uint64_t used = settings->tensor_parallel * settings->pipeline_parallel;
    uint64_t tensor = settings->n_devices / settings->pipeline_parallel;
    while (tensor > settings->tensor_parallel && in->d->heads % tensor)
        tensor--;
    text[0] = '\0';
    if (tensor <= settings->tensor_parallel)
        return text;
    uint64_t then = tensor * settings->pipeline_parallel;
    int length = used == 1 ? snprintf(text, MT_IDLE_TEXT, ", on one device")
                           : snprintf(text, MT_IDLE_TEXT, ", on %" PRIu64 " devices", used);
    snprintf(text + length, MT_IDLE_TEXT - (size_t)length,
             "; --tensor-parallel %" PRIu64 " would use %s%" PRIu64, tensor,
             then == settings->n_devices ? "all " : "", then);
    return text;
}

/* The first word of a key's value. */
static void first_word(const struct mt_engine_value *value, char *word, size_t size)
{
    size_t length = 0;
    while (length < value->length && value->text[length] != ' ' && length + 1 < size)
        length++;
    memcpy(word, value->text, length);
    word[length] = 0;
}

/* What comes nearest to a type of another engine. */
static const char *nearest_type(const struct mt_engine *engine, const char *type)
{
    static const char *const candidates[] = {"fp8", "q8", "int8"};
    if (!strcmp(type, "f32") || !strcmp(type, "float32"))
        return "auto";
    if (type[0] == 'q' && strchr("23456", type[1]) && mt_engine_has(engine, "kv_types", "q4"))
        return "q4";
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++)
        if (mt_engine_has(engine, "kv_types", candidates[i]))
            return candidates[i];
    return "auto";
}

static const char *known_type(const struct mt_engine *engine, const char *type)
{
    const struct mt_torch_cell *cell = mt_torch_cell_of(type);
    return cell && mt_engine_has(engine, "kv_types", cell->name) ? cell->name : NULL;
}

static int refuse_type(const struct mt_engine *engine, const char *type, struct mt_error *error)
{
    return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                   "%s %s has no KV cache type %.40s; the nearest is %s", engine->name,
                   engine->version_text, type, nearest_type(engine, type));
}

int mt_torch_complete_kv_type(const struct mt_engine *engine, struct mt_predict_settings *settings,
                              struct mt_error *error)
{
    struct mt_engine_value value;
    char standard[MT_ENGINE_NAME_BYTES] = "auto";
    if (mt_engine_value(engine, "kv_types", &value) == 0)
        first_word(&value, standard, sizeof standard);
    const char *k = settings->kv_type_k ? settings->kv_type_k : settings->kv_type_v;
    const char *v = settings->kv_type_v ? settings->kv_type_v : k;
    k = k ? k : standard;
    v = v ? v : standard;
    const char *known_k = known_type(engine, k);
    const char *known_v = known_type(engine, v);
    if (!known_k || !known_v)
        return refuse_type(engine, known_k ? v : k, error);
    if (known_k != known_v && !mt_engine_has(engine, "kv_types", "differ"))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%s stores keys and values in one type, not in %s and %s", engine->name,
                       known_k, known_v);
    settings->kv_type_k = known_k;
    settings->kv_type_v = known_v;
    return 0;
}

int mt_torch_begin(const struct mt_model *model, const struct mt_engine *engine,
                   struct mt_predict_settings *settings, const char *batch_name,
                   uint64_t fallback_context, struct mt_error *error)
{
    const struct mt_model_description *d = mt_model_describe(model);
    int result = mt_torch_refuse_format(model, engine, error);
    if (result == 0)
        result = mt_torch_refuse(model, engine, settings, batch_name, error);
    if (result == 0)
        result = mt_torch_complete_parallel(model, engine, settings, error);
    if (result == 0)
        result = mt_torch_complete_kv_type(engine, settings, error);
    if (result == 0 && !settings->context_tokens)
        settings->context_tokens = d->context_length ? d->context_length : fallback_context;
    return result;
}
