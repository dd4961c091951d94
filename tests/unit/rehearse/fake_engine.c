/* SPDX-License-Identifier: MIT */
/* The engine that is none. */
#include "fake_engine.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "fake_ggml.h"

#define REGISTRIES_MAX 4

static const int cpu_device = 0, card_device = 1, several_devices = 4;

static struct fake_engine engine = {
    .type = {[FAKE_CPU] = {"CPU", 11, 1, &cpu_device},
             [FAKE_CPU_OLD] = {"CPU", 9, 1, NULL},
             [FAKE_CPU_REPACK] = {"CPU_REPACK", 11, 0, &cpu_device},
             [FAKE_ELSEWHERE] = {"SYCL0", 11, 0, &card_device}},
    .model_bytes = 3 << 20,
    .context_bytes = 2 << 20,
    .backend = &several_devices,
};

struct fake_engine *fake_engine(void)
{
    return &engine;
}

/* ---- types and buffers ---- */

static const struct host_type *type_of(const void *type)
{
    const struct host_type *first = engine.type;
    return (const struct host_type *)type >= first &&
                   (const struct host_type *)type < first + FAKE_TYPES
               ? type
               : NULL;
}

const char *ggml_backend_buft_name(void *type)
{
    struct ggml_buffer_type *pretended = type;
    return type_of(type) ? type_of(type)->name : pretended->v3.iface.get_name(pretended);
}

_Bool ggml_backend_buft_is_host(void *type)
{
    return type_of(type)->is_host;
}

void *ggml_backend_buft_get_device(void *type)
{
    return (void *)(uintptr_t)type_of(type)->device;
}

int ggml_backend_dev_type(void *device)
{
    return *(const int *)device;
}

void *ggml_backend_get_device(void *backend)
{
    return backend;
}

static void free_words(void **buffer)
{
    const struct host_type *type = buffer[9] && type_of(buffer[9]) ? buffer[9] : buffer[11];
    free(buffer[type->functions + 1]);
    free(buffer);
}

/* Functions, the type, the memory, the size. */
static void **make_words(struct host_type *type, size_t size)
{
    void (*release)(void **) = free_words;
    void **buffer = calloc((size_t)type->functions + 4, sizeof *buffer);
    void *memory = malloc(size);
    if (!buffer || !memory)
        abort();
    memcpy(buffer, &release, sizeof *buffer);
    buffer[type->functions] = type;
    buffer[type->functions + 1] = memory;
    buffer[type->functions + 2] = (void *)size;
    return buffer;
}

void *ggml_backend_buft_alloc_buffer(void *type, size_t size)
{
    struct ggml_buffer_type *pretended = type;
    return type_of(type) ? (void *)make_words(type, size)
                         : (void *)pretended->v3.iface.alloc_buffer(pretended, size);
}

static size_t functions_of(void **buffer)
{
    return buffer[9] && type_of(buffer[9]) ? 9 : 11;
}

void *ggml_backend_buffer_get_base(void *buffer)
{
    return ((void **)buffer)[functions_of(buffer) + 1];
}

size_t ggml_backend_buffer_get_size(void *buffer)
{
    return (size_t)((void **)buffer)[functions_of(buffer) + 2];
}

void *ggml_backend_buffer_get_type(void *buffer)
{
    return ((void **)buffer)[functions_of(buffer)];
}

_Bool ggml_backend_buffer_is_host(void *buffer)
{
    return type_of(ggml_backend_buffer_get_type(buffer))->is_host;
}

void ggml_backend_buffer_set_usage(void *buffer, int usage)
{
    (void)buffer, (void)usage;
}

void ggml_backend_buffer_free(void *buffer)
{
    void (*release)(void **);
    memcpy(&release, buffer, sizeof release);
    release(buffer);
}

void *ggml_backend_dev_buffer_from_host_ptr(void *device, void *address, size_t size, size_t most)
{
    (void)device, (void)address, (void)most;
    void **buffer = make_words(&engine.type[FAKE_CPU], 64);
    buffer[engine.type[FAKE_CPU].functions + 2] = (void *)size;
    return buffer;
}

/* ---- tensors ---- */

void *ggml_get_first_tensor(const void *context)
{
    return ((const struct fake_tensors *)context)->first;
}

void *ggml_get_next_tensor(const void *context, void *tensor)
{
    (void)context;
    return ((struct fake_tensor *)tensor)->next;
}

const char *ggml_get_name(const void *tensor)
{
    return ((const struct fake_tensor *)tensor)->name;
}

void *ggml_get_data(const void *tensor)
{
    return ((const struct fake_tensor *)tensor)->data;
}

size_t ggml_nbytes(const void *tensor)
{
    return ((const struct fake_tensor *)tensor)->bytes;
}

size_t ggml_backend_alloc_ctx_tensors_from_buft_size(void *context, void *type)
{
    size_t bytes = 0;
    (void)type;
    for (const struct fake_tensor *t = ((struct fake_tensors *)context)->first; t; t = t->next)
        bytes += t->bytes;
    return bytes;
}

void *ggml_backend_alloc_ctx_tensors_from_buft(void *context, void *type)
{
    size_t bytes = 0;
    for (const struct fake_tensor *t = ((struct fake_tensors *)context)->first; t; t = t->next)
        bytes += t->bytes;
    return ggml_backend_buft_alloc_buffer(type, bytes);
}

/* ---- schedulers and graphs ---- */

struct scheduler {
    int n;
    void *const *types;
};

void *ggml_backend_sched_new(void *backends, void *types, int n_backends, size_t graph_size,
                             int is_parallel, int is_offloading)
{
    struct scheduler *made = malloc(sizeof *made);
    (void)backends, (void)graph_size, (void)is_parallel, (void)is_offloading;
    *made = (struct scheduler){n_backends, types};
    return made;
}

void ggml_backend_sched_free(void *scheduler)
{
    free(scheduler);
}

_Bool ggml_backend_sched_reserve(void *scheduler, void *graph)
{
    struct scheduler *s = scheduler;
    (void)graph;
    void *buffer = ggml_backend_buft_alloc_buffer(s->types[0], engine.plan_bytes);
    if (buffer)
        ggml_backend_buffer_free(buffer);
    return buffer != NULL;
}

void ggml_backend_sched_reset(void *scheduler)
{
    (void)scheduler;
    engine.resets++;
}

/* Forgets the placements between the building of the graph and its planning. */
void ggml_backend_sched_reserve_size(void *scheduler, void *graph, size_t *sizes)
{
    (void)graph;
    ggml_backend_sched_reset(scheduler);
    for (int i = 0; i < ((struct scheduler *)scheduler)->n; i++)
        sizes[i] = engine.plan_bytes;
}

int ggml_backend_sched_get_n_backends(void *scheduler)
{
    return ((struct scheduler *)scheduler)->n;
}

void *ggml_backend_sched_get_backend(void *scheduler, int index)
{
    return (void *)(uintptr_t) & ((struct scheduler *)scheduler)->types[index];
}

void *ggml_backend_sched_get_buffer_type(void *scheduler, void *backend)
{
    (void)scheduler;
    return *(void **)backend;
}

int ggml_graph_n_nodes(void *graph)
{
    return ((struct fake_graph *)graph)->n;
}

void *ggml_graph_node(void *graph, int index)
{
    return &((struct fake_graph *)graph)->node[index];
}

int ggml_backend_graph_compute(void *backend, void *graph)
{
    (void)backend, (void)graph;
    engine.computed++;
    return -1;
}

int ggml_graph_compute(void *graph, void *plan)
{
    return ggml_backend_graph_compute(graph, plan);
}

_Bool ggml_validate_row_data(int type, const void *data, size_t size)
{
    (void)type, (void)data, (void)size;
    return 0;
}

/* ---- registries ---- */

static const char *registry_name(struct ggml_registry *registry)
{
    return registry->context;
}

static size_t one_device(struct ggml_registry *registry)
{
    (void)registry;
    return 1;
}

static struct ggml_registry registries[] = {
    {.api_version = 3,
     .iface = {registry_name, one_device, NULL, NULL},
     .context = (void *)(uintptr_t) "CPU"},
    {.api_version = 3,
     .iface = {registry_name, one_device, NULL, NULL},
     .context = (void *)(uintptr_t) "Vulkan"},
    {.api_version = 3,
     .iface = {registry_name, one_device, NULL, NULL},
     .context = (void *)(uintptr_t) "RPC[host:1]"},
};
static struct ggml_registry *listed[REGISTRIES_MAX] = {&registries[0], &registries[1],
                                                       &registries[2]};
static size_t n_listed = 3;

void *ggml_backend_load(const char *path)
{
    struct ggml_registry *registry = fake_ggml()->load(path);
    if (registry && n_listed < REGISTRIES_MAX)
        listed[n_listed++] = registry;
    return registry;
}

size_t ggml_backend_reg_count(void)
{
    return n_listed;
}

void *ggml_backend_reg_get(size_t index)
{
    return listed[index];
}

const char *ggml_backend_reg_name(void *registry)
{
    struct ggml_registry *r = registry;
    return r->iface.get_name(r);
}

void *ggml_backend_reg_by_name(const char *name)
{
    for (size_t i = 0; i < n_listed; i++)
        if (strcasecmp(ggml_backend_reg_name(listed[i]), name) == 0)
            return listed[i];
    return NULL;
}

size_t ggml_backend_reg_dev_count(void *registry)
{
    struct ggml_registry *r = registry;
    return r->iface.get_device_count(r);
}

/* Asked for devices it counts those that it shows. */
size_t ggml_backend_dev_count(void)
{
    size_t n = 0;
    for (size_t i = 0; i < n_listed; i++)
        n += ggml_backend_reg_dev_count(listed[i]);
    return n;
}

static void *add_server(const char *endpoint)
{
    (void)endpoint;
    return &registries[2];
}

void *ggml_backend_reg_get_proc_address(void *registry, const char *name)
{
    void *(*add)(const char *) = add_server;
    void *found;
    (void)registry, (void)name;
    memcpy(&found, &add, sizeof found);
    return found;
}

/* ---- models and contexts ---- */

void *gguf_init_from_file(const char *path, struct gguf_parameters parameters)
{
    static int file;
    (void)path, (void)parameters;
    return &file;
}

size_t gguf_get_data_offset(const void *gguf)
{
    (void)gguf;
    return FAKE_DATA_OFFSET;
}

int _Z18llama_build_numberv(void)
{
    return FAKE_BUILD;
}

/* As weights for a layout of the processor's own are loaded: each tensor is read into a block, if
 * its buffer is not one to read into. */
static void read_weights(struct fake_model *model, const char *path, size_t size)
{
    int fd = open(path, O_RDONLY);
    model->is_read_in_place = ggml_backend_buffer_is_host(model->buffer);
    if (lseek(fd, FAKE_DATA_OFFSET, SEEK_SET) < 0 ||
        read(fd, ggml_backend_buffer_get_base(model->buffer), size) != (ssize_t)size)
        abort();
    close(fd);
}

void *llama_model_load_from_file(const char *path, struct by_value parameters)
{
    struct fake_tensor weight = {"blk.0.attn_q.weight", engine.model_bytes, NULL, NULL};
    struct fake_tensors tensors = {&weight};
    struct fake_model *model = calloc(1, sizeof *model);
    (void)parameters;
    gguf_init_from_file(path, (struct gguf_parameters){0});
    model->buffer =
        ggml_backend_alloc_ctx_tensors_from_buft(&tensors, &engine.type[FAKE_CPU_REPACK]);
    if (!model->buffer) {
        free(model);
        return NULL;
    }
    read_weights(model, path, engine.model_bytes);
    return model;
}

void *llama_init_from_model(void *model, struct by_value parameters)
{
    struct fake_tensor cache = {"cache_k_l0", engine.context_bytes, NULL, NULL};
    struct fake_tensors tensors = {&cache};
    (void)model, (void)parameters;
    return ggml_backend_alloc_ctx_tensors_from_buft(&tensors, &engine.type[FAKE_CPU]);
}

int32_t llama_decode(void *context, struct by_value batch)
{
    (void)context, (void)batch;
    void *outputs = ggml_backend_buft_alloc_buffer(&engine.type[FAKE_CPU], 1 << 20);
    if (!outputs)
        return -2;
    ggml_backend_buffer_free(outputs);
    return 0;
}

void llama_free(void *context)
{
    ggml_backend_buffer_free(context);
}

size_t llama_state_get_size(void *context)
{
    (void)context;
    return engine.context_bytes + 16;
}

_Bool llama_vocab_is_eog(const void *vocabulary, int32_t token)
{
    (void)vocabulary, (void)token;
    return 1;
}
