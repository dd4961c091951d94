/* SPDX-License-Identifier: MIT */
/* A table with open addressing, at most half full. */
#include "table.h"

#include <stdlib.h>

static size_t slot_of(const struct pretend_table *table, uint64_t key)
{
    size_t mask = table->capacity - 1;
    size_t slot = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & mask;
    while (table->entry[slot].key && table->entry[slot].key != key)
        slot = (slot + 1) & mask;
    return slot;
}

void *pretend_table_get(const struct pretend_table *table, uint64_t key)
{
    if (!table->n || !key)
        return NULL;
    const struct pretend_entry *entry = &table->entry[slot_of(table, key)];
    return entry->key ? entry->value : NULL;
}

static int grow(struct pretend_table *table)
{
    if (table->n * 2 < table->capacity)
        return 1;
    struct pretend_table larger = {.n = table->n,
                                   .capacity = table->capacity ? table->capacity * 2 : 256};
    larger.entry = calloc(larger.capacity, sizeof *larger.entry);
    if (!larger.entry)
        return 0;
    for (size_t i = 0; i < table->capacity; i++)
        if (table->entry[i].key)
            larger.entry[slot_of(&larger, table->entry[i].key)] = table->entry[i];
    free(table->entry);
    *table = larger;
    return 1;
}

int pretend_table_put(struct pretend_table *table, uint64_t key, void *value)
{
    if (!grow(table))
        return 0;
    struct pretend_entry *entry = &table->entry[slot_of(table, key)];
    table->n += !entry->key;
    *entry = (struct pretend_entry){key, value};
    return 1;
}

/* What had to step aside for it moves up. */
void pretend_table_remove(struct pretend_table *table, uint64_t key)
{
    if (!pretend_table_get(table, key))
        return;
    size_t mask = table->capacity - 1;
    size_t slot = slot_of(table, key);
    table->entry[slot].key = 0;
    table->n--;
    for (size_t i = (slot + 1) & mask; table->entry[i].key; i = (i + 1) & mask) {
        struct pretend_entry moved = table->entry[i];
        table->entry[i].key = 0;
        table->entry[slot_of(table, moved.key)] = moved;
    }
}
