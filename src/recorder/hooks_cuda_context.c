/* SPDX-License-Identifier: MIT */
/* Contexts of CUDA's driver: what one takes, and that what was allocated in it goes with it. */
#include "recorder/cuda.h"
#include "recorder/cuda_cap.h"
#include "recorder/real.h"

#define MAKES_CONTEXT(name, parameters, arguments)                                                 \
    int name parameters                                                                            \
    {                                                                                              \
        REAL(name)                                                                                 \
        cuda_note_used(MT_DEVICE_BEFORE);                                                          \
        return made_context(memtally_real.cuda.name arguments);                                    \
    }

/* The contexts that the program has made of a device; NULL where none is counted. */
static uint32_t *contexts_of(int device)
{
    struct process *process = memtally_recorder.process;
    return process && device >= 0 && device < DEVICES_TOLD_MAX ? &process->own_contexts[device]
                                                               : NULL;
}

/* It is the current one from now on. */
static int made_context(int result)
{
    uint32_t *n = result == 0 ? contexts_of(cuda_current_device()) : NULL;
    if (n)
        __atomic_fetch_add(n, 1, __ATOMIC_RELAXED);
    if (result == 0)
        cuda_note_used(MT_DEVICE_BY_CONTEXT);
    return result;
}

MAKES_CONTEXT(cuCtxCreate_v2, (void **context, unsigned flags, int device),
              (context, flags, device))
MAKES_CONTEXT(cuCtxCreate_v3,
              (void **context, void *affinities, int n_affinities, unsigned flags, int device),
              (context, affinities, n_affinities, flags, device))
MAKES_CONTEXT(cuCtxCreate_v4, (void **context, void *parameters, unsigned flags, int device),
              (context, parameters, flags, device))

/* All that was allocated in the context goes with it. */
static void note_reset(int device)
{
    uint64_t field = (uint64_t)device;
    cuda_cap_reset(device);
    struct thread *thread = enter();
    if (!thread)
        return;
    mt_write_event(&thread->writer, MT_EVENT_DEVICE_RESET, now_ticks(), &field, 1);
    leave();
}

static int is_primary_active(int device)
{
    unsigned flags;
    int is_active = 1;
    return !memtally_real.cuda.cuDevicePrimaryCtxGetState ||
           memtally_real.cuda.cuDevicePrimaryCtxGetState(device, &flags, &is_active) != 0 ||
           is_active;
}

static int device_of_context(void *context)
{
    void *was = NULL;
    if (!memtally_real.cuda.cuCtxPushCurrent_v2 || !memtally_real.cuda.cuCtxPopCurrent_v2 ||
        memtally_real.cuda.cuCtxPushCurrent_v2(context) != 0)
        return CUDA_NO_DEVICE;
    int device = cuda_current_device();
    memtally_real.cuda.cuCtxPopCurrent_v2(&was);
    return device;
}

/* What was allocated in one of several contexts of a device is not told apart: with the last of
 * them all goes. */
int cuCtxDestroy_v2(void *context)
{
    REAL(cuCtxDestroy_v2)
    cuda_note_used(MT_DEVICE_BEFORE);
    int device = device_of_context(context);
    cuda_cap_end_context(context);
    int result = memtally_real.cuda.cuCtxDestroy_v2(context);
    if (result == 0)
        cuda_note_used(MT_DEVICE_BY_CONTEXT);
    uint32_t *n = result == 0 ? contexts_of(device) : NULL;
    if (n && __atomic_load_n(n, __ATOMIC_RELAXED) &&
        __atomic_sub_fetch(n, 1, __ATOMIC_RELAXED) == 0 && !is_primary_active(device))
        note_reset(device);
    return result;
}

/* The primary context of a device need not become the current one. */
int cuDevicePrimaryCtxRetain(void **context, int device)
{
    REAL(cuDevicePrimaryCtxRetain)
    void *was = NULL;
    int result = memtally_real.cuda.cuDevicePrimaryCtxRetain(context, device);
    if (result != 0 || !context || !memtally_real.cuda.cuCtxPushCurrent_v2 ||
        !memtally_real.cuda.cuCtxPopCurrent_v2 ||
        memtally_real.cuda.cuCtxPushCurrent_v2(*context) != 0)
        return result;
    cuda_note_used(MT_DEVICE_BY_CONTEXT);
    memtally_real.cuda.cuCtxPopCurrent_v2(&was);
    return result;
}

static uint32_t n_own_contexts(int device)
{
    const uint32_t *n = contexts_of(device);
    return n ? __atomic_load_n(n, __ATOMIC_RELAXED) : 0;
}

/* The primary context of a device, where the program has others of its own beside it; else NULL. */
static void *primary_beside_own(int device)
{
    void *primary = NULL;
    if (!n_own_contexts(device) || !memtally_real.cuda.cuDevicePrimaryCtxGetState ||
        !is_primary_active(device) || !memtally_real.cuda.cuDevicePrimaryCtxRetain ||
        !memtally_real.cuda.cuDevicePrimaryCtxRelease_v2 ||
        memtally_real.cuda.cuDevicePrimaryCtxRetain(&primary, device) != 0)
        return NULL;
    memtally_real.cuda.cuDevicePrimaryCtxRelease_v2(device);
    return primary;
}

/* What was allocated in contexts of the program's own stays. */
static void note_primary_ended(int device, const void *primary)
{
    if (primary)
        cuda_cap_end_context(primary);
    else if (!n_own_contexts(device))
        note_reset(device);
}

/* With the last of its holders it goes. */
int cuDevicePrimaryCtxRelease_v2(int device)
{
    REAL(cuDevicePrimaryCtxRelease_v2)
    const void *primary = primary_beside_own(device);
    int result = memtally_real.cuda.cuDevicePrimaryCtxRelease_v2(device);
    if (result == 0 && !is_primary_active(device))
        note_primary_ended(device, primary);
    return result;
}

int cuDevicePrimaryCtxReset_v2(int device)
{
    REAL(cuDevicePrimaryCtxReset_v2)
    const void *primary = primary_beside_own(device);
    int result = memtally_real.cuda.cuDevicePrimaryCtxReset_v2(device);
    if (result == 0)
        note_primary_ended(device, primary);
    return result;
}
