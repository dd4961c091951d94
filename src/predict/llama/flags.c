/* SPDX-License-Identifier: MIT */
/* The command line of a plan, spelled as the engine's version spells it. Says only what was chosen;
 * whether it fits is decided elsewhere. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <memtally/settings.h>

#include "internal.h"
#include "predict/sheet.h"

static void ollama_flags(const struct mt_llama_plan *plan, struct mt_sheet *sheet)
{
    const struct mt_predict_settings *s = plan->in->settings;
    mt_sheet_flag(sheet, "OLLAMA_CONTEXT_LENGTH=%" PRIu64, s->context_tokens);
    mt_sheet_flag(sheet, "OLLAMA_NUM_PARALLEL=%" PRIu64, s->sequences);
    mt_sheet_flag(sheet, "OLLAMA_KV_CACHE_TYPE=%s", plan->type_k);
    mt_sheet_flag(sheet, "OLLAMA_FLASH_ATTENTION=%d", plan->flash_attention);
}

static void layer_flags(const struct mt_llama_plan *plan, struct mt_sheet *sheet)
{
    const struct mt_predict_settings *s = plan->in->settings;
    static const char *const splits[] = {
        [MT_SPLIT_LAYER] = "layer", [MT_SPLIT_ROW] = "row", [MT_SPLIT_NONE] = "none"};
    if (!plan->n_devices)
        return;
    uint64_t all = plan->n_layers + 1;
    mt_sheet_flag(sheet, "-ngl %" PRIu64, s->gpu_layers < all ? s->gpu_layers : all);
    if (plan->n_devices > 1 || s->split != MT_SPLIT_LAYER)
        mt_sheet_flag(sheet, "-sm %s", splits[s->split]);
    if (!s->n_tensor_split)
        return;
    char list[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < s->n_tensor_split && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%g", i ? "," : "",
                                 s->tensor_split[i]);
    mt_sheet_flag(sheet, "-ts %s", list);
}

/* A device by its number is called by its backend: "CUDA0". */
static const char *prefix_of(const struct mt_predict_settings *s, const char *buffer)
{
    static const struct {
        const char *kind;
        const char *prefix;
    } kinds[] = {{"cuda", "CUDA"}, {"rocm", "ROCm"}, {"vulkan", "Vulkan"}, {"metal", "MTL"}};
    if (buffer[strspn(buffer, "0123456789")])
        return "";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (s->device_kind && !strcmp(s->device_kind, kinds[i].kind))
            return kinds[i].prefix;
    return "";
}

static void placement_flags(const struct mt_llama_plan *plan, struct mt_sheet *sheet)
{
    const struct mt_predict_settings *s = plan->in->settings;
    char no_mmap[40] = "--no-mmap";
    if (s->cpu_moe_layers >= plan->n_layers && s->cpu_moe_layers)
        mt_sheet_flag(sheet, "--cpu-moe");
    else if (s->cpu_moe_layers)
        mt_sheet_flag(sheet, "--n-cpu-moe %" PRIu64, s->cpu_moe_layers);
    for (size_t i = 0; i < s->n_overrides; i++)
        mt_sheet_flag(sheet, "-ot '%s=%s%s'", s->overrides[i].pattern,
                      prefix_of(s, s->overrides[i].buffer), s->overrides[i].buffer);
    struct mt_engine_value value;
    if (mt_engine_value(plan->in->engine, "flag.no_mmap", &value) == 0)
        snprintf(no_mmap, sizeof no_mmap, "%.*s", (int)value.length, value.text);
    if (s->mmap == MT_SWITCH_OFF)
        mt_sheet_flag(sheet, "%s", no_mmap);
    if (s->repack == MT_SWITCH_OFF)
        mt_sheet_flag(sheet, "--no-repack");
    if (s->kv_on_host)
        mt_sheet_flag(sheet, "--no-kv-offload");
}

static void cache_flags(const struct mt_llama_plan *plan, struct mt_sheet *sheet)
{
    const struct mt_predict_settings *s = plan->in->settings;
    const struct mt_engine *engine = plan->in->engine;
    int negative = mt_engine_has(engine, "flag.flash_attention", "negative");
    if (s->program == MT_PROGRAM_SERVER || s->program == MT_PROGRAM_FIT_PARAMS)
        mt_sheet_flag(sheet, "-np %" PRIu64, s->sequences);
    if (mt_engine_has(engine, "flag", "unified_kv") && s->sequences > 1 && plan->streams == 1)
        mt_sheet_flag(sheet, "--kv-unified");
    mt_sheet_flag(sheet, "-ctk %s -ctv %s", plan->type_k, plan->type_v);
    if (mt_engine_has(engine, "flag.flash_attention", "word"))
        mt_sheet_flag(sheet, "-fa %s", plan->flash_attention ? "on" : "off");
    else if (plan->flash_attention != negative)
        mt_sheet_flag(sheet, negative ? "-no-fa" : "-fa");
    if (s->swa_full)
        mt_sheet_flag(sheet, "--swa-full");
    if (mt_engine_has(engine, "flag", "mla_mode") && plan->in->d->kv_lora_rank)
        mt_sheet_flag(sheet, "-mla %" PRIu64, s->mla_mode);
    if (s->attn_max_batch_mib)
        mt_sheet_flag(sheet, "-amb %" PRIu64, s->attn_max_batch_mib);
}

void mt_llama_flags(const struct mt_llama_plan *plan, struct mt_sheet *sheet)
{
    const struct mt_predict_settings *s = plan->in->settings;
    if (mt_engine_has(plan->in->engine, "flag.style", "ollama")) {
        ollama_flags(plan, sheet);
        return;
    }
    if (s->program == MT_PROGRAM_NODE) {
        mt_sheet_flag(sheet,
                      "createContext({contextSize: %" PRIu64 ", batchSize: %" PRIu64
                      ", sequences: %" PRIu64 ", flashAttention: %s})",
                      plan->context, s->ubatch, s->sequences,
                      plan->flash_attention ? "true" : "false");
        return;
    }
    /* llama-bench takes its context from -p and -n. */
    if (s->program != MT_PROGRAM_BENCH)
        mt_sheet_flag(sheet, "-c %" PRIu64, plan->context);
    mt_sheet_flag(sheet, "-b %" PRIu64 " -ub %" PRIu64, s->batch, s->ubatch);
    cache_flags(plan, sheet);
    layer_flags(plan, sheet);
    placement_flags(plan, sheet);
}
