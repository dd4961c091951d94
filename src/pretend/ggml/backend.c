/* SPDX-License-Identifier: MIT */
/* The stream of a pretended device: everything is done at once, and nothing is. */
#include <stdlib.h>
#include <string.h>

#include "world.h"

static const char *get_name(struct ggml_backend *backend)
{
    return device_of(backend->device)->type.name;
}

static void free_backend(struct ggml_backend *backend)
{
    free(backend);
}

static void set_async(struct ggml_backend *backend, struct ggml_tensor *tensor, const void *data,
                      size_t offset, size_t size)
{
    (void)backend, (void)tensor, (void)data, (void)offset, (void)size;
}

static void get_async(struct ggml_backend *backend, const struct ggml_tensor *tensor, void *data,
                      size_t offset, size_t size)
{
    (void)backend, (void)tensor, (void)offset;
    memset(data, 0, size);
}

static void set_2d_async(struct ggml_backend *backend, struct ggml_tensor *tensor, const void *data,
                         size_t offset, size_t size, size_t n_copies, size_t stride_tensor,
                         size_t stride_data)
{
    (void)backend, (void)tensor, (void)data, (void)offset;
    (void)size, (void)n_copies, (void)stride_tensor, (void)stride_data;
}

static void get_2d_async(struct ggml_backend *backend, const struct ggml_tensor *tensor, void *data,
                         size_t offset, size_t size, size_t n_copies, size_t stride_tensor,
                         size_t stride_data)
{
    (void)backend, (void)tensor, (void)offset, (void)stride_tensor;
    for (size_t i = 0; i < n_copies; i++)
        memset((char *)data + i * stride_data, 0, size);
}

static int is_on_device(const struct pretend_world *world, const struct ggml_tensor *tensor)
{
    const struct ggml_buffer *buffer = tensor->view_src ? tensor->view_src->buffer : tensor->buffer;
    const struct pretend_buffer_type *type = buffer ? pretend_own_type(world, buffer->type) : NULL;
    return type && type->memory == PRETEND_ON_DEVICE;
}

static bool copy_async(struct ggml_backend *from_backend, struct ggml_backend *to_backend,
                       const struct ggml_tensor *from, struct ggml_tensor *to)
{
    if (from_backend->iface.free != free_backend || to_backend->iface.free != free_backend)
        return false;
    const struct pretend_world *world = device_of(to_backend->device)->world;
    return is_on_device(world, from) && is_on_device(world, to);
}

static void synchronize(struct ggml_backend *backend)
{
    (void)backend;
}

static int compute(struct ggml_backend *backend, struct ggml_graph *graph)
{
    (void)backend, (void)graph;
    return GGML_STATUS_DONE;
}

static void record_or_wait(struct ggml_backend *backend, struct ggml_event *event)
{
    (void)backend, (void)event;
}

/* The engine's own switch. */
static int is_fusion_off(void)
{
    const char *off = getenv("GGML_CUDA_DISABLE_FUSION");
    return off && atoi(off) != 0;
}

struct ggml_backend *pretend_backend_new(struct pretend_device *device)
{
    static uint8_t guid[16] = {'m', 'e', 'm', 't', 'a', 'l', 'l', 'y', 'p', 'r', 'e', 't', 'e'};
    const struct mt_pretend_rules *rules = rules_of(device->world);
    struct ggml_backend *backend = calloc(1, sizeof *backend);
    if (!backend)
        return NULL;
    backend->guid = &guid;
    backend->device = &device->abi;
    backend->iface = (struct ggml_backend_functions){
        .get_name = get_name,
        .free = free_backend,
        .graph_compute = compute,
    };
    if (rules->has_async) {
        backend->iface.set_tensor_async = set_async;
        backend->iface.get_tensor_async = get_async;
        backend->iface.set_tensor_2d_async = set_2d_async;
        backend->iface.get_tensor_2d_async = get_2d_async;
        backend->iface.cpy_tensor_async = copy_async;
        backend->iface.synchronize = synchronize;
    }
    if (rules->has_events) {
        backend->iface.event_record = record_or_wait;
        backend->iface.event_wait = record_or_wait;
    }
    uint32_t doubts = device->world->account->builds.doubts;
    if ((rules->graph_dependencies || doubts) && !is_fusion_off())
        backend->iface.graph_optimize = pretend_graph_optimize;
    return backend;
}

static struct ggml_event *event_new(struct ggml_device *device)
{
    struct ggml_event *event = calloc(1, sizeof *event);
    if (event)
        event->device = device;
    return event;
}

static void event_free(struct ggml_device *device, struct ggml_event *event)
{
    (void)device;
    free(event);
}

static void event_synchronize(struct ggml_device *device, struct ggml_event *event)
{
    (void)device, (void)event;
}

void pretend_fill_events(struct ggml_device_functions *functions)
{
    functions->event_new = event_new;
    functions->event_free = event_free;
    functions->event_synchronize = event_synchronize;
}
