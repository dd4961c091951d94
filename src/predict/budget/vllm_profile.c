/* SPDX-License-Identifier: MIT */
/* What vLLM's profiling run takes: the larger of a pass of a full batch through the widest layer
 * and of the sampler with a row of logits for each sequence, tensor by tensor, as the engine's
 * source has it. A layer is called with two rows of hidden states for each token, the residual and
 * its input, which its caller still holds. */
#include <string.h>

#include <memtally/settings.h>

#include "model/families.h"
#include "vllm.h"

enum { FP32 = 4, FP8_BLOCK = 128, SORTED_APART = 128, SEGMENT = 2 << 20 };

/* ---- encoders ---- */

static int has_encoder(const struct mt_predict_input *in)
{
    struct mt_model_tensor tensor;
    for (uint64_t i = 0; i < in->d->n_tensors; i++)
        if (mt_model_tensor_at(in->model, i, &tensor) == 0 && tensor.role == MT_TENSOR_PROJECTOR)
            return 1;
    return in->d->lacks_encoders;
}

static uint64_t encoder_bytes(const struct mt_predict_input *in)
{
    int is_qwen = mt_is_of_lineage(in->d->architecture, MT_LINEAGE_QWEN);
    return has_encoder(in)
               ? mt_engine_number(in->engine,
                                  is_qwen ? "activations.encoder.qwen" : "activations.encoder", 0)
               : 0;
}

/* ---- a pass, tensor by tensor ---- */

/* What the widths of a rank's layers are made of. */
struct widths {
    const struct mt_predict_input *in;
    uint64_t tokens;
    uint64_t parallel;
    uint64_t element; /* bytes of a float */
    uint64_t hidden;  /* bytes of a row of hidden states */
    int norms_heads;  /* queries and keys go through a norm of their own */
    int has_fp8;
    int has_encoder;
    int is_gated; /* the feed-forward has a gate beside its first matrix */
};

static uint64_t share(const struct widths *w, uint64_t n)
{
    return mt_ceil_div(n, w->parallel);
}

static int has_tensor(const struct mt_predict_input *in, const char *part)
{
    struct mt_model_tensor tensor;
    for (uint64_t i = 0; i < in->d->n_tensors; i++)
        if (mt_model_tensor_at(in->model, i, &tensor) == 0 &&
            memmem(tensor.name, tensor.name_length, part, strlen(part)))
            return 1;
    return 0;
}

static int is_gated(const struct mt_predict_input *in)
{
    static const char *const gates[] = {"gate_proj", "gate_up", "ffn_gate", ".w3."};
    for (size_t i = 0; i < sizeof gates / sizeof *gates; i++)
        if (has_tensor(in, gates[i]))
            return 1;
    return 0;
}

static struct widths widths_of(const struct mt_predict_input *in)
{
    const struct mt_predict_settings *settings = in->settings;
    const char *type = settings->weight_type;
    uint64_t element = mt_torch_float_width(settings);
    return (struct widths){.in = in,
                           .tokens = settings->batched_tokens,
                           .parallel = settings->tensor_parallel ? settings->tensor_parallel : 1,
                           .element = element,
                           .hidden = mt_mul(in->d->embedding_length, element),
                           .norms_heads = has_tensor(in, "q_norm"),
                           .has_encoder = has_encoder(in),
                           .is_gated = is_gated(in),
                           .has_fp8 = mt_begins(in->d->dtype, "f8") || mt_begins(type, "fp8")};
}

static uint64_t most_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What a layer's last matrix gives, and of several ranks the sum of all. */
static uint64_t result_bytes(const struct widths *w)
{
    return mt_mul(w->parallel > 1 ? 2 : 1, w->hidden);
}

/* The moment of the product of gate and up, and that of what comes back, when some models' code
 * still keeps the first two. With weights in 8 bit the product is there in 8 bit too, with a scale
 * for each block. Compiled code keeps nothing longer than it is read but the layer's input, which
 * published runs of a model with an encoder do not have: that is handed embeddings. */
static uint64_t feed_forward_bytes(const struct widths *w, const struct mt_model_layer *layer)
{
    uint64_t inner = share(w, layer->ff_length);
    uint64_t both = mt_mul((w->is_gated ? 3 : 2) * w->element, inner);
    int drops = mt_engine_has(w->in->engine, "activations.drops_gate", w->in->d->architecture);
    uint64_t back = mt_add(drops ? mt_mul(w->element, inner) : both, result_bytes(w));
    if (!w->in->settings->eager)
        return mt_add(mt_mul(w->has_encoder ? 2 : 3, w->hidden), both);
    if (w->has_fp8)
        back = mt_add(back, mt_add(inner, mt_mul(inner / FP8_BLOCK, FP32)));
    return mt_add(mt_mul(3, w->hidden), most_of(both, back));
}

/* Inductor writes as much as the card's cache holds between two tries of a kernel. */
static uint64_t tried_bytes(const struct widths *w)
{
    return w->in->settings->eager || w->has_encoder ? 0 : mt_budget_card(w->in).l2_bytes;
}

/* The router's choice and what comes back; what lies between is a workspace. */
static uint64_t experts_bytes(const struct widths *w, const struct mt_model_layer *layer)
{
    uint64_t shared = mt_mul(3 * w->element, share(w, layer->shared_ff_length));
    uint64_t routing = mt_mul(layer->experts, FP32);
    return mt_add(mt_add(mt_mul(3, w->hidden), result_bytes(w)), mt_add(routing, shared));
}

/* Latent vectors before and after their norm, queries, and what attention gives back. The run also
 * takes what keys and values of long contexts would be made out of: that of all is not of these
 * tokens. */
static uint64_t latent_bytes(const struct widths *w, const struct mt_model_layer *layer)
{
    const struct mt_model_description *d = w->in->d;
    uint64_t heads = share(w, layer->heads);
    uint64_t query = mt_mul(heads, d->qk_nope_head_size + d->qk_rope_head_size);
    uint64_t down = 2 * d->kv_lora_rank + d->qk_rope_head_size + 2 * d->q_lora_rank;
    uint64_t elements = mt_add(mt_add(query, down), mt_mul(heads, d->value_head_size));
    return mt_add(mt_mul(2, w->hidden), mt_mul(elements, w->element));
}

/* All at once of the largest contexts that are read a piece at a time. */
static uint64_t latent_context_bytes(const struct widths *w, const struct mt_model_layer *layer)
{
    const struct mt_predict_settings *settings = w->in->settings;
    const struct mt_model_description *d = w->in->d;
    uint64_t block = mt_engine_number(w->in->engine, "block_tokens", 16);
    uint64_t tokens = mt_mul(8, settings->context_tokens);
    uint64_t pages = mt_mul(4 * settings->sequences, block);
    uint64_t most = mt_engine_number(w->in->engine, "activations.latent", 0);
    tokens = tokens > pages ? tokens : pages;
    tokens = tokens < most ? tokens : most;
    uint64_t row = mt_mul(share(w, layer->heads), d->qk_nope_head_size + d->value_head_size);
    return mt_mul(tokens, mt_mul(row, w->element));
}

/* Queries, keys and values as one, normed ones beside them, what attention gives back, and its
 * projection. */
static uint64_t attention_bytes(const struct widths *w, const struct mt_model_layer *layer)
{
    uint64_t kv_heads = layer->kv_heads > w->parallel ? share(w, layer->kv_heads) : 1;
    uint64_t query = mt_mul(share(w, layer->heads), layer->key_size);
    uint64_t keys = mt_mul(kv_heads, layer->key_size);
    uint64_t values = mt_mul(kv_heads, layer->value_size);
    uint64_t elements = mt_add(mt_mul(2, query), mt_add(keys, values));
    if (w->norms_heads)
        elements = mt_add(elements, mt_add(query, keys));
    return mt_add(mt_add(mt_mul(2, w->hidden), result_bytes(w)), mt_mul(elements, w->element));
}

/* Mamba 2: what its first matrix gives, what the scan gives, and the gated norm's two in 32 bit. */
static uint64_t recurrent_bytes(const struct widths *w, const struct mt_model_layer *layer)
{
    const struct mt_model_description *d = w->in->d;
    uint64_t inner = share(w, d->inner_size);
    uint64_t groups = share(w, mt_mul(2 * d->group_count, d->state_size));
    uint64_t in = mt_add(mt_add(2 * inner, groups), share(w, d->time_step_rank));
    if (layer->recurrence == MT_RECURRENCE_NONE)
        return 0;
    return mt_add(mt_add(mt_mul(2, w->hidden), mt_mul(in + inner, w->element)),
                  mt_mul(2 * FP32, inner));
}

/* Layers of some families give back what they added to, which nobody reads and which stays until
 * the next layer has given its own. */
static int leaves_residual(const struct mt_predict_input *in)
{
    return in->settings->eager &&
           mt_engine_has(in->engine, "activations.leaves_residual", in->d->architecture);
}

/* `workspace` is there only while experts work. */
static uint64_t layer_bytes(const struct widths *w, const struct mt_model_layer *layer,
                            uint64_t workspace)
{
    uint64_t row = recurrent_bytes(w, layer);
    uint64_t beside = 0; /* with what is there once for all tokens */
    if (layer->ff_length)
        beside = mt_add(mt_mul(w->tokens, feed_forward_bytes(w, layer)), tried_bytes(w));
    if (layer->experts)
        beside = most_of(beside, mt_add(mt_mul(w->tokens, experts_bytes(w, layer)), workspace));
    if (layer->attention == MT_ATTENTION_LATENT) {
        uint64_t latent = mt_mul(w->tokens, latent_bytes(w, layer));
        beside = most_of(beside, mt_add(latent, latent_context_bytes(w, layer)));
    } else if (layer->attention != MT_ATTENTION_NONE) {
        row = most_of(row, attention_bytes(w, layer));
    }
    uint64_t left = leaves_residual(w->in) ? mt_mul(w->tokens, w->hidden) : 0;
    return mt_add(most_of(beside, mt_mul(w->tokens, row)), left);
}

/* The compiler tries out the first kernel on a table of embeddings of its own, before anything else
 * is there. A model with encoders is handed embeddings. */
static uint64_t compiled_table(const struct mt_predict_input *in,
                               const struct mt_torch_stage *stage)
{
    const struct widths w = widths_of(in);
    if (in->settings->eager || !stage->is_first || has_encoder(in))
        return 0;
    return mt_mul(share(&w, in->d->vocabulary), w.hidden);
}

static uint64_t compiling_bytes(const struct mt_predict_input *in,
                                const struct mt_torch_stage *stage)
{
    const struct widths w = widths_of(in);
    uint64_t table = compiled_table(in, stage);
    return table ? mt_add(table, mt_mul(2 * w.tokens, w.hidden)) : 0;
}

static uint64_t pass_bytes(const struct mt_predict_input *in, const struct mt_torch_stage *stage,
                           uint64_t workspace)
{
    const struct widths w = widths_of(in);
    uint64_t bytes = 0;
    for (uint64_t i = stage->first; i < stage->end && i < in->d->n_layers; i++)
        bytes = most_of(bytes, layer_bytes(&w, &in->d->layers[i], workspace));
    return bytes;
}

/* ---- the sampler ---- */

static int recurs(const struct mt_model_description *d)
{
    for (uint64_t i = 0; i < d->n_layers; i++)
        if (d->layers[i].recurrence != MT_RECURRENCE_NONE)
            return 1;
    return 0;
}

int mt_vllm_has_second_runner(const struct mt_predict_input *in)
{
    const struct mt_model_description *d = in->d;
    const char *key = d->experts ? "runner.second.experts" : "runner.second";
    int is_float = d->dtype && (!strcmp(d->dtype, "bf16") || !strcmp(d->dtype, "f16") ||
                                !strcmp(d->dtype, "f32"));
    if (mt_engine_has(in->engine, key, "unquantized") && !is_float)
        return 0;
    return mt_engine_has(in->engine, key, "all") ||
           mt_engine_has(in->engine, key, d->architecture) ||
           (mt_engine_has(in->engine, key, "dense") && !recurs(d));
}

uint64_t mt_vllm_logit_rows(const struct mt_predict_settings *settings)
{
    return settings->sequences < settings->batched_tokens ? settings->sequences
                                                          : settings->batched_tokens;
}

/* The first runner samples from hidden states of its own in place of those that it picked. */
static uint64_t sampler_bytes(const struct mt_predict_input *in)
{
    const struct mt_predict_settings *settings = in->settings;
    uint64_t rows = mt_vllm_logit_rows(settings);
    uint64_t logits = mt_mul(mt_mul(rows, in->d->vocabulary), 4);
    uint64_t row = mt_mul(in->d->embedding_length, 2);
    uint64_t hidden = mt_mul(settings->batched_tokens, row);
    const char *key = rows < SORTED_APART ? "activations.logits.few" : "activations.logits";
    double first = mt_engine_real(in->engine, key, 9.5);
    int is_second = mt_vllm_has_second_runner(in);
    double factor =
        is_second ? mt_engine_real(in->engine, "activations.logits.second", first) : first;
    uint64_t picked = mt_mul(mt_mul(rows, row), is_second ? 1 : 2);
    return mt_add(mt_add(mt_scale(logits, factor), picked), hidden);
}

/* ---- what stays ---- */

/* Counters of each request for all tokens of the vocabulary, where the last stage samples; stages
 * behind the first keep what they are handed. */
static uint64_t runner_bytes(const struct mt_predict_input *in, const struct mt_torch_stage *stage)
{
    const struct mt_predict_settings *settings = in->settings;
    uint64_t logits = mt_mul(settings->sequences, in->d->vocabulary);
    uint64_t requests =
        mt_mul(settings->sequences, mt_engine_number(in->engine, "runner.request", 0));
    uint64_t counters = mt_scale(logits, mt_engine_real(in->engine, "runner.logits", 0));
    uint64_t handed = mt_mul(mt_mul(settings->batched_tokens, in->d->embedding_length),
                             2 * mt_torch_float_width(settings));
    if (!mt_vllm_has_second_runner(in))
        return 0;
    return mt_add(stage->is_last ? mt_add(counters, requests) : 0, stage->is_first ? 0 : handed);
}

/* Rows of all experts that a token is sent to, before and after each matrix. Kernels of MXFP4 have
 * the first matrix's activated rows and the second's, before these are added up. */
static uint64_t workspace_bytes(const struct mt_predict_input *in,
                                const struct mt_torch_stage *stage, uint64_t mxfp4_bytes)
{
    const struct widths w = widths_of(in);
    uint64_t widest = 0;
    for (uint64_t i = stage->first; i < stage->end && i < in->d->n_layers; i++) {
        const struct mt_model_layer *layer = &in->d->layers[i];
        uint64_t inner = share(&w, layer->expert_ff_length);
        uint64_t first = w.is_gated ? 2 * inner : inner;
        uint64_t both = mt_add(most_of(first, in->d->embedding_length),
                               most_of(inner, in->d->embedding_length));
        if (mxfp4_bytes)
            both = mt_add(inner, in->d->embedding_length);
        widest = most_of(widest, mt_mul(layer->experts_used, both));
    }
    return mt_mul(mt_mul(w.tokens, widest), w.element);
}

int mt_vllm_is_hopper(const struct mt_predict_input *in)
{
    return mt_budget_card(in).capability / 10 == 9;
}

/* What products of matrices work in, of Hopper and of other generations. */
static uint64_t products_bytes(const struct mt_predict_input *in)
{
    return mt_engine_number(
        in->engine, mt_vllm_is_hopper(in) ? "activations.products.hopper" : "activations.products",
        0);
}

/* A row of logits for each program of the kernel that masks them, a power of two of these up to one
 * for each multiprocessor. */
static uint64_t masking_bytes(const struct mt_predict_input *in)
{
    uint64_t most = mt_budget_card(in).multiprocessors;
    uint64_t rows = mt_vllm_logit_rows(in->settings);
    uint64_t programs = 1;
    if (!mt_engine_has(in->engine, "activations.sampler", "masks"))
        return 0;
    while (programs < rows && programs < most)
        programs *= 2;
    return mt_mul(mt_mul(programs < most ? programs : most, in->d->vocabulary), FP32);
}

/* Whether rows of experts stay for the next layer and pass. Kernels of MXFP4 make their own. */
static int keeps_workspace(const struct mt_predict_input *in, uint64_t mxfp4_bytes)
{
    return !mxfp4_bytes && mt_engine_has(in->engine, "activations.workspace", "kept");
}

/* What the pass leaves, and what the sampler leaves after it. */
static uint64_t left_by_pass(const struct mt_predict_input *in, const struct mt_torch_stage *stage,
                             uint64_t mxfp4_bytes)
{
    uint64_t workspace =
        keeps_workspace(in, mxfp4_bytes) ? workspace_bytes(in, stage, mxfp4_bytes) : 0;
    return mt_add(products_bytes(in), workspace);
}

static uint64_t left_by_sampler(const struct mt_predict_input *in,
                                const struct mt_torch_stage *stage)
{
    return stage->is_last && !mt_vllm_has_second_runner(in) ? masking_bytes(in) : 0;
}

/* The block of the compiler's table, which is divided for what stays and so never goes back. */
static uint64_t left_by_compiler(const struct mt_predict_input *in,
                                 const struct mt_torch_stage *stage)
{
    uint64_t table = compiled_table(in, stage);
    if (!table || !mt_engine_has(in->engine, "activations.table", "stays"))
        return 0;
    uint64_t block = mt_mul(mt_ceil_div(table, SEGMENT), SEGMENT);
    return block > products_bytes(in) ? block - products_bytes(in) : 0;
}

/* ---- both ---- */

/* Whether the version counts what the run leaves as taken, and only what is above that as its peak.
 * Others have all of it in the peak, and do not see what was there before the run. */
static int counts_what_stays(const struct mt_predict_input *in)
{
    return mt_engine_has(in->engine, "activations.counts", "transient");
}

/* What an encoder or a recurrent layer takes was logged of few models: there the band is that of a
 * pass, whichever of the two is larger. */
struct mt_budget_part mt_vllm_profile_of(const struct mt_predict_input *in,
                                         const struct mt_torch_stage *stage, uint64_t mxfp4_bytes)
{
    uint64_t encoder = encoder_bytes(in);
    uint64_t passing =
        keeps_workspace(in, mxfp4_bytes) ? 0 : workspace_bytes(in, stage, mxfp4_bytes);
    uint64_t pass = mt_add(pass_bytes(in, stage, passing), encoder);
    uint64_t sampling = stage->is_last ? sampler_bytes(in) : 0;
    uint64_t masking = left_by_sampler(in, stage);
    if (counts_what_stays(in))
        pass = pass > masking ? pass - masking : 0;
    else
        sampling = mt_add(sampling, masking);
    uint64_t bytes = most_of(pass, sampling);
    int is_rough = pass > sampling || encoder || recurs(in->d);
    const char *key = is_rough ? "activations.band.pass" : "activations.band.sampler";
    double width = (double)mt_engine_number(in->engine, key, 25) / 100;
    if (!counts_what_stays(in))
        bytes = mt_add(bytes, left_by_pass(in, stage, mxfp4_bytes));
    uint64_t compiling = compiling_bytes(in, stage);
    uint64_t staying = counts_what_stays(in) ? products_bytes(in) : 0;
    bytes = most_of(bytes, compiling > staying ? compiling - staying : 0);
    struct mt_budget_part part = {MT_BUDGET_WITHIN, bytes, mt_scale(bytes, 1 - width),
                                  mt_scale(bytes, 1 + width)};
    if (encoder && pass <= sampling)
        part.high = most_of(part.high, pass);
    mt_widen_unread(in->engine, "unread.activations", &part.low, &part.high);
    return part;
}

struct mt_budget_part mt_vllm_kept_of(const struct mt_predict_input *in,
                                      const struct mt_torch_stage *stage, uint64_t mxfp4_bytes)
{
    uint64_t bytes = runner_bytes(in, stage);
    int is_counted = counts_what_stays(in);
    if (is_counted)
        bytes =
            mt_add(bytes, mt_add(left_by_pass(in, stage, mxfp4_bytes), left_by_sampler(in, stage)));
    uint64_t table = is_counted ? left_by_compiler(in, stage) : 0;
    return (struct mt_budget_part){is_counted ? MT_BUDGET_WITHIN : MT_BUDGET_BESIDE,
                                   mt_add(bytes, table), mt_scale(bytes, 0.95),
                                   mt_add(mt_scale(bytes, 1.05), table)};
}
