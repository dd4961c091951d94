/* SPDX-License-Identifier: MIT */
/* Devices of a recording, as a list of CUDA graphs wants them. */
#include "tally/graph_source.h"

#include <memtally/error_code.h>
#include <memtally/units.h>

#include "tally/device_rows.h"
#include "tally/image.h"

static void tell(void *context, struct mt_torch *torch)
{
    const struct mt_recording *recording = context;
    mt_device_tell_torch(&recording->devices, torch);
}

/* Allocations by calls, and what the driver took while it loaded code. */
static int list(void *context, struct mt_graph_takings *takings)
{
    const struct mt_devices *devices = &((const struct mt_recording *)context)->devices;
    for (size_t i = 0; i < devices->n_blocks; i++) {
        const struct mt_device_block *block = &devices->blocks[i];
        const struct mt_graph_taking taking = {block->pid, block->begin_ns, block->address,
                                               block->bytes};
        if (mt_device_block_counts(block) && mt_graph_takings_add(takings, &taking) < 0)
            return MT_ENOMEM;
    }
    for (size_t i = 0; i < devices->n_uses; i++) {
        const struct mt_device_use *use = &devices->uses[i];
        int64_t bytes = mt_device_taken_in_call(devices, i, MT_DEVICE_BY_MODULE);
        const struct mt_graph_taking taking = {use->pid, use->ns, 0, (uint64_t)bytes};
        if (bytes > 0 && mt_graph_takings_add(takings, &taking) < 0)
            return MT_ENOMEM;
    }
    return 0;
}

/* By the driver's word, and where it gave none by what was allocated. */
static int total(void *context, uint64_t ns, uint64_t *bytes)
{
    const struct mt_devices *devices = &((const struct mt_recording *)context)->devices;
    uint64_t sum = 0;
    for (size_t place = 0; place < devices->n_places; place++) {
        struct mt_device_moment moment;
        if (mt_device_at(devices, place, ns, &moment) < 0)
            return MT_ENOMEM;
        uint64_t taken = mt_device_taken(&moment);
        sum += taken == MT_UNKNOWN ? moment.allocated_bytes : taken;
    }
    *bytes = devices->n_places ? sum : MT_UNKNOWN;
    return 0;
}

struct mt_graph_source mt_graph_source_of_recording(struct mt_recording *recording)
{
    return (struct mt_graph_source){recording, tell, list, total};
}
