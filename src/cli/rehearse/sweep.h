/* SPDX-License-Identifier: MIT */
/* Many rehearsals of one model: every combination of some settings' values. */
#ifndef CLI_REHEARSE_SWEEP_H
#define CLI_REHEARSE_SWEEP_H

#include <memtally/predict.h>
#include <signal.h>

#include "cli/rehearse/stage.h"
#include "drive/listener.h"

#define REHEARSE_POINTS_MAX 20000
#define REHEARSE_VALUES_MAX 256

enum rehearse_key {
    REHEARSE_KEY_CONTEXT,
    REHEARSE_KEY_BATCH,
    REHEARSE_KEY_UBATCH,
    REHEARSE_KEY_SEQUENCES,
    REHEARSE_KEY_KV_TYPE,
    REHEARSE_KEY_FLASH_ATTENTION,
    REHEARSE_KEY_GPU_LAYERS,
    REHEARSE_KEY_CPU_MOE,
    REHEARSE_KEYS
};

/* A setting with the values that it takes in turn. */
struct rehearse_axis {
    enum rehearse_key key;
    size_t n;
    char *words[REHEARSE_VALUES_MAX]; /* owned; as they are shown */
    uint64_t numbers[REHEARSE_VALUES_MAX];
};

struct rehearse_axes {
    struct rehearse_axis items[REHEARSE_KEYS];
    size_t n;
};

/* Reads "context=2k..128k,ubatch=512,2048" and adds to what is there. A range doubles from its
 * first number up to its last, which is taken too. Start with {0}. Errors: MT_EARG with a text fit
 * for the user, MT_ENOMEM. */
int rehearse_axes_parse(struct rehearse_axes *axes, const char *text, struct mt_error *error);
void rehearse_axes_finish(struct rehearse_axes *axes);

/* "kv-type": as it is typed. Borrowed, static. */
const char *rehearse_key_name(enum rehearse_key key);

/* The number of combinations; of axis `axis` the value of combination `point`. The last axis
 * changes fastest. */
size_t rehearse_axes_points(const struct rehearse_axes *axes);
size_t rehearse_axes_value(const struct rehearse_axes *axes, size_t point, size_t axis);

/* Puts the values of a combination into settings, which borrow from the axes. */
void rehearse_axes_apply(const struct rehearse_axes *axes, size_t point,
                         struct mt_predict_settings *settings);

/* What a place takes in all. */
struct rehearse_total {
    uint64_t bytes;
    uint64_t low_bytes;
    uint64_t high_bytes;
};

/* What one combination takes. Texts and totals are owned. */
struct rehearse_point {
    int is_done;
    enum mt_verdict verdict;
    char *reason;                  /* of the verdict, or why the point failed */
    struct rehearse_total *totals; /* the host's, then each device's; NULL where it failed */
    uint64_t context_tokens;       /* as the engine decided */
    uint64_t gpu_layers;
};

struct rehearse_sweep {
    struct rehearse_axes axes;
    struct rehearse_stage stage;
    struct mt_predict_settings settings; /* of all points, but for the axes */
    struct rehearse_point *points;
    size_t n_points;
    size_t n_done;
    size_t n_threads;
    const struct mt_drive_listener *listener; /* or NULL */
    const volatile sig_atomic_t *interrupted;
};

void rehearse_sweep_finish(struct rehearse_sweep *sweep);

/* Whether the first point comes out the same on a stage with the vocabulary. */
int rehearse_sweep_is_same_without_vocabulary(const struct rehearse_sweep *sweep,
                                              const struct rehearse_stage_options *whole);

/* Rehearses every point, several at a time, until all are done or the user interrupts. Errors:
 * MT_ENOMEM; points that fail are no error here. */
int rehearse_sweep_run(struct rehearse_sweep *sweep, struct mt_error *error);

#endif
