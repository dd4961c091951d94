// SPDX-License-Identifier: MIT
// A stand-in for a ggml and the engine around it, in one library that is loaded where RTLD_NEXT
// does not see it. Only what the hooks rely on is as in a true one: the names, and a buffer's
// layout.
#ifndef TESTS_HOOKS_ENGINE_H
#define TESTS_HOOKS_ENGINE_H

#include <cstddef>
#include <cstdint>
#include <cstdio>

struct tensor {
    const char *name;
    void *data;
    tensor *next;
};

struct context {
    tensor *first;
    std::size_t size;
};

struct buffer;

struct buffer_type {
    const char *(*get_name)(buffer_type *);
    buffer *(*alloc)(buffer_type *, std::size_t);
    int copy;
};

struct buffer {
    void (*free)(buffer *);
    void *(*get_base)(buffer *);
    int (*init_tensor)(buffer *, tensor *);
    void (*memset_tensor)(buffer *, tensor *, std::uint8_t, std::size_t, std::size_t);
    void (*set_tensor)(buffer *, tensor *, const void *, std::size_t, std::size_t);
    void (*get_tensor)(buffer *, const tensor *, void *, std::size_t, std::size_t);
    void *two_dimensions[2];
    bool (*copy_tensor)(buffer *, const tensor *, tensor *);
    void (*clear)(buffer *, std::uint8_t);
    void (*reset)(buffer *);
    buffer_type *type;
    void *memory;
    std::size_t size;
    int usage;
};

struct gguf_parameters {
    bool no_alloc;
    void **context;
};

// What a program calls; the engine's own calls of ggml go through the loader, as everywhere.
struct engine {
    buffer *(*alloc)(std::size_t size);
    buffer *(*alloc_tensors)(context *context);
    bool (*throws)();
    void (*use)(buffer *buffer, int usage);
    void (*free)(buffer *buffer);
    void (*open)(const char *path);
    int (*resets_of_dry_run)();
    int (*graphs_computed)();
    int (*servers_added)();
};

extern "C" const engine *the_engine();

#endif
