/* SPDX-License-Identifier: MIT */
/* What a number stands for: handles that were given out, addresses inside pools. Numbers are not 0
 * and values not NULL. Start with {0}; lock held. */
#ifndef MT_CUDA_DRIVER_TABLE_H
#define MT_CUDA_DRIVER_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct pretend_table {
    struct pretend_entry {
        uint64_t key; /* 0 where the slot is empty */
        void *value;
    } * entry;
    size_t n, capacity; /* a power of two, or 0 */
};

void *pretend_table_get(const struct pretend_table *table, uint64_t key);
/* Returns 0 where memory ran out. */
int pretend_table_put(struct pretend_table *table, uint64_t key, void *value);
void pretend_table_remove(struct pretend_table *table, uint64_t key);

#endif
