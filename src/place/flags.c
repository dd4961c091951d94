/* SPDX-License-Identifier: MIT */
/* A placement in the words of an engine. */
#include "flags.h"

#include "internal.h"

#include <inttypes.h>

static int starts_before(const struct mt_placement_device *a, const struct mt_placement_device *b)
{
    return a->n_units && (!b->n_units || a->first_unit < b->first_unit);
}

size_t mt_place_order(const struct mt_placement *placement, size_t *order)
{
    size_t in_use = 0;
    for (size_t i = 0; i < placement->n_devices; i++) {
        size_t at = i;
        while (at && starts_before(&placement->devices[i], &placement->devices[order[at - 1]])) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
        in_use += placement->devices[i].n_units > 0;
    }
    return in_use;
}

size_t mt_place_expert_layers(const struct mt_placement *placement,
                              const struct mt_place_unit *units, struct mt_strbuf *pattern,
                              int *are_first)
{
    size_t n = 0;
    *are_first = 1;
    for (size_t i = 0; i < placement->n_units; i++) {
        if (!units[i].experts || mt_place_is_left(placement->unit_device[i]) ||
            !mt_place_is_left(placement->expert_device[i]))
            continue;
        mt_strbuf_printf(pattern, "%s%" PRIu32, n ? "|" : "", units[i].layer);
        for (size_t before = 0; before < i; before++)
            if (units[before].experts && !mt_place_is_left(placement->unit_device[before]) &&
                !mt_place_is_left(placement->expert_device[before]))
                *are_first = 0;
        n++;
    }
    return n;
}

static int is_in_order(const size_t *order, const struct mt_placement *placement)
{
    for (size_t i = 0; i < placement->n_devices; i++)
        if (order[i] != i && placement->devices[order[i]].n_units)
            return 0;
    return 1;
}

/* "-ngl 33 -sm layer -ts 16,17", with the devices in another order where that is better. */
static void llama_flags(const struct mt_placed *placed, const size_t *order, size_t in_use,
                        struct mt_strbuf *flags)
{
    const struct mt_placement *placement = placed->placement;
    struct mt_strbuf layers = {0};
    int are_first;
    uint64_t on_devices = 0;
    for (size_t d = 0; d < placement->n_devices; d++)
        on_devices += placement->devices[d].n_units;
    mt_strbuf_printf(flags, "-ngl %" PRIu64, on_devices);
    if (in_use == placement->n_devices && !is_in_order(order, placement))
        for (size_t i = 0; i < in_use; i++)
            mt_strbuf_printf(flags, "%sCUDA%zu", i ? "," : " --device ", order[i]);
    for (size_t i = 0; in_use > 1 && i < in_use; i++)
        mt_strbuf_printf(flags, "%s%" PRIu64, i ? "," : " -sm layer -ts ",
                         (uint64_t)placement->devices[order[i]].n_units);
    size_t n = mt_place_expert_layers(placement, placed->problem.units, &layers, &are_first);
    if (n && are_first)
        mt_strbuf_printf(flags, " --n-cpu-moe %" PRIu64, placement->host_layers + n);
    else if (n)
        mt_strbuf_printf(flags, " -ot 'blk\\.(%s)\\.ffn_.*_exps\\.=CPU'", mt_strbuf_text(&layers));
    else if (placed->drops_copies)
        mt_strbuf_printf(flags, " -ot '%s=CPU'", MT_PLACE_NO_TENSOR);
    mt_strbuf_finish_part(&layers, flags);
}

/* A card that is not in use is hidden, for an engine makes a context on each that it sees. Engines
 * without a word for the order of cards number them as the driver shows them. */
static void put_visible(const struct mt_placed *placed, enum mt_place_way way, const size_t *order,
                        size_t in_use, struct mt_strbuf *environment)
{
    int is_told = way == MT_PLACE_TENSOR_SPLIT || is_in_order(order, placed->placement);
    if (!in_use || (in_use == placed->placement->n_devices && is_told))
        return;
    for (size_t i = 0; i < in_use; i++)
        mt_strbuf_printf(environment, "%s%zu", i ? "," : "CUDA_VISIBLE_DEVICES=", order[i]);
}

/* Layers of each stage, in the variable that the engine reads. */
static void stage_flags(const struct mt_placed *placed, const size_t *order, size_t in_use,
                        const struct mt_engine *engine, struct mt_strbuf *environment,
                        struct mt_strbuf *flags)
{
    char variable[64];
    char flag[64];
    mt_strbuf_printf(environment, "%s%s=", environment->length ? " " : "",
                     mt_engine_text(engine, "place.layers", variable, sizeof variable));
    for (size_t i = 0; i < in_use; i++)
        mt_strbuf_printf(environment, "%s%" PRIu64, i ? "," : "",
                         placed->placement->devices[order[i]].layers);
    mt_strbuf_printf(flags, "%s %zu", mt_engine_text(engine, "place.stages", flag, sizeof flag),
                     in_use);
    if (placed->memory_share > 0)
        mt_strbuf_printf(flags, " %s %.2f",
                         mt_engine_text(engine, "place.share", flag, sizeof flag),
                         placed->memory_share);
}

/* Gigabytes of each device, rounded up to a tenth, because exllamav3 fills them in their order. */
static void gigabyte_flags(const struct mt_placed *placed, const size_t *order, size_t in_use,
                           struct mt_strbuf *flags)
{
    const struct mt_placement *placement = placed->placement;
    const uint64_t gib = UINT64_C(1) << 30;
    for (size_t i = 0; i < in_use; i++) {
        const struct mt_placement_device *device = &placement->devices[order[i]];
        uint64_t bytes = device->dense_bytes + device->expert_bytes + device->cache_bytes;
        uint64_t tenths = (10 * bytes + gib - 1) / gib;
        mt_strbuf_printf(flags, "%s%" PRIu64 ".%" PRIu64, i ? "," : "-gs ", tenths / 10,
                         tenths % 10);
    }
}

static void put_device(struct mt_strbuf *flags, int device)
{
    if (device == MT_PLACE_HOST)
        mt_strbuf_puts(flags, "\"cpu\"");
    else if (device == MT_PLACE_DISK)
        mt_strbuf_puts(flags, "\"disk\"");
    else
        mt_strbuf_printf(flags, "%d", device);
}

static void map_flags(const struct mt_placed *placed, struct mt_strbuf *flags)
{
    size_t n = placed->n_modules;
    mt_strbuf_puts(flags, "dtype=\"auto\", device_map={");
    for (size_t i = 0; i < n; i++) {
        mt_strbuf_printf(flags, "%s\"%s\": ", i ? ", " : "", placed->modules[i].name);
        put_device(flags, placed->modules[i].device);
    }
    mt_strbuf_puts(flags, "}");
}

void mt_place_flags(const struct mt_placed *placed, enum mt_place_way way,
                    const struct mt_engine *engine, struct mt_strbuf *environment,
                    struct mt_strbuf *flags)
{
    size_t order[MT_PLACE_DEVICES_MAX];
    size_t in_use = mt_place_order(placed->placement, order);
    uint64_t on_devices = 0;
    if (way != MT_PLACE_DEVICE_MAP && way != MT_PLACE_LAYERS)
        put_visible(placed, way, order, in_use, environment);
    switch (way) {
    case MT_PLACE_TENSOR_SPLIT:
        llama_flags(placed, order, in_use, flags);
        break;
    case MT_PLACE_LAYERS:
        for (size_t d = 0; d < placed->placement->n_devices; d++)
            on_devices += placed->placement->devices[d].n_units;
        mt_strbuf_printf(flags, "PARAMETER num_gpu %" PRIu64, on_devices);
        break;
    case MT_PLACE_STAGES:
        stage_flags(placed, order, in_use, engine, environment, flags);
        break;
    case MT_PLACE_GPU_SPLIT:
        gigabyte_flags(placed, order, in_use, flags);
        break;
    case MT_PLACE_DEVICE_MAP:
    case MT_PLACE_WAY_COUNT:
        map_flags(placed, flags);
        break;
    }
}
