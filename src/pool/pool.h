/* SPDX-License-Identifier: MIT */
/* A pool's parts, for the files of the room. All but the fronts is guarded by `lock`. */
#ifndef MT_POOL_POOL_H
#define MT_POOL_POOL_H

#include <pthread.h>
#include <stdatomic.h>

#include "pool/arena.h"

#define MT_POOL_SMALL_BYTES ((uint64_t)1 << 18) /* the largest of the arena of small blocks */
#define MT_POOL_MAX_USES    8u
#define MT_POOL_TICKS       128u
#define MT_POOL_NO_FRONT    UINT64_MAX /* the id of no pool, nor of a thread without any */

enum { MT_POOL_SMALL, MT_POOL_LARGE, MT_POOL_LONG, MT_POOL_ARENAS };

/* The streams other than its own that a block was used on; once it is given back, the batch of each
 * that must be done. */
struct mt_pool_uses {
    unsigned n;
    uint64_t streams[MT_POOL_MAX_USES];
    uint64_t batches[MT_POOL_MAX_USES];
};

/* A stream and what was given back in its order. Blocks are counted in batches: an event recorded
 * late, where room is missed, covers every batch up to event_batch.
 * Invariant: done_batch <= event_batch < batch. */
struct mt_pool_stream {
    uint64_t stream;
    uint64_t batch;       /* of blocks given back from now on; from 1 */
    uint64_t event_batch; /* what the event covers */
    uint64_t done_batch;
    uint64_t event;
    int has_event;
    size_t n_free;    /* blocks in the indexes */
    size_t n_awaited; /* pending blocks that were used on this stream */
    struct mt_pool_index index[MT_POOL_ARENAS];
};

/* Pages attached nowhere. */
struct mt_pool_spare {
    uint64_t *pages;
    size_t n, room;
};

struct mt_pool {
    pthread_mutex_t lock;
    struct mt_pool_backend backend;
    struct mt_pool_options options;
    struct mt_pool_arena arenas[MT_POOL_ARENAS];
    struct mt_pool_descriptors descriptors;
    struct mt_pool_table live;
    struct mt_pool_stream **streams; /* the first is stream 0 */
    size_t n_streams;
    struct mt_pool_block *pending;
    struct mt_pool_spare spare;
    struct mt_pool_block **holes; /* that a step made and may fill again */
    size_t n_holes, holes_room;
    struct mt_pool_stats counts; /* front_bytes and largest_free_bytes are found when asked for */
    /* Time is counted in ticks, so that giving a block back asks no clock. Tick t began at
     * tick_ns[t % MT_POOL_TICKS]; one lasts at least max_age_ns / (MT_POOL_TICKS / 2). */
    uint64_t tick;
    uint64_t tick_ns[MT_POOL_TICKS];
    int sleeps;
    uint64_t id;               /* never used twice in a process */
    _Atomic uint64_t front_id; /* the same, or MT_POOL_NO_FRONT while the pool sleeps */
    struct mt_pool *next;      /* of the process's pools */
    struct mt_pool_front *fronts;
    struct mt_pool_front *unused_fronts;
    _Atomic uint64_t flush;   /* raised where threads shall empty their fronts */
    _Atomic uint8_t *classes; /* of each 512 bytes of the small arena; see front.h */
    uint64_t n_classes;
    _Atomic uint32_t *sizes; /* of the large one; NULL: threads keep no large blocks */
    uint64_t n_sizes;
    _Atomic(struct mt_pool_transfer *) transfer; /* NULL: no thread has only given back so far */
};

/* streams.c */

/* The entry of a stream; NULL where it is not known, or with `make`, where memory is missing. */
struct mt_pool_stream *mt_pool_stream_of(struct mt_pool *pool, uint64_t stream, int make);
/* Puts a block that is in no list among the free ones of its stream, joined with its neighbours.
 * The block that it became part of. */
struct mt_pool_block *mt_pool_put_free(struct mt_pool *pool, struct mt_pool_block *block);
/* Takes a free block out of the index. */
void mt_pool_take_free(struct mt_pool *pool, struct mt_pool_block *block);
/* Asks events of all streams with blocks given back, with `wait` until they are done; what is done
 * becomes free for everyone. 1 where anything did. */
int mt_pool_settle(struct mt_pool *pool, int wait);

/* pages.c */

/* Grows so that a free block of size_bytes for a stream exists, in no list. *block is set on
 * success. On failure all is as before, but that pages may be spare. */
int mt_pool_grow(struct mt_pool *pool, struct mt_pool_arena *arena, uint64_t size_bytes,
                 uint64_t stream, struct mt_pool_block **block);
/* Gives pages back: spare ones, then those in blocks free for everyone since before_tick, until no
 * more than keep_bytes are held. The bytes given back. */
uint64_t mt_pool_return_pages(struct mt_pool *pool, uint64_t keep_bytes, uint64_t before_tick);
/* Detaches and gives back everything, at the end. */
void mt_pool_release_all(struct mt_pool *pool);

/* For the files that move pages: spare pages are made, attached, detached and given back. */

/* Room for n more spare pages. */
int mt_pool_spare_ensure(struct mt_pool *pool, uint64_t n);
/* One more spare page, within max_bytes. */
int mt_pool_page_make(struct mt_pool *pool);
/* Attaches spare pages, of which there are enough, to n places from an address on. On failure none
 * is. */
int mt_pool_run_attach(struct mt_pool *pool, struct mt_pool_arena *arena, uint64_t address,
                       uint64_t n);
/* Detaches up to n pages from an address on; they become spare. How many were. */
uint64_t mt_pool_run_detach(struct mt_pool *pool, struct mt_pool_arena *arena, uint64_t address,
                            uint64_t n);
/* Gives spare pages back until no more than keep_bytes are held. The bytes given back. */
uint64_t mt_pool_spare_return(struct mt_pool *pool, uint64_t keep_bytes);
/* The largest block, or nearly, that is free for everyone since before_tick and has something that
 * can be given back: a whole page, or where memory comes in segments, a whole one. */
struct mt_pool_block *mt_pool_giver(struct mt_pool *pool, int arena,
                                    const struct mt_pool_block *but, uint64_t before_tick);
/* Tells on_page. */
void mt_pool_tell(const struct mt_pool *pool, uint64_t address, uint64_t bytes, int is_attached);

/* segments.c: the same for a backend whose memory comes in segments. */

static inline int mt_pool_has_segments(const struct mt_pool *pool)
{
    return pool->backend.take != NULL;
}
/* 1 where a free block is a whole segment. */
static inline int mt_pool_is_segment(const struct mt_pool_block *block)
{
    return block->begins_segment && (!block->next || block->next->begins_segment);
}
int mt_pool_segments_grow(struct mt_pool *pool, struct mt_pool_arena *arena, uint64_t size_bytes,
                          struct mt_pool_block **block);
uint64_t mt_pool_segments_return(struct mt_pool *pool, uint64_t keep_bytes, uint64_t before_tick);
void mt_pool_segments_release(struct mt_pool *pool);

/* sleep.c */

/* Forgets what a pool that sleeps has kept. */
void mt_pool_sleep_forget(struct mt_pool *pool);

/* pool.c */

/* 1 and the size and stream of a live block that no thread keeps, or 0. */
int mt_pool_describe(struct mt_pool *pool, uint64_t address, uint64_t *size_bytes,
                     uint64_t *stream);

/* pool.c, under the lock */

int mt_pool_free_locked(struct mt_pool *pool, uint64_t address);

/* front.c, without the lock */

int mt_pool_front_init(struct mt_pool *pool);
/* Memory that is zero, and there where it is touched; NULL where there is none. */
void *mt_pool_make_table(uint64_t bytes);
void mt_pool_front_finish(struct mt_pool *pool);
/* Takes the locks of all pools before a fork, and gives them back: in the parent, and in the child
 * after all that other threads kept or were moving went back to the child's pools. */
void mt_pool_front_lock_all(void);
void mt_pool_front_unlock_all(void);
void mt_pool_front_take_over_all(void);
/* 1 and a block of the calling thread's own, or 0. */
int mt_pool_front_take(struct mt_pool *pool, uint64_t bytes, uint64_t *address);
/* 1 where the calling thread keeps the block, 0 where it does not, or MT_ENOTFOUND. */
int mt_pool_front_keep(struct mt_pool *pool, uint64_t address);
/* Says that a block of stream 0 is handed out from the pool itself, or (0 bytes) goes back there.
 */
void mt_pool_front_mark(struct mt_pool *pool, uint64_t address, uint64_t size_bytes);
/* 1 where a thread keeps the block. */
int mt_pool_front_has(struct mt_pool *pool, uint64_t address);
void mt_pool_front_flush(struct mt_pool *pool);
/* Takes the large blocks that threads keep. 1 where there were any. With the lock. */
int mt_pool_front_reclaim(struct mt_pool *pool);
/* Takes the calling thread's. With the lock. */
void mt_pool_front_put_back(struct mt_pool *pool);
/* Adds the fronts' counts. With the lock. */
void mt_pool_front_count(struct mt_pool *pool, struct mt_pool_stats *stats);

#endif
