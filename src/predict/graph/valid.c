/* SPDX-License-Identifier: MIT */
/* What holds for every plan of a graph. */
#include "graph.h"

static int are_places(const int8_t *backends, size_t n, int n_devices)
{
    for (size_t i = 0; i < n; i++)
        if (backends[i] < 0 || backends[i] > n_devices)
            return 0;
    return 1;
}

int mt_schedule_is_valid(const struct mt_schedule *schedule, const struct mt_graph_machine *machine)
{
    return are_places(schedule->node_backends, schedule->nodes.n, machine->n_devices) &&
           are_places(schedule->leaf_backends, schedule->leafs.n, machine->n_devices);
}

int mt_graph_buffers_are_valid(const struct mt_graph_buffer *buffers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (buffers[i].inputs > buffers[i].bytes ||
            buffers[i].working > buffers[i].bytes - buffers[i].inputs)
            return 0;
    return 1;
}
