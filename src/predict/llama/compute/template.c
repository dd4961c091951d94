/* SPDX-License-Identifier: MIT */
/* Compute buffers of llama.cpp by the template of the family's graph in that build. */
#include <stdio.h>

#include <memtally/settings.h>

#include "base/error.h"
#include "predict/llama/internal.h"
#include "predict/template/template.h"

/* What the devices keep for fused operations, by the words of a key of the table. */
static unsigned kept(const struct mt_llama_plan *plan, const char *which)
{
    const struct mt_predict_settings *s = plan->in->settings;
    char key[64];
    snprintf(key, sizeof key, "pretend.%.16s.keeps%s", s->device_kind ? s->device_kind : "cuda",
             which);
    return (mt_engine_has(plan->in->engine, key, "topk") ? MT_KEEP_TOPK : 0) |
           (mt_engine_has(plan->in->engine, key, "reduction") ? MT_KEEP_REDUCTION : 0) |
           (mt_engine_has(plan->in->engine, key, "shared") ? MT_KEEP_SHARED : 0);
}

unsigned mt_llama_keeps(const struct mt_llama_plan *plan, unsigned *perhaps)
{
    int fuses = plan->n_devices && plan->in->settings->fusion != MT_SWITCH_OFF;
    unsigned keeps = fuses ? kept(plan, "") : 0;
    *perhaps = fuses ? kept(plan, ".perhaps") & ~keeps : 0;
    return keeps;
}

unsigned mt_llama_newer(const struct mt_engine *engine, const char *key)
{
    static const char *const words[] = {"inputs", "states",     "mamba", "gate",
                                        "mask",   "embeddings", "padded"};
    unsigned newer = 0;
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        if (mt_engine_has(engine, key, words[i]))
            newer |= 1u << i;
    return newer;
}

struct mt_graph_machine mt_llama_machine(const struct mt_llama_plan *plan)
{
    const struct mt_engine *engine = plan->in->engine;
    const char *kind = plan->in->settings->device_kind;
    unsigned perhaps;
    struct mt_graph_machine machine = {
        .n_devices = (int)plan->n_devices,
        .n_copies = (unsigned)plan->copies,
        .copies_inputs_unused = !!(mt_llama_newer(engine, "compute.parts") & MT_NEWER_INPUTS),
        .device_alignment = mt_engine_number(engine, "compute.align.device", 128),
        .host_alignment = mt_engine_number(engine, "compute.align.host", 32),
        .quantised_row_padding = 512,
        .attention_scratch = mt_engine_has(engine, "compute.scratch.kinds", kind ? kind : "cuda"),
        .keeps = mt_llama_keeps(plan, &perhaps),
        .offload_batch = mt_engine_number(engine, "compute.offload.batch", 32),
        .has_any_pair = mt_engine_has(engine, "pretend.cuda.flash_types", "any"),
        .build = engine->version.parts[0],
    };
    for (size_t i = 0; i < plan->n_devices && i < MT_GRAPH_DEVICES_MAX; i++)
        machine.capability[i] = plan->capability[i];
    return machine;
}

/* Whether devices have no flash attention of heads of such a size: where it is wanted all the same,
 * it runs on the host, which templates do not know. */
static int has_untaken_heads(const struct mt_llama_plan *plan)
{
    const struct mt_model_description *d = plan->in->d;
    char size[24];
    for (uint64_t i = 0; plan->flash_attention && plan->n_devices && i < d->n_layers; i++) {
        snprintf(size, sizeof size, "%llu", (unsigned long long)d->layers[i].key_size);
        if (d->layers[i].attention != MT_ATTENTION_NONE && d->layers[i].key_size &&
            !mt_engine_has(plan->in->engine, "flash.head_sizes", size))
            return 1;
    }
    return 0;
}

/* Reads the template, fills the graph and reserves memory with it. */
static int replay(struct mt_arena *arena, struct mt_template_word file,
                  struct mt_template_word text, const struct mt_template_run *run,
                  struct mt_graph_buffer *buffers, struct mt_error *error)
{
    struct mt_template template;
    struct mt_graph graph;
    mt_graph_init(&graph, arena);
    int result = mt_template_read(arena, file, text, &template, error);
    if (result == 0)
        result = mt_template_fill(&template, run, &graph, error);
    if (result < 0)
        return result;
    struct mt_graph_machine machine = mt_llama_machine(run->plan);
    result = mt_graph_reserve(&graph, &machine, buffers);
    if (result < 0)
        return mt_fail(error, result, MT_NO_OFFSET, "the graph of the model is too large");
    if (has_untaken_heads(run->plan))
        return MT_TEMPLATE_UNTAKEN;
    int knows = mt_template_knows_keys(&template, run->plan->in->model);
    return knows ? (int)template.doubt_percent : MT_TEMPLATE_OTHER_KEYS;
}

static int find(const struct mt_llama_plan *plan, const struct mt_llama_template_use *use,
                struct mt_template_word *file, struct mt_template_word *text)
{
    const struct mt_model_description *d = plan->in->d;
    if (d->format != MT_MODEL_GGUF || !d->architecture)
        return MT_ENOTFOUND;
    if (!use->file)
        return mt_template_of_engine(plan->in->engine, d->architecture, file, text);
    *file = (struct mt_template_word){use->file, use->file_length};
    return mt_template_find(use->file, use->file_length, d->architecture, text);
}

int mt_llama_template_reserve(const struct mt_llama_plan *plan, struct mt_llama_template_use *use,
                              struct mt_graph_buffer *buffers, struct mt_error *error)
{
    struct mt_template_run run = {.plan = plan, .single_tokens = use->single_tokens};
    struct mt_template_word file;
    struct mt_template_word text;
    struct mt_arena arena = {0};
    if (find(plan, use, &file, &text) < 0)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET, "no template of this family");
    run.pins = plan->in->settings->program != MT_PROGRAM_FIT_PARAMS &&
               (plan->all_on_devices || use->single_tokens || plan->ubatch < 32);
    int result = replay(&arena, file, text, &run, buffers, error);
    mt_arena_finish(&arena);
    if (result >= 0)
        use->doubt_percent = (unsigned)result;
    return result == MT_EFORMAT ? MT_ENOTFOUND : result < 0 ? result : 0;
}
