/* SPDX-License-Identifier: MIT */
/* Why weights and activations differ. */
#include <math.h>
#include <memtally/model_file.h>
#include <memtally/units.h>
#include <string.h>

#include "tally/compare_advice.h"

/* ---- weights ---- */

static double embedding_bytes(const struct mt_model *model)
{
    uint64_t n = mt_model_describe(model)->n_tensors;
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        struct mt_model_tensor tensor;
        if (mt_model_tensor_at(model, i, &tensor) == 0 && tensor.role == MT_TENSOR_TOKEN_EMBEDDING)
            sum += (double)tensor.bytes;
    }
    return sum;
}

/* Experts that a token does not go through. */
static double idle_expert_bytes(const struct mt_model_description *d)
{
    double sum = 0;
    for (uint64_t i = 0; i < d->n_layers; i++) {
        const struct mt_model_layer *layer = &d->layers[i];
        if (layer->experts > layer->experts_used)
            sum += (double)layer->expert_bytes *
                   (1 - (double)layer->experts_used / (double)layer->experts);
    }
    return sum;
}

/* Whether the engine keeps weights in another layout in a buffer of this name. */
static int is_copy(const char *name)
{
    return strstr(name, "REPACK") || strstr(name, "AMX") || strstr(name, "KLEIDIAI");
}

/* The buffers of A into which the engine copied weights in another layout. */
static double repacked_bytes(const struct mt_tally *tally)
{
    double sum = 0;
    for (size_t p = 0; tally && p < tally->n_places; p++) {
        const struct mt_tally_row *row = mt_tally_row_of(&tally->places[p], MT_CATEGORY_WEIGHTS);
        for (size_t i = 0; row && i < row->n_details; i++)
            if (is_copy(row->details[i].name) && row->details[i].allocated_bytes != MT_UNKNOWN)
                sum += (double)row->details[i].allocated_bytes;
    }
    return sum;
}

/* `difference` is B - A. Returns whether it was explained. */
static int advise_copies(struct mt_advising *advising, double difference)
{
    double repacked = repacked_bytes(advising->comparing->a->tally);
    const struct mt_model *model = advising->comparing->settings->model;
    double embedding = model ? embedding_bytes(model) : 0;
    char size[MT_SIZE_TEXT];
    if (repacked > 0 && mt_advise_near(-difference, repacked, 0.05)) {
        mt_advise(advising, MT_COMPONENT_WEIGHTS, "repacked_copy",
                  "The engine keeps a copy of %s of the weights in another layout beside the "
                  "mapped file (CPU_REPACK, AMX); --no-repack does without it, and --cpu names the "
                  "processor for an estimate.",
                  mt_format_size((uint64_t)repacked, size));
        return 1;
    }
    if (embedding > 0 && mt_advise_near(fabs(difference), embedding, 0.05)) {
        mt_advise(advising, MT_COMPONENT_WEIGHTS, "token_embedding",
                  "The difference is the token embedding (%s): %s.",
                  mt_format_size((uint64_t)embedding, size),
                  difference > 0 ? "B counts it twice, and here it is held once"
                                 : "here it is held twice, as input and as output, or B leaves it "
                                   "out");
        return 1;
    }
    return 0;
}

/* B is so many bits for each parameter. */
static int advise_bits(struct mt_advising *advising, double bytes)
{
    static const double bits[] = {32, 16, 8, 4};
    const struct mt_model_description *d = advising->d;
    if (!d || !d->parameters || !d->weight_bytes)
        return 0;
    double own = 8 * (double)d->weight_bytes / (double)d->parameters;
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        if (!mt_advise_near(8 * bytes / (double)d->parameters, bits[i], 0.02))
            continue;
        mt_advise(advising, MT_COMPONENT_WEIGHTS, "bits_of_a_weight",
                  "B counts %.0f bits for each parameter; this file holds %.2f (%s).", bits[i], own,
                  d->dtype ? d->dtype : "several types");
        return 1;
    }
    double active = (double)d->weight_bytes - idle_expert_bytes(d);
    if (active < 0.95 * (double)d->weight_bytes && mt_advise_near(bytes, active, 0.05)) {
        mt_advise(advising, MT_COMPONENT_WEIGHTS, "active_experts_only",
                  "B counts the experts that a token goes through; all of them are loaded.");
        return 1;
    }
    return 0;
}

static const struct {
    double factor;
    const char *text;
} type_factors[] = {
    {2, "twice the bits (32 for 16, or 16 for 8)"},
    {4, "four times the bits (32 for 8, or 16 for 4)"},
    {16 / 8.5, "16 bits where q8_0 takes 8.5"},
    {16 / 4.5, "16 bits where q4_0 takes 4.5"},
    {8 / 8.5, "8 bits where q8_0 with its scales takes 8.5"},
    {4 / 4.5, "4 bits where q4_0 with its scales takes 4.5"},
    {0.5, "half the bits (8 for 16), or weights that are held twice"},
    {0.25, "a quarter of the bits (4 for 16)"},
};

static int advise_type(struct mt_advising *advising, double factor)
{
    for (size_t i = 0; i < sizeof type_factors / sizeof *type_factors; i++)
        if (mt_advise_near(factor, type_factors[i].factor, 0.03)) {
            mt_advise(advising, MT_COMPONENT_WEIGHTS, "bits_of_a_weight",
                      "B's weights are %.2f times A's, as would come of %s.", factor,
                      type_factors[i].text);
            return 1;
        }
    return 0;
}

void mt_advise_weights(struct mt_advising *advising)
{
    const struct mt_component_difference *weights = &advising->of[MT_COMPONENT_WEIGHTS];
    const struct mt_component_figure *a = &weights->a;
    if (!mt_advise_is_out(advising, MT_COMPONENT_WEIGHTS))
        return;
    if (a->basis == MT_BASIS_RESIDENT && a->allocated_bytes != MT_UNKNOWN &&
        a->allocated_bytes > a->resident_bytes &&
        mt_advise_near((double)weights->b.bytes, (double)a->allocated_bytes, 0.02)) {
        mt_advise(advising, MT_COMPONENT_WEIGHTS, "mapped_and_not_resident",
                  "The weights are mapped from their file and were not all resident; compare with "
                  "--basis reserved.");
        return;
    }
    if (advise_copies(advising, (double)weights->difference_bytes) ||
        !mt_advise_is_foreign(advising) || advise_bits(advising, (double)weights->b.bytes) ||
        advise_type(advising, mt_advise_factor(advising, MT_COMPONENT_WEIGHTS)))
        return;
    mt_advise(
        advising, MT_COMPONENT_WEIGHTS, "check_weights",
        "Take the weights from the file's header instead of parameters times bits: tensors of "
        "one file have several types.");
}

/* ---- activations ---- */

/* Buffers that the rules of attention or of the logits explain. `difference` is |B - A|. */
static int advise_buffers(struct mt_advising *advising, double difference)
{
    const struct mt_compare_settings *settings = advising->comparing->settings;
    const struct mt_model_description *d = advising->d;
    int over = advising->of[MT_COMPONENT_ACTIVATIONS].verdict == MT_COMPARE_OVER;
    if (!d || settings->ubatch == MT_UNKNOWN)
        return 0;
    double logits = 4 * (double)d->vocabulary * (double)settings->ubatch;
    double scores = 0;
    if (settings->context_tokens != MT_UNKNOWN)
        scores = 4 * (double)d->heads * (double)settings->ubatch * (double)settings->context_tokens;
    if (scores > 0 && mt_advise_near(difference, scores, 0.1)) {
        mt_advise(
            advising, MT_COMPONENT_ACTIVATIONS, "attention_scores",
            "The difference is the attention scores of a ubatch (heads x context x ubatch x 4 "
            "bytes): %s.",
            over ? "with flash attention they are never held whole"
                 : "flash attention is off here, and they are held whole");
        return 1;
    }
    if (logits > 0 && mt_advise_near(difference, logits, 0.1)) {
        mt_advise(advising, MT_COMPONENT_ACTIVATIONS, "logits_rows",
                  "The difference is the logits of a ubatch (vocabulary x ubatch x 4 bytes): %s.",
                  over ? "here only rows that are asked for are computed"
                       : "here the graph is reserved for a row for each token");
        return 1;
    }
    return 0;
}

/* Whether B is a figure of the other basis. */
static int advise_basis(struct mt_advising *advising)
{
    const struct mt_component_difference *activations = &advising->of[MT_COMPONENT_ACTIVATIONS];
    const struct mt_component_figure *a = &activations->a;
    char reserved[MT_SIZE_TEXT];
    char resident[MT_SIZE_TEXT];
    if (a->allocated_bytes == MT_UNKNOWN || a->resident_bytes == MT_UNKNOWN ||
        a->allocated_bytes == a->resident_bytes)
        return 0;
    uint64_t other = a->basis == MT_BASIS_RESERVED ? a->resident_bytes : a->allocated_bytes;
    if (!mt_advise_near((double)activations->b.bytes, (double)other, activations->band_ratio))
        return 0;
    mt_advise(advising, MT_COMPONENT_ACTIVATIONS, "reserved_or_touched",
              "The engine reserves %s and has touched %s; B is the %s. Compare with --basis %s.",
              mt_format_size(a->allocated_bytes, reserved),
              mt_format_size(a->resident_bytes, resident),
              a->basis == MT_BASIS_RESERVED ? "latter" : "former",
              a->basis == MT_BASIS_RESERVED ? "resident" : "reserved");
    return 1;
}

/* How a formula should count them. */
static void advise_formula(struct mt_advising *advising)
{
    uint64_t ubatch = advising->comparing->settings->ubatch;
    if (mt_advise_factor(advising, MT_COMPONENT_ACTIVATIONS) > 8)
        mt_advise(advising, MT_COMPONENT_ACTIVATIONS, "training_formula",
                  "B is more than eight times A: formulas of training keep every layer's "
                  "activations; inference keeps those of one layer at a time.");
    else if (ubatch != MT_UNKNOWN)
        mt_advise(advising, MT_COMPONENT_ACTIVATIONS, "tokens_at_a_time",
                  "Activations grow with the tokens that are computed at a time (A was run with a "
                  "ubatch of %.0f), not with the context; the rows of logits and flash attention "
                  "count too.",
                  (double)ubatch);
    else
        mt_advise(advising, MT_COMPONENT_ACTIVATIONS, "tokens_at_a_time",
                  "Activations grow with the tokens that are computed at a time (the ubatch), not "
                  "with the context; the rows of logits and flash attention count too.");
}

void mt_advise_activations(struct mt_advising *advising)
{
    const struct mt_component_difference *activations = &advising->of[MT_COMPONENT_ACTIVATIONS];
    if (!mt_advise_is_out(advising, MT_COMPONENT_ACTIVATIONS) || advise_basis(advising) ||
        advise_buffers(advising, fabs((double)activations->difference_bytes)))
        return;
    if (mt_advise_is_foreign(advising))
        advise_formula(advising);
    else
        mt_advise(advising, MT_COMPONENT_ACTIVATIONS, "ubatch_or_flash_attention",
                  "Compare the ubatch and flash attention of A with those of B.");
}
