/* SPDX-License-Identifier: MIT */
/* Peak memory of one call.
 *
 *     struct mt_measure_result result;
 *     if (mt_measure_call(load, "model.gguf", NULL, &result, NULL) == MT_OK)
 *         use(result.value, result.peak_bytes);
 *
 * Figures are those of the whole process: what other threads take while the call runs is in them.
 * The exact method resets the kernel's high-water mark of the process's resident set
 * (/proc/self/clear_refs) and reads it after the call (VmHWM). Its precision is the kernel's own,
 * which counts pages in batches for each CPU: a few hundred KiB on most machines, more on one with
 * hundreds of CPUs. Others that read VmHWM or ru_maxrss of this process see the reset; where that
 * must not be, ask for MT_MEASURE_SAMPLED, which only reads.
 *
 * Nested and concurrent calls. Before the mark is reset, its value is handed to every exact
 * measurement under way, so each of them, inner or outer, on whatever thread, reports the peak of
 * the process between its own begin and end. Only a peak reached and left within the microseconds
 * between that reading and the reset can be missed. Such results have `overlapped` set, and their
 * growth includes what the others took. Two copies of this library in one process (one of them
 * linked statically, say) do not know of each other.
 *
 * How the function may end. It may throw a C++ exception or end its thread (pthread_exit(),
 * cancellation): the measurement is put away, the exception goes on to the caller, and nothing is
 * written to *result. It must not leave by longjmp(). If it forks, the measurement goes on in the
 * parent. Where it returns in the child too, the child's result has its value and latency, every
 * other figure is MT_UNKNOWN and `problem` says why; the child may then measure anew. A process
 * made by vfork() or a bare clone() must not measure. */
#ifndef MEMTALLY_MEASURE_H
#define MEMTALLY_MEASURE_H

#include <stdint.h>

#include <memtally/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How resident memory is measured. X(NAME, value, "name"). */
#define MT_MEASURE_METHOD_LIST(X)                                                                  \
    X(AUTO, 0, "auto")       /* exact where the kernel allows, else sampled; never in a result */  \
    X(EXACT, 1, "exact")     /* the kernel's high-water mark, reset before the call */             \
    X(SAMPLED, 2, "sampled") /* looks at intervals: peaks between two looks are missed */          \
    X(CAUGHT, 3, "caught")   /* the driver is asked after each call of it that takes or gives      \
                                memory of a device; only in a result */

enum mt_measure_method {
#define MT_MEASURE_METHOD_ENUM(NAME, value, name) MT_MEASURE_##NAME = value,
    MT_MEASURE_METHOD_LIST(MT_MEASURE_METHOD_ENUM)
#undef MT_MEASURE_METHOD_ENUM
};

/* `device_index` for: host memory only. */
#define MT_MEASURE_HOST_ONLY (-1)

/* How `device_index` counts. They differ where CUDA_VISIBLE_DEVICES or CUDA_DEVICE_ORDER is set. */
enum mt_measure_count {
    MT_MEASURE_AS_NVML, /* every device of the machine, as nvidia-smi does */
    MT_MEASURE_AS_CUDA  /* those that this process sees. CUDA is initialised (cuInit()) where it is
                           not yet; a child that is forked later cannot use it then */
};

/* A device's UUID as text ("GPU-01234567-89ab-cdef-0123-456789abcdef"), with its end. */
#define MT_MEASURE_UUID_BYTES 96u

/* Start from MT_MEASURE_OPTIONS_INIT: an object of zeros asks for device 0. */
struct mt_measure_options {
    enum mt_measure_method method;
    int device_index;     /* NVIDIA device, or MT_MEASURE_HOST_ONLY */
    uint64_t interval_ns; /* between samples, 100 us to 1 h; 0 means 10 ms */
    enum mt_measure_count device_count;
    const char *device_uuid; /* NULL, or the device's, whatever `device_index` says */
};

#define MT_MEASURE_OPTIONS_INIT                                                                    \
    {                                                                                              \
        MT_MEASURE_AUTO, MT_MEASURE_HOST_ONLY, 0, MT_MEASURE_AS_NVML, NULL                         \
    }

/* What a call took. Figures that are not known are MT_UNKNOWN.
 * Invariant where both are known: growth_bytes == peak_bytes - baseline_bytes, and
 * peak_bytes >= baseline_bytes; likewise for the device and what is this process's own of it.
 *
 * Device figures are MT_UNKNOWN where no device was asked for. Those of the whole device have every
 * process on it in them. Those called `own` are this process's share, context and all, as the
 * driver lists it; they are MT_UNKNOWN where the list never named this process (most containers, or
 * a process that did not use the device). Where the process is recorded (`memtally run`) both peaks
 * are caught: the recorder asks the driver after each call that takes or gives back a MiB or more.
 * What other processes use is known at intervals only: what they take or give back between two
 * samples may stand in the own peak, or lack there. Elsewhere both peaks are sampled. */
struct mt_measure_result {
    void *value;                   /* what the function returned */
    enum mt_measure_method method; /* of peak_bytes; MT_MEASURE_EXACT or MT_MEASURE_SAMPLED */
    int overlapped;                /* 1 where another measurement ran at the same time */
    uint64_t latency_ns;           /* of the function alone, without any measuring, nested too */
    uint64_t baseline_bytes;       /* resident just before the function */
    uint64_t peak_bytes;           /* largest resident size while it ran */
    uint64_t growth_bytes;
    uint64_t after_bytes; /* resident just after it */
    uint64_t n_samples;   /* taken while it ran; 0 where the exact method needed none */
    int device_index;     /* as asked for */
    uint64_t device_capacity_bytes;
    uint64_t device_baseline_bytes;
    uint64_t device_peak_bytes;
    uint64_t device_growth_bytes;
    uint64_t device_after_bytes;
    enum mt_measure_method device_method; /* of its peaks: MT_MEASURE_CAUGHT or _SAMPLED; _AUTO
                                             where no device was asked for */
    uint64_t device_own_baseline_bytes;
    uint64_t device_own_peak_bytes;
    uint64_t device_own_growth_bytes;
    uint64_t device_own_after_bytes;
    char device_uuid[MT_MEASURE_UUID_BYTES]; /* of the device that was measured; "" unknown */
    struct mt_error problem; /* code 0, or the first thing that could not be read after the
                                function had begun */
};

/* Runs function(argument) exactly once and measures the peak of resident memory meanwhile.
 *
 * `options` may be NULL for MT_MEASURE_OPTIONS_INIT. errno is left as the function left it. The
 * function runs on the calling thread with no lock held. Sampling, and any measurement of a device,
 * runs a thread of its own beside it with all signals blocked.
 *
 * Returns 0 when the function has run: result->value is what it returned, whatever became of the
 * measurement; figures that were lost are MT_UNKNOWN and result->problem says why. A negative code
 * means that the function has not run and that *result is untouched:
 * MT_EARG (no function, no result, an option out of range), MT_ENOTFOUND (no such device, or no
 * NVIDIA driver), MT_EPERM or MT_EUNSUPPORTED (the method that was asked for, or every method, is
 * refused here), MT_EIO, MT_ENOMEM. Any thread. */
int mt_measure_call(void *(*function)(void *argument), void *argument,
                    const struct mt_measure_options *options, struct mt_measure_result *result,
                    struct mt_error *error);

/* A measurement between two moments that the caller chooses: for code that is no function, and for
 * languages that call by their own rules. */
struct mt_measure;

/* Begins a measurement. On success *measure is owned by the caller, who ends it with
 * mt_measure_end() exactly once, from any thread. `options` is as of mt_measure_call().
 * Measurements may overlap in any order, nested or not. Errors: those of mt_measure_call() but for
 * the missing function; *measure is then untouched and nothing was begun. Any thread. */
int mt_measure_begin(const struct mt_measure_options *options, struct mt_measure **measure,
                     struct mt_error *error);

/* Ends a measurement and frees it. *result is as of mt_measure_call(), with `value` NULL;
 * `latency_ns` is from the return of mt_measure_begin() to this call, less what measurements took
 * for themselves that ended meanwhile on the thread that began this one. With a `result`
 * of NULL the measurement is put away. In a child that was forked meanwhile the figures are
 * MT_UNKNOWN. Takes a `measure` of NULL, and *result is then untouched. errno is left as it was.
 * Any thread. */
void mt_measure_end(struct mt_measure *measure, struct mt_measure_result *result);

/* The name of a method ("exact"), "?" for a value outside the list. Borrowed, static. Any thread.
 */
const char *mt_measure_method_name(enum mt_measure_method method);

#ifdef __cplusplus
}
#endif
#endif
