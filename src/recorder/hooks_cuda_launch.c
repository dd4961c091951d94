/* SPDX-License-Identifier: MIT */
/* What the driver takes as a kernel is launched for the first time.
 *
 * It loads the code of a kernel then, unless it was told to load all code at once, and makes room
 * for what the kernel keeps for each thread. So it is asked before and after the first launch of a
 * kernel on a device; a later one costs a look into a table. While a stream is captured nothing is
 * asked, and the next launch counts as the first. */
#include <string.h>

#include "recorder/cuda.h"
#include "recorder/real.h"

#define KERNELS_MAX 8192u /* a power of two; further kernels are not told of */
#define PROBES_MAX  64u

static uint64_t launched[KERNELS_MAX];

void cuda_forget_kernels(void)
{
    memset(launched, 0, sizeof launched);
}

static uint64_t key_of(const void *function)
{
    int device = 0;
    if (memtally_real.cuda.cuCtxGetDevice)
        memtally_real.cuda.cuCtxGetDevice(&device);
    uint64_t key = ((uint64_t)(uintptr_t)function << 8 | ((unsigned)device & 0xff)) ^ 1;
    return key ? key : 1;
}

static uint64_t *slot_of(uint64_t key)
{
    uint64_t at = key * 0x9e3779b97f4a7c15u >> 51;
    for (uint64_t i = 0; i < PROBES_MAX; i++) {
        uint64_t *slot = &launched[(at + i) % KERNELS_MAX];
        uint64_t there = __atomic_load_n(slot, __ATOMIC_RELAXED);
        if (there == key)
            return NULL;
        if (there == 0)
            return slot;
    }
    return NULL;
}

static int is_captured(void *stream)
{
    int status = 0;
    return memtally_real.cuda.cuStreamIsCapturing &&
           (memtally_real.cuda.cuStreamIsCapturing(stream, &status) != 0 || status != 0);
}

/* Whether a kernel is to be told of, at `slot`. */
static int begins(const void *function, void *stream, uint64_t *key, uint64_t **slot)
{
    *key = key_of(function);
    *slot = slot_of(*key);
    if (LIKELY(!*slot) || is_captured(stream))
        return 0;
    cuda_note_used(MT_DEVICE_BEFORE);
    return 1;
}

static void has_begun(uint64_t key, uint64_t *slot)
{
    __atomic_store_n(slot, key, __ATOMIC_RELAXED);
    cuda_note_used(MT_DEVICE_BY_MODULE);
}

#define LAUNCHES(name, parameters, arguments, on)                                                  \
    int name parameters                                                                            \
    {                                                                                              \
        REAL(name)                                                                                 \
        uint64_t key;                                                                              \
        uint64_t *slot;                                                                            \
        int is_first = begins(function, on, &key, &slot);                                          \
        int result = memtally_real.cuda.name arguments;                                            \
        if (is_first && result == 0)                                                               \
            has_begun(key, slot);                                                                  \
        return result;                                                                             \
    }

#define SHAPE                                                                                      \
    void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,  \
        unsigned shared, void *stream, void **arguments

LAUNCHES(cuLaunchKernel, (SHAPE, void **extra),
         (function, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra), stream)
LAUNCHES(cuLaunchKernel_ptsz, (SHAPE, void **extra),
         (function, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra), stream)
LAUNCHES(cuLaunchKernelEx,
         (const struct cuda_launch *launch, void *function, void **arguments, void **extra),
         (launch, function, arguments, extra), launch ? launch->stream : NULL)
LAUNCHES(cuLaunchKernelEx_ptsz,
         (const struct cuda_launch *launch, void *function, void **arguments, void **extra),
         (launch, function, arguments, extra), launch ? launch->stream : NULL)
LAUNCHES(cuLaunchCooperativeKernel, (SHAPE),
         (function, gx, gy, gz, bx, by, bz, shared, stream, arguments), stream)
LAUNCHES(cuLaunchCooperativeKernel_ptsz, (SHAPE),
         (function, gx, gy, gz, bx, by, bz, shared, stream, arguments), stream)
