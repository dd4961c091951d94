/* SPDX-License-Identifier: MIT */
/* The short way of a block in the default depth: most are small, are neither sampled nor watched,
 * and are only counted. One comparison each finds those for which more is to be done, and whatever
 * else there may be to do first: the thresholds of a thread are 0 until it has begun, after a fork,
 * and in the full depth. */
#ifndef MT_RECORDER_HEAP_H
#define MT_RECORDER_HEAP_H

#include "recorder/real.h"

static inline uint64_t sample_hash(uint64_t address)
{
    return (address >> 4) * 0x9e3779b97f4a7c15u;
}

static inline uint8_t *samples_near(uint64_t hash)
{
    return &memtally_recorder.samples_near[hash >> 50];
}

_Static_assert(SAMPLE_PLACES == 1u << (64 - 50), "the hash selects a place");

/* Whether the thread knows that it is written down that the heap was seen here. */
static inline int is_near(const struct thread *thread, uint64_t address, uint64_t last)
{
    uint64_t granule = address / MT_GRANULE_BYTES;
    return thread->granules[granule % THREAD_GRANULES] == granule &&
           last / MT_GRANULE_BYTES == granule;
}

/* Counts a block that the allocator has given, unless there is more to do. Without the guard: a
 * signal handler that comes in between may lose its own count, as it would with the guard set. */
static inline int count_alloc(void *block)
{
    const struct tls *tls = &memtally_tls;
    struct thread *thread = tls->thread;
    if (UNLIKELY(!thread) || UNLIKELY(tls->busy | thread->is_full))
        return 0;
    struct mt_writer *writer = &thread->writer;
    uint64_t address = (uint64_t)(uintptr_t)block;
    uint64_t usable = usable_size(block);
    uint64_t bytes = writer->small_alloc_bytes + usable;
    if (UNLIKELY(bytes >= thread->sample_at) || UNLIKELY(usable - 1 >= EXACT_FROM_BYTES - 1) ||
        UNLIKELY(!is_near(thread, address, address + usable - 1)))
        return 0;
    writer->small_alloc_bytes = bytes;
    writer->small_allocs++;
    return 1;
}

/* Likewise one that is about to be given back. */
static inline int count_free(void *block)
{
    const struct tls *tls = &memtally_tls;
    struct thread *thread = tls->thread;
    if (UNLIKELY(!thread) || UNLIKELY(tls->busy | thread->is_full))
        return 0;
    struct mt_writer *writer = &thread->writer;
    uint64_t usable = usable_size(block);
    uint64_t bytes = writer->small_free_bytes + usable;
    uint64_t hash = sample_hash((uint64_t)(uintptr_t)block);
    if (UNLIKELY(bytes >= thread->look_at) || UNLIKELY(usable - 1 >= EXACT_FROM_BYTES - 1) ||
        UNLIKELY(__atomic_load_n(samples_near(hash), __ATOMIC_RELAXED)))
        return 0;
    writer->small_free_bytes = bytes;
    writer->small_frees++;
    return 1;
}

#endif
