/* SPDX-License-Identifier: MIT */
/* The numbers and facts that templates ask for, of a model and a plan. */
#include <string.h>

#include <memtally/settings.h>

#include "predict/llama/internal.h"
#include "template.h"

#define ROTATION_STEP 64

static int is_windowed(const struct mt_llama_plan *plan, size_t il)
{
    enum mt_attention attention = plan->in->d->layers[il].attention;
    return !plan->ignores_windows &&
           (attention == MT_ATTENTION_SLIDING || attention == MT_ATTENTION_CHUNKED);
}

static size_t trunk_layers(const struct mt_model_description *d)
{
    return (size_t)(d->n_layers - d->n_draft_layers);
}

static uint64_t widest_values(const struct mt_llama_plan *plan)
{
    const struct mt_model_description *d = plan->in->d;
    uint64_t widest = 0;
    for (size_t i = 0; i < trunk_layers(d); i++) {
        uint64_t width = d->layers[i].kv_heads * d->layers[i].value_size;
        if (d->layers[i].attention != MT_ATTENTION_NONE && width > widest)
            widest = width;
    }
    return widest;
}

/* The side of the matrix that a quantised cache is rotated by, or 0. */
static uint64_t rotation(const char *type, uint64_t head_size, int grows)
{
    uint64_t n = ROTATION_STEP;
    if (!mt_llama_is_quantised(type) || !head_size || head_size % ROTATION_STEP)
        return 0;
    while (grows && head_size % (2 * n) == 0)
        n *= 2;
    return n;
}

/* The first layer that attends, with a window or without; n_layers where there is none. */
static size_t first_attending(const struct mt_llama_plan *plan, int windowed)
{
    const struct mt_model_description *d = plan->in->d;
    for (size_t i = 0; i < trunk_layers(d); i++)
        if (d->layers[i].attention != MT_ATTENTION_NONE && is_windowed(plan, i) == windowed)
            return i;
    return trunk_layers(d);
}

static void set_regime(struct mt_template_facts *facts, enum mt_template_regime regime, int holds)
{
    uint32_t bit = UINT32_C(1) << regime;
    facts->regime = holds ? facts->regime | bit : facts->regime & ~bit;
}

static void set_rotations(const struct mt_llama_plan *plan, struct mt_template_facts *facts,
                          size_t il)
{
    const struct mt_model_description *d = plan->in->d;
    uint64_t key = il < trunk_layers(d) ? d->layers[il].key_size : 0;
    uint64_t value = il < trunk_layers(d) ? d->layers[il].value_size : 0;
    uint64_t *s = facts->symbols;
    s[MT_SYMBOL_rk] = rotation(plan->type_k, key, 1);
    s[MT_SYMBOL_rv] = rotation(plan->type_v, value, 0);
    set_regime(facts, MT_REGIME_rk, s[MT_SYMBOL_rk] != 0);
    set_regime(facts, MT_REGIME_rv, s[MT_SYMBOL_rv] != 0);
}

static void set_batch(const struct mt_template_run *run, uint64_t *s)
{
    const struct mt_llama_plan *plan = run->plan;
    uint64_t sequences = plan->sequences;
    uint64_t each = mt_llama_add(plan->ubatch, sequences - 1) / sequences;
    s[MT_SYMBOL_S] = sequences;
    s[MT_SYMBOL_N] = plan->streams;
    s[MT_SYMBOL_Q] = run->single_tokens ? 1 : each;
    s[MT_SYMBOL_T] = s[MT_SYMBOL_Q] * sequences;
    s[MT_SYMBOL_B] = s[MT_SYMBOL_T] / (plan->streams ? plan->streams : 1);
    s[MT_SYMBOL_O] = run->single_tokens ? sequences : plan->output_rows;
    s[MT_SYMBOL_C] = plan->cells;
    s[MT_SYMBOL_W] = plan->swa_cells ? plan->swa_cells : plan->cells;
}

void mt_template_facts_of_model(const struct mt_template_run *run, struct mt_template_facts *facts)
{
    const struct mt_llama_plan *plan = run->plan;
    const struct mt_model_description *d = plan->in->d;
    uint64_t *s = facts->symbols;
    *facts = (struct mt_template_facts){0};
    set_batch(run, s);
    s[MT_SYMBOL_D] = d->embedding_length;
    s[MT_SYMBOL_V] = d->vocabulary;
    s[MT_SYMBOL_L] = trunk_layers(d);
    s[MT_SYMBOL_conv] = d->conv_kernel;
    s[MT_SYMBOL_taps] = d->conv_kernel ? d->conv_kernel - 1 : 0;
    s[MT_SYMBOL_inner] = d->inner_size;
    s[MT_SYMBOL_state] = d->state_size;
    s[MT_SYMBOL_dt] = d->time_step_rank;
    s[MT_SYMBOL_group] = d->group_count;
    s[MT_SYMBOL_qlora] = d->q_lora_rank;
    s[MT_SYMBOL_kvlora] = d->kv_lora_rank;
    s[MT_SYMBOL_rot] = d->qk_rope_head_size;
    s[MT_SYMBOL_nope] = d->qk_nope_head_size;
    s[MT_SYMBOL_vh] = d->value_head_size;
    s[MT_SYMBOL_widest] = widest_values(plan);
    s[MT_SYMBOL_top] = d->indexer_top_k;
    s[MT_SYMBOL_P] = d->position_streams;
    set_regime(facts, MT_REGIME_fa, plan->flash_attention);
    set_regime(facts, MT_REGIME_streams, plan->streams > 1);
    set_regime(facts, MT_REGIME_seqs, plan->sequences > 1);
    set_regime(facts, MT_REGIME_one, s[MT_SYMBOL_Q] == 1);
    set_regime(facts, MT_REGIME_t1, s[MT_SYMBOL_T] == 1);
    set_regime(facts, MT_REGIME_normw, d->norms_expert_weights == MT_SAID_YES);
    set_regime(facts, MT_REGIME_scalew, d->scales_expert_weights == MT_SAID_YES);
    set_regime(facts, MT_REGIME_groups, d->expert_groups > 1);
    set_regime(facts, MT_REGIME_kvhost, plan->in->settings->kv_on_host && plan->n_devices > 0);
    size_t attending = first_attending(plan, 0);
    if (attending == trunk_layers(d))
        attending = first_attending(plan, 1);
    set_rotations(plan, facts, attending);
}

void mt_template_facts_of_layer(const struct mt_template_run *run, size_t il,
                                struct mt_template_facts *facts)
{
    const struct mt_llama_plan *plan = run->plan;
    const struct mt_model_layer *layer = &plan->in->d->layers[il];
    int windowed = is_windowed(plan, il);
    uint64_t *s = facts->symbols;
    s[MT_SYMBOL_heads] = layer->heads;
    s[MT_SYMBOL_kv] = layer->kv_heads;
    s[MT_SYMBOL_hk] = layer->key_size;
    s[MT_SYMBOL_hv] = layer->value_size;
    s[MT_SYMBOL_ff] = layer->ff_length;
    s[MT_SYMBOL_E] = layer->experts;
    s[MT_SYMBOL_U] = layer->experts_used;
    s[MT_SYMBOL_eff] = layer->expert_ff_length;
    s[MT_SYMBOL_sff] = layer->shared_ff_length;
    s[MT_SYMBOL_cells] = windowed ? plan->swa_cells : plan->cells;
    if (layer->attention != MT_ATTENTION_NONE)
        set_rotations(plan, facts, il);
    set_regime(facts, MT_REGIME_last, il + 1 == s[MT_SYMBOL_L]);
    set_regime(facts, MT_REGIME_first, il == 0);
    set_regime(facts, MT_REGIME_swa, windowed);
    set_regime(facts, MT_REGIME_state, layer->recurrence != MT_RECURRENCE_NONE);
}
