/* SPDX-License-Identifier: MIT */
/* Buffers whose tensors are split by rows over the devices (row split, builds before 11000).
 *
 * ggml asks for the sum of a buffer's parts beforehand, and the parts are allocated as tensors are
 * put into it: each on its device, with its last row padded. They go with the buffer. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/row_padding.h"
#include "rehearse/account_note.h"
#include "rehearse/account_write.h"
#include "world.h"

#define AMD_RDNA1 0x1001010u
#define AMD_RDNA2 0x1001030u
#define AMD       0x1000000u
#define VOLTA     700u

struct part {
    struct part *next;
    uint64_t bytes;
    uint32_t device;
};

struct split_buffer {
    struct pretend_buffer_type *type;
    struct part *parts; /* pushed from any thread */
};

static int64_t row_rounding(const struct pretend_buffer_type *type)
{
    const struct pretend_world *world = type->world;
    uint32_t capability = rules_of(world)->capability;
    int64_t rows = capability >= AMD
                       ? (capability >= AMD_RDNA1 && capability < AMD_RDNA2 ? 64 : 128)
                       : (capability >= VOLTA ? 128 : 64);
    for (size_t i = 0; i < world->n_devices; i++)
        if (type->share[i] < (i + 1 < world->n_devices ? type->share[i + 1] : 1.0f))
            return rows;
    return 1;
}

void pretend_split_rows(const struct pretend_buffer_type *type, const struct ggml_tensor *tensor,
                        size_t device, int64_t *low, int64_t *high)
{
    int64_t rows = (int64_t)pretend_rows(tensor);
    int64_t rounding = row_rounding(type);
    *low = device == 0 ? 0 : (int64_t)((float)rows * type->share[device]);
    *low -= *low % rounding;
    *high = rows;
    if (device + 1 < type->world->n_devices) {
        *high = (int64_t)((float)rows * type->share[device + 1]);
        *high -= *high % rounding;
    }
}

uint64_t pretend_split_bytes(const struct pretend_buffer_type *type,
                             const struct ggml_tensor *tensor, size_t device)
{
    struct pretend_ggml *ggml = &type->world->ggml;
    uint64_t more = mt_row_padding((uint64_t)tensor->ne[0], rules_of(type->world)->row_padding);
    int64_t low, high;
    pretend_split_rows(type, tensor, device, &low, &high);
    if (high <= low)
        return 0;
    return (uint64_t)(high - low) * pretend_row_bytes(ggml, tensor->type, (uint64_t)tensor->ne[0]) +
           (more ? pretend_row_bytes(ggml, tensor->type, more) : 0);
}

static void free_buffer(struct ggml_buffer *buffer)
{
    struct split_buffer *own = buffer->context;
    for (struct part *part = own->parts, *next; part; part = next) {
        next = part->next;
        pretend_give_back(part->device, part->bytes);
        pretend_note_free(part->device, part, part->bytes);
        free(part);
    }
    free(own);
}

/* Parts have addresses of their own, so that nobody asks for this one's memory. */
static void *get_base(struct ggml_buffer *buffer)
{
    (void)buffer;
    return (void *)(uintptr_t)0x1000;
}

static int alloc_part(struct split_buffer *own, const struct ggml_tensor *tensor, uint32_t device)
{
    uint64_t bytes = pretend_split_bytes(own->type, tensor, device);
    uint64_t free_bytes;
    if (!bytes)
        return 1;
    struct part *part = malloc(sizeof *part);
    if (!part)
        return 0;
    if (!pretend_take(device, bytes, &free_bytes)) {
        pretend_note_refuse(device, MT_CATEGORY_WEIGHTS, bytes, free_bytes, own->type->name,
                            tensor->name);
        free(part);
        return 0;
    }
    *part = (struct part){.bytes = bytes, .device = device};
    part->next = __atomic_load_n(&own->parts, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&own->parts, &part->next, part, 1, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
    }
    pretend_note_alloc(device, MT_CATEGORY_WEIGHTS, 0, part, bytes, own->type->name,
                       "rows of matrices");
    return 1;
}

static int init_tensor(struct ggml_buffer *buffer, struct ggml_tensor *tensor)
{
    struct split_buffer *own = buffer->context;
    for (uint32_t i = 0; i < own->type->world->n_devices; i++)
        if (!alloc_part(own, tensor, i))
            return GGML_STATUS_FAILED;
    return GGML_STATUS_DONE;
}

static void clear(struct ggml_buffer *buffer, uint8_t value)
{
    (void)buffer, (void)value;
}

static struct ggml_buffer *alloc_buffer(struct ggml_buffer_type *abi, size_t size)
{
    static const struct ggml_buffer_functions functions = {.free_buffer = free_buffer,
                                                           .get_base = get_base,
                                                           .init_tensor = init_tensor,
                                                           .set_tensor = pretend_set_tensor,
                                                           .get_tensor = pretend_get_tensor,
                                                           .clear = clear};
    struct split_buffer *own = malloc(sizeof *own);
    if (!own)
        return NULL;
    *own = (struct split_buffer){.type = type_of(abi)};
    struct ggml_buffer *buffer = own->type->world->ggml.buffer_init(abi, functions, own, size);
    if (!buffer)
        free(own);
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

static size_t get_alloc_size(struct ggml_buffer_type *type, const struct ggml_tensor *tensor)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < type_of(type)->world->n_devices; i++)
        bytes += pretend_split_bytes(type_of(type), tensor, i);
    return bytes;
}

static bool is_not_host(struct ggml_buffer_type *type)
{
    (void)type;
    return false;
}

/* Where each device's rows start, as a share of all: by what is given, else by what memory the
 * devices have. */
static void find_shares(const struct pretend_world *world, const float *given, float *share)
{
    float sum = 0;
    int is_given = 0;
    for (size_t i = 0; given && i < world->n_devices; i++)
        is_given |= given[i] > 0;
    for (size_t i = 0; i < world->n_devices; i++) {
        share[i] = sum;
        sum += is_given ? given[i] : (float)world->account->device[i].total_bytes;
    }
    for (size_t i = 0; i < world->n_devices && sum > 0; i++)
        share[i] /= sum;
}

static struct pretend_buffer_type *make_type(struct pretend_world *world,
                                             struct pretend_device *device, const float *share)
{
    static const struct ggml_type_functions_3 functions = {.get_name = get_name,
                                                           .alloc_buffer = alloc_buffer,
                                                           .get_alignment = get_alignment,
                                                           .get_alloc_size = get_alloc_size,
                                                           .is_host = is_not_host};
    struct pretend_buffer_type *type = calloc(1, sizeof *type);
    if (!type)
        return NULL;
    type->world = world;
    type->device = device;
    type->memory = PRETEND_SPLIT;
    memcpy(type->share, share, sizeof type->share);
    snprintf(type->name, sizeof type->name, "%.24s_Split", device->type.name);
    pretend_fill_type(type, &functions, &device->abi);
    return type;
}

struct pretend_buffer_type *pretend_split_type(struct pretend_world *world, int main_device,
                                               const float *share)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    float starts[PRETEND_DEVICES_MAX] = {0};
    if (main_device < 0 || (size_t)main_device >= world->n_devices)
        return NULL;
    find_shares(world, share, starts);
    pthread_mutex_lock(&lock);
    struct pretend_buffer_type *type = world->splits;
    while (type && (type->device != &world->device[main_device] ||
                    memcmp(type->share, starts, sizeof starts) != 0))
        type = type->next;
    if (!type && (type = make_type(world, &world->device[main_device], starts))) {
        type->next = world->splits;
        __atomic_store_n(&world->splits, type, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return type;
}
