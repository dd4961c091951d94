/* SPDX-License-Identifier: MIT */
/* Who holds what, by process and object, in steps that do not grow with what is held: the account
 * is the program's to write, and may lie in a folder that somebody else made. */
#ifndef MT_REHEARSE_OWNED_H
#define MT_REHEARSE_OWNED_H

#include <stddef.h>
#include <stdint.h>

struct mt_owned_slot {
    uint64_t owner;
    uint64_t object;
    size_t value; /* 0: the slot is empty */
};

/* A hash table, at most half full. Start with {0}; free(slots). */
struct mt_owned_map {
    struct mt_owned_slot *slots;
    size_t capacity; /* a power of two, or 0 */
    size_t n;
};

/* What belongs to a process, in the list of its others. `next` and `previous` are numbers + 1 of a
 * list that the caller has; 0: none. */
struct mt_owned_entry {
    uint64_t owner;
    uint64_t object;
    size_t next, previous;
};

/* Where the entry with a number stands in the caller's list. */
typedef struct mt_owned_entry *mt_owned_find(const void *list, size_t number);

/* The value, 0 where there is none. */
size_t mt_owned_get(const struct mt_owned_map *map, uint64_t owner, uint64_t object);

/* Sets a value; 0 removes it. Returns whether there was memory; to remove needs none. */
int mt_owned_set(struct mt_owned_map *map, uint64_t owner, uint64_t object, size_t value);

/* The number + 1 of the entry of `owner` that was put last and is still there, or 0. */
size_t mt_owned_newest(const struct mt_owned_map *map, uint32_t owner);

/* Puts entry `number` of the list, whose owner and object are set: its number + 1 becomes their
 * value. Returns whether there was memory; without, nothing has changed. */
int mt_owned_put(struct mt_owned_map *map, const void *list, mt_owned_find *find, size_t number);

/* Takes it out again. */
void mt_owned_take(struct mt_owned_map *map, const void *list, mt_owned_find *find, size_t number);

#endif
