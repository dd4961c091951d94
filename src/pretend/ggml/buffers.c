/* SPDX-License-Identifier: MIT */
/* Buffers on a pretended device: addresses without memory, counted against its capacity. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/row_padding.h"
#include "purpose.h"
#include "rehearse/account_note.h"
#include "rehearse/account_write.h"
#include "world.h"

/* Above every address that a process can have, so that a range is nobody's memory and whoever
 * reads through it is stopped. Ranges are never given out twice. */
#define FIRST_ADDRESS   (UINT64_C(1) << 57)
#define LAST_ADDRESS    (UINT64_C(1) << 63)
#define ADDRESS_GRANULE (UINT64_C(1) << 21)

struct device_buffer {
    struct pretend_device *device;
    uintptr_t base;
    uint64_t bytes;
};

static uint64_t next_address = FIRST_ADDRESS;

uintptr_t pretend_addresses(uint64_t bytes)
{
    if (bytes > LAST_ADDRESS - FIRST_ADDRESS)
        return 0;
    uint64_t length = (bytes + 2 * ADDRESS_GRANULE - 1) / ADDRESS_GRANULE * ADDRESS_GRANULE;
    uint64_t at = __atomic_fetch_add(&next_address, length, __ATOMIC_RELAXED);
    return at > LAST_ADDRESS - length ? 0 : (uintptr_t)at;
}

static void free_buffer(struct ggml_buffer *buffer)
{
    struct device_buffer *own = buffer->context;
    pretend_give_back(own->device->number, own->bytes);
    pretend_note_free(own->device->number, buffer, own->bytes);
    free(own);
}

static void *get_base(struct ggml_buffer *buffer)
{
    return (void *)((struct device_buffer *)buffer->context)->base;
}

static void memset_tensor(struct ggml_buffer *buffer, struct ggml_tensor *tensor, uint8_t value,
                          size_t offset, size_t size)
{
    (void)buffer, (void)tensor, (void)value, (void)offset, (void)size;
}

void pretend_set_tensor(struct ggml_buffer *buffer, struct ggml_tensor *tensor, const void *data,
                        size_t offset, size_t size)
{
    (void)buffer, (void)tensor, (void)data, (void)offset, (void)size;
}

void pretend_get_tensor(struct ggml_buffer *buffer, const struct ggml_tensor *tensor, void *data,
                        size_t offset, size_t size)
{
    (void)buffer, (void)tensor, (void)offset;
    memset(data, 0, size);
}

static void set_tensor_2d(struct ggml_buffer *buffer, struct ggml_tensor *tensor, const void *data,
                          size_t offset, size_t size, size_t n_copies, size_t stride_tensor,
                          size_t stride_data)
{
    (void)buffer, (void)tensor, (void)data, (void)offset;
    (void)size, (void)n_copies, (void)stride_tensor, (void)stride_data;
}

static void get_tensor_2d(struct ggml_buffer *buffer, const struct ggml_tensor *tensor, void *data,
                          size_t offset, size_t size, size_t n_copies, size_t stride_tensor,
                          size_t stride_data)
{
    (void)buffer, (void)tensor, (void)offset, (void)stride_tensor;
    for (size_t i = 0; i < n_copies; i++)
        memset((char *)data + i * stride_data, 0, size);
}

/* Between two pretended buffers nothing need be done; from others ggml reads and sets. */
static bool cpy_tensor(struct ggml_buffer *buffer, const struct ggml_tensor *from,
                       struct ggml_tensor *to)
{
    const struct device_buffer *own = buffer->context;
    (void)to;
    const struct pretend_buffer_type *type =
        from->buffer ? pretend_own_type(own->device->world, from->buffer->type) : NULL;
    return type && type->memory == PRETEND_ON_DEVICE;
}

static void clear(struct ggml_buffer *buffer, uint8_t value)
{
    (void)buffer, (void)value;
}

static const struct ggml_buffer_functions buffer_functions = {
    .free_buffer = free_buffer,
    .get_base = get_base,
    .memset_tensor = memset_tensor,
    .set_tensor = pretend_set_tensor,
    .get_tensor = pretend_get_tensor,
    .set_tensor_2d = set_tensor_2d,
    .get_tensor_2d = get_tensor_2d,
    .cpy_tensor = cpy_tensor,
    .clear = clear,
};

static struct ggml_buffer *make_buffer(struct pretend_buffer_type *type, uintptr_t base,
                                       size_t size)
{
    struct device_buffer *own = malloc(sizeof *own);
    if (!own)
        return NULL;
    *own = (struct device_buffer){.device = type->device, .base = base, .bytes = size};
    struct ggml_buffer *buffer =
        type->world->ggml.buffer_init(&type->abi, buffer_functions, own, size);
    if (!buffer)
        free(own);
    return buffer;
}

static struct ggml_buffer *alloc_buffer(struct ggml_buffer_type *abi, size_t size)
{
    struct pretend_buffer_type *type = type_of(abi);
    uint32_t place = type->device->number;
    uint64_t free_bytes;
    const char *detail;
    enum mt_category category = current_purpose(&detail);
    if (!pretend_take(place, size, &free_bytes)) {
        pretend_note_refuse(place, category, size, free_bytes, type->name, detail);
        return NULL;
    }
    uintptr_t base = pretend_addresses(size);
    struct ggml_buffer *buffer = base ? make_buffer(type, base, size) : NULL;
    if (!buffer) {
        pretend_give_back(place, size);
        return NULL;
    }
    pretend_note_alloc(place, category, 0, buffer, size, type->name, detail);
    return buffer;
}

/* The device reads the host's memory where it lies: what is mapped is of the model's file. */
struct ggml_buffer *pretend_buffer_from_host(struct pretend_device *device, void *address,
                                             size_t size)
{
    uint64_t free_bytes;
    const char *detail;
    current_purpose(&detail);
    if (!pretend_take(device->number, size, &free_bytes)) {
        pretend_note_refuse(device->number, MT_CATEGORY_WEIGHTS, size, free_bytes,
                            device->type.name, detail);
        return NULL;
    }
    struct ggml_buffer *buffer = make_buffer(&device->type, (uintptr_t)address, size);
    if (!buffer) {
        pretend_give_back(device->number, size);
        return NULL;
    }
    char name[48];
    snprintf(name, sizeof name, "%s_Mapped", device->type.name);
    pretend_note_alloc(device->number, MT_CATEGORY_WEIGHTS, MT_ACCOUNT_MAPPED, buffer, size, name,
                       detail);
    return buffer;
}

static const char *get_name(struct ggml_buffer_type *type)
{
    return type_of(type)->name;
}

static size_t get_alignment(struct ggml_buffer_type *type)
{
    return rules_of(type_of(type)->world)->alignment;
}

static size_t get_max_size(struct ggml_buffer_type *type)
{
    uint64_t most = rules_of(type_of(type)->world)->buffer_bytes_max;
    return most ? most : SIZE_MAX;
}

static size_t get_alloc_size(struct ggml_buffer_type *type, const struct ggml_tensor *tensor)
{
    return pretend_alloc_bytes(type_of(type), tensor);
}

static bool is_not_host(struct ggml_buffer_type *type)
{
    (void)type;
    return false;
}

uint64_t pretend_alloc_bytes(const struct pretend_buffer_type *type,
                             const struct ggml_tensor *tensor)
{
    struct pretend_world *world = type->world;
    const struct mt_pretend_rules *rules = rules_of(world);
    struct pretend_ggml *ggml = &world->ggml;
    if (rules->flash_attention == MT_PRETEND_FLASH_METAL)
        return pretend_metal_bytes(world, tensor);
    uint64_t bytes = rules->flash_attention == MT_PRETEND_FLASH_F16_COPIES &&
                             pretend_op_of(ggml, tensor) == OP_FLASH_ATTN_EXT
                         ? pretend_flash_bytes(world, type->device, tensor)
                         : pretend_bytes(ggml, tensor);
    uint64_t more = mt_row_padding((uint64_t)tensor->ne[0], rules->row_padding);
    if (more && pretend_type_of(ggml, tensor->type).is_quantized)
        bytes += pretend_row_bytes(ggml, tensor->type, more);
    return bytes;
}

void pretend_fill_type(struct pretend_buffer_type *type, const struct ggml_type_functions_3 *made,
                       struct ggml_device *device)
{
    if (type->world->ggml.api_version >= 3) {
        type->abi.v3.iface = *made;
        type->abi.v3.device = device;
        return;
    }
    type->abi.v2.iface = (struct ggml_type_functions_2){made->get_name,       made->alloc_buffer,
                                                        made->get_alignment,  made->get_max_size,
                                                        made->get_alloc_size, made->is_host};
    type->abi.v2.device = device;
}

void pretend_make_device_type(struct pretend_buffer_type *type, struct pretend_device *device)
{
    static const struct ggml_type_functions_3 functions = {.get_name = get_name,
                                                           .alloc_buffer = alloc_buffer,
                                                           .get_alignment = get_alignment,
                                                           .get_max_size = get_max_size,
                                                           .get_alloc_size = get_alloc_size,
                                                           .is_host = is_not_host};
    type->world = device->world;
    type->device = device;
    type->memory = PRETEND_ON_DEVICE;
    snprintf(type->name, sizeof type->name, "%s",
             device->world->account->device[device->number].name);
    pretend_fill_type(type, &functions, &device->abi);
}

struct pretend_buffer_type *pretend_own_type(const struct pretend_world *world,
                                             const struct ggml_buffer_type *type)
{
    for (size_t i = 0; i < world->n_devices; i++)
        if (type == &world->device[i].type.abi)
            return (struct pretend_buffer_type *)&world->device[i].type;
    if (type == &world->pinned.abi)
        return (struct pretend_buffer_type *)&world->pinned;
    struct pretend_buffer_type *split = __atomic_load_n(&world->splits, __ATOMIC_ACQUIRE);
    while (split && type != &split->abi)
        split = split->next;
    return split;
}
