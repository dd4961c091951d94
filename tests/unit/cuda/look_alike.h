/* SPDX-License-Identifier: MIT */
/* The look-alikes as a program has them: loaded by their files, over an account of pretended
 * devices that the test makes. */
#ifndef MT_TEST_LOOK_ALIKE_H
#define MT_TEST_LOOK_ALIKE_H

#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include <memtally/category.h>

#include "rehearse/account.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static struct mt_account *account;
static char account_path[] = "/tmp/memtally-look-alike-XXXXXX";

/* Two H100 by name, of 80 GiB each, that are joined by NVLink. */
static void fill_in(struct mt_account_device *device)
{
    device->total_bytes = 80 * GIB;
    device->free_bytes = 79 * GIB;
    device->gpu = (struct mt_gpu_spec){.name = "NVIDIA H100 80GB HBM3",
                                       .capability = 90,
                                       .multiprocessors = 132,
                                       .clock_khz = 1980000,
                                       .memory_clock_khz = 2619000,
                                       .memory_bus_bits = 5120,
                                       .link = MT_GPU_LINK_NVLINK,
                                       .is_ecc = 1,
                                       .communication_bytes = 300 * MIB,
                                       .communication_many_bytes = 700 * MIB};
}

static void make_account(void)
{
    int fd = mkstemp(account_path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)sizeof *account), 0);
    account = mmap(NULL, sizeof *account, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    assert_true(account != MAP_FAILED);
    memcpy(account->magic, MT_ACCOUNT_MAGIC, sizeof account->magic);
    account->format = MT_ACCOUNT_FORMAT;
    account->n_devices = 2;
    account->cuda.driver_version = 12080;
    account->cuda.copy_bytes_most = 65536;
    fill_in(&account->device[0]);
    fill_in(&account->device[1]);
    setenv(MT_ACCOUNT_VARIABLE, account_path, 1);
}

static inline int drop_account(void **state)
{
    (void)state;
    unlink(account_path);
    return 0;
}

/* A library's file; the driver's must be the first, since others find it by its soname. */
static void *load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        fail_msg("%s", dlerror());
    return library;
}

/* A function of it: to be kept in a pointer of the function's type. */
static void *find(void *library, const char *name)
{
    void *function = dlsym(library, name);
    if (!function)
        fail_msg("%s is not there", name);
    return function;
}

static inline void start_driver(void)
{
    int (*init)(unsigned);
    *(void **)&init = find(load(DRIVER_PATH), "cuInit");
    assert_int_equal(init(0), 0);
}

/* Integers on the first device, each of them 77: what a library must write there is not yet there.
 */
static inline int *device_integers(size_t n)
{
    void *driver = load(DRIVER_PATH);
    int (*retain)(void **, int), (*make_current)(void *), (*take)(void *, size_t);
    int (*set)(uint64_t, unsigned, size_t);
    void *context;
    int *made;
    *(void **)&retain = find(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&make_current = find(driver, "cuCtxSetCurrent");
    *(void **)&take = find(driver, "cuMemAlloc_v2");
    *(void **)&set = find(driver, "cuMemsetD32_v2");
    assert_int_equal(retain(&context, 0), 0);
    assert_int_equal(make_current(context), 0);
    assert_int_equal(take(&made, n * sizeof *made), 0);
    assert_int_equal(set((uint64_t)(uintptr_t)made, 77, n), 0);
    return made;
}

/* One of them as a program reads it. */
static inline int device_integer(const int *of, size_t i)
{
    int (*copy)(void *, uint64_t, size_t), value = 78;
    *(void **)&copy = find(load(DRIVER_PATH), "cuMemcpyDtoH_v2");
    assert_int_equal(copy(&value, (uint64_t)(uintptr_t)(of + i), sizeof value), 0);
    return value;
}

/* What the account holds of `category` on a device, by the events of buffers that are there. */
static inline uint64_t held_as(uint32_t place, enum mt_category category)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < account->n_events; i++) {
        const struct mt_account_event *event = &account->event[i];
        if (event->place != place || event->kind != MT_ACCOUNT_ALLOC ||
            event->category != (uint8_t)category)
            continue;
        bytes += event->bytes;
        for (uint64_t j = i + 1; j < account->n_events; j++)
            if (account->event[j].kind == MT_ACCOUNT_FREE &&
                account->event[j].object == event->object) {
                bytes -= event->bytes;
                break;
            }
    }
    return bytes;
}

#endif
