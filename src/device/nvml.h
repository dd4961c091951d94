/* SPDX-License-Identifier: MIT */
/* The memory in use on one NVIDIA device, by the driver's own library.
 *
 * The first request for a device opens NVML; nothing links it. The few functions are declared here,
 * so we need no vendor's header. Tests hand in a table of their own. */
#ifndef MT_DEVICE_NVML_H
#define MT_DEVICE_NVML_H

#include <stdint.h>

struct mt_error; /* <memtally/error.h> */

/* nvmlMemory_t of the NVML interface. */
struct mt_nvml_memory {
    unsigned long long total_bytes;
    unsigned long long free_bytes;
    unsigned long long used_bytes;
};

/* nvmlMemory_v2_t, which counts apart what the driver reserves. */
struct mt_nvml_memory_2 {
    unsigned version;
    unsigned long long total_bytes, reserved_bytes, free_bytes, used_bytes;
};

#define MT_NVML_MEMORY_2 ((unsigned)sizeof(struct mt_nvml_memory_2) | 2u << 24)

/* nvmlProcessInfo_t since the third version of the calls. */
struct mt_nvml_process {
    unsigned pid; /* as this process's namespace has it, or the machine's */
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
};

#define MT_NVML_PROCESSES_MAX 1024u
#define MT_NVML_UUID_BYTES    96u

/* The functions by their NVML meaning: 0 is success, a device is an opaque pointer. */
struct mt_nvml {
    void *library; /* of dlopen(), or NULL for a fake */
    int (*init)(void);
    int (*shutdown)(void);
    int (*device_count)(unsigned *count);
    int (*device_by_index)(unsigned index, void **device);
    int (*memory_info)(void *device, struct mt_nvml_memory *memory);
    /* NULL where the driver's version lacks them. */
    int (*memory_info_2)(void *device, struct mt_nvml_memory_2 *memory);
    int (*device_uuid)(void *device, char *text, unsigned size);
    int (*device_name)(void *device, char *text, unsigned size);
    int (*processes)(void *device, unsigned *n, struct mt_nvml_process *process);
};

/* A device that is open for reading. */
struct mt_nvml_device {
    struct mt_nvml nvml;
    void *device;
};

/* Fills *nvml; returns 0 or an MT_E code with *error set. */
typedef int (*mt_nvml_open)(void *context, struct mt_nvml *nvml, struct mt_error *error);

/* Opens libnvidia-ml.so.1 and finds its functions; does not initialise it.
 * Errors: MT_ENOTFOUND (no driver here), MT_EUNSUPPORTED (a function is missing). */
int mt_nvml_open_library(struct mt_nvml *nvml, struct mt_error *error);

/* Opens the library and initialises it; close it with mt_nvml_stop(). Errors: as
 * mt_nvml_device_open(). */
int mt_nvml_start(struct mt_nvml *nvml, mt_nvml_open open, void *context, struct mt_error *error);
void mt_nvml_stop(struct mt_nvml *nvml);

/* The processes that use a device, those that compute. *n is how many `process` has room for, at
 * most MT_NVML_PROCESSES_MAX. Bytes that the driver does not tell are UINT64_MAX. Errors: MT_EIO,
 * MT_EPERM, MT_EUNSUPPORTED (the driver does not tell), MT_ELIMIT (more than there is room for). */
int mt_nvml_processes(const struct mt_nvml *nvml, void *device, struct mt_nvml_process *process,
                      unsigned *n, struct mt_error *error);

/* Opens device `index`; close it with mt_nvml_device_close().
 * Errors: MT_ENOTFOUND (no driver, or no such device), MT_EPERM, MT_EUNSUPPORTED, MT_EIO. */
int mt_nvml_device_open(struct mt_nvml_device *device, mt_nvml_open open, void *context, int index,
                        struct mt_error *error);

/* Opens the device with a UUID; close it with mt_nvml_device_close().
 * Errors: those of mt_nvml_device_open(), MT_EUNSUPPORTED also where the driver tells no UUIDs. */
int mt_nvml_device_open_uuid(struct mt_nvml_device *device, mt_nvml_open open, void *context,
                             const char *uuid, struct mt_error *error);

/* Reads the device's memory. Errors: MT_EIO, MT_EPERM, MT_ENOTFOUND (the device has gone). */
int mt_nvml_device_memory(const struct mt_nvml_device *device, struct mt_nvml_memory *memory,
                          struct mt_error *error);

void mt_nvml_device_close(struct mt_nvml_device *device);

#endif
