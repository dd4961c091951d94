/* SPDX-License-Identifier: MIT */
#include "tally/paint.h"

#include <memtally/error_code.h>
#include <stdlib.h>

void mt_paint_init(struct mt_paint *paint, const struct mt_maps *maps)
{
    *paint = (struct mt_paint){.maps = maps};
    mt_ranges_init(&paint->below.ranges);
    mt_ranges_init(&paint->overlapping.ranges);
    mt_ranges_init(&paint->above.ranges);
}

void mt_paint_finish(struct mt_paint *paint)
{
    mt_ranges_finish(&paint->below.ranges);
    mt_ranges_finish(&paint->overlapping.ranges);
    mt_ranges_finish(&paint->above.ranges);
    free(paint->addresses);
    free(paint->claims);
    free(paint->stack_claims);
    *paint = (struct mt_paint){0};
}

int mt_paint_put(struct mt_layer *layer, uint64_t low, uint64_t high, size_t claim)
{
    layer->looked = MT_NEXT_UNKNOWN;
    mt_ranges_set(&layer->ranges, low, high, claim);
    return layer->ranges.failed ? MT_ENOMEM : 0;
}

/* The layer's first range that ends above `address`; NULL where there is none. */
static const struct mt_range *first_of(struct mt_layer *layer, uint64_t address)
{
    int holds = layer->looked == MT_NEXT_KNOWN
                    ? address >= layer->from && address < layer->next.high
                    : layer->looked == MT_NEXT_NONE && address >= layer->from;
    if (!holds) {
        layer->from = address;
        int found = mt_ranges_at_or_after(&layer->ranges, address, &layer->next);
        layer->looked = found ? MT_NEXT_KNOWN : MT_NEXT_NONE;
    }
    return layer->looked == MT_NEXT_KNOWN ? &layer->next : NULL;
}

static uint64_t end_of(const struct mt_heap_block *block)
{
    return block->size > UINT64_MAX - block->address ? UINT64_MAX : block->address + block->size;
}

size_t mt_paint_claim_of(const struct mt_paint *paint, const struct mt_heap_block *block)
{
    if (block->site & MT_SITE_IN_SCOPE)
        return paint->claims[block->site & ~MT_SITE_IN_SCOPE];
    return paint->stack_claims ? paint->stack_claims[block->site] : paint->plain_claim;
}

/* Cuts a range to its first piece that the kernel does not show to be a file: a block whose end
 * went unseen does not hold what was mapped in its place. Returns 0 where nothing is left. */
static int cut_files(const struct mt_maps *maps, struct mt_range *range)
{
    const struct mt_vma *end = maps->vmas + maps->n;
    for (const struct mt_vma *vma = mt_maps_at_or_after(maps, range->low);
         vma < end && vma->start < range->high; vma++) {
        if (vma->kind != MT_VMA_FILE)
            continue;
        if (vma->start > range->low) {
            range->high = vma->start;
            return 1;
        }
        range->low = vma->end;
        if (range->low >= range->high)
            return 0;
    }
    return 1;
}

static int by_address(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static int list_addresses(struct mt_paint *paint)
{
    const struct mt_heap_block *block;
    uint64_t at = 0;
    size_t n = 0;
    paint->addresses = malloc((paint->blocks->n + 1) * sizeof *paint->addresses);
    if (!paint->addresses)
        return MT_ENOMEM;
    while ((block = mt_blocks_next(paint->blocks, &at)))
        if (block->size)
            paint->addresses[n++] = block->address;
    if (n)
        qsort(paint->addresses, n, sizeof *paint->addresses, by_address);
    paint->n_addresses = n;
    return 0;
}

static int by_age(const void *a, const void *b)
{
    const struct mt_heap_block *x = a;
    const struct mt_heap_block *y = b;
    if (x->born != y->born)
        return x->born < y->born ? -1 : 1;
    return by_address(&x->address, &y->address);
}

/* Blocks each of which overlaps one before it become ranges, oldest first. */
static int put_overlapping(struct mt_paint *paint, const uint64_t *addresses, size_t n)
{
    struct mt_heap_block *blocks = malloc(n * sizeof *blocks);
    int result = blocks ? 0 : MT_ENOMEM;
    for (size_t i = 0; i < n && result == 0; i++)
        blocks[i] = *mt_blocks_get(paint->blocks, addresses[i]);
    if (result == 0)
        qsort(blocks, n, sizeof *blocks, by_age);
    for (size_t i = 0; i < n && result == 0; i++) {
        struct mt_range range = {blocks[i].address, end_of(&blocks[i]), 0};
        size_t claim = mt_paint_claim_of(paint, &blocks[i]);
        for (uint64_t end = range.high; result == 0 && range.low < end; range.low = range.high) {
            range.high = end;
            if (!cut_files(paint->maps, &range))
                break;
            result = mt_paint_put(&paint->overlapping, range.low, range.high, claim);
        }
    }
    free(blocks);
    return result;
}

int mt_paint_blocks(struct mt_paint *paint, const struct mt_blocks *blocks)
{
    size_t kept = 0;
    paint->blocks = blocks;
    int result = list_addresses(paint);
    for (size_t first = 0, end; first < paint->n_addresses && result == 0; first = end) {
        uint64_t high = end_of(mt_blocks_get(blocks, paint->addresses[first]));
        for (end = first + 1; end < paint->n_addresses && paint->addresses[end] < high; end++) {
            uint64_t other = end_of(mt_blocks_get(blocks, paint->addresses[end]));
            high = other > high ? other : high;
        }
        if (end == first + 1)
            paint->addresses[kept++] = paint->addresses[first];
        else
            result = put_overlapping(paint, paint->addresses + first, end - first);
    }
    paint->n_addresses = kept;
    return result;
}

/* The range of block `i` of the list. */
static void look_at(struct mt_paint *paint, size_t i)
{
    const struct mt_heap_block *block = mt_blocks_get(paint->blocks, paint->addresses[i]);
    paint->near = i;
    paint->block =
        (struct mt_range){block->address, end_of(block), mt_paint_claim_of(paint, block)};
}

/* The last block of the list that begins at or before `address`, else the first. */
static void search(struct mt_paint *paint, uint64_t address)
{
    size_t low = 0;
    size_t high = paint->n_addresses;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (paint->addresses[middle] <= address)
            low = middle;
        else
            high = middle;
    }
    look_at(paint, low);
}

/* The first piece of a block that ends above `address`. */
static int first_block(struct mt_paint *paint, uint64_t address, struct mt_range *range)
{
    if (!paint->n_addresses)
        return 0;
    int is_near =
        paint->block.high && paint->block.low <= address &&
        (paint->near + 1 == paint->n_addresses || address <= paint->addresses[paint->near + 1]);
    if (!is_near)
        search(paint, address);
    for (;;) {
        if (paint->block.high > address) {
            *range = paint->block;
            range->low = range->low > address ? range->low : address;
            if (cut_files(paint->maps, range))
                return 1;
        }
        if (paint->near + 1 == paint->n_addresses)
            return 0;
        look_at(paint, paint->near + 1);
    }
}

/* Puts a weaker layer's range under what was found so far. */
static void put_under(struct mt_range *piece, int *any, const struct mt_range *range,
                      uint64_t address)
{
    uint64_t low = range->low > address ? range->low : address;
    if (!*any || low < piece->low) {
        uint64_t high = *any && piece->low < range->high ? piece->low : range->high;
        *piece = (struct mt_range){low, high, range->value};
    }
    *any = 1;
}

int mt_paint_at_or_after(struct mt_paint *paint, uint64_t address, struct mt_range *piece)
{
    struct mt_layer *stronger[] = {&paint->above, &paint->overlapping};
    const struct mt_range *range;
    struct mt_range block;
    int any = 0;
    for (size_t i = 0; i < sizeof stronger / sizeof *stronger; i++)
        if ((range = first_of(stronger[i], address)))
            put_under(piece, &any, range, address);
    if (first_block(paint, address, &block))
        put_under(piece, &any, &block, address);
    if ((range = first_of(&paint->below, address)))
        put_under(piece, &any, range, address);
    return any;
}
