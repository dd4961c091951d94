/* SPDX-License-Identifier: MIT */
/* What the recorder's adapter sees of ggml, in small. Two libraries are built from it; each stops
 * the program when it is given what the other has made. */
#ifndef MT_TESTS_RECORDER_FAKE_GGML_H
#define MT_TESTS_RECORDER_FAKE_GGML_H

#include <cstddef>

struct buffer_type {
    int copy;
    const char *name;
    bool host;
    buffer_type *inner; /* takes its memory from this one */
    std::size_t limit;  /* the most that one buffer holds; 0: none */
    bool throws;
};

struct buffer {
    int copy;
    buffer_type *type;
    char *base;
    std::size_t size;
    int usage;
    buffer *parts[4];
};

struct tensor {
    const char *name;
};

struct context {
    std::size_t size;
    tensor *first;
};

extern "C" {
buffer *ggml_backend_buft_alloc_buffer(buffer_type *type, std::size_t size);
buffer *ggml_backend_alloc_ctx_tensors_from_buft(context *context, buffer_type *type);
std::size_t ggml_backend_alloc_ctx_tensors_from_buft_size(context *context, buffer_type *type);
buffer *ggml_backend_dev_buffer_from_host_ptr(void *device, void *address, std::size_t size,
                                              std::size_t max_tensor_size);
void ggml_backend_buffer_set_usage(buffer *buffer, int usage);
void ggml_backend_buffer_free(buffer *buffer);
void *ggml_backend_buffer_get_base(buffer *buffer);
std::size_t ggml_backend_buffer_get_size(buffer *buffer);
buffer_type *ggml_backend_buffer_get_type(buffer *buffer);
const char *ggml_backend_buft_name(buffer_type *type);
bool ggml_backend_buft_is_host(buffer_type *type);
tensor *ggml_get_first_tensor(const context *context);
tensor *ggml_get_next_tensor(const context *context, tensor *tensor);
const char *ggml_get_name(const tensor *tensor);
}

#endif
