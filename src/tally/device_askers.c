/* SPDX-License-Identifier: MIT */
/* An allocation of a device is told again from its event by object and time. */
#include "tally/device_askers.h"

#include <memtally/error_code.h>
#include <stdlib.h>

#include "tally/tree.h"

struct search {
    const struct mt_image *image;
    struct mt_replay *replay;
    struct mt_device_asker *askers; /* by object and time */
    size_t n;
};

static int by_image_and_place(const void *a, const void *b)
{
    const struct mt_device_asker *x = a;
    const struct mt_device_asker *y = b;
    if (x->image != y->image)
        return x->image < y->image ? -1 : 1;
    if (x->block->place != y->block->place)
        return x->block->place < y->block->place ? -1 : 1;
    return x->block < y->block ? -1 : x->block > y->block;
}

int mt_device_askers_list(const struct mt_recording *recording, int is_peak, uint64_t ns,
                          struct mt_device_asker **askers, size_t *n)
{
    const struct mt_devices *devices = &recording->devices;
    struct mt_device_moment moments[MT_DEVICES_MAX];
    *n = 0;
    *askers = calloc(devices->n_blocks + 1, sizeof **askers);
    if (!*askers)
        return MT_ENOMEM;
    for (size_t i = 0; i < devices->n_places; i++)
        if ((is_peak ? mt_device_peak(devices, i, &moments[i])
                     : mt_device_at(devices, i, ns, &moments[i])) < 0)
            return MT_ENOMEM;
    for (size_t i = 0; i < devices->n_blocks; i++) {
        const struct mt_device_block *block = &devices->blocks[i];
        const struct mt_image *image;
        if (!mt_device_block_counts(block) ||
            !mt_device_block_is_there(block, &moments[block->place]) ||
            !(image = mt_image_at(recording, block->pid, block->begin_ns)))
            continue;
        (*askers)[(*n)++] = (struct mt_device_asker){block, (size_t)(image - recording->images), 0};
    }
    if (*n)
        qsort(*askers, *n, sizeof **askers, by_image_and_place);
    return 0;
}

static int by_call(const void *a, const void *b)
{
    const struct mt_device_block *x = ((const struct mt_device_asker *)a)->block;
    const struct mt_device_block *y = ((const struct mt_device_asker *)b)->block;
    if (x->object != y->object)
        return x->object < y->object ? -1 : 1;
    return x->begin_ns < y->begin_ns ? -1 : x->begin_ns > y->begin_ns;
}

static void take(void *context, const struct mt_image *image, const struct mt_event *event)
{
    struct search *search = context;
    if (image != search->image || event->op != MT_EVENT_DEVICE_ALLOC)
        return;
    const struct mt_device_block block = {.object = event->field[2],
                                          .begin_ns = mt_clock_ns(&image->clock, event->ticks)};
    const struct mt_device_asker call = {.block = &block};
    struct mt_device_asker *asker = bsearch(&call, search->askers, search->n, sizeof call, by_call);
    if (asker)
        asker->stack = mt_replay_stack_of(search->replay, event, event->field[4]);
}

/* What a parent did before the fork is its own. */
static void pass_over(void *context)
{
    (void)context;
}

int mt_device_askers_find(const struct mt_recording *recording, struct mt_device_asker *askers,
                          size_t n, struct mt_replay *replay)
{
    struct search search = {&recording->images[askers->image], replay, askers, n};
    const struct mt_tree_observer observer = {take, pass_over, &search, 0, UINT64_MAX};
    qsort(askers, n, sizeof *askers, by_call);
    int result = mt_tree_replay(recording, search.image, UINT64_MAX, &observer, replay);
    qsort(askers, n, sizeof *askers, by_image_and_place);
    return result;
}
