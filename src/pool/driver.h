/* SPDX-License-Identifier: MIT */
/* CUDA's driver, as far as a pool calls it: the names, types and numbers of NVIDIA's public
 * interface (versions 10.2 and newer). Tests hand in a library of their own. */
#ifndef MT_POOL_DRIVER_H
#define MT_POOL_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include <memtally/pool.h>

enum {
    MT_CUDA_SUCCESS = 0,
    MT_CUDA_OUT_OF_MEMORY = 2,
    MT_CUDA_NOT_READY = 600,
};

#define MT_CUDA_LEGACY_STREAM ((void *)(uintptr_t)1)

struct mt_cuda_location {
    int type; /* 1: a device */
    int id;
};

struct mt_cuda_property {
    int type; /* 1: memory that is never paged out */
    int handle_types;
    struct mt_cuda_location location;
    void *windows;
    unsigned char compression, direct;
    unsigned short usage;
    unsigned char reserved[4];
};

struct mt_cuda_pool_property {
    int type; /* 1: memory that is never paged out */
    int handle_types;
    struct mt_cuda_location location;
    void *security;
    size_t max_bytes; /* 0: as the system allows */
    unsigned short usage;
    unsigned char reserved[54];
};

struct mt_cuda_access {
    struct mt_cuda_location location;
    int flags; /* 3: read and write */
};

struct mt_cuda_driver {
    int (*init)(unsigned flags);
    int (*device_get)(int *device, int ordinal);
    int (*total_bytes)(size_t *bytes, int device);
    int (*context_retain)(void **context, int device);
    int (*context_release)(int device);
    int (*context_push)(void *context);
    int (*context_pop)(void **context);
    int (*granularity)(size_t *bytes, const struct mt_cuda_property *property, int option);
    int (*reserve)(uint64_t *address, size_t bytes, size_t alignment, uint64_t wanted,
                   unsigned long long flags);
    int (*unreserve)(uint64_t address, size_t bytes);
    int (*create)(unsigned long long *handle, size_t bytes, const struct mt_cuda_property *property,
                  unsigned long long flags);
    int (*release)(unsigned long long handle);
    int (*map)(uint64_t address, size_t bytes, size_t offset, unsigned long long handle,
               unsigned long long flags);
    int (*unmap)(uint64_t address, size_t bytes);
    int (*set_access)(uint64_t address, size_t bytes, const struct mt_cuda_access *access,
                      size_t n);
    int (*event_create)(void **event, unsigned flags);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);
    int (*event_wait)(void *event);
    int (*event_destroy)(void *event);
    int (*capture_mode)(int *mode);
    int (*is_capturing)(void *stream, int *status);
    int (*copy_out)(void *host, uint64_t address, size_t bytes);
    int (*copy_in)(uint64_t address, const void *host, size_t bytes);
    int (*host_alloc)(void **address, size_t bytes, unsigned flags);
    int (*host_free)(void *address);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_wait)(void *stream);
    int (*stream_destroy)(void *stream);
    /* Since version 11.2; NULL where the driver is older. */
    int (*pool_create)(void **pool, const struct mt_cuda_pool_property *property);
    int (*pool_destroy)(void *pool);
    int (*pool_alloc)(uint64_t *address, size_t bytes, void *pool, void *stream);
    int (*pool_free)(uint64_t address, void *stream);
    int (*pool_trim)(void *pool, size_t keep_bytes);
};

/* Opens a driver's library by its name or path and finds the functions. Errors: MT_ENOTFOUND,
 * MT_EUNSUPPORTED (one is missing). It stays open. */
int mt_cuda_driver_open(const char *name, struct mt_cuda_driver *driver, struct mt_error *error);

/* mt_pool_cuda_create() over a driver's functions, which are copied. */
int mt_pool_cuda_create_over(const struct mt_cuda_driver *driver, int device, uint64_t page_bytes,
                             struct mt_pool_cuda **cuda, struct mt_error *error);

/* mt_pool_cuda_pinned_create() and mt_pool_cuda_ordered_create() in the same way. */
int mt_cuda_pinned_over(const struct mt_cuda_driver *driver, int device, struct mt_pool_cuda **cuda,
                        struct mt_error *error);
int mt_cuda_ordered_over(const struct mt_cuda_driver *driver, int device,
                         struct mt_pool_cuda **cuda, struct mt_error *error);

#endif
