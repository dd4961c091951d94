/* SPDX-License-Identifier: MIT */
/* The pretended devices of one ggml. A process may have several ggmls: each gets devices of its
 * own, and all draw on the one account. Nothing of a world is ever freed: ggml keeps pointers. */
#ifndef MT_REHEARSAL_GGML_WORLD_H
#define MT_REHEARSAL_GGML_WORLD_H

#include <string.h>

#include "abi.h"
#include "ggml.h"
#include "rehearse/account.h"

#define PRETEND_DEVICES_MAX 16 /* of a backend: ggml's own limit */

struct pretend_world;

enum pretend_memory { PRETEND_ON_DEVICE, PRETEND_PINNED, PRETEND_SPLIT };

/* A buffer type. ggml's pointer to it is ours: the table comes first. */
struct pretend_buffer_type {
    struct ggml_buffer_type abi;
    struct pretend_world *world;
    struct pretend_device *device; /* NULL: pinned host memory, of any of them */
    enum pretend_memory memory;
    char name[32];
    /* A device's rows of a split type start at this share of all rows. */
    float share[PRETEND_DEVICES_MAX];
    struct pretend_buffer_type *next;
};

struct pretend_device {
    struct ggml_device abi;
    struct pretend_world *world;
    uint32_t number;
    char id[16]; /* as a PCI address */
    struct pretend_buffer_type type;
};

struct pretend_world {
    struct ggml_registry registry;
    struct pretend_world *next;
    uint32_t number;
    const void *module; /* that the ggml lies in */
    struct mt_account *account;
    struct pretend_ggml ggml;
    uint64_t offload_batch;
    size_t n_devices;
    struct pretend_device device[PRETEND_DEVICES_MAX];
    struct pretend_buffer_type pinned;
    struct pretend_buffer_type *splits; /* only grows */
};

static inline const struct mt_pretend_rules *rules_of(const struct pretend_world *world)
{
    return &world->account->rules;
}

/* Cards of several generations may be there; without a card it is that of the rules. */
static inline uint32_t capability_of(const struct pretend_world *world,
                                     const struct pretend_device *device)
{
    uint32_t own = device ? world->account->device[device->number].gpu.capability : 0;
    if (own && strcmp(rules_of(world)->kind, "cuda") == 0)
        return own * 10;
    return own && strcmp(rules_of(world)->kind, "rocm") == 0 ? own : rules_of(world)->capability;
}

static inline struct pretend_device *device_of(struct ggml_device *device)
{
    return (struct pretend_device *)device;
}

static inline struct pretend_buffer_type *type_of(struct ggml_buffer_type *type)
{
    return (struct pretend_buffer_type *)type;
}

/* The type of a buffer where it is one of this world's, else NULL. */
struct pretend_buffer_type *pretend_own_type(const struct pretend_world *world,
                                             const struct ggml_buffer_type *type);

/* buffers.c, pinned.c, split.c: fill in a type's table. */
void pretend_make_device_type(struct pretend_buffer_type *type, struct pretend_device *device);
void pretend_make_pinned_type(struct pretend_buffer_type *type, struct pretend_world *world);
/* The type that splits rows over all devices; `share` has a part for each, or is NULL. */
struct pretend_buffer_type *pretend_split_type(struct pretend_world *world, int main_device,
                                               const float *share);
struct ggml_buffer *pretend_buffer_from_host(struct pretend_device *device, void *address,
                                             size_t size);
/* Fills in a type's table for the version of its ggml. */
void pretend_fill_type(struct pretend_buffer_type *type, const struct ggml_type_functions_3 *made,
                       struct ggml_device *device);

/* An address range of which nothing is ever read or written. */
uintptr_t pretend_addresses(uint64_t bytes);

/* Tensors of buffers without memory: what is set is not kept, and zeros are what there is. */
void pretend_set_tensor(struct ggml_buffer *buffer, struct ggml_tensor *tensor, const void *data,
                        size_t offset, size_t size);
void pretend_get_tensor(struct ggml_buffer *buffer, const struct ggml_tensor *tensor, void *data,
                        size_t offset, size_t size);

/* What a tensor takes of a device's buffer. */
uint64_t pretend_alloc_bytes(const struct pretend_buffer_type *type,
                             const struct ggml_tensor *tensor);
/* The rows of a tensor that a device has of a split buffer. */
void pretend_split_rows(const struct pretend_buffer_type *type, const struct ggml_tensor *tensor,
                        size_t device, int64_t *low, int64_t *high);
/* The part of a tensor on a device, with its last row padded. */
uint64_t pretend_split_bytes(const struct pretend_buffer_type *type,
                             const struct ggml_tensor *tensor, size_t device);

/* flash.c */
int pretend_flash_is_taken(const struct pretend_device *device, const struct ggml_tensor *op);
uint64_t pretend_flash_bytes(struct pretend_world *world, const struct pretend_device *device,
                             const struct ggml_tensor *op);

/* takes.c: which operations a device computes, and which it takes over from the host. */
int pretend_takes(const struct pretend_device *device, const struct ggml_tensor *op);
int pretend_takes_over(const struct pretend_device *device, const struct ggml_tensor *op);

/* takes_metal.c: a tensor with what Metal's kernels want behind it */
uint64_t pretend_metal_bytes(struct pretend_world *world, const struct ggml_tensor *op);

/* backend.c */
struct ggml_backend *pretend_backend_new(struct pretend_device *device);
void pretend_fill_events(struct ggml_device_functions *functions);

/* fused.c: what fused operations keep allocated. */
void pretend_graph_optimize(struct ggml_backend *backend, struct ggml_graph *graph,
                            struct ggml_optimize *optimize);

/* devices.c */
struct pretend_world *pretend_worlds(void);

#endif
