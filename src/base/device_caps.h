/* SPDX-License-Identifier: MIT */
/* The file that holds a job's processes to a part of each device: who starts the job makes it and
 * says how much, the recorder in each process counts there what the process takes by calls of the
 * driver. A process that is killed leaves its count behind, which whoever is refused takes back.
 *
 * Invariant, while nobody is between two steps: a device's held_bytes are the sum of the
 * processes'. */
#ifndef MT_BASE_DEVICE_CAPS_H
#define MT_BASE_DEVICE_CAPS_H

#include <stdint.h>

#include "base/gpu_uuid.h"

#define MT_CAPS_VARIABLE  "MEMTALLY_DEVICE_CAPS" /* names the file */
#define MT_CAPS_MAGIC     UINT64_C(0x31737061636d746d)
#define MT_CAPS_DEVICES   16
#define MT_CAPS_PROCESSES 512

struct mt_capped_device {
    char uuid[MT_GPU_UUID_TEXT_BYTES]; /* "": the devices are in the order of the driver */
    uint64_t cap_bytes;
    uint64_t beside_bytes; /* that the driver itself took for the job, as far as NVML tells */
    uint64_t held_bytes;
    uint64_t peak_bytes; /* of held and beside */
    uint64_t n_refusals;
};

struct mt_capped_process {
    uint64_t pid; /* 0: nobody's */
    uint64_t start_ticks;
    uint64_t held_bytes[MT_CAPS_DEVICES];
};

struct mt_device_caps {
    uint64_t magic;
    uint64_t n_devices;
    struct mt_capped_device devices[MT_CAPS_DEVICES];
    struct mt_capped_process processes[MT_CAPS_PROCESSES];
};

#endif
