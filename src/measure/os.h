/* SPDX-License-Identifier: MIT */
/* All that measuring asks of the outside world: files of /proc, the clock, a thread, the driver.
 *
 * Contract of every function here: it takes the table's context first, may be called from any
 * thread, never allocates on the caller's behalf, and answers 0 (or a count) or a negative errno
 * unless said otherwise. Tests hand in a table of their own. */
#ifndef MT_MEASURE_OS_H
#define MT_MEASURE_OS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "base/gpu_uuid.h"

struct mt_nvml;
struct mt_error;

struct mt_measure_os {
    void *context;

    uint64_t (*now_ns)(void *context);

    /* Reads the start of a file into text, terminated. Returns the bytes read. */
    long (*read_file)(void *context, const char *path, char *text, size_t size);

    int (*write_file)(void *context, const char *path, const char *text);

    uint64_t (*page_bytes)(void *context);

    /* What the program has of glibc's malloc, and what malloc keeps free beside that. */
    void (*heap)(void *context, uint64_t *used_bytes, uint64_t *free_bytes);

    /* Starts a thread that takes no signals. */
    int (*start_thread)(void *context, pthread_t *thread, void *(*run)(void *), void *argument);

    /* Waits on a condition made by mt_measure_cond_init() for at most interval_ns. */
    void (*wait)(void *context, pthread_cond_t *condition, pthread_mutex_t *lock,
                 uint64_t interval_ns);

    /* Fills *nvml; returns 0 or an MT_E code with *error set. */
    int (*open_nvml)(void *context, struct mt_nvml *nvml, struct mt_error *error);

    /* As mt_cuda_uuid(). */
    int (*cuda_uuid)(void *context, int index, char uuid[MT_GPU_UUID_TEXT_BYTES],
                     struct mt_error *error);

    /* The number of this process. */
    uint32_t (*pid)(void *context);

    /* Where the process is recorded, has the recorder keep the most that CUDA's driver says is used
     * of a device. Returns the number of that watch, or MT_MEASURE_NO_WATCH. */
    int (*watch_device)(void *context, const char *uuid);

    /* The most since it was last asked for; 0 where the driver said nothing. */
    uint64_t (*watched_bytes)(void *context, int watch);

    void (*unwatch_device)(void *context, int watch);
};

#define MT_MEASURE_NO_WATCH (-1)

extern const struct mt_measure_os mt_measure_os_real;

/* A condition variable that counts on the monotonic clock. */
int mt_measure_cond_init(pthread_cond_t *condition);

#endif
