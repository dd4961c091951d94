/* SPDX-License-Identifier: MIT */
/* CUDA's driver: its functions that the recorder stands before, and the real ones behind them.
 *
 * A program reaches the driver by four ways: bound by the loader, by dlsym(), by cuGetProcAddress()
 * and by the runtime's cudaGetDriverEntryPoint(), which asks cuGetProcAddress(). A runtime that is
 * linked statically opens the library itself, where RTLD_NEXT does not see it. So the names are
 * exported for the first way; for the others the real resolver is asked first, and its answer is
 * replaced where it is a function of the driver that is listed in cuda.def. Nothing is answered
 * that the driver does not have. A program without CUDA pays one comparison in dlsym(). */
#ifndef MT_RECORDER_CUDA_H
#define MT_RECORDER_CUDA_H

#include "recorder/recorder.h"

/* The first line of a hook. */
#define REAL(name)                                                                                 \
    if (!cuda_ready() || !memtally_real.cuda.name)                                                 \
        return CUDA_NOT_INITIALIZED;

#define CUDA_LAUNCHED        512u /* graphs that are known to have been started */
#define CUDA_OUT_OF_MEMORY   2
#define CUDA_NOT_INITIALIZED 3

/* CUmemLocation's kinds that lie on a device. */
#define CUDA_LOCATION_DEVICE 1

/* CUmemAllocationProp (cuda.h 10.2 to 13.1): what of it is read. */
struct cuda_properties {
    int type;
    int requested_handles;
    int location_type;
    int location_id;
    void *windows;
    uint8_t flags[8];
};

/* CUDA_ARRAY_DESCRIPTOR and CUDA_ARRAY3D_DESCRIPTOR (cuda.h 3.2 to 13.1). */
struct cuda_array {
    size_t width, height;
    int format;
    unsigned channels;
};

struct cuda_array_3d {
    size_t width, height, depth;
    int format;
    unsigned channels;
    unsigned flags;
};

/* What an array of `levels` levels holds, as its elements are: the driver's tiles round that up. 0
 * where the form of its elements is not known, and where it has no memory of its own. */
HIDDEN uint64_t cuda_array_bytes(const struct cuda_array_3d *form, unsigned levels);

struct cuda_ipc_handle {
    char reserved[64];
};

/* CUlaunchConfig: what of it is read. */
struct cuda_launch {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared;
    void *stream;
};

#define CUDA(name, parameters, arguments) EXPORTED int name parameters;
#define CUDA_ASK(name, parameters)
#include "recorder/cuda.def"
#undef CUDA
#undef CUDA_ASK

/* The driver's functions; members may be NULL where its version lacks them. */
struct cuda {
#define CUDA(name, parameters, arguments) int(*name) parameters;
#define CUDA_ASK(name, parameters)        int(*name) parameters;
#include "recorder/cuda.def"
#undef CUDA
#undef CUDA_ASK
    uint32_t state; /* how far the rest is known */
};

/* What calls are unwound with (cuda_caller.c); NULL where the program has it not. */
struct cuda_unwinder {
    void *find_object; /* of libc */
    void *backtrace;
    void *get_address;
    uint32_t n_asked;
};

/* Finds the driver that a program is bound to. Returns 0 where there is none. */
HIDDEN int cuda_ready(void);

/* What dlsym() is to answer for `name`, which `real` was found for: the function that stands before
 * it; `real` where that is none of the driver's listed ones. */
HIDDEN void *cuda_in_place_of(void *real);

#define CUDA_NO_DEVICE (-1)

/* The device of the current context, or CUDA_NO_DEVICE. */
HIDDEN int cuda_current_device(void);

/* Notes what the driver says is used of the current device. */
HIDDEN void cuda_note_used(enum mt_device_reason reason);

/* The driver said how much is used of a device (hooks_cuda_watch.c). */
HIDDEN void cuda_watch_used(int device, uint64_t used_bytes);

/* Kernels were given up: another one may have the handle of one that was launched. */
HIDDEN void cuda_forget_kernels(void);

/* The recorder's function called `name`, or NULL. *unfindable, where it is asked for, is a name
 * that reads the same and that no library has. */
HIDDEN void *cuda_hook_by_name(const char *name, const char **unfindable);

/* The file's name of the library that called the hook whose frame is `frame`, past the driver and
 * the runtime: "libnccl.so.2". NULL where it is not known; "" is the program itself. */
HIDDEN const char *cuda_caller(const void *frame);

/* A peak that others raise too. */
static inline void cuda_raise(uint64_t *peak, uint64_t value)
{
    uint64_t seen = __atomic_load_n(peak, __ATOMIC_RELAXED);
    while (seen < value && !__atomic_compare_exchange_n(peak, &seen, value, 1, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED)) {
    }
}

/* Whether a name may be the driver's: "cuMemAlloc", not "cudaMalloc" nor "cublasCreate". */
static inline int cuda_may_have(const char *name)
{
    return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

#endif
