/* SPDX-License-Identifier: MIT */
/* transformers. Nothing is planned: weights in one type, a cache that grows by a token at a time,
 * and the tensors that live while the prompt goes through a layer. The terms of the activations are
 * the tensors that were alive at the peak when the models' own code was run without data. */
#include <inttypes.h>
#include <memtally/category.h>
#include <memtally/provenance.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/settings.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "model/families.h"
#include "place.h"
#include "predict/driver.h"
#include "predict/term.h"

#define OPEN_CONTEXT 4096 /* tokens of a text whose length is not said */

/* The run: tokens of a prompt that go through at once, and what each element takes. */
struct run {
    const struct mt_predict_input *in;
    struct mt_torch_place place;
    uint64_t sequences;
    uint64_t prompt;  /* of one sequence */
    uint64_t element; /* bytes */
    int float_bytes;
    uint64_t *cache_bytes; /* of layer i, and 0 behind them */
    uint64_t *state_bytes;
    uint64_t *late_bytes; /* of the prompt, beyond the window, until the next token */
};

static int complete(const struct mt_model *model, const struct mt_engine *engine,
                    struct mt_predict_settings *settings, struct mt_error *error)
{
    const struct mt_model_description *d = mt_model_describe(model);
    struct mt_predict_settings other = *settings;
    other.batch = 0; /* tokens of the prompt at a time: prefill_chunk_size */
    other.n_tensor_split = 0;
    int result = mt_torch_refuse_format(model, engine, error);
    if (result == 0)
        result =
            mt_torch_refuse(model, engine, &other, "prefill_chunk_size, given as --batch", error);
    if (result == 0)
        result = mt_torch_complete_kv_type(engine, settings, error);
    if (result < 0)
        return result;
    if (settings->memory_share != 0)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%s takes no share of a device; the nearest is max_memory", engine->name);
    if (settings->batched_tokens)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%s has no tokens of a step (--batched-tokens); the nearest is "
                       "prefill_chunk_size, given as --batch",
                       engine->name);
    if (settings->tensor_parallel > 1 || settings->pipeline_parallel > 1)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%s is predicted with device_map=\"auto\", not with tensor parallel",
                       engine->name);
    if (settings->n_tensor_split)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%s does not know shares of devices; the nearest is max_memory",
                       engine->name);
    if (!settings
             ->context_tokens) /* the cache grows with the text: nothing is set aside for more */
        settings->context_tokens = d->context_length && d->context_length < OPEN_CONTEXT
                                       ? d->context_length
                                       : OPEN_CONTEXT;
    if (!settings->sequences)
        settings->sequences = 1;
    if (!settings->batch || settings->batch > settings->context_tokens)
        settings->batch = settings->context_tokens;
    if (!settings->weight_type)
        settings->weight_type = mt_engine_has(engine, "dtype", "auto") ? "auto" : "float32";
    settings->tensor_parallel = settings->pipeline_parallel = 1;
    return 0;
}

/* Floats as loaded: "auto" leaves them, also 32 bit ones; a quantised GGUF becomes 32 bit. */
static int float_bytes_of(const struct mt_predict_input *in, int *float_bytes,
                          struct mt_error *error)
{
    int result = mt_torch_float_bytes(in, float_bytes, error);
    if (result < 0)
        return result;
    if (!strcmp(in->settings->weight_type, "auto"))
        *float_bytes = 0;
    return *float_bytes == 1 ? mt_fail(error, MT_EARG, MT_NO_OFFSET,
                                       "transformers has no weight type fp8 to load floats in; the "
                                       "nearest is bfloat16")
                             : 0;
}

static uint64_t element_of(const struct mt_predict_input *in, int float_bytes)
{
    if (float_bytes)
        return (uint64_t)float_bytes;
    return in->d->dtype && !strcmp(in->d->dtype, "f32") ? 4 : 2;
}

/* A token's keys and values in a layer. Latent attention is not kept compressed: every head has its
 * own keys and values. */
static uint64_t token_bytes(const struct run *run, const struct mt_model_layer *layer)
{
    const struct mt_model_description *d = run->in->d;
    if (layer->attention == MT_ATTENTION_NONE || layer->attention == MT_ATTENTION_CROSS)
        return 0;
    if (layer->attention == MT_ATTENTION_LATENT) {
        uint64_t head = d->qk_nope_head_size + d->qk_rope_head_size + d->value_head_size;
        return mt_mul(mt_mul(layer->heads, head), run->element);
    }
    return mt_mul(mt_mul(layer->kv_heads, mt_add(layer->key_size, layer->value_size)),
                  run->element);
}

static void measure_cache(struct run *run)
{
    const struct mt_predict_input *in = run->in;
    uint64_t context = in->settings->context_tokens;
    int drops = mt_engine_has(in->engine, "window", "yes");
    for (uint64_t i = 0; i < run->place.n_layers; i++) {
        const struct mt_model_layer *layer = &in->d->layers[i];
        uint64_t state = mt_torch_state_bytes(in->d, layer, 1, run->element, 4, 1);
        uint64_t token = layer->cache_layer == i ? token_bytes(run, layer) : 0;
        uint64_t kept = context;
        if (drops && layer->attention == MT_ATTENTION_SLIDING && layer->window &&
            context >= layer->window)
            kept = layer->window - 1;
        run->cache_bytes[i] = mt_mul(mt_mul(run->sequences, kept), token);
        run->late_bytes[i] =
            mt_mul(mt_mul(run->sequences, run->prompt > kept ? run->prompt - kept : 0), token);
        run->state_bytes[i] = mt_mul(run->sequences, state);
    }
}

/* What lives beside a layer's own tensors: rotations, positions, and a mask where one is made. */
static uint64_t beside(const struct run *run, int is_eager)
{
    const struct mt_model_description *d = run->in->d;
    uint64_t width = d->qk_rope_head_size;
    uint64_t kinds = mt_is_of_lineage(d->architecture, MT_LINEAGE_GEMMA3) ? 2 : 1;
    int slides = 0;
    for (uint64_t i = 0; i < run->place.n_layers; i++) {
        const struct mt_model_layer *layer = &d->layers[i];
        if (!d->kv_lora_rank && layer->key_size > width)
            width = layer->key_size;
        slides |= layer->attention == MT_ATTENTION_SLIDING && layer->window <= run->prompt;
    }
    uint64_t rotations = mt_mul(mt_mul(kinds * 2 * run->prompt, width), run->element);
    uint64_t square = mt_mul(run->prompt, run->prompt);
    uint64_t mask = is_eager ? mt_mul(square, run->element) : slides ? square : 0;
    return mt_add(mt_add(rotations, mt_mul(run->prompt, 16)), mask);
}

/* Inside attention: scores of every head in the model's type and twice in 32 bit while softmax
 * runs, queries, and keys and values repeated for their heads. Without eager attention no scores
 * are written. */
static uint64_t attention_bytes(const struct run *run, const struct mt_model_layer *layer,
                                uint64_t tokens, int is_eager)
{
    if (layer->attention == MT_ATTENTION_NONE || layer->attention == MT_ATTENTION_CROSS)
        return 0;
    const struct mt_model_description *d = run->in->d;
    uint64_t size = d->kv_lora_rank ? d->qk_nope_head_size + d->qk_rope_head_size : layer->key_size;
    uint64_t heads = mt_mul(mt_mul(layer->heads, size), run->element);
    uint64_t hidden = mt_mul(d->embedding_length, run->element);
    uint64_t rows = mt_mul(tokens, mt_mul(3, mt_add(hidden, heads)));
    if (!is_eager)
        return rows;
    uint64_t scores = mt_mul(mt_mul(tokens, run->in->settings->context_tokens), layer->heads);
    return mt_add(rows, mt_mul(scores, run->element + 8));
}

/* Inside the feed-forward: the stream, its norm, and three times the inner width. */
static uint64_t mlp_bytes(const struct run *run, const struct mt_model_layer *layer,
                          uint64_t tokens)
{
    uint64_t embedding = run->in->d->embedding_length;
    uint64_t width = mt_mul(3, layer->ff_length);
    uint64_t each = mt_add(mt_mul(3, layer->expert_ff_length), embedding);
    uint64_t routed = mt_add(mt_mul(layer->experts_used, each), mt_mul(3, layer->shared_ff_length));
    width = layer->experts && routed > width ? routed : width;
    return mt_mul(tokens, mt_mul(mt_add(width, mt_mul(4, embedding)), run->element));
}

struct peak {
    uint64_t bytes;
    const char *where;
};

static void note_peak(struct peak *peak, uint64_t bytes, const char *where)
{
    if (bytes > peak->bytes)
        *peak = (struct peak){bytes, where};
}

/* The peak on one device, or the host. */
static struct peak activations_on(const struct run *run, int device)
{
    const struct mt_predict_input *in = run->in;
    int is_eager = in->settings->flash_attention == MT_SWITCH_OFF;
    uint64_t tokens = mt_mul(run->sequences, run->prompt);
    struct peak peak = {0, "nothing"};
    for (uint64_t i = 0; i < run->place.n_layers; i++) {
        if (run->place.device_of[i] != device)
            continue;
        note_peak(&peak, mlp_bytes(run, &in->d->layers[i], tokens), "feed-forward");
        note_peak(&peak, attention_bytes(run, &in->d->layers[i], tokens, is_eager), "attention");
    }
    if (peak.bytes)
        peak.bytes = mt_add(peak.bytes, beside(run, is_eager));
    if (run->place.device_of[run->place.n_layers] == device) {
        int all = mt_engine_has(in->engine, "logits", "all");
        uint64_t rows = all ? tokens : run->sequences;
        uint64_t logits = mt_mul(mt_mul(rows, in->d->vocabulary), run->element + (all ? 4 : 0));
        uint64_t hidden = mt_mul(mt_mul(tokens, in->d->embedding_length), run->element);
        note_peak(&peak, mt_add(logits, hidden), "logits");
    }
    return peak;
}

static void add(struct mt_sheet *sheet, int place, enum mt_category category, const char *name,
                const char *rule, uint64_t bytes, const char *formula)
{
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = place,
                                         .category = category,
                                         .name = name,
                                         .rule = rule,
                                         .bytes = bytes,
                                         .provenance = category == MT_CATEGORY_WEIGHTS
                                                           ? MT_PROVENANCE_READ
                                                           : MT_PROVENANCE_DERIVED},
                 "%s", formula);
}

static uint64_t sum_on(const struct run *run, const uint64_t *bytes, int device)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < run->place.n_layers; i++)
        if (run->place.device_of[i] == device)
            sum = mt_add(sum, bytes[i]);
    return sum;
}

static void write_activations(const struct run *run, int place, struct mt_sheet *sheet)
{
    struct peak peak = activations_on(run, place);
    int has_experts = run->in->d->experts > 0;
    uint64_t more = place == MT_HOST_PLACE ? peak.bytes / 4 : peak.bytes / 8 + 20 * MT_MIB;
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = place,
                                         .category = MT_CATEGORY_ACTIVATIONS,
                                         .name = peak.where,
                                         .rule = "activations",
                                         .bytes = peak.bytes,
                                         .low_bytes = has_experts ? peak.bytes / 2 : peak.bytes,
                                         .high_bytes = peak.bytes + (has_experts ? 2 : 1) * more,
                                         .provenance = MT_PROVENANCE_DERIVED},
                 "%" PRIu64 " sequences of %" PRIu64 " tokens, %" PRIu64 " B an element",
                 run->sequences, run->prompt, run->element);
    add(sheet, place, MT_CATEGORY_ACTIVATIONS, "prompt of windowed layers", "kv_cache",
        sum_on(run, run->late_bytes, place), "tokens beyond the window, until the next token");
}

static void write_bounded(const struct run *run, int place, enum mt_category category,
                          const char *rule, const char *low, const char *high,
                          struct mt_sheet *sheet)
{
    uint64_t bytes = mt_engine_number(run->in->engine, rule, 0);
    mt_sheet_add(
        sheet,
        &(struct mt_sheet_term){.place = place,
                                .category = category,
                                .name = rule,
                                .rule = rule,
                                .bytes = bytes,
                                .low_bytes = mt_engine_number(run->in->engine, low, bytes),
                                .high_bytes = mt_engine_number(run->in->engine, high, bytes),
                                .provenance = MT_PROVENANCE_INFERRED},
        "of CUDA and its libraries");
}

static void write_place(const struct run *run, int place, struct mt_sheet *sheet)
{
    uint64_t weights = sum_on(run, run->place.layer_bytes, place);
    if (run->place.device_of[run->place.n_layers] == place)
        weights += run->place.layer_bytes[run->place.n_layers];
    if (run->place.input == place)
        weights += run->place.input_bytes;
    add(sheet, place, MT_CATEGORY_WEIGHTS, "tensors", "weights", weights, "elements * type");
    add(sheet, place, MT_CATEGORY_KV_CACHE, "cache", "kv_cache",
        sum_on(run, run->cache_bytes, place), "sequences * tokens * heads * (key + value) * type");
    add(sheet, place, MT_CATEGORY_RECURRENT_STATE, "states", "kv_cache",
        sum_on(run, run->state_bytes, place), "a state for each sequence");
    write_activations(run, place, sheet);
    if (place == MT_HOST_PLACE)
        return;
    write_bounded(run, place, MT_CATEGORY_WORKSPACE, "workspace", "workspace", "workspace.high",
                  sheet);
    mt_driver_write_torch(run->in, place, sheet);
}

/* device_map="auto": each device gets an equal part, the last one what it can hold; a tenth of each
 * stays free. */
static int divide(struct run *run, struct mt_error *error)
{
    const struct mt_predict_settings *settings = run->in->settings;
    size_t n = settings->n_devices;
    uint64_t *limits = calloc(n + 1, sizeof *limits);
    if (!limits)
        return mt_out_of_memory(error);
    uint64_t all = run->place.input_bytes;
    uint64_t largest = 0;
    for (uint64_t i = 0; i <= run->place.n_layers; i++) {
        all = mt_add(all, run->place.layer_bytes[i]);
        if (i < run->place.n_layers && run->place.layer_bytes[i] > largest)
            largest = run->place.layer_bytes[i];
    }
    double share = mt_engine_real(run->in->engine, "device_share", 0.9);
    for (size_t i = 0; i < n; i++) {
        uint64_t used = settings->device_used_bytes ? settings->device_used_bytes[i] : 0;
        uint64_t capacity = settings->device_bytes[i];
        struct mt_driver driver;
        mt_driver_of_torch(run->in, i, 1, &driver);
        used += driver.band.bytes;
        limits[i] = capacity > used ? mt_scale(capacity - used, share) : 0;
        uint64_t equal = all / n + largest;
        if (i + 1 < n && equal < limits[i])
            limits[i] = equal;
    }
    run->place.input = n && limits[0] >= run->place.input_bytes ? 0 : MT_HOST_PLACE;
    mt_torch_place_fill(&run->place, NULL, limits, n);
    free(limits);
    return 0;
}

static void write_all(struct run *run, struct mt_sheet *sheet)
{
    const struct mt_predict_settings *settings = run->in->settings;
    if (!settings->n_devices || run->place.host_layers || run->place.input == MT_HOST_PLACE)
        write_place(run, MT_HOST_PLACE, sheet);
    for (size_t i = 0; i < settings->n_devices; i++)
        write_place(run, (int)i, sheet);
    if (settings->n_devices && run->place.host_layers)
        mt_sheet_spills(sheet,
                        "device_map=\"auto\" leaves %" PRIu64 " of %" PRIu64
                        " layers and output in host memory",
                        run->place.host_layers, run->place.n_layers + 1);
    if (settings->n_devices)
        mt_sheet_flag(sheet, "device_map=\"auto\"");
    mt_sheet_flag(sheet, "dtype=\"%s\"", mt_torch_dtype_name(settings->weight_type));
    mt_sheet_flag(sheet, "attn_implementation=\"%s\"",
                  settings->flash_attention == MT_SWITCH_OFF ? "eager" : "sdpa");
    if (settings->batch < settings->context_tokens)
        mt_sheet_flag(sheet, "prefill_chunk_size=%" PRIu64, settings->batch);
    if (run->in->d->format == MT_MODEL_GGUF)
        mt_sheet_note(sheet, "transformers turns GGUF into floats when it loads it");
}

static void finish(struct run *run)
{
    free(run->cache_bytes);
    free(run->state_bytes);
    free(run->late_bytes);
    mt_torch_place_finish(&run->place);
}

static int predict(const struct mt_predict_input *in, struct mt_sheet *sheet,
                   struct mt_error *error)
{
    struct run run = {
        .in = in, .sequences = in->settings->sequences, .prompt = in->settings->batch};
    int result = float_bytes_of(in, &run.float_bytes, error);
    if (result == 0)
        result = mt_torch_place_init(&run.place, in, run.float_bytes, error);
    if (result < 0)
        return result;
    run.element = element_of(in, run.float_bytes);
    run.cache_bytes = calloc(run.place.n_layers + 1, sizeof *run.cache_bytes);
    run.state_bytes = calloc(run.place.n_layers + 1, sizeof *run.state_bytes);
    run.late_bytes = calloc(run.place.n_layers + 1, sizeof *run.late_bytes);
    if (!run.cache_bytes || !run.state_bytes || !run.late_bytes)
        result = mt_out_of_memory(error);
    if (result == 0)
        result = divide(&run, error);
    if (result == 0) {
        measure_cache(&run);
        write_all(&run, sheet);
    }
    finish(&run);
    return result;
}

const struct mt_predictor mt_predict_transformers = {"transformers", complete, predict};
