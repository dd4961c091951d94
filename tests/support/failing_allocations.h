/* SPDX-License-Identifier: MIT */
/* An allocator of which one call fails: number `failing_allocation` of those since `allocations`
 * was set to 0. The program is linked with -Wl,--wrap of malloc, calloc and realloc, and includes
 * this once. */
#ifndef TESTS_SUPPORT_FAILING_ALLOCATIONS_H
#define TESTS_SUPPORT_FAILING_ALLOCATIONS_H

#include <stddef.h>

static int allocations, failing_allocation;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *block, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *block, size_t size);

void *__wrap_malloc(size_t size)
{
    return ++allocations == failing_allocation ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return ++allocations == failing_allocation ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *block, size_t size)
{
    return ++allocations == failing_allocation ? NULL : __real_realloc(block, size);
}

#endif
