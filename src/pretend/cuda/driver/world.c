/* SPDX-License-Identifier: MIT */
/* The devices that a program sees, and whether it may call the driver at all. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

#include "pretend/cuda/abi/driver_calls.h"
#include "pretend/cuda/place.h"
#include "rehearse/account_write.h"

static struct {
    pthread_mutex_t lock;
    struct pretend_device device[MT_ACCOUNT_DEVICES_MAX];
    int n_devices;
    int is_initialised;
    int is_child; /* of a process that had initialised */
} world = {.lock = PTHREAD_MUTEX_INITIALIZER};

void pretend_lock(void)
{
    pthread_mutex_lock(&world.lock);
}

void pretend_unlock(void)
{
    pthread_mutex_unlock(&world.lock);
}

static void before_fork(void)
{
    pretend_context_fork(1);
    pretend_lock();
}

static void after_fork(void)
{
    pretend_unlock();
    pretend_context_fork(0);
}

static void in_child(void)
{
    pthread_mutex_init(&world.lock, NULL);
    pretend_context_forked();
    world.is_child = world.is_initialised;
}

CUresult pretend_enter(void)
{
    return world.is_initialised && !world.is_child ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

int pretend_device_count(void)
{
    return world.n_devices;
}

struct pretend_device *pretend_device(CUdevice device)
{
    return device >= 0 && device < world.n_devices ? &world.device[device] : NULL;
}

CUresult pretend_enter_device(CUdevice number, struct pretend_device **device)
{
    struct pretend_device *found = pretend_device(number);
    CUresult result = pretend_enter();
    if (device)
        *device = found;
    return result == CUDA_SUCCESS && !found ? CUDA_ERROR_INVALID_DEVICE : result;
}

PRETEND_CALL const struct mt_gpu_spec *pretend_cuda_gpu(CUdevice device)
{
    const struct pretend_device *seen = pretend_device(device);
    return seen ? seen->gpu : NULL;
}

/* The place that one entry of CUDA_VISIBLE_DEVICES names: a number, or the beginning of one UUID as
 * nvidia-smi says it; -1 where it names none, or more than one. */
static int place_named(const char *entry, size_t length, const struct mt_account *account)
{
    char uuid[PRETEND_UUID_TEXT], *end;
    long number = strtol(entry, &end, 10);
    if (end != entry && end <= entry + length)
        return number >= 0 && number < (long)account->n_devices ? (int)number : -1;
    int found = -1;
    for (uint32_t place = 0; length > 4 && place < account->n_devices; place++) {
        pretend_place_uuid_text(place, uuid);
        if (length >= sizeof uuid || strncmp(uuid, entry, length) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = (int)place;
    }
    return found;
}

static int is_seen(uint32_t place)
{
    for (int i = 0; i < world.n_devices; i++)
        if (world.device[i].place == place)
            return 1;
    return 0;
}

/* CUDA_VISIBLE_DEVICES: devices in the order that the program wants. The first entry that names
 * none ends the list; one that is named again leaves none at all. */
static void see_devices(const struct mt_account *account, const char *visible)
{
    for (uint32_t i = 0; !visible && i < account->n_devices; i++)
        world.device[world.n_devices++].place = i;
    while (visible && *visible && world.n_devices < (int)MT_ACCOUNT_DEVICES_MAX) {
        visible += strspn(visible, " ");
        size_t length = strcspn(visible, ",");
        int place = place_named(visible, length, account);
        int is_again = place >= 0 && is_seen((uint32_t)place);
        if (is_again)
            world.n_devices = 0;
        if (place < 0 || is_again)
            return;
        world.device[world.n_devices++].place = (uint32_t)place;
        visible += length + (visible[length] == ',');
    }
}

/* The lock is held. */
static void initialise(const struct mt_account *account)
{
    see_devices(account, getenv("CUDA_VISIBLE_DEVICES"));
    for (int i = 0; i < world.n_devices; i++) {
        const struct mt_account_device *device = &account->device[world.device[i].place];
        world.device[i].gpu = &device->gpu;
        world.device[i].total_bytes = device->total_bytes;
    }
    __atomic_fetch_add(&pretend_cuda_account()->n_askings, 1, __ATOMIC_RELAXED);
    pthread_atfork(before_fork, after_fork, in_child);
    world.is_initialised = 1;
}

PRETEND_CALL CUresult cuInit(unsigned flags)
{
    const struct mt_account *account = pretend_account();
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!account || !account->cuda.driver_version)
        return CUDA_ERROR_NO_DEVICE;
    if (world.is_child)
        return CUDA_ERROR_NOT_INITIALIZED;
    pretend_lock();
    if (!world.is_initialised)
        initialise(account);
    pretend_unlock();
    return world.n_devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
