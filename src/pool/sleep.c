/* SPDX-License-Identifier: MIT */
/* A pool that sleeps gives its memory back and keeps its addresses. What is free goes first; then
 * each page that is left is detached, after a copy was made of it where its contents shall stay. A
 * page that the backend does not let go stays where it is, contents and all. */
#include "pool/pool.h"

#include <stdlib.h>

#include <memtally/error_code.h>

static uint64_t pages_of(const struct mt_pool *pool, const struct mt_pool_arena *arena)
{
    return arena->top_bytes / pool->backend.page_bytes;
}

static uint64_t address_of(const struct mt_pool *pool, const struct mt_pool_arena *arena,
                           uint64_t page)
{
    return arena->base + page * pool->backend.page_bytes;
}

void mt_pool_sleep_forget(struct mt_pool *pool)
{
    for (int i = 0; i < MT_POOL_ARENAS; i++) {
        struct mt_pool_arena *arena = &pool->arenas[i];
        for (uint64_t at = 0; arena->slept && at < pages_of(pool, arena); at++)
            free(arena->slept[at].copy);
        free(arena->slept);
        arena->slept = NULL;
    }
    pool->counts.copied_bytes = 0;
}

/* Copies a page of a device to the host, or back. */
static int copy(struct mt_pool *pool, const struct mt_pool_arena *arena, uint64_t page, int is_back)
{
    return pool->backend.copy(pool->backend.context, address_of(pool, arena, page),
                              arena->slept[page].copy, pool->backend.page_bytes, is_back);
}

/* Notes which pages an arena has, and copies them where asked for. */
static int note(struct mt_pool *pool, struct mt_pool_arena *arena, int is_kept)
{
    uint64_t n = pages_of(pool, arena);
    arena->slept = calloc((size_t)n + 1, sizeof *arena->slept);
    if (!arena->slept)
        return MT_ENOMEM;
    for (uint64_t at = 0; at < n; at++) {
        struct mt_pool_slept *slept = &arena->slept[at];
        slept->was_attached = arena->pages[at] != 0;
        if (!slept->was_attached || !is_kept)
            continue;
        slept->copy = malloc((size_t)pool->backend.page_bytes);
        int code = slept->copy ? copy(pool, arena, at, 0) : MT_ENOMEM;
        if (code != MT_OK)
            return code;
        pool->counts.copied_bytes += pool->backend.page_bytes;
    }
    return MT_OK;
}

/* Detaches what an arena has; what cannot be detached needs no copy. */
static void detach_all(struct mt_pool *pool, struct mt_pool_arena *arena)
{
    for (uint64_t at = 0; at < pages_of(pool, arena); at++) {
        if (!arena->pages[at] || !arena->slept[at].was_attached ||
            mt_pool_run_detach(pool, arena, address_of(pool, arena, at), 1))
            continue;
        if (arena->slept[at].copy)
            pool->counts.copied_bytes -= pool->backend.page_bytes;
        free(arena->slept[at].copy);
        arena->slept[at] = (struct mt_pool_slept){0};
    }
}

/* 1 where work of a stream may still use what is free. */
static int is_in_use(const struct mt_pool *pool)
{
    for (size_t i = 1; i < pool->n_streams; i++)
        if (pool->streams[i]->n_free)
            return 1;
    return pool->pending != NULL;
}

static int fall_asleep(struct mt_pool *pool, enum mt_pool_keep keep, uint64_t *released_bytes)
{
    uint64_t before = pool->counts.reserved_bytes;
    if (pool->sleeps)
        return MT_EBUSY;
    if (mt_pool_has_segments(pool) || (keep != MT_POOL_KEEP_NOTHING && !pool->backend.copy))
        return MT_EUNSUPPORTED;
    mt_pool_front_reclaim(pool);
    mt_pool_settle(pool, 1);
    if (is_in_use(pool))
        return MT_EBUSY;
    mt_pool_return_pages(pool, 0, UINT64_MAX);
    int code = mt_pool_spare_ensure(pool, pool->counts.reserved_bytes / pool->backend.page_bytes);
    for (int i = 0; i < MT_POOL_ARENAS && code == MT_OK; i++)
        code = note(pool, &pool->arenas[i],
                    keep == MT_POOL_KEEP_ALL || (keep == MT_POOL_KEEP_LONG && i == MT_POOL_LONG));
    if (code != MT_OK) {
        mt_pool_sleep_forget(pool);
        return code;
    }
    for (int i = 0; i < MT_POOL_ARENAS; i++)
        detach_all(pool, &pool->arenas[i]);
    mt_pool_spare_return(pool, 0);
    pool->sleeps = 1;
    atomic_store(&pool->front_id, MT_POOL_NO_FRONT);
    *released_bytes = before - pool->counts.reserved_bytes;
    return MT_OK;
}

int mt_pool_sleep(struct mt_pool *pool, enum mt_pool_keep keep, uint64_t *released_bytes)
{
    atomic_fetch_add(&pool->flush, 1);
    mt_pool_front_flush(pool);
    pthread_mutex_lock(&pool->lock);
    int code = fall_asleep(pool, keep, released_bytes);
    pthread_mutex_unlock(&pool->lock);
    return code;
}

/* Attaches memory to pages in a row. Those that an earlier attempt left attached count as spare
 * meanwhile, as mt_pool_run_attach() expects. */
static int attach_run(struct mt_pool *pool, struct mt_pool_arena *arena, uint64_t from, uint64_t to)
{
    int code = mt_pool_spare_ensure(pool, to - from);
    for (uint64_t at = from; at < to && code == MT_OK; at++)
        if (!arena->pages[at])
            code = mt_pool_page_make(pool);
    if (code != MT_OK)
        return code;
    for (uint64_t at = from; at < to; at++)
        if (arena->pages[at])
            pool->counts.spare_bytes += pool->backend.page_bytes;
    code = mt_pool_run_attach(pool, arena, address_of(pool, arena, from), to - from);
    for (uint64_t at = from; at < to && code != MT_OK; at++)
        if (arena->pages[at])
            pool->counts.spare_bytes -= pool->backend.page_bytes;
    return code;
}

/* Attaches memory wherever an arena had some. */
static int attach_all(struct mt_pool *pool, struct mt_pool_arena *arena)
{
    uint64_t n = pages_of(pool, arena);
    int code = MT_OK;
    for (uint64_t at = 0, end; at < n && code == MT_OK; at = end) {
        for (end = at; end < n && arena->slept[end].was_attached; end++)
            ;
        if (end > at)
            code = attach_run(pool, arena, at, end);
        else
            end++;
    }
    return code;
}

static int put_copies_back(struct mt_pool *pool, struct mt_pool_arena *arena)
{
    for (uint64_t at = 0; at < pages_of(pool, arena); at++) {
        int code = arena->slept[at].copy ? copy(pool, arena, at, 1) : MT_OK;
        if (code != MT_OK)
            return code;
    }
    return MT_OK;
}

/* Takes away again what an attempt to wake attached; the copies stay. */
static void fall_back(struct mt_pool *pool)
{
    if (mt_pool_spare_ensure(pool, pool->counts.reserved_bytes / pool->backend.page_bytes) == MT_OK)
        for (int i = 0; i < MT_POOL_ARENAS; i++)
            for (uint64_t at = 0; at < pages_of(pool, &pool->arenas[i]); at++)
                if (pool->arenas[i].pages[at] && pool->arenas[i].slept[at].was_attached)
                    mt_pool_run_detach(pool, &pool->arenas[i],
                                       address_of(pool, &pool->arenas[i], at), 1);
    mt_pool_spare_return(pool, 0);
}

int mt_pool_wake(struct mt_pool *pool)
{
    int code = MT_OK;
    pthread_mutex_lock(&pool->lock);
    for (int i = 0; pool->sleeps && i < MT_POOL_ARENAS && code == MT_OK; i++)
        code = attach_all(pool, &pool->arenas[i]);
    for (int i = 0; pool->sleeps && i < MT_POOL_ARENAS && code == MT_OK; i++)
        code = put_copies_back(pool, &pool->arenas[i]);
    if (code != MT_OK)
        fall_back(pool);
    else if (pool->sleeps) {
        mt_pool_sleep_forget(pool);
        pool->sleeps = 0;
        atomic_store(&pool->front_id, pool->id);
    }
    pthread_mutex_unlock(&pool->lock);
    return code;
}
