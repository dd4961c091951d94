/* SPDX-License-Identifier: MIT */
/* Packing without stretches, for what fits in no other way: largest units first, each on every
 * device that has room, without trying twice what is the same. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define STEPS_MAX    4000000
#define FEW_STEPS    4096
#define FAILED_SLOTS (1u << 20)
#define FAILED_MOST  (3 * (FAILED_SLOTS / 4))

struct item {
    uint64_t bytes;
    size_t unit;
    int pinned;
};

struct packing {
    size_t n;
    struct item *items;
    int *device; /* of each item */
    uint64_t *rooms;
    size_t n_devices;
    const struct mt_place_device *devices;
    uint64_t free_bytes;
    uint64_t left_bytes; /* of items that lie nowhere yet */
    uint64_t steps;
    uint64_t *failed; /* marks of what is known to lead nowhere, in a table with open slots of 0 */
    size_t n_failed;
};

static int larger_first(const void *a, const void *b)
{
    const struct item *x = a;
    const struct item *y = b;
    if ((x->pinned == MT_PLACE_ANY) != (y->pinned == MT_PLACE_ANY))
        return x->pinned == MT_PLACE_ANY ? 1 : -1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->unit < y->unit ? -1 : 1;
}

/* Whether a device has room for what it has in any case. */
static int is_open(const struct packing *packing, size_t device)
{
    return packing->devices[device].limit_bytes >= packing->devices[device].overhead_bytes;
}

/* The first device that item `i` may lie on. Of items of one size none lies before the one that
 * was put before it, because they may change places. */
static size_t first_device(const struct packing *packing, size_t i)
{
    const struct item *item = &packing->items[i];
    return i && item->pinned == MT_PLACE_ANY && item[-1].pinned == MT_PLACE_ANY &&
                   item[-1].bytes == item->bytes
               ? (size_t)packing->device[i - 1]
               : 0;
}

/* A device that an earlier one, from `first` on, stands for: as much room now, and nothing is
 * pinned to either. */
static int is_tried(const struct packing *packing, size_t first, size_t device)
{
    for (size_t d = first; d < device; d++)
        if (is_open(packing, d) && packing->rooms[d] == packing->rooms[device])
            return 1;
    return 0;
}

static void put(struct packing *packing, size_t i, size_t device)
{
    packing->device[i] = (int)device;
    packing->rooms[device] -= packing->items[i].bytes;
    packing->free_bytes -= packing->items[i].bytes;
    packing->left_bytes -= packing->items[i].bytes;
}

static void take_back(struct packing *packing, size_t i)
{
    packing->rooms[packing->device[i]] += packing->items[i].bytes;
    packing->free_bytes += packing->items[i].bytes;
    packing->left_bytes += packing->items[i].bytes;
}

/* The next device on which item `i` may lie, from `device` on; n_devices: none. */
static size_t next_device(const struct packing *packing, size_t i, size_t device)
{
    const struct item *item = &packing->items[i];
    size_t first = first_device(packing, i);
    for (device = device < first ? first : device; device < packing->n_devices; device++) {
        int may = item->pinned == MT_PLACE_ANY ? !is_tried(packing, first, device)
                                               : item->pinned == (int)device;
        if (may && is_open(packing, device) && packing->rooms[device] >= item->bytes)
            break;
    }
    return device;
}

/* ---- what is known to lead nowhere ---- */

/* From the first item of a size on all that counts is how much room devices have, in any order. */
static int begins_size(const struct packing *packing, size_t i)
{
    const struct item *item = &packing->items[i];
    return item->pinned == MT_PLACE_ANY &&
           (!i || item[-1].pinned != MT_PLACE_ANY || item[-1].bytes != item->bytes);
}

static int by_room(const void *a, const void *b)
{
    const uint64_t *x = a;
    const uint64_t *y = b;
    return (*x > *y) - (*x < *y);
}

/* 64 bits that stand for the item and the rooms. */
static uint64_t mark_of(const struct packing *packing, size_t i)
{
    uint64_t rooms[MT_PLACE_DEVICES_MAX];
    uint64_t mark = i + 1;
    memcpy(rooms, packing->rooms, packing->n_devices * sizeof *rooms);
    qsort(rooms, packing->n_devices, sizeof *rooms, by_room);
    for (size_t d = 0; d < packing->n_devices; d++) {
        mark = (mark ^ rooms[d]) * UINT64_C(0x9e3779b97f4a7c15);
        mark ^= mark >> 29;
    }
    return mark ? mark : 1;
}

static uint64_t *slot_of(const struct packing *packing, uint64_t mark)
{
    size_t at = mark >> 20 & (FAILED_SLOTS - 1);
    while (packing->failed[at] && packing->failed[at] != mark)
        at = (at + 1) & (FAILED_SLOTS - 1);
    return &packing->failed[at];
}

static void remember(struct packing *packing, size_t i)
{
    if (packing->n_failed == FAILED_MOST || !begins_size(packing, i))
        return;
    /* Most searches are short. Without memory this one is longer. */
    if (!packing->failed && packing->steps > FEW_STEPS)
        packing->failed = calloc(FAILED_SLOTS, sizeof *packing->failed);
    if (!packing->failed)
        return;
    uint64_t mark = mark_of(packing, i);
    uint64_t *slot = slot_of(packing, mark);
    packing->n_failed += !*slot;
    *slot = mark;
}

static int is_known_to_fail(const struct packing *packing, size_t i)
{
    return packing->failed && begins_size(packing, i) && *slot_of(packing, mark_of(packing, i));
}

/* Goes on from item to item, and back where one has no room. Returns 1, 0 (there is no way), or -1
 * (too many ways). */
static int search(struct packing *packing)
{
    size_t i = 0;
    size_t from = 0;
    while (i < packing->n) {
        if (++packing->steps > STEPS_MAX)
            return -1;
        int is_dead =
            packing->left_bytes > packing->free_bytes || (!from && is_known_to_fail(packing, i));
        size_t device = is_dead ? packing->n_devices : next_device(packing, i, from);
        if (device < packing->n_devices) {
            put(packing, i++, device);
            from = 0;
            continue;
        }
        remember(packing, i);
        if (!i)
            return 0;
        take_back(packing, --i);
        from = (size_t)packing->device[i] + 1;
    }
    return 1;
}

static int packing_init(struct packing *packing, const struct mt_place_problem *problem)
{
    packing->n = problem->n_units;
    packing->n_devices = problem->n_devices;
    packing->devices = problem->devices;
    packing->items = calloc(packing->n, sizeof *packing->items);
    packing->device = calloc(packing->n, sizeof *packing->device);
    packing->rooms = calloc(packing->n_devices, sizeof *packing->rooms);
    if (!packing->items || !packing->device || !packing->rooms)
        return MT_ENOMEM;
    for (size_t i = 0; i < packing->n; i++) {
        const struct mt_place_unit *unit = &problem->units[i];
        packing->items[i] = (struct item){mt_place_unit_bytes(unit), i, unit->pinned};
        packing->left_bytes += packing->items[i].bytes;
    }
    qsort(packing->items, packing->n, sizeof *packing->items, larger_first);
    for (size_t d = 0; d < packing->n_devices; d++) {
        const struct mt_place_device *device = &problem->devices[d];
        packing->rooms[d] = device->limit_bytes > device->overhead_bytes
                                ? device->limit_bytes - device->overhead_bytes
                                : 0;
        packing->free_bytes += packing->rooms[d];
    }
    return 0;
}

static int in_order(const void *a, const void *b)
{
    const int *x = a;
    const int *y = b;
    return (*x > *y) - (*x < *y);
}

/* Units of one size may change places: the first ones go to the first devices. */
static void straighten(struct packing *packing)
{
    for (size_t from = 0; from < packing->n;) {
        size_t to = from + 1;
        while (to < packing->n && packing->items[to].bytes == packing->items[from].bytes &&
               packing->items[to].pinned == MT_PLACE_ANY &&
               packing->items[from].pinned == MT_PLACE_ANY)
            to++;
        qsort(packing->device + from, to - from, sizeof *packing->device, in_order);
        from = to;
    }
}

int mt_place_pack(const struct mt_place_problem *problem, struct mt_placement_made **made,
                  struct mt_error *error)
{
    struct packing packing = {0};
    int result = packing_init(&packing, problem);
    if (!result)
        result = search(&packing) == 1;
    if (result == 1) {
        straighten(&packing);
        *made = mt_placement_new(problem, 0);
        result = *made ? 1 : MT_ENOMEM;
    }
    for (size_t i = 0; result == 1 && i < packing.n; i++) {
        size_t unit = packing.items[i].unit;
        (*made)->unit_device[unit] = (*made)->expert_device[unit] = packing.device[i];
    }
    if (result == 1)
        mt_placement_count(problem, *made);
    free(packing.items);
    free(packing.device);
    free(packing.rooms);
    free(packing.failed);
    return result < 0 ? mt_fail(error, result, MT_NO_OFFSET, "out of memory") : result;
}
