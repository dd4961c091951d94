/* SPDX-License-Identifier: MIT */
/* Lists that grow, and what lives at an address, for reading traces of PyTorch. */
#include <stdlib.h>
#include <string.h>

#include "pytorch/trace.h"

void *mt_torch_grow(void *at, size_t n, size_t *capacity, size_t item_bytes)
{
    if (n < *capacity)
        return at;
    size_t more = *capacity ? *capacity * 2 : 64;
    void *grown = reallocarray(at, more, item_bytes);
    if (!grown)
        return at;
    *capacity = more;
    return grown;
}

/* Addresses are multiples of 512, and as a rule near each other. */
static size_t slot_of(const struct mt_torch_map *map, uint64_t address)
{
    size_t mask = map->capacity - 1;
    size_t slot = (size_t)((address * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & mask;
    while (map->slots[slot].index && map->slots[slot].address != address)
        slot = (slot + 1) & mask;
    return slot;
}

static int grow_map(struct mt_torch_map *map)
{
    if (map->n * 2 < map->capacity)
        return 1;
    struct mt_torch_map grown = {.capacity = map->capacity ? map->capacity * 2 : 256, .n = map->n};
    grown.slots = calloc(grown.capacity, sizeof *grown.slots);
    if (!grown.slots)
        return 0;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i].index)
            grown.slots[slot_of(&grown, map->slots[i].address)] = map->slots[i];
    free(map->slots);
    *map = grown;
    return 1;
}

uint32_t mt_torch_map_get(const struct mt_torch_map *map, uint64_t address)
{
    if (!map->capacity)
        return MT_TORCH_NONE;
    uint32_t index = map->slots[slot_of(map, address)].index;
    return index ? index - 1 : MT_TORCH_NONE;
}

int mt_torch_map_put(struct mt_torch_map *map, uint64_t address, uint32_t index)
{
    if (!grow_map(map))
        return 0;
    struct mt_torch_slot *slot = &map->slots[slot_of(map, address)];
    map->n += !slot->index;
    *slot = (struct mt_torch_slot){address, index + 1};
    return 1;
}

void mt_torch_map_remove(struct mt_torch_map *map, uint64_t address)
{
    if (!map->capacity)
        return;
    size_t mask = map->capacity - 1;
    size_t slot = slot_of(map, address);
    if (!map->slots[slot].index)
        return;
    map->slots[slot].index = 0;
    map->n--;
    for (size_t i = (slot + 1) & mask; map->slots[i].index; i = (i + 1) & mask) {
        struct mt_torch_slot moved = map->slots[i];
        map->slots[i].index = 0;
        map->slots[slot_of(map, moved.address)] = moved;
    }
}
