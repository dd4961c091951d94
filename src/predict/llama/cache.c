/* SPDX-License-Identifier: MIT */
/* What llama.cpp keeps of past tokens: keys and values by layer, and the output buffer. State of
 * recurrent layers is in state.c. */
#include <inttypes.h>
#include <memtally/category.h>
#include <memtally/provenance.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/settings.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "internal.h"
#include "model/families.h"
#include "predict/term.h"

/* DeepSeek V4 compresses this many tokens into a cell: where an indexer chooses among cells, and
 * where all of them are attended to. */
#define SPARSE_RATIO 4
#define DENSE_RATIO  128

enum class { GLOBAL, WINDOWED, LATENT, INDEXER, COMPRESSED, DRAFT, N_CLASSES };

/* Layers of one class at one place. Widths are of one cell; `uniform` as long as all layers have
 * the same. */
struct group {
    uint64_t n;
    uint64_t bytes;
    uint64_t cells;
    uint64_t streams;
    uint64_t k_width;
    uint64_t v_width;
    int uniform;
};

struct keeping {
    const struct mt_llama_plan *plan;
    struct group (*groups)[N_CLASSES]; /* the host's, then one for each device */
    unsigned char *marks;              /* of each layer, see below */
    uint64_t widest_value;
    int latent_heads;  /* latent layers are stored as plain heads */
    int latent_values; /* values of latent layers are stored too */
    int made_latent;   /* layers are latent whatever the file says */
};

#define MARK_INDEXER    1
#define MARK_COMPRESSOR 2

static int name_has(const struct mt_model_tensor *tensor, const char *part)
{
    return memmem(tensor->name, tensor->name_length, part, strlen(part)) != NULL;
}

/* Marks layers by tensors that tell how they attend. */
static void mark_layers(struct keeping *keeping)
{
    const struct mt_predict_input *in = keeping->plan->in;
    struct mt_model_tensor tensor;
    if (!in->d->indexer_heads)
        return;
    for (uint64_t i = 0; i < in->d->n_tensors; i++) {
        if (mt_model_tensor_at(in->model, i, &tensor) < 0 || tensor.layer >= in->d->n_layers)
            continue;
        if (name_has(&tensor, "indexer"))
            keeping->marks[tensor.layer] |= MARK_INDEXER;
        else if (name_has(&tensor, "compressor"))
            keeping->marks[tensor.layer] |= MARK_COMPRESSOR;
    }
}

static int any_marked(const struct keeping *keeping, int mark)
{
    for (uint64_t i = 0; i < keeping->plan->n_layers; i++)
        if (keeping->marks[i] & mark)
            return 1;
    return 0;
}

/* ik_llama.cpp makes latent attention of files that were made before it, unless told not to. */
static void choose_latent_form(struct keeping *keeping)
{
    const struct mt_llama_plan *plan = keeping->plan;
    const struct mt_predict_input *in = plan->in;
    if (mt_engine_has(in->engine, "cache.latent", "mode")) {
        keeping->latent_heads = in->settings->mla_mode == 0;
        keeping->latent_values = in->settings->mla_mode == 1 && !plan->flash_attention;
        keeping->made_latent = !keeping->latent_heads && in->d->kv_lora_rank;
        return;
    }
    keeping->latent_heads = mt_engine_has(in->engine, "cache.latent", "heads");
    keeping->latent_values = mt_engine_has(in->engine, "cache.latent", "kv");
}

static uint64_t row_bytes(const char *type, uint64_t width)
{
    uint64_t bytes = mt_llama_type_bytes(type, width);
    /* This one type has a scale for the whole row. */
    return strcmp(type, "q8_kv") ? bytes : bytes + 8;
}

static uint64_t tensor_bytes(const char *type, uint64_t width, uint64_t rows, int place)
{
    if (!width || !rows)
        return 0;
    uint64_t bytes = mt_llama_times(row_bytes(type, width), rows);
    return place == MT_HOST_PLACE ? mt_llama_host_bytes(bytes)
                                  : mt_llama_device_bytes(type, width, bytes);
}

static int place_of_layer(const struct mt_llama_plan *plan, uint64_t layer)
{
    return plan->in->settings->kv_on_host ? MT_HOST_PLACE : plan->device_of[layer];
}

static void add_layer(struct keeping *keeping, uint64_t layer, enum class class, struct group shape)
{
    const struct mt_llama_plan *plan = keeping->plan;
    int place = place_of_layer(plan, layer);
    struct group *group = &keeping->groups[place + 1][class];
    uint64_t rows = mt_llama_times(shape.cells, shape.streams);
    uint64_t bytes = mt_llama_add(tensor_bytes(plan->type_k, shape.k_width, rows, place),
                                  tensor_bytes(plan->type_v, shape.v_width, rows, place));
    shape.uniform = !group->n || (group->uniform && group->k_width == shape.k_width &&
                                  group->v_width == shape.v_width);
    shape.n = group->n + 1;
    shape.bytes = mt_llama_add(group->bytes, bytes);
    *group = shape;
}

static uint64_t value_width(const struct keeping *keeping, const struct mt_model_layer *layer)
{
    uint64_t width = mt_llama_times(layer->kv_heads, layer->value_size);
    /* Values stored in columns are padded to the widest layer. */
    return width && !keeping->plan->flash_attention ? keeping->widest_value : width;
}

static void add_latent(struct keeping *keeping, uint64_t index, enum class class)
{
    const struct mt_llama_plan *plan = keeping->plan;
    const struct mt_model_description *d = plan->in->d;
    const struct mt_model_layer *layer = &d->layers[index];
    struct group shape = {.cells = plan->cells, .streams = plan->streams};
    if (keeping->latent_heads && d->value_head_size) {
        shape.k_width = mt_llama_times(layer->heads, d->qk_nope_head_size + d->qk_rope_head_size);
        shape.v_width = mt_llama_times(layer->heads, d->value_head_size);
    } else {
        shape.k_width = layer->attention == MT_ATTENTION_LATENT
                            ? mt_llama_times(layer->kv_heads, layer->key_size)
                            : mt_llama_add(d->kv_lora_rank, d->qk_rope_head_size);
        shape.v_width = keeping->latent_values ? d->kv_lora_rank : 0;
    }
    add_layer(keeping, index, class, shape);
}

/* DeepSeek V4: a window of plain cells, and compressed ones of the whole context; every sequence
 * has its own, whatever the rest does. */
static void add_compressed(struct keeping *keeping, uint64_t index)
{
    const struct mt_llama_plan *plan = keeping->plan;
    const struct mt_model_description *d = plan->in->d;
    const struct mt_model_layer *layer = &d->layers[index];
    uint64_t width = mt_llama_times(layer->kv_heads ? layer->kv_heads : 1, layer->key_size);
    int sparse = keeping->marks[index] & MARK_INDEXER;
    uint64_t ratio = sparse ? SPARSE_RATIO : DENSE_RATIO;
    uint64_t window = mt_llama_padded(d->sliding_window + plan->ubatch, 256);
    struct group shape = {.cells = window < plan->cells ? window : plan->cells,
                          .streams = plan->sequences,
                          .k_width = width};
    add_layer(keeping, index, WINDOWED, shape);
    if (!(keeping->marks[index] & (MARK_COMPRESSOR | MARK_INDEXER)))
        return;
    shape.cells = mt_llama_padded((plan->cells + ratio - 1) / ratio, 256);
    add_layer(keeping, index, COMPRESSED, shape);
    if (!sparse)
        return;
    shape.k_width = d->indexer_head_size;
    add_layer(keeping, index, INDEXER, shape);
}

int mt_llama_family_in(const struct mt_predict_input *in, const char *key)
{
    return in->d->architecture && mt_engine_has(in->engine, key, in->d->architecture);
}

int mt_llama_indexes(const struct mt_predict_input *in)
{
    return mt_engine_has(in->engine, "cache.indexer", "yes") &&
           !mt_llama_family_in(in, "cache.indexer.without");
}

static void add_indexer(struct keeping *keeping, uint64_t index)
{
    const struct mt_llama_plan *plan = keeping->plan;
    const struct mt_model_description *d = plan->in->d;
    if (!d->indexer_head_size || !mt_llama_indexes(plan->in))
        return;
    if (any_marked(keeping, MARK_INDEXER) && !(keeping->marks[index] & MARK_INDEXER))
        return;
    add_layer(keeping, index, INDEXER,
              (struct group){
                  .cells = plan->cells, .streams = plan->streams, .k_width = d->indexer_head_size});
}

static void add_heads(struct keeping *keeping, uint64_t index, enum class class, uint64_t cells)
{
    const struct mt_model_layer *layer = &keeping->plan->in->d->layers[index];
    struct group shape = {.cells = cells,
                          .streams = keeping->plan->streams,
                          .k_width = mt_llama_times(layer->kv_heads, layer->key_size),
                          .v_width = value_width(keeping, layer)};
    if (shape.k_width || shape.v_width)
        add_layer(keeping, index, class, shape);
}

/* Whether a layer keeps a cache of its own; a draft layer does where it drafts, and always where
 * the version takes no notice of what it is for. */
static int keeps_cache(const struct keeping *keeping, uint64_t index)
{
    const struct mt_predict_input *in = keeping->plan->in;
    const struct mt_model_layer *layer = &in->d->layers[index];
    if (layer->is_draft && !in->settings->draft_tokens &&
        mt_engine_has(in->engine, "cache.draft", "without") &&
        !mt_llama_family_in(in, "cache.draft.kept"))
        return 0;
    return layer->cache_layer == index && layer->attention != MT_ATTENTION_NONE &&
           layer->attention != MT_ATTENTION_CROSS;
}

static void keep_layer(struct keeping *keeping, uint64_t index)
{
    const struct mt_llama_plan *plan = keeping->plan;
    const struct mt_model_description *d = plan->in->d;
    const struct mt_model_layer *layer = &d->layers[index];
    int draft = layer->is_draft && plan->in->settings->draft_tokens;
    if (!keeps_cache(keeping, index))
        return;
    if (!draft && mt_arch_of(d->architecture) == MT_ARCH_DEEPSEEK4) {
        add_compressed(keeping, index);
        return;
    }
    int windowed = !plan->ignores_windows && (layer->attention == MT_ATTENTION_SLIDING ||
                                              layer->attention == MT_ATTENTION_CHUNKED);
    if (layer->attention == MT_ATTENTION_LATENT || (keeping->made_latent && !windowed))
        add_latent(keeping, index, draft ? DRAFT : LATENT);
    else if (windowed)
        add_heads(keeping, index, draft ? DRAFT : WINDOWED, plan->swa_cells);
    else
        add_heads(keeping, index, draft ? DRAFT : GLOBAL, plan->cells);
    if (!draft)
        add_indexer(keeping, index);
}

static void write_group(const struct keeping *keeping, struct mt_sheet *sheet, int place,
                        enum class class)
{
    static const struct {
        const char *name;
        const char *rule;
    } classes[] = {
        [GLOBAL] = {"global layers", "kv_cache"},
        [WINDOWED] = {"windowed layers", "kv_cache_windowed"},
        [LATENT] = {"latent layers", "kv_cache_latent"},
        [INDEXER] = {"indexer keys", "kv_cache_indexer"},
        [COMPRESSED] = {"compressed cells", "kv_cache_compressed"},
        [DRAFT] = {"draft layers", "kv_cache"},
    };
    const struct mt_llama_plan *plan = keeping->plan;
    const struct group *group = &keeping->groups[place + 1][class];
    struct mt_sheet_term term = {.place = place,
                                 .category = MT_CATEGORY_KV_CACHE,
                                 .name = classes[class].name,
                                 .rule = classes[class].rule,
                                 .bytes = group->bytes,
                                 .provenance = MT_PROVENANCE_DERIVED};
    if (group->uniform)
        mt_sheet_add(sheet, &term,
                     "%" PRIu64 " layers x %" PRIu64 " streams x %" PRIu64 " cells x (%" PRIu64
                     " x %s + %" PRIu64 " x %s)",
                     group->n, group->streams, group->cells, group->k_width, plan->type_k,
                     group->v_width, plan->type_v);
    else
        mt_sheet_add(sheet, &term,
                     "%" PRIu64 " layers x %" PRIu64 " streams x %" PRIu64
                     " cells x heads of each layer, keys %s, values %s",
                     group->n, group->streams, group->cells, plan->type_k, plan->type_v);
}

static int write_groups(const struct keeping *keeping, struct mt_sheet *sheet,
                        struct mt_error *error)
{
    uint64_t sum = 0;
    for (size_t place = 0; place <= keeping->plan->n_devices; place++)
        for (int class = 0; class < N_CLASSES; class ++)
            sum = mt_llama_add(sum, keeping->groups[place][class].bytes);
    if (sum > MT_LLAMA_SANE_BYTES)
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET,
                       "the cache of %" PRIu64 " tokens is too large to add up",
                       keeping->plan->context);
    for (int place = MT_HOST_PLACE; place < (int)keeping->plan->n_devices; place++)
        for (int class = 0; class < N_CLASSES; class ++)
            write_group(keeping, sheet, place, (enum class) class);
    return 0;
}

/* Logits (and for an embedder its vectors) that wait to be read. */
static void write_output(const struct mt_llama_plan *plan, struct mt_sheet *sheet)
{
    const struct mt_predict_input *in = plan->in;
    uint64_t rows = plan->sequences;
    if (in->settings->program == MT_PROGRAM_SERVER)
        rows += mt_engine_number(in->engine, "outputs.extra_sequences", 0);
    uint64_t width = in->d->vocabulary + (in->d->is_embedder ? in->d->embedding_length : 0);
    uint64_t bytes = mt_llama_times(mt_llama_times(rows, width), 4);
    struct mt_sheet_term term = {.place = MT_HOST_PLACE,
                                 .category = MT_CATEGORY_ACTIVATIONS,
                                 .name = "output buffer",
                                 .rule = "output_buffer",
                                 .bytes = bytes < MT_LLAMA_SANE_BYTES ? bytes : 0,
                                 .provenance = MT_PROVENANCE_DERIVED};
    mt_sheet_add(sheet, &term, "%" PRIu64 " rows x %" PRIu64 " x 4 B", rows, width);
}

static void keep_layers(struct keeping *keeping)
{
    const struct mt_model_description *d = keeping->plan->in->d;
    mark_layers(keeping);
    choose_latent_form(keeping);
    for (uint64_t i = 0; i < d->n_layers; i++) {
        uint64_t width = mt_llama_times(d->layers[i].kv_heads, d->layers[i].value_size);
        if (width > keeping->widest_value)
            keeping->widest_value = width;
    }
    for (uint64_t i = 0; i < d->n_layers; i++)
        keep_layer(keeping, i);
}

int mt_llama_cache(const struct mt_llama_plan *plan, struct mt_sheet *sheet, struct mt_error *error)
{
    struct keeping keeping = {.plan = plan,
                              .groups = calloc(plan->n_devices + 1, sizeof *keeping.groups),
                              .marks = calloc(plan->n_layers + 1, sizeof *keeping.marks)};
    int result;
    if (keeping.groups && keeping.marks) {
        keep_layers(&keeping);
        result = write_groups(&keeping, sheet, error);
    } else {
        result = mt_out_of_memory(error);
    }
    free(keeping.groups);
    free(keeping.marks);
    if (result == 0)
        result = mt_llama_state(plan, sheet, error);
    if (result == 0)
        write_output(plan, sheet);
    return result;
}
