/* SPDX-License-Identifier: MIT */
/* An open hash table of numbers. Knows names as bytes only. */
#include "model/names.h"

#include <memtally/error_code.h>
#include <stdlib.h>
#include <string.h>

/* Honest names need fewer than two probes each. */
#define PROBES_PER_NAME 64

static uint64_t mix(uint64_t value)
{
    value *= 0x9e3779b97f4a7c15u;
    return value ^ (value >> 32);
}

static uint32_t hash_of(const char *name, size_t length)
{
    uint64_t hash = length;
    uint64_t word;
    for (; length >= sizeof word; name += sizeof word, length -= sizeof word) {
        memcpy(&word, name, sizeof word);
        hash = mix(hash ^ word) + word;
    }
    word = 0;
    memcpy(&word, name, length);
    return (uint32_t)(mix(mix(hash ^ word) + length) >> 16);
}

static uint64_t slot_of(uint32_t hash, uint32_t number)
{
    return (uint64_t)hash << 32 | (number + 1);
}

static size_t first_slot(const struct mt_names *names, uint32_t hash)
{
    return hash & (names->n_slots - 1);
}

static void put(struct mt_names *names, uint64_t slot)
{
    size_t at = first_slot(names, (uint32_t)(slot >> 32));
    while (names->slots[at] != 0)
        at = (at + 1) & (names->n_slots - 1);
    names->slots[at] = slot;
}

int mt_names_reserve(struct mt_names *names, size_t n)
{
    size_t n_slots = 64;
    while (n_slots / 2 < n)
        n_slots *= 2;
    if (n_slots <= names->n_slots)
        return 0;
    struct mt_names larger = *names;
    larger.n_slots = n_slots;
    larger.slots = calloc(n_slots, sizeof *larger.slots);
    if (!larger.slots)
        return MT_ENOMEM;
    for (size_t i = 0; i < names->n_slots; i++)
        if (names->slots[i] != 0)
            put(&larger, names->slots[i]);
    free(names->slots);
    *names = larger;
    return 0;
}

/* The slot of a name, or the empty one where it would go. */
static size_t seek(const struct mt_names *names, const char *name, size_t length, uint32_t hash,
                   uint64_t *probes)
{
    size_t at = first_slot(names, hash);
    for (; names->slots[at] != 0; at = (at + 1) & (names->n_slots - 1)) {
        ++*probes;
        if ((uint32_t)(names->slots[at] >> 32) != hash)
            continue;
        size_t other_length;
        uint32_t number = (uint32_t)names->slots[at] - 1;
        const char *other = names->name_of(names->argument, number, &other_length);
        if (other_length == length && memcmp(other, name, length) == 0)
            break;
    }
    return at;
}

uint32_t mt_names_hash(const struct mt_names *names, uint32_t number)
{
    size_t length;
    const char *name = names->name_of(names->argument, number, &length);
    uint32_t hash = hash_of(name, length);
    if (names->n_slots != 0)
        __builtin_prefetch(&names->slots[first_slot(names, hash)], 1);
    return hash;
}

int mt_names_add(struct mt_names *names, uint32_t number, uint32_t hash, uint32_t *other)
{
    int code = mt_names_reserve(names, names->n + 1);
    if (code)
        return code;
    size_t length;
    const char *name = names->name_of(names->argument, number, &length);
    size_t at = seek(names, name, length, hash, &names->probes);
    if (names->slots[at] != 0) {
        *other = (uint32_t)names->slots[at] - 1;
        return 1;
    }
    names->slots[at] = slot_of(hash, number);
    names->n++;
    return names->probes > PROBES_PER_NAME * (names->n + PROBES_PER_NAME) ? MT_ELIMIT : 0;
}

uint32_t mt_names_find(const struct mt_names *names, const char *name, size_t length)
{
    uint64_t probes = 0;
    if (names->n == 0)
        return MT_NAMES_NONE;
    size_t at = seek(names, name, length, hash_of(name, length), &probes);
    return names->slots[at] != 0 ? (uint32_t)names->slots[at] - 1 : MT_NAMES_NONE;
}

void mt_names_finish(struct mt_names *names)
{
    free(names->slots);
    names->slots = NULL;
    names->n_slots = names->n = 0;
}
