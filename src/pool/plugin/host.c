/* SPDX-License-Identifier: MIT */
/* One pool of host memory for the large blocks of a program. It is made at the first of them; where
 * it cannot be, as under a limit of addresses, there is none and nothing changes. */
#include "pool/plugin/host.h"
#include "pool/plugin/plugin.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <memtally/error_code.h>
#include <memtally/units.h>

#include "pool/front.h"

#define FROM_BYTES    ((uint64_t)1 << 20)
#define ADDRESS_TIMES 4
#define TICK_SECONDS  5

static struct {
    pthread_once_t once;
    pthread_once_t forks;
    int handles_forks;
    _Atomic int has_begun;       /* to make the pool */
    _Atomic uint64_t from_bytes; /* 0 until it is known */
    struct mt_pool *pool;
    _Atomic uint64_t base; /* of its large blocks; 0: there is no pool */
    uint64_t n_bytes;
    _Atomic int64_t next_tick; /* in seconds */
} host = {.once = PTHREAD_ONCE_INIT, .forks = PTHREAD_ONCE_INIT};

static _Thread_local int is_inside __attribute__((tls_model("initial-exec")));
static _Thread_local int holds_locks __attribute__((tls_model("initial-exec")));

static uint64_t size_of(const char *name, uint64_t without)
{
    const char *text = getenv(name);
    uint64_t bytes;
    return text && mt_parse_size(text, &bytes) == MT_OK ? bytes : without;
}

/* ---- forks ---- */

static void before_fork(void)
{
    holds_locks = atomic_load(&host.has_begun);
    if (holds_locks)
        mt_pool_front_lock_all();
}

static void after_fork(void)
{
    if (holds_locks)
        mt_pool_front_unlock_all();
}

static void in_child(void)
{
    is_inside = 1;
    if (holds_locks)
        mt_pool_front_take_over_all();
    is_inside = 0;
}

static void handle_forks(void)
{
    host.handles_forks = pthread_atfork(before_fork, after_fork, in_child) == 0;
}

/* Who is registered first is called last before a fork and first in its child. So nobody else's
 * handler, which may take a block or wait for a thread that does, is called while we hold locks. */
__attribute__((constructor)) static void begin(void)
{
    pthread_once(&host.forks, handle_forks);
}

/* ---- the pool ---- */

static void make(void)
{
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    struct mt_pool_options options = {.max_bytes = size_of("MEMTALLY_POOL_MAX", 0),
                                      .address_bytes = ADDRESS_TIMES * memory};
    pthread_once(&host.forks, handle_forks);
    atomic_store(&host.has_begun, 1);
    if (!host.handles_forks ||
        mt_pool_create(mt_pool_host_backend(), &options, &host.pool, NULL) != MT_OK)
        return;
    host.n_bytes = host.pool->arenas[MT_POOL_LARGE].size_bytes;
    atomic_store(&host.base, host.pool->arenas[MT_POOL_LARGE].base);
}

int mt_pool_host_wants(size_t bytes)
{
    uint64_t from = atomic_load_explicit(&host.from_bytes, memory_order_relaxed);
    if (bytes < (from ? from : FROM_BYTES) || is_inside)
        return 0;
    if (!from) {
        from = size_of("MEMTALLY_POOL_FROM", FROM_BYTES);
        atomic_store(&host.from_bytes, from < FROM_BYTES ? FROM_BYTES : from);
    }
    return bytes >= from;
}

/* Pages that were not used for some minutes go back, as long as the program takes large blocks. */
static void tick(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    int64_t next = atomic_load_explicit(&host.next_tick, memory_order_relaxed);
    if (now.tv_sec >= next &&
        atomic_compare_exchange_strong(&host.next_tick, &next, now.tv_sec + TICK_SECONDS))
        mt_pool_tick(host.pool);
}

void *mt_pool_host_take(size_t bytes)
{
    uint64_t address = 0;
    is_inside = 1;
    pthread_once(&host.once, make);
    if (atomic_load(&host.base)) {
        tick();
        /* One more byte, for the pool has what is smaller elsewhere. */
        if (bytes <= MT_POOL_SMALL_BYTES)
            bytes = MT_POOL_SMALL_BYTES + 1;
        if (mt_pool_allocate(host.pool, bytes, 0, &address) != MT_OK)
            address = 0;
    }
    is_inside = 0;
    return (void *)(uintptr_t)address;
}

int mt_pool_host_has(const void *block)
{
    uint64_t base = atomic_load_explicit(&host.base, memory_order_relaxed);
    return base && (uint64_t)(uintptr_t)block - base < host.n_bytes;
}

size_t mt_pool_host_usable(const void *block)
{
    uint64_t address = (uint64_t)(uintptr_t)block;
    const _Atomic uint32_t *entry = mt_pool_large_entry(host.pool, address);
    uint32_t units = entry ? atomic_load_explicit(entry, memory_order_relaxed) : 0;
    if (units)
        return (size_t)(units & ~MT_POOL_WITH) * MT_POOL_ALIGN;
    is_inside = 1;
    uint64_t bytes = mt_pool_block_bytes(host.pool, address);
    is_inside = 0;
    return (size_t)bytes;
}

void mt_pool_host_give(void *block)
{
    is_inside = 1;
    mt_pool_free(host.pool, (uint64_t)(uintptr_t)block);
    tick();
    is_inside = 0;
}

int mt_pool_host_trim(void)
{
    if (!atomic_load(&host.base) || is_inside)
        return 0;
    is_inside = 1;
    uint64_t bytes = mt_pool_trim(host.pool, 0);
    is_inside = 0;
    return bytes != 0;
}

int memtally_pool_host_stats(struct mt_pool_stats *stats)
{
    if (!atomic_load(&host.base))
        return MT_ENOTFOUND;
    is_inside = 1;
    mt_pool_stats_read(host.pool, stats);
    is_inside = 0;
    return MT_OK;
}
