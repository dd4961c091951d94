/* SPDX-License-Identifier: MIT */
/* The binary interface between ggml and its backends, as far as a pretended device meets it.
 *
 * Declared here by what ggml's binaries do, not included from ggml: one object serves every build.
 * API versions 2 and 3 are known. They differ in the table of a buffer type, in one capability, and
 * in the last argument of graph_optimize, which came while the version was 2. Enums of ggml are
 * ints; the numbers of operations and tensor types shift between builds, so we find them by name.
 */
#ifndef MT_REHEARSAL_GGML_ABI_H
#define MT_REHEARSAL_GGML_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GGML_API_OLDEST 2
#define GGML_API_NEWEST 3

enum { GGML_STATUS_FAILED = -2, GGML_STATUS_DONE = 0 };
enum { GGML_DEVICE_GPU = 1, GGML_DEVICE_IGPU = 2 };
enum { GGML_DIMS = 4, GGML_SOURCES = 10, GGML_PARAMETERS = 16, GGML_NAME_BYTES = 64 };

struct ggml_tensor {
    int type;
    struct ggml_buffer *buffer;
    int64_t ne[GGML_DIMS];
    size_t nb[GGML_DIMS];
    int op;
    int32_t op_params[GGML_PARAMETERS];
    int32_t flags;
    struct ggml_tensor *src[GGML_SOURCES];
    struct ggml_tensor *view_src;
    size_t view_offs;
    void *data;
    char name[GGML_NAME_BYTES];
    void *extra;
    char padding[8];
};

struct ggml_buffer_type;

struct ggml_buffer_functions {
    void (*free_buffer)(struct ggml_buffer *buffer);
    void *(*get_base)(struct ggml_buffer *buffer);
    int (*init_tensor)(struct ggml_buffer *buffer, struct ggml_tensor *tensor);
    void (*memset_tensor)(struct ggml_buffer *buffer, struct ggml_tensor *tensor, uint8_t value,
                          size_t offset, size_t size);
    void (*set_tensor)(struct ggml_buffer *buffer, struct ggml_tensor *tensor, const void *data,
                       size_t offset, size_t size);
    void (*get_tensor)(struct ggml_buffer *buffer, const struct ggml_tensor *tensor, void *data,
                       size_t offset, size_t size);
    void (*set_tensor_2d)(struct ggml_buffer *buffer, struct ggml_tensor *tensor, const void *data,
                          size_t offset, size_t size, size_t n_copies, size_t stride_tensor,
                          size_t stride_data);
    void (*get_tensor_2d)(struct ggml_buffer *buffer, const struct ggml_tensor *tensor, void *data,
                          size_t offset, size_t size, size_t n_copies, size_t stride_tensor,
                          size_t stride_data);
    bool (*cpy_tensor)(struct ggml_buffer *buffer, const struct ggml_tensor *from,
                       struct ggml_tensor *to);
    void (*clear)(struct ggml_buffer *buffer, uint8_t value);
    void (*reset)(struct ggml_buffer *buffer);
};

struct ggml_buffer {
    struct ggml_buffer_functions iface;
    struct ggml_buffer_type *type;
    void *context;
    size_t size;
    int usage;
};

typedef const char *ggml_type_name_fn(struct ggml_buffer_type *type);
typedef struct ggml_buffer *ggml_type_alloc_fn(struct ggml_buffer_type *type, size_t size);
typedef size_t ggml_type_size_fn(struct ggml_buffer_type *type);
typedef size_t ggml_type_alloc_size_fn(struct ggml_buffer_type *type,
                                       const struct ggml_tensor *tensor);
typedef bool ggml_type_is_fn(struct ggml_buffer_type *type);

struct ggml_type_functions_2 {
    ggml_type_name_fn *get_name;
    ggml_type_alloc_fn *alloc_buffer;
    ggml_type_size_fn *get_alignment;
    ggml_type_size_fn *get_max_size;
    ggml_type_alloc_size_fn *get_alloc_size;
    ggml_type_is_fn *is_host;
};

struct ggml_type_functions_3 {
    ggml_type_name_fn *get_name;
    ggml_type_alloc_fn *alloc_buffer;
    struct ggml_buffer *(*alloc_buffer_n)(struct ggml_buffer_type *type,
                                          struct ggml_tensor **tensors, int n_tensors);
    ggml_type_size_fn *get_alignment;
    ggml_type_size_fn *get_max_size;
    ggml_type_alloc_size_fn *get_alloc_size;
    size_t (*get_alloc_size_n)(struct ggml_buffer_type *type, struct ggml_tensor **tensors,
                               int n_tensors);
    ggml_type_is_fn *is_host;
};

struct ggml_buffer_type_2 {
    struct ggml_type_functions_2 iface;
    struct ggml_device *device;
    void *context;
};

struct ggml_buffer_type_3 {
    struct ggml_type_functions_3 iface;
    struct ggml_device *device;
    void *context;
};

/* Only as a pointer from and to ggml; which of the two it is, the API version says. */
struct ggml_buffer_type {
    union {
        struct ggml_buffer_type_2 v2;
        struct ggml_buffer_type_3 v3;
    };
};

struct ggml_graph {
    int size;
    int n_nodes;
    int n_leafs;
    struct ggml_tensor **nodes;
    /* more follows */
};

/* Keeps a tensor allocated until a later node has been computed. */
struct ggml_optimize {
    void (*add_alloc_dep)(void *context, struct ggml_tensor *tensor, struct ggml_tensor *until);
    void *context;
};

struct ggml_backend;
struct ggml_event {
    struct ggml_device *device;
    void *context;
};

struct ggml_backend_functions {
    const char *(*get_name)(struct ggml_backend *backend);
    void (*free)(struct ggml_backend *backend);
    void (*set_tensor_async)(struct ggml_backend *backend, struct ggml_tensor *tensor,
                             const void *data, size_t offset, size_t size);
    void (*get_tensor_async)(struct ggml_backend *backend, const struct ggml_tensor *tensor,
                             void *data, size_t offset, size_t size);
    void (*set_tensor_2d_async)(struct ggml_backend *backend, struct ggml_tensor *tensor,
                                const void *data, size_t offset, size_t size, size_t n_copies,
                                size_t stride_tensor, size_t stride_data);
    void (*get_tensor_2d_async)(struct ggml_backend *backend, const struct ggml_tensor *tensor,
                                void *data, size_t offset, size_t size, size_t n_copies,
                                size_t stride_tensor, size_t stride_data);
    bool (*cpy_tensor_async)(struct ggml_backend *from_backend, struct ggml_backend *to_backend,
                             const struct ggml_tensor *from, struct ggml_tensor *to);
    void (*synchronize)(struct ggml_backend *backend);
    void *(*graph_plan_create)(struct ggml_backend *backend, const struct ggml_graph *graph);
    void (*graph_plan_free)(struct ggml_backend *backend, void *plan);
    void (*graph_plan_update)(struct ggml_backend *backend, void *plan,
                              const struct ggml_graph *graph);
    int (*graph_plan_compute)(struct ggml_backend *backend, void *plan);
    int (*graph_compute)(struct ggml_backend *backend, struct ggml_graph *graph);
    void (*event_record)(struct ggml_backend *backend, struct ggml_event *event);
    void (*event_wait)(struct ggml_backend *backend, struct ggml_event *event);
    void (*graph_optimize)(struct ggml_backend *backend, struct ggml_graph *graph,
                           struct ggml_optimize *optimize);
};

struct ggml_backend {
    uint8_t (*guid)[16];
    struct ggml_backend_functions iface;
    struct ggml_device *device;
    void *context;
};

struct ggml_capabilities {
    bool async;
    bool host_buffer;
    bool buffer_from_host_ptr;
    bool events;
    bool mmap_support; /* came within version 2; before, the byte is padding */
};

struct ggml_properties {
    const char *name;
    const char *description;
    size_t memory_free;
    size_t memory_total;
    int type;
    const char *device_id;
    struct ggml_capabilities caps;
};

struct ggml_device_functions {
    const char *(*get_name)(struct ggml_device *device);
    const char *(*get_description)(struct ggml_device *device);
    void (*get_memory)(struct ggml_device *device, size_t *free_bytes, size_t *total_bytes);
    int (*get_type)(struct ggml_device *device);
    void (*get_props)(struct ggml_device *device, struct ggml_properties *properties);
    struct ggml_backend *(*init_backend)(struct ggml_device *device, const char *parameters);
    struct ggml_buffer_type *(*get_buffer_type)(struct ggml_device *device);
    struct ggml_buffer_type *(*get_host_buffer_type)(struct ggml_device *device);
    struct ggml_buffer *(*buffer_from_host_ptr)(struct ggml_device *device, void *address,
                                                size_t size, size_t max_tensor_size);
    bool (*supports_op)(struct ggml_device *device, const struct ggml_tensor *op);
    bool (*supports_buft)(struct ggml_device *device, struct ggml_buffer_type *type);
    bool (*offload_op)(struct ggml_device *device, const struct ggml_tensor *op);
    struct ggml_event *(*event_new)(struct ggml_device *device);
    void (*event_free)(struct ggml_device *device, struct ggml_event *event);
    void (*event_synchronize)(struct ggml_device *device, struct ggml_event *event);
};

struct ggml_registry;

struct ggml_device {
    struct ggml_device_functions iface;
    struct ggml_registry *registry;
    void *context;
};

struct ggml_registry {
    int api_version;
    struct {
        const char *(*get_name)(struct ggml_registry *registry);
        size_t (*get_device_count)(struct ggml_registry *registry);
        struct ggml_device *(*get_device)(struct ggml_registry *registry, size_t index);
        void *(*get_proc_address)(struct ggml_registry *registry, const char *name);
    } iface;
    void *context;
};

struct ggml_init {
    size_t mem_size;
    void *mem_buffer;
    bool no_alloc;
};

#endif
