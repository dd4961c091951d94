/* SPDX-License-Identifier: MIT */
/* Open addressing with linear probing; removal shifts the following entries back. */
#include "tally/blocks.h"

#include <memtally/error_code.h>
#include <stdlib.h>

#define EMPTY      UINT64_MAX
#define FIRST_ROOM 16u

/* Seeded by where the table lies, so that a file cannot choose addresses that collide. */
static uint64_t hash_of(const struct mt_blocks *blocks, uint64_t address)
{
    uint64_t hash = address ^ (uint64_t)(uintptr_t)blocks;
    hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdu;
    hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53u;
    return hash ^ hash >> 33;
}

/* The part is told by the low bits, the place in it by the high ones. */
static size_t part_of(uint64_t hash)
{
    return hash % MT_BLOCKS_PARTS;
}

static uint32_t home_of(const struct mt_blocks_part *part, uint64_t hash)
{
    return (uint32_t)((hash >> 32) * part->capacity >> 32);
}

static struct mt_heap_block *find(const struct mt_blocks_part *part, uint64_t hash,
                                  uint64_t address)
{
    struct mt_heap_block *slots = part->slots;
    uint32_t at = home_of(part, hash);
    while (slots[at].address != EMPTY && slots[at].address != address)
        if (++at == part->capacity)
            at = 0;
    return &slots[at];
}

/* Two fifths more room: a part is between half and four fifths full. */
static int grow(struct mt_blocks *blocks, struct mt_blocks_part *part)
{
    if (part->capacity > UINT32_MAX / 2)
        return MT_ENOMEM;
    uint32_t capacity = part->capacity ? part->capacity + part->capacity / 5 * 2 : FIRST_ROOM;
    struct mt_blocks_part bigger = {.capacity = capacity, .n = part->n};
    bigger.slots = malloc(capacity * sizeof *bigger.slots);
    if (!bigger.slots)
        return MT_ENOMEM;
    for (uint32_t i = 0; i < capacity; i++)
        bigger.slots[i].address = EMPTY;
    for (uint32_t i = 0; i < part->capacity; i++) {
        const struct mt_heap_block *block = &part->slots[i];
        if (block->address != EMPTY)
            *find(&bigger, hash_of(blocks, block->address), block->address) = *block;
    }
    free(part->slots);
    *part = bigger;
    return 0;
}

void mt_blocks_finish(struct mt_blocks *blocks)
{
    for (size_t i = 0; i < MT_BLOCKS_PARTS; i++)
        free(blocks->parts[i].slots);
    *blocks = (struct mt_blocks){0};
}

void mt_blocks_expect(const struct mt_blocks *blocks, uint64_t address)
{
    uint64_t hash = hash_of(blocks, address);
    const struct mt_blocks_part *part = &blocks->parts[part_of(hash)];
    if (!part->n)
        return;
    const struct mt_heap_block *home = &part->slots[home_of(part, hash)];
    __builtin_prefetch(home, 1);
    __builtin_prefetch((const char *)home + 64, 1);
}

int mt_blocks_put(struct mt_blocks *blocks, const struct mt_heap_block *block)
{
    uint64_t hash = hash_of(blocks, block->address);
    struct mt_blocks_part *part = &blocks->parts[part_of(hash)];
    if (part->n >= part->capacity / 5 * 4 && grow(blocks, part) < 0)
        return MT_ENOMEM;
    struct mt_heap_block *slot = find(part, hash, block->address);
    if (slot->address == EMPTY) {
        part->n++;
        blocks->n++;
    }
    *slot = *block;
    return 0;
}

const struct mt_heap_block *mt_blocks_get(const struct mt_blocks *blocks, uint64_t address)
{
    uint64_t hash = hash_of(blocks, address);
    const struct mt_blocks_part *part = &blocks->parts[part_of(hash)];
    if (!part->n)
        return NULL;
    const struct mt_heap_block *slot = find(part, hash, address);
    return slot->address == EMPTY ? NULL : slot;
}

/* Whether `home` lies behind `hole` and not behind `at`, going round. */
static int is_between(uint32_t hole, uint32_t home, uint32_t at)
{
    return hole < at ? hole < home && home <= at : hole < home || home <= at;
}

static void close_hole(const struct mt_blocks *blocks, struct mt_blocks_part *part, uint32_t hole)
{
    struct mt_heap_block *slots = part->slots;
    for (uint32_t at = hole;;) {
        if (++at == part->capacity)
            at = 0;
        if (slots[at].address == EMPTY)
            break;
        uint32_t home = home_of(part, hash_of(blocks, slots[at].address));
        if (is_between(hole, home, at))
            continue;
        slots[hole] = slots[at];
        hole = at;
    }
    slots[hole].address = EMPTY;
}

int mt_blocks_take(struct mt_blocks *blocks, uint64_t address, uint64_t *size)
{
    uint64_t hash = hash_of(blocks, address);
    struct mt_blocks_part *part = &blocks->parts[part_of(hash)];
    if (!part->n)
        return 0;
    struct mt_heap_block *slot = find(part, hash, address);
    if (slot->address == EMPTY)
        return 0;
    *size = slot->size;
    part->n--;
    blocks->n--;
    close_hole(blocks, part, (uint32_t)(slot - part->slots));
    return 1;
}

const struct mt_heap_block *mt_blocks_next(const struct mt_blocks *blocks, uint64_t *at)
{
    for (size_t i = *at >> 32; i < MT_BLOCKS_PARTS; i++, *at = (uint64_t)i << 32) {
        const struct mt_blocks_part *part = &blocks->parts[i];
        for (uint32_t slot = (uint32_t)*at; slot < part->capacity; slot++) {
            if (part->slots[slot].address == EMPTY)
                continue;
            *at = ((uint64_t)i << 32) + slot + 1;
            return &part->slots[slot];
        }
    }
    return NULL;
}
