/* SPDX-License-Identifier: MIT */
/* Compute buffers of ik_llama.cpp and of older llama.cpp: the graph of a whole batch is built, put
 * on backends and allocated, as the engine does it when it starts. */
#include "compute.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/settings.h>

#include "base/arena.h"
#include "base/error.h"
#include "internal.h"
#include "model/families.h"
#include "predict/llama/internal.h"
#include "predict/sheet.h"

#define VARIANTS_MAX 12

static const struct {
    int is_known;
    unsigned traits;
} families[MT_ARCH_UNKNOWN + 1] = {
#define OLD(id, traits) [MT_ARCH_##id] = {1, traits},
#include "model/families.def"
};

static int is_known(const char *architecture)
{
    return families[mt_arch_of(architecture)].is_known;
}

static unsigned traits_of(const char *architecture)
{
    return families[mt_arch_of(architecture)].traits;
}

/* How latent attention runs: ik_llama.cpp is told, and takes files of both forms; llama.cpp attends
 * to the compressed cache where build and file have one. */
static uint64_t mla_mode_of(const struct mt_llama_plan *plan)
{
    const struct mt_model_description *d = plan->in->d;
    if (mt_engine_has(plan->in->engine, "cache.latent", "mode"))
        return plan->in->settings->mla_mode;
    if (mt_engine_has(plan->in->engine, "cache.latent", "heads"))
        return 0;
    for (uint64_t i = 0; i < d->n_layers; i++)
        if (d->layers[i].attention == MT_ATTENTION_LATENT)
            return 1;
    return 0;
}

static struct mt_old_rules rules_of(const struct mt_llama_plan *plan)
{
    const struct mt_engine *e = plan->in->engine;
    const struct mt_predict_settings *s = plan->in->settings;
    struct mt_old_rules rules = {
        .ik = mt_engine_has(e, "graph", "ik"),
        .copies = plan->copies,
        .fused_experts = mt_engine_has(e, "graph.experts", "fused"),
        .half_mask = plan->flash_attention && mt_engine_number(e, "compute.mask.bytes", 4) == 2,
        .stream_batch = mt_engine_number(e, "compute.stream.batch", 32),
        .stream_experts = !mt_engine_has(e, "compute.stream.experts", "never"),
        .stream_experts_share = mt_engine_has(e, "compute.stream.experts", "share"),
        .half_latent = mt_engine_has(e, "compute.latent.type", "f16"),
        .early_latent = mt_engine_has(e, "compute.latent", "early"),
        .mla_mode = mla_mode_of(plan),
        .attn_max_batch_mib = s->attn_max_batch_mib};
    return rules;
}

/* Bytes of the weights of every layer by their names. */
static int known_weight(const struct mt_model_tensor *t)
{
    static const char *const names[] = {
#define NAME(NAME_, name) [MT_OLD_##NAME_] = name,
        MT_OLD_WEIGHTS(NAME)
#undef NAME
    };
    const char *end = t->name + t->name_length;
    for (int i = 0; i < MT_OLD_N_WEIGHTS; i++) {
        size_t n = strlen(names[i]);
        for (const char *p = t->name; p + n + 7 <= end; p++) {
            if (*p != '.' || memcmp(p + 1, names[i], n) || p[n + 1] != '.')
                continue;
            return p + n + 8 == end && !memcmp(p + n + 1, ".weight", 7) ? i : MT_OLD_N_WEIGHTS;
        }
    }
    return MT_OLD_N_WEIGHTS;
}

static uint64_t *weights_of_layers(const struct mt_llama_plan *plan)
{
    uint64_t *weights = calloc(plan->n_layers * MT_OLD_N_WEIGHTS + 1, sizeof *weights);
    uint64_t n = plan->in->model ? plan->in->d->n_tensors : 0;
    for (uint64_t i = 0; weights && i < n; i++) {
        struct mt_model_tensor t;
        if (mt_model_tensor_at(plan->in->model, i, &t) || t.layer >= plan->n_layers)
            continue;
        int which = known_weight(&t);
        if (which != MT_OLD_N_WEIGHTS)
            weights[t.layer * (size_t)MT_OLD_N_WEIGHTS + (size_t)which] = t.bytes;
    }
    return weights;
}

static int backend_of(const struct mt_old *b, size_t layer)
{
    int place = b->plan->device_of[layer];
    return place == MT_HOST_PLACE ? b->host : place;
}

static struct mt_node *input(struct mt_old *b, struct mt_old_shape shape)
{
    struct mt_node *node = mt_op_input(b->graph, MT_TYPE_F32, shape.ne);
    node->bytes = shape.bytes;
    return node;
}

/* A mask of a cache's cells, as f32 from the host; made f16 where it is used so. */
static struct mt_node *make_mask(struct mt_old *b, uint64_t cells)
{
    struct mt_old_shape half = mt_old_f16(cells, b->tokens, 1);
    if (b->rules.half_mask)
        return input(b, half);
    struct mt_node *mask = input(b, mt_old_f32(cells, b->tokens, 1));
    return b->plan->flash_attention ? mt_old_op(b, half, mask, NULL) : mask;
}

static struct mt_node *embeddings(struct mt_old *b)
{
    struct mt_old_shape shape = mt_old_f32(b->d->embedding_length, b->tokens, 1);
    struct mt_node *table = mt_old_weight(b, b->host, 0);
    struct mt_node *x;
    x = mt_old_op(b, shape, table, input(b, mt_old_f32(b->tokens, 1, 1)));
    return b->traits & MT_OLD_SCALED_INPUT ? mt_old_inplace(b, shape, x, NULL) : x;
}

static struct mt_node *feed_forward(struct mt_old *b, struct mt_node *x)
{
    return b->layer->experts ? mt_old_experts(b, x) : mt_old_ffn(b, x);
}

/* Rows that get an output; all of them, in the worst case. */
static struct mt_node *chosen_rows(struct mt_old *b, struct mt_node *x, struct mt_node *ids)
{
    return mt_old_op(b, mt_old_f32(b->d->embedding_length, b->plan->output_rows, 1), x, ids);
}

static struct mt_node *build_layer(struct mt_old *b, struct mt_node *x, struct mt_node *ids)
{
    const struct mt_model_layer *l = b->layer;
    struct mt_old_shape shape = mt_old_f32(b->d->embedding_length, b->tokens, 1);
    struct mt_node *residual = x;
    struct mt_node *cur = x;
    struct mt_node *normed = NULL;
    if (l->attention != MT_ATTENTION_NONE) {
        cur = normed = mt_old_norm(b, x, shape);
        cur =
            mt_llama_is_latent(b->d, l) ? mt_old_mla_block(b, cur) : mt_old_attention_block(b, cur);
    }
    if (ids != NULL) {
        cur = chosen_rows(b, cur, ids);
        residual = chosen_rows(b, residual, ids);
        if (b->traits & MT_OLD_PARALLEL)
            normed = chosen_rows(b, normed, ids);
        b->tokens = b->plan->output_rows;
        shape = mt_old_f32(b->d->embedding_length, b->tokens, 1);
    }
    if (b->traits & MT_OLD_PARALLEL) {
        struct mt_node *ffn = feed_forward(b, normed);
        return mt_old_inplace(b, shape, mt_old_inplace(b, shape, ffn, residual), cur);
    }
    if (b->traits & MT_OLD_POST_NORM)
        cur = mt_old_norm(b, cur, shape);
    struct mt_node *inner =
        l->attention == MT_ATTENTION_NONE ? cur : mt_old_inplace(b, shape, cur, residual);
    if (!l->ff_length && !l->experts)
        return inner;
    cur = feed_forward(b, mt_old_norm(b, inner, shape));
    if (b->traits & MT_OLD_POST_NORM)
        cur = mt_old_norm(b, cur, shape);
    return mt_old_inplace(b, shape, cur, inner);
}

static int experts_on_host(const struct mt_old *b, size_t layer)
{
    const struct mt_predict_settings *s = b->plan->in->settings;
    return b->plan->experts_on_host && (!s->cpu_moe_layers || layer < s->cpu_moe_layers);
}

/* The matrix that gives the logits: of its own, or the table of embeddings. */
static uint64_t output_bytes(const struct mt_llama_plan *plan)
{
    uint64_t bytes = 0;
    uint64_t n = plan->in->model ? plan->in->d->n_tensors : 0;
    for (uint64_t i = 0; i < n; i++) {
        struct mt_model_tensor t;
        if (mt_model_tensor_at(plan->in->model, i, &t))
            continue;
        if (t.role == MT_TENSOR_OUTPUT)
            return t.bytes;
        if (t.role == MT_TENSOR_TOKEN_EMBEDDING)
            bytes = t.bytes;
    }
    return bytes;
}

static void build_logits(struct mt_old *b, struct mt_node *x)
{
    b->backend = backend_of(b, b->plan->n_layers);
    b->graph->part = MT_OLD_LOGITS;
    struct mt_old_shape shape = mt_old_f32(b->d->embedding_length, b->tokens, 1);
    x = mt_old_norm(b, x, shape);
    mt_graph_expand(b->graph, mt_old_product(b, output_bytes(b->plan), x, b->d->vocabulary));
}

/* Cells of the cache that a layer attends to. */
static uint64_t cells_of(const struct mt_llama_plan *plan, int windowed)
{
    return (windowed && plan->swa_cells ? plan->swa_cells : plan->cells) * plan->streams;
}

static void build(struct mt_old *b, const uint64_t *weights)
{
    const struct mt_llama_plan *plan = b->plan;
    struct mt_node *x = embeddings(b);
    b->positions =
        input(b, mt_old_f32(b->tokens, b->d->position_streams ? b->d->position_streams : 1, 1));
    b->masks[0] = make_mask(b, cells_of(plan, 0));
    b->masks[1] = b->traits & MT_OLD_TWO_MASKS ? make_mask(b, cells_of(plan, 1)) : b->masks[0];
    struct mt_node *ids = input(b, mt_old_f32(plan->output_rows, 1, 1));
    for (size_t i = 0; i < plan->n_layers && !b->graph->failed; i++) {
        b->layer = &b->d->layers[i];
        b->weights = weights + i * MT_OLD_N_WEIGHTS;
        b->backend = backend_of(b, i);
        b->expert_backend = experts_on_host(b, i) ? b->host : b->backend;
        b->cache_backend = plan->in->settings->kv_on_host ? b->host : b->backend;
        int windowed = b->layer->attention == MT_ATTENTION_SLIDING;
        b->mask = b->masks[windowed];
        b->kv_cells = cells_of(plan, windowed && b->traits & MT_OLD_TWO_MASKS);
        x = build_layer(b, x, i + 1 == plan->n_layers ? ids : NULL);
    }
    build_logits(b, x);
}

/* One plan of the graph under the given rules; sizes of each device, then of the host. */
static int replay(const struct mt_llama_plan *plan, const struct mt_old_rules *rules,
                  const uint64_t *weights, struct mt_graph_buffer *sizes)
{
    struct mt_arena arena = {0};
    struct mt_graph graph;
    const struct mt_graph_machine machine = {.n_devices = (int)plan->n_devices,
                                             .n_copies = (unsigned)rules->copies,
                                             .device_alignment = 128,
                                             .host_alignment = 32,
                                             .offload_batch = UINT64_MAX};
    struct mt_old b = {.graph = &graph,
                       .plan = plan,
                       .d = plan->in->d,
                       .rules = *rules,
                       .traits = traits_of(plan->in->d->architecture),
                       .tokens = plan->ubatch,
                       .host = (int)plan->n_devices};
    mt_graph_init(&graph, &arena);
    build(&b, weights);
    int rc = mt_graph_reserve(&graph, &machine, sizes);
    mt_arena_finish(&arena);
    return rc;
}

/* What is not known of a build or a command line, and changes its buffers: whether matrices on the
 * host are multiplied there, whether the experts' first two are fused, and the number of copies. */
struct doubt {
    int stream;
    int fused;
    uint64_t other_copies; /* 0: none in doubt */
};

static struct doubt doubt_of(const struct mt_llama_plan *plan)
{
    const struct mt_engine *e = plan->in->engine;
    const struct mt_predict_settings *s = plan->in->settings;
    struct doubt doubt = {0};
    doubt.stream = mt_engine_has(e, "compute.doubts", "stream") &&
                   (plan->experts_on_host || !plan->all_on_devices);
    doubt.fused = mt_engine_has(e, "compute.doubts", "fused") && plan->in->d->experts;
    if (plan->n_devices > 1 && plan->all_on_devices && !plan->experts_on_host && !s->kv_on_host)
        doubt.other_copies = mt_engine_number(e, "pipeline.copies.other", 0);
    return doubt;
}

/* The known rules first, then what else may be: every way out of one doubt with every one of the
 * others. Returns their number, at most VARIANTS_MAX. */
static size_t variants(const struct mt_llama_plan *plan, struct mt_old_rules *all)
{
    struct doubt doubt = doubt_of(plan);
    size_t n = 0;
    for (int stream = 0; stream < (doubt.stream ? 3 : 1); stream++)
        for (int fused = 0; fused < (doubt.fused ? 2 : 1); fused++)
            for (int copies = 0; copies < (doubt.other_copies ? 2 : 1); copies++) {
                struct mt_old_rules *r = &all[n++];
                *r = rules_of(plan);
                r->stream_batch = stream == 1 ? 0 : r->stream_batch;
                r->stream_experts_share ^= stream == 2;
                r->fused_experts ^= fused;
                r->copies = copies ? doubt.other_copies : r->copies;
            }
    return n;
}

static void widen(struct mt_compute_buffer *buffer, uint64_t bytes)
{
    if (bytes < buffer->low_bytes)
        buffer->low_bytes = bytes;
    if (bytes > buffer->high_bytes)
        buffer->high_bytes = bytes;
}

static const char *part_name(uint8_t part)
{
    static const char *const names[] = {[MT_OLD_INPUTS] = "inputs",
                                        [MT_OLD_ATTENTION] = "attention",
                                        [MT_OLD_FFN] = "feed-forward",
                                        [MT_OLD_EXPERTS] = "experts",
                                        [MT_OLD_LOGITS] = "logits"};
    return names[part];
}

/* How far the graph of another commit may be from those that are known, as a share: out of the
 * engine's table, by what is known of the family, where layers lie, and the place. `end` is "below"
 * or "above". */
static double width_of(const struct mt_llama_plan *plan, size_t place, const char *end)
{
    const struct mt_model_description *d = plan->in->d;
    int in_part = plan->n_devices && (!plan->all_on_devices || plan->experts_on_host);
    const char *family = !is_known(d->architecture) ? "unknown"
                         : d->kv_lora_rank          ? "latent"
                                                    : "plain";
    char key[80];
    snprintf(key, sizeof key, "compute.band.%s.%s.%s.%s", family, in_part ? "part" : "whole",
             place < plan->n_devices ? "device" : "host", end);
    return mt_engine_real(plan->in->engine, key, d->kv_lora_rank ? 10 : 1) / 100;
}

/* What the buffer may have beyond that: in some builds logits did not fit where the masks had been;
 * while compressed attention was in the making, the first device had more than a graph explains. */
static uint64_t further(const struct mt_llama_plan *plan, const char *largest, size_t place)
{
    const struct mt_engine *e = plan->in->engine;
    uint64_t bytes = 0;
    if (!strcmp(largest, part_name(MT_OLD_LOGITS)) && mt_engine_has(e, "compute.doubts", "logits"))
        bytes += plan->cells * plan->streams * plan->ubatch * (plan->flash_attention ? 6 : 4);
    if (plan->in->d->kv_lora_rank && place == 0 && plan->n_devices)
        bytes += mt_engine_number(e, "compute.latent.first", 0);
    return bytes;
}

static void describe(const struct mt_llama_plan *plan, const struct mt_graph_buffer *from,
                     struct mt_compute_buffer *buffer)
{
    *buffer = (struct mt_compute_buffer){.bytes = from->bytes,
                                         .low_bytes = from->bytes,
                                         .high_bytes = from->bytes,
                                         .rule = part_name(from->part)};
    snprintf(buffer->formula, sizeof buffer->formula,
             "inputs %" PRIu64 " (%" PRIu64 " copies) + tensors of %s %" PRIu64
             " + holes between them %" PRIu64,
             from->inputs, plan->copies, buffer->rule, from->working,
             from->bytes - from->inputs - from->working);
}

static void add_width(const struct mt_llama_plan *plan, size_t place,
                      struct mt_compute_buffer *buffer)
{
    double below = width_of(plan, place, "below");
    double above = width_of(plan, place, "above");
    buffer->low_bytes = (uint64_t)((double)buffer->low_bytes * (1 - below));
    buffer->high_bytes =
        (uint64_t)((double)buffer->high_bytes * (1 + above)) + further(plan, buffer->rule, place);
}

static int replay_all(const struct mt_llama_plan *plan, const uint64_t *weights,
                      struct mt_graph_buffer *sizes, struct mt_compute_buffer *buffers)
{
    struct mt_old_rules rules[VARIANTS_MAX];
    size_t n = variants(plan, rules);
    int rc = 0;
    for (size_t k = 0; !rc && k < n; k++) {
        rc = replay(plan, &rules[k], weights, sizes);
        for (size_t i = 0; !rc && i <= plan->n_devices; i++)
            k ? widen(&buffers[i], sizes[i].bytes) : describe(plan, &sizes[i], &buffers[i]);
    }
    for (size_t i = 0; !rc && i <= plan->n_devices; i++)
        add_width(plan, i, &buffers[i]);
    return rc;
}

int mt_llama_compute_buffers_old(const struct mt_llama_plan *plan,
                                 struct mt_compute_buffer *buffers, struct mt_error *error)
{
    uint64_t *weights = weights_of_layers(plan);
    struct mt_graph_buffer *sizes = calloc(plan->n_devices + 1, sizeof *sizes);
    int rc = weights && sizes ? replay_all(plan, weights, sizes, buffers) : MT_ENOMEM;
    free(weights);
    free(sizes);
    return rc ? mt_fail(error, rc, MT_NO_OFFSET, "the graph of %zu layers could not be planned",
                        plan->n_layers)
              : 0;
}
