/* SPDX-License-Identifier: MIT */
/* A program that the loader binds to CUDA's driver, and to a library that takes memory for itself:
 *
 *   bound WORD...
 *
 * "direct" takes 6 MiB by a reference to the driver, "weak" 4 MiB by a weak one, "library" 10 MiB
 * through a library (bound_library.c) that asks the runtime. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define MIB ((size_t)1 << 20)

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(uint64_t *address, size_t size);
__attribute__((weak)) int cuMemAllocManaged(uint64_t *address, size_t size, unsigned flags);
int bound_library_take(void **address, size_t size);

int main(int argc, char **argv)
{
    void *context, *taken;
    uint64_t address;
    CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0);
    CHECK(cuCtxSetCurrent(context) == 0);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "direct") == 0)
            CHECK(cuMemAlloc_v2(&address, 6 * MIB) == 0);
        if (strcmp(argv[i], "weak") == 0)
            CHECK(cuMemAllocManaged && cuMemAllocManaged(&address, 4 * MIB, 1) == 0);
        if (strcmp(argv[i], "library") == 0)
            CHECK(dlopen("libcudart.so.12", RTLD_NOW | RTLD_GLOBAL) &&
                  bound_library_take(&taken, 10 * MIB) == 0);
    }
    puts("done");
    return 0;
}
