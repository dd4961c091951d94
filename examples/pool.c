/* SPDX-License-Identifier: MIT */
/* Takes a program's large buffers from a pool, which keeps their pages:
 *
 *     cc pool.c $(pkg-config --cflags --libs memtally) */
#include <memtally/error.h>
#include <memtally/pool.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BUFFER_BYTES ((uint64_t)8 << 20)

int main(void)
{
    struct mt_pool_options options = {.max_bytes = (uint64_t)64 << 20};
    struct mt_pool *pool;
    struct mt_error error;
    if (mt_pool_create(mt_pool_host_backend(), &options, &pool, &error) != MT_OK) {
        fprintf(stderr, "pool: %s\n", error.text);
        return 2;
    }
    for (int step = 0; step < 100; step++) {
        uint64_t address;
        int code = mt_pool_allocate(pool, BUFFER_BYTES, 0, &address);
        if (code != MT_OK) {
            fprintf(stderr, "pool: %s\n", mt_error_sentence(code));
            return 2;
        }
        memset((void *)(uintptr_t)address, step, BUFFER_BYTES);
        mt_pool_free(pool, address);
    }
    struct mt_pool_stats stats;
    mt_pool_stats_read(pool, &stats);
    printf("%" PRIu64 " buffers, %" PRIu64 " of them without new memory; %" PRIu64 " MiB held\n",
           stats.n_allocations, stats.n_hits, stats.reserved_bytes >> 20);
    mt_pool_destroy(pool);
    return 0;
}
