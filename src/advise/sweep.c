/* SPDX-License-Identifier: MIT */
/* Going through the points of a sweep with as many rehearsals at a time as there are processors.
 * Knows nothing of what a point means. */
#include "sweep.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <memtally/predict.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "base/ticks.h"
#include "model.h"

#define THREADS_MAX 64
#define LOOK_NS     50000000

static struct mt_estimate *first_point(const struct mt_advise_sweep *sweep,
                                       const struct mt_drive_stage *stage)
{
    struct mt_predict_settings settings = sweep->settings;
    struct mt_estimate *estimate = NULL;
    mt_advise_axes_apply(&sweep->axes, 0, &settings);
    return mt_advise_model(stage, &settings, 0, NULL, &estimate, NULL) == 0 ? estimate : NULL;
}

/* Whether the first point comes out the same on a stage with the vocabulary. */
static int is_same_without_vocabulary(const struct mt_advise_sweep *sweep,
                                      const struct mt_drive_stage_options *whole)
{
    struct mt_drive_stage *stage = malloc(sizeof *stage);
    mt_drive_say(sweep->listener, "trying whether it goes without a vocabulary");
    struct mt_estimate *bare = first_point(sweep, &sweep->stage);
    struct mt_estimate *with = NULL;
    if (bare && stage && mt_drive_stage_init(stage, whole, NULL) == 0) {
        with = first_point(sweep, stage);
        mt_drive_stage_finish(stage);
    }
    free(stage);
    int same = with && with->tally.n_places == bare->tally.n_places;
    for (size_t i = 0; same && i < with->tally.n_places; i++)
        same = with->tally.places[i].total_allocated_bytes ==
               bare->tally.places[i].total_allocated_bytes;
    mt_drive_hush(sweep->listener);
    mt_estimate_destroy(bare);
    mt_estimate_destroy(with);
    return same;
}

/* A vocabulary takes most of an engine's start and no device memory. Whether the engine does
 * without, and plans the same, the first point tells. */
int mt_advise_sweep_stage(struct mt_advise_sweep *sweep,
                          const struct mt_drive_stage_options *wanted, struct mt_error *error)
{
    struct mt_drive_stage_options bare = *wanted;
    bare.drop_vocabulary = 1;
    int result = mt_drive_check_devices(sweep->settings.n_devices, error);
    if (result)
        return result;
    result = mt_drive_stage_init(&sweep->stage, &bare, error);
    if (result == MT_EUNSUPPORTED || result == MT_EFORMAT)
        return mt_drive_stage_init(&sweep->stage, wanted, error);
    if (result || !sweep->stage.drops_vocabulary || is_same_without_vocabulary(sweep, wanted))
        return result;
    mt_drive_stage_finish(&sweep->stage);
    return mt_drive_stage_init(&sweep->stage, wanted, error);
}

/* What the threads share; the counters are atomic. */
struct work {
    struct mt_advise_sweep *sweep;
    size_t next;
    size_t done;
    size_t idle; /* threads that have ended */
};

struct worker {
    struct work *work;
    size_t number;
    pthread_t thread;
    int started;
};

static size_t processors(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : (size_t)n;
}

static void keep(const struct mt_estimate *estimate, struct mt_advise_point *point)
{
    const struct mt_tally *tally = &estimate->tally;
    point->totals = calloc(tally->n_places, sizeof *point->totals);
    for (size_t i = 0; point->totals && i < tally->n_places; i++)
        point->totals[i] = (struct mt_advise_total){tally->places[i].total_allocated_bytes,
                                                    tally->places[i].total_low_bytes,
                                                    tally->places[i].total_high_bytes};
    point->verdict = estimate->verdict;
    point->reason = estimate->reason ? strdup(estimate->reason) : NULL;
    point->context_tokens = estimate->settings.context_tokens;
    point->gpu_layers = estimate->settings.n_devices ? estimate->settings.gpu_layers : 0;
}

static void rehearse(struct mt_advise_sweep *sweep, size_t index, size_t worker)
{
    struct mt_advise_point *point = &sweep->points[index];
    struct mt_predict_settings settings = sweep->settings;
    struct mt_estimate *estimate;
    struct mt_error error = {.offset = MT_NO_OFFSET};
    mt_advise_axes_apply(&sweep->axes, index, &settings);
    if (mt_advise_model(&sweep->stage, &settings, worker, NULL, &estimate, &error) == 0) {
        keep(estimate, point);
        mt_estimate_destroy(estimate);
    } else if (sweep->interrupted && *sweep->interrupted) {
        return;
    } else {
        point->reason = strdup(error.text);
    }
    point->is_done = 1;
}

static void *work_off(void *context)
{
    struct worker *worker = context;
    struct work *work = worker->work;
    struct mt_advise_sweep *sweep = work->sweep;
    for (;;) {
        size_t index = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED);
        if (index >= sweep->n_points || (sweep->interrupted && *sweep->interrupted))
            break;
        rehearse(sweep, index, worker->number);
        __atomic_fetch_add(&work->done, 1, __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(&work->idle, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Shows how far it is until all threads have ended. */
static void watch(struct work *work, size_t n_threads)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    uint64_t start_ns = mt_monotonic_ns();
    while (__atomic_load_n(&work->idle, __ATOMIC_ACQUIRE) < n_threads) {
        size_t done = __atomic_load_n(&work->done, __ATOMIC_RELAXED);
        size_t n = work->sweep->n_points;
        static const char full[] = "####################";
        int bars = (int)(done * (sizeof full - 1) / n);
        mt_drive_say(work->sweep->listener, "[%.*s%*s] %zu of %zu rehearsed, %.0f s", bars, full,
                     (int)(sizeof full - 1) - bars, "", done, n,
                     (double)(mt_monotonic_ns() - start_ns) / 1e9);
        nanosleep(&pause, NULL);
    }
    mt_drive_hush(work->sweep->listener);
}

int mt_advise_sweep_run(struct mt_advise_sweep *sweep, struct mt_error *error)
{
    struct worker workers[THREADS_MAX] = {0};
    struct work work = {.sweep = sweep};
    size_t n_threads = processors();
    size_t started = 0;
    sweep->n_points = mt_advise_axes_points(&sweep->axes);
    sweep->points = calloc(sweep->n_points + 1, sizeof *sweep->points);
    if (!sweep->points)
        return mt_out_of_memory(error);
    for (size_t i = 0; i < n_threads && i < sweep->n_points; i++) {
        workers[i] = (struct worker){.work = &work, .number = i};
        workers[i].started = pthread_create(&workers[i].thread, NULL, work_off, &workers[i]) == 0;
        started += workers[i].started != 0;
    }
    if (!started)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "cannot start a thread");
    watch(&work, started);
    for (size_t i = 0; i < n_threads; i++)
        if (workers[i].started)
            pthread_join(workers[i].thread, NULL);
    sweep->n_threads = started;
    for (size_t i = 0; i < sweep->n_points; i++)
        sweep->n_done += sweep->points[i].is_done != 0;
    return 0;
}

void mt_advise_sweep_finish(struct mt_advise_sweep *sweep)
{
    for (size_t i = 0; sweep->points && i < sweep->n_points; i++) {
        free(sweep->points[i].reason);
        free(sweep->points[i].totals);
    }
    free(sweep->points);
    sweep->points = NULL;
    mt_drive_stage_finish(&sweep->stage);
    mt_advise_axes_finish(&sweep->axes);
}
