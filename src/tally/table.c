/* SPDX-License-Identifier: MIT */
/* Open addressing with linear probing; removal shifts the following entries back. */
#include "tally/table.h"

#include <memtally/error_code.h>
#include <stdlib.h>

#include "base/invariant.h"

#define EMPTY UINT64_MAX

int mt_table_is_valid(const struct mt_table *table)
{
    return table->n <= table->capacity / 2 && (table->capacity & (table->capacity - 1)) == 0;
}

void mt_table_init(struct mt_table *table)
{
    *table = (struct mt_table){0};
}

void mt_table_finish(struct mt_table *table)
{
    free(table->slots);
    mt_table_init(table);
}

static size_t home_of(const struct mt_table *table, uint64_t key)
{
    uint64_t hash = key ^ (uint64_t)(uintptr_t)table->slots;
    hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdu;
    hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53u;
    return (size_t)(hash ^ hash >> 33) & (table->capacity - 1);
}

static struct mt_table_slot *find(const struct mt_table *table, uint64_t key)
{
    size_t at = home_of(table, key);
    while (table->slots[at].key != EMPTY && table->slots[at].key != key)
        at = (at + 1) & (table->capacity - 1);
    return &table->slots[at];
}

static int grow(struct mt_table *table)
{
    struct mt_table bigger = {.capacity = table->capacity ? table->capacity * 2 : 64};
    bigger.slots = malloc(bigger.capacity * sizeof *bigger.slots);
    if (!bigger.slots)
        return MT_ENOMEM;
    for (size_t i = 0; i < bigger.capacity; i++)
        bigger.slots[i].key = EMPTY;
    for (size_t i = 0; i < table->capacity; i++)
        if (table->slots[i].key != EMPTY)
            *find(&bigger, table->slots[i].key) = table->slots[i];
    bigger.n = table->n;
    free(table->slots);
    *table = bigger;
    return 0;
}

void mt_table_expect(const struct mt_table *table, uint64_t key)
{
    if (table->n)
        __builtin_prefetch(&table->slots[home_of(table, key)], 1);
}

int mt_table_set(struct mt_table *table, uint64_t key, uint64_t value)
{
    if (table->n * 2 >= table->capacity && grow(table) < 0)
        return MT_ENOMEM;
    struct mt_table_slot *slot = find(table, key);
    table->n += slot->key == EMPTY;
    *slot = (struct mt_table_slot){key, value};
    MT_HOLDS(mt_table_is_valid(table));
    return 0;
}

int mt_table_get(const struct mt_table *table, uint64_t key, uint64_t *value)
{
    if (!table->n)
        return 0;
    const struct mt_table_slot *slot = find(table, key);
    if (slot->key == EMPTY)
        return 0;
    *value = slot->value;
    return 1;
}

int mt_table_take(struct mt_table *table, uint64_t key, uint64_t *value)
{
    if (!table->n)
        return 0;
    struct mt_table_slot *slot = find(table, key);
    if (slot->key == EMPTY)
        return 0;
    if (value)
        *value = slot->value;
    table->n--;
    size_t mask = table->capacity - 1;
    size_t hole = (size_t)(slot - table->slots);
    for (size_t at = (hole + 1) & mask; table->slots[at].key != EMPTY; at = (at + 1) & mask) {
        size_t home = home_of(table, table->slots[at].key);
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            table->slots[hole] = table->slots[at];
            hole = at;
        }
    }
    table->slots[hole].key = EMPTY;
    return 1;
}
