/* SPDX-License-Identifier: MIT */
/* Layers of llama.cpp's graphs that carry a state from token to token: Mamba-2, gated delta nets,
 * short convolutions. */
#include <memtally/settings.h>

#include "build.h"
#include "predict/llama/internal.h"

static struct mt_node *first_of(struct mt_build *build, struct mt_node *x, uint64_t n)
{
    return mt_op_view(build->graph, x, (uint64_t[4]){n, 1, 1, 1}, x->nb);
}

void mt_build_state_inputs(struct mt_build *build)
{
    const uint64_t ne[4] = {build->sequences, 1, 1, 1};
    build->state_rows = mt_op_input(build->graph, MT_TYPE_I32, ne);
    build->state_rows_main = first_of(build, build->state_rows, build->sequences);
    /* What is left for other sequences: all but the first, or none. */
    uint64_t rest = build->newer & MT_NEWER_STATES ? build->sequences - 1 : 0;
    build->state_rows_tail = first_of(build, build->state_rows, rest);
}

static struct mt_node *state_of(struct mt_build *build, struct mt_node **slot, uint64_t width,
                                size_t il)
{
    if (!*slot) {
        const uint64_t ne[4] = {width, build->sequences, 1, 1};
        int backend =
            build->plan->in->settings->kv_on_host ? build->host : mt_build_backend(build, il);
        *slot = mt_op_external(build->graph, MT_TYPE_F32, ne, backend);
    }
    return *slot;
}

static struct mt_node *rows_view(struct mt_build *build, struct mt_node *x, uint64_t rows)
{
    return mt_op_view(build->graph, x, (uint64_t[4]){x->ne[0], rows, 1, 1}, x->nb);
}

/* The state is cleared in place before it is read. */
static struct mt_node *cleared(struct mt_build *build, struct mt_node *state)
{
    struct mt_graph *g = build->graph;
    struct mt_node *rows = mt_op_reshape(g, state, state->ne[0], state->ne[1], 1, 1);
    struct mt_node *zero = first_of(build, rows, state->ne[0]);
    mt_graph_expand(g, mt_op_store(g, zero, NULL));
    return rows;
}

static void keep_extra(struct mt_build *build, struct mt_node *state, struct mt_node *extra)
{
    mt_graph_expand(build->graph, mt_op_copy(build->graph, extra, rows_view(build, state, 0)));
}

/* Gathers the states of the batch's sequences. */
static struct mt_node *gathered(struct mt_build *build, struct mt_node *state)
{
    struct mt_graph *g = build->graph;
    struct mt_node *rows = cleared(build, state);
    if (build->newer & MT_NEWER_STATES) {
        struct mt_node *all = mt_op_get_rows(g, rows, build->state_rows);
        struct mt_node *main = rows_view(build, all, build->sequences);
        mt_graph_expand(g, main);
        keep_extra(build, state, rows_view(build, all, 0));
        return main;
    }
    struct mt_node *main = mt_op_get_rows(g, rows, build->state_rows_main);
    mt_graph_expand(g, main);
    keep_extra(build, state, mt_op_get_rows(g, rows, build->state_rows_tail));
    return main;
}

struct scan {
    struct mt_node *x;
    struct mt_node *dt;
    struct mt_node *a;
    struct mt_node *b;
    struct mt_node *c;
    uint64_t state_size;
    uint64_t head_size;
    uint64_t heads;
};

static struct mt_node *scan_op(struct mt_build *build, const struct scan *s, struct mt_node *states)
{
    struct mt_graph *g = build->graph;
    uint64_t n =
        mt_node_elements(s->x) + s->state_size * s->head_size * s->heads * build->sequences;
    struct mt_node *y = mt_op_make(g, (uint64_t[4]){n, 1, 1, 1}, states, s->x, s->dt);
    y->sources[3] = s->a;
    y->sources[4] = s->b;
    y->sources[5] = s->c;
    y->sources[6] = build->state_rows_main;
    return y;
}

/* Reads the states where they lie; only those of other sequences are gathered. */
static struct mt_node *scanned(struct mt_build *build, const struct scan *s, struct mt_node *state)
{
    struct mt_graph *g = build->graph;
    struct mt_node *rows = cleared(build, state);
    struct mt_node *rest = NULL;
    if (build->newer & MT_NEWER_STATES)
        rest = mt_op_get_rows(g, rows, build->state_rows_tail);
    struct mt_node *states =
        mt_op_reshape(g, rows, s->state_size, s->head_size, s->heads, build->sequences);
    struct mt_node *y = scan_op(build, s, states);
    mt_graph_expand(g, y);
    if (rest)
        keep_extra(build, state, rows_view(build, rest, 0));
    else
        keep_extra(build, state, mt_op_get_rows(g, rows, build->state_rows_tail));
    uint64_t width = s->state_size * s->head_size * s->heads;
    struct mt_node *last = mt_op_view(
        g, y, (uint64_t[4]){width, build->sequences, 1, 1},
        (uint64_t[4]){4, width * 4, width * build->sequences * 4, width * build->sequences * 4});
    struct mt_node *to = rows_view(build, state, build->sequences);
    mt_graph_expand(g, mt_op_copy(g, last, to));
    return y;
}

/* Puts the last columns of the sequence before the new ones and keeps the new last ones. */
static struct mt_node *convolution_input(struct mt_build *build, struct mt_node *conv,
                                         struct mt_node *x, struct mt_node *states)
{
    struct mt_graph *g = build->graph;
    struct mt_node *joined = mt_op_concat(g, conv, x, 0);
    struct mt_node *last = mt_op_columns(g, joined, conv->ne[0]);
    struct mt_node *to = rows_view(build, states, build->sequences);
    mt_graph_expand(g, mt_op_copy(g, last, to));
    return joined;
}

static struct mt_node *convolved(struct mt_build *build, struct mt_node *joined, size_t il,
                                 enum mt_slot kernel, uint64_t width)
{
    uint64_t per_sequence = build->tokens / build->sequences;
    uint64_t taps = joined->ne[0] - per_sequence + 1;
    const uint64_t ne[4] = {joined->ne[1], per_sequence, joined->ne[2], 1};
    return mt_op_make(build->graph, ne, joined, mt_build_weight(build, il, kernel, taps, width, 1),
                      NULL);
}

/* Part of rows as {size, heads, tokens of a sequence, sequences}. */
static struct mt_node *heads_of(struct mt_build *build, struct mt_node *x, uint64_t size,
                                uint64_t heads)
{
    return mt_op_heads(build->graph, x, size, heads, mt_graph_row_bytes(MT_TYPE_F32, size));
}

struct mamba2 {
    struct mt_node *z;
    struct mt_node *xbc;
    struct mt_node *dt;
    uint64_t mixed; /* width of x, B and C together */
};

static struct mamba2 mamba2_inputs(struct mt_build *build, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_description *d = build->d;
    uint64_t heads = d->time_step_rank;
    uint64_t per_sequence = build->tokens / build->sequences;
    struct mamba2 m = {.mixed = d->inner_size + 2 * d->group_count * d->state_size};
    uint64_t width = d->inner_size + m.mixed + heads;
    if (!(build->newer & MT_NEWER_MAMBA))
        x = mt_op_reshape(g, x, x->ne[0], per_sequence, build->sequences, 1);
    struct mt_node *all = mt_build_project(build, x, il, MT_SLOT_SSM_IN, width);
    if (build->newer & MT_NEWER_MAMBA)
        all = mt_op_reshape(g, all, width, per_sequence, build->sequences, 1);
    m.z = heads_of(build, all, d->inner_size / heads, heads);
    m.xbc = mt_op_columns(g, all, m.mixed);
    m.dt = mt_op_columns(g, all, heads);
    return m;
}

static struct mt_node *mamba2_convolution(struct mt_build *build, const struct mamba2 *m, size_t il,
                                          struct mt_node *conv, struct mt_node *states)
{
    struct mt_graph *g = build->graph;
    struct mt_node *joined = convolution_input(build, conv, mt_op_transpose(g, m->xbc), states);
    struct mt_node *x = convolved(build, joined, il, MT_SLOT_SSM_CONV, m->mixed);
    x = mt_op_map(g, x, mt_build_weight(build, il, MT_SLOT_SSM_CONV_B, m->mixed, 1, 1));
    return mt_op_map(g, x, NULL);
}

static struct mt_node *mamba2_gate(struct mt_build *build, struct mt_node *y, const struct scan *s,
                                   const struct mamba2 *m, size_t il)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_description *d = build->d;
    uint64_t per_sequence = build->tokens / build->sequences;
    uint64_t groups = d->group_count ? d->group_count : 1;
    struct mt_node *skip =
        mt_op_map(g, s->x, mt_build_weight(build, il, MT_SLOT_SSM_D, 1, s->heads, 1));
    y = mt_op_view(g, y, s->x->ne,
                   (uint64_t[4]){4, s->x->nb[1], s->heads * s->x->nb[1],
                                 per_sequence * s->heads * s->x->nb[1]});
    y = mt_op_map(g, y, skip);
    y = mt_op_glu(g, mt_op_like(g, m->z), y);
    if (mt_build_expects(build, il, MT_SLOT_SSM_NORM)) {
        y = mt_op_reshape(g, y, d->inner_size / groups, groups, per_sequence, build->sequences);
        y = mt_build_norm(build, y, il, MT_SLOT_SSM_NORM, 0);
    }
    if (!(build->newer & MT_NEWER_MAMBA))
        return mt_op_reshape(g, y, d->inner_size, per_sequence, build->sequences, 1);
    return mt_op_reshape(g, y, d->inner_size, build->tokens, 1, 1);
}

struct mt_node *mt_build_mamba2(struct mt_build *build, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_description *d = build->d;
    struct mt_build_layer *layer = &build->layers[il];
    uint64_t embedding = x->ne[0];
    struct scan s = {.state_size = d->state_size,
                     .heads = d->time_step_rank,
                     .head_size = d->inner_size / d->time_step_rank};
    uint64_t mixed = d->inner_size + 2 * d->group_count * d->state_size;
    uint64_t taps = d->conv_kernel - 1;
    struct mt_node *conv_states = state_of(build, &layer->conv_state, taps * mixed, il);
    struct mt_node *states = state_of(build, &layer->state, d->state_size * d->inner_size, il);
    struct mt_node *conv = gathered(build, conv_states);
    conv = mt_op_reshape(g, conv, taps, mixed, build->sequences, 1);
    struct mamba2 m = mamba2_inputs(build, x, il);
    struct mt_node *xbc = mamba2_convolution(build, &m, il, conv, conv_states);
    s.x = heads_of(build, xbc, s.head_size, s.heads);
    s.b = heads_of(build, xbc, d->state_size, d->group_count);
    s.c = heads_of(build, xbc, d->state_size, d->group_count);
    s.dt = mt_op_map(g, mt_op_like(g, m.dt),
                     mt_build_weight(build, il, MT_SLOT_SSM_DT_B, s.heads, 1, 1));
    s.a = mt_build_weight(build, il, MT_SLOT_SSM_A, 1, s.heads, 1);
    struct mt_node *y = scanned(build, &s, states);
    y = mamba2_gate(build, y, &s, &m, il);
    y = mt_build_project(build, y, il, MT_SLOT_SSM_OUT, embedding);
    return build->newer & MT_NEWER_MAMBA ? y : mt_op_reshape(g, y, embedding, build->tokens, 1, 1);
}

/* Mamba's step, strength and input come out of one narrow product of the convolved input. */
static void mamba_steps(struct mt_build *build, struct scan *s, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_description *d = build->d;
    uint64_t rank = d->time_step_rank;
    struct mt_node *all = mt_build_project(build, x, il, MT_SLOT_SSM_X, rank + 2 * d->state_size);
    struct mt_node *dt = mt_op_columns(g, all, rank);
    s->b = heads_of(build, all, d->state_size, 1);
    s->c = heads_of(build, all, d->state_size, 1);
    if (mt_build_expects(build, il, MT_SLOT_SSM_DT_NORM)) {
        dt = mt_build_norm(build, dt, il, MT_SLOT_SSM_DT_NORM, 0);
        s->b = mt_build_norm(build, s->b, il, MT_SLOT_SSM_B_NORM, 0);
        s->c = mt_build_norm(build, s->c, il, MT_SLOT_SSM_C_NORM, 0);
    } else {
        dt = mt_op_like(g, dt);
    }
    dt = mt_build_project(build, dt, il, MT_SLOT_SSM_DT, d->inner_size);
    s->dt = mt_op_map(g, dt, mt_build_weight(build, il, MT_SLOT_SSM_DT_B, d->inner_size, 1, 1));
}

struct mt_node *mt_build_mamba(struct mt_build *build, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_description *d = build->d;
    struct mt_build_layer *layer = &build->layers[il];
    uint64_t embedding = x->ne[0];
    uint64_t inner = d->inner_size;
    uint64_t taps = d->conv_kernel - 1;
    uint64_t per_sequence = build->tokens / build->sequences;
    struct scan s = {.state_size = d->state_size, .heads = inner, .head_size = 1};
    struct mt_node *conv_states = state_of(build, &layer->conv_state, taps * inner, il);
    struct mt_node *states = state_of(build, &layer->state, d->state_size * inner, il);
    struct mt_node *conv = gathered(build, conv_states);
    conv = mt_op_reshape(g, conv, taps, inner, build->sequences, 1);
    x = mt_op_reshape(g, x, embedding, per_sequence, build->sequences, 1);
    struct mt_node *both = mt_build_project(build, x, il, MT_SLOT_SSM_IN, 2 * inner);
    struct mt_node *z = mt_op_columns(g, both, inner);
    x = mt_op_transpose(g, mt_op_columns(g, both, inner));
    x = convolved(build, convolution_input(build, conv, x, conv_states), il, MT_SLOT_SSM_CONV,
                  inner);
    x = mt_op_map(g, x, mt_build_weight(build, il, MT_SLOT_SSM_CONV_B, inner, 1, 1));
    x = mt_op_map(g, x, NULL);
    mamba_steps(build, &s, x, il);
    s.x = mt_op_reshape(g, x, 1, inner, per_sequence, build->sequences);
    s.a = mt_build_weight(build, il, MT_SLOT_SSM_A, d->state_size, inner, 1);
    struct mt_node *y = scanned(build, &s, states);
    y = mt_op_view(g, y, x->ne, x->nb);
    struct mt_node *skip = mt_op_map(g, x, mt_build_weight(build, il, MT_SLOT_SSM_D, inner, 1, 1));
    y = mt_op_map(g, y, skip);
    y = mt_op_glu(g, mt_op_like(g, z), y);
    y = mt_build_project(build, y, il, MT_SLOT_SSM_OUT, embedding);
    return mt_op_reshape(g, y, embedding, build->tokens, 1, 1);
}

struct delta {
    struct mt_node *mixed; /* queries, keys and values before the convolution */
    struct mt_node *z;
    struct mt_node *beta;
    struct mt_node *gate;
    uint64_t k_heads;
    uint64_t v_heads;
    uint64_t k_size;
    uint64_t v_size;
    uint64_t per_sequence;
    uint64_t width;
};

/* Qwen3-Next has the strength and decay of a step in one matrix, Qwen3.5 in two. */
static void delta_rates_joined(struct mt_build *build, struct delta *d, struct mt_node *x,
                               size_t il)
{
    struct mt_graph *g = build->graph;
    uint64_t each = d->v_heads / d->k_heads;
    struct mt_node *both = mt_build_project(build, x, il, MT_SLOT_SSM_BETA_ALPHA, 2 * d->v_heads);
    both = mt_op_reshape(g, both, 2 * each, d->k_heads, d->per_sequence, build->sequences);
    struct mt_node *b = mt_op_columns(g, both, each);
    struct mt_node *a = mt_op_columns(g, both, each);
    d->beta = mt_op_map(g, mt_op_like(g, b), NULL);
    d->gate = mt_op_cont(g, a, d->v_heads, d->per_sequence, build->sequences);
}

static void delta_rates(struct mt_build *build, struct delta *d, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    if (mt_build_expects(build, il, MT_SLOT_SSM_BETA_ALPHA)) {
        delta_rates_joined(build, d, x, il);
    } else {
        d->beta = mt_build_project(build, x, il, MT_SLOT_SSM_BETA, d->v_heads);
        d->beta = mt_op_reshape(g, d->beta, 1, d->v_heads, d->per_sequence, build->sequences);
        d->beta = mt_op_map(g, d->beta, NULL);
        d->gate = mt_build_project(build, x, il, MT_SLOT_SSM_ALPHA, d->v_heads);
        d->gate = mt_op_reshape(g, d->gate, d->v_heads, d->per_sequence, build->sequences, 1);
    }
    d->gate = mt_op_map(g, d->gate, mt_build_weight(build, il, MT_SLOT_SSM_DT_B, d->v_heads, 1, 1));
    d->gate = mt_op_map(g, d->gate, NULL);
    d->gate = mt_op_map(g, d->gate, mt_build_weight(build, il, MT_SLOT_SSM_A, d->v_heads, 1, 1));
    if (mt_build_expects(build, il, MT_SLOT_SSM_BETA_ALPHA))
        d->beta = mt_op_reshape(g, d->beta, 1, d->v_heads, d->per_sequence, build->sequences);
    d->gate = mt_op_reshape(g, d->gate, 1, d->v_heads, d->per_sequence, build->sequences);
}

static struct mt_node *delta_part(struct mt_build *build, struct mt_node *mix, uint64_t size,
                                  uint64_t heads)
{
    const uint64_t ne[4] = {size, heads, mix->ne[1], mix->ne[2]};
    const uint64_t nb[4] = {4, size * 4, mix->nb[1], mix->nb[1] * mix->ne[1]};
    return mt_op_view(build->graph, mix, ne, nb);
}

static struct mt_node *unit_length(struct mt_build *build, struct mt_node *x)
{
    return mt_op_map(build->graph, mt_op_map(build->graph, x, NULL), NULL);
}

/* Queries and keys for each head of values. */
static struct mt_node *for_each_value_head(struct mt_build *build, const struct delta *d,
                                           struct mt_node *x)
{
    struct mt_graph *g = build->graph;
    uint64_t each = d->v_heads / d->k_heads;
    x = mt_op_reshape(g, x, d->k_size, 1, d->k_heads, build->tokens);
    x = mt_op_repeat(g, x, d->k_size, each, d->k_heads, build->tokens);
    return mt_op_reshape(g, x, d->k_size, d->v_heads, d->per_sequence, build->sequences);
}

static struct mt_node *delta_step(struct mt_build *build, const struct delta *d,
                                  struct mt_node *mix, struct mt_node *state,
                                  struct mt_node *states, int repeats)
{
    struct mt_graph *g = build->graph;
    struct mt_node *q = delta_part(build, mix, d->k_size, d->k_heads);
    struct mt_node *k = delta_part(build, mix, d->k_size, d->k_heads);
    struct mt_node *v = delta_part(build, mix, d->v_size, d->v_heads);
    q = unit_length(build, q);
    k = unit_length(build, k);
    if (repeats && d->k_heads != d->v_heads) {
        q = for_each_value_head(build, d, q);
        k = for_each_value_head(build, d, k);
    }
    uint64_t row = d->v_size * d->v_heads;
    const uint64_t ne[4] = {row, build->tokens + d->v_size * build->sequences, 1, 1};
    struct mt_node *y = mt_op_make(g, ne, q, k, v);
    y->sources[3] = d->gate;
    y->sources[4] = d->beta;
    y->sources[5] = state;
    struct mt_node *output =
        mt_op_view(g, y, (uint64_t[4]){d->v_size, d->v_heads, d->per_sequence, build->sequences},
                   (uint64_t[4]){4, d->v_size * 4, row * 4, row * d->per_sequence * 4});
    struct mt_node *after =
        mt_op_view(g, y, (uint64_t[4]){d->v_size, d->v_size, d->v_heads, build->sequences},
                   (uint64_t[4]){4, d->v_size * 4, d->v_size * d->v_size * 4, d->v_size * row * 4});
    mt_graph_expand(g, mt_op_copy(g, after, rows_view(build, states, build->sequences)));
    return output;
}

static struct delta delta_inputs(struct mt_build *build, struct mt_node *x, size_t il)
{
    const struct mt_model_description *d = build->d;
    struct delta delta = {.k_heads = d->group_count,
                          .v_heads = d->time_step_rank,
                          .k_size = d->state_size,
                          .v_size = d->inner_size / d->time_step_rank,
                          .per_sequence = build->tokens / build->sequences};
    delta.width = d->inner_size + 2 * d->group_count * d->state_size;
    delta.mixed = mt_build_project(build, x, il, MT_SLOT_ATTN_QKV, delta.width);
    delta.mixed = mt_op_reshape(build->graph, delta.mixed, delta.width, delta.per_sequence,
                                build->sequences, 1);
    delta.z = mt_build_project(build, x, il, MT_SLOT_ATTN_GATE, d->inner_size);
    delta_rates(build, &delta, x, il);
    return delta;
}

struct mt_node *mt_build_delta_net(struct mt_build *build, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_description *d = build->d;
    struct mt_build_layer *layer = &build->layers[il];
    uint64_t embedding = x->ne[0];
    uint64_t taps = d->conv_kernel - 1;
    struct delta delta = delta_inputs(build, x, il);
    struct mt_node *conv_states = state_of(build, &layer->conv_state, taps * delta.width, il);
    struct mt_node *states = state_of(build, &layer->state, d->state_size * d->inner_size, il);
    struct mt_node *conv = gathered(build, conv_states);
    conv = mt_op_reshape(g, conv, taps, delta.width, build->sequences, 1);
    struct mt_node *joined =
        convolution_input(build, conv, mt_op_transpose(g, delta.mixed), conv_states);
    struct mt_node *state = gathered(build, states);
    state = mt_op_reshape(g, state, delta.v_size, delta.v_size, delta.v_heads, build->sequences);
    struct mt_node *mix = convolved(build, joined, il, MT_SLOT_SSM_CONV, delta.width);
    mix = mt_op_map(g, mix, NULL);
    int repeats = mt_build_expects(build, il, MT_SLOT_SSM_BETA_ALPHA);
    x = delta_step(build, &delta, mix, state, states, repeats);
    struct mt_node *z = mt_op_reshape(g, delta.z, delta.v_size, delta.v_heads, delta.per_sequence,
                                      build->sequences);
    x = mt_build_norm(build, x, il, MT_SLOT_SSM_NORM, 0);
    x = mt_op_map(g, x, mt_op_map(g, z, NULL));
    x = mt_op_reshape(g, x, d->inner_size, delta.per_sequence, build->sequences, 1);
    x = mt_build_project(build, x, il, MT_SLOT_SSM_OUT, embedding);
    return mt_op_reshape(g, x, embedding, build->tokens, 1, 1);
}

/* One of queries, keys and values: projected, convolved with the last tokens, split into heads. */
static struct mt_node *kimi_part(struct mt_build *build, struct mt_node *x, size_t il, int part,
                                 struct mt_node *conv)
{
    static const enum mt_slot weights[] = {MT_SLOT_ATTN_Q, MT_SLOT_ATTN_K, MT_SLOT_ATTN_V};
    static const enum mt_slot kernels[] = {MT_SLOT_KDA_CONV_Q, MT_SLOT_KDA_CONV_K,
                                           MT_SLOT_KDA_CONV_V};
    struct mt_graph *g = build->graph;
    const struct mt_model_description *d = build->d;
    uint64_t inner = d->inner_size;
    uint64_t taps = d->conv_kernel - 1;
    uint64_t per_sequence = build->tokens / build->sequences;
    const uint64_t ne[4] = {taps, inner, build->sequences, 1};
    const uint64_t nb[4] = {4, taps * 4, conv->nb[1], conv->nb[1] * build->sequences};
    struct mt_node *last = mt_op_view(g, conv, ne, nb);
    x = mt_build_project(build, x, il, weights[part], inner);
    x = mt_op_reshape(g, x, inner, per_sequence, build->sequences, 1);
    struct mt_node *joined = mt_op_concat(g, last, mt_op_transpose(g, x), 0);
    struct mt_node *to = mt_op_view(g, build->layers[il].conv_state, ne, nb);
    mt_graph_expand(g, mt_op_copy(g, mt_op_columns(g, joined, taps), to));
    struct mt_node *kernel = mt_build_weight(build, il, kernels[part], taps + 1, 1, inner);
    kernel = mt_op_reshape(g, kernel, taps + 1, inner, 1, 1);
    x = mt_op_make(g, (uint64_t[4]){inner, per_sequence, build->sequences, 1}, joined, kernel,
                   NULL);
    x = mt_op_map(g, mt_op_reshape(g, x, inner, build->tokens, 1, 1), NULL);
    return mt_op_reshape(g, x, d->state_size, d->time_step_rank, per_sequence, build->sequences);
}

/* How fast each channel of a head forgets. */
static struct mt_node *kimi_decay(struct mt_build *build, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_description *d = build->d;
    uint64_t heads = d->time_step_rank;
    x = mt_build_project(build, x, il, MT_SLOT_KDA_F_A, d->state_size);
    x = mt_build_project(build, x, il, MT_SLOT_KDA_F_B, d->inner_size);
    x = mt_op_map(g, x, mt_build_weight(build, il, MT_SLOT_SSM_DT_B, d->inner_size, 1, 1));
    x = mt_op_map(g, x, NULL);
    x = mt_op_reshape(g, x, d->state_size, heads, build->tokens, 1);
    struct mt_node *a = mt_build_weight(build, il, MT_SLOT_SSM_A, 1, heads, 1);
    x = mt_op_map(g, x, mt_op_reshape(g, a, 1, heads, 1, 1));
    return mt_op_reshape(g, x, d->state_size, heads, build->tokens / build->sequences,
                         build->sequences);
}

/* Reads the state and writes it back; returns what was read. */
static struct mt_node *kimi_step(struct mt_build *build, struct mt_node *const qkv[3],
                                 struct mt_node *decay, struct mt_node *beta, size_t il)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_description *d = build->d;
    uint64_t size = d->state_size;
    uint64_t heads = d->time_step_rank;
    uint64_t per_sequence = build->tokens / build->sequences;
    uint64_t row = size * heads;
    struct mt_node *states = state_of(build, &build->layers[il].state, size * row, il);
    struct mt_node *state = gathered(build, states);
    state = mt_op_reshape(g, state, size, size, heads, build->sequences);
    const uint64_t ne[4] = {row, build->tokens + size * build->sequences, 1, 1};
    struct mt_node *y =
        mt_op_make(g, ne, unit_length(build, qkv[0]), unit_length(build, qkv[1]), qkv[2]);
    y->sources[3] = decay;
    y->sources[4] = beta;
    y->sources[5] = state;
    struct mt_node *after = mt_op_view(g, y, (uint64_t[4]){size, size, heads, build->sequences},
                                       (uint64_t[4]){4, size * 4, size * size * 4, size * row * 4});
    mt_graph_expand(g, mt_op_copy(g, after, rows_view(build, states, build->sequences)));
    y = mt_op_view(g, y, (uint64_t[4]){size, heads, per_sequence, build->sequences},
                   (uint64_t[4]){4, size * 4, row * 4, row * per_sequence * 4});
    return mt_op_like(g, y);
}

struct mt_node *mt_build_kimi_delta(struct mt_build *build, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    const struct mt_model_description *d = build->d;
    uint64_t heads = d->time_step_rank;
    uint64_t embedding = x->ne[0];
    uint64_t per_sequence = build->tokens / build->sequences;
    uint64_t width = 3 * (d->conv_kernel - 1) * d->inner_size;
    struct mt_node *conv =
        gathered(build, state_of(build, &build->layers[il].conv_state, width, il));
    struct mt_node *qkv[3];
    for (int part = 0; part < 3; part++)
        qkv[part] = kimi_part(build, x, il, part, conv);
    struct mt_node *decay = kimi_decay(build, x, il);
    struct mt_node *beta = mt_build_project(build, x, il, MT_SLOT_SSM_BETA, heads);
    beta = mt_op_reshape(g, beta, 1, heads, per_sequence, build->sequences);
    beta = mt_op_map(g, beta, NULL);
    struct mt_node *y = kimi_step(build, qkv, decay, beta, il);
    x = mt_op_reshape(g, x, embedding, per_sequence, build->sequences, 1);
    x = mt_op_reshape(g, x, embedding, build->tokens, 1, 1);
    struct mt_node *gate = mt_build_project(build, x, il, MT_SLOT_KDA_G_A, d->state_size);
    gate = mt_build_project(build, gate, il, MT_SLOT_KDA_G_B, d->inner_size);
    gate = mt_op_reshape(g, gate, d->state_size, heads, build->tokens, 1);
    y = mt_op_reshape(g, y, d->state_size, heads, build->tokens, 1);
    y = mt_build_norm(build, y, il, MT_SLOT_SSM_NORM, 0);
    y = mt_op_map(g, y, mt_op_map(g, gate, NULL));
    y = mt_op_cont(g, y, d->inner_size, build->tokens, 1);
    return mt_build_project(build, y, il, MT_SLOT_ATTN_OUT, embedding);
}

struct mt_node *mt_build_short_convolution(struct mt_build *build, struct mt_node *x, size_t il)
{
    struct mt_graph *g = build->graph;
    uint64_t embedding = x->ne[0];
    uint64_t taps = build->d->short_conv_cache - 1;
    uint64_t per_sequence = build->tokens / build->sequences;
    struct mt_node *states = state_of(build, &build->layers[il].conv_state, taps * embedding, il);
    x = mt_op_reshape(g, x, embedding, per_sequence, build->sequences, 1);
    struct mt_node *all = mt_build_project(build, x, il, MT_SLOT_CONV_IN, 3 * embedding);
    struct mt_node *b = mt_op_columns(g, all, embedding);
    struct mt_node *c = mt_op_columns(g, all, embedding);
    struct mt_node *in = mt_op_columns(g, all, embedding);
    struct mt_node *bx = mt_op_transpose(g, mt_op_map(g, b, in));
    struct mt_node *conv = gathered(build, states);
    conv = mt_op_reshape(g, conv, taps, embedding, build->sequences, 1);
    struct mt_node *joined = convolution_input(build, conv, bx, states);
    struct mt_node *y = convolved(build, joined, il, MT_SLOT_CONV_KERNEL, embedding);
    y = mt_op_map(g, c, y);
    y = mt_build_project(build, y, il, MT_SLOT_CONV_OUT, embedding);
    return mt_op_reshape(g, y, embedding, build->tokens, 1, 1);
}
