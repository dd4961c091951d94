/* SPDX-License-Identifier: MIT */
/* What a process holds of devices, by what the kernel's DRM drivers say of its open files in
 * /proc/PID/fdinfo: amdgpu, i915, xe, nouveau and others. */
#ifndef MT_DEVICE_DRM_H
#define MT_DEVICE_DRM_H

#include "device/host.h"

#define MT_DRM_DEVICES  16u
#define MT_DRM_CLIENTS  64u
#define MT_DRM_NAME_MAX 32u

/* A device. Bytes that its driver does not tell are MT_UNKNOWN. */
struct mt_drm_device {
    char pci[MT_DRM_NAME_MAX];    /* "0000:03:00.0"; "" where the driver does not say */
    char driver[MT_DRM_NAME_MAX]; /* "amdgpu" */
    uint64_t device_bytes;        /* of the device's own memory */
    uint64_t host_bytes;          /* of the machine's, held for the device */
};

/* Start with {0}. A client is what one opened file and its copies share; it is counted once, also
 * where several processes have it. */
struct mt_drm_use {
    struct mt_drm_device devices[MT_DRM_DEVICES];
    size_t n_devices;
    struct {
        size_t device;
        uint64_t id;
    } clients[MT_DRM_CLIENTS];
    size_t n_clients;
};

/* Adds what `pid` holds. Looks at the files below /dev/dri and /dev/accel only. Returns 0, or
 * MT_EPERM or MT_ENOTFOUND where its files cannot be seen. */
int mt_drm_add(const struct mt_host_os *os, int pid, struct mt_drm_use *use,
               struct mt_error *error);

#endif
