/* SPDX-License-Identifier: MIT */
/* The sections of a document that carry the field names of LLM profilers.
 *
 * Their figures are in GB of 10^9 bytes. What is in the total and is neither weights, KV cache nor
 * activations is "framework overhead" there, so that the four add up to the total. */
#include <memtally/tally.h>
#include <string.h>

#include <memtally/units.h>

#include "internal.h"

static double gb(uint64_t bytes)
{
    return bytes == MT_UNKNOWN ? -1 : (double)bytes / 1e9;
}

static int is_gpu(const struct mt_tally_place *place)
{
    return strncmp(place->place, "gpu:", 4) == 0;
}

/* What a row takes: what is there in a measurement, what will be asked for in an estimate. */
static uint64_t bytes_of_row(const struct mt_tally *tally, const struct mt_tally_row *row)
{
    return tally->kind == MT_TALLY_MEASUREMENT ? row->resident_bytes : row->allocated_bytes;
}

/* A category without a row takes nothing. */
static uint64_t bytes_of(const struct mt_tally *tally, enum mt_category category)
{
    uint64_t sum = 0;
    for (size_t p = 0; p < tally->n_places; p++)
        for (size_t r = 0; r < tally->places[p].n_rows; r++)
            if (tally->places[p].rows[r].category == category)
                sum = cli_sum(sum, bytes_of_row(tally, &tally->places[p].rows[r]));
    return sum;
}

static uint64_t total_of_place(const struct mt_tally *tally, const struct mt_tally_place *place)
{
    uint64_t sum = 0;
    if (tally->kind == MT_TALLY_MEASUREMENT)
        return place->total_resident_bytes;
    for (size_t r = 0; r < place->n_rows; r++)
        sum = cli_sum(sum, place->rows[r].allocated_bytes);
    return sum;
}

static void put_breakdown(struct mt_json *json, const struct mt_tally *tally)
{
    uint64_t weights = bytes_of(tally, MT_CATEGORY_WEIGHTS);
    uint64_t kv_cache = bytes_of(tally, MT_CATEGORY_KV_CACHE);
    uint64_t activations = bytes_of(tally, MT_CATEGORY_ACTIVATIONS);
    uint64_t named = cli_sum(cli_sum(weights, kv_cache), activations);
    uint64_t total = 0;
    for (size_t p = 0; p < tally->n_places; p++)
        total = cli_sum(total, total_of_place(tally, &tally->places[p]));
    int known = total != MT_UNKNOWN && named <= total;
    mt_json_begin_object(json, "memory_breakdown");
    mt_json_real(json, "model_weights_gb", gb(weights));
    mt_json_real(json, "kv_cache_gb", gb(kv_cache));
    mt_json_real(json, "activations_gb", gb(activations));
    mt_json_real(json, "framework_overhead_gb", known ? gb(total - named) : -1);
    mt_json_real(json, "total_gb", gb(total));
    mt_json_end(json);
}

static void put_device_map(struct mt_json *json, const json_t *device_map)
{
    const char *module;
    json_t *device;
    if (!device_map) {
        mt_json_null(json, "hf_device_map");
        return;
    }
    mt_json_begin_object(json, "hf_device_map");
    json_object_foreach((json_t *)(uintptr_t)device_map, module, device)
        mt_json_text(json, module, json_string_value(device));
    mt_json_end(json);
}

/* Their sequences include the prompt. */
static void put_model_info(struct mt_json *json, const struct cli_document *document)
{
    const struct cli_document_model *model = document->model;
    const struct cli_document_settings *settings = document->settings;
    uint64_t prompt = settings ? settings->prompt_tokens : MT_UNKNOWN;
    uint64_t length = cli_sum(prompt, settings ? settings->generated_tokens : MT_UNKNOWN);
    const char *name = model ? model->name : NULL;
    mt_json_begin_object(json, "model_info");
    mt_json_text(json, "model_name", name ? name : document->tally->model_path);
    mt_json_text(json, "dtype", model ? model->dtype : NULL);
    mt_json_count(json, "num_parameters", model ? model->parameters : MT_UNKNOWN);
    mt_json_count(json, "prompt_length", prompt);
    mt_json_count(json, "generated_length", length);
    mt_json_count(json, "total_sequence_length", length);
    mt_json_count(json, "batch_size", document->n_runs ? document->runs[0].batch_size : MT_UNKNOWN);
    put_device_map(json, model ? model->device_map : NULL);
    mt_json_end(json);
}

/* What the devices hold of a category: together, and the one that holds most. */
struct held {
    uint64_t sum;
    uint64_t most;
    size_t n; /* that hold any */
};

static struct held held_of(const struct mt_tally *tally, enum mt_category category)
{
    struct held held = {0};
    for (size_t p = 0; p < tally->n_places; p++) {
        const struct mt_tally_place *place = &tally->places[p];
        const struct mt_tally_row *row = is_gpu(place) ? mt_tally_row_of(place, category) : NULL;
        uint64_t bytes = row ? bytes_of_row(tally, row) : 0;
        held.sum = cli_sum(held.sum, bytes);
        held.n += bytes > 0;
        if (bytes > held.most)
            held.most = bytes;
    }
    return held;
}

/* What the devices hold beyond one copy of the model on one of them: replicas of weights, buffers
 * for communication, and all contexts but the largest. */
static uint64_t beyond_one_copy(const struct cli_document *document)
{
    const struct mt_tally *tally = document->tally;
    uint64_t one_copy = document->model ? document->model->weight_bytes : MT_UNKNOWN;
    struct held contexts = held_of(tally, MT_CATEGORY_CONTEXT);
    struct held weights = held_of(tally, MT_CATEGORY_WEIGHTS);
    uint64_t sum = held_of(tally, MT_CATEGORY_COMMUNICATION).sum;
    if (contexts.sum != MT_UNKNOWN)
        sum = cli_sum(sum, contexts.sum - contexts.most);
    if (weights.n > 1 && weights.sum != MT_UNKNOWN && weights.sum > one_copy)
        sum = cli_sum(sum, weights.sum - one_copy);
    return sum;
}

int cli_document_is_on_one_device(const struct cli_document *document)
{
    return held_of(document->tally, MT_CATEGORY_WEIGHTS).n == 1 && beyond_one_copy(document) == 0;
}

static void put_gpu_info(struct mt_json *json, const struct cli_document *document)
{
    const struct mt_tally *tally = document->tally;
    uint64_t n_gpus = 0;
    mt_json_begin_object(json, "gpu_info");
    mt_json_begin_array(json, "gpu_memory_per_device");
    for (size_t p = 0; p < tally->n_places; p++) {
        const struct mt_tally_place *place = &tally->places[p];
        if (!is_gpu(place))
            continue;
        n_gpus++;
        mt_json_real(json, NULL, gb(total_of_place(tally, place)));
    }
    mt_json_end(json);
    mt_json_count(json, "num_gpus", n_gpus);
    mt_json_real(json, "multi_gpu_overhead_gb", gb(beyond_one_copy(document)));
    mt_json_end(json);
}

void cli_json_profiler_sections(const struct cli_document *document, struct mt_json *json)
{
    put_breakdown(json, document->tally);
    put_model_info(json, document);
    put_gpu_info(json, document);
}
