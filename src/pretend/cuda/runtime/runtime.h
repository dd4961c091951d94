/* SPDX-License-Identifier: MIT */
/* What the files of the pretended runtime share.
 *
 * The runtime holds little: a thread's last error and device, the primary contexts that it took,
 * and the kernels that compiled code registered. All else is the driver's, which is called by its
 * public functions. Any thread, any time; a call that fails changes nothing but the thread's last
 * error. */
#ifndef MT_CUDA_RUNTIME_RUNTIME_H
#define MT_CUDA_RUNTIME_RUNTIME_H

#include "pretend/cuda/abi/driver_memory.h"
#include "pretend/cuda/abi/driver_work.h"
#include "pretend/cuda/abi/runtime.h"

/* A function that the look-alike exports, declared where it is defined. */
#define EXPORTED(name, parameters)                                                                 \
    PRETEND_CALL cudaError_t name parameters;                                                      \
    PRETEND_CALL cudaError_t name parameters

/* What stands for the default stream in code that was compiled with one for each thread. */
#define PER_THREAD_STREAM  ((CUstream)2)
#define PER_THREAD(stream) ((stream) ? (stream) : PER_THREAD_STREAM)

/* Starts the driver in this process, once; then says whether it can be called: also in a child that
 * was forked after that, which cannot. */
int runtime_start(void);

/* The same, and gives the calling thread a context where it has none: its device's primary one. */
int runtime_enter(void);

/* Keeps an error for cudaGetLastError(), and returns it. */
cudaError_t runtime_note(int code);

/* The device that the calling thread works on, also where it has no context yet. */
int runtime_device(void);

/* Retains the primary context of a device once in a process, whoever asks. */
int runtime_retain(int device, CUcontext *context);

/* Gives up the primary context of a device that was reset, and errors that lasted until then. */
void runtime_forget(int device);

/* Registered code (module.c). The kernel that stands behind a host function or is such a handle; it
 * is loaded by the first who asks. cudaErrorInvalidDeviceFunction where there is none. */
int runtime_kernel(const void *host, CUkernel *kernel);
/* The same as a function of the current context. */
int runtime_function(const void *host, CUfunction *function);
/* The host function of a function of the current context, or the function itself. */
const void *runtime_host_of(CUfunction function);
/* Makes a handle known that did not come from registered code. */
int runtime_know(CUkernel kernel);

/* A copy of a box in the driver's words; cudaErrorNotSupported where arrays take part. */
int runtime_box(const struct cudaMemcpy3DParms *copy, CUDA_MEMCPY3D *out);

/* The parameters of a kernel's node in the driver's words, for a thread that has a context then. */
int runtime_kernel_node(const struct cudaKernelNodeParams *asked, CUDA_KERNEL_NODE_PARAMS *out);

/* The memory behind a variable that compiled code registered, on the current device. */
int runtime_symbol(const void *host, CUdeviceptr *pointer, size_t *bytes);
/* Gives back what variables have on a device. */
void runtime_drop_symbols(int device);

#endif
