/* SPDX-License-Identifier: MIT */
/* The sampling thread. Knows how to look, and nothing of who measures what. */
#include "measure/sampler.h"

#include <errno.h>
#include <string.h>

#include <memtally/units.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "measure/resident.h"

static void keep_largest(uint64_t *largest, uint64_t value)
{
    if (*largest < value)
        *largest = value;
}

static void keep_first(struct mt_error *kept, const struct mt_error *error)
{
    if (kept->code == MT_OK)
        *kept = *error;
}

static void look(struct mt_sampler *sampler, int look_at_host)
{
    struct mt_error error;
    uint64_t bytes;
    struct mt_measure_use use;
    if (look_at_host) {
        if (mt_resident_sample(sampler->os, &bytes, &error) == MT_OK)
            keep_largest(&sampler->peak_bytes, bytes);
        else
            keep_first(&sampler->problem, &error);
    }
    if (sampler->device) {
        if (mt_measure_device_look(sampler->device, &use, &error) == MT_OK) {
            keep_largest(&sampler->device_peak_bytes, use.peak_bytes);
            sampler->device_own_peak_bytes =
                mt_measure_higher(sampler->device_own_peak_bytes, use.own_peak_bytes);
        } else
            keep_first(&sampler->problem, &error);
    }
    sampler->n_samples++;
}

static void *run(void *argument)
{
    struct mt_sampler *sampler = argument;
    pthread_mutex_lock(&sampler->lock);
    sampler->state = MT_SAMPLER_READY;
    pthread_cond_broadcast(&sampler->changed);
    while (sampler->state == MT_SAMPLER_READY)
        pthread_cond_wait(&sampler->changed, &sampler->lock);
    while (sampler->state == MT_SAMPLER_ARMED) {
        sampler->os->wait(sampler->os->context, &sampler->changed, &sampler->lock,
                          sampler->interval_ns);
        if (sampler->state != MT_SAMPLER_ARMED)
            break;
        int look_at_host = sampler->look_at_host;
        pthread_mutex_unlock(&sampler->lock);
        look(sampler, look_at_host);
        pthread_mutex_lock(&sampler->lock);
    }
    pthread_mutex_unlock(&sampler->lock);
    return NULL;
}

static int fail_start(struct mt_error *error, int negative_errno)
{
    int code = negative_errno == -EAGAIN ? MT_ENOMEM : mt_code_of_errno(-negative_errno);
    return mt_fail(error, code, MT_NO_OFFSET, "cannot start the sampling thread: %s",
                   strerror(-negative_errno));
}

static void finish(struct mt_sampler *sampler)
{
    pthread_cond_destroy(&sampler->changed);
    pthread_mutex_destroy(&sampler->lock);
}

int mt_sampler_start(struct mt_sampler *sampler, const struct mt_measure_os *os,
                     uint64_t interval_ns, struct mt_measure_device *device, struct mt_error *error)
{
    *sampler = (struct mt_sampler){.os = os,
                                   .device = device,
                                   .interval_ns = interval_ns,
                                   .device_own_peak_bytes = MT_UNKNOWN};
    int result = mt_measure_cond_init(&sampler->changed);
    if (result < 0)
        return fail_start(error, result);
    pthread_mutex_init(&sampler->lock, NULL);
    result = os->start_thread(os->context, &sampler->thread, run, sampler);
    if (result < 0) {
        finish(sampler);
        return fail_start(error, result);
    }
    pthread_mutex_lock(&sampler->lock);
    while (sampler->state == MT_SAMPLER_STARTING)
        pthread_cond_wait(&sampler->changed, &sampler->lock);
    pthread_mutex_unlock(&sampler->lock);
    return MT_OK;
}

static void set_state(struct mt_sampler *sampler, enum mt_sampler_state state, int look_at_host)
{
    pthread_mutex_lock(&sampler->lock);
    sampler->state = state;
    sampler->look_at_host = look_at_host;
    pthread_cond_broadcast(&sampler->changed);
    pthread_mutex_unlock(&sampler->lock);
}

void mt_sampler_arm(struct mt_sampler *sampler, int look_at_host)
{
    set_state(sampler, MT_SAMPLER_ARMED, look_at_host);
}

void mt_sampler_stop(struct mt_sampler *sampler)
{
    set_state(sampler, MT_SAMPLER_STOP, 0);
}

void mt_sampler_join(struct mt_sampler *sampler)
{
    mt_sampler_stop(sampler);
    pthread_join(sampler->thread, NULL);
    finish(sampler);
}
