/* SPDX-License-Identifier: MIT */
/* One measured call, from its options to its result.
 *
 * The order keeps the measurement out of its own figures: device and thread stand before the
 * baseline is taken, and the host's figures are read before anything is taken down. */
#include "measure/call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/units.h>

#include "base/error.h"
#include "base/invariant.h"
#include "base/out_of_memory.h"
#include "measure/device.h"
#include "measure/sampler.h"

#define DEFAULT_INTERVAL_NS  10000000u
#define SHORTEST_INTERVAL_NS 100000u
#define LONGEST_INTERVAL_NS  3600000000000u

/* What stands while a call is measured; each flag tells what has to be taken down. */
struct call {
    const struct mt_measure_os *os;
    struct mt_measure_registry *registry;
    unsigned generation;
    struct mt_measure_options options;
    uint64_t begin_ns;
    int device_open;
    int sampler_runs;
    int registered;
    struct mt_measure_device device;
    uint64_t device_capacity_bytes;
    struct mt_measure_use device_before;
    struct mt_sampler sampler;
    struct mt_measurement host;
};

const char *mt_measure_method_name(enum mt_measure_method method)
{
    switch (method) {
#define CASE(NAME, value, name)                                                                    \
    case MT_MEASURE_##NAME:                                                                        \
        return name;
        MT_MEASURE_METHOD_LIST(CASE)
#undef CASE
    }
    return "?";
}

static int check(const struct mt_measure_options *options, struct mt_error *error)
{
    if (mt_measure_method_name(options->method)[0] == '?' || options->method == MT_MEASURE_CAUGHT)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "no measuring method %d",
                       (int)options->method);
    if (options->device_count != MT_MEASURE_AS_NVML && options->device_count != MT_MEASURE_AS_CUDA)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "devices are counted as NVML counts them or as CUDA does");
    if (options->device_index < MT_MEASURE_HOST_ONLY)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "device index %d: give 0 or more, or %d for none", options->device_index,
                       MT_MEASURE_HOST_ONLY);
    if (options->interval_ns < SHORTEST_INTERVAL_NS || options->interval_ns > LONGEST_INTERVAL_NS)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "the sampling interval must lie between 100 us and 1 h");
    return MT_OK;
}

static int open_device(struct call *call, struct mt_error *error)
{
    const struct mt_measure_options *options = &call->options;
    if (options->device_index == MT_MEASURE_HOST_ONLY && !options->device_uuid)
        return MT_OK;
    int result = mt_measure_device_open(&call->device, call->os, options, error);
    if (result != MT_OK)
        return result;
    call->device_open = 1;
    result = mt_measure_device_capacity(&call->device, &call->device_capacity_bytes, error);
    if (result == MT_OK)
        result = mt_measure_device_look(&call->device, &call->device_before, error);
    call->device_before.peak_bytes = call->device_before.used_bytes;
    call->device_before.own_peak_bytes = call->device_before.own_bytes;
    return result;
}

static int start_sampler(struct call *call, struct mt_error *error)
{
    if (call->sampler_runs)
        return MT_OK;
    int result = mt_sampler_start(&call->sampler, call->os, call->options.interval_ns,
                                  call->device_open ? &call->device : NULL, error);
    call->sampler_runs = result == MT_OK;
    return result;
}

static int begin_host(struct call *call, int exact, struct mt_error *error)
{
    int result = mt_measurement_begin(&call->host, call->registry, call->os, exact, error);
    call->registered = result == MT_OK;
    return result;
}

static int begin_sampled(struct call *call, struct mt_error *error)
{
    int result = start_sampler(call, error);
    return result == MT_OK ? begin_host(call, 0, error) : result;
}

static int begin(struct call *call, struct mt_error *error)
{
    int result = open_device(call, error);
    if (result == MT_OK && call->device_open)
        result = start_sampler(call, error);
    if (result != MT_OK)
        return result;
    if (call->options.method == MT_MEASURE_EXACT)
        result = begin_host(call, 1, error);
    else if (call->options.method == MT_MEASURE_SAMPLED || begin_host(call, 1, NULL) != MT_OK)
        result = begin_sampled(call, error);
    if (result == MT_OK && call->sampler_runs)
        mt_sampler_arm(&call->sampler, !call->host.exact);
    return result;
}

/* A child that the function forked has neither the sampling thread nor the registry's entry. */
static int is_in_forked_child(const struct call *call)
{
    return call->generation != call->registry->generation;
}

/* A thread must not be cancelled while it waits for the sampling thread or holds a file. */
static int hold_cancellation(void)
{
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static void release_cancellation(int before)
{
    pthread_setcancelstate(before, NULL);
}

static void take_down(struct call *call)
{
    if (is_in_forked_child(call))
        return;
    int cancellation = hold_cancellation();
    if (call->registered)
        mt_measurement_end(&call->host, call->registry, call->os, NULL);
    if (call->sampler_runs)
        mt_sampler_join(&call->sampler);
    if (call->device_open)
        mt_measure_device_close(&call->device);
    call->registered = call->sampler_runs = call->device_open = 0;
    release_cancellation(cancellation);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void keep_first(struct mt_error *kept, const struct mt_error *error)
{
    if (kept->code == MT_OK)
        *kept = *error;
}

static void write_host(const struct call *call, uint64_t sampled_peak_bytes,
                       struct mt_measure_result *result)
{
    result->after_bytes = call->host.after_bytes;
    result->peak_bytes = larger(call->host.peak_bytes, result->after_bytes);
    if (!call->host.exact)
        result->peak_bytes = larger(result->peak_bytes, sampled_peak_bytes);
    result->growth_bytes = result->peak_bytes - result->baseline_bytes;
}

/* The list did not have this process before it used the device: it had nothing of it then. */
static void write_own(const struct call *call, const struct mt_measure_use *after,
                      struct mt_measure_result *result)
{
    uint64_t before = call->device_before.own_bytes;
    uint64_t peak = mt_measure_higher(call->sampler.device_own_peak_bytes,
                                      mt_measure_higher(before, after->own_peak_bytes));
    if (peak == MT_UNKNOWN)
        return;
    result->device_own_baseline_bytes = before == MT_UNKNOWN ? 0 : before;
    result->device_own_peak_bytes = peak;
    result->device_own_growth_bytes = peak - result->device_own_baseline_bytes;
    result->device_own_after_bytes = after->own_bytes == MT_UNKNOWN ? 0 : after->own_bytes;
}

static void write_device(const struct call *call, const struct mt_measure_use *after,
                         struct mt_measure_result *result)
{
    result->device_after_bytes = after->used_bytes;
    result->device_peak_bytes = larger(call->sampler.device_peak_bytes,
                                       larger(call->device_before.used_bytes, after->peak_bytes));
    result->device_growth_bytes = result->device_peak_bytes - call->device_before.used_bytes;
    write_own(call, after, result);
}

/* Reads the figures after the call, the host's first, and takes all down. */
static void read_figures(struct call *call, struct mt_measure_result *result)
{
    struct mt_error error = {0};
    struct mt_measure_use device_after;
    if (call->sampler_runs)
        mt_sampler_stop(&call->sampler);
    int host = mt_measurement_end(&call->host, call->registry, call->os, &error);
    call->registered = 0;
    if (host != MT_OK)
        keep_first(&result->problem, &error);
    int device = MT_ENOTFOUND;
    if (call->sampler_runs)
        mt_sampler_join(&call->sampler);
    call->sampler_runs = 0;
    if (call->device_open) {
        device = mt_measure_device_look(&call->device, &device_after, &error);
        if (device != MT_OK)
            keep_first(&result->problem, &error);
    }
    take_down(call);
    keep_first(&result->problem, &call->sampler.problem);
    result->n_samples = call->sampler.n_samples;
    if (host == MT_OK)
        write_host(call, call->sampler.peak_bytes, result);
    if (device == MT_OK)
        write_device(call, &device_after, result);
}

/* All that is known however the call went; the rest is unknown until it is read. */
static struct mt_measure_result known_before(const struct call *call, void *value)
{
    struct mt_measure_result known = {
        .value = value,
        .method = call->host.exact ? MT_MEASURE_EXACT : MT_MEASURE_SAMPLED,
        .baseline_bytes = call->host.baseline_bytes,
        .peak_bytes = MT_UNKNOWN,
        .growth_bytes = MT_UNKNOWN,
        .after_bytes = MT_UNKNOWN,
        .device_index = call->options.device_index,
        .device_capacity_bytes = call->device_open ? call->device_capacity_bytes : MT_UNKNOWN,
        .device_baseline_bytes = call->device_open ? call->device_before.used_bytes : MT_UNKNOWN,
        .device_peak_bytes = MT_UNKNOWN,
        .device_growth_bytes = MT_UNKNOWN,
        .device_after_bytes = MT_UNKNOWN,
        .device_own_baseline_bytes = MT_UNKNOWN,
        .device_own_peak_bytes = MT_UNKNOWN,
        .device_own_growth_bytes = MT_UNKNOWN,
        .device_own_after_bytes = MT_UNKNOWN,
    };
    if (!call->device_open)
        return known;
    known.device_method =
        call->device.watch == MT_MEASURE_NO_WATCH ? MT_MEASURE_SAMPLED : MT_MEASURE_CAUGHT;
    memcpy(known.device_uuid, call->device.uuid, sizeof known.device_uuid);
    return known;
}

static void finish(struct call *call, void *value, uint64_t elapsed_ns,
                   struct mt_measure_result *result)
{
    struct mt_measure_result measured = known_before(call, value);
    if (is_in_forked_child(call)) {
        measured.baseline_bytes = measured.device_baseline_bytes = MT_UNKNOWN;
        mt_fail(&measured.problem, MT_EUNSUPPORTED, MT_NO_OFFSET,
                "the function returned in a forked child; its measurement stays with the parent");
    } else {
        read_figures(call, &measured);
        uint64_t all_ns = call->os->now_ns(call->os->context) - call->begin_ns;
        mt_measure_exclude(call->registry, all_ns - elapsed_ns);
    }
    measured.overlapped = call->host.overlapped;
    measured.latency_ns = elapsed_ns - call->host.excluded_ns;
    MT_HOLDS(mt_measure_result_is_valid(&measured));
    *result = measured;
}

static int growth_is_valid(uint64_t baseline, uint64_t peak, uint64_t growth)
{
    if (baseline == MT_UNKNOWN || peak == MT_UNKNOWN)
        return growth == MT_UNKNOWN;
    return peak >= baseline && growth == peak - baseline;
}

int mt_measure_result_is_valid(const struct mt_measure_result *result)
{
    return growth_is_valid(result->baseline_bytes, result->peak_bytes, result->growth_bytes) &&
           growth_is_valid(result->device_baseline_bytes, result->device_peak_bytes,
                           result->device_growth_bytes) &&
           growth_is_valid(result->device_own_baseline_bytes, result->device_own_peak_bytes,
                           result->device_own_growth_bytes);
}

/* What is to be measured, with every default put in. */
static struct call call_of(const struct mt_measure_os *os, struct mt_measure_registry *registry,
                           const struct mt_measure_options *options)
{
    struct call call = {
        .os = os,
        .registry = registry,
        .generation = registry->generation,
        .options = options ? *options : (struct mt_measure_options)MT_MEASURE_OPTIONS_INIT,
        .begin_ns = os->now_ns(os->context),
    };
    if (call.options.interval_ns == 0)
        call.options.interval_ns = DEFAULT_INTERVAL_NS;
    return call;
}

static int check_and_begin(struct call *call, struct mt_error *error)
{
    int cancellation = hold_cancellation();
    int begun = check(&call->options, error);
    if (begun == MT_OK)
        begun = begin(call, error);
    release_cancellation(cancellation);
    return begun;
}

int mt_measure_call_in(const struct mt_measure_os *os, struct mt_measure_registry *registry,
                       void *(*function)(void *argument), void *argument,
                       const struct mt_measure_options *options, struct mt_measure_result *result,
                       struct mt_error *error)
{
    if (!function || !result)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "a function and a result are needed");
    /* Taken down also when an exception passes: this room is compiled with -fexceptions. */
    struct call call __attribute__((cleanup(take_down))) = call_of(os, registry, options);
    int begun = check_and_begin(&call, error);
    if (begun != MT_OK)
        return begun;

    uint64_t start_ns = os->now_ns(os->context);
    void *value = function(argument);
    uint64_t end_ns = os->now_ns(os->context);
    int errno_of_function = errno;
    int cancellation = hold_cancellation();
    finish(&call, value, end_ns - start_ns, result);
    release_cancellation(cancellation);
    errno = errno_of_function;
    return MT_OK;
}

/* A call whose function is whatever happens between begin and end. */
struct mt_measure {
    struct call call;
    uint64_t start_ns;
};

int mt_measure_begin_in(const struct mt_measure_os *os, struct mt_measure_registry *registry,
                        const struct mt_measure_options *options, struct mt_measure **measure,
                        struct mt_error *error)
{
    if (!measure)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "a place for the measurement is needed");
    struct mt_measure *begun = malloc(sizeof *begun);
    if (!begun)
        return mt_out_of_memory(error);
    begun->call = call_of(os, registry, options);
    int result = check_and_begin(&begun->call, error);
    if (result != MT_OK) {
        take_down(&begun->call);
        free(begun);
        return result;
    }
    begun->start_ns = os->now_ns(os->context);
    *measure = begun;
    return MT_OK;
}

void mt_measure_end(struct mt_measure *measure, struct mt_measure_result *result)
{
    if (!measure)
        return;
    int errno_before = errno;
    const struct mt_measure_os *os = measure->call.os;
    uint64_t elapsed_ns = os->now_ns(os->context) - measure->start_ns;
    int cancellation = hold_cancellation();
    if (result)
        finish(&measure->call, NULL, elapsed_ns, result);
    else
        take_down(&measure->call);
    release_cancellation(cancellation);
    free(measure);
    errno = errno_before;
}

int mt_measure_call(void *(*function)(void *argument), void *argument,
                    const struct mt_measure_options *options, struct mt_measure_result *result,
                    struct mt_error *error)
{
    return mt_measure_call_in(&mt_measure_os_real, mt_measure_process_registry(), function,
                              argument, options, result, error);
}

int mt_measure_begin(const struct mt_measure_options *options, struct mt_measure **measure,
                     struct mt_error *error)
{
    return mt_measure_begin_in(&mt_measure_os_real, mt_measure_process_registry(), options, measure,
                               error);
}
