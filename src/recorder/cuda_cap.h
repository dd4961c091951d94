/* SPDX-License-Identifier: MIT */
/* Holding a program to a part of each device (base/device_caps.h). Where it is not held, each
 * function is one comparison. */
#ifndef MT_RECORDER_CUDA_CAP_H
#define MT_RECORDER_CUDA_CAP_H

#include "recorder/recorder.h"

/* In the place of a result of the driver, which was not asked. */
#define PAST_CAP (-1)

/* The result of `call`, or PAST_CAP where `size` bytes more of a device are past its cap. Where the
 * call fails, cuda_cap_put_back() follows. */
#define WITHIN_CAP(device, size, call) (cuda_cap_take(device, size) ? (call) : PAST_CAP)

struct mt_device_caps;
struct mt_capped_process;
struct cuda_entry;

/* What the process has of capped devices. A forked child cannot use what its parent has of a
 * device: it begins anew. */
struct cuda_cap {
    struct mt_device_caps *caps; /* NULL: it is not held */
    int is_lost;                 /* it is held, and the file cannot be read: it has nothing */
    struct mt_capped_process *own;
    struct cuda_entry *entries;
    uint32_t lock;
    uint32_t pid;
    uint8_t index_of[64]; /* 1 and the index of a device in the file; 0: not known yet */
};

/* Maps the file where the environment names one. */
HIDDEN void cuda_cap_start(const char *path);

HIDDEN int cuda_cap_take(int device, uint64_t bytes);
HIDDEN void cuda_cap_put_back(int device, uint64_t bytes);
/* The driver gave so much more than was asked for. */
HIDDEN void cuda_cap_add(int device, uint64_t bytes);

/* What was taken has an address or a handle now, and is given back by it. */
HIDDEN void cuda_cap_keep(enum mt_device_kind kind, uint64_t object, int device, uint64_t bytes);
HIDDEN void cuda_cap_give_back(enum mt_device_kind kind, uint64_t object);

/* Physical memory stays until its last handle and mapping is gone. */
HIDDEN void cuda_cap_hold(uint64_t handle);
HIDDEN void cuda_cap_map(uint64_t address, uint64_t size, uint64_t handle);
HIDDEN void cuda_cap_unmap(uint64_t address, uint64_t size);

/* The device was reset, or a context destroyed: all but physical memory is gone. */
HIDDEN void cuda_cap_reset(int device);
HIDDEN void cuda_cap_end_context(const void *context);

#endif
