/* SPDX-License-Identifier: MIT */
#include "recorder/fake_ggml.h"

#include <cstdlib>
#include <stdexcept>

static void must_be_ours(int copy)
{
    if (copy != COPY)
        std::abort();
}

static buffer_type host_type = {COPY, "CPU_Mapped", true, nullptr, 0, false};

/* As CPU_REPACK does: another type's buffer under a new name. */
__attribute__((noinline)) static buffer *repack(buffer_type *type, std::size_t size)
{
    buffer *made = ggml_backend_buft_alloc_buffer(type->inner, size);
    made->type = type;
    return made;
}

buffer *ggml_backend_buft_alloc_buffer(buffer_type *type, std::size_t size)
{
    must_be_ours(type->copy);
    if (type->throws)
        throw std::runtime_error("no memory");
    if (type->inner)
        return repack(type, size);
    return new buffer{COPY, type, new char[size], size, 0, {}};
}

/* Several buffers where one would be too large, and one object for all of them. */
buffer *ggml_backend_alloc_ctx_tensors_from_buft(context *context, buffer_type *type)
{
    must_be_ours(type->copy);
    if (!type->limit)
        return ggml_backend_buft_alloc_buffer(type, context->size);
    buffer *whole = new buffer{COPY, type, nullptr, context->size, 0, {}};
    std::size_t left = context->size;
    for (int i = 0; left > 0; i++) {
        std::size_t part = left < type->limit ? left : type->limit;
        whole->parts[i] = ggml_backend_buft_alloc_buffer(type, part);
        left -= part;
    }
    return whole;
}

std::size_t ggml_backend_alloc_ctx_tensors_from_buft_size(context *context, buffer_type *type)
{
    must_be_ours(type->copy);
    return context->size;
}

buffer *ggml_backend_dev_buffer_from_host_ptr(void *device, void *address, std::size_t size,
                                              std::size_t)
{
    must_be_ours(*static_cast<int *>(device));
    return new buffer{COPY, &host_type, static_cast<char *>(address), size, 0, {}};
}

void ggml_backend_buffer_set_usage(buffer *buffer, int usage)
{
    must_be_ours(buffer->copy);
    buffer->usage = usage;
}

void ggml_backend_buffer_free(buffer *buffer)
{
    if (!buffer)
        return;
    must_be_ours(buffer->copy);
    if (buffer->type != &host_type)
        delete[] buffer->base;
    for (auto *part : buffer->parts)
        ggml_backend_buffer_free(part);
    delete buffer;
}

void *ggml_backend_buffer_get_base(buffer *buffer)
{
    must_be_ours(buffer->copy);
    return buffer->base;
}

std::size_t ggml_backend_buffer_get_size(buffer *buffer)
{
    must_be_ours(buffer->copy);
    return buffer->size;
}

buffer_type *ggml_backend_buffer_get_type(buffer *buffer)
{
    must_be_ours(buffer->copy);
    return buffer->type;
}

const char *ggml_backend_buft_name(buffer_type *type)
{
    must_be_ours(type->copy);
    return type->name;
}

bool ggml_backend_buft_is_host(buffer_type *type)
{
    must_be_ours(type->copy);
    return type->host;
}

tensor *ggml_get_first_tensor(const context *context)
{
    return context->first;
}

tensor *ggml_get_next_tensor(const context *, tensor *)
{
    return nullptr;
}

const char *ggml_get_name(const tensor *tensor)
{
    return tensor->name;
}
