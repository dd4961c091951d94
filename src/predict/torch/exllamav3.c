/* SPDX-License-Identifier: MIT */
/* exllamav3. The cache is allocated whole for all layers, whatever their window, and recurrent
 * states in 32 bit with a history for drafted tokens. Devices are filled one after the other. */
#include <inttypes.h>
#include <memtally/category.h>
#include <memtally/provenance.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/settings.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "place.h"
#include "predict/driver.h"
#include "predict/term.h"

static int complete(const struct mt_model *model, const struct mt_engine *engine,
                    struct mt_predict_settings *settings, struct mt_error *error)
{
    const struct mt_model_description *d = mt_model_describe(model);
    int result = mt_torch_refuse_format(model, engine, error);
    if (result == 0)
        result = mt_torch_refuse(model, engine, settings, "chunk_size", error);
    if (result == 0)
        result = mt_torch_complete_kv_type(engine, settings, error);
    if (result < 0)
        return result;
    if (!settings->n_devices)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "%s runs on devices alone: give --device",
                       engine->name);
    if (settings->memory_share != 0)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%s takes no share of a device; the nearest is gpu_split", engine->name);
    if (settings->weight_type && strcmp(settings->weight_type, "auto"))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%s loads weights as they are; quantise them before", engine->name);
    if (settings->tensor_parallel > 1 || settings->pipeline_parallel > 1)
        return mt_fail(
            error, MT_EARG, MT_NO_OFFSET,
            "%s is predicted with devices filled in their order, not with tensor parallel",
            engine->name);
    if (!settings->context_tokens)
        settings->context_tokens = d->context_length ? d->context_length : 4096;
    uint64_t page = mt_engine_number(engine, "kv_cache", 256);
    settings->context_tokens = mt_mul(mt_ceil_div(settings->context_tokens, page), page);
    if (!settings->sequences)
        settings->sequences = 1;
    if (!settings->batched_tokens)
        settings->batched_tokens = mt_engine_number(engine, "batched_tokens", 2048);
    settings->tensor_parallel = settings->pipeline_parallel = 1;
    return 0;
}

/* Keys and values of a layer for all tokens; K and V may have types of their own. */
static uint64_t cache_bytes(const struct mt_predict_input *in, uint64_t i)
{
    struct mt_model_layer key = in->d->layers[i];
    struct mt_model_layer value = key;
    if (key.cache_layer != i)
        return 0;
    key.value_size = value.key_size = 0;
    uint64_t token = mt_torch_token_bytes(&key, mt_torch_cell_of(in->settings->kv_type_k), 1) +
                     mt_torch_token_bytes(&value, mt_torch_cell_of(in->settings->kv_type_v), 1);
    return mt_mul(token, in->settings->context_tokens);
}

static uint64_t state_bytes(const struct mt_predict_input *in, uint64_t i)
{
    uint64_t element = mt_engine_number(in->engine, "recurrent_state", 4);
    uint64_t one = mt_torch_state_bytes(in->d, &in->d->layers[i], 1, element, element, 0);
    return mt_mul(mt_mul(one, in->settings->sequences), 1 + in->settings->draft_tokens);
}

struct totals {
    uint64_t weights;
    uint64_t cache;
    uint64_t state;
};

static void write_place(const struct mt_predict_input *in, int place, const struct totals *totals,
                        int is_last, struct mt_sheet *sheet)
{
    const struct mt_predict_settings *settings = in->settings;
    struct mt_sheet_term term = {.place = place,
                                 .category = MT_CATEGORY_WEIGHTS,
                                 .name = "tensors",
                                 .rule = "weights",
                                 .bytes = totals->weights,
                                 .provenance = MT_PROVENANCE_READ};
    mt_sheet_add(sheet, &term, "tensors as the file has them");
    if (place == MT_HOST_PLACE)
        return;
    term = (struct mt_sheet_term){.place = place,
                                  .category = MT_CATEGORY_KV_CACHE,
                                  .name = "cache",
                                  .rule = "kv_cache",
                                  .bytes = totals->cache,
                                  .provenance = MT_PROVENANCE_DERIVED};
    mt_sheet_add(sheet, &term, "%" PRIu64 " tokens of all layers, K %s, V %s",
                 settings->context_tokens, settings->kv_type_k, settings->kv_type_v);
    term.category = MT_CATEGORY_RECURRENT_STATE;
    term.name = "states";
    term.rule = "recurrent_state";
    term.bytes = totals->state;
    mt_sheet_add(sheet, &term, "%" PRIu64 " sequences * (1 + %" PRIu64 " drafted)",
                 settings->sequences, settings->draft_tokens);
    struct mt_torch_stage all = {.end = in->d->n_layers};
    struct mt_torch_forward forward;
    mt_torch_forward_of(in, &all, settings->batched_tokens, &forward);
    uint64_t logits = is_last ? mt_mul(in->d->vocabulary, 8 * settings->sequences) : 0;
    uint64_t high = mt_engine_number(in->engine, "activations.high", 0) / 4;
    term = (struct mt_sheet_term){.place = place,
                                  .category = MT_CATEGORY_ACTIVATIONS,
                                  .name = "a chunk's forward pass",
                                  .rule = "activations",
                                  .bytes = forward.bytes + logits,
                                  .low_bytes = forward.bytes / 2,
                                  .high_bytes = 2 * (forward.bytes + logits) + high,
                                  .provenance = MT_PROVENANCE_INFERRED};
    mt_sheet_add(sheet, &term, "%" PRIu64 " tokens at a time", settings->batched_tokens);
    mt_driver_write_torch(in, place, sheet);
}

static void gather(const struct mt_predict_input *in, const struct mt_torch_place *place,
                   int device, struct totals *totals)
{
    *totals = (struct totals){0};
    if (place->input == device)
        totals->weights = place->input_bytes;
    for (uint64_t i = 0; i <= place->n_layers; i++) {
        if (place->device_of[i] != device)
            continue;
        totals->weights += place->layer_bytes[i];
        if (i < place->n_layers) {
            totals->cache = mt_add(totals->cache, cache_bytes(in, i));
            totals->state = mt_add(totals->state, state_bytes(in, i));
        }
    }
}

/* What each device has for layers and their caches. */
static int divide(const struct mt_predict_input *in, struct mt_torch_place *place,
                  struct mt_error *error)
{
    const struct mt_predict_settings *settings = in->settings;
    struct mt_torch_stage all = {.end = in->d->n_layers};
    struct mt_torch_forward forward;
    mt_torch_forward_of(in, &all, settings->batched_tokens, &forward);
    uint64_t *limits = calloc(settings->n_devices, sizeof *limits);
    uint64_t *more = calloc(place->n_layers + 1, sizeof *more);
    for (size_t i = 0; limits && i < settings->n_devices; i++) {
        struct mt_driver driver;
        mt_driver_of_torch(in, i, 1, &driver);
        uint64_t taken = forward.bytes + driver.band.bytes +
                         mt_engine_number(in->engine, "device_reserve", 0) +
                         (settings->device_used_bytes ? settings->device_used_bytes[i] : 0);
        limits[i] = settings->device_bytes[i] > taken ? settings->device_bytes[i] - taken : 0;
    }
    for (uint64_t i = 0; more && i < place->n_layers; i++)
        more[i] = mt_add(cache_bytes(in, i), state_bytes(in, i));
    if (limits && more)
        mt_torch_place_fill(place, more, limits, settings->n_devices);
    int failed = !limits || !more;
    free(limits);
    free(more);
    return failed ? mt_out_of_memory(error) : 0;
}

/* Layers for which no device had room are counted on the last one: nothing can go to the host. */
static void keep_on_devices(const struct mt_predict_input *in, struct mt_torch_place *place,
                            struct mt_sheet *sheet)
{
    if (!place->host_layers)
        return;
    mt_sheet_cannot(
        sheet,
        "%" PRIu64 " of %" PRIu64
        " layers and output fit on no device with their cache; exllamav3 cannot put them "
        "into host memory",
        place->host_layers, place->n_layers + 1);
    for (uint64_t i = 0; i <= place->n_layers; i++)
        if (place->device_of[i] == MT_HOST_PLACE)
            place->device_of[i] = (int)in->settings->n_devices - 1;
}

static void write_flags(const struct mt_predict_input *in, struct mt_sheet *sheet)
{
    const struct mt_predict_settings *settings = in->settings;
    mt_sheet_flag(sheet, "--max-seq-len %" PRIu64, settings->context_tokens);
    mt_sheet_flag(sheet, "--cache-size %" PRIu64, settings->context_tokens);
    if (settings->kv_type_k[0] == 'q')
        mt_sheet_flag(sheet, "--cache-mode %s,%s", settings->kv_type_k + 1,
                      settings->kv_type_v[0] == 'q' ? settings->kv_type_v + 1 : "8");
    else
        mt_sheet_flag(sheet, "--cache-mode FP16");
    mt_sheet_flag(sheet, "--chunk-size %" PRIu64, settings->batched_tokens);
}

static int predict(const struct mt_predict_input *in, struct mt_sheet *sheet,
                   struct mt_error *error)
{
    struct mt_torch_place place;
    struct totals totals;
    int result = mt_torch_place_init(&place, in, 0, error);
    if (result < 0)
        return result;
    place.input = MT_HOST_PLACE;
    result = divide(in, &place, error);
    if (result == 0) {
        keep_on_devices(in, &place, sheet);
        gather(in, &place, MT_HOST_PLACE, &totals);
        write_place(in, MT_HOST_PLACE, &totals, 0, sheet);
        for (size_t i = 0; i < in->settings->n_devices; i++) {
            gather(in, &place, (int)i, &totals);
            write_place(in, (int)i, &totals, place.device_of[place.n_layers] == (int)i, sheet);
        }
        write_flags(in, sheet);
    }
    mt_torch_place_finish(&place);
    return result;
}

const struct mt_predictor mt_predict_exllamav3 = {"exllamav3", complete, predict};
