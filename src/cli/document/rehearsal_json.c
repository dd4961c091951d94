/* SPDX-License-Identifier: MIT */
/* What only a rehearsal has, as JSON. */
#include <memtally/rehearsal_events.h>
#include <memtally/tally.h>
#include <string.h>

#include <memtally/units.h>

#include "drive/rehearsed.h"
#include "internal.h"

/* What was at the place that had no room, by category. */
static void put_held(const struct mt_rehearsed *rehearsal, struct mt_json *json)
{
    mt_json_begin_array(json, "held");
    for (size_t i = 0; rehearsal->held && i < rehearsal->held->n_places; i++) {
        const struct mt_tally_place *place = &rehearsal->held->places[i];
        for (size_t k = 0; !strcmp(place->place, rehearsal->refusal->place) && k < place->n_rows;
             k++) {
            mt_json_begin_object(json, NULL);
            mt_json_text(json, "category", mt_category_name(place->rows[k].category));
            mt_json_count(json, "allocated_bytes", place->rows[k].allocated_bytes);
            mt_json_end(json);
        }
    }
    mt_json_end(json);
}

/* "a < b < c" as a list. */
static void put_stack(const char *stack, struct mt_json *json)
{
    static const char between[] = " < ";
    mt_json_begin_array(json, "stack");
    while (stack && *stack) {
        const char *end = strstr(stack, between);
        struct mt_strbuf call = {0};
        mt_strbuf_append(&call, stack, end ? (size_t)(end - stack) : strlen(stack));
        mt_json_text(json, NULL, mt_strbuf_text(&call));
        json->failed |= mt_strbuf_failed(&call);
        mt_strbuf_finish(&call);
        stack = end ? end + sizeof between - 1 : NULL;
    }
    mt_json_end(json);
}

static void put_refusal(const struct mt_rehearsed *rehearsal, struct mt_json *json)
{
    const struct mt_rehearsal_event *refusal = rehearsal->refusal;
    mt_json_count(json, "refusals", rehearsal->n_refusals);
    if (!refusal) {
        mt_json_null(json, "refused");
        return;
    }
    mt_json_begin_object(json, "refused");
    mt_json_text(json, "place", refusal->place);
    mt_json_text(json, "category", refusal->category ? mt_category_name(refusal->category) : NULL);
    mt_json_text(json, "buffer", refusal->name);
    mt_json_text(json, "detail", *refusal->detail ? refusal->detail : NULL);
    mt_json_count(json, "time_ns", refusal->time_ns);
    mt_json_count(json, "asked_bytes", refusal->bytes);
    mt_json_count(json, "free_bytes", refusal->free_bytes);
    mt_json_count(json, "missing_bytes", refusal->missing_bytes);
    mt_json_count(json, "pid", refusal->pid);
    mt_json_text(json, "phase", rehearsal->phase);
    put_stack(rehearsal->stack, json);
    put_held(rehearsal, json);
    mt_json_end(json);
}

static void put_late(const struct mt_rehearsed *rehearsal, struct mt_json *json)
{
    mt_json_begin_array(json, "late");
    for (size_t i = 0; i < rehearsal->n_late; i++) {
        const struct mt_rehearsed_late *late = &rehearsal->late[i];
        mt_json_begin_object(json, NULL);
        mt_json_count(json, "time_ns", late->time_ns);
        mt_json_text(json, "step", late->step);
        mt_json_text(json, "place", late->place);
        mt_json_text(json, "category", late->category ? mt_category_name(late->category) : NULL);
        mt_json_text(json, "buffer", late->name);
        mt_json_text(json, "detail", *late->detail ? late->detail : NULL);
        mt_json_count(json, "bytes", late->bytes);
        mt_json_count(json, "before_bytes", late->before_bytes);
        mt_json_bool(json, "freed", late->was_freed);
        mt_json_bool(json, "refused", late->was_refused);
        mt_json_end(json);
    }
    mt_json_end(json);
}

static void put_changes(const struct mt_rehearsed *rehearsal, struct mt_json *json)
{
    mt_json_begin_array(json, "would_fit");
    for (size_t i = 0; i < rehearsal->n_changes; i++) {
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "flags", rehearsal->changes[i].flags);
        mt_json_text(json, "instead_of",
                     *rehearsal->changes[i].instead_of ? rehearsal->changes[i].instead_of : NULL);
        mt_json_text(json, "costs", rehearsal->changes[i].costs);
        mt_json_text(json, "options", rehearsal->changes[i].options);
        mt_json_count(json, "held_bytes", rehearsal->changes[i].held_bytes);
        mt_json_count(json, "capacity_bytes", rehearsal->changes[i].capacity_bytes);
        mt_json_end(json);
    }
    mt_json_end(json);
}

static void put_phases(const struct mt_rehearsed *rehearsal, struct mt_json *json)
{
    mt_json_begin_array(json, "phases");
    for (size_t i = 0; i < rehearsal->n_phases; i++) {
        const struct mt_rehearsal_phase *phase = &rehearsal->phases[i];
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "name", phase->name);
        mt_json_count(json, "pid", phase->pid);
        mt_json_count(json, "device", phase->device);
        mt_json_text(json, "category", phase->category ? mt_category_name(phase->category) : NULL);
        mt_json_count(json, "begin_ns", phase->begin_ns);
        mt_json_count(json, "end_ns", phase->end_ns);
        mt_json_count(json, "begin_bytes", phase->begin_bytes);
        mt_json_count(json, "end_bytes", phase->end_bytes);
        mt_json_count(json, "peak_bytes", phase->peak_bytes);
        mt_json_count(json, "peak_segment_bytes", phase->peak_segment_bytes);
        mt_json_end(json);
    }
    mt_json_end(json);
}

static void put_figures(const struct mt_rehearsed *rehearsal, struct mt_json *json)
{
    mt_json_begin_array(json, "figures");
    for (size_t i = 0; i < rehearsal->n_figures; i++) {
        const struct mt_rehearsal_figure *figure = &rehearsal->figures[i];
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "name", figure->name);
        mt_json_text(json, "unit", figure->unit);
        mt_json_real(json, "value", figure->value);
        mt_json_count(json, "pid", figure->pid);
        mt_json_count(json, "time_ns", figure->time_ns);
        mt_json_end(json);
    }
    mt_json_end(json);
}

static void put_allocators(const struct mt_rehearsed *rehearsal, struct mt_json *json)
{
    mt_json_begin_array(json, "allocators");
    for (size_t i = 0; i < rehearsal->n_allocators; i++) {
        const struct mt_rehearsal_allocator *allocator = &rehearsal->allocators[i];
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "place", allocator->place);
        mt_json_count(json, "pid", allocator->pid);
        mt_json_count(json, "device", allocator->device);
        mt_json_count(json, "max_memory_allocated", allocator->max_allocated_bytes);
        mt_json_count(json, "max_memory_reserved", allocator->max_reserved_bytes);
        mt_json_end(json);
    }
    mt_json_end(json);
}

static void put_program(const struct mt_rehearsed *rehearsal, struct mt_json *json)
{
    mt_json_begin_array(json, "command");
    for (char *const *word = rehearsal->argv; *word; word++)
        mt_json_text(json, NULL, *word);
    mt_json_end(json);
    mt_json_count(json, "elapsed_ns", rehearsal->elapsed_ns);
    mt_json_count(json, "exit_status",
                  rehearsal->exit_code < 0 ? MT_UNKNOWN : (uint64_t)rehearsal->exit_code);
    mt_json_count(json, "signal", rehearsal->signal ? (uint64_t)rehearsal->signal : MT_UNKNOWN);
    mt_json_text(json, "last_words",
                 !rehearsal->ran && *rehearsal->words ? rehearsal->words : NULL);
}

/* What the run was allowed, and where it took more. */
static void put_bounds(const struct mt_rehearsed *rehearsal, struct mt_json *json)
{
    mt_json_count(json, "limit_bytes",
                  rehearsal->limit_bytes ? rehearsal->limit_bytes : MT_UNKNOWN);
    if (rehearsal->baseline) {
        mt_json_begin_object(json, "baseline");
        mt_json_text(json, "file", rehearsal->baseline);
        mt_json_real(json, "tolerance_ratio", rehearsal->tolerance_ratio);
        mt_json_bool(json, "added", rehearsal->is_added);
        mt_json_end(json);
    } else
        mt_json_null(json, "baseline");
    mt_json_begin_array(json, "beyond");
    for (size_t i = 0; i < rehearsal->n_beyond; i++) {
        const struct mt_rehearsed_excess *excess = &rehearsal->beyond[i];
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "place", excess->place);
        mt_json_text(json, "bound", excess->bound);
        mt_json_count(json, "held_bytes", excess->held_bytes);
        mt_json_count(json, "allowed_bytes", excess->allowed_bytes);
        mt_json_end(json);
    }
    mt_json_end(json);
}

void cli_json_rehearsal(const struct cli_document *document, struct mt_json *json)
{
    const struct mt_rehearsed *rehearsal = document->rehearsal;
    mt_json_begin_object(json, "rehearsal");
    mt_json_text(json, "outcome", rehearsal->outcome);
    put_program(rehearsal, json);
    mt_json_text(json, "device_kind", rehearsal->device_kind);
    mt_json_count(json, "device_api_version", rehearsal->api_version);
    mt_json_bool(json, "ready", rehearsal->is_ready);
    mt_json_count(json, "requests", rehearsal->n_requests);
    mt_json_count(json, "requests_refused", rehearsal->n_requests_refused);
    mt_json_count(json, "longest_prompt_tokens",
                  rehearsal->prompt_tokens ? rehearsal->prompt_tokens : MT_UNKNOWN);
    put_bounds(rehearsal, json);
    put_refusal(rehearsal, json);
    put_changes(rehearsal, json);
    mt_json_count(json, "changes_tried", rehearsal->n_tried);
    put_late(rehearsal, json);
    put_phases(rehearsal, json);
    put_figures(rehearsal, json);
    put_allocators(rehearsal, json);
    mt_json_end(json);
}
