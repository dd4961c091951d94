/* SPDX-License-Identifier: MIT */
/* Stands behind what fusion.py takes of ggml-cuda, and is preloaded: backends that fuse operations
 * do to a graph what ggml-cuda itself does. With FUSION_LOG each graph adds a line to that file:
 * nodes, tensors that are kept. */
#include <dlfcn.h>

#include <cstdio>

namespace {

struct counted {
    const ggml_backend_graph_optimize_params *given;
    long n;
};

void count(void *user_data, ggml_tensor *tensor, ggml_tensor *until)
{
    counted *c = static_cast<counted *>(user_data);
    c->n++;
    c->given->add_alloc_dep(c->given->user_data, tensor, until);
}

void optimize(ggml_backend_t backend, ggml_cgraph *graph,
              ggml_backend_graph_optimize_params *given)
{
    counted c = {given, 0};
    ggml_backend_graph_optimize_params counting = *given;
    counting.user_data = &c;
    counting.add_alloc_dep = count;
    int n_nodes = graph->n_nodes;
    ggml_backend_cuda_graph_optimize(backend, graph, &counting);
    const char *path = getenv("FUSION_LOG");
    FILE *log = path ? fopen(path, "a") : nullptr;
    if (log) {
        fprintf(log, "%d %ld\n", n_nodes, c.n);
        fclose(log);
    }
}

} // namespace

extern "C" ggml_backend_t ggml_backend_dev_init(ggml_backend_dev_t device, const char *words)
{
    using function = ggml_backend_t (*)(ggml_backend_dev_t, const char *);
    function real = reinterpret_cast<function>(dlsym(RTLD_NEXT, "ggml_backend_dev_init"));
    ggml_backend_t backend = real ? real(device, words) : nullptr;
    if (backend && backend->iface.graph_optimize)
        backend->iface.graph_optimize = optimize;
    return backend;
}
