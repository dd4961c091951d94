/* SPDX-License-Identifier: MIT */
/* Open addressing with linear probing; removal moves up what had to step aside. A process's newest
 * entry stands in the same table, under an owner that no process is. */
#include "rehearse/owned.h"

#include <stdlib.h>

#define NEWEST (UINT64_C(1) << 63)

/* Seeded by where the table lies, so that a file cannot choose objects that collide. */
static size_t home_of(const struct mt_owned_map *map, uint64_t owner, uint64_t object)
{
    uint64_t hash = object ^ (uint64_t)(uintptr_t)map->slots;
    hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdu + owner;
    hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53u;
    return (size_t)(hash ^ hash >> 33) & (map->capacity - 1);
}

static struct mt_owned_slot *slot_of(const struct mt_owned_map *map, uint64_t owner,
                                     uint64_t object)
{
    size_t at = home_of(map, owner, object);
    while (map->slots[at].value &&
           (map->slots[at].owner != owner || map->slots[at].object != object))
        at = (at + 1) & (map->capacity - 1);
    return &map->slots[at];
}

/* Room for so many more. */
static int grow(struct mt_owned_map *map, size_t more)
{
    struct mt_owned_map bigger = {.capacity = map->capacity ? map->capacity * 2 : 256, .n = map->n};
    if ((map->n + more) * 2 <= map->capacity)
        return 1;
    bigger.slots = calloc(bigger.capacity, sizeof *bigger.slots);
    if (!bigger.slots)
        return 0;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i].value)
            *slot_of(&bigger, map->slots[i].owner, map->slots[i].object) = map->slots[i];
    free(map->slots);
    *map = bigger;
    return 1;
}

static void empty(struct mt_owned_map *map, struct mt_owned_slot *slot)
{
    size_t mask = map->capacity - 1;
    slot->value = 0;
    map->n--;
    for (size_t i = ((size_t)(slot - map->slots) + 1) & mask; map->slots[i].value;
         i = (i + 1) & mask) {
        struct mt_owned_slot moved = map->slots[i];
        map->slots[i].value = 0;
        *slot_of(map, moved.owner, moved.object) = moved;
    }
}

size_t mt_owned_get(const struct mt_owned_map *map, uint64_t owner, uint64_t object)
{
    return map->n ? slot_of(map, owner, object)->value : 0;
}

int mt_owned_set(struct mt_owned_map *map, uint64_t owner, uint64_t object, size_t value)
{
    if (!value) {
        if (mt_owned_get(map, owner, object))
            empty(map, slot_of(map, owner, object));
        return 1;
    }
    if (!grow(map, 1))
        return 0;
    struct mt_owned_slot *slot = slot_of(map, owner, object);
    map->n += !slot->value;
    *slot = (struct mt_owned_slot){owner, object, value};
    return 1;
}

size_t mt_owned_newest(const struct mt_owned_map *map, uint32_t owner)
{
    return mt_owned_get(map, NEWEST | owner, 0);
}

int mt_owned_put(struct mt_owned_map *map, const void *list, mt_owned_find *find, size_t number)
{
    struct mt_owned_entry *entry = find(list, number);
    if (!grow(map, 2))
        return 0;
    entry->previous = 0;
    entry->next = mt_owned_newest(map, (uint32_t)entry->owner);
    if (entry->next)
        find(list, entry->next - 1)->previous = number + 1;
    mt_owned_set(map, NEWEST | entry->owner, 0, number + 1);
    mt_owned_set(map, entry->owner, entry->object, number + 1);
    return 1;
}

void mt_owned_take(struct mt_owned_map *map, const void *list, mt_owned_find *find, size_t number)
{
    struct mt_owned_entry *entry = find(list, number);
    if (entry->next)
        find(list, entry->next - 1)->previous = entry->previous;
    if (entry->previous)
        find(list, entry->previous - 1)->next = entry->next;
    else
        mt_owned_set(map, NEWEST | entry->owner, 0, entry->next);
    mt_owned_set(map, entry->owner, entry->object, 0);
}
