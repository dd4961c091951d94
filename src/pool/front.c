/* SPDX-License-Identifier: MIT */
/* What each thread keeps for itself: the blocks up to 64 KiB that it gave back last, by exact size.
 * Taking and keeping needs no lock and no look at the pool's blocks: a table of bytes, one for each
 * 512 bytes of the small arena, says how large a block is that was handed out. */
#include "pool/pool.h"

#include <stdlib.h>
#include <sys/mman.h>

#define CLASSES    129 /* sizes in units of MT_POOL_ALIGN; 0 is none */
#define DEPTH      16
#define MOST_BYTES ((uint64_t)1 << 20)
#define KEPT       255 /* in the table: with a thread */
#define POOLS      8   /* that a thread keeps blocks of */

/* The owner alone writes; the counts may be read by others. */
struct mt_pool_front {
    struct mt_pool_front *next;        /* of the pool's */
    struct mt_pool_front *next_unused; /* whose thread has ended */
    uint64_t flush;                    /* the pool's when it was last emptied for it */
    _Atomic uint64_t bytes;
    _Atomic uint64_t n_taken, n_kept;
    uint8_t n[CLASSES];
    uint64_t addresses[CLASSES][DEPTH];
};

struct slot {
    uint64_t id; /* of a pool; 0 is none */
    struct mt_pool_front *front;
};

struct thread {
    struct slot last;
    struct slot slots[POOLS];
    unsigned n;
};

static _Thread_local struct thread mine __attribute__((tls_model("initial-exec")));

/* The pools of the process, so that a thread that ends finds those that still live. */
static struct {
    pthread_mutex_t lock;
    pthread_once_t once;
    pthread_key_t key;
    int has_key;
    struct mt_pool *pools;
    uint64_t last_id;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

static uint64_t relaxed(const _Atomic uint64_t *value)
{
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)value, memory_order_relaxed);
}

static void set_relaxed(_Atomic uint64_t *value, uint64_t to)
{
    atomic_store_explicit(value, to, memory_order_relaxed);
}

/* The table's entry for an address; NULL where it has none. */
static _Atomic uint8_t *entry_of(struct mt_pool *pool, uint64_t address)
{
    uint64_t offset = address - pool->arenas[MT_POOL_SMALL].base;
    uint64_t at = offset / MT_POOL_ALIGN;
    return offset % MT_POOL_ALIGN || at >= pool->classes_bytes ? NULL : &pool->classes[at];
}

/* Gives back the youngest blocks of a class until `keep` are left. With the pool's lock. */
static void empty(struct mt_pool *pool, struct mt_pool_front *front, unsigned class, unsigned keep)
{
    while (front->n[class] > keep) {
        mt_pool_free_locked(pool, front->addresses[class][--front->n[class]]);
        set_relaxed(&front->bytes, relaxed(&front->bytes) - class * MT_POOL_ALIGN);
    }
}

static void empty_all(struct mt_pool *pool, struct mt_pool_front *front)
{
    pthread_mutex_lock(&pool->lock);
    for (unsigned class = 1; class < CLASSES; class ++)
        empty(pool, front, class, 0);
    front->flush = atomic_load(&pool->flush);
    pthread_mutex_unlock(&pool->lock);
}

static void end_thread(void *thread_of_key)
{
    struct thread *thread = thread_of_key;
    pthread_mutex_lock(&process.lock);
    for (unsigned i = 0; i < thread->n; i++)
        for (struct mt_pool *pool = process.pools; pool; pool = pool->next)
            if (pool->id == thread->slots[i].id) {
                empty_all(pool, thread->slots[i].front);
                thread->slots[i].front->next_unused = pool->unused_fronts;
                pool->unused_fronts = thread->slots[i].front;
            }
    *thread = (struct thread){0};
    pthread_mutex_unlock(&process.lock);
}

static void make_key(void)
{
    process.has_key = pthread_key_create(&process.key, end_thread) == 0;
}

int mt_pool_front_init(struct mt_pool *pool)
{
    pthread_once(&process.once, make_key);
    if (!process.has_key)
        pool->options.no_front = 1;
    if (!pool->options.no_front) {
        uint64_t bytes = pool->arenas[MT_POOL_SMALL].size_bytes / MT_POOL_ALIGN;
        void *classes = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (classes == MAP_FAILED)
            return MT_ENOMEM;
        pool->classes = classes;
        pool->classes_bytes = bytes;
    }
    pthread_mutex_lock(&process.lock);
    pool->id = ++process.last_id;
    pool->next = process.pools;
    process.pools = pool;
    pthread_mutex_unlock(&process.lock);
    return MT_OK;
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
    if (pool->classes)
        munmap((void *)pool->classes, (size_t)pool->classes_bytes);
}

/* A slot for a pool: one of a pool that is gone, or a new one. With the process's lock. */
static struct slot *slot_for(struct thread *thread)
{
    for (unsigned i = 0; i < thread->n; i++) {
        struct mt_pool *pool = process.pools;
        while (pool && pool->id != thread->slots[i].id)
            pool = pool->next;
        if (!pool)
            return &thread->slots[i];
    }
    return thread->n < POOLS ? &thread->slots[thread->n++] : NULL;
}

static struct mt_pool_front *make_front(struct mt_pool *pool)
{
    struct mt_pool_front *front = NULL;
    pthread_mutex_lock(&process.lock);
    struct slot *slot = pthread_setspecific(process.key, &mine) == 0 ? slot_for(&mine) : NULL;
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
        *slot = (struct slot){front ? pool->id : 0, front};
    }
    pthread_mutex_unlock(&process.lock);
    return front;
}

/* The calling thread's front; with `make`, a new one where it has none. */
static struct mt_pool_front *other_front(struct mt_pool *pool, int make)
{
    struct mt_pool_front *front = NULL;
    for (unsigned i = 0; i < mine.n; i++)
        if (mine.slots[i].id == pool->id)
            front = mine.slots[i].front;
    if (!front && make)
        front = make_front(pool);
    if (front)
        mine.last = (struct slot){pool->id, front};
    return front;
}

static inline struct mt_pool_front *front_of(struct mt_pool *pool, int make)
{
    return mine.last.id == pool->id ? mine.last.front : other_front(pool, make);
}

int mt_pool_front_take(struct mt_pool *pool, uint64_t size_bytes, uint64_t *address)
{
    uint64_t class = size_bytes / MT_POOL_ALIGN;
    if (class >= CLASSES || !pool->classes)
        return 0;
    struct mt_pool_front *front = front_of(pool, 0);
    if (!front)
        return 0;
    unsigned n = front->n[class];
    if (!n) {
        if (front->flush != atomic_load(&pool->flush))
            empty_all(pool, front);
        return 0;
    }
    front->n[class] = (uint8_t)(n - 1);
    *address = front->addresses[class][n - 1];
    set_relaxed(&front->bytes, relaxed(&front->bytes) - size_bytes);
    set_relaxed(&front->n_taken, relaxed(&front->n_taken) + 1);
    atomic_store_explicit(entry_of(pool, *address), (uint8_t) class, memory_order_relaxed);
    return 1;
}

/* Makes room for one block more of a class. 1 where there is. */
static int make_room(struct mt_pool *pool, struct mt_pool_front *front, unsigned class)
{
    if (front->flush != atomic_load(&pool->flush))
        empty_all(pool, front);
    if (front->n[class] == DEPTH) {
        pthread_mutex_lock(&pool->lock);
        empty(pool, front, class, DEPTH / 2);
        pthread_mutex_unlock(&pool->lock);
    }
    return relaxed(&front->bytes) + class * MT_POOL_ALIGN <= MOST_BYTES;
}

int mt_pool_front_keep(struct mt_pool *pool, uint64_t address)
{
    _Atomic uint8_t *entry = entry_of(pool, address);
    unsigned class = entry ? atomic_load_explicit(entry, memory_order_relaxed) : 0;
    if (!class)
        return 0;
    if (class == KEPT)
        return MT_ENOTFOUND;
    struct mt_pool_front *front = front_of(pool, 1);
    if (!front)
        return 0;
    unsigned n = front->n[class];
    uint64_t bytes = relaxed(&front->bytes) + class * MT_POOL_ALIGN;
    if (n == DEPTH || bytes > MOST_BYTES) {
        if (!make_room(pool, front, class))
            return 0;
        n = front->n[class];
        bytes = relaxed(&front->bytes) + class * MT_POOL_ALIGN;
    }
    front->addresses[class][n] = address;
    front->n[class] = (uint8_t)(n + 1);
    set_relaxed(&front->bytes, bytes);
    set_relaxed(&front->n_kept, relaxed(&front->n_kept) + 1);
    atomic_store_explicit(entry, KEPT, memory_order_relaxed);
    return 1;
}

void mt_pool_front_mark(struct mt_pool *pool, uint64_t address, uint64_t size_bytes)
{
    _Atomic uint8_t *entry = entry_of(pool, address);
    uint64_t class = size_bytes / MT_POOL_ALIGN;
    if (entry)
        atomic_store_explicit(entry, class < CLASSES ? (uint8_t) class : 0, memory_order_relaxed);
}

int mt_pool_front_has(struct mt_pool *pool, uint64_t address)
{
    _Atomic uint8_t *entry = entry_of(pool, address);
    return entry && atomic_load_explicit(entry, memory_order_relaxed) == KEPT;
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
        uint64_t taken = relaxed(&front->n_taken);
        stats->front_bytes += relaxed(&front->bytes);
        stats->n_allocations += taken;
        stats->n_hits += taken;
        stats->n_front_hits += taken;
        stats->n_frees += relaxed(&front->n_kept);
    }
    stats->live_bytes -= stats->front_bytes;
}
