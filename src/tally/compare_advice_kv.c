/* SPDX-License-Identifier: MIT */
/* Why a figure of the KV cache is off: almost always by a factor, and the factor tells which term
 * of the formula was left out. */
#include <math.h>
#include <memtally/model_file.h>
#include <memtally/units.h>

#include "tally/compare_advice.h"

#define TOLERANCE 0.04
#define PADDING   256 /* the most that an engine is known to round a context up by */

static double keeps_text(const struct mt_model_layer *layer)
{
    return layer->attention != MT_ATTENTION_NONE && layer->attention != MT_ATTENTION_CROSS;
}

/* What the cache would be multiplied by if all heads had keys and values of their own. */
static double heads_factor(const struct mt_model_description *d)
{
    double all = 0;
    double kept = 0;
    for (uint64_t i = 0; i < d->n_layers; i++) {
        const struct mt_model_layer *layer = &d->layers[i];
        if (!keeps_text(layer) || layer->attention == MT_ATTENTION_LATENT)
            continue;
        double head = (double)layer->key_size + (double)layer->value_size;
        all += (double)layer->heads * head;
        kept += (double)layer->kv_heads * head;
    }
    return kept > 0 ? all / kept : 0;
}

/* If the heads' own keys and values were kept in place of the compressed vector. */
static double latent_factor(const struct mt_model_description *d)
{
    double all = 0;
    double kept = 0;
    for (uint64_t i = 0; i < d->n_layers; i++) {
        const struct mt_model_layer *layer = &d->layers[i];
        if (layer->attention != MT_ATTENTION_LATENT)
            continue;
        double head = (double)d->qk_nope_head_size + (double)d->qk_rope_head_size +
                      (double)d->value_head_size;
        all += (double)layer->heads * head;
        kept += (double)layer->key_size;
    }
    return kept > 0 ? all / kept : 0;
}

/* If layers with a window kept the whole context. */
static double window_factor(const struct mt_advising *advising)
{
    const struct mt_model_description *d = advising->d;
    const struct mt_compare_settings *settings = advising->comparing->settings;
    double context = (double)settings->context_tokens;
    double ubatch = settings->ubatch == MT_UNKNOWN ? 512 : (double)settings->ubatch;
    double all = 0;
    double kept = 0;
    if (settings->context_tokens == MT_UNKNOWN)
        return 0;
    for (uint64_t i = 0; i < d->n_layers; i++) {
        const struct mt_model_layer *layer = &d->layers[i];
        if (!keeps_text(layer))
            continue;
        double token = (double)layer->kv_heads * (double)(layer->key_size + layer->value_size);
        double cells = context;
        if (layer->window)
            cells = fmin(context, PADDING * ceil(((double)layer->window + ubatch) / PADDING));
        all += token * context;
        kept += token * cells;
    }
    return kept > 0 ? all / kept : 0;
}

/* If layers without attention had a cache. */
static double hybrid_factor(const struct mt_model_description *d)
{
    double n = 0;
    for (uint64_t i = 0; i < d->n_layers; i++)
        n += keeps_text(&d->layers[i]);
    return n > 0 ? (double)d->n_layers / n : 0;
}

/* What the model itself can explain. Returns whether it does. */
static int advise_by_model(struct mt_advising *advising, double factor)
{
    const struct mt_model_description *d = advising->d;
    struct {
        double factor;
        const char *reason;
        const char *text;
    } guesses[] = {
        {heads_factor(d), "grouped_query_heads_ignored",
         "the model shares keys and values between heads: count kv_heads, not heads"},
        {latent_factor(d), "latent_attention_ignored",
         "the model keeps one compressed vector for all heads (latent attention)"},
        {window_factor(advising), "sliding_window_ignored",
         "layers with a sliding window keep that window, not the whole context"},
        {hybrid_factor(d), "recurrent_layers_counted",
         "only some layers attend; the others keep a state of fixed size"},
    };
    for (size_t i = 0; i < sizeof guesses / sizeof *guesses; i++)
        if (guesses[i].factor > 1.05 && mt_advise_near(factor, guesses[i].factor, TOLERANCE)) {
            mt_advise(advising, MT_COMPONENT_KV_CACHE, guesses[i].reason,
                      "B's KV cache is %.2f times A's, and %.2f comes of the model: %s.", factor,
                      guesses[i].factor, guesses[i].text);
            return 1;
        }
    return 0;
}

/* The tokens that the cache was computed for. */
static int advise_by_tokens(struct mt_advising *advising, double factor)
{
    const struct mt_compare_settings *settings = advising->comparing->settings;
    double context = (double)settings->context_tokens;
    double sequence = (double)settings->sequence_tokens;
    if (settings->context_tokens == MT_UNKNOWN || settings->context_tokens == 0)
        return 0;
    if (mt_advise_is_foreign(advising) && settings->sequence_tokens != MT_UNKNOWN && sequence > 0 &&
        mt_advise_near(factor, sequence / context, TOLERANCE)) {
        mt_advise(advising, MT_COMPONENT_KV_CACHE, "context_is_reserved",
                  "B counts the %.0f tokens of prompt and answer; the engine reserves its cache "
                  "for the whole context, %.0f tokens.",
                  sequence, context);
        return 1;
    }
    if (fabs(factor - 1) * context < PADDING) {
        mt_advise(advising, MT_COMPONENT_KV_CACHE, "context_padding",
                  "The difference is less than %d tokens of a context of %.0f: engines round the "
                  "context up to a whole number of blocks.",
                  PADDING, context);
        return 1;
    }
    return 0;
}

/* What a factor alone suggests. */
static const struct {
    double factor;
    int only_without_model;
    const char *reason;
    const char *text;
} common[] = {
    {.factor = 2,
     .reason = "element_size",
     .text = "32-bit elements counted where 16-bit ones are kept, or K and V counted twice"},
    {.factor = 0.5,
     .reason = "keys_only",
     .text = "only K counted and not V, or 8-bit elements where 16-bit ones are kept"},
    {.factor = 16 / 8.5,
     .reason = "cache_is_quantised",
     .text = "the cache is quantised to q8_0, 8.5 bits an element"},
    {.factor = 16 / 4.5,
     .reason = "cache_is_quantised",
     .text = "the cache is quantised to q4_0, 4.5 bits an element"},
    {.factor = 8.5 / 16,
     .reason = "cache_is_not_quantised",
     .text = "a q8_0 cache was assumed and 16-bit elements are kept"},
    {.factor = 4.5 / 16,
     .reason = "cache_is_not_quantised",
     .text = "a q4_0 cache was assumed and 16-bit elements are kept"},
#define SHARED_BY(N)                                                                               \
    {                                                                                              \
        .factor = N, .only_without_model = 1, .reason = "grouped_query_heads_ignored",             \
        .text = "keys and values shared by " #N " heads each"                                      \
    }
    SHARED_BY(3),
    SHARED_BY(4),
    SHARED_BY(5),
    SHARED_BY(6),
    SHARED_BY(7),
    SHARED_BY(8),
    SHARED_BY(16),
#undef SHARED_BY
};

static int advise_by_factor(struct mt_advising *advising, double factor)
{
    size_t best = sizeof common / sizeof *common;
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        if ((common[i].only_without_model && advising->d) ||
            !mt_advise_near(factor, common[i].factor, TOLERANCE))
            continue;
        if (best == sizeof common / sizeof *common ||
            fabs(factor / common[i].factor - 1) < fabs(factor / common[best].factor - 1))
            best = i;
    }
    if (best == sizeof common / sizeof *common)
        return 0;
    mt_advise(advising, MT_COMPONENT_KV_CACHE, common[best].reason,
              "B's KV cache is %.2f times A's, as would come of %s.", factor, common[best].text);
    return 1;
}

void mt_advise_kv_cache(struct mt_advising *advising)
{
    const struct mt_compare_settings *settings = advising->comparing->settings;
    double factor = mt_advise_factor(advising, MT_COMPONENT_KV_CACHE);
    if (!mt_advise_is_out(advising, MT_COMPONENT_KV_CACHE) || factor <= 0)
        return;
    int is_foreign = mt_advise_is_foreign(advising);
    if ((is_foreign && advising->d && advise_by_model(advising, factor)) ||
        advise_by_tokens(advising, factor) || (is_foreign && advise_by_factor(advising, factor)))
        return;
    if (settings->context_tokens != MT_UNKNOWN)
        mt_advise(advising, MT_COMPONENT_KV_CACHE, "context_or_sequences",
                  "B's KV cache is %.2f times A's: compare the context (A was run with %.0f "
                  "tokens), the number of sequences and the cache's type.",
                  factor, (double)settings->context_tokens);
    else
        mt_advise(advising, MT_COMPONENT_KV_CACHE, "context_or_sequences",
                  "B's KV cache is %.2f times A's: compare the context, the number of sequences "
                  "and the cache's type.",
                  factor);
}
