/* SPDX-License-Identifier: MIT */
/* What processes that were attached to hold of devices: of those of DRM's drivers by their fdinfo,
 * and the writing of it for every driver. */
#include <stdio.h>
#include <string.h>

#include <memtally/units.h>

#include "base/ticks.h"
#include "watch/watch.h"

void mt_watch_write_seen(struct mt_run *run, struct mt_watch_seen *seen, uint64_t bytes)
{
    const uint64_t fields[] = {seen->uuid, seen->name, seen->total_bytes, bytes};
    if (seen->is_written ? seen->bytes == bytes : !bytes)
        return;
    seen->is_written = 1;
    seen->bytes = bytes;
    mt_write_skipped(&run->writer, MT_EVENT_DEVICE_SEEN, mt_monotonic_ns(), fields, 4);
}

static uint64_t string_of(struct mt_run *run, const char *text)
{
    return mt_write_string(&run->writer, mt_monotonic_ns(), text, strlen(text));
}

static void write_part(struct mt_run *run, const struct mt_drm_device *device,
                       struct mt_watch_seen *seen, int is_host, uint64_t bytes)
{
    char text[2 * MT_DRM_NAME_MAX + 16];
    if (bytes == MT_UNKNOWN)
        return;
    if (!seen->uuid && bytes) {
        snprintf(text, sizeof text, "%s%s", *device->pci ? device->pci : device->driver,
                 is_host ? "/host" : "");
        seen->uuid = string_of(run, text);
        snprintf(text, sizeof text, "%s%s", device->driver, is_host ? ", in host memory" : "");
        seen->name = string_of(run, text);
        seen->total_bytes = MT_UNKNOWN;
    }
    mt_watch_write_seen(run, seen, bytes);
}

int mt_watch_drm(struct mt_run *run)
{
    struct mt_drm_use *use = &run->drm_use;
    int found = 0;
    use->n_clients = 0;
    for (size_t i = 0; i < use->n_devices; i++)
        if (use->devices[i].device_bytes != MT_UNKNOWN)
            use->devices[i].device_bytes = use->devices[i].host_bytes = 0;
    for (size_t i = 0; i < run->n_processes; i++)
        mt_drm_add(&run->host, (int)run->processes[i].reader, use, NULL);
    for (size_t i = 0; i < use->n_devices; i++) {
        const struct mt_drm_device *device = &use->devices[i];
        found |= device->device_bytes != MT_UNKNOWN;
        write_part(run, device, &run->drm[i][0], 0, device->device_bytes);
        write_part(run, device, &run->drm[i][1], 1, device->host_bytes);
    }
    return found;
}
