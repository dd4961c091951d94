/* SPDX-License-Identifier: MIT */
/* What is in use of one device, by all and by this process, and the most since the last look. */
#ifndef MT_MEASURE_DEVICE_H
#define MT_MEASURE_DEVICE_H

#include <stdint.h>

#include <memtally/measure.h>
#include <memtally/units.h>

#include "device/nvml.h"
#include "measure/os.h"

/* Figures that are not known are MT_UNKNOWN. */
struct mt_measure_use {
    uint64_t used_bytes; /* by all */
    uint64_t peak_bytes; /* the most of that since the last look; at least used_bytes */
    uint64_t own_bytes;  /* by this process */
    uint64_t own_peak_bytes;
};

struct mt_measure_device {
    const struct mt_measure_os *os;
    struct mt_nvml_device nvml;
    struct mt_nvml_process *processes;
    int watch;             /* the recorder's, or MT_MEASURE_NO_WATCH */
    uint64_t others_bytes; /* what others used when that was last known */
    char uuid[MT_MEASURE_UUID_BYTES];
};

/* Opens the device that `options` name, and has the recorder watch it where there is one. On
 * success close it with mt_measure_device_close(). Errors: those of mt_nvml_device_open() and
 * mt_cuda_uuid(), MT_ENOMEM. */
int mt_measure_device_open(struct mt_measure_device *device, const struct mt_measure_os *os,
                           const struct mt_measure_options *options, struct mt_error *error);

/* One look. A device must not be looked at from two threads at once. Errors: those of
 * mt_nvml_device_memory(). */
int mt_measure_device_look(struct mt_measure_device *device, struct mt_measure_use *use,
                           struct mt_error *error);

/* How large it is. Errors: those of mt_nvml_device_memory(). */
int mt_measure_device_capacity(const struct mt_measure_device *device, uint64_t *capacity_bytes,
                               struct mt_error *error);

void mt_measure_device_close(struct mt_measure_device *device);

/* The higher of two peaks; MT_UNKNOWN is below all. */
static inline uint64_t mt_measure_higher(uint64_t a, uint64_t b)
{
    return b != MT_UNKNOWN && (a == MT_UNKNOWN || a < b) ? b : a;
}

#endif
