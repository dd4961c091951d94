/* SPDX-License-Identifier: MIT */
/* What libmemtally-pool.so exports for other programs' allocators. Nothing here is NULL but where
 * it is said; a device is its number in the process, a stream a CUstream.
 *
 * MEMTALLY_POOL_MAX is the most that the pool of each device holds, MEMTALLY_POOL_PAGE what its
 * pages have; without them a pool takes what the device gives, in pages of 2 MiB. */
#ifndef MT_POOL_PLUGIN_H
#define MT_POOL_PLUGIN_H

#include <stddef.h>

#include <memtally/pool.h>

/* A block, or NULL. 0 bytes are none. For PyTorch's torch.cuda.MemPool, which asks in its own words
 * where a block is not to be had. */
void *memtally_pool_try_malloc(size_t bytes, int device, void *stream);
/* The same for callers in C++, who do not expect NULL: throws std::bad_alloc. For PyTorch's
 * change_current_allocator(). */
void *memtally_pool_malloc(size_t bytes, int device, void *stream);
/* Gives a block back in the order of the stream that it was taken for. NULL is allowed. */
void memtally_pool_free(void *block, size_t bytes, int device, void *stream);
/* Says that another stream uses the block too. */
void memtally_pool_record_stream(void *block, void *stream);
/* Gives back to the devices what is free. */
void memtally_pool_empty_cache(void);
/* Holds a device's pool to a part of the device's memory. */
void memtally_pool_set_fraction(double part, int device);

/* CuPy's CFunctionAllocator; `param` is the stream that its blocks are used on. Throws. */
void *memtally_pool_cupy_malloc(void *param, size_t bytes, int device);
void memtally_pool_cupy_free(void *param, void *block, int device);
/* RMM's callback_memory_resource; `arg` is the device's number. Throws. */
void *memtally_pool_rmm_allocate(size_t bytes, void *stream, void *arg);
void memtally_pool_rmm_deallocate(void *block, size_t bytes, void *stream, void *arg);

/* Has the pools of all devices sleep, with nothing of their contents kept (0) or all of it (1): the
 * devices have their memory back, and blocks keep their addresses. Returns the bytes given back, or
 * a negative MT_E code of the first pool that would not; the others sleep. */
int64_t memtally_pool_sleep(int keeps_contents);
/* Wakes them. MT_OK, or the code of the first that did not wake: it sleeps on, and this may be
 * tried again. */
int memtally_pool_wake(void);

/* The pool of host memory as a ggml_backend_buffer_type_t. Borrowed, static; NULL where the process
 * has no ggml with API version 2 or 3. ggml itself loads this library by GGML_BACKEND_PATH. */
struct ggml_buffer_type *memtally_pool_ggml_buffer_type(void);

/* A device's pool, made where there was none. Borrowed; NULL where there can be none. */
struct mt_pool *memtally_pool_of_device(int device);
/* Why there was no pool for a device, or "". Borrowed, static. */
const char *memtally_pool_problem(int device);

/* Counts of the pool of a preloaded program's large blocks. Errors: MT_ENOTFOUND (there is none).
 */
int memtally_pool_host_stats(struct mt_pool_stats *stats);

/* One thing that a device's pool did. */
struct memtally_pool_event {
    uint64_t time_ns; /* of CLOCK_MONOTONIC */
    uint64_t address;
    uint64_t bytes;
    int32_t device;
    int32_t kind; /* 'a', 'f': a block; 's', 'e': a page; as in a trace of PyTorch's allocator */
};

/* Notes what happens from now on. Errors: MT_ENOMEM. */
int memtally_pool_history_begin(void);
/* Takes what was noted, the oldest first. How many there were. What nobody takes is lost past a
 * million. */
size_t memtally_pool_history_take(struct memtally_pool_event *events, size_t room);
/* How many were noted since the begin, lost ones too. */
uint64_t memtally_pool_history_count(void);
/* Notes something, where it is asked for. */
void mt_pool_note(char kind, int device, uint64_t address, uint64_t bytes);

#endif
