/* SPDX-License-Identifier: MIT */
/* Whether a name is defined, by the tables of the loaded objects. The loader itself allocates for
 * the message that a name is not there, and the first hook of all may be called by an allocator
 * that is being set up and holds its lock. */
#include "recorder/present.h"

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>

#include "recorder/recorder.h"

extern HIDDEN ElfW(Dyn) _DYNAMIC[];

struct names {
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *gnu_hash;
    const uint32_t *hash;
};

/* The loader has added an object's address to its pointers where it may write to them. */
static const void *pointer_of(const struct link_map *map, const ElfW(Dyn) * entry)
{
    uintptr_t at = entry->d_un.d_ptr;
    return (const void *)(at < map->l_addr ? at + map->l_addr : at);
}

static void find_names(const struct link_map *map, struct names *names)
{
    for (const ElfW(Dyn) *entry = map->l_ld; entry && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB)
            names->symbols = pointer_of(map, entry);
        else if (entry->d_tag == DT_STRTAB)
            names->strings = pointer_of(map, entry);
        else if (entry->d_tag == DT_GNU_HASH)
            names->gnu_hash = pointer_of(map, entry);
        else if (entry->d_tag == DT_HASH)
            names->hash = pointer_of(map, entry);
    }
}

static int is_the_one(const struct names *names, uint32_t i, const char *name)
{
    const ElfW(Sym) *symbol = &names->symbols[i];
    const char *its = names->strings + symbol->st_name;
    while (*name && *name == *its) {
        name++;
        its++;
    }
    return *name == *its && symbol->st_shndx != SHN_UNDEF;
}

static uint32_t gnu_hash_of(const char *name)
{
    uint32_t hash = 5381;
    for (; *name; name++)
        hash = hash * 33 + (uint8_t)*name;
    return hash;
}

/* The table: how many buckets, the first symbol in it, the length of its filter, a shift; the
 * filter, the buckets, and a hash of each symbol whose last bit ends a bucket. */
static int is_in_gnu_hash(const struct names *names, const char *name)
{
    const uint32_t *table = names->gnu_hash;
    const uint32_t n = table[0];
    const uint32_t first = table[1];
    const uint32_t *buckets = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof *table);
    const uint32_t *hashes = buckets + n;
    const uint32_t hash = gnu_hash_of(name);
    uint32_t i = n ? buckets[hash % n] : 0;
    if (i < first)
        return 0;
    for (;; i++) {
        uint32_t its = hashes[i - first];
        if ((its | 1) == (hash | 1) && is_the_one(names, i, name))
            return 1;
        if (its & 1)
            return 0;
    }
}

/* The older table says how many symbols there are. */
static int is_in_all(const struct names *names, const char *name)
{
    for (uint32_t i = 0; i < names->hash[1]; i++)
        if (is_the_one(names, i, name))
            return 1;
    return 0;
}

static int defines(const struct link_map *map, const char *name)
{
    struct names names = {0};
    find_names(map, &names);
    if (!names.symbols || !names.strings)
        return 0;
    if (names.gnu_hash)
        return is_in_gnu_hash(&names, name);
    return names.hash && is_in_all(&names, name);
}

int is_defined(const char *name, int behind_us)
{
    int counts = !behind_us;
    for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
        int is_ours = map->l_ld == _DYNAMIC;
        if (counts && !is_ours && defines(map, name))
            return 1;
        counts |= is_ours;
    }
    return 0;
}
