/* SPDX-License-Identifier: MIT */
/* Making pretended devices. Knows no program. */
#include "cli/rehearse/devices.h"

#include <inttypes.h>
#include <memtally/rehearsal.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "drive/overhead.h"

static int fill(const struct estimate_request *request, size_t i, uint64_t reserved,
                const char *name, struct mt_rehearsal_device *device, struct mt_error *error)
{
    const struct mt_predict_settings *settings = &request->settings;
    reserved += request->device_used_bytes[i];
    if (reserved >= settings->device_bytes[i])
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "rehearse: device %zu has %" PRIu64
                       " MiB, and the driver's context and other programs take %" PRIu64
                       " MiB of it (--reserved): nothing is left",
                       i, settings->device_bytes[i] >> 20, reserved >> 20);
    *device = (struct mt_rehearsal_device){
        .bytes = settings->device_bytes[i],
        .reserved_bytes = reserved,
        .name = name,
        .gpu = *request->device_gpus[i] ? request->device_gpus[i] : NULL,
        .context_bytes = request->device_known[i].context_bytes,
        .graph_node_bytes = request->device_known[i].graph_node_bytes,
    };
    return 0;
}

int rehearse_fill_devices(struct estimate_request *request, int is_cuda, uint64_t reserved_bytes,
                          const char *const *names, struct mt_rehearsal_device *devices,
                          struct mt_error *error)
{
    struct mt_predict_settings *settings = &request->settings;
    int result = 0;
    if (!settings->device_kind)
        settings->device_kind = estimate_device_kinds[0];
    settings->context_bytes = reserved_bytes;
    for (size_t i = 0; result == 0 && i < settings->n_devices; i++) {
        uint64_t reserved = reserved_bytes;
        if (!is_cuda)
            result = mt_drive_overhead(settings, i, &reserved, error);
        if (result == 0)
            result = fill(request, i, reserved, names ? names[i] : NULL, &devices[i], error);
    }
    return result;
}
