/* SPDX-License-Identifier: MIT */
/* A library with the name of one that takes memory for itself. Like those it has no frame pointers,
 * and the runtime stands between it and the driver. */
#include <stddef.h>

int cudaMalloc(void **address, size_t size);
int bound_library_take(void **address, size_t size);

__attribute__((noinline)) static int take(void **address, size_t size)
{
    volatile int result = cudaMalloc(address, size);
    return result;
}

int bound_library_take(void **address, size_t size)
{
    volatile int result = take(address, size);
    return result;
}
