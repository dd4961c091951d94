/* SPDX-License-Identifier: MIT */
/* Weights: the buffers that llama.cpp's loader makes, one for each device, and on the host the
 * mapped part of the files, what is read, and what is copied into another layout. */
#include <inttypes.h>
#include <memtally/category.h>
#include <memtally/provenance.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/settings.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "layout.h"
#include "model/ggml_type.h"
#include "predict/llama/internal.h"
#include "predict/term.h"

/* Steps that rows of a matrix are divided in over several devices. */
#define SPLIT_ROW_STEP 128

/* Tensors of one buffer. */
struct buffer {
    uint64_t n;
    uint64_t tensor_bytes;
    uint64_t padded_bytes;
};

/* The part of a file that host tensors span. */
struct span {
    uint64_t first;
    uint64_t last;
};

struct loading {
    const struct mt_llama_plan *plan;
    struct mt_llama_placement placement;
    struct buffer *devices;
    struct span *spans; /* one for each file */
    struct buffer host;
    struct buffer laid_out[MT_LAYOUT_COUNT];
    uint64_t added_bytes[MT_PROCESSOR_COUNT]; /* by layouts of each processor */
    struct buffer on_demand;
    uint64_t on_demand_from; /* per-layer embeddings of this size are read on demand */
    int mapped;
    uint64_t unknown_types;
    const char *foreign_type; /* that only another engine loads, or NULL */
    uint64_t n_batched;       /* tensors of several matrices that AMX takes */
};

static void add_tensor(struct buffer *buffer, uint64_t bytes, uint64_t padded)
{
    buffer->n++;
    buffer->tensor_bytes = mt_llama_add(buffer->tensor_bytes, bytes);
    buffer->padded_bytes = mt_llama_add(buffer->padded_bytes, padded);
}

static enum mt_processor processor_of(const struct loading *loading)
{
    enum mt_processor processor = loading->plan->in->settings->processor;
    return processor == MT_PROCESSOR_UNKNOWN ? MT_PROCESSOR_AVX2 : processor;
}

/* The layout of a tensor on the host. `matrix` says that the tensor is used in a product at all: an
 * embedding is not, its second use as the output is. */
static struct mt_llama_layout layout_of(const struct loading *loading,
                                        const struct mt_model_tensor *tensor,
                                        enum mt_processor processor, int matrix)
{
    const struct mt_predict_input *in = loading->plan->in;
    if (in->settings->n_devices || in->settings->repack == MT_SWITCH_OFF)
        return (struct mt_llama_layout){MT_LAYOUT_PLAIN, tensor->bytes};
    return mt_llama_layout_of(in->engine, processor, tensor, matrix);
}

/* What the layouts of each processor add. Without mapped files they take the place of the plain
 * one. `is_tied` says that the tensor is there as an embedding before. */
static void add_to_each_processor(struct loading *loading, const struct mt_model_tensor *tensor,
                                  int matrix, int is_tied)
{
    uint64_t replaced = loading->mapped || is_tied ? 0 : tensor->bytes;
    for (int i = MT_PROCESSOR_UNKNOWN + 1; i < MT_PROCESSOR_COUNT; i++) {
        enum mt_processor processor = (enum mt_processor)i;
        struct mt_llama_layout layout = layout_of(loading, tensor, processor, matrix);
        int is_there = is_tied && layout_of(loading, tensor, processor, 0).kind == layout.kind;
        if (layout.kind != MT_LAYOUT_PLAIN && layout.bytes > replaced && !is_there)
            loading->added_bytes[i] =
                mt_llama_add(loading->added_bytes[i], mt_llama_host_bytes(layout.bytes - replaced));
    }
}

static uint64_t most_added_bytes(const struct loading *loading)
{
    uint64_t most = 0;
    for (int i = 0; i < MT_PROCESSOR_COUNT; i++)
        most = loading->added_bytes[i] > most ? loading->added_bytes[i] : most;
    return most;
}

static void add_to_host(struct loading *loading, const struct mt_model_tensor *tensor, int matrix)
{
    struct mt_llama_layout layout = layout_of(loading, tensor, processor_of(loading), matrix);
    if (layout.kind != MT_LAYOUT_PLAIN) {
        add_tensor(&loading->laid_out[layout.kind], layout.bytes,
                   mt_llama_host_bytes(layout.bytes));
        loading->n_batched += layout.kind == MT_LAYOUT_AMX && !mt_llama_is_matrix(tensor);
        return;
    }
    if (tensor->role == MT_TENSOR_PER_LAYER_EMBEDDING && loading->on_demand_from &&
        tensor->bytes > loading->on_demand_from) {
        add_tensor(&loading->on_demand, tensor->bytes, tensor->bytes);
        return;
    }
    add_tensor(&loading->host, tensor->bytes, mt_llama_host_bytes(tensor->bytes));
    struct span *span = &loading->spans[tensor->file];
    uint64_t end = mt_llama_add(tensor->offset, tensor->bytes);
    if (tensor->offset < span->first)
        span->first = tensor->offset;
    if (end > span->last)
        span->last = end;
}

/* The rows of a matrix of `rows` that come before device `device`. */
static uint64_t rows_before(const struct mt_llama_plan *plan, size_t device, uint64_t rows)
{
    const struct mt_predict_settings *s = plan->in->settings;
    double before = 0;
    double all = 0;
    for (size_t i = 0; i < plan->n_devices; i++) {
        double share = (double)s->device_bytes[i];
        if (s->n_tensor_split)
            share = i < s->n_tensor_split ? s->tensor_split[i] : 0;
        before += i < device ? share : 0;
        all += share;
    }
    if (device == plan->n_devices)
        return rows;
    uint64_t row = all > 0 ? (uint64_t)((double)rows * (before / all)) : 0;
    return row - row % SPLIT_ROW_STEP;
}

static void add_rows(struct loading *loading, const struct mt_model_tensor *tensor)
{
    uint64_t rows = tensor->dims[1];
    uint64_t row_bytes = tensor->bytes / rows;
    for (size_t i = 0; i < loading->plan->n_devices; i++) {
        uint64_t n = rows_before(loading->plan, i + 1, rows) - rows_before(loading->plan, i, rows);
        if (n)
            add_tensor(&loading->devices[i], n * row_bytes,
                       mt_llama_device_bytes(tensor->type, tensor->dims[0], n * row_bytes));
    }
}

static void add_to(struct loading *loading, const struct mt_model_tensor *tensor, int place,
                   int matrix)
{
    if (place == MT_HOST_PLACE)
        add_to_host(loading, tensor, matrix);
    else if (loading->plan->in->settings->split == MT_SPLIT_ROW && matrix &&
             mt_llama_is_matrix(tensor))
        add_rows(loading, tensor);
    else
        add_tensor(&loading->devices[place], tensor->bytes,
                   mt_llama_device_bytes(tensor->type, tensor->dims[0], tensor->bytes));
}

/* Frequencies of the rotary embedding: each device that has a layer gets a copy. */
static int is_rotary(const struct mt_model_tensor *tensor)
{
    static const char *const names[] = {"rope_freqs", "rope_factors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tensor->name_length > strlen(names[i]) &&
            !memcmp(tensor->name, names[i], strlen(names[i])))
            return 1;
    return 0;
}

static void add_to_each(struct loading *loading, const struct mt_model_tensor *tensor)
{
    const struct mt_llama_plan *plan = loading->plan;
    for (int place = MT_HOST_PLACE; place < (int)plan->n_devices; place++) {
        size_t layer = 0;
        while (layer < plan->n_layers && plan->device_of[layer] != place)
            layer++;
        if (layer < plan->n_layers)
            add_to(loading, tensor, place, 0);
    }
}

/* Whether the loader leaves a tensor in the file. */
static int is_skipped(const struct loading *loading, const struct mt_model_tensor *tensor)
{
    const struct mt_predict_input *in = loading->plan->in;
    if (tensor->role == MT_TENSOR_PROJECTOR)
        return 1;
    return tensor->layer < in->d->n_layers && in->d->layers[tensor->layer].is_draft &&
           !in->settings->draft_tokens && mt_engine_has(in->engine, "weights.draft", "skipped") &&
           !mt_llama_family_in(in, "weights.draft.loaded");
}

/* Where a tied output and the embedding share a buffer they are one tensor; some families' loaders
 * ask for them in the order that makes two of them. In mapped files they share their pages. */
static int is_loaded_twice(const struct loading *loading)
{
    const struct mt_predict_input *in = loading->plan->in;
    return !loading->mapped && in->d->architecture &&
           mt_engine_has(in->engine, "weights.tied_twice", in->d->architecture);
}

/* As a table of rows and as a matrix a tensor may be wanted in two layouts: then it is there twice.
 */
static int has_two_layouts(const struct loading *loading, const struct mt_model_tensor *tensor)
{
    enum mt_processor processor = processor_of(loading);
    return layout_of(loading, tensor, processor, 0).kind !=
           layout_of(loading, tensor, processor, 1).kind;
}

/* Encoders give their hidden state away. */
static int has_no_output(const struct mt_predict_input *in)
{
    return in->d->architecture &&
           mt_engine_has(in->engine, "weights.no_output", in->d->architecture);
}

/* The file's sizes hold; what the engine would make of them there is none. */
static void note_foreign_type(struct loading *loading, const struct mt_model_tensor *tensor)
{
    const struct mt_ggml_type *type = mt_ggml_type_by_name(tensor->type);
    if (type && type->is_ik && !mt_engine_has(loading->plan->in->engine, "weights.types", "ik"))
        loading->foreign_type = type->name;
}

static void load_tensor(struct loading *loading, const struct mt_model_tensor *tensor)
{
    const struct mt_llama_plan *plan = loading->plan;
    if (is_skipped(loading, tensor))
        return;
    loading->unknown_types += !tensor->type_known;
    note_foreign_type(loading, tensor);
    if (is_rotary(tensor)) {
        add_to_each(loading, tensor);
        return;
    }
    int place = mt_llama_place_of(&loading->placement, tensor);
    int matrix = tensor->role == MT_TENSOR_LAYER || tensor->role == MT_TENSOR_EXPERTS ||
                 tensor->role == MT_TENSOR_OUTPUT || tensor->role == MT_TENSOR_OUTPUT_OTHER;
    add_to(loading, tensor, place, matrix);
    if (place == MT_HOST_PLACE)
        add_to_each_processor(loading, tensor, matrix, 0);
    if (tensor->role != MT_TENSOR_TOKEN_EMBEDDING || !plan->in->d->tied_output ||
        has_no_output(plan->in))
        return;
    int output = plan->device_of[plan->n_layers];
    if (output != place || has_two_layouts(loading, tensor) || is_loaded_twice(loading))
        add_to(loading, tensor, output, 1);
    if (output == MT_HOST_PLACE)
        add_to_each_processor(loading, tensor, 1, 1);
}

static int load_tensors(struct loading *loading, struct mt_error *error)
{
    const struct mt_predict_input *in = loading->plan->in;
    struct mt_model_tensor tensor;
    for (uint64_t i = 0; i < in->d->n_tensors; i++) {
        int result = mt_model_tensor_at(in->model, i, &tensor);
        if (result < 0)
            return mt_fail(error, result, MT_NO_OFFSET, "%s: tensor %" PRIu64 " cannot be read",
                           in->d->path, i);
        if (tensor.n_dims && tensor.dims[0] && tensor.file < (in->d->n_files ? in->d->n_files : 1))
            load_tensor(loading, &tensor);
    }
    return 0;
}

static enum mt_provenance provenance_of(const struct mt_llama_plan *plan)
{
    return plan->in->d->format == MT_MODEL_CONFIG ? MT_PROVENANCE_DERIVED : MT_PROVENANCE_READ;
}

static void add_plain(const struct loading *loading, struct mt_sheet *sheet, int place,
                      const char *name, const struct buffer *buffer)
{
    struct mt_sheet_term term = {.place = place,
                                 .category = MT_CATEGORY_WEIGHTS,
                                 .name = name,
                                 .rule = "weights",
                                 .bytes = buffer->padded_bytes,
                                 .provenance = provenance_of(loading->plan)};
    mt_sheet_add(sheet, &term, "%" PRIu64 " tensors of %" PRIu64 " B + %" PRIu64 " B of padding",
                 buffer->n, buffer->tensor_bytes, buffer->padded_bytes - buffer->tensor_bytes);
}

/* Host tensors in their place in the files: the engine maps from the first to the last of them, or
 * gives back what lies between. */
static void add_mapped(const struct loading *loading, struct mt_sheet *sheet)
{
    const struct mt_model_description *d = loading->plan->in->d;
    uint64_t bytes = 0;
    uint64_t files = 0;
    for (uint64_t i = 0; i < (d->n_files ? d->n_files : 1); i++)
        if (loading->spans[i].last > loading->spans[i].first) {
            bytes = mt_llama_add(bytes, loading->spans[i].last - loading->spans[i].first);
            files++;
        }
    int is_trimmed = mt_engine_has(loading->plan->in->engine, "weights.mapping", "tensors");
    struct mt_sheet_term term = {.place = MT_HOST_PLACE,
                                 .category = MT_CATEGORY_WEIGHTS,
                                 .name = "mapped weights",
                                 .rule = "weights_mapped",
                                 .bytes = is_trimmed ? loading->host.tensor_bytes : bytes,
                                 .low_bytes = loading->host.tensor_bytes,
                                 .high_bytes = bytes,
                                 .provenance = provenance_of(loading->plan)};
    mt_sheet_add(sheet, &term,
                 "%" PRIu64 " B from the first to the last of %" PRIu64 " host tensors in %" PRIu64
                 " files, which hold %" PRIu64 " B%s",
                 bytes, loading->host.n, files, loading->host.tensor_bytes,
                 is_trimmed ? "; what lies between is not mapped" : "");
}

static void add_on_demand(const struct loading *loading, struct mt_sheet *sheet)
{
    struct mt_sheet_term term = {.place = MT_HOST_PLACE,
                                 .category = MT_CATEGORY_WEIGHTS,
                                 .name = "embedding read on demand",
                                 .rule = "weights_mapped",
                                 .bytes = loading->on_demand.padded_bytes,
                                 .low_bytes = 0,
                                 .high_bytes = loading->on_demand.padded_bytes,
                                 .provenance = provenance_of(loading->plan)};
    mt_sheet_add(sheet, &term, "%" PRIu64 " B, of which only rows that were used are resident",
                 loading->on_demand.padded_bytes);
}

static uint64_t laid_out_bytes(const struct loading *loading)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < MT_LAYOUT_COUNT; i++)
        bytes = mt_llama_add(bytes, loading->laid_out[i].padded_bytes);
    return bytes;
}

static int knows_processor(const struct loading *loading)
{
    return loading->plan->in->settings->processor != MT_PROCESSOR_UNKNOWN;
}

/* With a processor that is not known, from what needs no copy to what takes most. */
static void add_of_any_processor(const struct loading *loading, struct mt_sheet *sheet)
{
    const struct buffer *buffer = &loading->laid_out[MT_LAYOUT_REPACKED];
    uint64_t bytes = buffer->padded_bytes;
    struct mt_sheet_term term = {.place = MT_HOST_PLACE,
                                 .category = MT_CATEGORY_WEIGHTS,
                                 .name = "repacked weights",
                                 .rule = "weights_repacked",
                                 .bytes = bytes,
                                 .low_bytes = loading->mapped ? 0 : bytes,
                                 .high_bytes = most_added_bytes(loading),
                                 .provenance = MT_PROVENANCE_ASSUMED};
    if (!loading->mapped)
        term.high_bytes = mt_llama_add(bytes, term.high_bytes);
    mt_sheet_add(sheet, &term,
                 "%" PRIu64 " tensors of %" PRIu64 " B in the layout of an x86-64 with AVX2; no "
                 "processor takes more than %" PRIu64 " B",
                 buffer->n, buffer->tensor_bytes, term.high_bytes);
}

static void add_laid_out(const struct loading *loading, struct mt_sheet *sheet)
{
    static const struct {
        const char *name;
        const char *rule;
        enum mt_provenance provenance;
    } layouts[MT_LAYOUT_COUNT] = {
        [MT_LAYOUT_AMX] = {"weights for AMX", "weights_amx", MT_PROVENANCE_DERIVED},
        [MT_LAYOUT_KLEIDIAI] = {"weights for KleidiAI", "weights_kleidiai", MT_PROVENANCE_INFERRED},
        [MT_LAYOUT_REPACKED] = {"repacked weights", "weights_repacked", MT_PROVENANCE_DERIVED},
    };
    for (size_t i = 0; i < MT_LAYOUT_COUNT; i++) {
        const struct buffer *buffer = &loading->laid_out[i];
        struct mt_sheet_term term = {.place = MT_HOST_PLACE,
                                     .category = MT_CATEGORY_WEIGHTS,
                                     .name = layouts[i].name,
                                     .rule = layouts[i].rule,
                                     .bytes = buffer->padded_bytes,
                                     .provenance = layouts[i].provenance};
        /* Processors with SME have KleidiAI pack some matrices twice. */
        if (i == MT_LAYOUT_KLEIDIAI) {
            term.low_bytes = buffer->padded_bytes;
            term.high_bytes = mt_llama_times(buffer->padded_bytes, 2);
        }
        mt_sheet_add(sheet, &term,
                     "%" PRIu64 " tensors of %" PRIu64 " B in the layout of a processor with %s + "
                     "%" PRIu64 " B of padding",
                     buffer->n, buffer->tensor_bytes,
                     mt_processor_name(loading->plan->in->settings->processor),
                     buffer->padded_bytes - buffer->tensor_bytes);
    }
}

static void write_notes(const struct loading *loading, struct mt_sheet *sheet)
{
    const struct mt_predict_input *in = loading->plan->in;
    if (loading->unknown_types)
        mt_sheet_note(sheet,
                      "%" PRIu64 " tensors are of unknown types; they count as the space that they "
                      "take in the file.",
                      loading->unknown_types);
    if (loading->foreign_type)
        mt_sheet_cannot(sheet,
                        "%s does not load the model: it has no type %s, which ik_llama.cpp has "
                        "(--engine ik_llama.cpp)",
                        in->engine->name, loading->foreign_type);
    if (in->d->format != MT_MODEL_GGUF)
        mt_sheet_note(sheet,
                      "%s reads GGUF files; weights are counted as they are in this %s model.",
                      in->engine->name, mt_model_format_name(in->d->format));
    if (!knows_processor(loading) && most_added_bytes(loading))
        mt_sheet_note(sheet, "The processor is unknown, and some keep weights in a layout of their "
                             "own: name it with --cpu.");
    if (loading->n_batched)
        mt_sheet_note(sheet,
                      "With AMX, llama.cpp ends with a failed assertion if its layout has tensors "
                      "of several matrices, as %" PRIu64
                      " of this model are; --no-repack does without.",
                      loading->n_batched);
    if (laid_out_bytes(loading) && loading->mapped)
        mt_sheet_note(sheet,
                      "Weights in another layout are copies; their pages of the mapped files stay "
                      "resident while memory lasts.");
}

static int check_sizes(const struct loading *loading, struct mt_error *error)
{
    uint64_t most = mt_llama_add(loading->host.padded_bytes, laid_out_bytes(loading));
    for (size_t i = 0; i < loading->plan->n_devices; i++)
        most = mt_llama_add(most, loading->devices[i].padded_bytes);
    if (most > MT_LLAMA_SANE_BYTES)
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "%s: its tensors are too large to add up",
                       loading->plan->in->d->path);
    return 0;
}

static void write_terms(const struct loading *loading, struct mt_sheet *sheet)
{
    const struct mt_llama_plan *plan = loading->plan;
    for (size_t i = 0; i < plan->n_devices; i++)
        add_plain(loading, sheet, (int)i, "model buffer", &loading->devices[i]);
    if (loading->mapped)
        add_mapped(loading, sheet);
    else
        add_plain(loading, sheet, MT_HOST_PLACE,
                  plan->n_devices ? "pinned model buffer" : "model buffer", &loading->host);
    add_on_demand(loading, sheet);
    if (knows_processor(loading))
        add_laid_out(loading, sheet);
    else
        add_of_any_processor(loading, sheet);
    write_notes(loading, sheet);
}

int mt_llama_weights(const struct mt_llama_plan *plan, struct mt_sheet *sheet,
                     struct mt_error *error)
{
    const struct mt_predict_input *in = plan->in;
    size_t n_files = in->d->n_files ? (size_t)in->d->n_files : 1;
    struct loading loading = {
        .plan = plan,
        .devices = calloc(plan->n_devices + 1, sizeof *loading.devices),
        .spans = calloc(n_files, sizeof *loading.spans),
        .on_demand_from = mt_engine_number(in->engine, "weights.on_demand_from", 0),
        .mapped = in->settings->mmap != MT_SWITCH_OFF && in->d->format == MT_MODEL_GGUF &&
                  in->settings->program != MT_PROGRAM_FIT_PARAMS};
    int result = MT_ENOMEM;
    if (loading.devices && loading.spans) {
        for (size_t i = 0; i < n_files; i++)
            loading.spans[i].first = UINT64_MAX;
        result = mt_llama_placement_init(&loading.placement, plan, error);
    } else {
        mt_out_of_memory(error);
    }
    if (result == 0)
        result = load_tensors(&loading, error);
    if (result == 0)
        result = check_sizes(&loading, error);
    if (result == 0)
        write_terms(&loading, sheet);
    mt_llama_placement_finish(&loading.placement);
    free(loading.devices);
    free(loading.spans);
    return result;
}
