/* SPDX-License-Identifier: MIT */
/* Pinned host memory of a pretended device: address space, see host_memory.h. */
#include <stdio.h>
#include <string.h>

#include "host_memory.h"
#include "purpose.h"
#include "rehearse/account_note.h"
#include "rehearse/account_write.h"
#include "world.h"

static void free_buffer(struct ggml_buffer *buffer)
{
    pretend_give_back(MT_ACCOUNT_HOST, buffer->size);
    pretend_note_free(MT_ACCOUNT_HOST, buffer, buffer->size);
    host_memory_unmap(buffer->context, buffer->size);
}

static void *get_base(struct ggml_buffer *buffer)
{
    return buffer->context;
}

static void memset_tensor(struct ggml_buffer *buffer, struct ggml_tensor *tensor, uint8_t value,
                          size_t offset, size_t size)
{
    (void)buffer;
    if (value)
        memset((char *)tensor->data + offset, value, size);
    else
        host_memory_zero((char *)tensor->data + offset, size);
}

static void set_tensor(struct ggml_buffer *buffer, struct ggml_tensor *tensor, const void *data,
                       size_t offset, size_t size)
{
    (void)buffer;
    host_memory_copy((char *)tensor->data + offset, data, size);
}

static void get_tensor(struct ggml_buffer *buffer, const struct ggml_tensor *tensor, void *data,
                       size_t offset, size_t size)
{
    (void)buffer;
    memcpy(data, (const char *)tensor->data + offset, size);
}

static bool cpy_tensor(struct ggml_buffer *buffer, const struct ggml_tensor *from,
                       struct ggml_tensor *to)
{
    (void)buffer, (void)from, (void)to;
    return false; /* ggml copies by itself */
}

/* Pages that were never touched are zero as they are. */
static void clear(struct ggml_buffer *buffer, uint8_t value)
{
    if (value)
        memset(buffer->context, value, buffer->size);
    else
        host_memory_zero(buffer->context, buffer->size);
}

static struct ggml_buffer *alloc_buffer(struct ggml_buffer_type *abi, size_t size)
{
    static const struct ggml_buffer_functions functions = {.free_buffer = free_buffer,
                                                           .get_base = get_base,
                                                           .memset_tensor = memset_tensor,
                                                           .set_tensor = set_tensor,
                                                           .get_tensor = get_tensor,
                                                           .cpy_tensor = cpy_tensor,
                                                           .clear = clear};
    struct pretend_buffer_type *type = type_of(abi);
    uint64_t free_bytes;
    const char *detail;
    enum mt_category category = current_purpose(&detail);
    size += rules_of(type->world)->host_extra_bytes;
    if (!pretend_take(MT_ACCOUNT_HOST, size, &free_bytes)) {
        pretend_note_refuse(MT_ACCOUNT_HOST, category, size, free_bytes, type->name, detail);
        return NULL;
    }
    void *pages = host_memory_map(size);
    struct ggml_buffer *buffer =
        pages ? type->world->ggml.buffer_init(abi, functions, pages, size) : NULL;
    if (!buffer) {
        pretend_give_back(MT_ACCOUNT_HOST, size);
        if (pages)
            host_memory_unmap(pages, size);
        return NULL;
    }
    pretend_note_alloc(MT_ACCOUNT_HOST, category, MT_ACCOUNT_PINNED, buffer, size, type->name,
                       detail);
    return buffer;
}

static const char *get_name(struct ggml_buffer_type *type)
{
    return type_of(type)->name;
}

static size_t get_alignment(struct ggml_buffer_type *type)
{
    return rules_of(type_of(type)->world)->host_alignment;
}

static size_t get_max_size(struct ggml_buffer_type *type)
{
    uint64_t most = rules_of(type_of(type)->world)->buffer_bytes_max;
    return most ? most : SIZE_MAX;
}

static size_t get_alloc_size(struct ggml_buffer_type *type, const struct ggml_tensor *tensor)
{
    return pretend_bytes(&type_of(type)->world->ggml, tensor);
}

static bool is_host(struct ggml_buffer_type *type)
{
    (void)type;
    return true;
}

void pretend_make_pinned_type(struct pretend_buffer_type *type, struct pretend_world *world)
{
    static const struct ggml_type_functions_3 functions = {.get_name = get_name,
                                                           .alloc_buffer = alloc_buffer,
                                                           .get_alignment = get_alignment,
                                                           .get_max_size = get_max_size,
                                                           .get_alloc_size = get_alloc_size,
                                                           .is_host = is_host};
    type->world = world;
    type->memory = PRETEND_PINNED;
    snprintf(type->name, sizeof type->name, "%s", world->account->rules.host_buffer);
    pretend_fill_type(type, &functions, &world->device[0].abi);
}
