/* SPDX-License-Identifier: MIT */
/* The list of claims of a process or a tree. */
#include <stdlib.h>
#include <string.h>

#include <memtally/category.h>
#include <memtally/error_code.h>

#include "base/array.h"
#include "tally/attribute.h"

void mt_claims_finish(struct mt_claims *claims)
{
    for (size_t i = 0; i < claims->n; i++)
        free(claims->items[i].name);
    free(claims->items);
    mt_table_finish(&claims->by_hash);
    *claims = (struct mt_claims){0};
}

static uint64_t hash_of(enum mt_category category, enum mt_provenance provenance, const char *name,
                        size_t length)
{
    uint64_t hash = 0xcbf29ce484222325u ^ (uint64_t)category << 8 ^ (uint64_t)provenance;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (uint8_t)name[i]) * 0x100000001b3u;
    return hash == UINT64_MAX ? 0 : hash;
}

static int is_same(const struct mt_claim *claim, enum mt_category category,
                   enum mt_provenance provenance, const char *name, size_t length)
{
    return claim->category == category && claim->provenance == provenance &&
           strlen(claim->name) == length && memcmp(claim->name, name, length) == 0;
}

static size_t add(struct mt_claims *claims, enum mt_category category,
                  enum mt_provenance provenance, const char *name, size_t length)
{
    if (mt_array_reserve(claims->items, claims->n, claims->capacity, 64) < 0)
        return 0;
    char *copy = strndup(name, length);
    if (!copy)
        return 0;
    claims->items[claims->n] = (struct mt_claim){
        .category = category,
        .provenance = provenance,
        .name = copy,
    };
    return claims->n++;
}

int mt_claims_init(struct mt_claims *claims)
{
    *claims = (struct mt_claims){0};
    add(claims, MT_CATEGORY_NONE, MT_PROVENANCE_MEASURED, "", 0);
    if (claims->n)
        return 0;
    mt_claims_finish(claims);
    return MT_ENOMEM;
}

size_t mt_claim_of(struct mt_claims *claims, enum mt_category category,
                   enum mt_provenance provenance, const char *name, size_t name_length)
{
    /* A name with a zero byte in it would not be found again. */
    const char *zero = memchr(name, '\0', name_length);
    if (zero)
        name_length = (size_t)(zero - name);
    uint64_t hash = hash_of(category, provenance, name, name_length);
    uint64_t index;
    while (mt_table_get(&claims->by_hash, hash, &index)) {
        if (is_same(&claims->items[index], category, provenance, name, name_length))
            return (size_t)index;
        hash = hash == UINT64_MAX - 1 ? 0 : hash + 1;
    }
    size_t made = add(claims, category, provenance, name, name_length);
    if (made && mt_table_set(&claims->by_hash, hash, made) < 0)
        return 0;
    return made;
}

void mt_claim_give(struct mt_claim *from, struct mt_claim *to, uint64_t bytes)
{
    uint64_t resident = bytes < from->resident_bytes ? bytes : from->resident_bytes;
    uint64_t anonymous = resident < from->anonymous_bytes ? resident : from->anonymous_bytes;
    from->resident_bytes -= resident;
    from->anonymous_bytes -= anonymous;
    to->resident_bytes += resident;
    to->anonymous_bytes += anonymous;
}

/* No picture of the process itself was taken while they were alive. One from outside may be of
 * then, and any moment may be asked for. */
void mt_claims_place(struct mt_claims *claims, size_t heap)
{
    const uint64_t room = claims->items[heap].resident_bytes;
    uint64_t sum = 0;
    for (size_t i = 1; i < claims->n; i++)
        sum += claims->items[i].unplaced_bytes;
    claims->items[heap].is_carried |= sum > 0;
    for (size_t i = 1; i < claims->n; i++) {
        struct mt_claim *claim = &claims->items[i];
        uint64_t bytes = claim->unplaced_bytes;
        if (sum > room)
            bytes = (uint64_t)((double)bytes * ((double)room / (double)sum));
        mt_claim_give(&claims->items[heap], claim, bytes);
        claim->is_carried |= bytes > 0;
    }
}
