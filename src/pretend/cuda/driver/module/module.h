/* SPDX-License-Identifier: MIT */
/* Modules, libraries and their functions inside the pretended driver. A library is a module that
 * belongs to no context, a kernel is a function of one; here they are the same objects. */
#ifndef MT_CUDA_DRIVER_MODULE_H
#define MT_CUDA_DRIVER_MODULE_H

#include "image.h"
#include "pretend/cuda/abi/driver_work.h"
#include "pretend/cuda/driver/world.h"

struct pretend_global {
    struct pretend_global *next;
    CUdeviceptr address[MT_ACCOUNT_DEVICES_MAX];
    char name[];
};

struct pretend_module {
    struct pretend_object object;
    struct pretend_context *context; /* NULL of a library */
    struct pretend_image image[MT_ACCOUNT_DEVICES_MAX];
    struct pretend_function **function; /* in order of their names */
    size_t n, room;
    size_t n_kernels; /* of these, that the image has; SIZE_MAX where it does not say */
    struct pretend_global *globals;
};

struct pretend_function {
    struct pretend_object object;
    struct pretend_module *module;
    char *name;
    int is_kernel; /* the image has it */
    int attribute[CU_FUNC_ATTRIBUTE_MAX];
};

/* What a function of a program is, by CUfunction or CUkernel; NULL where it is none. */
struct pretend_function *pretend_function_of(const void *handle);
/* As the architecture of an image that has nothing for a device. */
#define PRETEND_NO_CODE UINT32_MAX
/* Registers of a thread; kernels are not looked into, and this is what many have. */
#define PRETEND_REGISTERS 32

/* Blocks of a function that a multiprocessor holds at once (occupancy.c). */
int pretend_blocks_of(const struct mt_gpu_spec *gpu, const struct pretend_function *function,
                      uint64_t threads, uint64_t dynamic_bytes);

#endif
