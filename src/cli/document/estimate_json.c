/* SPDX-License-Identifier: MIT */
/* What only an estimate has, as JSON, and an estimate as CSV. */
#include <memtally/predict.h>
#include <memtally/processor.h>
#include <memtally/provenance.h>
#include <memtally/settings.h>
#include <memtally/tally.h>
#include <memtally/units.h>

#include "cli/document/shell.h"
#include "emit/csv.h"
#include "internal.h"

/* 0 stands for what an engine does not have. */
static void put_if_any(struct mt_json *json, const char *key, uint64_t count)
{
    mt_json_count(json, key, count ? count : MT_UNKNOWN);
}

/* A number of layers, or "all". */
static void put_layers(struct mt_json *json, const char *key, int said, uint64_t layers)
{
    if (said && layers == MT_ALL)
        mt_json_text(json, key, "all");
    else
        mt_json_count(json, key, said ? layers : MT_UNKNOWN);
}

static void put_sizes(struct mt_json *json, const char *key, const uint64_t *sizes, size_t n)
{
    mt_json_begin_array(json, key);
    for (size_t i = 0; sizes && i < n; i++)
        mt_json_count(json, NULL, sizes[i]);
    mt_json_end(json);
}

static void put_placement(const struct mt_predict_settings *settings, struct mt_json *json)
{
    put_layers(json, "gpu_layers", settings->has_gpu_layers || settings->n_devices,
               settings->gpu_layers);
    mt_json_text(json, "split", mt_split_name(settings->split));
    mt_json_begin_array(json, "tensor_split");
    for (size_t i = 0; i < settings->n_tensor_split; i++)
        mt_json_real(json, NULL, settings->tensor_split[i]);
    mt_json_end(json);
    put_layers(json, "cpu_moe_layers", 1, settings->cpu_moe_layers);
    mt_json_begin_array(json, "override_tensor");
    for (size_t i = 0; i < settings->n_overrides; i++) {
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "pattern", settings->overrides[i].pattern);
        mt_json_text(json, "buffer", settings->overrides[i].buffer);
        mt_json_end(json);
    }
    mt_json_end(json);
}

/* The card of each device, and whether only its size says so. */
static void put_cards(const struct mt_predict_settings *settings, struct mt_json *json)
{
    mt_json_begin_array(json, "device_gpus");
    for (size_t i = 0; settings->device_known && i < settings->n_devices; i++) {
        const struct mt_device_known *known = &settings->device_known[i];
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "gpu", known->gpu[0] ? known->gpu : NULL);
        mt_json_bool(json, "by_size", known->is_by_size);
        mt_json_end(json);
    }
    mt_json_end(json);
}

static void put_machine(const struct mt_predict_settings *settings, struct mt_json *json)
{
    mt_json_text(json, "device_kind", settings->device_kind);
    put_sizes(json, "device_bytes", settings->device_bytes, settings->n_devices);
    put_sizes(json, "device_used_bytes", settings->device_used_bytes, settings->n_devices);
    put_cards(settings, json);
    put_if_any(json, "host_bytes", settings->host_bytes);
    mt_json_count(json, "host_used_bytes", settings->host_used_bytes);
}

void cli_json_machine_settings(const struct mt_predict_settings *settings, struct mt_json *json)
{
    mt_json_begin_object(json, "settings");
    mt_json_text(json, "engine", settings->engine);
    put_machine(settings, json);
    mt_json_end(json);
}

void cli_json_estimate_settings(const struct mt_predict_settings *settings, struct mt_json *json)
{
    static const char *const programs[] = {
#define NAME(NAME_, name) name,
        MT_PROGRAM_LIST(NAME)
#undef NAME
    };
    mt_json_begin_object(json, "settings");
    mt_json_text(json, "engine", settings->engine);
    mt_json_text(json, "program", programs[settings->program]);
    put_if_any(json, "context_tokens", settings->context_tokens);
    put_if_any(json, "batch", settings->batch);
    put_if_any(json, "ubatch", settings->ubatch);
    put_if_any(json, "sequences", settings->sequences);
    mt_json_text(json, "kv_type_k", settings->kv_type_k);
    mt_json_text(json, "kv_type_v", settings->kv_type_v);
    mt_json_text(json, "flash_attention", mt_switch_name(settings->flash_attention));
    mt_json_text(json, "kv_unified", mt_switch_name(settings->unified_kv));
    mt_json_bool(json, "swa_full", settings->swa_full);
    mt_json_bool(json, "mmap", settings->mmap != MT_SWITCH_OFF);
    mt_json_bool(json, "repack", settings->repack != MT_SWITCH_OFF);
    mt_json_text(json, "cpu", mt_processor_name(settings->processor));
    mt_json_bool(json, "kv_offload", !settings->kv_on_host);
    mt_json_bool(json, "fusion", settings->fusion != MT_SWITCH_OFF);
    put_placement(settings, json);
    mt_json_count(json, "mla_mode", settings->has_mla_mode ? settings->mla_mode : MT_UNKNOWN);
    put_if_any(json, "attention_max_batch_mib", settings->attn_max_batch_mib);
    put_if_any(json, "draft_tokens", settings->draft_tokens);
    put_if_any(json, "max_concurrency", settings->max_concurrency);
    put_if_any(json, "graph_batch", settings->graph_batch);
    mt_json_bool(json, "graph_padding", settings->graph_padding);
    mt_json_real(json, "memory_share_ratio",
                 settings->memory_share > 0 ? settings->memory_share : -1);
    put_if_any(json, "batched_tokens", settings->batched_tokens);
    put_if_any(json, "tensor_parallel", settings->tensor_parallel);
    put_if_any(json, "pipeline_parallel", settings->pipeline_parallel);
    mt_json_bool(json, "eager", settings->eager);
    mt_json_text(json, "weight_type", settings->weight_type);
    put_machine(settings, json);
    mt_json_end(json);
}

static void put_answer_cards(const struct cli_document_answer *answer, struct mt_json *json)
{
    mt_json_begin_array(json, "cards");
    for (size_t i = 0; i < answer->n_cards; i++) {
        mt_json_begin_object(json, NULL);
        mt_json_count(json, "count", answer->cards[i].n);
        mt_json_text(json, "gpu", answer->cards[i].gpu);
        mt_json_end(json);
    }
    mt_json_end(json);
}

static void put_answer(const struct cli_document_answer *answer, struct mt_json *json)
{
    if (!answer)
        return;
    mt_json_begin_object(json, "answer");
    mt_json_text(json, "goal", answer->goal);
    if (answer->is_size)
        put_if_any(json, "bytes", answer->value);
    else
        put_if_any(json, "value", answer->value);
    mt_json_text(json, "limit", answer->limit);
    if (answer->is_size)
        put_answer_cards(answer, json);
    mt_json_end(json);
}

static void put_pool(const struct mt_estimate_pool *pool, struct mt_json *json)
{
    if (!pool->present) {
        mt_json_null(json, "pool");
        return;
    }
    mt_json_begin_object(json, "pool");
    mt_json_count(json, "requested_bytes", pool->requested_bytes);
    mt_json_count(json, "weights_bytes", pool->weights_bytes);
    mt_json_count(json, "activations_bytes", pool->activations_bytes);
    mt_json_count(json, "other_bytes", pool->other_bytes);
    mt_json_count(json, "graphs_bytes", pool->graphs_bytes);
    mt_json_signed(json, "pool_bytes", pool->pool_bytes);
    mt_json_count(json, "bytes_per_token", pool->bytes_per_token);
    int has_tokens = pool->bytes_per_token != 0;
    mt_json_count(json, "pool_tokens", has_tokens ? pool->pool_tokens : MT_UNKNOWN);
    mt_json_count(json, "pool_tokens_low", has_tokens ? pool->pool_tokens_low : MT_UNKNOWN);
    mt_json_count(json, "pool_tokens_high", has_tokens ? pool->pool_tokens_high : MT_UNKNOWN);
    mt_json_real(json, "concurrency", pool->concurrency);
    mt_json_text(json, "graphs_note", pool->graphs_note);
    mt_json_end(json);
}

static void put_graphs(const struct mt_estimate_graphs *graphs, struct mt_json *json)
{
    if (!graphs->present) {
        mt_json_null(json, "cuda_graphs");
        return;
    }
    mt_json_begin_object(json, "cuda_graphs");
    mt_json_count(json, "num_cuda_graphs", graphs->n);
    mt_json_count(json, "largest_tokens", graphs->largest_tokens);
    mt_json_count(json, "pool_bytes", graphs->pool_bytes);
    mt_json_count(json, "driver_bytes", graphs->driver_bytes);
    mt_json_count(json, "static_bytes", graphs->static_bytes);
    mt_json_begin_array(json, "groups");
    for (size_t i = 0; i < graphs->n_groups; i++) {
        const struct mt_estimate_graph_group *group = &graphs->groups[i];
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "kind", group->kind);
        mt_json_count(json, "draft", group->draft_tokens);
        mt_json_count(json, "count", group->n);
        mt_json_count(json, "least", group->least);
        mt_json_count(json, "largest", group->largest);
        mt_json_end(json);
    }
    mt_json_end(json);
    mt_json_end(json);
}

static void put_terms(const struct mt_estimate *estimate, struct mt_json *json)
{
    mt_json_begin_array(json, "terms");
    for (size_t i = 0; i < estimate->n_terms; i++) {
        const struct mt_estimate_term *term = &estimate->terms[i];
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "place", term->place);
        mt_json_text(json, "category", mt_category_name(term->category));
        mt_json_text(json, "name", term->name);
        mt_json_text(json, "kind", mt_term_kind_name(term->kind));
        mt_json_text(json, "rule", term->rule);
        mt_json_text(json, "source", term->source);
        mt_json_text(json, "formula", term->formula);
        mt_json_count(json, "bytes", term->bytes);
        mt_json_count(json, "low_bytes", term->low_bytes);
        mt_json_count(json, "high_bytes", term->high_bytes);
        mt_json_text(json, "provenance", mt_provenance_name(term->provenance));
        mt_json_end(json);
    }
    mt_json_end(json);
}

void cli_json_estimate(const struct cli_document *document, struct mt_json *json)
{
    const struct mt_estimate *estimate = document->estimate;
    struct mt_strbuf command = {0};
    mt_json_text(json, "verdict", mt_verdict_name(estimate->verdict));
    mt_json_text(json, "reason", estimate->reason);
    put_answer(document->answer, json);
    mt_json_text(json, "flags", estimate->flags);
    cli_put_engine_command(&command, document);
    mt_json_text(json, "command_line", command.length ? mt_strbuf_text(&command) : NULL);
    json->failed |= mt_strbuf_failed(&command);
    mt_strbuf_finish(&command);
    mt_json_real(json, "accuracy_ratio", estimate->accuracy_ratio);
    put_pool(&estimate->pool, json);
    put_graphs(&estimate->graphs, json);
    if (document->explain)
        put_terms(estimate, json);
}

/* A line of the CSV: a row, a part of one, or the total of a place. */
struct line {
    const char *level;
    const char *place;
    const char *category;
    const char *name;
    uint64_t bytes;
    uint64_t low_bytes;
    uint64_t high_bytes;
    uint64_t capacity_bytes;
    const char *provenance;
    const char *rule;
};

static void put_line(const struct cli_document *document, struct mt_csv *csv,
                     const struct line *line)
{
    mt_csv_text(csv, document->tally->model_path);
    mt_csv_text(csv, line->place);
    mt_csv_text(csv, line->level);
    mt_csv_text(csv, line->category);
    mt_csv_text(csv, line->name);
    mt_csv_count(csv, line->bytes);
    mt_csv_count(csv, line->low_bytes);
    mt_csv_count(csv, line->high_bytes);
    mt_csv_count(csv, line->capacity_bytes);
    mt_csv_text(csv, line->provenance);
    mt_csv_text(csv, line->rule);
    mt_csv_end_line(csv);
}

static void put_row(const struct cli_document *document, struct mt_csv *csv,
                    const struct mt_tally_place *place, const struct mt_tally_row *row)
{
    struct line line = {"row",
                        place->place,
                        mt_category_name(row->category),
                        NULL,
                        row->allocated_bytes,
                        row->low_bytes,
                        row->high_bytes,
                        MT_UNKNOWN,
                        mt_provenance_name(row->provenance),
                        NULL};
    put_line(document, csv, &line);
    line.level = "detail";
    for (size_t i = 0; i < row->n_details; i++) {
        const struct mt_tally_detail *detail = &row->details[i];
        line.name = detail->name;
        line.bytes = detail->allocated_bytes;
        line.low_bytes = detail->low_bytes;
        line.high_bytes = detail->high_bytes;
        line.provenance = mt_provenance_name(detail->provenance);
        line.rule = detail->rule;
        put_line(document, csv, &line);
    }
}

void cli_csv_estimate(const struct cli_document *document, struct mt_strbuf *out)
{
    const struct mt_tally *tally = document->tally;
    struct mt_csv csv = {out, 0};
    if (!document->follows_another)
        mt_csv_headings(&csv, "model,place,level,category,name,allocated_bytes,low_bytes,"
                              "high_bytes,capacity_bytes,provenance,rule");
    for (size_t p = 0; p < tally->n_places; p++) {
        const struct mt_tally_place *place = &tally->places[p];
        for (size_t r = 0; r < place->n_rows; r++)
            put_row(document, &csv, place, &place->rows[r]);
        put_line(document, &csv,
                 &(struct line){"total", place->place, NULL, NULL, place->total_allocated_bytes,
                                place->total_low_bytes, place->total_high_bytes,
                                place->capacity_bytes, NULL, NULL});
    }
}
