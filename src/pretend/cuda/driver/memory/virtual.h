/* SPDX-License-Identifier: MIT */
/* Physical memory behind handles, which maps give addresses. Lock held. */
#ifndef MT_CUDA_DRIVER_VIRTUAL_H
#define MT_CUDA_DRIVER_VIRTUAL_H

#include "memory.h"

struct pretend_physical {
    struct pretend_range charge; /* what it takes; `base` is the handle, `device` -1 the host */
    CUmemAllocationProp prop;
    unsigned handles, maps;
    int fd;          /* of what stands behind it once it is shared, else -1 */
    uint64_t shared; /* its number in the account then */
    struct pretend_range *first_map;
};

/* A map is the `inside` of its range. */
struct pretend_map {
    struct pretend_physical *physical;
    uint64_t readable, writable; /* by these devices */
    struct pretend_range *next;  /* of the same memory */
};

struct pretend_physical *pretend_physical_make(const CUmemAllocationProp *prop, uint64_t bytes);
/* The memory of a handle, NULL where it is none. */
struct pretend_physical *pretend_physical_of(CUmemGenericAllocationHandle handle);
/* Gives a handle out, 0 where memory ran out; it is one more to release. */
int pretend_physical_hold(struct pretend_physical *physical);

/* What takes the device's bytes of shared memory is the account's list of it (share.c). */
void pretend_shared_discharge(struct pretend_physical *physical);

#endif
