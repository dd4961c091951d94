/* SPDX-License-Identifier: MIT */
/* Compute buffers of llama.cpp by the template of the family's graph in that build. */
#include "base/error.h"
#include "predict/llama_parts.h"
#include "predict/template.h"

struct mt_graph_machine mt_llama_machine(const struct mt_llama_plan *plan)
{
    const struct mt_engine *engine = plan->in->engine;
    const char *kind = plan->in->settings->device_kind;
    return (struct mt_graph_machine){
        .n_devices = (int)plan->n_devices,
        .n_copies = (unsigned)plan->copies,
        .device_alignment = mt_engine_number(engine, "compute.align.device", 128),
        .host_alignment = mt_engine_number(engine, "compute.align.host", 32),
        .quantised_row_padding = 512,
        .attention_scratch = mt_engine_has(engine, "compute.scratch.kinds", kind ? kind : "cuda"),
        .offload_batch = mt_engine_number(engine, "compute.offload.batch", 32),
    };
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
    machine.copies_inputs_unused = !mt_engine_has(run->plan->in->engine, "compute.parts", "older");
    result = mt_graph_reserve(&graph, &machine, buffers);
    return result < 0 ? mt_fail(error, result, MT_NO_OFFSET, "the graph of the model is too large")
                      : 0;
}

int mt_llama_template_reserve(const struct mt_llama_plan *plan, int single_tokens,
                              struct mt_graph_buffer *buffers, struct mt_error *error)
{
    const struct mt_model_description *d = plan->in->d;
    struct mt_template_run run = {.plan = plan, .single_tokens = single_tokens};
    struct mt_template_word file;
    struct mt_template_word text;
    struct mt_arena arena = {0};
    if (d->format != MT_MODEL_GGUF || !d->architecture ||
        mt_template_of_engine(plan->in->engine, d->architecture, &file, &text) < 0)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET, "no template of this family");
    run.pins = plan->in->settings->program != MT_PROGRAM_FIT_PARAMS &&
               (plan->all_on_devices || single_tokens || plan->ubatch < 32);
    int result = replay(&arena, file, text, &run, buffers, error);
    mt_arena_finish(&arena);
    return result == MT_EFORMAT ? MT_ENOTFOUND : result;
}
