/* SPDX-License-Identifier: MIT */
/* A hash table from 64-bit keys to 64-bit values. Key UINT64_MAX is not allowed.
 *
 * The hash is seeded by where the table lies, so that a file cannot choose keys that collide. */
#ifndef MT_TALLY_TABLE_H
#define MT_TALLY_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct mt_table_slot {
    uint64_t key; /* UINT64_MAX: empty */
    uint64_t value;
};

/* Invariant: n <= capacity / 2, capacity is 0 or a power of two. */
struct mt_table {
    struct mt_table_slot *slots;
    size_t capacity;
    size_t n;
};

int mt_table_is_valid(const struct mt_table *table);

void mt_table_init(struct mt_table *table);
void mt_table_finish(struct mt_table *table);

/* Has the memory fetched that a call for `key` will want soon. */
void mt_table_expect(const struct mt_table *table, uint64_t key);

/* Sets or replaces. Returns 0 or MT_ENOMEM (then nothing has changed). */
int mt_table_set(struct mt_table *table, uint64_t key, uint64_t value);
int mt_table_get(const struct mt_table *table, uint64_t key, uint64_t *value);

/* Removes; *value (may be NULL) is what it was. Returns whether it was there. */
int mt_table_take(struct mt_table *table, uint64_t key, uint64_t *value);

#endif
