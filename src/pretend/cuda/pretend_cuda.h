/* SPDX-License-Identifier: MIT */
/* What the pretended driver gives to the other look-alikes, beside the driver's public functions.
 *
 * One process has one pretended driver (libcuda.so.1); the runtime, the math libraries and NCCL
 * stand on it, as the real ones do, and hold no account of their own. Any thread. */
#ifndef MT_CUDA_PRETEND_CUDA_H
#define MT_CUDA_PRETEND_CUDA_H

#include <stdint.h>

#include "pretend/cuda/abi/driver_base.h"

struct mt_account; /* all of "rehearse/account.h" */
struct mt_account_cuda;
struct mt_gpu_spec;

/* Notes once per process that a function was called which does not exist here, and returns `code`.
 * `told` is the caller's, zero at the start. */
int pretend_cuda_missing(const char *library, const char *name, int *told, int code);

/* A sentence for the reader of the rehearsal; at most MT_ACCOUNT_NOTE_BYTES. */
void pretend_cuda_note(const char *text);
/* Something that ranks communicate by switched itself off in the rehearsal: it would take up to
 * `bytes` of the current device. */
void pretend_cuda_absent(uint64_t bytes, const char *text);

/* A library's work on a stream: nothing is done, but a stream that is being captured gets a
 * kernel's node. Errors: those of a launch. */
CUresult pretend_cuda_work(CUstream stream);

/* Until pretend_cuda_hide(0) whatever this thread copies from a device to the host is zeros, or
 * where a single byte is first asked for, which is an answer, 1. For who knows that kernels would
 * have computed it: without them there lies what an earlier tenant of the memory left. */
enum { PRETEND_HIDDEN = 1, PRETEND_HIDDEN_BUT_TRUE };
void pretend_cuda_hide(int how);

/* That a program's helper has stored bytes in a device's memory by itself: they are copied from now
 * on, and gone when the memory is given back. */
void pretend_cuda_wrote(CUdeviceptr pointer, uint64_t bytes);

/* The GPU that a program sees as `device`, NULL where it is none. */
const struct mt_gpu_spec *pretend_cuda_gpu(CUdevice device);

/* The whole account, for NVML, which sees devices that the program's CUDA does not; NULL where
 * there is no rehearsal. And what is free of the device at `place` there. */
const struct mt_account *pretend_cuda_whole(void);
uint64_t pretend_cuda_free_bytes(uint32_t place);

/* What programs see; NULL if there is no rehearsal. */
struct mt_account_cuda *pretend_cuda_account(void);

#endif
