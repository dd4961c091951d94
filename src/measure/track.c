/* SPDX-License-Identifier: MIT */
/* A series of looks at this process. Knows how to look and to keep, not what the series means. */
#include <memtally/track.h>
#include <memtally/units.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "device/nvml.h"
#include "measure/registry.h"
#include "measure/resident.h"
#include "measure/track.h"

#define DEFAULT_INTERVAL_NS  UINT64_C(500000000)
#define SHORTEST_INTERVAL_NS UINT64_C(1000000)
#define LONGEST_INTERVAL_NS  UINT64_C(3600000000000)

struct mt_track {
    const struct mt_measure_os *os;
    struct mt_track_options options;
    unsigned generation; /* of forks, when it began */
    uint64_t begin_ns;
    uint64_t interval_ns; /* doubles whenever the series is full */
    uint32_t n_open;
    struct mt_nvml_device devices[MT_TRACK_DEVICES];
    uint64_t n_told[MT_TRACK_DEVICES + 1]; /* alerts of the host and of each device; the thread's */
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    int stops;
    size_t n;
    struct mt_track_sample samples[MT_TRACK_SAMPLES];
};

static int check(const struct mt_track_options *options, struct mt_error *error)
{
    if (options->interval_ns &&
        (options->interval_ns < SHORTEST_INTERVAL_NS || options->interval_ns > LONGEST_INTERVAL_NS))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "the interval between samples must lie between 1 ms and 1 h");
    if (options->n_devices > MT_TRACK_DEVICES)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "%u devices; one series has at most %d",
                       options->n_devices, MT_TRACK_DEVICES);
    return MT_OK;
}

static void take(struct mt_track *track, struct mt_track_sample *sample)
{
    memset(sample, 0xff, sizeof *sample); /* all MT_UNKNOWN */
    mt_resident_sample(track->os, &sample->resident_bytes, NULL);
    track->os->heap(track->os->context, &sample->heap_used_bytes, &sample->heap_free_bytes);
    for (uint32_t i = 0; i < track->n_open; i++) {
        struct mt_nvml_memory memory;
        if (mt_nvml_device_memory(&track->devices[i], &memory, NULL) == MT_OK)
            sample->device_bytes[i] = memory.used_bytes;
    }
}

/* The caller has the lock. The time is taken under it, so that samples lie in order. */
static void keep(struct mt_track *track, struct mt_track_sample *sample)
{
    if (track->n == MT_TRACK_SAMPLES) {
        for (size_t i = 0; i < MT_TRACK_SAMPLES / 2; i++)
            track->samples[i] = track->samples[2 * i];
        track->n = MT_TRACK_SAMPLES / 2;
        if (track->interval_ns <= LONGEST_INTERVAL_NS / 2)
            track->interval_ns *= 2;
    }
    sample->time_ns = track->os->now_ns(track->os->context) - track->begin_ns;
    track->samples[track->n++] = *sample;
}

static void tell(struct mt_track *track, int device, uint64_t bytes, uint64_t baseline)
{
    uint64_t *told = &track->n_told[device + 1];
    if (bytes == MT_UNKNOWN || baseline == MT_UNKNOWN || bytes <= baseline)
        return;
    uint64_t reached = (bytes - baseline) / track->options.alert_bytes;
    if (reached <= *told)
        return;
    *told = reached;
    track->options.alert(track->options.context, device, bytes, baseline);
}

/* The first sample stays the first, however often the series is thinned. */
static void tell_all(struct mt_track *track, const struct mt_track_sample *sample,
                     const struct mt_track_sample *baseline)
{
    if (!track->options.alert || track->options.alert_bytes == 0)
        return;
    tell(track, -1, sample->resident_bytes, baseline->resident_bytes);
    for (uint32_t i = 0; i < track->n_open; i++)
        tell(track, (int)i, sample->device_bytes[i], baseline->device_bytes[i]);
}

static void *run(void *argument)
{
    struct mt_track *track = argument;
    pthread_mutex_lock(&track->lock);
    const struct mt_track_sample baseline = track->samples[0];
    for (;;) {
        track->os->wait(track->os->context, &track->changed, &track->lock, track->interval_ns);
        if (track->stops)
            break;
        pthread_mutex_unlock(&track->lock);
        struct mt_track_sample sample;
        take(track, &sample);
        pthread_mutex_lock(&track->lock);
        keep(track, &sample);
        pthread_mutex_unlock(&track->lock);
        tell_all(track, &sample, &baseline);
        pthread_mutex_lock(&track->lock);
        if (track->stops)
            break;
    }
    pthread_mutex_unlock(&track->lock);
    return NULL;
}

static void close_all(struct mt_track *track)
{
    for (uint32_t i = 0; i < track->n_open; i++)
        mt_nvml_device_close(&track->devices[i]);
    free(track);
}

static int start_thread(struct mt_track *track, struct mt_error *error)
{
    int result = mt_measure_cond_init(&track->changed);
    if (result == 0) {
        pthread_mutex_init(&track->lock, NULL);
        result = track->os->start_thread(track->os->context, &track->thread, run, track);
        if (result == 0)
            return MT_OK;
        pthread_mutex_destroy(&track->lock);
        pthread_cond_destroy(&track->changed);
    }
    return mt_fail(error, result == -EAGAIN ? MT_ENOMEM : mt_code_of_errno(-result), MT_NO_OFFSET,
                   "cannot start the thread that looks: %s", strerror(-result));
}

static int open_devices(struct mt_track *track, struct mt_error *error)
{
    int result = MT_OK;
    while (result == MT_OK && track->n_open < track->options.n_devices) {
        result =
            mt_nvml_device_open(&track->devices[track->n_open], track->os->open_nvml,
                                track->os->context, track->options.devices[track->n_open], error);
        track->n_open += result == MT_OK;
    }
    return result;
}

int mt_track_start_with(const struct mt_measure_os *os, const struct mt_track_options *options,
                        struct mt_track **track, struct mt_error *error)
{
    int result = check(options, error);
    if (result != MT_OK)
        return result;
    struct mt_track *made = calloc(1, sizeof *made);
    if (!made)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory for a series");
    made->os = os;
    made->options = *options;
    made->generation = mt_measure_process_registry()->generation;
    made->interval_ns = options->interval_ns ? options->interval_ns : DEFAULT_INTERVAL_NS;
    made->begin_ns = os->now_ns(os->context);
    result = open_devices(made, error);
    if (result == MT_OK) {
        struct mt_track_sample first;
        take(made, &first);
        keep(made, &first);
        result = start_thread(made, error);
    }
    if (result != MT_OK) {
        close_all(made);
        return result;
    }
    *track = made;
    return MT_OK;
}

int mt_track_start(const struct mt_track_options *options, struct mt_track **track,
                   struct mt_error *error)
{
    return mt_track_start_with(&mt_measure_os_real, options, track, error);
}

/* The thread is not in a child, and may have held the lock when it was forked. */
static int is_of_parent(const struct mt_track *track)
{
    return track->generation != mt_measure_process_registry()->generation;
}

void mt_track_look(struct mt_track *track, struct mt_track_sample *sample)
{
    struct mt_track_sample taken;
    memset(&taken, 0xff, sizeof taken);
    if (!is_of_parent(track)) {
        take(track, &taken);
        pthread_mutex_lock(&track->lock);
        keep(track, &taken);
        pthread_mutex_unlock(&track->lock);
    }
    if (sample)
        *sample = taken;
}

size_t mt_track_copy(struct mt_track *track, struct mt_track_sample *samples, size_t size)
{
    if (is_of_parent(track))
        return 0;
    pthread_mutex_lock(&track->lock);
    size_t n = track->n < size ? track->n : size;
    memcpy(samples, track->samples, n * sizeof *samples);
    pthread_mutex_unlock(&track->lock);
    return n;
}

void mt_track_destroy(struct mt_track *track)
{
    if (!track || is_of_parent(track))
        return;
    pthread_mutex_lock(&track->lock);
    track->stops = 1;
    pthread_cond_broadcast(&track->changed);
    pthread_mutex_unlock(&track->lock);
    pthread_join(track->thread, NULL);
    pthread_mutex_destroy(&track->lock);
    pthread_cond_destroy(&track->changed);
    close_all(track);
}
