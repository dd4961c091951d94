/* SPDX-License-Identifier: MIT */
/* The memory in use on one NVIDIA device, by the driver's own library.
 *
 * The first request for a device opens NVML; nothing links it. The few functions are declared here,
 * so we need no vendor's header. Tests hand in a table of their own. */
#ifndef MT_MEASURE_NVML_H
#define MT_MEASURE_NVML_H

#include <stdint.h>

#include <memtally/error.h>

/* nvmlMemory_t of the NVML interface. */
struct mt_nvml_memory {
    unsigned long long total_bytes;
    unsigned long long free_bytes;
    unsigned long long used_bytes;
};

/* The functions by their NVML meaning: 0 is success, a device is an opaque pointer. */
struct mt_nvml {
    void *library; /* of dlopen(), or NULL for a fake */
    int (*init)(void);
    int (*shutdown)(void);
    int (*device_count)(unsigned *count);
    int (*device_by_index)(unsigned index, void **device);
    int (*memory_info)(void *device, struct mt_nvml_memory *memory);
};

/* A device that is open for reading. */
struct mt_nvml_device {
    struct mt_nvml nvml;
    void *device;
};

struct mt_measure_os;

/* Opens libnvidia-ml.so.1 and finds its functions; does not initialise it.
 * Errors: MT_ENOTFOUND (no driver here), MT_EUNSUPPORTED (a function is missing). */
int mt_nvml_open_library(struct mt_nvml *nvml, struct mt_error *error);

/* Opens device `index`; close it with mt_nvml_device_close().
 * Errors: MT_ENOTFOUND (no driver, or no such device), MT_EPERM, MT_EUNSUPPORTED, MT_EIO. */
int mt_nvml_device_open(struct mt_nvml_device *device, const struct mt_measure_os *os, int index,
                        struct mt_error *error);

/* Reads the device's memory. Errors: MT_EIO, MT_EPERM, MT_ENOTFOUND (the device has gone). */
int mt_nvml_device_memory(const struct mt_nvml_device *device, struct mt_nvml_memory *memory,
                          struct mt_error *error);

void mt_nvml_device_close(struct mt_nvml_device *device);

#endif
