/* SPDX-License-Identifier: MIT */
/* A pool of memory for blocks that come and go.
 *
 *     struct mt_pool_options options = {.max_bytes = (uint64_t)2 << 30};
 *     struct mt_pool *pool;
 *     if (mt_pool_create(mt_pool_host_backend(), &options, &pool, NULL) == MT_OK) {
 *         uint64_t address;
 *         if (mt_pool_allocate(pool, bytes, 0, &address) == MT_OK)
 *             mt_pool_free(pool, address);
 *         mt_pool_destroy(pool);
 *     }
 *
 * A pool reserves a range of addresses once, backs it with pages of memory as it grows, and keeps
 * the pages. Near its soft limit it takes whole pages out of free blocks and puts them where room
 * is needed, before it asks the backend for more. It writes nothing into the memory that it hands
 * out.
 *
 * Addresses are 512-byte aligned. A block is rounded up to 512 bytes. Sizes are in bytes, times in
 * nanoseconds of the pool's clock. A stream is a number that the backend understands; 0 means that
 * no order of a stream applies: a block given back is free at once, for everyone.
 *
 * Threads. Every function may be called from any thread, but nothing may run while
 * mt_pool_destroy() does. Blocks up to 64 KiB of stream 0 stay with the thread that gave them back,
 * up to 1 MiB a thread, until it ends. So do up to 16 larger blocks, until the thread requests a
 * large block of another size, or the pool would have to grow, is trimmed or ticks. A child of
 * fork() must not use a pool of its parent. */
#ifndef MEMTALLY_POOL_H
#define MEMTALLY_POOL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */

/* Where a pool's memory comes from: in pages that are attached to addresses (reserve to detach), or
 * in segments at addresses of the backend's own (take and give), the others then being NULL.
 * Functions return 0 or a negative MT_E code, and change nothing
 * where they fail. The pool calls them under its lock, one at a time; they must not call the pool.
 * The three of events are NULL where there are no streams. */
struct mt_pool_backend {
    void *context;       /* handed to each function */
    uint64_t page_bytes; /* a power of two, at least 64 KiB */
    /* A range of addresses without memory, aligned to a page. */
    int (*reserve)(void *context, uint64_t bytes, uint64_t *address);
    /* Gives a range back; nothing is attached in it any more. */
    void (*unreserve)(void *context, uint64_t address, uint64_t bytes);
    /* A page of memory, attached nowhere. */
    int (*create)(void *context, uint64_t *page);
    /* Gives a page back that is attached nowhere. */
    void (*destroy)(void *context, uint64_t page);
    /* Puts a page at an address of a reserved range where none is. */
    int (*attach)(void *context, uint64_t address, uint64_t page);
    /* Makes a range usable whose pages were attached. */
    int (*enable)(void *context, uint64_t address, uint64_t bytes);
    /* Takes a page away from its address. Nothing uses its contents any more. */
    int (*detach)(void *context, uint64_t address, uint64_t page);
    /* An event that is done when all work put on the stream before is done. */
    int (*record)(void *context, uint64_t stream, uint64_t *event);
    /* 1 where the event is done, 0 where not; with `wait`, waits until it is. */
    int (*query)(void *context, uint64_t event, int wait);
    /* Gives an event back. */
    void (*forget)(void *context, uint64_t event);
    /* A segment of a multiple of page_bytes, at an address that is a multiple of 512. */
    int (*take)(void *context, uint64_t bytes, uint64_t *address);
    /* Gives a segment back, a whole one. Nothing uses it any more. */
    void (*give)(void *context, uint64_t address, uint64_t bytes);
    /* Copies memory of the pool to the host, or back, and waits until that is done. NULL where
     * memory cannot be copied. */
    int (*copy)(void *context, uint64_t address, void *host, uint64_t bytes, int is_back);
};

/* Host memory in pages of 2 MiB, huge where the kernel allows. Borrowed, static. Any thread. */
const struct mt_pool_backend *mt_pool_host_backend(void);

/* The memory of a CUDA device, by the driver's calls of virtual memory. The driver is opened when
 * it is asked for. A stream is a CUstream as a number; the default stream is 1 (CU_STREAM_LEGACY)
 * or 2 (CU_STREAM_PER_THREAD). A stream must not be destroyed while the pool has blocks of it, and
 * while it captures a graph, nothing given back on it becomes free for other streams. What a
 * captured graph uses must stay live as long as the graph. */
struct mt_pool_cuda;

/* The device of a number, in pages of `page_bytes`: 0 is 2 MiB. Owned: mt_pool_cuda_destroy(),
 * after its pools. Errors: MT_ENOTFOUND (no driver, no such device), MT_EUNSUPPORTED (the driver
 * has no virtual memory), MT_EARG (such pages do not exist). */
int mt_pool_cuda_create(int device, uint64_t page_bytes, struct mt_pool_cuda **cuda,
                        struct mt_error *error);

/* Memory of the host that a device reaches without a copy, as cuMemHostAlloc() gives it: in
 * segments of whole 2 MiB, never rounded up to a power of two. Owned and errors as above. */
int mt_pool_cuda_pinned_create(int device, struct mt_pool_cuda **cuda, struct mt_error *error);

/* A device's memory from a pool of the driver's (cuMemAllocFromPoolAsync(), version 11.2 and
 * newer), made for this one alone, in segments of whole 32 MiB, for the driver reserves no less.
 * Owned and errors as above. */
int mt_pool_cuda_ordered_create(int device, struct mt_pool_cuda **cuda, struct mt_error *error);

/* Ends it. NULL is allowed. */
void mt_pool_cuda_destroy(struct mt_pool_cuda *cuda);

/* The backend of the device. Borrowed: lives as long as `cuda`. */
const struct mt_pool_backend *mt_pool_cuda_backend(struct mt_pool_cuda *cuda);

/* What memory the device has in all. */
uint64_t mt_pool_cuda_total_bytes(const struct mt_pool_cuda *cuda);

/* What the pool tells on_shortage if a request finds no room. */
struct mt_pool_shortage {
    uint64_t requested_bytes;
    uint64_t reserved_bytes;
    uint64_t free_bytes;         /* in free blocks, of whatever stream */
    uint64_t largest_free_bytes; /* of one free block */
    unsigned attempt;            /* 0 at the first call for this request */
    unsigned hints;              /* of the request */
};

/* Zeros are the defaults. */
struct mt_pool_options {
    uint64_t max_bytes; /* pages held at most; 0: no bound but the backend's */
    uint64_t
        soft_bytes; /* from here on free pages are moved before new ones are made; 0: max_bytes */
    uint64_t address_bytes; /* reserved for each of three ranges; 0: 16 times max_bytes, or 1 TiB */
    uint64_t max_age_ns; /* mt_pool_tick() gives pages back that were free so long; 0: 5 minutes */
    unsigned no_front : 1;             /* threads keep no blocks; so it is with segments */
    uint64_t (*now_ns)(void *context); /* the clock; NULL: CLOCK_MONOTONIC */
    /* Called without a lock where a request finds no room, up to 8 times. It may give blocks back
     * and trim. Nonzero: try again. NULL: the request fails at once. */
    int (*on_shortage)(void *context, const struct mt_pool_shortage *shortage);
    /* Told of each page that is attached or detached, under the pool's lock: it must not call the
     * pool. NULL: nobody is. */
    void (*on_page)(void *context, uint64_t address, uint64_t bytes, int is_attached);
    void *context; /* handed to the three functions above */
};

/* Counts since the pool was made, and bytes now. Equation: reserved_bytes == attached pages and
 * spare pages; live_bytes + free_bytes + pending_bytes + front_bytes + spare_bytes ==
 * reserved_bytes while no other thread is at work and the pool does not sleep. */
struct mt_pool_stats {
    uint64_t live_bytes;      /* of blocks handed out, rounded */
    uint64_t peak_live_bytes; /* with front_bytes */
    uint64_t reserved_bytes;
    uint64_t peak_reserved_bytes;
    uint64_t free_bytes;    /* in free blocks */
    uint64_t pending_bytes; /* given back, but other streams may still use them */
    uint64_t front_bytes;   /* kept by threads */
    uint64_t spare_bytes;   /* in pages that are attached nowhere */
    uint64_t largest_free_bytes;
    uint64_t address_bytes_used; /* of all ranges, holes included */
    uint64_t n_allocations;
    uint64_t n_frees;
    uint64_t n_hits;       /* served without growth */
    uint64_t n_front_hits; /* of them, by the thread's own blocks */
    uint64_t n_misses;     /* needed growth */
    uint64_t n_failures;   /* found no room */
    uint64_t n_growths;
    uint64_t n_pages_made;
    uint64_t n_pages_moved;
    uint64_t n_pages_returned;
    uint64_t n_rollbacks;
    uint64_t n_waits;      /* for an event, near a limit */
    uint64_t copied_bytes; /* kept on the host while the pool sleeps */
};

struct mt_pool;

/* Makes a pool over a backend, which is copied; its context must outlive the pool. `options` may
 * be NULL. The pool is owned: mt_pool_destroy(). Errors: MT_EARG, MT_ENOMEM, the backend's. */
int mt_pool_create(const struct mt_pool_backend *backend, const struct mt_pool_options *options,
                   struct mt_pool **pool, struct mt_error *error);

/* Gives everything back, live blocks too, after waiting for events. NULL is allowed. */
void mt_pool_destroy(struct mt_pool *pool);

/* A block of at least `bytes` (0 counts as 1) for a stream. Owned: mt_pool_free(). Errors: MT_EARG
 * (a stream of a backend without), MT_ELIMIT (max_bytes or the addresses are used up), MT_ENOMEM
 * or another of the backend's. Any thread. */
int mt_pool_allocate(struct mt_pool *pool, uint64_t bytes, uint64_t stream, uint64_t *address);

/* What a caller knows of a block before. */
enum mt_pool_hint {
    /* It lives long, as weights and caches do: it lies in a range of its own, apart from what comes
     * and goes. */
    MT_POOL_LONG_LIVED = 1,
    /* The caller can do without: the request is refused (MT_ELIMIT) rather than that the pool goes
     * past its soft limit, moves pages, waits for a stream or calls on_shortage for it. */
    MT_POOL_YIELDING = 2,
};

/* mt_pool_allocate() with hints: 0 or several of enum mt_pool_hint. Errors: also MT_EARG (other
 * hints). */
int mt_pool_allocate_hinted(struct mt_pool *pool, uint64_t bytes, uint64_t stream, unsigned hints,
                            uint64_t *address);

/* Gives a block back, in the order of its stream. Address 0 is allowed. Errors: MT_ENOTFOUND where
 * no live block begins at the address, which is not always seen for blocks that a thread keeps. */
int mt_pool_free(struct mt_pool *pool, uint64_t address);

/* Says that `stream` uses a live block too: it is not handed out again before that work is done.
 * Errors: MT_ENOTFOUND, MT_EARG (no streams), MT_ELIMIT (more than 8 streams). */
int mt_pool_use_on_stream(struct mt_pool *pool, uint64_t address, uint64_t stream);

/* The usable bytes of the live block that begins at an address; 0 where none does. */
uint64_t mt_pool_block_bytes(struct mt_pool *pool, uint64_t address);

/* Sets both limits, as in struct mt_pool_options, for requests from now on. What is held beyond
 * them stays held. */
void mt_pool_limit(struct mt_pool *pool, uint64_t max_bytes, uint64_t soft_bytes);

/* Gives free pages back until no more than `keep_bytes` are held, the largest free blocks first.
 * The calling thread's blocks are given back before, other threads' at their next request that
 * looks into the pool. Returns the bytes given back. */
uint64_t mt_pool_trim(struct mt_pool *pool, uint64_t keep_bytes);

/* Which contents a pool keeps on the host while it sleeps. */
enum mt_pool_keep {
    MT_POOL_KEEP_NOTHING,
    MT_POOL_KEEP_LONG, /* of blocks that were requested as MT_POOL_LONG_LIVED */
    MT_POOL_KEEP_ALL
};

/* Waits for all work on the pool's streams and gives all memory back, but no address: live blocks
 * stay where they are, and nothing may use them until mt_pool_wake(). Meanwhile requests fail with
 * MT_EBUSY, and blocks may be given back. No other thread may request anything while this runs.
 * *released_bytes is what was given back. Errors, after which all is as before but that free pages
 * may be gone: MT_EBUSY (it sleeps, or a stream cannot be waited for, as while it captures a
 * graph), MT_EUNSUPPORTED (memory in segments, or memory that cannot be copied), MT_ENOMEM, the
 * backend's. */
int mt_pool_sleep(struct mt_pool *pool, enum mt_pool_keep keep, uint64_t *released_bytes);

/* Takes memory again, at the same addresses, and puts back what was kept. Does nothing to a pool
 * that does not sleep. After an error it sleeps on, with all that it keeps. Errors: MT_ELIMIT,
 * MT_ENOMEM, the backend's. */
int mt_pool_wake(struct mt_pool *pool);

/* Gives pages back that were free for max_age_ns. Call it now and then. Returns the bytes. */
uint64_t mt_pool_tick(struct mt_pool *pool);

/* Fills in *stats. */
void mt_pool_stats_read(struct mt_pool *pool, struct mt_pool_stats *stats);

/* The policy `rounding`, for who wants just that: sizes are rounded up, below 1 MB to 0.1 MB, below
 * 10 MB to 1 MB, below 100 MB to 10 MB, above to 50 MB (of 1,000,000 bytes), and a block that is
 * given back serves requests of its rounded size and its stream alone. It wastes what the rounding
 * adds, and keeps what no request of that size comes for until it is trimmed or the pool is short.
 * Any thread. */
struct mt_pool_rounding;

/* What a request of so many bytes takes. */
uint64_t mt_pool_rounded_bytes(uint64_t bytes);

/* The policy over a pool without fronts, which it borrows. Owned: mt_pool_rounding_destroy(),
 * before the pool. Errors: MT_ENOMEM. */
int mt_pool_rounding_create(struct mt_pool *pool, struct mt_pool_rounding **rounding);

/* As mt_pool_allocate(). What is kept goes back to the pool before a request fails. */
int mt_pool_rounding_allocate(struct mt_pool_rounding *rounding, uint64_t bytes, uint64_t stream,
                              uint64_t *address);

/* Keeps a block that mt_pool_rounding_allocate() gave, once. Errors: MT_ENOTFOUND. */
int mt_pool_rounding_free(struct mt_pool_rounding *rounding, uint64_t address);

/* Gives what is kept to the pool, which may be trimmed then. */
void mt_pool_rounding_trim(struct mt_pool_rounding *rounding);

/* Requests that were served from what was kept, and those that were not. */
void mt_pool_rounding_count(struct mt_pool_rounding *rounding, uint64_t *n_hits,
                            uint64_t *n_misses);

/* Gives what is kept to the pool. NULL is allowed. */
void mt_pool_rounding_destroy(struct mt_pool_rounding *rounding);

/* A device that has no memory, for tests and plans: it holds its callers to the rules of struct
 * mt_pool_backend. Events are done when mt_pool_simulated_complete() was called for their stream.
 */
struct mt_pool_simulated;

/* A device of so many bytes. Owned. Errors: MT_EARG, MT_ENOMEM. */
int mt_pool_simulated_create(uint64_t capacity_bytes, uint64_t page_bytes,
                             struct mt_pool_simulated **device, struct mt_error *error);

/* Ends the device. Returns how many times a rule was broken, things left behind included. NULL is
 * allowed. */
uint64_t mt_pool_simulated_destroy(struct mt_pool_simulated *device);

/* The backend of the device. Borrowed: lives as long as the device. */
const struct mt_pool_backend *mt_pool_simulated_backend(struct mt_pool_simulated *device);

/* The same device's memory in segments at addresses of its own. Borrowed. */
const struct mt_pool_backend *mt_pool_simulated_segments(struct mt_pool_simulated *device);

/* All work put on a stream so far is done. */
void mt_pool_simulated_complete(struct mt_pool_simulated *device, uint64_t stream);

#ifdef __cplusplus
}
#endif
#endif
