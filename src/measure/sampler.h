/* SPDX-License-Identifier: MIT */
/* A thread that looks at intervals and keeps the largest figures seen. */
#ifndef MT_MEASURE_SAMPLER_H
#define MT_MEASURE_SAMPLER_H

#include <pthread.h>
#include <stdint.h>

#include <memtally/error.h>

#include "measure/device.h"
#include "measure/os.h"

enum mt_sampler_state { MT_SAMPLER_STARTING, MT_SAMPLER_READY, MT_SAMPLER_ARMED, MT_SAMPLER_STOP };

/* The figures at the end belong to the thread until mt_sampler_join() has returned. */
struct mt_sampler {
    const struct mt_measure_os *os;
    struct mt_measure_device *device; /* or NULL */
    uint64_t interval_ns;
    pthread_t thread;
    pthread_mutex_t lock; /* of `state` and `look_at_host` */
    pthread_cond_t changed;
    enum mt_sampler_state state;
    int look_at_host;

    uint64_t n_samples;
    uint64_t peak_bytes;            /* 0 where no look succeeded, or none was made */
    uint64_t device_peak_bytes;     /* likewise */
    uint64_t device_own_peak_bytes; /* MT_UNKNOWN where no look knew it */
    struct mt_error problem;        /* of the first look that failed, else code 0 */
};

/* Starts the thread and waits until it stands ready, its stack in place. It does not look yet.
 * Errors: MT_ENOMEM, MT_EPERM, MT_EIO. */
int mt_sampler_start(struct mt_sampler *sampler, const struct mt_measure_os *os,
                     uint64_t interval_ns, struct mt_measure_device *device,
                     struct mt_error *error);

/* From now on it looks. */
void mt_sampler_arm(struct mt_sampler *sampler, int look_at_host);

/* Tells it to look no more, without waiting for it. */
void mt_sampler_stop(struct mt_sampler *sampler);

/* Stops it, waits for its end and frees what it held; the figures may then be read. */
void mt_sampler_join(struct mt_sampler *sampler);

#endif
