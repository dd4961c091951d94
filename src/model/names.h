/* SPDX-License-Identifier: MIT */
/* Finding a name among many: an index from names to numbers. The names themselves are the caller's.
 *
 * Names come from files that may mean harm. Where they are made to collide, the index gives up
 * instead of becoming slow. */
#ifndef MT_MODEL_NAMES_H
#define MT_MODEL_NAMES_H

#include <stddef.h>
#include <stdint.h>

/* Start from {0} with `name_of` set. */
struct mt_names {
    const char *(*name_of)(const void *argument, uint32_t number, size_t *length);
    const void *argument;
    uint64_t *slots; /* hash and number + 1, or 0 */
    size_t n_slots;
    size_t n;
    uint64_t probes;
};

#define MT_NAMES_NONE UINT32_MAX

/* The hash of the name of `number`; its place in the index is fetched into the cache, so that it
 * pays to ask for a few names ahead of adding them. */
uint32_t mt_names_hash(const struct mt_names *names, uint32_t number);
/* Adds the name of `number`, whose hash that is. Returns 0; 1 where it is there already, *other is
 * then its number; MT_ENOMEM; MT_ELIMIT where names collide too often. */
int mt_names_add(struct mt_names *names, uint32_t number, uint32_t hash, uint32_t *other);
/* Makes room for `n` names. Returns 0 or MT_ENOMEM. */
int mt_names_reserve(struct mt_names *names, size_t n);
/* The number of a name, or MT_NAMES_NONE. */
uint32_t mt_names_find(const struct mt_names *names, const char *name, size_t length);
void mt_names_finish(struct mt_names *names);

#endif
