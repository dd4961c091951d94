/* SPDX-License-Identifier: MIT */
/* The memory of this process over time: a thread that looks at intervals, and what the series of
 * its samples looks like.
 *
 *     struct mt_track_options options = MT_TRACK_OPTIONS_INIT;
 *     struct mt_track *track;
 *     if (mt_track_start(&options, &track, NULL) == MT_OK) {
 *         serve();
 *         n = mt_track_copy(track, samples, MT_TRACK_SAMPLES);
 *         mt_track_destroy(track);
 *     }
 *
 * A series takes a fixed amount of memory however long it runs: when MT_TRACK_SAMPLES are there,
 * every second one goes, and the thread looks half as often from then on. */
#ifndef MEMTALLY_TRACK_H
#define MEMTALLY_TRACK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */

#define MT_TRACK_SAMPLES 4096
#define MT_TRACK_DEVICES 8

/* One look. What could not be read is MT_UNKNOWN. */
struct mt_track_sample {
    uint64_t time_ns; /* since the start */
    uint64_t resident_bytes;
    uint64_t heap_used_bytes;                /* of glibc's malloc: what the program has */
    uint64_t heap_free_bytes;                /* and what malloc keeps beside that */
    uint64_t device_bytes[MT_TRACK_DEVICES]; /* in use by anybody; as the options name devices */
};

/* Start from MT_TRACK_OPTIONS_INIT. */
struct mt_track_options {
    uint64_t interval_ns; /* 1 ms to 1 h; 0 means 0.5 s */
    uint64_t alert_bytes; /* growth that is told; 0: none is */
    /* Called on the thread that looks, for each further `alert_bytes` above the first sample:
     * device -1 is the host, else a position in `devices`. May be NULL. */
    void (*alert)(void *context, int device, uint64_t bytes, uint64_t baseline_bytes);
    void *context;
    uint32_t n_devices;
    int devices[MT_TRACK_DEVICES]; /* as NVML counts them */
};

#define MT_TRACK_OPTIONS_INIT                                                                      \
    {                                                                                              \
        0, 0, NULL, NULL, 0,                                                                       \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

struct mt_track;

/* Takes the first sample and starts the thread. On success *track is owned by the caller, who frees
 * it with mt_track_destroy(). Errors: MT_EARG (an option out of range), MT_ENOTFOUND (no such
 * device, or no NVIDIA driver), MT_EPERM, MT_EUNSUPPORTED, MT_EIO, MT_ENOMEM. Any thread. */
int mt_track_start(const struct mt_track_options *options, struct mt_track **track,
                   struct mt_error *error);

/* Looks now, on the calling thread, and adds the sample to the series. `sample` may be NULL. In a
 * child that was forked meanwhile nothing is added and the figures are MT_UNKNOWN. Any thread. */
void mt_track_look(struct mt_track *track, struct mt_track_sample *sample);

/* Sets samples[0..n) to the first samples of the series, of which there are at most `size`. Returns
 * n; 0 in a forked child. Any thread. */
size_t mt_track_copy(struct mt_track *track, struct mt_track_sample *samples, size_t size);

/* Stops the thread, waits for its end and frees all. Takes NULL. Must not be called by `alert`. In
 * a forked child what the series held stays. */
void mt_track_destroy(struct mt_track *track);

/* What a series looks like. X(NAME, "name"). */
#define MT_TREND_LIST(X)                                                                           \
    X(SHORT, "too_short")             /* fewer than MT_TREND_POINTS points */                      \
    X(STEADY, "steady")               /* stays within the noise */                                 \
    X(WARM_UP, "warm_up")             /* grows at first, then stays */                             \
    X(SAWTOOTH, "sawtooth")           /* grows and falls; the lowest points stay */                \
    X(STEP, "step")                   /* stays, jumps once, stays */                               \
    X(LEAK, "leak")                   /* the lowest points go on growing to the end */             \
    X(FRAGMENTATION, "fragmentation") /* what is held and not used does so; what is used stays */  \
    X(UNCLEAR, "unclear")

enum mt_trend_pattern {
#define MT_TREND_ENUM(NAME, name) MT_TREND_##NAME,
    MT_TREND_LIST(MT_TREND_ENUM)
#undef MT_TREND_ENUM
};

#define MT_TREND_POINTS 8 /* fewer say nothing */

struct mt_trend_point {
    uint64_t time_ns; /* not before the point before it */
    uint64_t held_bytes;
    uint64_t used_bytes; /* of what is held, or MT_UNKNOWN */
};

/* The pattern of a series. `growth_bytes` is that of the lowest points, by the median of the slopes
 * between any two of them, over the whole time. Noise is 1 MiB or 1 % of the median.
 *
 * Growth that goes on is told by Mann and Kendall's test at 1 %. `confidence_ratio`, 0 to 1, is
 * what the pattern explains of the spread: for a leak the share of a straight line, and no more
 * than the test gives; for a step or a warm-up how flat its end is; for a sawtooth how flat its
 * lowest points are; else how little of the noise is used. A random walk has long rises, and one
 * of them looks like a leak. */
struct mt_trend {
    enum mt_trend_pattern pattern;
    double confidence_ratio;
    uint64_t low_bytes;
    uint64_t high_bytes;
    int64_t growth_bytes;
    double bytes_per_second; /* of the growth */
};

/* Judges points[0..n). A pure function; takes any points, in any order of size. Any thread. */
void mt_trend_judge(const struct mt_trend_point *points, size_t n, struct mt_trend *trend);

/* The name of a pattern ("warm_up"), "?" for a value outside the list. Borrowed, static. */
const char *mt_trend_pattern_name(enum mt_trend_pattern pattern);

#ifdef __cplusplus
}
#endif
#endif
