/* SPDX-License-Identifier: MIT */
/* Small allocations: they share pages of the device, in units of 512 bytes. A page goes back when
 * the last of them is gone. What libraries take for a purpose lies in pages of that purpose. */
#include <stdlib.h>

#include "linear.h"
#include "memory.h"

#define UNITS     (PRETEND_PAGE / PRETEND_UNIT)
#define LOOKS_MAX 32 /* at pages that have room, before a new one is taken */

struct slab {
    struct pretend_range *range;
    struct slab *next, *last; /* of the same device and purpose */
    uint32_t n_free;
    uint32_t n_small;
    uint64_t used[UNITS / 64];
    struct pretend_range *begins[UNITS];
};

static struct slab *slabs[MT_ACCOUNT_DEVICES_MAX][MT_CATEGORY_END];
static struct slab *spare; /* chained by `next`; as all zero as a new one */

static uint32_t unit_of(const struct slab *slab, CUdeviceptr pointer)
{
    return (uint32_t)((pointer - slab->range->base) / PRETEND_UNIT);
}

static uint32_t units_of(uint64_t bytes)
{
    return (uint32_t)((bytes + PRETEND_UNIT - 1) / PRETEND_UNIT);
}

static void mark(struct slab *slab, uint32_t first, uint32_t n, int is_used)
{
    for (uint32_t unit = first; unit < first + n;) {
        uint32_t bits = 64 - unit % 64 < first + n - unit ? 64 - unit % 64 : first + n - unit;
        uint64_t mask = (bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1) << unit % 64;
        if (is_used)
            slab->used[unit / 64] |= mask;
        else
            slab->used[unit / 64] &= ~mask;
        unit += bits;
    }
}

/* Where the run of units that are alike ends which begins at `unit`. */
static uint32_t end_of_run(const struct slab *slab, uint32_t unit, int is_used)
{
    while (unit < UNITS) {
        uint64_t word = is_used ? ~slab->used[unit / 64] : slab->used[unit / 64];
        word >>= unit % 64;
        if (word)
            return unit + (uint32_t)__builtin_ctzll(word);
        unit += 64 - unit % 64;
    }
    return UNITS;
}

static uint32_t find_units(const struct slab *slab, uint32_t n)
{
    uint32_t first = end_of_run(slab, 0, 1);
    while (first + n <= UNITS) {
        uint32_t end = end_of_run(slab, first, 0);
        if (end - first >= n)
            return first;
        first = end_of_run(slab, end, 1);
    }
    return UNITS;
}

static void link_slab(struct slab *slab)
{
    struct slab **head = &slabs[slab->range->device][slab->range->category];
    slab->last = NULL;
    slab->next = *head;
    if (*head)
        (*head)->last = slab;
    *head = slab;
}

static void unlink_slab(struct slab *slab)
{
    if (slab->next)
        slab->next->last = slab->last;
    if (slab->last)
        slab->last->next = slab->next;
    else
        slabs[slab->range->device][slab->range->category] = slab->next;
}

static struct slab *new_slab(void)
{
    struct slab *slab = spare;
    if (!slab)
        return calloc(1, sizeof *slab);
    spare = slab->next;
    return slab;
}

static void drop_slab(struct slab *slab)
{
    if (slab)
        slab->next = spare;
    spare = slab ? slab : spare;
}

static CUresult make_slab(int device, uint64_t asked, enum mt_category category, const char *name,
                          struct slab **made)
{
    struct slab *slab = new_slab();
    struct pretend_range *range = pretend_range_make(PRETEND_SLAB, device, PRETEND_PAGE);
    CUresult result = slab && range ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        range->span = range->held = PRETEND_PAGE;
        range->category = (uint8_t)category;
        range->inside = slab;
        result = pretend_range_place(range, PRETEND_PAGE, 0);
    }
    if (result == CUDA_SUCCESS) {
        result = pretend_charge(range, asked, name);
        if (result != CUDA_SUCCESS)
            pretend_range_remove(range);
    }
    if (result != CUDA_SUCCESS) {
        drop_slab(slab);
        if (range)
            pretend_range_drop(range);
        return result;
    }
    slab->range = range;
    slab->n_free = UNITS;
    link_slab(slab);
    *made = slab;
    return CUDA_SUCCESS;
}

/* A slab with room and where it is, or NULL. */
static struct slab *find_slab(int device, enum mt_category category, uint32_t n, uint32_t *unit)
{
    int looks = 0;
    for (struct slab *slab = slabs[device][category]; slab && looks < LOOKS_MAX;
         slab = slab->next) {
        if (slab->n_free < n)
            continue;
        *unit = find_units(slab, n);
        if (*unit < UNITS)
            return slab;
        looks++;
    }
    *unit = 0; /* of a new one */
    return NULL;
}

CUresult pretend_slab_take(int device, uint64_t bytes, enum mt_category category, const char *name,
                           CUdeviceptr *pointer)
{
    uint32_t unit = 0;
    uint32_t n = units_of(bytes);
    struct pretend_range *small = pretend_range_make(PRETEND_SMALL, device, bytes);
    if (!small)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct slab *slab = find_slab(device, category, n, &unit);
    CUresult result = slab ? CUDA_SUCCESS : make_slab(device, bytes, category, name, &slab);
    if (result != CUDA_SUCCESS) {
        pretend_range_drop(small);
        return result;
    }
    small->base = slab->range->base + (uint64_t)unit * PRETEND_UNIT;
    small->span = (uint64_t)n * PRETEND_UNIT;
    small->category = (uint8_t)category;
    small->inside = slab;
    mark(slab, unit, n, 1);
    slab->begins[unit] = small;
    slab->n_free -= n;
    slab->n_small++;
    *pointer = small->base;
    return CUDA_SUCCESS;
}

void pretend_slab_give(struct pretend_range *small)
{
    struct slab *slab = small->inside;
    uint32_t unit = unit_of(slab, small->base);
    uint32_t n = units_of(small->bytes);
    mark(slab, unit, n, 0);
    slab->begins[unit] = NULL;
    slab->n_free += n;
    pretend_written_clear(small->base, small->span);
    pretend_range_drop(small);
    if (--slab->n_small)
        return;
    unlink_slab(slab);
    pretend_discharge(slab->range);
    pretend_range_remove(slab->range);
    pretend_range_drop(slab->range);
    drop_slab(slab);
}

struct pretend_range *pretend_slab_next(const struct pretend_range *range, CUdeviceptr from)
{
    const struct slab *slab = range->inside;
    uint32_t unit = from <= range->base ? 0 : (uint32_t)units_of(from - range->base);
    while (unit < UNITS && !slab->begins[unit])
        unit++;
    return unit < UNITS ? slab->begins[unit] : NULL;
}

struct pretend_range *pretend_slab_find(const struct pretend_range *range, CUdeviceptr pointer)
{
    const struct slab *slab = range->inside;
    for (uint32_t unit = unit_of(slab, pointer) + 1; unit-- > 0;) {
        struct pretend_range *small = slab->begins[unit];
        if (small)
            return pointer - small->base < small->span ? small : NULL;
    }
    return NULL;
}
