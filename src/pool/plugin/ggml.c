/* SPDX-License-Identifier: MIT */
/* The pool of host memory as a buffer type of ggml. A program gets it from here, or has ggml load
 * this library (GGML_BACKEND_PATH): then a device that computes nothing stands beside the
 * processor, and its buffer type has the name by which llama.cpp's --override-tensor asks for it.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "pool/plugin/host.h"
#include "pool/plugin/plugin.h"
#include "pretend/ggml/abi.h"

#define EXPORT    __attribute__((visibility("default")))
#define NAME      "memtally-pool"
#define ALIGNMENT 512u

enum { DEVICE_CPU = 0 };

EXPORT struct ggml_registry *ggml_backend_init(void);

static struct {
    struct ggml_buffer *(*buffer_init)(struct ggml_buffer_type *, struct ggml_buffer_functions,
                                       void *, size_t);
    struct ggml_registry *(*registry_by_name)(const char *);
} ggml;

static struct ggml_registry registry;
static struct ggml_device device;
static struct ggml_buffer_type type;

static void free_buffer(struct ggml_buffer *buffer)
{
    mt_pool_host_give(buffer->context);
}

static void *base_of(struct ggml_buffer *buffer)
{
    return buffer->context;
}

static void fill_tensor(struct ggml_buffer *buffer, struct ggml_tensor *tensor, uint8_t value,
                        size_t offset, size_t size)
{
    (void)buffer;
    memset((char *)tensor->data + offset, value, size);
}

static void set_tensor(struct ggml_buffer *buffer, struct ggml_tensor *tensor, const void *data,
                       size_t offset, size_t size)
{
    (void)buffer;
    memcpy((char *)tensor->data + offset, data, size);
}

static void get_tensor(struct ggml_buffer *buffer, const struct ggml_tensor *tensor, void *data,
                       size_t offset, size_t size)
{
    (void)buffer;
    memcpy(data, (const char *)tensor->data + offset, size);
}

static void clear(struct ggml_buffer *buffer, uint8_t value)
{
    memset(buffer->context, value, buffer->size);
}

static struct ggml_buffer *alloc_buffer(struct ggml_buffer_type *of, size_t size)
{
    static const struct ggml_buffer_functions functions = {.free_buffer = free_buffer,
                                                           .get_base = base_of,
                                                           .memset_tensor = fill_tensor,
                                                           .set_tensor = set_tensor,
                                                           .get_tensor = get_tensor,
                                                           .clear = clear};
    void *memory = mt_pool_host_take(size);
    struct ggml_buffer *buffer = memory ? ggml.buffer_init(of, functions, memory, size) : NULL;
    if (memory && !buffer)
        mt_pool_host_give(memory);
    return buffer;
}

static const char *type_name(struct ggml_buffer_type *of)
{
    (void)of;
    return NAME;
}

static size_t alignment_of(struct ggml_buffer_type *of)
{
    (void)of;
    return ALIGNMENT;
}

static bool is_host(struct ggml_buffer_type *of)
{
    (void)of;
    return true;
}

static const char *device_name(struct ggml_device *of)
{
    (void)of;
    return NAME;
}

static void memory_of(struct ggml_device *of, size_t *free_bytes, size_t *total_bytes)
{
    (void)of;
    *free_bytes = *total_bytes = 0; /* the processor's device says what the host has */
}

static int kind_of(struct ggml_device *of)
{
    (void)of;
    return DEVICE_CPU;
}

static void properties_of(struct ggml_device *of, struct ggml_properties *properties)
{
    (void)of;
    *properties = (struct ggml_properties){
        .name = NAME, .description = "a pool of the host's memory", .type = DEVICE_CPU};
}

static struct ggml_backend *no_backend(struct ggml_device *of, const char *parameters)
{
    (void)of;
    (void)parameters;
    return NULL;
}

static struct ggml_buffer_type *type_of(struct ggml_device *of)
{
    (void)of;
    return &type;
}

static bool takes_no_operation(struct ggml_device *of, const struct ggml_tensor *op)
{
    (void)of;
    (void)op;
    return false;
}

static bool takes_its_type(struct ggml_device *of, struct ggml_buffer_type *asked)
{
    (void)of;
    return asked == &type;
}

static const char *registry_name(struct ggml_registry *of)
{
    (void)of;
    return NAME;
}

static size_t count(struct ggml_registry *of)
{
    (void)of;
    return 1;
}

static struct ggml_device *device_at(struct ggml_registry *of, size_t index)
{
    (void)of;
    return index ? NULL : &device;
}

static void *no_address(struct ggml_registry *of, const char *name)
{
    (void)of;
    (void)name;
    return NULL;
}

static void find(void *slot, const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(slot, &found, sizeof found);
}

/* The layout of a buffer type is of ggml's version. The type has no device: what lies in it is the
 * processor's, as with ggml's own. */
static void fill_type(int version)
{
    if (version >= 3)
        type.v3.iface = (struct ggml_type_functions_3){.get_name = type_name,
                                                       .alloc_buffer = alloc_buffer,
                                                       .get_alignment = alignment_of,
                                                       .is_host = is_host};
    else
        type.v2.iface = (struct ggml_type_functions_2){.get_name = type_name,
                                                       .alloc_buffer = alloc_buffer,
                                                       .get_alignment = alignment_of,
                                                       .is_host = is_host};
}

/* 1 where the process has a ggml of a version that we know. */
static int find_ggml(void)
{
    find(&ggml.buffer_init, "ggml_backend_buffer_init");
    find(&ggml.registry_by_name, "ggml_backend_reg_by_name");
    const struct ggml_registry *cpu =
        ggml.buffer_init && ggml.registry_by_name ? ggml.registry_by_name("CPU") : NULL;
    if (!cpu || cpu->api_version < GGML_API_OLDEST || cpu->api_version > GGML_API_NEWEST)
        return 0;
    registry.api_version = cpu->api_version;
    fill_type(cpu->api_version);
    return 1;
}

struct ggml_buffer_type *memtally_pool_ggml_buffer_type(void)
{
    return find_ggml() ? &type : NULL;
}

struct ggml_registry *ggml_backend_init(void)
{
    if (!find_ggml())
        return NULL;
    registry.iface.get_name = registry_name;
    registry.iface.get_device_count = count;
    registry.iface.get_device = device_at;
    registry.iface.get_proc_address = no_address;
    device = (struct ggml_device){
        .registry = &registry,
        .iface = {.get_name = device_name,
                  .get_description = device_name,
                  .get_memory = memory_of,
                  .get_type = kind_of,
                  .get_props = properties_of,
                  .init_backend = no_backend,
                  .get_buffer_type = type_of,
                  .supports_op = takes_no_operation,
                  .supports_buft = takes_its_type},
    };
    return &registry;
}
