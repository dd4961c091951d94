/* SPDX-License-Identifier: MIT */
/* Computing nothing: graphs are done as soon as they are asked for, weights are as they should be,
 * and no token ends the text, so that a generation goes on to the tokens that were asked for. */
#include "rehearse/ggml/hooks.h"

enum { STATUS_SUCCESS = 0 };

int ggml_backend_graph_compute(void *backend, void *graph)
{
    if (idle_rehearsal())
        return STATUS_SUCCESS;
    return real_ggml_backend_graph_compute(engine_of(CALLER))(backend, graph);
}

int ggml_backend_graph_compute_async(void *backend, void *graph)
{
    if (idle_rehearsal())
        return STATUS_SUCCESS;
    return real_ggml_backend_graph_compute_async(engine_of(CALLER))(backend, graph);
}

int ggml_graph_compute(void *graph, void *plan)
{
    if (idle_rehearsal())
        return STATUS_SUCCESS;
    return real_ggml_graph_compute(engine_of(CALLER))(graph, plan);
}

_Bool ggml_validate_row_data(int type, const void *data, size_t size)
{
    if (idle_rehearsal())
        return 1;
    return real_ggml_validate_row_data(engine_of(CALLER))(type, data, size);
}

/* Masks and positions, which a graph that is not computed needs not; of a long context they take
 * longer than everything else that a token costs. */
void _ZN16llm_graph_result10set_inputsEPK12llama_ubatch(void *result, const void *batch)
{
    if (idle_rehearsal())
        return;
    real__ZN16llm_graph_result10set_inputsEPK12llama_ubatch(engine_of(CALLER))(result, batch);
}

_Bool llama_vocab_is_eog(const void *vocabulary, int32_t token)
{
    if (idle_rehearsal())
        return 0;
    return real_llama_vocab_is_eog(engine_of(CALLER))(vocabulary, token);
}
