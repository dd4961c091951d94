/* SPDX-License-Identifier: MIT */
/* What the recorder writes down of the heap: large blocks as events, small ones as running totals
 * and as a Poisson sample, and in which megabytes of the address space the heap was seen. */
#include "recorder/heap.h"

#include <string.h>

#include <memtally/depth.h>

#include "recorder/real.h"
#include "recorder/regions.h"
#include "recorder/stack.h"
#include "recorder/sys.h"

#define SET_BUCKETS  8192u
#define BUCKET_SLOTS 8u
#define LABEL_BITS   20

/* The sampled blocks that are alive. A bucket is a cache line; a block lies in its bucket or not at
 * all, so that adding and taking are one atomic store each and leave nothing behind. And of some
 * blocks that are alive what was last said of them, with a hash of it in the lowest bits. */
struct sample_set {
    uint64_t slot[SET_BUCKETS][BUCKET_SLOTS];
    uint64_t label[SET_BUCKETS];
};

int heap_init(void)
{
    memtally_recorder.samples = mt_sys_map(sizeof(struct sample_set));
    return memtally_recorder.samples != NULL;
}

void heap_write_self(struct thread *thread)
{
    write_self(thread, memtally_recorder.samples, sizeof(struct sample_set));
}

static uint64_t *bucket_of(uint64_t address)
{
    return memtally_recorder.samples->slot[sample_hash(address) >> 51];
}

_Static_assert(SET_BUCKETS == 1u << (64 - 51), "the hash selects a bucket");

/* The place is counted before the block is there, and until it is not. */
static int samples_add(uint64_t address)
{
    uint8_t *near = samples_near(sample_hash(address));
    uint64_t *bucket = bucket_of(address);
    if (__atomic_load_n(near, __ATOMIC_RELAXED) >= UINT8_MAX / 2)
        return 0;
    __atomic_fetch_add(near, 1, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < BUCKET_SLOTS; i++) {
        uint64_t empty = 0;
        if (__atomic_compare_exchange_n(&bucket[i], &empty, address, 0, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
            return 1;
    }
    __atomic_fetch_sub(near, 1, __ATOMIC_RELAXED);
    return 0;
}

static int samples_take(uint64_t address)
{
    uint64_t *bucket = bucket_of(address);
    for (uint32_t i = 0; i < BUCKET_SLOTS; i++) {
        if (__atomic_load_n(&bucket[i], __ATOMIC_RELAXED) == address) {
            __atomic_store_n(&bucket[i], 0, __ATOMIC_RELAXED);
            __atomic_fetch_sub(samples_near(sample_hash(address)), 1, __ATOMIC_RELAXED);
            return 1;
        }
    }
    return 0;
}

static int samples_has(uint64_t address)
{
    uint64_t *bucket = bucket_of(address);
    for (uint32_t i = 0; i < BUCKET_SLOTS; i++)
        if (__atomic_load_n(&bucket[i], __ATOMIC_RELAXED) == address)
            return 1;
    return 0;
}

/* Where the heap was never seen there is no block, and nothing in front of it to look at. Returns
 * whether the block's end will be noted. */
static int note_free_of(const struct thread *thread, uint64_t address)
{
    if (!region_is_known(address / MT_GRANULE_BYTES))
        return 0;
    if (thread->is_full || !memtally_real.malloc_usable_size ||
        usable_size((const void *)(uintptr_t)address) >= EXACT_FROM_BYTES || samples_has(address) ||
        samples_add(address))
        return 1;
    __atomic_fetch_add(&memtally_recorder.process->file.header->samples_dropped, 1,
                       __ATOMIC_RELAXED);
    return 0;
}

static uint64_t *label_of(uint64_t address)
{
    return &memtally_recorder.samples->label[sample_hash(address) >> 51];
}

static uint64_t label_key(uint64_t address)
{
    return address >> 4 << LABEL_BITS;
}

int label_is_new(const struct thread *thread, uint64_t address, uint64_t hash)
{
    uint64_t *label = label_of(address);
    uint64_t others = __atomic_load_n(&memtally_recorder.range_labels, __ATOMIC_RELAXED);
    uint64_t mixed = (hash ^ others) * 0x9e3779b97f4a7c15u;
    uint64_t said = label_key(address) | mixed >> (64 - LABEL_BITS);
    if (!note_free_of(thread, address))
        return 1;
    if (__atomic_load_n(label, __ATOMIC_RELAXED) == said)
        return 0;
    __atomic_store_n(label, said, __ATOMIC_RELAXED);
    __atomic_store_n(&memtally_recorder.has_labels, 1, __ATOMIC_RELAXED);
    return 1;
}

static void forget_label(uint64_t address)
{
    uint64_t *label = label_of(address);
    if (__atomic_load_n(label, __ATOMIC_RELAXED) >> LABEL_BITS == label_key(address) >> LABEL_BITS)
        __atomic_store_n(label, 0, __ATOMIC_RELAXED);
}

static inline void end_label(uint64_t address)
{
    if (UNLIKELY(memtally_recorder.has_labels))
        forget_label(address);
}

static void mark_region(struct thread *thread, uint64_t address, uint64_t size)
{
    uint64_t first = address / MT_GRANULE_BYTES;
    uint64_t last = (address + (size ? size - 1 : 0)) / MT_GRANULE_BYTES;
    if (UNLIKELY(!region_is_known(first)) || UNLIKELY(last != first && !region_is_known(last)))
        region_note(thread, first, last);
    thread->granules[first % THREAD_GRANULES] = first;
}

static uint64_t next_random(struct thread *thread)
{
    uint64_t x = thread->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return thread->random = x;
}

/* The logarithm to base 2 of m in [1, 2): a Chebyshev fit that is good to 2e-5. */
static double log2_of_mantissa(double m)
{
    return ((((0.04300495779 * m - 0.40251339355) * m + 1.58947429498) * m - 3.48987855069) * m +
            5.04785541345) *
               m -
           2.78792620731;
}

/* An exponentially distributed distance of mean SAMPLE_INTERVAL_BYTES: -ln(u) for u in (0, 1]. */
static uint64_t next_distance(struct thread *thread)
{
    uint64_t bits = (next_random(thread) >> 11) | 1;
    int exponent = 63 - __builtin_clzll(bits);
    double mantissa = (double)bits / (double)((uint64_t)1 << exponent);
    double log2_u = (double)(exponent - 53) + log2_of_mantissa(mantissa);
    return (uint64_t)(-log2_u * 0.69314718055994531 * SAMPLE_INTERVAL_BYTES) + 1;
}

void heap_init_thread(struct thread *thread)
{
    int full = memtally_recorder.depth == MT_DEPTH_FULL;
    thread->is_full = (uint32_t)full;
    thread->sample_at = full ? 0 : next_distance(thread);
    thread->look_at = full ? 0 : LOOK_EACH_BYTES;
    thread->freed_bytes = 0;
    memset(thread->granules, 0, sizeof thread->granules);
}

static inline __attribute__((always_inline)) void write_block(struct thread *thread,
                                                              enum mt_event_op op, uint64_t address,
                                                              uint64_t size, const void *frame)
{
    struct mt_writer *writer = &thread->writer;
    uint64_t ticks = now_ticks();
    uint32_t stack = known_stack(thread, frame);
    if (UNLIKELY(!stack))
        stack = stack_number(thread, frame, ticks);
    if (!mt_writer_room(writer, 1 + 4 * MT_VARINT_MAX, ticks))
        return;
    uint8_t *at = mt_event_begin(writer, op, ticks);
    at = mt_put_heap_address(writer, at, address);
    at = mt_varint_put_most(at, size);
    at = mt_varint_put_most(at, stack);
    mt_event_end(writer, at);
}

static inline void write_free(struct thread *thread, enum mt_event_op op, uint64_t address,
                              uint64_t ticks)
{
    struct mt_writer *writer = &thread->writer;
    if (!mt_writer_room(writer, 1 + 2 * MT_VARINT_MAX, ticks))
        return;
    uint8_t *at = mt_event_begin(writer, op, ticks);
    at = mt_put_heap_address(writer, at, address);
    mt_event_end(writer, at);
}

static void sample(struct thread *thread, uint64_t address, uint64_t size, const void *frame)
{
    thread->sample_at = thread->writer.small_alloc_bytes + next_distance(thread);
    if (samples_add(address))
        write_block(thread, MT_EVENT_SAMPLE_ALLOC, address, size, frame);
    else
        __atomic_fetch_add(&memtally_recorder.process->file.header->samples_dropped, 1,
                           __ATOMIC_RELAXED);
}

/* Whether a block is an event of its own in the default depth. Without a size to go by, all are. */
static inline int is_exact(uint64_t usable)
{
    return usable >= EXACT_FROM_BYTES || !memtally_real.malloc_usable_size;
}

__attribute__((noinline)) static void count_bytes(int64_t bytes)
{
    struct recorder *recorder = &memtally_recorder;
    int64_t held = __atomic_add_fetch(&recorder->heap_bytes, bytes, __ATOMIC_RELAXED);
    int64_t peak = __atomic_load_n(&recorder->heap_peak_bytes, __ATOMIC_RELAXED);
    if (bytes > 0)
        __atomic_fetch_add(&recorder->heap_taken_bytes, (uint64_t)bytes, __ATOMIC_RELAXED);
    while (held > peak && !__atomic_compare_exchange_n(&recorder->heap_peak_bytes, &peak, held, 1,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static void note_alloc(struct thread *thread, uint64_t at, size_t size, const void *frame)
{
    uint64_t usable = usable_size((const void *)(uintptr_t)at);
    uint64_t extent = usable ? usable : size;
    if (UNLIKELY(!is_near(thread, at, at + (extent ? extent - 1 : 0))))
        mark_region(thread, at, extent);
    if (is_exact(usable)) {
        write_block(thread, MT_EVENT_ALLOC, at, size, frame);
        if (UNLIKELY(memtally_recorder.counts_heap))
            count_bytes((int64_t)extent);
        return;
    }
    thread->writer.small_allocs++;
    thread->writer.small_alloc_bytes += usable;
    if (UNLIKELY(thread->writer.small_alloc_bytes >= thread->sample_at))
        sample(thread, at, usable, frame);
}

static inline void note_alloc_in_full(struct thread *thread, uint64_t at, size_t size,
                                      const void *frame)
{
    if (UNLIKELY(!is_near(thread, at, at + (size ? size - 1 : 0))))
        mark_region(thread, at, size);
    write_block(thread, MT_EVENT_ALLOC, at, size, frame);
    if (UNLIKELY(memtally_recorder.counts_heap))
        count_bytes((int64_t)usable_size((const void *)(uintptr_t)at));
}

void note_allocated(void *address, size_t size, const void *frame)
{
    struct thread *thread = enter();
    if (UNLIKELY(!thread))
        return;
    if (thread->is_full)
        note_alloc_in_full(thread, (uint64_t)(uintptr_t)address, size, frame);
    else
        note_alloc(thread, (uint64_t)(uintptr_t)address, size, frame);
    leave();
}

/* What libc says of a block in front of it (malloc/malloc.c of glibc: IS_MMAPPED, NON_MAIN_ARENA).
 */
#define MAPPED_ALONE 2u
#define OF_A_THREAD  4u

/* Where libc's heap may be given back with a block: its last one goes with the end of the heap. */
static int is_near_end(uint64_t address, uint64_t usable)
{
    uint64_t end = memtally_real.heap_end ? *memtally_real.heap_end : 0;
    return end - (address + usable) <= 2 * LOOK_FROM_BYTES;
}

/* Other allocators give memory back by calls that have hooks. */
static void look_before_large_free(struct thread *thread, void *address, uint64_t usable)
{
    if (!memtally_real.is_libc_heap)
        return;
    size_t flags = ((const size_t *)address)[-1];
    if (flags & MAPPED_ALONE || is_near_end((uint64_t)(uintptr_t)address, usable))
        look_before_sure_fall(thread, address, usable);
    else if (flags & OF_A_THREAD)
        look_before_fall(thread, usable);
}

/* Small blocks make libc shorten its heap now and then, which shows by its end; the heaps of
 * threads do not show it. */
static void after_small_frees(struct thread *thread, const void *last, uint64_t freed)
{
    thread->freed_bytes = 0;
    if (!memtally_real.is_libc_heap)
        return;
    if (((const size_t *)last)[-1] & OF_A_THREAD)
        look_before_fall(thread, freed);
    else if (memtally_real.heap_end)
        look_after_small_frees(thread, freed, *memtally_real.heap_end);
}

/* Small blocks that were counted are in the thread's total, the others in freed_bytes. */
static void look_before_free(struct thread *thread, void *address, uint64_t usable, int exact)
{
    if (UNLIKELY(usable >= LOOK_FROM_BYTES)) {
        look_before_large_free(thread, address, usable);
        return;
    }
    thread->freed_bytes += exact ? usable : 0;
    uint64_t since =
        thread->freed_bytes + LOOK_EACH_BYTES + thread->writer.small_free_bytes - thread->look_at;
    if (LIKELY(since < LOOK_EACH_BYTES))
        return;
    after_small_frees(thread, address, since);
    thread->look_at = thread->writer.small_free_bytes + LOOK_EACH_BYTES;
}

static void note_free(struct thread *thread, void *address)
{
    uint64_t usable = usable_size(address);
    uint64_t at = (uint64_t)(uintptr_t)address;
    int exact = is_exact(usable);
    look_before_free(thread, address, usable, exact);
    if (exact) {
        end_label(at);
        write_free(thread, MT_EVENT_FREE, at, now_ticks());
        if (UNLIKELY(memtally_recorder.counts_heap))
            count_bytes(-(int64_t)usable);
        return;
    }
    thread->writer.small_frees++;
    thread->writer.small_free_bytes += usable;
    if (LIKELY(!samples_take(at)))
        return;
    end_label(at);
    write_free(thread, MT_EVENT_SAMPLE_FREE, at, now_ticks());
}

__attribute__((noinline)) static uint64_t look_in_full(struct thread *thread, void *address,
                                                       uint64_t usable)
{
    if (usable >= LOOK_FROM_BYTES)
        look_before_large_free(thread, address, usable);
    else
        after_small_frees(thread, address, thread->freed_bytes);
    return now_ticks();
}

/* The clock is read before the block is touched, since reading it may wait for what is being
 * loaded. */
static inline void note_free_in_full(struct thread *thread, void *address)
{
    uint64_t ticks = now_ticks();
    uint64_t usable = usable_size(address);
    if (LIKELY(usable < LOOK_FROM_BYTES))
        thread->freed_bytes += usable;
    if (UNLIKELY(usable >= LOOK_FROM_BYTES) || UNLIKELY(thread->freed_bytes >= LOOK_EACH_BYTES))
        ticks = look_in_full(thread, address, usable);
    if (UNLIKELY(memtally_recorder.counts_heap))
        count_bytes(-(int64_t)usable);
    end_label((uint64_t)(uintptr_t)address);
    write_free(thread, MT_EVENT_FREE, (uint64_t)(uintptr_t)address, ticks);
}

void note_freed(void *address)
{
    struct thread *thread = enter();
    if (UNLIKELY(!thread))
        return;
    if (thread->is_full)
        note_free_in_full(thread, address);
    else
        note_free(thread, address);
    leave();
}
