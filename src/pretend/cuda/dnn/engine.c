/* SPDX-License-Identifier: MIT */
/* What cuDNN says of an operation graph: one engine computes it, without knobs and without notes
 * on numbers or behaviour, so that every filter of a caller lets it through. */
#include <string.h>

#include "backend.h"
#include "pretend/cuda/unknown.h"

typedef struct pretend_backend backend;

static int put_int64(backend *into, int name, int64_t value)
{
    return pretend_backend_put(into, name, VALUE_INT64, 1, &value);
}

static int put_text(backend *into, int name, const char *text)
{
    return pretend_backend_put(into, name, VALUE_CHAR, (int64_t)strlen(text) + 1, text);
}

static int finish_engine(backend *engine)
{
    if (!pretend_backend_child(engine, ATTR_ENGINE_OPERATION_GRAPH))
        return DNN_BAD_PARAM;
    if (!pretend_backend_find(engine, ATTR_ENGINE_GLOBAL_INDEX))
        return put_int64(engine, ATTR_ENGINE_GLOBAL_INDEX, 0);
    return DNN_SUCCESS;
}

static int finish_config(backend *config)
{
    int32_t shared = 0;
    int status;
    if (!pretend_backend_child(config, ATTR_ENGINECFG_ENGINE))
        return DNN_BAD_PARAM;
    status = put_int64(config, ATTR_ENGINECFG_WORKSPACE_SIZE, 0);
    if (status == DNN_SUCCESS) {
        status =
            pretend_backend_put(config, ATTR_ENGINECFG_SHARED_MEMORY_USED, VALUE_INT32, 1, &shared);
    }
    return status;
}

/* An engine for the graph, and a configuration of it, finished both. */
static int make_config(backend *graph, backend **made)
{
    backend *engine = pretend_backend_make(BACKEND_ENGINE);
    backend *config = pretend_backend_make(BACKEND_ENGINECFG);
    int status = DNN_HOST_ALLOCATION_FAILED;
    if (engine && config) {
        status =
            pretend_backend_put(engine, ATTR_ENGINE_OPERATION_GRAPH, VALUE_DESCRIPTOR, 1, &graph);
    }
    if (status == DNN_SUCCESS) {
        status = finish_engine(engine);
        engine->is_final = 1;
    }
    if (status == DNN_SUCCESS)
        status = pretend_backend_put(config, ATTR_ENGINECFG_ENGINE, VALUE_DESCRIPTOR, 1, &engine);
    if (status == DNN_SUCCESS) {
        status = finish_config(config);
        config->is_final = 1;
    }
    pretend_backend_drop(engine);
    if (status != DNN_SUCCESS) {
        pretend_backend_drop(config);
        return status;
    }
    *made = config;
    return DNN_SUCCESS;
}

static int finish_heuristics(backend *heuristics)
{
    backend *graph = pretend_backend_child(heuristics, ATTR_ENGINEHEUR_OPERATION_GRAPH);
    backend *config;
    int status;
    if (!graph || !graph->is_final)
        return DNN_BAD_PARAM;
    status = make_config(graph, &config);
    if (status == DNN_SUCCESS) {
        status =
            pretend_backend_put(heuristics, ATTR_ENGINEHEUR_RESULTS, VALUE_DESCRIPTOR, 1, &config);
        pretend_backend_drop(config);
    }
    return status;
}

static int finish_graph(backend *graph)
{
    const struct pretend_backend_attribute *operations =
        pretend_backend_find(graph, ATTR_GRAPH_OPS);
    if (!operations || operations->count == 0)
        return DNN_BAD_PARAM;
    return put_int64(graph, ATTR_GRAPH_ENGINE_COUNT, 1);
}

static int finish_plan(backend *plan)
{
    static int told;
    int status;
    if (!pretend_backend_child(plan, ATTR_PLAN_ENGINE_CONFIG))
        return DNN_BAD_PARAM;
    status = put_int64(plan, ATTR_PLAN_WORKSPACE_SIZE, 0);
    if (status == DNN_SUCCESS)
        status = put_text(plan, ATTR_PLAN_JSON, "{}");
    pretend_unknown("a plan of cuDNN for its workspace", &told);
    return status;
}

static int finish_tensor(const backend *tensor)
{
    const struct pretend_backend_attribute *dims =
        pretend_backend_find(tensor, ATTR_TENSOR_DIMENSIONS);
    const struct pretend_backend_attribute *strides =
        pretend_backend_find(tensor, ATTR_TENSOR_STRIDES);
    return dims && strides && dims->count == strides->count &&
                   pretend_backend_find(tensor, ATTR_TENSOR_DATA_TYPE) &&
                   pretend_backend_find(tensor, ATTR_TENSOR_UNIQUE_ID)
               ? DNN_SUCCESS
               : DNN_BAD_PARAM;
}

int pretend_backend_finish(backend *of)
{
    switch (of->type) {
    case BACKEND_ENGINE:
        return finish_engine(of);
    case BACKEND_ENGINECFG:
        return finish_config(of);
    case BACKEND_ENGINEHEUR:
        return finish_heuristics(of);
    case BACKEND_EXECUTION_PLAN:
        return finish_plan(of);
    case BACKEND_OPERATIONGRAPH:
        return finish_graph(of);
    case BACKEND_TENSOR:
        return finish_tensor(of);
    default:
        return DNN_SUCCESS;
    }
}
