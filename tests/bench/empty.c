/* SPDX-License-Identifier: MIT */
/* Two functions that do nothing, for bench_pool to call in a library. */
#include <stdint.h>

int empty_take(void *pool, uint64_t bytes, uint64_t stream, uint64_t *address);
int empty_take(void *pool, uint64_t bytes, uint64_t stream, uint64_t *address)
{
    (void)pool, (void)stream;
    *address = bytes;
    return 0;
}

int empty_give(void *pool, uint64_t address);
int empty_give(void *pool, uint64_t address)
{
    (void)pool, (void)address;
    return 0;
}
