/* SPDX-License-Identifier: MIT */
/* Compute buffers of llama.cpp: the graph that it reserves memory with is built again, placed and
 * allocated as it would be. What the engine's version changes comes from its table. */
#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "predict/llama_compute_old.h"
#include "predict/llama_net.h"
#include "predict/llama_parts.h"

/* A model of more layers than this is not one. */
#define LAYERS_MAX 2048

static struct mt_graph_machine machine_of(const struct mt_llama_plan *plan)
{
    const struct mt_engine *engine = plan->in->engine;
    const char *kind = plan->in->settings->device_kind;
    return (struct mt_graph_machine){
        .n_devices = (int)plan->n_devices,
        .n_copies = (unsigned)plan->copies,
        .copies_inputs_unused = mt_engine_has(engine, "compute.copies", "all"),
        .device_alignment = mt_engine_number(engine, "compute.align.device", 128),
        .host_alignment = mt_engine_number(engine, "compute.align.host", 32),
        .quantised_row_padding = 512,
        .attention_scratch = mt_engine_has(engine, "compute.scratch.kinds", kind ? kind : "cuda"),
        .offload_batch = mt_engine_number(engine, "compute.offload.batch", 32),
    };
}

/* One reserved graph, of the plan's batch or of one token for each sequence. */
static int reserve(const struct mt_llama_plan *plan, int single_tokens,
                   struct mt_graph_buffer *buffers, enum mt_net_knowledge *knowledge,
                   struct mt_error *error)
{
    const struct mt_engine *engine = plan->in->engine;
    struct mt_arena arena = {0};
    struct mt_graph graph;
    struct mt_net net;
    mt_graph_init(&graph, &arena);
    int result = mt_net_init(&net, &graph, plan, error);
    if (result == 0) {
        if (single_tokens) {
            net.tokens = net.sequences;
            net.outputs = net.sequences;
        }
        net.mixed_embeddings = mt_engine_has(engine, "compute.embeddings", "mixed");
        net.late_rows = plan->in->d->architecture &&
                        mt_engine_has(engine, "compute.rows.late", plan->in->d->architecture);
        net.older_parts = mt_engine_has(engine, "compute.parts", "older");
        net.pins_norms = plan->in->settings->program != MT_PROGRAM_FIT_PARAMS &&
                         (plan->all_on_devices || net.tokens < 32);
        *knowledge = mt_net_build(&net);
        struct mt_graph_machine machine = machine_of(plan);
        result = mt_graph_reserve(&graph, &machine, buffers);
        if (result < 0)
            mt_fail(error, result, MT_NO_OFFSET, "the graph of the model is too large");
    }
    mt_arena_finish(&arena);
    return result;
}

static int is_sane(const struct mt_llama_plan *plan)
{
    const struct mt_model_description *d = plan->in->d;
    return d->n_layers > d->n_draft_layers && d->n_layers <= LAYERS_MAX && plan->ubatch &&
           plan->ubatch <= UINT32_MAX && plan->context <= UINT32_MAX && plan->sequences &&
           d->embedding_length && d->embedding_length <= UINT32_MAX &&
           plan->n_devices <= MT_GRAPH_DEVICES_MAX && mt_llama_is_regular(d);
}

static const char *part_name(uint8_t part)
{
    static const char *const names[] = {[MT_PART_INPUT] = "inputs",
                                        [MT_PART_ATTENTION] = "attention",
                                        [MT_PART_STATE] = "recurrence",
                                        [MT_PART_FFN] = "feed-forward",
                                        [MT_PART_OUTPUT] = "logits"};
    return names[part];
}

static void describe(const struct mt_graph_buffer *from, enum mt_net_knowledge knowledge,
                     const struct mt_llama_plan *plan, struct mt_compute_buffer *buffer)
{
    double width = knowledge == MT_NET_EXACT ? 0.01 : 0.15;
    buffer->bytes = from->bytes;
    buffer->low_bytes = (uint64_t)((double)from->bytes * (1 - width));
    buffer->high_bytes = (uint64_t)((double)from->bytes * (1 + width));
    buffer->rule = part_name(from->part);
    snprintf(buffer->formula, sizeof buffer->formula,
             "inputs %" PRIu64 " (%" PRIu64 " copies) + tensors of %s %" PRIu64
             " + holes between them %" PRIu64,
             from->inputs, plan->copies, buffer->rule, from->working,
             from->bytes - from->inputs - from->working);
}

int mt_llama_compute_buffers(const struct mt_llama_plan *plan, struct mt_compute_buffer *buffers,
                             struct mt_error *error)
{
    struct mt_graph_buffer batch[MT_GRAPH_DEVICES_MAX + 1] = {0};
    struct mt_graph_buffer single[MT_GRAPH_DEVICES_MAX + 1] = {0};
    enum mt_net_knowledge knowledge = MT_NET_GUESSED;
    if (!is_sane(plan))
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "the model is too large to be planned");
    if (mt_engine_has(plan->in->engine, "compute.rules", "old"))
        return mt_llama_compute_buffers_old(plan, buffers, error);
    int result = reserve(plan, 0, batch, &knowledge, error);
    if (result == 0 && !plan->all_on_devices &&
        plan->in->settings->program != MT_PROGRAM_FIT_PARAMS)
        result = reserve(plan, 1, single, &knowledge, error);
    if (result < 0)
        return result;
    for (size_t i = 0; i <= plan->n_devices; i++)
        describe(single[i].bytes > batch[i].bytes ? &single[i] : &batch[i], knowledge, plan,
                 &buffers[i]);
    return 0;
}

int mt_llama_compute(const struct mt_llama_plan *plan, struct mt_sheet *sheet,
                     struct mt_error *error)
{
    struct mt_compute_buffer buffers[MT_GRAPH_DEVICES_MAX + 1];
    if (!is_sane(plan)) {
        mt_sheet_note(sheet, "Compute buffers are not counted: the model's shape is not known.");
        return 0;
    }
    int result = mt_llama_compute_buffers(plan, buffers, error);
    if (result < 0)
        return result;
    for (size_t i = 0; i <= plan->n_devices; i++) {
        char name[64];
        snprintf(name, sizeof name, "compute buffer, largest in %s", buffers[i].rule);
        struct mt_sheet_term term = {.place = i < plan->n_devices ? (int)i : MT_HOST_PLACE,
                                     .category = MT_CATEGORY_ACTIVATIONS,
                                     .name = name,
                                     .rule = "compute_buffer",
                                     .bytes = buffers[i].bytes,
                                     .low_bytes = buffers[i].low_bytes,
                                     .high_bytes = buffers[i].high_bytes,
                                     .provenance = MT_PROVENANCE_DERIVED};
        mt_sheet_add(sheet, &term, "%s", buffers[i].formula);
    }
    return 0;
}
