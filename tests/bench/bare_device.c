/* SPDX-License-Identifier: MIT */
/* The least that ggml takes for devices: what an engine's own plan costs, with nothing of ours
 * beside it. BARE_DEVICES says how many there are, BARE_BYTES how large each is. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pretend/ggml/abi.h"

#define DEVICES_MAX 16

struct bare {
    char name[16];
    struct ggml_device device;
    struct ggml_buffer_type type;
};

__attribute__((visibility("default"))) struct ggml_registry *ggml_backend_init(void);

static struct bare devices[DEVICES_MAX];
static struct ggml_buffer_type host_type;
static struct ggml_registry registry;
static size_t n_devices;
static size_t device_bytes;
static struct ggml_buffer *(*buffer_init)(struct ggml_buffer_type *, struct ggml_buffer_functions,
                                          void *, size_t);

static void free_nothing(struct ggml_buffer *buffer)
{
    (void)buffer;
}

static void *nowhere(struct ggml_buffer *buffer)
{
    (void)buffer;
    return (void *)(UINTPTR_MAX / 2 + 1);
}

static void set_nothing(struct ggml_buffer *buffer, struct ggml_tensor *tensor, const void *data,
                        size_t offset, size_t size)
{
    (void)buffer, (void)tensor, (void)data, (void)offset, (void)size;
}

static void get_zeros(struct ggml_buffer *buffer, const struct ggml_tensor *tensor, void *data,
                      size_t offset, size_t size)
{
    (void)buffer, (void)tensor, (void)offset;
    memset(data, 0, size);
}

static void clear_nothing(struct ggml_buffer *buffer, uint8_t value)
{
    (void)buffer, (void)value;
}

static struct ggml_buffer *alloc_nothing(struct ggml_buffer_type *type, size_t size)
{
    static const struct ggml_buffer_functions functions = {.free_buffer = free_nothing,
                                                           .get_base = nowhere,
                                                           .set_tensor = set_nothing,
                                                           .get_tensor = get_zeros,
                                                           .clear = clear_nothing};
    return buffer_init(type, functions, NULL, size);
}

static void free_host(struct ggml_buffer *buffer)
{
    free(buffer->context);
}

static void *host_base(struct ggml_buffer *buffer)
{
    return (void *)(((uintptr_t)buffer->context + 63) & ~(uintptr_t)63);
}

static void set_host(struct ggml_buffer *buffer, struct ggml_tensor *tensor, const void *data,
                     size_t offset, size_t size)
{
    (void)buffer;
    memcpy((char *)tensor->data + offset, data, size);
}

static void get_host(struct ggml_buffer *buffer, const struct ggml_tensor *tensor, void *data,
                     size_t offset, size_t size)
{
    (void)buffer;
    memcpy(data, (const char *)tensor->data + offset, size);
}

static struct ggml_buffer *alloc_host(struct ggml_buffer_type *type, size_t size)
{
    static const struct ggml_buffer_functions functions = {.free_buffer = free_host,
                                                           .get_base = host_base,
                                                           .set_tensor = set_host,
                                                           .get_tensor = get_host,
                                                           .clear = clear_nothing};
    void *memory = calloc(1, size + 64);
    return memory ? buffer_init(type, functions, memory, size) : NULL;
}

static const char *type_name(struct ggml_buffer_type *type)
{
    return type == &host_type ? "CUDA_Host" : devices[0].name;
}

static size_t alignment(struct ggml_buffer_type *type)
{
    (void)type;
    return 128;
}

static bool is_host(struct ggml_buffer_type *type)
{
    return type == &host_type;
}

static const char *backend_name(struct ggml_backend *backend)
{
    return ((struct bare *)backend->context)->name;
}

static void free_backend(struct ggml_backend *backend)
{
    free(backend);
}

static void get_async(struct ggml_backend *backend, const struct ggml_tensor *tensor, void *data,
                      size_t offset, size_t size)
{
    (void)backend, (void)tensor, (void)offset;
    memset(data, 0, size);
}

static void set_async(struct ggml_backend *backend, struct ggml_tensor *tensor, const void *data,
                      size_t offset, size_t size)
{
    (void)backend, (void)tensor, (void)data, (void)offset, (void)size;
}

static void synchronize(struct ggml_backend *backend)
{
    (void)backend;
}

static int compute_nothing(struct ggml_backend *backend, struct ggml_graph *graph)
{
    (void)backend, (void)graph;
    return GGML_STATUS_DONE;
}

static void take_event(struct ggml_backend *backend, struct ggml_event *event)
{
    (void)backend, (void)event;
}

static struct ggml_backend *init_backend(struct ggml_device *device, const char *parameters)
{
    static uint8_t guid[16] = "bare";
    struct ggml_backend *backend = calloc(1, sizeof *backend);
    (void)parameters;
    if (!backend)
        return NULL;
    *backend = (struct ggml_backend){.guid = &guid, .device = device, .context = device->context};
    backend->iface = (struct ggml_backend_functions){.get_name = backend_name,
                                                     .free = free_backend,
                                                     .set_tensor_async = set_async,
                                                     .get_tensor_async = get_async,
                                                     .synchronize = synchronize,
                                                     .graph_compute = compute_nothing,
                                                     .event_record = take_event,
                                                     .event_wait = take_event};
    return backend;
}

static const char *device_name(struct ggml_device *device)
{
    return ((struct bare *)device->context)->name;
}

static void memory_of(struct ggml_device *device, size_t *free_bytes, size_t *total_bytes)
{
    (void)device;
    *free_bytes = *total_bytes = device_bytes;
}

static int kind_of(struct ggml_device *device)
{
    (void)device;
    return GGML_DEVICE_GPU;
}

static void properties_of(struct ggml_device *device, struct ggml_properties *properties)
{
    size_t caps = offsetof(struct ggml_properties, caps);
    struct ggml_properties made = {.name = device_name(device),
                                   .description = "bare",
                                   .memory_free = device_bytes,
                                   .memory_total = device_bytes,
                                   .type = GGML_DEVICE_GPU};
    memcpy(properties, &made, caps);
    properties->caps = (struct ggml_capabilities){
        .async = true, .host_buffer = true, .events = true, .mmap_support = true};
}

static struct ggml_buffer_type *device_type(struct ggml_device *device)
{
    return &((struct bare *)device->context)->type;
}

static struct ggml_buffer_type *host_type_of(struct ggml_device *device)
{
    (void)device;
    return &host_type;
}

static bool takes(struct ggml_device *device, const struct ggml_tensor *op)
{
    (void)device, (void)op;
    return true;
}

static bool takes_type(struct ggml_device *device, struct ggml_buffer_type *type)
{
    return type == device_type(device);
}

static bool takes_over(struct ggml_device *device, const struct ggml_tensor *op)
{
    (void)device, (void)op;
    return false;
}

static struct ggml_event *new_event(struct ggml_device *device)
{
    struct ggml_event *event = calloc(1, sizeof *event);
    if (event)
        event->device = device;
    return event;
}

static void free_event(struct ggml_device *device, struct ggml_event *event)
{
    (void)device;
    free(event);
}

static void wait_for(struct ggml_device *device, struct ggml_event *event)
{
    (void)device, (void)event;
}

static const char *registry_name(struct ggml_registry *of)
{
    (void)of;
    return "CUDA";
}

static size_t count(struct ggml_registry *of)
{
    (void)of;
    return n_devices;
}

static struct ggml_device *device_at(struct ggml_registry *of, size_t index)
{
    (void)of;
    return &devices[index].device;
}

static void *no_address(struct ggml_registry *of, const char *name)
{
    (void)of, (void)name;
    return NULL;
}

static void find(void *slot, const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(slot, &found, sizeof found);
}

static void make_type(struct ggml_buffer_type *type, struct ggml_device *device,
                      ggml_type_alloc_fn *alloc)
{
    if (registry.api_version >= 3) {
        type->v3.iface = (struct ggml_type_functions_3){.get_name = type_name,
                                                        .alloc_buffer = alloc,
                                                        .get_alignment = alignment,
                                                        .is_host = is_host};
        type->v3.device = device;
        return;
    }
    type->v2.iface = (struct ggml_type_functions_2){.get_name = type_name,
                                                    .alloc_buffer = alloc,
                                                    .get_alignment = alignment,
                                                    .is_host = is_host};
    type->v2.device = device;
}

static void make_device(struct bare *bare, size_t number)
{
    snprintf(bare->name, sizeof bare->name, "CUDA%u", (unsigned)(number % DEVICES_MAX));
    bare->device = (struct ggml_device){.registry = &registry, .context = bare};
    bare->device.iface = (struct ggml_device_functions){.get_name = device_name,
                                                        .get_description = device_name,
                                                        .get_memory = memory_of,
                                                        .get_type = kind_of,
                                                        .get_props = properties_of,
                                                        .init_backend = init_backend,
                                                        .get_buffer_type = device_type,
                                                        .get_host_buffer_type = host_type_of,
                                                        .supports_op = takes,
                                                        .supports_buft = takes_type,
                                                        .offload_op = takes_over,
                                                        .event_new = new_event,
                                                        .event_free = free_event,
                                                        .event_synchronize = wait_for};
    make_type(&bare->type, &bare->device, alloc_nothing);
}

/* The processor's registry tells which version of the interface this ggml has. */
struct ggml_registry *ggml_backend_init(void)
{
    const struct ggml_registry *(*registry_by_name)(const char *) = NULL;
    find(&registry_by_name, "ggml_backend_reg_by_name");
    find(&buffer_init, "ggml_backend_buffer_init");
    const struct ggml_registry *cpu = registry_by_name ? registry_by_name("CPU") : NULL;
    if (!cpu || !buffer_init)
        return NULL;
    const char *n = getenv("BARE_DEVICES");
    const char *bytes = getenv("BARE_BYTES");
    n_devices = n ? strtoul(n, NULL, 10) : 1;
    if (n_devices > DEVICES_MAX)
        n_devices = DEVICES_MAX;
    device_bytes = bytes ? strtoull(bytes, NULL, 10) : (size_t)24 << 30;
    registry.api_version = cpu->api_version;
    registry.iface.get_name = registry_name;
    registry.iface.get_device_count = count;
    registry.iface.get_device = device_at;
    registry.iface.get_proc_address = no_address;
    for (size_t i = 0; i < n_devices; i++)
        make_device(&devices[i], i);
    make_type(&host_type, &devices[0].device, alloc_host);
    return &registry;
}
