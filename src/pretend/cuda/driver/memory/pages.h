/* SPDX-License-Identifier: MIT */
/* A set of page numbers that finds the next and the last one before in a few steps: three levels of
 * 64 each. All zero is the empty set. */
#ifndef MT_CUDA_DRIVER_PAGES_H
#define MT_CUDA_DRIVER_PAGES_H

#include <stdint.h>

#define PRETEND_PAGES   (UINT32_C(1) << 22)
#define PRETEND_NO_PAGE UINT32_MAX

struct pretend_pages {
    uint64_t low[PRETEND_PAGES / 64];
    uint64_t middle[PRETEND_PAGES / 4096];
    uint64_t high[PRETEND_PAGES / 262144];
};

static inline void pretend_pages_add(struct pretend_pages *set, uint32_t page)
{
    set->low[page / 64] |= UINT64_C(1) << page % 64;
    set->middle[page / 4096] |= UINT64_C(1) << page / 64 % 64;
    set->high[page / 262144] |= UINT64_C(1) << page / 4096 % 64;
}

static inline void pretend_pages_remove(struct pretend_pages *set, uint32_t page)
{
    if (set->low[page / 64] &= ~(UINT64_C(1) << page % 64))
        return;
    if (set->middle[page / 4096] &= ~(UINT64_C(1) << page / 64 % 64))
        return;
    set->high[page / 262144] &= ~(UINT64_C(1) << page / 4096 % 64);
}

/* The first set bit of `words` from `from` on, the last one up to `from`; PRETEND_NO_PAGE. */
static inline uint32_t pretend_word_next(const uint64_t *words, uint32_t n_words, uint32_t from)
{
    uint32_t word = from / 64;
    if (word >= n_words)
        return PRETEND_NO_PAGE;
    uint64_t bits = words[word] >> from % 64 << from % 64;
    while (!bits && ++word < n_words)
        bits = words[word];
    return bits ? word * 64 + (uint32_t)__builtin_ctzll(bits) : PRETEND_NO_PAGE;
}

static inline uint32_t pretend_word_last(const uint64_t *words, uint32_t from)
{
    uint32_t word = from / 64;
    uint64_t bits = words[word] << (63 - from % 64) >> (63 - from % 64);
    while (!bits && word > 0)
        bits = words[--word];
    return bits ? word * 64 + 63 - (uint32_t)__builtin_clzll(bits) : PRETEND_NO_PAGE;
}

/* The first page of the set from `from` on. */
static inline uint32_t pretend_pages_next(const struct pretend_pages *set, uint32_t from)
{
    uint32_t word = from / 64;
    if (from >= PRETEND_PAGES)
        return PRETEND_NO_PAGE;
    uint64_t bits = set->low[word] >> from % 64 << from % 64;
    if (bits)
        return word * 64 + (uint32_t)__builtin_ctzll(bits);
    uint32_t at =
        (word + 1) % 64 ? pretend_word_next(set->middle, word / 64 + 1, word + 1) : PRETEND_NO_PAGE;
    if (at == PRETEND_NO_PAGE) {
        uint32_t middle = pretend_word_next(set->high, PRETEND_PAGES / 262144, word / 64 + 1);
        if (middle == PRETEND_NO_PAGE)
            return PRETEND_NO_PAGE;
        at = middle * 64 + (uint32_t)__builtin_ctzll(set->middle[middle]);
    }
    return at * 64 + (uint32_t)__builtin_ctzll(set->low[at]);
}

/* The last page of the set up to `from`. */
static inline uint32_t pretend_pages_last(const struct pretend_pages *set, uint32_t from)
{
    uint32_t word = from / 64;
    uint64_t bits = set->low[word] << (63 - from % 64) >> (63 - from % 64);
    if (bits)
        return word * 64 + 63 - (uint32_t)__builtin_clzll(bits);
    if (!word)
        return PRETEND_NO_PAGE;
    uint64_t middle =
        set->middle[(word - 1) / 64] << (63 - (word - 1) % 64) >> (63 - (word - 1) % 64);
    uint32_t at = (word - 1) / 64 * 64 + 63;
    if (middle) {
        at -= (uint32_t)__builtin_clzll(middle);
    } else {
        uint32_t above = (word - 1) / 64;
        uint32_t found = above ? pretend_word_last(set->high, above - 1) : PRETEND_NO_PAGE;
        if (found == PRETEND_NO_PAGE)
            return PRETEND_NO_PAGE;
        at = found * 64 + 63 - (uint32_t)__builtin_clzll(set->middle[found]);
    }
    return at * 64 + 63 - (uint32_t)__builtin_clzll(set->low[at]);
}

#endif
