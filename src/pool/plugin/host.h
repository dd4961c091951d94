/* SPDX-License-Identifier: MIT */
/* The pool of a preloaded program's large blocks. While a thread is in it, what it allocates itself
 * comes from the program's own allocator. */
#ifndef MT_POOL_PLUGIN_HOST_H
#define MT_POOL_PLUGIN_HOST_H

#include <stddef.h>
#include <stdint.h>

/* 1 where a block of the size comes from the pool. */
int mt_pool_host_wants(size_t bytes);
/* A block, or NULL where the pool has none. Aligned to 512 bytes. */
void *mt_pool_host_take(size_t bytes);
/* 1 where the pool has handed out the block. */
int mt_pool_host_has(const void *block);
/* The usable size of a block of the pool. */
size_t mt_pool_host_usable(const void *block);
/* Takes a block of the pool back. */
void mt_pool_host_give(void *block);
/* 1 where pages went back to the kernel. */
int mt_pool_host_trim(void);

#endif
