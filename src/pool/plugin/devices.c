/* SPDX-License-Identifier: MIT */
/* A pool for each CUDA device of the process, made when it is first asked for. None is ever ended:
 * when a process ends, nobody knows whether the driver is still there. */
#include "pool/plugin/plugin.h"

#include <memtally/error.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <memtally/units.h>

#include "base/error.h"

#define DEVICES       64
#define ADDRESS_TIMES 8

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    _Atomic(struct mt_pool *) pool;
    struct mt_error problem;
} devices[DEVICES];

/* A size of the environment; 0 where there is none. */
static int read_size(const char *name, uint64_t *bytes, struct mt_error *error)
{
    const char *text = getenv(name);
    *bytes = 0;
    if (!text || !*text || mt_parse_size(text, bytes) == MT_OK)
        return MT_OK;
    return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                   "%s: '%s' is no size; write it as 4GiB, 512MiB or a number of bytes", name,
                   text);
}

static void note_page(void *context, uint64_t address, uint64_t bytes, int is_attached)
{
    mt_pool_note(is_attached ? 's' : 'e', (int)(intptr_t)context, address, bytes);
}

static int make(int device, struct mt_pool **pool, struct mt_error *error)
{
    struct mt_pool_options options = {
        .no_front = 1, .on_page = note_page, .context = (void *)(intptr_t)device};
    struct mt_pool_cuda *cuda;
    uint64_t page_bytes;
    int code = read_size("MEMTALLY_POOL_MAX", &options.max_bytes, error);
    if (code == MT_OK)
        code = read_size("MEMTALLY_POOL_PAGE", &page_bytes, error);
    if (code == MT_OK)
        code = mt_pool_cuda_create(device, page_bytes, &cuda, error);
    if (code != MT_OK)
        return code;
    options.address_bytes = ADDRESS_TIMES * mt_pool_cuda_total_bytes(cuda);
    code = mt_pool_create(mt_pool_cuda_backend(cuda), &options, pool, error);
    if (code != MT_OK)
        mt_pool_cuda_destroy(cuda);
    return code;
}

struct mt_pool *memtally_pool_of_device(int device)
{
    if (device < 0 || device >= DEVICES)
        return NULL;
    struct mt_pool *pool = atomic_load(&devices[device].pool);
    if (pool)
        return pool;
    pthread_mutex_lock(&lock);
    pool = atomic_load(&devices[device].pool);
    if (!pool && make(device, &pool, &devices[device].problem) == MT_OK) {
        devices[device].problem = (struct mt_error){0};
        atomic_store(&devices[device].pool, pool);
    }
    pthread_mutex_unlock(&lock);
    return pool;
}

const char *memtally_pool_problem(int device)
{
    return device < 0 || device >= DEVICES ? "there is no such device"
                                           : devices[device].problem.text;
}

void memtally_pool_record_stream(void *block, void *stream)
{
    uint64_t number = stream ? (uint64_t)(uintptr_t)stream : 1;
    for (int device = 0; block && device < DEVICES; device++) {
        struct mt_pool *pool = atomic_load(&devices[device].pool);
        if (pool && mt_pool_use_on_stream(pool, (uint64_t)(uintptr_t)block, number) != MT_ENOTFOUND)
            return;
    }
}

void memtally_pool_empty_cache(void)
{
    for (int device = 0; device < DEVICES; device++) {
        struct mt_pool *pool = atomic_load(&devices[device].pool);
        if (pool)
            mt_pool_trim(pool, 0);
    }
}

int64_t memtally_pool_sleep(int keeps_contents)
{
    enum mt_pool_keep keep = keeps_contents ? MT_POOL_KEEP_ALL : MT_POOL_KEEP_NOTHING;
    int64_t bytes = 0, problem = MT_OK;
    for (int device = 0; device < DEVICES; device++) {
        struct mt_pool *pool = atomic_load(&devices[device].pool);
        uint64_t released = 0;
        int code = pool ? mt_pool_sleep(pool, keep, &released) : MT_OK;
        bytes += (int64_t)released;
        if (code != MT_OK && problem == MT_OK)
            problem = code;
    }
    return problem == MT_OK ? bytes : problem;
}

int memtally_pool_wake(void)
{
    int problem = MT_OK;
    for (int device = 0; device < DEVICES; device++) {
        struct mt_pool *pool = atomic_load(&devices[device].pool);
        int code = pool ? mt_pool_wake(pool) : MT_OK;
        if (code != MT_OK && problem == MT_OK)
            problem = code;
    }
    return problem;
}

void memtally_pool_set_fraction(double part, int device)
{
    struct mt_pool *pool = memtally_pool_of_device(device);
    struct mt_pool_cuda *cuda;
    if (!pool || !(part > 0) || mt_pool_cuda_create(device, 0, &cuda, NULL) != MT_OK)
        return;
    uint64_t total = mt_pool_cuda_total_bytes(cuda);
    mt_pool_cuda_destroy(cuda);
    mt_pool_limit(pool, part < 1 ? (uint64_t)(part * (double)total) : 0, 0);
}
