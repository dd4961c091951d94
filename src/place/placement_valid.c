/* SPDX-License-Identifier: MIT */
/* What holds for every placement, whoever made it. */
#include "internal.h"

/* Nothing is lost on the way: all that units have lies on a device, on the host or on disk. */
static int nothing_is_lost(const struct mt_place_problem *problem,
                           const struct mt_placement *placement)
{
    uint64_t there = placement->host_bytes + placement->disk_bytes;
    uint64_t wanted = 0;
    for (size_t d = 0; d < placement->n_devices; d++) {
        const struct mt_placement_device *device = &placement->devices[d];
        there += device->dense_bytes + device->expert_bytes + device->cache_bytes;
        wanted += device->n_units || device->experts ? problem->each_bytes : 0;
    }
    for (size_t i = 0; i < problem->n_units; i++)
        wanted += mt_place_unit_bytes(&problem->units[i]) - problem->units[i].work_bytes;
    return there == wanted;
}

int mt_placement_is_valid(const struct mt_place_problem *problem,
                          const struct mt_placement *placement)
{
    size_t n_there = 0;
    for (size_t d = 0; d < placement->n_devices; d++) {
        const struct mt_placement_device *device = &placement->devices[d];
        uint64_t parts = device->dense_bytes + device->expert_bytes + device->cache_bytes;
        if (device->used_bytes != parts + device->overhead_bytes &&
            (device->overhead_bytes || device->used_bytes > parts))
            return 0;
        n_there += device->n_units;
    }
    for (size_t i = 0; i < placement->n_units; i++) {
        int at = placement->unit_device[i];
        if (at < MT_PLACE_DISK || at >= (int)placement->n_devices || at == MT_PLACE_ANY)
            return 0;
        n_there += (size_t)mt_place_is_left(at);
    }
    return n_there == placement->n_units && nothing_is_lost(problem, placement);
}
