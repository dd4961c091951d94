/* SPDX-License-Identifier: MIT */
/* Settings of a llama.cpp run: open ones get the engine's default of that version, contradictions
 * are refused with the nearest setting that is none. Sizes nothing. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <memtally/settings.h>

#include "base/error.h"
#include "internal.h"
#include "model/families.h"
#include "predict/sums.h"

/* The engine counts in 32 bits. */
#define COUNT_MAX (UINT64_C(1) << 31)

#define WORD_BYTES 40

struct completion {
    const struct mt_model_description *d;
    const struct mt_engine *engine;
    struct mt_predict_settings *s;
    struct mt_error *error;
};

#define REFUSE(c, ...) mt_fail((c)->error, MT_EARG, MT_NO_OFFSET, __VA_ARGS__)

/* "b11434" where the engine counts builds. */
static const char *version_of(const struct mt_engine *engine)
{
    return engine->version_text;
}

/* No device has split buffers any more, and what wants them is not loaded. */
static int is_without_rows(const struct completion *c)
{
    return mt_engine_has(c->engine, "flag.split.without", "row");
}

/* Refuses settings of other engines. */
static int refuse_foreign(const struct completion *c)
{
    const struct mt_predict_settings *s = c->s;
    const char *name = c->engine->name;
    if (s->memory_share > 0)
        return REFUSE(c, "%s takes no share of a device's memory; --gpu-layers is the nearest",
                      name);
    if (s->batched_tokens)
        return REFUSE(c, "%s has no batched tokens; --batch and --ubatch are the nearest", name);
    if (s->tensor_parallel > 1)
        return REFUSE(c, "%s has no tensor parallelism of that kind; --split %s is the nearest",
                      name, is_without_rows(c) ? "layer" : "row");
    if (s->pipeline_parallel > 1)
        return REFUSE(c, "%s has no pipeline stages; --split layer is the nearest", name);
    if (s->eager)
        return REFUSE(c, "%s has no eager mode; --flash-attn off is the nearest", name);
    if (s->max_concurrency || s->graph_batch || s->graph_padding)
        return REFUSE(
            c,
            "%s captures graphs as it goes: leave out --max-concurrency, --graph-batch and "
            "--graph-padding",
            name);
    if (s->weight_type)
        return REFUSE(c, "%s does not convert weights when it loads them; quantise the file", name);
    return 0;
}

/* Refuses a flag that the version does not know. */
static int refuse_unknown(const struct completion *c, int given, const char *flag, const char *name,
                          const char *nearest)
{
    char key[WORD_BYTES + 16];
    if (!given || mt_engine_has(c->engine, "flag", flag))
        return 0;
    snprintf(key, sizeof key, "flag.%s.since", flag);
    uint64_t since = mt_engine_number(c->engine, key, 0);
    if (since)
        return REFUSE(c, "%s %s does not know %s, which came with b%" PRIu64 "; %s is the nearest",
                      c->engine->name, version_of(c->engine), name, since, nearest);
    return REFUSE(c, "%s does not know %s; %s is the nearest", c->engine->name, name, nearest);
}

/* Refuses a flag that the program does not have, though its engine does. */
static int refuse_of_program(const struct completion *c, int given, const char *flag,
                             const char *name)
{
    static const struct {
        const char *key;
        const char *name;
    } programs[] = {[MT_PROGRAM_SERVER] = {"flag.without.server", "llama-server"},
                    [MT_PROGRAM_BENCH] = {"flag.without.bench", "llama-bench"},
                    [MT_PROGRAM_FIT_PARAMS] = {"flag.without.fit_params", "llama-fit-params"},
                    [MT_PROGRAM_NODE] = {"flag.without.node", "node-llama-cpp"}};
    size_t program = c->s->program;
    if (!given || program >= sizeof programs / sizeof *programs ||
        !mt_engine_has(c->engine, programs[program].key, flag))
        return 0;
    return REFUSE(c, "%s has no setting like %s; leave it out, or choose another --program",
                  programs[program].name, name);
}

static int refuse_flags(const struct completion *c)
{
    const struct mt_predict_settings *s = c->s;
    int mla = s->has_mla_mode && s->mla_mode;
    const struct {
        int given;
        const char *flag;
        const char *name;
        const char *nearest;
    } flags[] = {
        {s->swa_full, "swa_full", "--swa-full", "leaving it out"},
        {s->unified_kv != MT_SWITCH_AUTO, "unified_kv", "--kv-unified", "leaving it out"},
        {s->cpu_moe_layers != 0, "cpu_moe", "--cpu-moe", "--override-tensor"},
        {s->n_overrides != 0, "override_tensor", "--override-tensor", "--gpu-layers"},
        {s->repack == MT_SWITCH_OFF, "no_repack", "--no-repack", "leaving it out"},
        {s->kv_on_host, "kv_on_host", "--no-kv-offload", "--gpu-layers 0"},
        {s->mmap == MT_SWITCH_OFF, "no_mmap", "--no-mmap", "leaving it out"},
        {s->n_tensor_split != 0, "tensor_split", "--tensor-split", "--gpu-layers"},
        {mla, "mla_mode", "-mla", "leaving it out"},
        {s->attn_max_batch_mib != 0, "attn_max_batch", "-amb", "--ubatch"},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        int result =
            refuse_unknown(c, flags[i].given, flags[i].flag, flags[i].name, flags[i].nearest);
        /* Caches of their own are what a program has that cannot share one. */
        int is_off = !strcmp(flags[i].flag, "unified_kv") && s->unified_kv == MT_SWITCH_OFF;
        if (result == 0)
            result = refuse_of_program(c, flags[i].given && !is_off, flags[i].flag, flags[i].name);
        if (result < 0)
            return result;
    }
    if (refuse_of_program(c, s->split != MT_SPLIT_LAYER, "split", "--split") < 0)
        return MT_EARG;
    if (s->split == MT_SPLIT_ROW && is_without_rows(c))
        return REFUSE(c,
                      "%s %s does not load a model that is split by rows; --split layer is the "
                      "nearest",
                      c->engine->name, version_of(c->engine));
    if (mla && s->mla_mode > 3)
        return REFUSE(c, "-mla is 0 to 3, not %" PRIu64 "; 3 is the nearest", s->mla_mode);
    return 0;
}

static int refuse_split(const struct completion *c)
{
    const struct mt_predict_settings *s = c->s;
    double sum = 0;
    if (s->n_tensor_split && !s->n_devices)
        return REFUSE(c, "--tensor-split without a device; --device SIZE,SIZE is the nearest");
    if (s->n_tensor_split > s->n_devices)
        return REFUSE(c,
                      "--tensor-split has %zu parts for %zu device%s; give %zu or --device sizes",
                      s->n_tensor_split, s->n_devices, s->n_devices == 1 ? "" : "s", s->n_devices);
    for (size_t i = 0; i < s->n_tensor_split; i++) {
        if (!(s->tensor_split[i] >= 0) || s->tensor_split[i] > 1e30)
            return REFUSE(c, "--tensor-split: part %zu is no share; 0 is the nearest", i + 1);
        sum += s->tensor_split[i];
    }
    if (s->n_tensor_split && !(sum > 0))
        return REFUSE(c, "--tensor-split: all parts are 0; leave it out for equal ones");
    if (!s->n_devices && s->has_gpu_layers && s->gpu_layers)
        return REFUSE(c, "--gpu-layers without a device; --gpu-layers 0 or --device SIZE is the "
                         "nearest");
    return 0;
}

/* Puts an open count in and holds it against its bound. */
static int fill_count(const struct completion *c, uint64_t *count, const char *key,
                      uint64_t fallback, uint64_t most, const char *name)
{
    if (!*count)
        *count = mt_engine_number(c->engine, key, fallback);
    if (*count > most)
        return REFUSE(c, "%s is at most %" PRIu64 ", not %" PRIu64, name, most, *count);
    return 0;
}

/* What an engine takes by the memory of all devices: "23=32768 47=262144", from so many GiB on; 0
 * where it does not go by that. */
static uint64_t context_of_devices(const struct completion *c)
{
    char text[128];
    uint64_t device_bytes = 0;
    uint64_t context = 0;
    mt_engine_text(c->engine, "default.context.from_gib", text, sizeof text);
    for (size_t i = 0; i < c->s->n_devices; i++)
        device_bytes = mt_add(device_bytes, c->s->device_bytes[i]);
    for (char *rest = text, *word; (word = strsep(&rest, " ")) != NULL;) {
        const char *value = strchr(word, '=');
        if (value && device_bytes >> 30 >= strtoull(word, NULL, 10))
            context = strtoull(value + 1, NULL, 10);
    }
    return context;
}

static int fill_context(const struct completion *c)
{
    struct mt_predict_settings *s = c->s;
    uint64_t trained = c->d->context_length ? c->d->context_length : 4096;
    uint64_t of_devices = s->program == MT_PROGRAM_BENCH ? 0 : context_of_devices(c);
    if (!s->context_tokens && of_devices)
        s->context_tokens = of_devices < trained ? of_devices : trained;
    const char *key = s->program == MT_PROGRAM_BENCH ? "default.context.bench" : "default.context";
    return fill_count(c, &s->context_tokens, key, trained, COUNT_MAX, "the context");
}

/* How many sequences, and whether they share one cache. */
static int fill_sequences(const struct completion *c)
{
    struct mt_predict_settings *s = c->s;
    int open = !s->sequences;
    uint64_t most = mt_engine_number(c->engine, "sequences.max", 256);
    const char *key = s->program == MT_PROGRAM_SERVER ? "default.sequences.server" : "";
    int result = fill_count(c, &s->sequences, key, 1, most, "the number of sequences");
    if (result < 0)
        return result;
    if (mt_engine_has(c->engine, "default.unified", "always"))
        s->unified_kv = MT_SWITCH_ON;
    else if (s->unified_kv == MT_SWITCH_AUTO)
        s->unified_kv = open && s->sequences > 1 ? MT_SWITCH_ON : MT_SWITCH_OFF;
    return 0;
}

static int fill_type(const struct completion *c, const char **type, const char *name)
{
    static const char *const known[] = {"f32",  "f16",  "bf16",   "q8_0", "q4_0", "q4_1",
                                        "q5_0", "q5_1", "iq4_nl", "q6_0", "q8_kv"};
    char nearest[WORD_BYTES];
    if (!*type)
        *type = "f16";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcasecmp(known[i], *type) && mt_engine_has(c->engine, "cache.types", known[i])) {
            *type = known[i];
            return 0;
        }
    mt_llama_nearest(c->engine, "cache.types", *type, nearest, sizeof nearest);
    return REFUSE(c, "%s %s has no cache type %.40s (%s); %s is the nearest", c->engine->name,
                  version_of(c->engine), *type, name, nearest);
}

/* Values that are narrower than keys are known in groups of heads alone. */
static int is_narrow(const struct mt_engine *engine, const struct mt_model_layer *layer)
{
    uint64_t group = mt_engine_number(engine, "flash.narrow_group", 0);
    return group && layer->value_size && layer->value_size < layer->key_size &&
           layer->heads / layer->kv_heads % group;
}

int mt_llama_flash_runs(const struct mt_engine *engine, const struct mt_model_description *d)
{
    for (uint64_t i = 0; i < d->n_layers; i++) {
        char size[24];
        if (!d->layers[i].kv_heads || !d->layers[i].key_size)
            continue;
        snprintf(size, sizeof size, "%" PRIu64, d->layers[i].key_size);
        if (!mt_engine_has(engine, "flash.head_sizes", size) || is_narrow(engine, &d->layers[i]))
            return 0;
    }
    return 1;
}

static int fill_flash_attention(const struct completion *c)
{
    struct mt_predict_settings *s = c->s;
    if (s->flash_attention == MT_SWITCH_AUTO &&
        mt_engine_has(c->engine, "default.flash_attention", "off"))
        s->flash_attention = MT_SWITCH_OFF;
    if (s->flash_attention == MT_SWITCH_AUTO)
        s->flash_attention =
            !s->n_devices || mt_llama_flash_runs(c->engine, c->d) ? MT_SWITCH_ON : MT_SWITCH_OFF;
    if (s->flash_attention == MT_SWITCH_OFF && mt_llama_is_quantised(s->kv_type_v))
        return REFUSE(c,
                      "a cache of values of type %s needs flash attention, which is off; "
                      "--flash-attn on or --kv-type-v f16 is the nearest",
                      s->kv_type_v);
    return 0;
}

/* Values that are a part of the keys cannot be of another type. */
static int refuse_two_types(const struct completion *c)
{
    const struct mt_predict_settings *s = c->s;
    int latent = mt_arch_of(c->d->architecture) == MT_ARCH_DEEPSEEK4;
    for (uint64_t i = 0; i < c->d->n_layers; i++)
        latent |= c->d->layers[i].attention == MT_ATTENTION_LATENT;
    if (!latent || !strcmp(s->kv_type_k, s->kv_type_v) ||
        !mt_engine_has(c->engine, "cache.types.latent", "same"))
        return 0;
    return REFUSE(c,
                  "%s %s has one cache type for keys and values of a %s model, not %s and %s; "
                  "--kv-type %s is the nearest",
                  c->engine->name, version_of(c->engine),
                  c->d->architecture ? c->d->architecture : "", s->kv_type_k, s->kv_type_v,
                  s->kv_type_k);
}

static int fill_cache(const struct completion *c)
{
    struct mt_predict_settings *s = c->s;
    int result = fill_type(c, &s->kv_type_k, "keys");
    if (result == 0)
        result = fill_type(c, &s->kv_type_v, "values");
    if (result < 0)
        return result;
    if (mt_engine_has(c->engine, "flag.style", "ollama") && strcmp(s->kv_type_k, s->kv_type_v))
        return REFUSE(c, "%s has one cache type for keys and values; %s for both is the nearest",
                      c->engine->name, s->kv_type_k);
    result = refuse_two_types(c);
    if (result < 0)
        return result;
    if (!s->has_mla_mode)
        s->mla_mode = mt_engine_number(c->engine, "default.mla_mode", 0);
    if (!s->attn_max_batch_mib)
        s->attn_max_batch_mib = mt_engine_number(c->engine, "default.attn_max_batch", 0);
    return fill_flash_attention(c);
}

static int fill_layers(const struct completion *c)
{
    struct mt_predict_settings *s = c->s;
    if (!s->has_gpu_layers)
        s->gpu_layers =
            s->n_devices ? mt_engine_number(c->engine, "default.gpu_layers", MT_ALL) : 0;
    if (s->cpu_moe_layers && !c->d->experts)
        return REFUSE(c, "--cpu-moe: the model has no experts; --gpu-layers is the nearest");
    if (!s->device_kind)
        s->device_kind = "cuda";
    return 0;
}

static int fill_batches(const struct completion *c)
{
    struct mt_predict_settings *s = c->s;
    int result = fill_count(c, &s->batch, "default.batch", 2048, COUNT_MAX, "the batch");
    if (result == 0)
        result = fill_count(c, &s->ubatch, "default.ubatch", 512, COUNT_MAX, "the ubatch");
    return result;
}

int mt_llama_complete(const struct mt_model *model, const struct mt_engine *engine,
                      struct mt_predict_settings *settings, struct mt_error *error)
{
    const struct completion c = {mt_model_describe(model), engine, settings, error};
    if (c.d->is_projector)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "a projector runs with the model that it belongs to, not alone");
    int (*const steps[])(const struct completion *) = {refuse_foreign, refuse_flags,   refuse_split,
                                                       fill_context,   fill_sequences, fill_cache,
                                                       fill_layers,    fill_batches};
    int result = 0;
    for (size_t i = 0; result == 0 && i < sizeof steps / sizeof *steps; i++)
        result = steps[i](&c);
    if (result < 0)
        return result;
    settings->has_gpu_layers = 1;
    settings->has_mla_mode = 1;
    return 0;
}
