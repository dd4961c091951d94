/* SPDX-License-Identifier: MIT */
/* A document as JSON, schema "memtally/1": keys may be added and are never renamed. */

#include "internal.h"

#include <memtally/predict.h>
#include <memtally/provenance.h>
#include <memtally/recording.h>
#include <memtally/tally.h>
#include <memtally/units.h>

static void put_detail(struct mt_json *json, const struct mt_tally_detail *detail)
{
    mt_json_begin_object(json, NULL);
    mt_json_text(json, "name", detail->name);
    mt_json_count(json, "allocated_bytes", detail->allocated_bytes);
    mt_json_count(json, "resident_bytes", detail->resident_bytes);
    mt_json_count(json, "count", detail->count);
    mt_json_text(json, "provenance", mt_provenance_name(detail->provenance));
    if (detail->rule) {
        mt_json_text(json, "kind", mt_term_kind_name(detail->kind));
        mt_json_text(json, "rule", detail->rule);
        mt_json_count(json, "low_bytes", detail->low_bytes);
        mt_json_count(json, "high_bytes", detail->high_bytes);
    }
    mt_json_end(json);
}

static void put_row(struct mt_json *json, const struct mt_tally_row *row)
{
    mt_json_begin_object(json, NULL);
    mt_json_text(json, "category", mt_category_name(row->category));
    mt_json_count(json, "allocated_bytes", row->allocated_bytes);
    mt_json_count(json, "resident_bytes", row->resident_bytes);
    mt_json_count(json, "low_bytes", row->low_bytes);
    mt_json_count(json, "high_bytes", row->high_bytes);
    mt_json_count(json, "count", row->count);
    mt_json_text(json, "provenance", cli_row_provenance(row));
    mt_json_begin_array(json, "detail");
    for (size_t i = 0; i < row->n_details; i++)
        put_detail(json, &row->details[i]);
    mt_json_end(json);
    mt_json_end(json);
}

static void put_place(struct mt_json *json, const struct mt_tally_place *place,
                      enum mt_tally_kind kind)
{
    mt_json_begin_object(json, NULL);
    mt_json_text(json, "place", place->place);
    if (place->uuid) {
        mt_json_text(json, "name", place->device_name);
        mt_json_text(json, "uuid", place->uuid);
    }
    if (kind == MT_TALLY_ESTIMATE) {
        mt_json_count(json, "total_allocated_bytes", place->total_allocated_bytes);
        mt_json_count(json, "total_low_bytes", place->total_low_bytes);
        mt_json_count(json, "total_high_bytes", place->total_high_bytes);
    }
    mt_json_count(json, "total_resident_bytes", place->total_resident_bytes);
    mt_json_count(json, "peak_resident_bytes", place->peak_resident_bytes);
    mt_json_count(json, "capacity_bytes", place->capacity_bytes);
    if (place->uuid)
        mt_json_count(json, "others_bytes", place->others_bytes);
    mt_json_begin_array(json, "rows");
    for (size_t i = 0; i < place->n_rows; i++)
        put_row(json, &place->rows[i]);
    mt_json_end(json);
    mt_json_count(json, "unattributed_bytes", place->unattributed_bytes);
    if (place->skew_known)
        mt_json_signed(json, "picture_skew_bytes", place->picture_skew_bytes);
    else
        mt_json_null(json, "picture_skew_bytes");
    mt_json_end(json);
}

static void put_places(struct mt_json *json, const struct mt_tally_place *places, size_t n,
                       enum mt_tally_kind kind)
{
    mt_json_begin_array(json, "places");
    for (size_t i = 0; i < n; i++)
        put_place(json, &places[i], kind);
    mt_json_end(json);
}

static void put_process(struct mt_json *json, const struct mt_tally_process *process,
                        int lived_at_moment)
{
    mt_json_begin_object(json, NULL);
    mt_json_count(json, "pid", process->pid);
    mt_json_count(json, "parent_pid", process->parent_pid);
    mt_json_text(json, "command", process->command);
    mt_json_text(json, "end", process->end);
    mt_json_text(json, "observed", process->observed);
    mt_json_text(json, "observed_reason", process->observed_reason);
    mt_json_bool(json, "lived_at_moment", lived_at_moment);
    mt_json_bool(json, "carried", process->is_carried);
    mt_json_count(json, "start_ns", process->start_ns);
    mt_json_count(json, "end_ns", process->end_ns);
    mt_json_count(json, "picture_time_ns", process->picture_time_ns);
    mt_json_count(json, "peak_resident_bytes", process->peak_resident_bytes);
    mt_json_count(json, "peak_caught_bytes", process->peak_caught_bytes);
    mt_json_count(json, "pictures_taken", process->pictures_taken);
    mt_json_count(json, "pictures_skipped", process->pictures_skipped);
    mt_json_count(json, "swap_bytes", process->swap_bytes);
    put_places(json, process->places, process->n_places, MT_TALLY_MEASUREMENT);
    mt_json_end(json);
}

static void put_engine(struct mt_json *json, const struct cli_document *document)
{
    const struct cli_document_engine *engine = document->engine;
    mt_json_begin_object(json, "engine");
    mt_json_text(json, "name", engine ? engine->name : document->tally->engine_name);
    mt_json_text(json, "version", engine ? engine->version : document->tally->engine_version);
    mt_json_text(json, "path", engine ? engine->path : NULL);
    /* In a measurement no table of rules of an engine version has a part. */
    mt_json_text(json, "table", document->estimate ? document->tally->engine_name : NULL);
    mt_json_end(json);
}

static void put_model(struct mt_json *json, const struct cli_document *document)
{
    const struct cli_document_model *model = document->model;
    mt_json_begin_object(json, "model");
    mt_json_text(json, "path", model ? model->path : document->tally->model_path);
    mt_json_text(json, "name", model ? model->name : NULL);
    mt_json_text(json, "architecture", model ? model->architecture : NULL);
    mt_json_text(json, "dtype", model ? model->dtype : NULL);
    mt_json_count(json, "parameters", model ? model->parameters : MT_UNKNOWN);
    mt_json_count(json, "weight_bytes", model ? model->weight_bytes : MT_UNKNOWN);
    mt_json_count(json, "layers", model ? model->layers : MT_UNKNOWN);
    mt_json_count(json, "trained_context_tokens",
                  model ? model->trained_context_tokens : MT_UNKNOWN);
    mt_json_end(json);
}

static void put_settings(struct mt_json *json, const struct cli_document *document)
{
    static const struct cli_document_settings unknown = CLI_SETTINGS_UNKNOWN;
    const struct cli_document_settings *settings =
        document->settings ? document->settings : &unknown;
    mt_json_begin_object(json, "settings");
    mt_json_count(json, "context_tokens", settings->context_tokens);
    mt_json_count(json, "batch", settings->batch);
    mt_json_count(json, "ubatch", settings->ubatch);
    mt_json_count(json, "sequences", settings->sequences);
    mt_json_count(json, "threads", settings->threads);
    mt_json_text(json, "kv_type_k", settings->kv_type_k);
    mt_json_text(json, "kv_type_v", settings->kv_type_v);
    mt_json_text(json, "flash_attention", settings->flash_attention);
    mt_json_end(json);
}

static void put_run(struct mt_json *json, const struct cli_document_run *run)
{
    mt_json_begin_object(json, NULL);
    mt_json_count(json, "run", run->run);
    mt_json_bool(json, "warm_up", run->warm_up);
    mt_json_real(json, "latency_ms", run->latency_ms);
    mt_json_real(json, "prefill_ms", run->prefill_ms);
    mt_json_real(json, "decode_ms", run->decode_ms);
    mt_json_count(json, "peak_memory_bytes", run->peak_memory_bytes);
    mt_json_count(json, "steps", run->steps);
    mt_json_count(json, "batch_size", run->batch_size);
    mt_json_count(json, "max_new_tokens", run->max_new_tokens);
    mt_json_count(json, "peak_device_bytes", run->peak_device_bytes);
    mt_json_end(json);
}

/* Bytes are whole, also where the median lies between two runs. */
static void put_figure(struct mt_json *json, const char *key, enum cli_figure figure, double value)
{
    if (figure == CLI_FIGURE_PEAK)
        mt_json_count(json, key, value < 0 ? MT_UNKNOWN : (uint64_t)value);
    else
        mt_json_real(json, key, value);
}

static void put_spread(struct mt_json *json, const struct cli_document *document, const char *key,
                       enum cli_figure figure)
{
    struct cli_spread spread = cli_document_spread(document, figure);
    mt_json_begin_object(json, key);
    mt_json_count(json, "runs", spread.n);
    put_figure(json, "least", figure, spread.least);
    put_figure(json, "median", figure, spread.median);
    put_figure(json, "most", figure, spread.most);
    mt_json_end(json);
}

static void put_runs(struct mt_json *json, const struct cli_document *document)
{
    mt_json_begin_array(json, "runs");
    for (size_t i = 0; i < document->n_runs; i++)
        put_run(json, &document->runs[i]);
    mt_json_end(json);
    mt_json_begin_object(json, "spread");
    put_spread(json, document, "latency_ms", CLI_FIGURE_LATENCY);
    put_spread(json, document, "prefill_ms", CLI_FIGURE_PREFILL);
    put_spread(json, document, "decode_ms", CLI_FIGURE_DECODE);
    put_spread(json, document, "peak_memory_bytes", CLI_FIGURE_PEAK);
    mt_json_end(json);
    mt_json_begin_array(json, "phases");
    for (size_t i = 0; i < document->n_phases; i++) {
        const struct cli_document_phase *phase = &document->phases[i];
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "name", phase->name);
        mt_json_count(json, "start_ns", phase->start_ns);
        mt_json_count(json, "end_ns", phase->end_ns);
        mt_json_count(json, "peak_resident_bytes", phase->peak_resident_bytes);
        mt_json_end(json);
    }
    mt_json_end(json);
}

static void put_timeline(struct mt_json *json, const struct cli_document *document)
{
    mt_json_begin_array(json, "timeline");
    for (size_t i = 0; i < document->n_timeline; i++) {
        mt_json_begin_object(json, NULL);
        mt_json_count(json, "time_ns", document->timeline[i].time_ns);
        mt_json_count(json, "resident_bytes", document->timeline[i].resident_bytes);
        mt_json_end(json);
    }
    mt_json_end(json);
    mt_json_begin_array(json, "marks");
    for (size_t i = 0; i < document->n_marks; i++) {
        mt_json_begin_object(json, NULL);
        mt_json_count(json, "time_ns", document->marks[i].time_ns);
        mt_json_count(json, "pid", document->marks[i].pid);
        mt_json_text(json, "name", document->marks[i].name);
        mt_json_end(json);
    }
    mt_json_end(json);
}

static void put_machine(struct mt_json *json, const struct mt_tally_machine *machine)
{
    mt_json_begin_object(json, "machine");
    mt_json_count(json, "sample_time_ns", machine->sample_time_ns);
    mt_json_count(json, "memory_total_bytes", machine->memory_total_bytes);
    mt_json_count(json, "memory_free_bytes", machine->memory_free_bytes);
    mt_json_count(json, "memory_available_bytes", machine->memory_available_bytes);
    mt_json_count(json, "page_cache_bytes", machine->page_cache_bytes);
    mt_json_count(json, "swap_total_bytes", machine->swap_total_bytes);
    mt_json_count(json, "swap_used_bytes", machine->swap_used_bytes);
    mt_json_count(json, "other_processes_resident_bytes", machine->other_processes_resident_bytes);
    mt_json_count(json, "cgroup_version",
                  machine->cgroup_version > 0 ? (uint64_t)machine->cgroup_version : MT_UNKNOWN);
    mt_json_count(json, "cgroup_limit_bytes", machine->cgroup_limit_bytes);
    mt_json_count(json, "cgroup_usage_bytes", machine->cgroup_usage_bytes);
    mt_json_count(json, "cgroup_peak_bytes", machine->cgroup_peak_bytes);
    mt_json_real(json, "pressure_some_avg10_percent", machine->pressure_some_avg10_percent);
    mt_json_real(json, "pressure_full_avg10_percent", machine->pressure_full_avg10_percent);
    mt_json_end(json);
}

void cli_json_stack(const struct mt_stack_entry *entry, struct mt_json *json)
{
    mt_json_begin_object(json, NULL);
    mt_json_text(json, "place", entry->place ? entry->place : "host");
    mt_json_count(json, "bytes", entry->bytes);
    mt_json_count(json, "count", entry->count);
    mt_json_bool(json, "complete", entry->complete);
    mt_json_begin_array(json, "frames");
    for (size_t i = 0; i < entry->n_frames; i++)
        mt_json_text(json, NULL, entry->frames[i]);
    mt_json_end(json);
    mt_json_end(json);
}

static void put_stacks(struct mt_json *json, const struct mt_stack_list *stacks)
{
    if (!stacks)
        return;
    mt_json_begin_object(json, "stacks");
    mt_json_count(json, "sampled_interval_bytes", stacks->sampled_interval_bytes);
    mt_json_begin_array(json, "entries");
    for (size_t i = 0; i < stacks->n_entries; i++)
        cli_json_stack(&stacks->entries[i], json);
    mt_json_end(json);
    mt_json_end(json);
}

static void put_damage(struct mt_json *json, const struct mt_recording_damage *damage)
{
    if (!damage) {
        mt_json_null(json, "damage");
        return;
    }
    mt_json_begin_object(json, "damage");
    mt_json_count(json, "files_unreadable", damage->files_unreadable);
    mt_json_count(json, "blocks_bad", damage->blocks_bad);
    mt_json_count(json, "blocks_open", damage->blocks_open);
    mt_json_count(json, "events_lost", damage->events_lost);
    mt_json_text(json, "first", damage->first[0] ? damage->first : NULL);
    mt_json_end(json);
}

static void put_notes(struct mt_json *json, const struct cli_document *document)
{
    mt_json_begin_array(json, "notes");
    for (size_t i = 0; i < document->tally->n_notes; i++)
        mt_json_text(json, NULL, document->tally->notes[i]);
    for (size_t i = 0; i < document->n_notes; i++)
        mt_json_text(json, NULL, document->notes[i]);
    mt_json_end(json);
}

static const char *measure_of(const struct mt_moment *moment)
{
    if (moment->kind == MT_MOMENT_HEAP_PEAK)
        return "heap";
    return moment->kind == MT_MOMENT_CATEGORY_PEAK ? mt_category_name(moment->category)
                                                   : "resident";
}

static void put_moments(struct mt_json *json, const struct mt_tally *tally)
{
    mt_json_begin_array(json, "moments");
    for (size_t i = 0; i < tally->n_moments; i++) {
        const struct mt_tally_moment *moment = &tally->moments[i];
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "name", mt_moment_text(&moment->moment));
        mt_json_text(json, "of", measure_of(&moment->moment));
        mt_json_count(json, "time_ns", moment->time_ns);
        mt_json_count(json, "bytes", moment->bytes);
        mt_json_end(json);
    }
    mt_json_end(json);
}

static void put_tally(struct mt_json *json, const struct cli_document *document)
{
    const struct mt_tally *tally = document->tally;
    mt_json_text(json, "moment", mt_moment_text(&tally->moment));
    mt_json_count(json, "moment_ns", tally->moment_ns);
    put_moments(json, tally);
    put_places(json, tally->places, tally->n_places, tally->kind);
    mt_json_text(json, "shared_rule", tally->shared_rule);
    put_runs(json, document);
    mt_json_begin_array(json, "processes");
    for (size_t i = 0; i < tally->n_processes; i++)
        put_process(json, &tally->processes[i], 1);
    for (size_t i = 0; i < tally->n_other_processes; i++)
        put_process(json, &tally->other_processes[i], 0);
    mt_json_end(json);
}

static void put_measurement(struct mt_json *json, const struct cli_document *document)
{
    put_settings(json, document);
    put_tally(json, document);
    cli_json_profiler_sections(document, json);
    put_machine(json, &document->tally->machine);
    put_timeline(json, document);
    put_stacks(json, document->stacks);
    put_damage(json, document->damage);
}

static void put_estimate(struct mt_json *json, const struct cli_document *document)
{
    const struct mt_tally *tally = document->tally;
    if (document->rehearsal && !document->model)
        cli_json_machine_settings(&document->estimate->settings, json);
    else
        cli_json_estimate_settings(&document->estimate->settings, json);
    mt_json_text(json, "moment", mt_moment_text(&tally->moment));
    cli_json_estimate(document, json);
    if (document->rehearsal)
        cli_json_rehearsal(document, json);
    put_places(json, tally->places, tally->n_places, tally->kind);
    cli_json_profiler_sections(document, json);
}

void cli_document_put_json(const struct cli_document *document, struct mt_json *json)
{
    int measured = document->tally->kind == MT_TALLY_MEASUREMENT;
    mt_json_begin_object(json, NULL);
    mt_json_text(json, "schema", "memtally/1");
    mt_json_text(json, "kind", measured ? "measurement" : "estimate");
    if (!document->estimate)
        mt_json_text(json, "recording", document->recording);
    cli_json_container(document, json);
    put_engine(json, document);
    put_model(json, document);
    if (document->estimate)
        put_estimate(json, document);
    else
        put_measurement(json, document);
    put_notes(json, document);
    mt_json_end(json);
}

void cli_document_json(const struct cli_document *document, struct mt_strbuf *out)
{
    struct mt_json json = {0};
    cli_document_put_json(document, &json);
    mt_json_finish(&json, out);
}
