/* SPDX-License-Identifier: MIT */
/* What moves pages: growth, moving free pages near the limit, eviction, trim.
 *
 * A page that is taken away from a free block is spare first, and a spare page is attached where
 * room is needed. So a step that fails half way leaves spare pages and holes, which are put
 * together again; where even that fails, nothing is lost but addresses. */
#include "pool/pool.h"

#include <stdlib.h>

#include <memtally/error_code.h>

#define STEP_PART      256u                 /* growth is at least this part of what is held */
#define STEP_MOST      ((uint64_t)32 << 20) /* but no more than this */
#define LEVEL_OF_BYTES 9                    /* of the index's first level */

/* The whole pages inside a block. */
struct inside {
    uint64_t address;
    uint64_t n;
};

static struct inside pages_inside(const struct mt_pool *pool, const struct mt_pool_block *block)
{
    uint64_t page = pool->backend.page_bytes;
    uint64_t from = (block->address + page - 1) & ~(page - 1);
    uint64_t to = (block->address + block->size_bytes) & ~(page - 1);
    return (struct inside){from, to > from ? (to - from) / page : 0};
}

int mt_pool_spare_ensure(struct mt_pool *pool, uint64_t n)
{
    struct mt_pool_spare *spare = &pool->spare;
    if (spare->room - spare->n >= n)
        return MT_OK;
    size_t room = spare->n + (size_t)n + spare->room;
    uint64_t *pages = realloc(spare->pages, room * sizeof *pages);
    if (!pages)
        return MT_ENOMEM;
    spare->pages = pages;
    spare->room = room;
    return MT_OK;
}

static int ensure_hole_room(struct mt_pool *pool)
{
    if (pool->n_holes < pool->holes_room)
        return MT_OK;
    size_t room = pool->holes_room * 2 + 16;
    struct mt_pool_block **holes = realloc(pool->holes, room * sizeof(struct mt_pool_block *));
    if (!holes)
        return MT_ENOMEM;
    pool->holes = holes;
    pool->holes_room = room;
    return MT_OK;
}

static void push_spare(struct mt_pool *pool, uint64_t page)
{
    pool->spare.pages[pool->spare.n++] = page;
    pool->counts.spare_bytes += pool->backend.page_bytes;
}

void mt_pool_tell(const struct mt_pool *pool, uint64_t address, uint64_t bytes, int is_attached)
{
    if (pool->options.on_page)
        pool->options.on_page(pool->options.context, address, bytes, is_attached);
}

static void tell(const struct mt_pool *pool, uint64_t address, int is_attached)
{
    mt_pool_tell(pool, address, pool->backend.page_bytes, is_attached);
}

uint64_t mt_pool_run_detach(struct mt_pool *pool, struct mt_pool_arena *arena, uint64_t address,
                            uint64_t n)
{
    const struct mt_pool_backend *backend = &pool->backend;
    uint64_t first = (address - arena->base) / backend->page_bytes;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t *page = &arena->pages[first + i];
        if (backend->detach(backend->context, address + i * backend->page_bytes, *page - 1) !=
            MT_OK)
            return i;
        push_spare(pool, *page - 1);
        *page = 0;
        tell(pool, address + i * backend->page_bytes, 0);
    }
    return n;
}

/* Takes back what an attempt attached. A page that cannot be detached stays where it is and counts
 * as spare: the next attempt finds it there. */
static void undo_attach(struct mt_pool *pool, struct mt_pool_arena *arena, uint64_t first,
                        uint64_t n)
{
    const struct mt_pool_backend *backend = &pool->backend;
    for (uint64_t i = n; i-- > 0;) {
        uint64_t *page = &arena->pages[first + i];
        uint64_t address = arena->base + (first + i) * backend->page_bytes;
        if (backend->detach(backend->context, address, *page - 1) != MT_OK)
            continue;
        pool->spare.pages[pool->spare.n++] = *page - 1;
        *page = 0;
        tell(pool, address, 0);
    }
}

int mt_pool_run_attach(struct mt_pool *pool, struct mt_pool_arena *arena, uint64_t address,
                       uint64_t n)
{
    const struct mt_pool_backend *backend = &pool->backend;
    uint64_t first = (address - arena->base) / backend->page_bytes;
    int code = mt_pool_spare_ensure(pool, n); /* undoing may detach what an earlier attempt left */
    uint64_t i;
    for (i = 0; i < n && code == MT_OK; i++) {
        uint64_t *page = &arena->pages[first + i];
        if (*page)
            continue;
        uint64_t spare = pool->spare.pages[pool->spare.n - 1];
        code = backend->attach(backend->context, address + i * backend->page_bytes, spare);
        if (code != MT_OK)
            break;
        pool->spare.n--;
        *page = spare + 1;
    }
    if (code == MT_OK)
        code = backend->enable(backend->context, address, n * backend->page_bytes);
    if (code != MT_OK) {
        undo_attach(pool, arena, first, i);
        return code;
    }
    pool->counts.spare_bytes -= n * backend->page_bytes;
    for (i = 0; i < n; i++)
        tell(pool, address + i * backend->page_bytes, 1);
    return MT_OK;
}

static int can_give(const struct mt_pool *pool, const struct mt_pool_block *block)
{
    return mt_pool_has_segments(pool) ? mt_pool_is_segment(block)
                                      : pages_inside(pool, block).n != 0;
}

struct mt_pool_block *mt_pool_giver(struct mt_pool *pool, int arena,
                                    const struct mt_pool_block *but, uint64_t before_tick)
{
    const struct mt_pool_index *index = &pool->streams[0]->index[arena];
    int least = 63 - __builtin_clzll(pool->backend.page_bytes) - LEVEL_OF_BYTES;
    for (int level = MT_POOL_LEVELS - 1; level >= least; level--)
        for (int part = MT_POOL_PARTS - 1; index->parts[level] && part >= 0; part--)
            for (struct mt_pool_block *block = index->lists[level][part]; block;
                 block = block->after)
                if (block != but && block->freed_tick <= before_tick && can_give(pool, block))
                    return block;
    return NULL;
}

/* Takes up to n pages from the end of a free block; a hole stays, which is noted. How many. */
static uint64_t carve(struct mt_pool *pool, struct mt_pool_block *block, uint64_t n)
{
    struct mt_pool_arena *arena = &pool->arenas[block->arena];
    struct inside inside = pages_inside(pool, block);
    uint64_t page = pool->backend.page_bytes;
    if (n > inside.n)
        n = inside.n;
    if (mt_pool_descriptors_ensure(&pool->descriptors, 2) != MT_OK ||
        mt_pool_spare_ensure(pool, n) != MT_OK || ensure_hole_room(pool) != MT_OK)
        return 0;
    uint64_t address = inside.address + (inside.n - n) * page;
    n = mt_pool_run_detach(pool, arena, address, n);
    if (!n)
        return 0;
    mt_pool_take_free(pool, block);
    block->state = MT_POOL_LIVE; /* so that its parts do not join */
    if (address + n * page < block->address + block->size_bytes)
        mt_pool_put_free(pool, mt_pool_arena_cut(arena, &pool->descriptors, block,
                                                 address + n * page - block->address));
    struct mt_pool_block *hole = block;
    if (address > block->address) {
        hole = mt_pool_arena_cut(arena, &pool->descriptors, block, address - block->address);
        hole->state = MT_POOL_HOLE;
        mt_pool_put_free(pool, block);
    }
    hole->state = MT_POOL_HOLE;
    pool->holes[pool->n_holes++] = hole;
    return n;
}

/* Moves up to n pages from free blocks to the spare ones. How many. */
static uint64_t steal(struct mt_pool *pool, const struct mt_pool_block *but, uint64_t n)
{
    uint64_t got = 0;
    for (int arena = MT_POOL_ARENAS; arena-- > 0;)
        while (got < n) {
            struct mt_pool_block *block = mt_pool_giver(pool, arena, but, UINT64_MAX);
            uint64_t more = block ? carve(pool, block, n - got) : 0;
            if (!more)
                break;
            got += more;
        }
    return got;
}

/* Makes the noted holes lasting: neighbours become one, and those at the top fall off. */
static void keep_holes(struct mt_pool *pool)
{
    for (size_t i = 0; i < pool->n_holes; i++) {
        struct mt_pool_block *hole = pool->holes[i];
        if (hole->state != MT_POOL_HOLE)
            continue; /* joined with one before */
        struct mt_pool_arena *arena = &pool->arenas[hole->arena];
        while (hole->next && hole->next->state == MT_POOL_HOLE) {
            hole->next->state = MT_POOL_LIVE;
            mt_pool_arena_join(arena, &pool->descriptors, hole);
        }
        while (hole->previous && hole->previous->state == MT_POOL_HOLE) {
            hole->state = MT_POOL_LIVE;
            hole = hole->previous;
            mt_pool_arena_join(arena, &pool->descriptors, hole);
        }
        if (hole == arena->last) {
            hole->state = MT_POOL_LIVE;
            mt_pool_arena_pop(arena, &pool->descriptors);
        }
    }
    pool->n_holes = 0;
}

/* Fills the noted holes again, as far as the backend allows. */
static void fill_holes(struct mt_pool *pool)
{
    if (!pool->n_holes)
        return;
    pool->counts.n_rollbacks++;
    for (size_t i = 0; i < pool->n_holes; i++) {
        struct mt_pool_block *hole = pool->holes[i];
        uint64_t n = hole->size_bytes / pool->backend.page_bytes;
        if (n > pool->spare.n ||
            mt_pool_run_attach(pool, &pool->arenas[hole->arena], hole->address, n) != MT_OK)
            continue;
        mt_pool_put_free(pool, hole);
    }
    size_t kept = 0;
    for (size_t i = 0; i < pool->n_holes; i++)
        if (pool->holes[i]->state == MT_POOL_HOLE)
            pool->holes[kept++] = pool->holes[i];
    pool->n_holes = kept;
    keep_holes(pool);
}

int mt_pool_page_make(struct mt_pool *pool)
{
    const struct mt_pool_backend *backend = &pool->backend;
    struct mt_pool_stats *counts = &pool->counts;
    uint64_t max = pool->options.max_bytes;
    uint64_t page;
    if (max && (counts->reserved_bytes > max || max - counts->reserved_bytes < backend->page_bytes))
        return MT_ELIMIT;
    int code = mt_pool_spare_ensure(pool, 1);
    if (code == MT_OK)
        code = backend->create(backend->context, &page);
    if (code != MT_OK)
        return code;
    push_spare(pool, page);
    counts->n_pages_made++;
    counts->reserved_bytes += backend->page_bytes;
    if (counts->reserved_bytes > counts->peak_reserved_bytes)
        counts->peak_reserved_bytes = counts->reserved_bytes;
    return MT_OK;
}

/* How many pages may be made before free ones are moved. */
static uint64_t pages_below_soft(const struct mt_pool *pool)
{
    uint64_t soft = pool->options.soft_bytes, held = pool->counts.reserved_bytes;
    if (!soft)
        return UINT64_MAX;
    return soft > held ? (soft - held) / pool->backend.page_bytes : 0;
}

/* Sees to n spare pages: from those there are, from free blocks past the soft limit, from the
 * backend, and where that refuses, from free blocks. */
static int gather(struct mt_pool *pool, const struct mt_pool_block *but, uint64_t n)
{
    uint64_t moved = 0;
    uint64_t below = pages_below_soft(pool);
    if (n > pool->spare.n && n - pool->spare.n > below)
        moved = steal(pool, but, n - pool->spare.n - below);
    int code = MT_OK;
    while (pool->spare.n < n && code == MT_OK)
        code = mt_pool_page_make(pool);
    if (pool->spare.n < n)
        moved += steal(pool, but, n - pool->spare.n);
    if (pool->spare.n < n) {
        fill_holes(pool);
        return code;
    }
    pool->counts.n_pages_moved += moved;
    return MT_OK;
}

/* Growth in larger steps while the limits are far: fewer calls of the backend. Makes the pages of
 * such a step where the backend has them, but moves none for it. How many pages to grow by. */
static uint64_t make_step(struct mt_pool *pool, uint64_t n, uint64_t room)
{
    uint64_t page = pool->backend.page_bytes;
    uint64_t step = pool->counts.reserved_bytes / STEP_PART;
    step = (step > STEP_MOST ? STEP_MOST : step) / page;
    uint64_t below = pages_below_soft(pool);
    if (step <= n || step > room || step > below / 2)
        return n;
    while (pool->spare.n < step && mt_pool_page_make(pool) == MT_OK)
        ;
    return pool->spare.n >= step ? step : n;
}

static int compatible(const struct mt_pool_block *block, uint64_t stream)
{
    return block && block->state == MT_POOL_FREE && (!block->stream || block->stream == stream);
}

/* Backs a part of a hole that lies behind a free block or is large enough by itself: for when the
 * addresses are used up. */
static int grow_in_hole(struct mt_pool *pool, struct mt_pool_arena *arena, uint64_t size_bytes,
                        uint64_t stream, struct mt_pool_block **block)
{
    uint64_t page = pool->backend.page_bytes;
    for (struct mt_pool_block *hole = arena->first; hole; hole = hole->next) {
        if (hole->state != MT_POOL_HOLE)
            continue;
        struct mt_pool_block *before = compatible(hole->previous, stream) ? hole->previous : NULL;
        uint64_t have = before ? before->size_bytes : 0;
        uint64_t n = have >= size_bytes ? 0 : (size_bytes - have + page - 1) / page;
        if (!n || n * page > hole->size_bytes)
            continue;
        int code = mt_pool_descriptors_ensure(&pool->descriptors, 1);
        if (code == MT_OK)
            code = gather(pool, before, n);
        if (code == MT_OK && (code = mt_pool_run_attach(pool, arena, hole->address, n)) != MT_OK)
            fill_holes(pool);
        if (code != MT_OK)
            return code;
        if (hole->size_bytes > n * page) {
            /* Gathering may have left noted holes, and none of the unused descriptors. */
            if (mt_pool_descriptors_ensure(&pool->descriptors, 1) != MT_OK) {
                undo_attach(pool, arena, (hole->address - arena->base) / page, n);
                pool->counts.spare_bytes += n * page;
                fill_holes(pool);
                return MT_ENOMEM;
            }
            mt_pool_arena_cut(arena, &pool->descriptors, hole, n * page);
        }
        hole->state = MT_POOL_LIVE;
        if (before) {
            mt_pool_take_free(pool, before);
            mt_pool_arena_join(arena, &pool->descriptors, before);
            hole = before;
        }
        keep_holes(pool);
        *block = hole;
        return MT_OK;
    }
    return MT_ELIMIT;
}

int mt_pool_grow(struct mt_pool *pool, struct mt_pool_arena *arena, uint64_t size_bytes,
                 uint64_t stream, struct mt_pool_block **block)
{
    uint64_t page = pool->backend.page_bytes;
    if (mt_pool_has_segments(pool))
        return mt_pool_segments_grow(pool, arena, size_bytes, block);
    struct mt_pool_block *last = compatible(arena->last, stream) ? arena->last : NULL;
    uint64_t have = last ? last->size_bytes : 0;
    if (have >= size_bytes) {
        mt_pool_take_free(pool, last);
        *block = last;
        return MT_OK;
    }
    uint64_t n = (size_bytes - have + page - 1) / page;
    uint64_t room = (arena->size_bytes - arena->top_bytes) / page;
    if (n > room)
        return grow_in_hole(pool, arena, size_bytes, stream, block);
    n = make_step(pool, n, room);
    int code = gather(pool, last, n);
    if (code != MT_OK)
        return code;
    uint64_t top = arena->base + arena->top_bytes;
    code = mt_pool_descriptors_ensure(&pool->descriptors, 1);
    if (code != MT_OK || (code = mt_pool_run_attach(pool, arena, top, n)) != MT_OK) {
        fill_holes(pool);
        return code;
    }
    *block = mt_pool_arena_push(arena, &pool->descriptors, n * page);
    if (last) {
        mt_pool_take_free(pool, last);
        mt_pool_arena_join(arena, &pool->descriptors, last);
        *block = last;
    }
    pool->counts.n_growths++;
    keep_holes(pool);
    return MT_OK;
}

uint64_t mt_pool_spare_return(struct mt_pool *pool, uint64_t keep_bytes)
{
    uint64_t page = pool->backend.page_bytes, returned = 0;
    while (pool->spare.n && pool->counts.reserved_bytes > keep_bytes) {
        pool->backend.destroy(pool->backend.context, pool->spare.pages[--pool->spare.n]);
        pool->counts.spare_bytes -= page;
        pool->counts.reserved_bytes -= page;
        pool->counts.n_pages_returned++;
        returned += page;
    }
    return returned;
}

uint64_t mt_pool_return_pages(struct mt_pool *pool, uint64_t keep_bytes, uint64_t before_tick)
{
    uint64_t page = pool->backend.page_bytes;
    if (mt_pool_has_segments(pool))
        return mt_pool_segments_return(pool, keep_bytes, before_tick);
    uint64_t returned = mt_pool_spare_return(pool, keep_bytes);
    for (int arena = MT_POOL_ARENAS; arena-- > 0;)
        while (pool->counts.reserved_bytes > keep_bytes) {
            struct mt_pool_block *block = mt_pool_giver(pool, arena, NULL, before_tick);
            uint64_t over = pool->counts.reserved_bytes - keep_bytes;
            if (!block || !carve(pool, block, (over + page - 1) / page))
                break;
            keep_holes(pool);
            returned += mt_pool_spare_return(pool, keep_bytes);
        }
    return returned;
}

void mt_pool_release_all(struct mt_pool *pool)
{
    const struct mt_pool_backend *backend = &pool->backend;
    mt_pool_sleep_forget(pool);
    if (mt_pool_has_segments(pool)) {
        mt_pool_segments_release(pool);
        return;
    }
    for (int i = 0; i < MT_POOL_ARENAS; i++) {
        struct mt_pool_arena *arena = &pool->arenas[i];
        uint64_t n = arena->pages ? arena->size_bytes / backend->page_bytes : 0;
        for (uint64_t at = 0; at < n; at++)
            if (arena->pages[at]) {
                uint64_t address = arena->base + at * backend->page_bytes;
                /* A second time, for a backend that was refused something in passing. */
                if (backend->detach(backend->context, address, arena->pages[at] - 1) == MT_OK ||
                    backend->detach(backend->context, address, arena->pages[at] - 1) == MT_OK)
                    backend->destroy(backend->context, arena->pages[at] - 1);
            }
        if (arena->size_bytes)
            backend->unreserve(backend->context, arena->base, arena->size_bytes);
        free(arena->pages);
    }
    mt_pool_spare_return(pool, 0);
    free(pool->spare.pages);
    free(pool->holes);
}
