/* SPDX-License-Identifier: MIT */
/* Any text as a graph template: it is refused, or fills a graph of bounded
 * size, which can be reserved. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/error.h>

#include "model/model.h"
#include "predict/template/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int tensor_at(const struct mt_model *model, uint64_t index, struct mt_model_tensor *tensor)
{
    static const char *const names[] = {"token_embd.weight", "blk.0.ffn_up.weight",
                                        "blk.1.ffn_up.weight"};
    (void)model;
    *tensor = (struct mt_model_tensor){.name = names[index],
                                       .name_length = strlen(names[index]),
                                       .type = "f32",
                                       .type_known = 1,
                                       .n_dims = 2,
                                       .dims = {64, 64},
                                       .elements = 4096,
                                       .bytes = 16384,
                                       .layer = index ? (uint32_t)index - 1 : MT_NO_LAYER};
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mt_model_layer layers[2] = {{.attention = MT_ATTENTION_GLOBAL,
                                        .heads = 2,
                                        .kv_heads = 2,
                                        .key_size = 32,
                                        .value_size = 32},
                                       {.attention = MT_ATTENTION_GLOBAL,
                                        .heads = 2,
                                        .kv_heads = 2,
                                        .key_size = 32,
                                        .value_size = 32,
                                        .cache_layer = 1}};
    static const int device_of[3] = {0, 0, 0};
    struct mt_model model = {.description = {.format = MT_MODEL_GGUF,
                                             .n_layers = 2,
                                             .layers = layers,
                                             .n_tensors = 3,
                                             .embedding_length = 64},
                             .tensor_at = tensor_at};
    struct mt_predict_settings settings = {.n_devices = 1};
    struct mt_engine engine = {0};
    const struct mt_predict_input in = {&model, &model.description, &settings, &engine};
    const struct mt_llama_plan plan = {.in = &in,
                                       .n_devices = 1,
                                       .n_layers = 2,
                                       .device_of = device_of,
                                       .ubatch = 8,
                                       .sequences = 1,
                                       .streams = 1,
                                       .cells = 256,
                                       .output_rows = 1,
                                       .type_k = "q8_0",
                                       .type_v = "f16"};
    const struct mt_template_run run = {.plan = &plan, .pins = 1};
    const struct mt_graph_machine machine = {.n_devices = 1,
                                             .n_copies = 1,
                                             .device_alignment = 128,
                                             .host_alignment = 32,
                                             .quantised_row_padding = 512,
                                             .attention_scratch = 1,
                                             .offload_batch = 32};
    struct mt_graph_buffer buffers[2];
    struct mt_template template;
    struct mt_template_word text;
    struct mt_error error = {0};
    struct mt_arena arena = {0};
    struct mt_graph graph;
    mt_graph_init(&graph, &arena);
    if (mt_template_find((const char *)data, size, "a", &text) == 0) {
        int result = mt_template_read(&arena, (struct mt_template_word){(const char *)data, size},
                                      text, &template, &error);
        if (result == 0 && mt_template_fill(&template, &run, &graph, &error) == 0)
            mt_graph_reserve(&graph, &machine, buffers);
    }
    mt_arena_finish(&arena);
    return 0;
}
