/* SPDX-License-Identifier: MIT */
/* A CUDA device's memory as a backend: addresses and pages of the driver's virtual memory. A page
 * is one handle, and keeps it until the pool gives it back.
 *
 * A caller may capture a graph on one of its streams. Calls that the driver forbids meanwhile are
 * made in a mode of the thread in which they do not end the capture, and no event is recorded on a
 * stream that captures. */
#include "pool/cuda.h"

#include <memtally/error.h>
#include <stdlib.h>

#include "base/error.h"

#define MOST_PAGE_BYTES ((uint64_t)1 << 30)

enum { RELAXED_CAPTURE = 2, NO_TIMING = 2, RECOMMENDED = 1 };

int mt_cuda_code_of(int result)
{
    if (result == MT_CUDA_SUCCESS)
        return MT_OK;
    return result == MT_CUDA_OUT_OF_MEMORY ? MT_ENOMEM : MT_EIO;
}

/* The thread's mode of capture, to be handed to leave(). */
static int enter(const struct mt_pool_cuda *cuda)
{
    int mode = RELAXED_CAPTURE;
    cuda->driver.capture_mode(&mode);
    return mode;
}

static void leave(const struct mt_pool_cuda *cuda, int mode)
{
    cuda->driver.capture_mode(&mode);
}

int mt_cuda_enter(const struct mt_pool_cuda *cuda, int *code)
{
    int mode = enter(cuda);
    *code = mt_cuda_code_of(cuda->driver.context_push(cuda->primary));
    return mode;
}

void mt_cuda_leave(const struct mt_pool_cuda *cuda, int mode, int code)
{
    void *popped;
    if (code == MT_OK)
        cuda->driver.context_pop(&popped);
    leave(cuda, mode);
}

static int reserve(void *context, uint64_t bytes, uint64_t *address)
{
    struct mt_pool_cuda *cuda = context;
    int mode = enter(cuda);
    int result =
        cuda->driver.reserve(address, (size_t)bytes, (size_t)cuda->backend.page_bytes, 0, 0);
    leave(cuda, mode);
    return mt_cuda_code_of(result);
}

static void unreserve(void *context, uint64_t address, uint64_t bytes)
{
    struct mt_pool_cuda *cuda = context;
    int mode = enter(cuda);
    cuda->driver.unreserve(address, (size_t)bytes);
    leave(cuda, mode);
}

static int create(void *context, uint64_t *page)
{
    struct mt_pool_cuda *cuda = context;
    unsigned long long handle = 0;
    int mode = enter(cuda);
    int result = cuda->driver.create(&handle, (size_t)cuda->backend.page_bytes, &cuda->property, 0);
    leave(cuda, mode);
    *page = handle;
    return mt_cuda_code_of(result);
}

static void destroy(void *context, uint64_t page)
{
    struct mt_pool_cuda *cuda = context;
    int mode = enter(cuda);
    cuda->driver.release(page);
    leave(cuda, mode);
}

static int attach(void *context, uint64_t address, uint64_t page)
{
    struct mt_pool_cuda *cuda = context;
    int mode = enter(cuda);
    int result = cuda->driver.map(address, (size_t)cuda->backend.page_bytes, 0, page, 0);
    leave(cuda, mode);
    return mt_cuda_code_of(result);
}

static int enable(void *context, uint64_t address, uint64_t bytes)
{
    struct mt_pool_cuda *cuda = context;
    struct mt_cuda_access access = {cuda->property.location, 3};
    int mode = enter(cuda);
    int result = cuda->driver.set_access(address, (size_t)bytes, &access, 1);
    leave(cuda, mode);
    return mt_cuda_code_of(result);
}

static int detach(void *context, uint64_t address, uint64_t page)
{
    struct mt_pool_cuda *cuda = context;
    (void)page;
    int mode = enter(cuda);
    int result = cuda->driver.unmap(address, (size_t)cuda->backend.page_bytes);
    leave(cuda, mode);
    return mt_cuda_code_of(result);
}

/* Records an event on a stream. With the device's context current. */
static int record_here(const struct mt_cuda_driver *driver, void *stream, void **event)
{
    int capturing = 0;
    int result = driver->is_capturing(stream, &capturing);
    if (result != MT_CUDA_SUCCESS || capturing)
        return MT_EUNSUPPORTED;
    result = driver->event_create(event, NO_TIMING);
    if (result != MT_CUDA_SUCCESS)
        return mt_cuda_code_of(result);
    result = driver->event_record(*event, stream);
    if (result != MT_CUDA_SUCCESS)
        driver->event_destroy(*event);
    return mt_cuda_code_of(result);
}

static int record(void *context, uint64_t stream, uint64_t *event)
{
    struct mt_pool_cuda *cuda = context;
    void *made = NULL;
    int entered;
    int mode = mt_cuda_enter(cuda, &entered);
    int code = entered;
    if (code == MT_OK)
        code = record_here(&cuda->driver, (void *)(uintptr_t)stream, &made);
    mt_cuda_leave(cuda, mode, entered);
    *event = (uint64_t)(uintptr_t)made;
    return code;
}

static int query(void *context, uint64_t event, int wait)
{
    struct mt_pool_cuda *cuda = context;
    void *pointer = (void *)(uintptr_t)event;
    int mode = enter(cuda);
    int result = wait ? cuda->driver.event_wait(pointer) : cuda->driver.event_query(pointer);
    leave(cuda, mode);
    if (result == MT_CUDA_NOT_READY)
        return 0;
    return result == MT_CUDA_SUCCESS ? 1 : MT_EIO;
}

static void forget(void *context, uint64_t event)
{
    struct mt_pool_cuda *cuda = context;
    cuda->driver.event_destroy((void *)(uintptr_t)event);
}

static int copy(void *context, uint64_t address, void *host, uint64_t bytes, int is_back)
{
    struct mt_pool_cuda *cuda = context;
    int entered;
    int mode = mt_cuda_enter(cuda, &entered);
    int code = entered;
    if (code == MT_OK)
        code = mt_cuda_code_of(is_back ? cuda->driver.copy_in(address, host, (size_t)bytes)
                                       : cuda->driver.copy_out(host, address, (size_t)bytes));
    mt_cuda_leave(cuda, mode, entered);
    return code;
}

/* Finds the device, what a page of it may be, and its context. */
static int open_device(struct mt_pool_cuda *cuda, int ordinal, uint64_t page_bytes)
{
    const struct mt_cuda_driver *driver = &cuda->driver;
    size_t least = 0, total = 0;
    if (driver->init(0) != MT_CUDA_SUCCESS ||
        driver->device_get(&cuda->device, ordinal) != MT_CUDA_SUCCESS ||
        driver->total_bytes(&total, cuda->device) != MT_CUDA_SUCCESS)
        return MT_ENOTFOUND;
    cuda->total_bytes = total;
    cuda->property =
        (struct mt_cuda_property){.type = 1, .location = {.type = 1, .id = cuda->device}};
    if (driver->granularity(&least, &cuda->property, RECOMMENDED) != MT_CUDA_SUCCESS || !least)
        return MT_EUNSUPPORTED;
    if (page_bytes % least)
        return MT_EARG;
    return mt_cuda_code_of(driver->context_retain(&cuda->primary, cuda->device));
}

int mt_cuda_device_make(const struct mt_cuda_driver *driver, int device, uint64_t page_bytes,
                        struct mt_pool_cuda **cuda, struct mt_error *error)
{
    if (!page_bytes)
        page_bytes = MT_CUDA_PAGE_BYTES;
    if (page_bytes & (page_bytes - 1) || page_bytes > MOST_PAGE_BYTES || device < 0)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "a page of a device is a power of two of at most 1 GiB");
    struct mt_pool_cuda *made = calloc(1, sizeof *made);
    if (!made)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory for a pool");
    made->driver = *driver;
    int code = open_device(made, device, page_bytes);
    if (code != MT_OK) {
        free(made);
        return mt_fail(error, code, MT_NO_OFFSET, "CUDA device %d cannot have a pool: %s", device,
                       mt_error_sentence(code));
    }
    made->backend = (struct mt_pool_backend){.context = made,
                                             .page_bytes = page_bytes,
                                             .record = record,
                                             .query = query,
                                             .forget = forget,
                                             .copy = copy};
    *cuda = made;
    return MT_OK;
}

int mt_pool_cuda_create_over(const struct mt_cuda_driver *driver, int device, uint64_t page_bytes,
                             struct mt_pool_cuda **cuda, struct mt_error *error)
{
    int code = mt_cuda_device_make(driver, device, page_bytes, cuda, error);
    if (code != MT_OK)
        return code;
    struct mt_pool_backend *backend = &(*cuda)->backend;
    backend->reserve = reserve;
    backend->unreserve = unreserve;
    backend->create = create;
    backend->destroy = destroy;
    backend->attach = attach;
    backend->enable = enable;
    backend->detach = detach;
    return MT_OK;
}

int mt_pool_cuda_create(int device, uint64_t page_bytes, struct mt_pool_cuda **cuda,
                        struct mt_error *error)
{
    struct mt_cuda_driver driver;
    int code = mt_cuda_driver_open("libcuda.so.1", &driver, error);
    return code == MT_OK ? mt_pool_cuda_create_over(&driver, device, page_bytes, cuda, error)
                         : code;
}

void mt_pool_cuda_destroy(struct mt_pool_cuda *cuda)
{
    if (!cuda)
        return;
    mt_cuda_ordered_finish(cuda);
    cuda->driver.context_release(cuda->device);
    free(cuda);
}

const struct mt_pool_backend *mt_pool_cuda_backend(struct mt_pool_cuda *cuda)
{
    return &cuda->backend;
}

uint64_t mt_pool_cuda_total_bytes(const struct mt_pool_cuda *cuda)
{
    return cuda->total_bytes;
}
