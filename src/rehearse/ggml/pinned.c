/* SPDX-License-Identifier: MIT */
/* Pinned host memory of a pretended device: real memory, taken lazily and zeroed by the kernel. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rehearse/ggml/account_write.h"
#include "rehearse/ggml/world.h"

#define PAGE_BYTES 4096u

/* Mapped past the hooks of this object, which see what the program maps. */
static void *map_pages(size_t size)
{
    int saved = errno;
    long at = syscall(SYS_mmap, NULL, size, (long)PROT_READ | PROT_WRITE,
                      (long)MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1L, 0L);
    errno = saved;
    return at == -1 ? NULL : (void *)at;
}

static void free_buffer(struct ggml_buffer *buffer)
{
    pretend_give_back(MT_ACCOUNT_HOST, buffer->size);
    pretend_note_free(MT_ACCOUNT_HOST, buffer, buffer->size);
    syscall(SYS_munmap, buffer->context, buffer->size);
}

static void *get_base(struct ggml_buffer *buffer)
{
    return buffer->context;
}

static void memset_tensor(struct ggml_buffer *buffer, struct ggml_tensor *tensor, uint8_t value,
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

static bool cpy_tensor(struct ggml_buffer *buffer, const struct ggml_tensor *from,
                       struct ggml_tensor *to)
{
    (void)buffer, (void)from, (void)to;
    return false; /* ggml copies by itself */
}

/* Pages that were never touched are zero as they are. */
static void clear(struct ggml_buffer *buffer, uint8_t value)
{
    size_t whole = buffer->size / PAGE_BYTES * PAGE_BYTES;
    if (value) {
        memset(buffer->context, value, buffer->size);
        return;
    }
    if (whole && syscall(SYS_madvise, buffer->context, whole, (long)MADV_DONTNEED) != 0)
        whole = 0;
    memset((char *)buffer->context + whole, 0, buffer->size - whole);
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
    if (!pretend_take(MT_ACCOUNT_HOST, size, &free_bytes)) {
        pretend_note_refuse(MT_ACCOUNT_HOST, MT_CATEGORY_NONE, size, free_bytes, type->name, NULL);
        return NULL;
    }
    void *pages = map_pages(size);
    struct ggml_buffer *buffer =
        pages ? type->world->ggml.buffer_init(abi, functions, pages, size) : NULL;
    if (!buffer) {
        pretend_give_back(MT_ACCOUNT_HOST, size);
        if (pages)
            syscall(SYS_munmap, pages, size);
        return NULL;
    }
    pretend_note_alloc(MT_ACCOUNT_HOST, MT_CATEGORY_NONE, MT_ACCOUNT_PINNED, buffer, size,
                       type->name, NULL);
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
