/* SPDX-License-Identifier: MIT */
/* Which code of an image a device would run. We read only the outside of an image: the kind and the
 * architecture of each entry of a container, the ELF header of machine code, the target of PTX.
 *
 *     container := magic 0xBA55ED50 u32, version u16, header bytes u16, bytes of all entries u64,
 *                  entry …
 *     entry     := kind u16 (1 PTX, 2 machine code), version u16, header bytes u32, payload bytes
 *                  u64, … , architecture u32 at byte 28, … , payload
 *     kernel    := a section of machine code named ".nv.constant0.NAME": its parameters
 *     wrapper   := magic 0x466243b1 u32, version u32, address of a container
 */
#ifndef MT_CUDA_DRIVER_IMAGE_H
#define MT_CUDA_DRIVER_IMAGE_H

#include <stddef.h>
#include <stdint.h>

struct pretend_image {
    uint32_t binary; /* architecture of the machine code that runs: 90 */
    uint32_t ptx;    /* of the PTX that it was made of */
};

enum pretend_image_result {
    PRETEND_IMAGE_CHOSEN,
    PRETEND_IMAGE_NONE,   /* nothing in it runs on such a device */
    PRETEND_IMAGE_UNKNOWN /* it is no image that is known here */
};

/* `bytes` SIZE_MAX where the length is not known: an image in memory says it itself. A wrapper is
 * followed only then. */
enum pretend_image_result pretend_cuda_image_choose(const void *image, size_t bytes,
                                                    uint32_t capability,
                                                    struct pretend_image *chosen);

/* Calls `take` with the name of each kernel of machine code, until it returns another number than
 * 0. Returns that, or 0; -1 where the image is not plain machine code, whose names are not known
 * here. */
int pretend_cuda_image_kernels(const void *image, size_t bytes,
                               int (*take)(void *context, const char *name), void *context);

#endif
