/* SPDX-License-Identifier: MIT */
/* What this machine has, and what its other processes hold of it. */
#include <memtally/host.h>
#include <memtally/measure.h>
#include <memtally/units.h>

#include "base/error.h"
#include "cli/model/model.h"

static void note(struct estimate_request *request, const char *text)
{
    if (request->n_notes < ESTIMATE_NOTES_MAX)
        request->notes[request->n_notes++] = text;
}

static uint64_t known(uint64_t bytes)
{
    return bytes == MT_UNKNOWN ? 0 : bytes;
}

/* The room is what the kernel would give without swapping, or what the control group still allows
 * where that is less. */
static int look_at_host(struct estimate_request *request, struct mt_error *error)
{
    struct mt_predict_settings *settings = &request->settings;
    struct mt_host_sample sample;
    int result = mt_host_sample_take(0, &sample, error);
    if (result < 0)
        return result;
    if (sample.memory_total_bytes == MT_UNKNOWN || sample.memory_available_bytes == MT_UNKNOWN)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "estimate: this machine does not say how much memory it has; give --host");
    settings->host_bytes = sample.memory_total_bytes;
    settings->host_used_bytes = sample.memory_total_bytes > sample.memory_available_bytes
                                    ? sample.memory_total_bytes - sample.memory_available_bytes
                                    : 0;
    uint64_t limit = sample.cgroup_limit_bytes;
    uint64_t working = known(sample.cgroup_working_set_bytes);
    uint64_t room = limit > working ? limit - working : 0;
    if (limit != MT_UNKNOWN && room < settings->host_bytes - settings->host_used_bytes) {
        settings->host_bytes = limit;
        settings->host_used_bytes = working;
        note(request, "The host's memory is what the control group of this process allows.");
    }
    return 0;
}

static void *do_nothing(void *argument)
{
    return argument;
}

/* A measurement of a device around nothing says how large it is and how much of it is in use. */
static void look_at_devices(struct estimate_request *request)
{
    struct mt_predict_settings *settings = &request->settings;
    while (settings->n_devices < ESTIMATE_DEVICES_MAX) {
        const struct mt_measure_options options = {.method = MT_MEASURE_SAMPLED,
                                                   .device_index = (int)settings->n_devices};
        struct mt_measure_result result;
        if (mt_measure_call(do_nothing, NULL, &options, &result, NULL) < 0 ||
            result.device_capacity_bytes == MT_UNKNOWN)
            break;
        request->device_bytes[settings->n_devices] = result.device_capacity_bytes;
        request->device_used_bytes[settings->n_devices] = known(result.device_baseline_bytes);
        settings->n_devices++;
    }
    if (!settings->n_devices)
        note(request, "No NVIDIA device answers here, so memtally estimates for the CPU. It cannot "
                      "ask devices of other makers: name them with --device.");
}

int estimate_look_here(struct estimate_request *request, struct mt_error *error)
{
    int result = look_at_host(request, error);
    if (result == 0 && !request->settings.n_devices) {
        look_at_devices(request);
        request->is_here = 1;
    }
    return result;
}
