/* SPDX-License-Identifier: MIT */
/* Computing nothing. A graph is done at once, weights pass every check, and no token ends the text,
 * so a generation makes all requested tokens. */
#include "hooks.h"
#include "purpose.h"
#include "rehearse/account_write.h"

enum { STATUS_SUCCESS = 0 };

/* Whether the backend is one of several devices as one (tensor split), which divides a graph among
 * them, keeps its books as it goes, and computes nothing itself. */
static int is_of_several(struct engine *engine, void *backend)
{
    enum { DEVICE_IS_META = 4 };
    void *device = backend && real_ggml_backend_get_device(engine)
                       ? real_ggml_backend_get_device(engine)(backend)
                       : NULL;
    return device && real_ggml_backend_dev_type(engine) &&
           real_ggml_backend_dev_type(engine)(device) == DEVICE_IS_META;
}

/* What the devices' parts of a product are added up in is allocated as the first graph is done. */
static void begin_sums(struct purpose *purpose)
{
    static uint32_t is_noted;
    purpose_begin(purpose, MT_CATEGORY_ACTIVATIONS, "sums over devices", current_owner());
    if (!__atomic_exchange_n(&is_noted, 1, __ATOMIC_RELAXED))
        pretend_note("Sums over devices take what ggml itself takes for them; devices that are "
                     "joined by NCCL take other buffers.");
}

int ggml_backend_graph_compute(void *backend, void *graph)
{
    struct engine *engine = engine_of(CALLER);
    if (!rehearsal() || !is_of_several(engine, backend))
        return rehearsal() ? STATUS_SUCCESS
                           : real_ggml_backend_graph_compute(engine)(backend, graph);
    PURPOSE purpose;
    begin_sums(&purpose);
    return real_ggml_backend_graph_compute(engine)(backend, graph);
}

int ggml_backend_graph_compute_async(void *backend, void *graph)
{
    struct engine *engine = engine_of(CALLER);
    if (!rehearsal() || !is_of_several(engine, backend))
        return rehearsal() ? STATUS_SUCCESS
                           : real_ggml_backend_graph_compute_async(engine)(backend, graph);
    PURPOSE purpose;
    begin_sums(&purpose);
    return real_ggml_backend_graph_compute_async(engine)(backend, graph);
}

int ggml_graph_compute(void *graph, void *plan)
{
    if (rehearsal())
        return STATUS_SUCCESS;
    return real_ggml_graph_compute(engine_of(CALLER))(graph, plan);
}

_Bool ggml_validate_row_data(int type, const void *data, size_t size)
{
    if (rehearsal())
        return 1;
    return real_ggml_validate_row_data(engine_of(CALLER))(type, data, size);
}

/* Masks and positions, which a graph that is not computed needs not; of a long context they take
 * longer than everything else that a token costs. */
void _ZN16llm_graph_result10set_inputsEPK12llama_ubatch(void *result, const void *batch)
{
    if (rehearsal())
        return;
    real__ZN16llm_graph_result10set_inputsEPK12llama_ubatch(engine_of(CALLER))(result, batch);
}

_Bool llama_vocab_is_eog(const void *vocabulary, int32_t token)
{
    if (rehearsal())
        return 0;
    return real_llama_vocab_is_eog(engine_of(CALLER))(vocabulary, token);
}
