/* SPDX-License-Identifier: MIT */
/* See index.h. Knows blocks only, neither arenas nor pages. */
#include "pool/index.h"

#include <stddef.h>

#define PART_BITS   5
#define LOOKED_AT   8 /* blocks of a list */
#define FIRST_LEVEL 9 /* 512 bytes */

_Static_assert(1 << FIRST_LEVEL == MT_POOL_ALIGN, "levels begin at the smallest block");
_Static_assert(1 << PART_BITS == MT_POOL_PARTS, "parts of a level");

struct place {
    unsigned level, part;
};

static struct place place_of(uint64_t bytes)
{
    unsigned bit = 63u - (unsigned)__builtin_clzll(bytes);
    return (struct place){bit - FIRST_LEVEL,
                          (unsigned)(bytes >> (bit - PART_BITS)) & (MT_POOL_PARTS - 1)};
}

void mt_pool_index_insert(struct mt_pool_index *index, struct mt_pool_block *block)
{
    struct place place = place_of(block->size_bytes);
    struct mt_pool_block **list = &index->lists[place.level][place.part];
    block->before = NULL;
    block->after = *list;
    if (*list)
        (*list)->before = block;
    *list = block;
    index->levels |= UINT64_C(1) << place.level;
    index->parts[place.level] |= UINT32_C(1) << place.part;
}

void mt_pool_index_remove(struct mt_pool_index *index, struct mt_pool_block *block)
{
    struct place place = place_of(block->size_bytes);
    if (block->after)
        block->after->before = block->before;
    if (block->before) {
        block->before->after = block->after;
        return;
    }
    index->lists[place.level][place.part] = block->after;
    if (block->after)
        return;
    index->parts[place.level] &= ~(UINT32_C(1) << place.part);
    if (!index->parts[place.level])
        index->levels &= ~(UINT64_C(1) << place.level);
}

/* The smallest of the first blocks of a list that is large enough. */
static struct mt_pool_block *smallest(struct mt_pool_block *block, uint64_t bytes)
{
    struct mt_pool_block *best = NULL;
    for (int i = 0; block && i < LOOKED_AT; i++, block = block->after)
        if (block->size_bytes >= bytes && (!best || block->size_bytes < best->size_bytes)) {
            best = block;
            if (best->size_bytes == bytes)
                break;
        }
    return best;
}

struct mt_pool_block *mt_pool_index_find(const struct mt_pool_index *index, uint64_t bytes)
{
    struct place place = place_of(bytes);
    struct mt_pool_block *block = smallest(index->lists[place.level][place.part], bytes);
    if (block)
        return block;
    /* Every block of a later list is large enough. */
    unsigned level = place.level;
    uint32_t parts = place.part + 1 < MT_POOL_PARTS
                         ? index->parts[level] & (~UINT32_C(0) << (place.part + 1))
                         : 0;
    if (!parts) {
        uint64_t levels = index->levels & (~UINT64_C(0) << (level + 1));
        if (!levels)
            return NULL;
        level = (unsigned)__builtin_ctzll(levels);
        parts = index->parts[level];
    }
    return smallest(index->lists[level][__builtin_ctz(parts)], bytes);
}

struct mt_pool_block *mt_pool_index_largest(const struct mt_pool_index *index)
{
    if (!index->levels)
        return NULL;
    unsigned level = 63u - (unsigned)__builtin_clzll(index->levels);
    return index->lists[level][31u - (unsigned)__builtin_clz(index->parts[level])];
}
