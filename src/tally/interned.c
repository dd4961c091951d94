/* SPDX-License-Identifier: MIT */
#include "tally/interned.h"

#include <memtally/error_code.h>
#include <stdlib.h>
#include <string.h>

void mt_interned_finish(struct mt_interned *interned)
{
    mt_arena_finish(&interned->arena);
    mt_table_finish(&interned->by_hash);
    free(interned->items);
    *interned = (struct mt_interned){0};
}

/* Seeded by where the list lies, so that a file cannot choose strings that collide. */
static uint64_t hash_of(const struct mt_interned *interned, const uint8_t *bytes, size_t length)
{
    uint64_t hash = (uint64_t)(uintptr_t)interned ^ length * 0x9e3779b97f4a7c15u;
    while (length) {
        uint64_t word = 0;
        size_t n = length < sizeof word ? length : sizeof word;
        memcpy(&word, bytes, n);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
        bytes += n;
        length -= n;
    }
    hash *= 0xc4ceb9fe1a85ec53u;
    hash ^= hash >> 33;
    return hash == UINT64_MAX ? 0 : hash;
}

static int is_same(const struct mt_text *text, const void *bytes, size_t length)
{
    return text->length == length && memcmp(text->text, bytes, length) == 0;
}

static int add(struct mt_interned *interned, const void *bytes, size_t length, uint64_t hash)
{
    if (interned->n + 1 >= interned->capacity) {
        size_t more = interned->capacity ? interned->capacity + interned->capacity / 2 : 64;
        void *grown =
            more > UINT32_MAX ? NULL : realloc(interned->items, more * sizeof *interned->items);
        if (!grown)
            return MT_ENOMEM;
        interned->items = grown;
        interned->capacity = more;
    }
    char *copy = mt_arena_copy(&interned->arena, bytes, length);
    size_t number = interned->n ? interned->n : 1;
    if (!copy || mt_table_set(&interned->by_hash, hash, number) < 0)
        return MT_ENOMEM;
    interned->items[number] = (struct mt_text){copy, length};
    interned->n = number + 1;
    return 0;
}

int mt_interned_number(struct mt_interned *interned, const void *bytes, size_t length,
                       uint32_t *number)
{
    uint64_t hash = hash_of(interned, bytes, length);
    uint64_t found;
    while (mt_table_get(&interned->by_hash, hash, &found)) {
        if (is_same(&interned->items[found], bytes, length)) {
            *number = (uint32_t)found;
            return 0;
        }
        hash = hash == UINT64_MAX - 1 ? 0 : hash + 1;
    }
    if (add(interned, bytes, length, hash) < 0)
        return MT_ENOMEM;
    *number = (uint32_t)interned->n - 1;
    return 0;
}
