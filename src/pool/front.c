/* SPDX-License-Identifier: MIT */
/* What each thread keeps for itself: where the quick way of front.h does not serve. Threads come
 * and go; pools too. */
#include "pool/front.h"

#include <stdlib.h>
#include <sys/mman.h>

#include <memtally/error_code.h>

_Thread_local struct mt_pool_thread mt_pool_mine __attribute__((tls_model("initial-exec")));

/* The pools of the process, so that a thread that ends finds those that still live. */
static struct {
    pthread_mutex_t lock;
    pthread_once_t once;
    pthread_key_t key;
    int has_key;
    struct mt_pool *pools;
    uint64_t last_id;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

/* Gives back the youngest blocks of a class until `keep` are left. With the pool's lock. */
static void empty(struct mt_pool *pool, struct mt_pool_front *front, unsigned key, unsigned keep)
{
    unsigned n = atomic_load_explicit(&front->n[key], memory_order_relaxed);
    while (n > keep) {
        mt_pool_free_locked(pool, front->addresses[key][--n]);
        atomic_store_explicit(&front->n[key], (uint8_t)n, memory_order_relaxed);
    }
}

/* Takes the large blocks that a thread keeps back into the pool, from whatever thread. 1 where
 * there were any. With the pool's lock. */
static int empty_large(struct mt_pool *pool, struct mt_pool_front *front)
{
    int any = 0;
    for (unsigned i = 0; i < MT_POOL_FEW; i++) {
        uint64_t large = 0;
        if (mt_pool_read(&front->large_addresses[i]))
            large = atomic_exchange_explicit(&front->large_addresses[i], 0, memory_order_acq_rel);
        if (large)
            mt_pool_free_locked(pool, large);
        any |= large != 0;
    }
    return any;
}

/* The same of the calling thread's own, which knows then that it has none. */
static void empty_own_large(struct mt_pool *pool, struct mt_pool_front *front)
{
    if (front->n_large)
        empty_large(pool, front);
    front->n_large = 0;
}

int mt_pool_front_reclaim(struct mt_pool *pool)
{
    int any = mt_pool_transfer_reclaim(pool);
    for (struct mt_pool_front *front = pool->fronts; front; front = front->next)
        any |= empty_large(pool, front);
    return any;
}

void mt_pool_front_put_back(struct mt_pool *pool)
{
    if (mt_pool_mine.last.id == pool->id)
        empty_own_large(pool, mt_pool_mine.last.front);
}

static void empty_all(struct mt_pool *pool, struct mt_pool_front *front)
{
    pthread_mutex_lock(&pool->lock);
    empty_own_large(pool, front);
    if (mt_pool_read(&front->youngest_units))
        mt_pool_free_locked(pool, front->youngest);
    atomic_store_explicit(&front->youngest_units, 0, memory_order_relaxed);
    for (unsigned key = 0; key < MT_POOL_CLASSES; key++)
        empty(pool, front, key, 0);
    front->flush = atomic_load(&pool->flush);
    pthread_mutex_unlock(&pool->lock);
}

static void end_thread(void *thread_of_key)
{
    struct mt_pool_thread *thread = thread_of_key;
    pthread_mutex_lock(&process.lock);
    for (unsigned i = 0; i < thread->n; i++)
        for (struct mt_pool *pool = process.pools; pool; pool = pool->next)
            if (pool->id == thread->slots[i].id) {
                empty_all(pool, thread->slots[i].front);
                thread->slots[i].front->next_unused = pool->unused_fronts;
                pool->unused_fronts = thread->slots[i].front;
            }
    *thread = (struct mt_pool_thread){0};
    pthread_mutex_unlock(&process.lock);
}

static void make_key(void)
{
    process.has_key = pthread_key_create(&process.key, end_thread) == 0;
}

void *mt_pool_make_table(uint64_t bytes)
{
    void *table = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return table == MAP_FAILED ? NULL : table;
}

int mt_pool_front_init(struct mt_pool *pool)
{
    pthread_once(&process.once, make_key);
    if (!process.has_key)
        pool->options.no_front = 1;
    if (!pool->options.no_front) {
        uint64_t n = pool->arenas[MT_POOL_SMALL].size_bytes / MT_POOL_ALIGN;
        pool->classes = mt_pool_make_table(n);
        if (!pool->classes)
            return MT_ENOMEM;
        pool->n_classes = n;
        /* Without this one large blocks go through the pool. */
        n = pool->arenas[MT_POOL_LARGE].size_bytes / MT_POOL_ALIGN;
        if (n <= MT_POOL_WITH)
            pool->sizes = mt_pool_make_table(n * sizeof *pool->sizes);
        pool->n_sizes = pool->sizes ? n : 0;
    }
    pthread_mutex_lock(&process.lock);
    pool->id = ++process.last_id;
    atomic_store(&pool->front_id, pool->id);
    pool->next = process.pools;
    process.pools = pool;
    pthread_mutex_unlock(&process.lock);
    return MT_OK;
}

void mt_pool_front_lock_all(void)
{
    pthread_mutex_lock(&process.lock);
    for (struct mt_pool *pool = process.pools; pool; pool = pool->next)
        pthread_mutex_lock(&pool->lock);
}

void mt_pool_front_unlock_all(void)
{
    for (struct mt_pool *pool = process.pools; pool; pool = pool->next)
        pthread_mutex_unlock(&pool->lock);
    pthread_mutex_unlock(&process.lock);
}

/* The calling thread's front, or NULL. */
static struct mt_pool_front *slot_front(const struct mt_pool *pool)
{
    struct mt_pool_front *front = NULL;
    for (unsigned i = 0; i < mt_pool_mine.n; i++)
        if (mt_pool_mine.slots[i].id == pool->id)
            front = mt_pool_mine.slots[i].front;
    return front;
}

static void forget(struct mt_pool_front *front)
{
    atomic_store_explicit(&front->youngest_units, 0, memory_order_relaxed);
    front->n_large = 0;
    for (unsigned i = 0; i < MT_POOL_FEW; i++)
        atomic_store_explicit(&front->large_addresses[i], 0, memory_order_relaxed);
    for (unsigned key = 0; key < MT_POOL_CLASSES; key++)
        atomic_store_explicit(&front->n[key], 0, memory_order_relaxed);
}

/* No block that is handed out is joined with another or cut, so that it is still there after the
 * one before it went back. */
static struct mt_pool_block *next_live(struct mt_pool_block *block)
{
    while (block && block->state != MT_POOL_LIVE)
        block = block->next;
    return block;
}

/* The tables tell what was with a thread, wherever between two steps that thread was. With both
 * locks. */
static void take_over(struct mt_pool *pool)
{
    struct mt_pool_front *own = slot_front(pool);
    if (!pool->transfer && (!pool->fronts || (pool->fronts == own && !own->next)))
        return;
    pool->unused_fronts = NULL;
    for (struct mt_pool_front *front = pool->fronts; front; front = front->next) {
        forget(front);
        if (front == own)
            continue;
        front->next_unused = pool->unused_fronts;
        pool->unused_fronts = front;
    }
    mt_pool_transfer_forget(pool);
    for (unsigned i = 0; i < MT_POOL_ARENAS; i++) {
        struct mt_pool_block *block = next_live(pool->arenas[i].first);
        while (block) {
            struct mt_pool_block *next = next_live(block->next);
            if (mt_pool_front_has(pool, block->address))
                mt_pool_free_locked(pool, block->address);
            block = next;
        }
    }
}

void mt_pool_front_take_over_all(void)
{
    for (struct mt_pool *pool = process.pools; pool; pool = pool->next)
        take_over(pool);
    mt_pool_front_unlock_all();
}

void mt_pool_front_finish(struct mt_pool *pool)
{
    pthread_mutex_lock(&process.lock);
    struct mt_pool **link = &process.pools;
    while (*link != pool)
        link = &(*link)->next;
    *link = pool->next;
    pthread_mutex_unlock(&process.lock);
    for (struct mt_pool_front *front = pool->fronts, *next; front; front = next) {
        next = front->next;
        free(front);
    }
    mt_pool_transfer_finish(pool);
    if (pool->classes)
        munmap((void *)pool->classes, (size_t)pool->n_classes);
    if (pool->sizes)
        munmap((void *)pool->sizes, (size_t)pool->n_sizes * sizeof *pool->sizes);
}

/* A slot for a pool: one of a pool that is gone, or a new one. With the process's lock. */
static struct mt_pool_slot *slot_for(struct mt_pool_thread *thread)
{
    for (unsigned i = 0; i < thread->n; i++) {
        struct mt_pool *pool = process.pools;
        while (pool && pool->id != thread->slots[i].id)
            pool = pool->next;
        if (!pool)
            return &thread->slots[i];
    }
    return thread->n < MT_POOL_SLOTS ? &thread->slots[thread->n++] : NULL;
}

static struct mt_pool_front *make_front(struct mt_pool *pool)
{
    struct mt_pool_front *front = NULL;
    pthread_mutex_lock(&process.lock);
    struct mt_pool_slot *slot =
        pthread_setspecific(process.key, &mt_pool_mine) == 0 ? slot_for(&mt_pool_mine) : NULL;
    if (slot) {
        front = pool->unused_fronts;
        if (front)
            pool->unused_fronts = front->next_unused;
        else if ((front = calloc(1, sizeof *front))) {
            pthread_mutex_lock(&pool->lock);
            front->next = pool->fronts;
            pool->fronts = front;
            pthread_mutex_unlock(&pool->lock);
        }
        *slot = (struct mt_pool_slot){front ? pool->id : 0, front};
    }
    pthread_mutex_unlock(&process.lock);
    return front;
}

/* The calling thread's front; with `make`, a new one where it has none. */
static struct mt_pool_front *other_front(struct mt_pool *pool, int make)
{
    struct mt_pool_front *front = slot_front(pool);
    if (!front && make)
        front = make_front(pool);
    if (front)
        mt_pool_mine.last = (struct mt_pool_slot){pool->id, front};
    return front;
}

static inline struct mt_pool_front *front_of(struct mt_pool *pool, int make)
{
    return mt_pool_mine.last.id == pool->id ? mt_pool_mine.last.front : other_front(pool, make);
}

static int pop(struct mt_pool *pool, uint64_t bytes, uint64_t *address)
{
    return bytes > MT_POOL_CLASSES * (uint64_t)MT_POOL_ALIGN
               ? mt_pool_front_pop_large(pool, bytes, address)
               : mt_pool_front_pop_small(pool, bytes, address);
}

int mt_pool_front_take(struct mt_pool *pool, uint64_t bytes, uint64_t *address)
{
    if (mt_pool_mine.last.id != pool->id && other_front(pool, 0) && pop(pool, bytes, address))
        return 1;
    uint64_t key = (bytes - 1) / MT_POOL_ALIGN;
    int is_on_way = mt_pool_transfer_has(pool, key);
    struct mt_pool_front *front = front_of(pool, is_on_way);
    if (!front)
        return 0;
    front->n_missed++;
    if (front->flush != atomic_load(&pool->flush))
        empty_all(pool, front);
    if (!is_on_way)
        return 0;
    mt_pool_transfer_take(pool, front, key);
    return pop(pool, bytes, address);
}

/* The large blocks that the thread keeps go back where they are many, and this one comes instead.
 */
static int keep_large(struct mt_pool *pool, uint64_t address)
{
    const _Atomic uint32_t *entry = mt_pool_large_entry(pool, address);
    uint32_t units = entry ? atomic_load_explicit(entry, memory_order_relaxed) : 0;
    if (units & MT_POOL_WITH)
        return MT_ENOTFOUND;
    struct mt_pool_front *front = units ? front_of(pool, 1) : NULL;
    if (!front)
        return 0;
    if (front->n_large == MT_POOL_FEW && !mt_pool_transfer_give_large(pool, front)) {
        pthread_mutex_lock(&pool->lock);
        empty_own_large(pool, front);
        pthread_mutex_unlock(&pool->lock);
    }
    return mt_pool_front_push_large(pool, address);
}

/* Gives half of each class back, which has room for what it keeps then and no more. */
static void shrink(struct mt_pool *pool, struct mt_pool_front *front)
{
    front->granted_bytes = 0;
    for (unsigned key = 0; key < MT_POOL_CLASSES; key++) {
        unsigned n = atomic_load_explicit(&front->n[key], memory_order_relaxed) / 2u;
        empty(pool, front, key, n);
        front->room[key] = (uint8_t)n;
        front->granted_bytes += n * (key + 1) * (uint64_t)MT_POOL_ALIGN;
    }
}

void mt_pool_front_grant(struct mt_pool *pool, struct mt_pool_front *front, unsigned key,
                         unsigned want)
{
    uint64_t each = (key + 1) * (uint64_t)MT_POOL_ALIGN;
    if (want > MT_POOL_DEPTH)
        want = MT_POOL_DEPTH;
    if (want <= front->room[key])
        return;
    unsigned more = want - front->room[key];
    if (front->granted_bytes + more * each > MT_POOL_MOST) {
        shrink(pool, front);
        more = 1;
    }
    front->room[key] = (uint8_t)(front->room[key] + more);
    front->granted_bytes += more * each;
}

/* Makes room for one more of a class: the double of what it had, while all are within bounds. */
static void make_room(struct mt_pool *pool, struct mt_pool_front *front, unsigned key)
{
    unsigned room = front->room[key];
    if (room == MT_POOL_DEPTH && mt_pool_transfer_give(pool, front, key))
        return;
    pthread_mutex_lock(&pool->lock);
    if (room == MT_POOL_DEPTH)
        empty(pool, front, key, MT_POOL_DEPTH / 2);
    else
        mt_pool_front_grant(pool, front, key, room ? 2 * room : 1);
    pthread_mutex_unlock(&pool->lock);
}

int mt_pool_front_keep(struct mt_pool *pool, uint64_t address)
{
    const _Atomic uint8_t *entry = mt_pool_small_entry(pool, address);
    if (!entry)
        return keep_large(pool, address);
    unsigned units = atomic_load_explicit(entry, memory_order_relaxed);
    if (units == MT_POOL_KEPT)
        return MT_ENOTFOUND;
    struct mt_pool_front *front = units ? front_of(pool, 1) : NULL;
    if (!front)
        return 0;
    if (front->flush != atomic_load(&pool->flush))
        empty_all(pool, front);
    if (mt_pool_front_push_small(pool, address))
        return 1;
    uint64_t youngest_units = mt_pool_read(&front->youngest_units);
    if (youngest_units) /* which had no room among the others of its size */
        make_room(pool, front, (unsigned)youngest_units - 1);
    return mt_pool_front_push_small(pool, address);
}

void mt_pool_front_mark(struct mt_pool *pool, uint64_t address, uint64_t size_bytes)
{
    _Atomic uint8_t *small = mt_pool_small_entry(pool, address);
    _Atomic uint32_t *large = mt_pool_large_entry(pool, address);
    uint64_t units = size_bytes / MT_POOL_ALIGN;
    if (small)
        atomic_store_explicit(small, units <= MT_POOL_CLASSES ? (uint8_t)units : 0,
                              memory_order_relaxed);
    else if (large)
        atomic_store_explicit(large, units < MT_POOL_WITH ? (uint32_t)units : 0,
                              memory_order_relaxed);
}

int mt_pool_front_has(struct mt_pool *pool, uint64_t address)
{
    const _Atomic uint8_t *small = mt_pool_small_entry(pool, address);
    const _Atomic uint32_t *large = mt_pool_large_entry(pool, address);
    if (small)
        return atomic_load_explicit(small, memory_order_relaxed) == MT_POOL_KEPT;
    return large && atomic_load_explicit(large, memory_order_relaxed) & MT_POOL_WITH;
}

void mt_pool_front_flush(struct mt_pool *pool)
{
    struct mt_pool_front *front = front_of(pool, 0);
    if (front)
        empty_all(pool, front);
}

void mt_pool_front_count(struct mt_pool *pool, struct mt_pool_stats *stats)
{
    for (struct mt_pool_front *front = pool->fronts; front; front = front->next) {
        uint64_t taken = mt_pool_read(&front->n_taken);
        for (unsigned i = 0; i < MT_POOL_FEW; i++) {
            uint64_t large = mt_pool_read(&front->large_addresses[i]);
            const struct mt_pool_block *block =
                large ? mt_pool_table_find(&pool->live, large) : NULL;
            stats->front_bytes += block ? block->size_bytes : 0;
        }
        stats->front_bytes += mt_pool_read(&front->youngest_units) * MT_POOL_ALIGN;
        for (unsigned key = 0; key < MT_POOL_CLASSES; key++)
            stats->front_bytes += atomic_load_explicit(&front->n[key], memory_order_relaxed) *
                                  (key + 1) * (uint64_t)MT_POOL_ALIGN;
        stats->n_allocations += taken;
        stats->n_hits += taken;
        stats->n_front_hits += taken;
        stats->n_frees += mt_pool_read(&front->n_kept);
    }
    stats->front_bytes += mt_pool_transfer_bytes(pool);
    /* What moves meanwhile may be counted twice. */
    stats->live_bytes -=
        stats->front_bytes < stats->live_bytes ? stats->front_bytes : stats->live_bytes;
}
