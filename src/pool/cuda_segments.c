/* SPDX-License-Identifier: MIT */
/* Memory of CUDA that comes at addresses of the driver's choosing: pinned memory of the host, and a
 * device's memory from a pool of the driver's. A segment from the driver's pool is there for every
 * stream, because it is waited for: that happens where the pool grows, and nowhere else. */
#include "pool/cuda.h"

#include <memtally/error.h>
#include <string.h>

#include "base/error.h"

#define CHUNK_BYTES ((uint64_t)32 << 20) /* the driver's pools reserve so much at once */

enum { PORTABLE = 1, NON_BLOCKING = 1 };

static int take_pinned(void *context, uint64_t bytes, uint64_t *address)
{
    struct mt_pool_cuda *cuda = context;
    void *taken = NULL;
    int entered;
    int mode = mt_cuda_enter(cuda, &entered);
    int code = entered;
    if (code == MT_OK)
        code = mt_cuda_code_of(cuda->driver.host_alloc(&taken, (size_t)bytes, PORTABLE));
    mt_cuda_leave(cuda, mode, entered);
    *address = (uint64_t)(uintptr_t)taken;
    return code;
}

static void give_pinned(void *context, uint64_t address, uint64_t bytes)
{
    struct mt_pool_cuda *cuda = context;
    int entered;
    (void)bytes;
    int mode = mt_cuda_enter(cuda, &entered);
    cuda->driver.host_free((void *)(uintptr_t)address);
    mt_cuda_leave(cuda, mode, entered);
}

static int copy_pinned(void *context, uint64_t address, void *host, uint64_t bytes, int is_back)
{
    void *pinned = (void *)(uintptr_t)address;
    (void)context;
    memcpy(is_back ? pinned : host, is_back ? host : pinned, (size_t)bytes);
    return MT_OK;
}

int mt_cuda_pinned_over(const struct mt_cuda_driver *driver, int device, struct mt_pool_cuda **cuda,
                        struct mt_error *error)
{
    int code = mt_cuda_device_make(driver, device, 0, cuda, error);
    if (code != MT_OK)
        return code;
    (*cuda)->backend.take = take_pinned;
    (*cuda)->backend.give = give_pinned;
    (*cuda)->backend.copy = copy_pinned;
    return MT_OK;
}

/* With the device's context current. */
static int give_here(const struct mt_pool_cuda *cuda, uint64_t address)
{
    const struct mt_cuda_driver *driver = &cuda->driver;
    int result = driver->pool_free(address, cuda->own_stream);
    if (result == MT_CUDA_SUCCESS)
        result = driver->stream_wait(cuda->own_stream);
    if (result == MT_CUDA_SUCCESS)
        result = driver->pool_trim(cuda->own_pool, 0);
    return mt_cuda_code_of(result);
}

static int take_ordered(void *context, uint64_t bytes, uint64_t *address)
{
    struct mt_pool_cuda *cuda = context;
    const struct mt_cuda_driver *driver = &cuda->driver;
    int entered;
    int mode = mt_cuda_enter(cuda, &entered);
    int code = entered;
    if (code == MT_OK)
        code = mt_cuda_code_of(
            driver->pool_alloc(address, (size_t)bytes, cuda->own_pool, cuda->own_stream));
    if (code == MT_OK) {
        code = mt_cuda_code_of(driver->stream_wait(cuda->own_stream));
        if (code != MT_OK)
            give_here(cuda, *address);
    }
    mt_cuda_leave(cuda, mode, entered);
    return code;
}

static void give_ordered(void *context, uint64_t address, uint64_t bytes)
{
    struct mt_pool_cuda *cuda = context;
    int entered;
    (void)bytes;
    int mode = mt_cuda_enter(cuda, &entered);
    give_here(cuda, address);
    mt_cuda_leave(cuda, mode, entered);
}

static int make_own(struct mt_pool_cuda *cuda)
{
    struct mt_cuda_pool_property property = {.type = 1, .location = cuda->property.location};
    const struct mt_cuda_driver *driver = &cuda->driver;
    int entered;
    int mode = mt_cuda_enter(cuda, &entered);
    int code = entered;
    if (code == MT_OK)
        code = mt_cuda_code_of(driver->stream_create(&cuda->own_stream, NON_BLOCKING));
    if (code == MT_OK && driver->pool_create(&cuda->own_pool, &property) != MT_CUDA_SUCCESS)
        code = MT_EUNSUPPORTED;
    mt_cuda_leave(cuda, mode, entered);
    return code;
}

void mt_cuda_ordered_finish(struct mt_pool_cuda *cuda)
{
    int entered;
    if (!cuda->own_stream)
        return;
    int mode = mt_cuda_enter(cuda, &entered);
    if (cuda->own_pool)
        cuda->driver.pool_destroy(cuda->own_pool);
    cuda->driver.stream_destroy(cuda->own_stream);
    mt_cuda_leave(cuda, mode, entered);
}

int mt_cuda_ordered_over(const struct mt_cuda_driver *driver, int device,
                         struct mt_pool_cuda **cuda, struct mt_error *error)
{
    if (!driver->pool_create)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "the CUDA driver has no pools of its own; version 11.2 has them");
    struct mt_pool_cuda *made;
    int code = mt_cuda_device_make(driver, device, CHUNK_BYTES, &made, error);
    if (code != MT_OK)
        return code;
    code = make_own(made);
    if (code != MT_OK) {
        mt_pool_cuda_destroy(made);
        return mt_fail(error, code, MT_NO_OFFSET, "CUDA device %d has no pools of the driver's: %s",
                       device, mt_error_sentence(code));
    }
    made->backend.take = take_ordered;
    made->backend.give = give_ordered;
    *cuda = made;
    return MT_OK;
}

int mt_pool_cuda_pinned_create(int device, struct mt_pool_cuda **cuda, struct mt_error *error)
{
    struct mt_cuda_driver driver;
    int code = mt_cuda_driver_open("libcuda.so.1", &driver, error);
    return code == MT_OK ? mt_cuda_pinned_over(&driver, device, cuda, error) : code;
}

int mt_pool_cuda_ordered_create(int device, struct mt_pool_cuda **cuda, struct mt_error *error)
{
    struct mt_cuda_driver driver;
    int code = mt_cuda_driver_open("libcuda.so.1", &driver, error);
    return code == MT_OK ? mt_cuda_ordered_over(&driver, device, cuda, error) : code;
}
