/* SPDX-License-Identifier: MIT */
/* What the tests of the pretended driver's memory share: a rehearsal with devices, and the driver
 * built into the test itself. Each test program has one rehearsal. */
#ifndef MT_TEST_CUDA_DRIVER_TEST_H
#define MT_TEST_CUDA_DRIVER_TEST_H

#include <memtally/error.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "pretend/cuda/abi/driver_memory.h"
#include "pretend/cuda/driver/memory/memory.h"
#include "rehearse/account_write.h"
#include "rehearse/rehearsal.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

CUresult cuInit(unsigned flags);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) __attribute__((weak));
CUresult cuCtxSetCurrent(CUcontext context) __attribute__((weak));
CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr pointer);
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t n);
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t n);
CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr pointer);

static struct mt_account *driver_account;
static char driver_folder[64];

/* Makes a rehearsal of `n_devices` and says so to the driver. */
static inline void make_rehearsal(size_t n_devices, uint64_t device_bytes)
{
    static struct mt_rehearsal_device device[MT_ACCOUNT_DEVICES_MAX];
    struct mt_rehearsal_options options = {.devices = device, .n_devices = n_devices};
    struct mt_error error;
    char path[96];
    for (size_t i = 0; i < n_devices; i++)
        device[i] = (struct mt_rehearsal_device){.bytes = device_bytes};
    strcpy(driver_folder, "/tmp/memtally-driver-XXXXXX");
    assert_non_null(mkdtemp(driver_folder));
    snprintf(path, sizeof path, "%s/account", driver_folder);
    assert_int_equal(mt_account_create(&options, path, &driver_account, &error), 0);
    driver_account->cuda.driver_version = 13000;
    driver_account->cuda.copy_bytes_most = 64 << 10;
    setenv(MT_ACCOUNT_VARIABLE, path, 1);
}

static inline void drop_rehearsal(void)
{
    char path[96];
    snprintf(path, sizeof path, "%s/account", driver_folder);
    unlink(path);
    rmdir(driver_folder);
}

/* Makes a device the current one of this thread. */
static inline void use_device(CUdevice device)
{
    CUcontext context;
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    if (!cuDevicePrimaryCtxRetain)
        return;
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
}

/* The rehearsal of most test programs: two devices, the first of them the current one. */
static inline int begin_rehearsal(void **state)
{
    (void)state;
    make_rehearsal(2, 24 * GIB);
    use_device(0);
    return 0;
}

static inline int end_rehearsal(void **state)
{
    (void)state;
    drop_rehearsal();
    return 0;
}

/* The device that an address belongs to, -1 where the driver knows none. */
static inline int device_of(CUdeviceptr pointer)
{
    int device = -1;
    cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer);
    return device;
}

static inline uint64_t used_bytes(unsigned place)
{
    return driver_account->device[place].used_bytes;
}

static inline size_t count_events(enum mt_account_kind kind)
{
    size_t n = 0;
    for (uint64_t i = 0; i < driver_account->n_events; i++)
        n += driver_account->event[i].kind == (uint32_t)kind;
    return n;
}

/* The last event of a kind, which must be there. */
static inline const struct mt_account_event *last_event(enum mt_account_kind kind)
{
    uint64_t i = driver_account->n_events;
    while (i > 0 && driver_account->event[i - 1].kind != (uint32_t)kind)
        i--;
    assert_true(i > 0);
    return &driver_account->event[i - 1];
}

#endif
