/* SPDX-License-Identifier: MIT */
/* Compute buffers of llama.cpp: the graph that it reserves memory with is built again, placed and
 * allocated as it would be. What the engine's version changes comes from its table. */
#include <inttypes.h>
#include <memtally/category.h>
#include <memtally/provenance.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/settings.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "build.h"
#include "engine/flash_kernel.h"
#include "predict/llama/internal.h"
#include "predict/llama/old/compute.h"
#include "predict/term.h"

/* A model of more than this is not one. */
#define LAYERS_MAX       512
#define EXPERTS_USED_MAX 1024
/* The forms of a graph that differs between builds in two ways. */
#define FORMS_MAX 4
/* Cells that a batch sees of a cache which holds next to nothing. */
#define FEWEST_CELLS 256
/* A capability of devices that read a quantised cache as it is for one or two rows. */
#define NO_MATRIX_KERNELS (MT_FLASH_AMD + 0x906)

/* What is reserved: the plan's batch, or one token for each sequence; as which builds do it. */
struct variant {
    int single_tokens;
    int perhaps;    /* with what the build has perhaps */
    unsigned newer; /* MT_NEWER_… */
    unsigned keeps; /* MT_KEEP_… beside what the devices are known to keep */
};

/* What is known of a graph: as it is written down in code, or by a template that may be off. */
struct known {
    enum mt_build_knowledge build;
    int by_template;
    unsigned doubt_percent;
};

static void choose(struct mt_build *build, const struct mt_llama_plan *plan, struct variant variant)
{
    const struct mt_engine *engine = plan->in->engine;
    const char *architecture = plan->in->d->architecture ? plan->in->d->architecture : "";
    if (variant.single_tokens) {
        build->tokens = build->sequences;
        build->outputs = build->sequences;
    }
    build->mixed_embeddings = mt_engine_has(engine, "compute.embeddings", "mixed") &&
                              !mt_engine_has(engine, "compute.embeddings.apart", architecture);
    build->newer = variant.newer;
    build->knows_recent = mt_engine_has(engine, "compute.recent", "exact");
    build->late_rows =
        mt_llama_family_in(plan->in, "compute.rows.late") ||
        (variant.perhaps && mt_llama_family_in(plan->in, "compute.rows.late.perhaps"));
    build->pins_attention =
        plan->in->settings->kv_on_host && plan->in->settings->program != MT_PROGRAM_FIT_PARAMS;
    build->pins_norms = plan->in->settings->program != MT_PROGRAM_FIT_PARAMS &&
                        (plan->all_on_devices || build->tokens < 32);
}

/* By the graph that is written down in code. */
static int reserve_by_code(const struct mt_llama_plan *plan, struct variant variant,
                           struct mt_graph_buffer *buffers, struct known *known,
                           struct mt_error *error)
{
    struct mt_arena arena = {0};
    struct mt_graph graph;
    struct mt_build build;
    mt_graph_init(&graph, &arena);
    int result = mt_build_init(&build, &graph, plan, error);
    if (result == 0) {
        choose(&build, plan, variant);
        known->build = mt_build_graph(&build);
        known->by_template = 0;
        struct mt_graph_machine machine = mt_llama_machine(plan);
        machine.copies_inputs_unused = !!(variant.newer & MT_NEWER_INPUTS);
        machine.keeps |= variant.keeps;
        result = mt_graph_reserve(&graph, &machine, buffers);
        if (result < 0)
            mt_fail(error, result, MT_NO_OFFSET, "the graph of the model is too large");
    }
    mt_arena_finish(&arena);
    return result;
}

/* Where the code knows the family's graph in this build, by code; else by its template. */
static int reserve(const struct mt_llama_plan *plan, struct variant variant,
                   struct mt_graph_buffer *buffers, struct known *known, struct mt_error *error)
{
    int result = reserve_by_code(plan, variant, buffers, known, error);
    if (result < 0 || known->build == MT_BUILD_EXACT)
        return result;
    struct mt_llama_template_use use = {.single_tokens = variant.single_tokens};
    struct mt_graph_buffer by_template[MT_GRAPH_DEVICES_MAX + 1] = {0};
    result = mt_llama_template_reserve(plan, &use, by_template, NULL);
    if (result == 0) {
        memcpy(buffers, by_template, (plan->n_devices + 1) * sizeof *buffers);
        known->build = use.doubt_percent ? MT_BUILD_LIKELY : MT_BUILD_EXACT;
        known->by_template = 1;
        if (use.doubt_percent > known->doubt_percent)
            known->doubt_percent = use.doubt_percent;
    }
    return result == MT_ENOTFOUND ? 0 : result;
}

static int is_sane(const struct mt_llama_plan *plan)
{
    const struct mt_model_description *d = plan->in->d;
    if (d->n_layers <= d->n_draft_layers || d->n_layers > LAYERS_MAX || !plan->ubatch ||
        plan->ubatch > UINT32_MAX || plan->context > UINT32_MAX || !plan->sequences ||
        plan->n_devices > MT_GRAPH_DEVICES_MAX || !mt_llama_is_regular(d))
        return 0;
    for (uint64_t i = 0; i < d->n_layers; i++)
        if (d->layers[i].experts_used > EXPERTS_USED_MAX)
            return 0;
    return 1;
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

/* Gated delta nets over host and devices: older builds may repeat queries and keys there. */
static int is_split_delta(const struct mt_llama_plan *plan)
{
    const struct mt_model_description *d = plan->in->d;
    int has_delta = 0;
    for (uint64_t i = 0; i < d->n_layers; i++)
        has_delta |= d->layers[i].recurrence == MT_RECURRENCE_DELTA_NET;
    return has_delta && plan->n_devices && !plan->all_on_devices;
}

/* How far the truth may lie from what was planned, as a share of it. */
static double width_of(const struct mt_llama_plan *plan, const struct known *known)
{
    const char *kind = plan->in->settings->device_kind;
    double width = mt_engine_real(plan->in->engine, "compute.band", 0.3);
    double of_family = known->build == MT_BUILD_EXACT    ? 0
                       : known->build == MT_BUILD_LIKELY ? 0.1
                                                         : 0.4;
    if (known->by_template)
        of_family = known->doubt_percent / 100.0;
    if (width < of_family)
        width = of_family;
    if (mt_llama_family_in(plan->in, "compute.band.families"))
        width = mt_engine_real(plan->in->engine, "compute.band.of_families", width);
    if (is_split_delta(plan))
        width += mt_engine_real(plan->in->engine, "compute.band.delta", 0);
    if (kind && plan->n_devices && strcmp(kind, "cuda") != 0)
        width += 0.04;
    if (plan->n_devices && (!plan->all_on_devices || plan->experts_on_host))
        width += mt_engine_real(plan->in->engine, "compute.band.part", 0.01);
    return width;
}

static void describe(const struct mt_graph_buffer *from, double width,
                     const struct mt_llama_plan *plan, struct mt_compute_buffer *buffer)
{
    buffer->bytes = from->bytes;
    buffer->low_bytes = width < 1 ? (uint64_t)((double)buffer->low_bytes * (1 - width)) : 0;
    buffer->high_bytes = (uint64_t)((double)buffer->high_bytes * (1 + width));
    buffer->rule = part_name(from->part);
    snprintf(buffer->formula, sizeof buffer->formula,
             "inputs %" PRIu64 " (%" PRIu64 " copies) + tensors of %s %" PRIu64
             " + holes between them %" PRIu64,
             from->inputs, plan->copies, buffer->rule, from->working,
             from->bytes - from->inputs - from->working);
}

/* Whether any batch is computed where weights lie on the host, though larger ones are not. */
static int has_small_batches(const struct mt_llama_plan *plan)
{
    return (!plan->all_on_devices || plan->experts_on_host) &&
           plan->in->settings->program != MT_PROGRAM_FIT_PARAMS;
}

/* The larger of what a batch needs and what single tokens need, which is never less where all of a
 * model lies on devices. */
static int reserve_both(const struct mt_llama_plan *plan, struct variant variant,
                        struct mt_graph_buffer *buffers, struct known *known,
                        struct mt_error *error)
{
    struct mt_graph_buffer single[MT_GRAPH_DEVICES_MAX + 1] = {0};
    int result = reserve(plan, variant, buffers, known, error);
    if (result < 0 || !has_small_batches(plan))
        return result;
    variant.single_tokens = 1;
    result = reserve(plan, variant, single, known, error);
    for (size_t i = 0; result == 0 && i <= plan->n_devices; i++)
        if (single[i].bytes > buffers[i].bytes)
            buffers[i] = single[i];
    return result;
}

/* The plan with a batch of a few tokens of one sequence. */
static struct mt_llama_plan with_tokens(const struct mt_llama_plan *plan, uint64_t tokens)
{
    struct mt_llama_plan few = *plan;
    few.ubatch = tokens < plan->ubatch ? tokens : plan->ubatch;
    few.sequences = few.streams = few.output_rows = 1;
    return few;
}

static uint64_t beyond(uint64_t bytes, uint64_t reserved)
{
    return bytes > reserved ? bytes - reserved : 0;
}

/* A server decodes a few tokens before it serves, to see whether its memory can drop the last of
 * them. Buffers grow where that takes more than what was reserved. */
static int try_out(const struct mt_llama_plan *plan, struct variant variant,
                   struct mt_compute_buffer *buffers, struct known *known, struct mt_error *error)
{
    struct mt_graph_buffer taken[MT_GRAPH_DEVICES_MAX + 1] = {0};
    uint64_t tokens = mt_engine_number(plan->in->engine, "compute.trial", 0);
    if (!tokens || plan->in->settings->program != MT_PROGRAM_SERVER)
        return 0;
    struct mt_llama_plan trial = with_tokens(plan, tokens);
    trial.cells = plan->cells < FEWEST_CELLS ? plan->cells : FEWEST_CELLS;
    trial.swa_cells = plan->swa_cells < FEWEST_CELLS ? plan->swa_cells : FEWEST_CELLS;
    int result = reserve(&trial, variant, taken, known, error);
    for (size_t i = 0; result == 0 && i <= plan->n_devices; i++)
        buffers[i].grown_bytes = beyond(taken[i].bytes, buffers[i].bytes);
    return result;
}

/* The end of a prompt may be a batch that is just too small to move to a device. */
static int take_rest(const struct mt_llama_plan *plan, struct variant variant,
                     struct mt_compute_buffer *buffers, struct known *known, struct mt_error *error)
{
    struct mt_graph_buffer taken[MT_GRAPH_DEVICES_MAX + 1] = {0};
    uint64_t batch = mt_llama_machine(plan).offload_batch;
    if (!plan->n_devices || batch < 2 || plan->ubatch < batch)
        return 0;
    struct mt_llama_plan rest = with_tokens(plan, batch - 1);
    int result = reserve(&rest, variant, taken, known, error);
    for (size_t i = 0; result == 0 && i <= plan->n_devices; i++)
        buffers[i].grown_high_bytes = beyond(taken[i].bytes, buffers[i].bytes);
    return result;
}

/* What buffers grow by after they were reserved: until a server is ready, and at most for a batch
 * of requests. */
static int grow(const struct mt_llama_plan *plan, struct variant variant,
                struct mt_compute_buffer *buffers, struct known *known, struct mt_error *error)
{
    if (!has_small_batches(plan))
        return 0;
    int result = try_out(plan, variant, buffers, known, error);
    if (result == 0)
        result = take_rest(plan, variant, buffers, known, error);
    for (size_t i = 0; i <= plan->n_devices; i++)
        if (buffers[i].grown_high_bytes < buffers[i].grown_bytes)
            buffers[i].grown_high_bytes = buffers[i].grown_bytes;
    return result;
}

/* Whether the build lies between two of which one has a part as later builds have it. */
static int doubts_parts(const struct mt_llama_plan *plan)
{
    return mt_llama_newer(plan->in->engine, "compute.parts.perhaps") ||
           mt_llama_family_in(plan->in, "compute.rows.late.perhaps");
}

/* The forms that the graph may have in the engine's version; the estimate shows the first. */
static size_t forms_of(const struct mt_llama_plan *plan, struct variant forms[FORMS_MAX])
{
    const struct mt_engine *engine = plan->in->engine;
    unsigned newer = mt_llama_newer(engine, "compute.parts");
    size_t n = 0;
    unsigned perhaps;
    mt_llama_keeps(plan, &perhaps);
    forms[n++] = (struct variant){.newer = newer};
    if (doubts_parts(plan))
        forms[n++] = (struct variant){
            .newer = newer | mt_llama_newer(engine, "compute.parts.perhaps"), .perhaps = 1};
    for (size_t i = 0, known = n; perhaps && i < known; i++) {
        forms[n] = forms[i];
        forms[n++].keeps = perhaps;
    }
    return n;
}

static int reserve_form(const struct mt_llama_plan *plan, struct variant form, int is_first,
                        struct mt_graph_buffer *said, struct mt_compute_buffer *buffers,
                        struct known *known, struct mt_error *error)
{
    struct mt_graph_buffer made[MT_GRAPH_DEVICES_MAX + 1] = {0};
    int result = reserve_both(plan, form, made, known, error);
    for (size_t i = 0; result == 0 && i <= plan->n_devices; i++) {
        if (is_first) {
            said[i] = made[i];
            buffers[i].low_bytes = buffers[i].high_bytes = made[i].bytes;
        }
        if (made[i].bytes < buffers[i].low_bytes)
            buffers[i].low_bytes = made[i].bytes;
        if (made[i].bytes > buffers[i].high_bytes)
            buffers[i].high_bytes = made[i].bytes;
    }
    return result;
}

/* Whether kernels that are not known decide what attention copies; *other has such as copy less. */
static int has_unknown_kernels(const struct mt_llama_plan *plan, struct mt_llama_plan *other)
{
    int has_unknown = 0;
    *other = *plan;
    for (size_t i = 0; i < plan->n_devices; i++)
        if (!plan->capability[i]) {
            other->capability[i] = NO_MATRIX_KERNELS;
            has_unknown = 1;
        }
    return has_unknown && plan->flash_attention && mt_llama_machine(plan).attention_scratch;
}

int mt_llama_compute_buffers(const struct mt_llama_plan *plan, struct mt_compute_buffer *buffers,
                             struct mt_error *error)
{
    struct mt_graph_buffer said[MT_GRAPH_DEVICES_MAX + 1] = {0};
    struct variant forms[FORMS_MAX];
    struct known known = {.build = MT_BUILD_GUESSED};
    if (!is_sane(plan))
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "the model is too large to be planned");
    if (mt_engine_has(plan->in->engine, "compute.rules", "old"))
        return mt_llama_compute_buffers_old(plan, buffers, error);
    size_t n_forms = forms_of(plan, forms);
    for (size_t i = 0; i < n_forms; i++) {
        int result = reserve_form(plan, forms[i], i == 0, said, buffers, &known, error);
        if (result < 0)
            return result;
    }
    struct mt_llama_plan other;
    if (has_unknown_kernels(plan, &other) &&
        reserve_form(&other, forms[0], 0, said, buffers, &known, error) < 0)
        return MT_ENOMEM;
    double width = width_of(plan, &known);
    for (size_t i = 0; i <= plan->n_devices; i++) {
        describe(&said[i], width, plan, &buffers[i]);
        buffers[i].is_alike = known.build != MT_BUILD_EXACT && !known.by_template;
        buffers[i].is_doubted = known.build != MT_BUILD_EXACT && known.by_template;
    }
    return grow(plan, forms[0], buffers, &known, error);
}

static void write_notes(const struct mt_llama_plan *plan, const struct mt_compute_buffer *buffer,
                        struct mt_sheet *sheet)
{
    const char *kind = plan->in->settings->device_kind;
    if (plan->n_devices && kind && strcmp(kind, "cuda") != 0)
        mt_sheet_note(sheet,
                      "Compute buffers are planned as for CUDA, without the scratch memory "
                      "of its flash attention where %s has none.",
                      kind);
    if (buffer->is_doubted)
        mt_sheet_note(sheet, "This family's graph comes from a template, which is not exact or has "
                             "other values of the model's keys: compute buffers have a band.");
    if (buffer->is_alike)
        mt_sheet_note(sheet, "memtally does not have this family's graph in this build; compute "
                             "buffers are those of a similar family, with a wide band.");
    if (doubts_parts(plan))
        mt_sheet_note(sheet, "We do not know whether this build has parts of the graph as later "
                             "builds do: compute buffers have a band that holds both forms.");
    unsigned perhaps;
    mt_llama_keeps(plan, &perhaps);
    if (perhaps && plan->in->d->experts)
        mt_sheet_note(sheet,
                      "We do not know whether devices of this build keep tensors of expert layers "
                      "for fused operations: compute buffers have a band that holds both.");
}

static void write_buffer(const struct mt_compute_buffer *buffer, int place, struct mt_sheet *sheet)
{
    struct mt_sheet_term term = {.place = place,
                                 .category = MT_CATEGORY_ACTIVATIONS,
                                 .name = "compute buffer",
                                 .rule = "compute_buffer",
                                 .bytes = buffer->bytes,
                                 .low_bytes = buffer->low_bytes,
                                 .high_bytes = buffer->high_bytes,
                                 .provenance = MT_PROVENANCE_DERIVED};
    mt_sheet_add(sheet, &term, "%s", buffer->formula);
    if (!buffer->grown_high_bytes)
        return;
    term.name = "compute buffer, grown by a small batch";
    term.rule = "compute_growth";
    term.bytes = term.low_bytes = buffer->grown_bytes;
    term.high_bytes = buffer->grown_high_bytes;
    mt_sheet_add(sheet, &term,
                 "what a batch of a few tokens takes there, beyond what was reserved; at most one "
                 "that is just too small to move to a device");
}

static void write_sheet(const struct mt_llama_plan *plan, const struct mt_compute_buffer *buffers,
                        struct mt_sheet *sheet)
{
    write_notes(plan, &buffers[0], sheet);
    if (mt_llama_family_in(plan->in, "compute.uncounted"))
        mt_sheet_uncounted(sheet, "memtally does not count a part of what this build computes for "
                                  "this family. A rehearsal does.");
    if (plan->n_devices && plan->flash_attention &&
        !mt_llama_flash_runs(plan->in->engine, plan->in->d))
        mt_sheet_uncounted(sheet,
                           "Devices have no flash attention for heads of this size, and memtally "
                           "does not count that the host computes it. A rehearsal does.");
    for (size_t i = 0; i <= plan->n_devices; i++)
        write_buffer(&buffers[i], i < plan->n_devices ? (int)i : MT_HOST_PLACE, sheet);
}

int mt_llama_compute(const struct mt_llama_plan *plan, struct mt_sheet *sheet,
                     struct mt_error *error)
{
    if (!is_sane(plan)) {
        mt_sheet_uncounted(
            sheet,
            "memtally does not count compute buffers: it has no plan of such a model's graph.");
        return 0;
    }
    struct mt_compute_buffer *buffers = calloc(plan->n_devices + 1, sizeof *buffers);
    if (!buffers)
        return mt_out_of_memory(error);
    int result = mt_llama_compute_buffers(plan, buffers, error);
    if (result == 0)
        write_sheet(plan, buffers, sheet);
    free(buffers);
    return result;
}
