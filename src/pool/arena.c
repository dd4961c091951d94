/* SPDX-License-Identifier: MIT */
/* See arena.h. Knows order and addresses, not policy. */
#include "pool/arena.h"

#include <stdlib.h>

#include <memtally/error_code.h>

#define SLAB_BLOCKS  256
#define FIRST_CHAINS 256

struct mt_pool_slab {
    struct mt_pool_slab *next;
    struct mt_pool_block blocks[SLAB_BLOCKS];
};

int mt_pool_descriptors_ensure(struct mt_pool_descriptors *descriptors, size_t n)
{
    while (descriptors->n_unused < n) {
        struct mt_pool_slab *slab = malloc(sizeof *slab);
        if (!slab)
            return MT_ENOMEM;
        slab->next = descriptors->slabs;
        descriptors->slabs = slab;
        for (size_t i = 0; i < SLAB_BLOCKS; i++)
            mt_pool_descriptor_give(descriptors, &slab->blocks[SLAB_BLOCKS - 1 - i]);
    }
    return MT_OK;
}

struct mt_pool_block *mt_pool_descriptor_take(struct mt_pool_descriptors *descriptors)
{
    struct mt_pool_block *block = descriptors->unused;
    descriptors->unused = block->after;
    descriptors->n_unused--;
    *block = (struct mt_pool_block){0};
    return block;
}

void mt_pool_descriptor_give(struct mt_pool_descriptors *descriptors, struct mt_pool_block *block)
{
    block->after = descriptors->unused;
    descriptors->unused = block;
    descriptors->n_unused++;
}

void mt_pool_descriptors_finish(struct mt_pool_descriptors *descriptors)
{
    for (struct mt_pool_slab *slab = descriptors->slabs, *next; slab; slab = next) {
        next = slab->next;
        free(slab);
    }
    *descriptors = (struct mt_pool_descriptors){0};
}

struct mt_pool_block *mt_pool_arena_cut(struct mt_pool_arena *arena,
                                        struct mt_pool_descriptors *descriptors,
                                        struct mt_pool_block *block, uint64_t offset_bytes)
{
    struct mt_pool_block *rest = mt_pool_descriptor_take(descriptors);
    rest->address = block->address + offset_bytes;
    rest->size_bytes = block->size_bytes - offset_bytes;
    rest->state = block->state;
    rest->arena = block->arena;
    rest->stream = block->stream;
    rest->batch = block->batch;
    rest->freed_tick = block->freed_tick;
    rest->previous = block;
    rest->next = block->next;
    if (rest->next)
        rest->next->previous = rest;
    else
        arena->last = rest;
    block->next = rest;
    block->size_bytes = offset_bytes;
    return rest;
}

void mt_pool_arena_join(struct mt_pool_arena *arena, struct mt_pool_descriptors *descriptors,
                        struct mt_pool_block *block)
{
    struct mt_pool_block *gone = block->next;
    block->size_bytes += gone->size_bytes;
    if (gone->batch > block->batch)
        block->batch = gone->batch;
    if (gone->freed_tick > block->freed_tick)
        block->freed_tick = gone->freed_tick;
    block->next = gone->next;
    if (block->next)
        block->next->previous = block;
    else
        arena->last = block;
    mt_pool_descriptor_give(descriptors, gone);
}

struct mt_pool_block *mt_pool_arena_push(struct mt_pool_arena *arena,
                                         struct mt_pool_descriptors *descriptors,
                                         uint64_t size_bytes)
{
    struct mt_pool_block *block = mt_pool_descriptor_take(descriptors);
    block->address = arena->base + arena->top_bytes;
    block->size_bytes = size_bytes;
    block->arena = arena->number;
    block->previous = arena->last;
    if (arena->last)
        arena->last->next = block;
    else
        arena->first = block;
    arena->last = block;
    arena->top_bytes += size_bytes;
    return block;
}

void mt_pool_arena_drop(struct mt_pool_arena *arena, struct mt_pool_descriptors *descriptors,
                        struct mt_pool_block *block)
{
    arena->top_bytes -= block->size_bytes;
    if (block->previous)
        block->previous->next = block->next;
    else
        arena->first = block->next;
    if (block->next)
        block->next->previous = block->previous;
    else
        arena->last = block->previous;
    mt_pool_descriptor_give(descriptors, block);
}

void mt_pool_arena_pop(struct mt_pool_arena *arena, struct mt_pool_descriptors *descriptors)
{
    mt_pool_arena_drop(arena, descriptors, arena->last);
}

static size_t chain_of(const struct mt_pool_table *table, uint64_t address)
{
    return (size_t)((address / MT_POOL_ALIGN * UINT64_C(0x9E3779B97F4A7C15)) >> 32) &
           (table->n_chains - 1);
}

int mt_pool_table_init(struct mt_pool_table *table)
{
    table->chains = calloc(FIRST_CHAINS, sizeof *table->chains);
    if (!table->chains)
        return MT_ENOMEM;
    table->n_chains = FIRST_CHAINS;
    table->n_blocks = 0;
    return MT_OK;
}

void mt_pool_table_finish(struct mt_pool_table *table)
{
    free(table->chains);
    *table = (struct mt_pool_table){0};
}

/* Where there is no memory for a larger table, chains grow longer. */
static void widen(struct mt_pool_table *table)
{
    struct mt_pool_table wider = {.n_chains = table->n_chains * 2, .n_blocks = table->n_blocks};
    wider.chains = calloc(wider.n_chains, sizeof *wider.chains);
    if (!wider.chains)
        return;
    for (size_t i = 0; i < table->n_chains; i++)
        for (struct mt_pool_block *block = table->chains[i], *next; block; block = next) {
            next = block->chain;
            size_t chain = chain_of(&wider, block->address);
            block->chain = wider.chains[chain];
            wider.chains[chain] = block;
        }
    free(table->chains);
    *table = wider;
}

void mt_pool_table_insert(struct mt_pool_table *table, struct mt_pool_block *block)
{
    if (table->n_blocks >= table->n_chains)
        widen(table);
    size_t chain = chain_of(table, block->address);
    block->chain = table->chains[chain];
    table->chains[chain] = block;
    table->n_blocks++;
}

struct mt_pool_block *mt_pool_table_find(const struct mt_pool_table *table, uint64_t address)
{
    struct mt_pool_block *block = table->chains[chain_of(table, address)];
    while (block && block->address != address)
        block = block->chain;
    return block;
}

void mt_pool_table_remove(struct mt_pool_table *table, struct mt_pool_block *block)
{
    struct mt_pool_block **link = &table->chains[chain_of(table, block->address)];
    while (*link != block)
        link = &(*link)->chain;
    *link = block->chain;
    table->n_blocks--;
}
