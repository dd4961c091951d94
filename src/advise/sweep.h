/* SPDX-License-Identifier: MIT */
/* Many rehearsals of one model: every combination of some settings' values. */
#ifndef ADVISE_SWEEP_H
#define ADVISE_SWEEP_H

#include <signal.h>

#include <memtally/verdict.h>

#include "drive/listener.h"
#include "drive/stage.h"

#define MT_ADVISE_POINTS_MAX 20000
#define MT_ADVISE_VALUES_MAX 256

enum mt_advise_key {
    MT_ADVISE_KEY_CONTEXT,
    MT_ADVISE_KEY_BATCH,
    MT_ADVISE_KEY_UBATCH,
    MT_ADVISE_KEY_SEQUENCES,
    MT_ADVISE_KEY_KV_TYPE,
    MT_ADVISE_KEY_FLASH_ATTENTION,
    MT_ADVISE_KEY_GPU_LAYERS,
    MT_ADVISE_KEY_CPU_MOE,
    MT_ADVISE_KEYS
};

/* A setting with the values that it takes in turn. */
struct mt_advise_axis {
    enum mt_advise_key key;
    size_t n;
    char *words[MT_ADVISE_VALUES_MAX]; /* owned; as they are shown */
    uint64_t numbers[MT_ADVISE_VALUES_MAX];
};

struct mt_advise_axes {
    struct mt_advise_axis items[MT_ADVISE_KEYS];
    size_t n;
};

/* Reads "context=2k..128k,ubatch=512,2048" and adds to what is there. A range doubles from its
 * first number up to its last, which is taken too. Start with {0}. Errors: MT_EARG with a text fit
 * for the user, MT_ENOMEM. */
int mt_advise_axes_parse(struct mt_advise_axes *axes, const char *text, struct mt_error *error);
void mt_advise_axes_finish(struct mt_advise_axes *axes);

/* "kv-type": as it is typed. Borrowed, static. */
const char *mt_advise_key_name(enum mt_advise_key key);

/* The number of combinations; of axis `axis` the value of combination `point`. The last axis
 * changes fastest. */
size_t mt_advise_axes_points(const struct mt_advise_axes *axes);
size_t mt_advise_axes_value(const struct mt_advise_axes *axes, size_t point, size_t axis);

/* Puts the values of a combination into settings, which borrow from the axes. */
void mt_advise_axes_apply(const struct mt_advise_axes *axes, size_t point,
                          struct mt_predict_settings *settings);

/* What a place takes in all. */
struct mt_advise_total {
    uint64_t bytes;
    uint64_t low_bytes;
    uint64_t high_bytes;
};

/* What one combination takes. Texts and totals are owned. */
struct mt_advise_point {
    int is_done;
    enum mt_verdict verdict;
    char *reason;                   /* of the verdict, or why the point failed */
    struct mt_advise_total *totals; /* the host's, then each device's; NULL where it failed */
    uint64_t context_tokens;        /* as the engine decided */
    uint64_t gpu_layers;
};

struct mt_advise_sweep {
    struct mt_advise_axes axes;
    struct mt_drive_stage stage;
    struct mt_predict_settings settings; /* of all points, but for the axes */
    struct mt_advise_point *points;
    size_t n_points;
    size_t n_done;
    size_t n_threads;
    const struct mt_drive_listener *listener; /* or NULL */
    const volatile sig_atomic_t *interrupted;
};

void mt_advise_sweep_finish(struct mt_advise_sweep *sweep);

/* Sets the sweep's stage, without the model's vocabulary where the engine does without and plans
 * the first point the same. Errors: those of mt_drive_check_devices() and mt_drive_stage_init(). */
int mt_advise_sweep_stage(struct mt_advise_sweep *sweep,
                          const struct mt_drive_stage_options *wanted, struct mt_error *error);

/* Rehearses every point, several at a time, until all are done or the user interrupts. Errors:
 * MT_ENOMEM; points that fail are no error here. */
int mt_advise_sweep_run(struct mt_advise_sweep *sweep, struct mt_error *error);

#endif
