/* SPDX-License-Identifier: MIT */
/* What the recorder is held against: the least that a preloaded object can do for much the same
 * end. None of them is safe for programs in general, keeps what a killed process wrote, or has
 * totals.
 *
 *     -DPEER_PASS      hooks that do nothing: the floor of all
 *     -DPEER_STAMP     reads the counter too, and stores it: the floor of all that have times
 *     -DPEER_SAMPLED   a Poisson sample of the bytes with stacks, one in 512 KiB; what is freed is
 *                      looked for in a table of a megabyte
 *     -DPEER_FULL      each event in full, with its stack by frame pointers from a table for each
 *                      thread; written to the file REC_OUT in pieces of 256 KiB */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/ticks.h"
#include "base/varint.h"

#define BUFFER_BYTES 262144u
#define MOST_FRAMES  64
#define STACKS       65536u
#define PLACES       (1u << 20)
#define MEAN_BYTES   524288.0

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void __libc_free(void *block);

struct state {
    uint8_t *at;
    uint8_t *end;
    uint8_t *buffer;
    uint64_t last_unit;
    uint64_t last_ticks;
    uint64_t random;
    uintptr_t low;
    uintptr_t high;
    uint32_t n_stacks;
    uint64_t hash[STACKS];
    uint32_t number[STACKS];
};

static __thread struct state *state __attribute__((tls_model("initial-exec")));
static __thread int busy __attribute__((tls_model("initial-exec")));
static int out = -1;

__attribute__((unused)) static void flush(struct state *self)
{
    const char *path = getenv("REC_OUT");
    if (out < 0)
        out = open(path ? path : "/dev/null", O_CREAT | O_TRUNC | O_WRONLY | O_APPEND | O_CLOEXEC,
                   0600);
    ssize_t n = write(out, self->buffer, (size_t)(self->at - self->buffer));
    (void)n;
    self->at = self->buffer;
}

__attribute__((unused)) static struct state *begin(void)
{
    pthread_attr_t attributes;
    void *stack;
    size_t size;
    uint8_t *memory = mmap(NULL, sizeof(struct state) + BUFFER_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    struct state *made = (struct state *)(void *)memory;
    made->buffer = made->at = memory + sizeof *made;
    made->end = made->buffer + BUFFER_BYTES - 2048;
    made->random = mt_counter() | 1;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstack(&attributes, &stack, &size);
        made->low = (uintptr_t)stack;
        made->high = made->low + size;
        pthread_attr_destroy(&attributes);
    }
    return made;
}

__attribute__((unused)) static inline int walk(const struct state *self, const uintptr_t *frame,
                                               uintptr_t callers[MOST_FRAMES])
{
    int n = 0;
    while (n < MOST_FRAMES) {
        uintptr_t at = (uintptr_t)frame;
        if (at % 8 || at < self->low || at + 16 > self->high || !frame[1])
            break;
        callers[n++] = frame[1];
        const uintptr_t *next = (const uintptr_t *)frame[0];
        if (next <= frame)
            break;
        frame = next;
    }
    return n;
}

#if defined(PEER_SAMPLED)

static __thread int64_t left __attribute__((tls_model("initial-exec")));
static uint8_t taken[PLACES];

static inline uint8_t *place_of(const void *block)
{
    return &taken[((uintptr_t)block >> 4) * 0x9e3779b97f4a7c15u >> 44];
}

static void put(struct state *self, uint64_t value)
{
    self->at = mt_varint_put(self->at, value);
}

__attribute__((noinline)) static void sample(void *block, size_t size, const uintptr_t *frame)
{
    uintptr_t callers[MOST_FRAMES];
    if (busy)
        return;
    busy = 1;
    if (!state)
        state = begin();
    struct state *self = state;
    self->random ^= self->random << 13;
    self->random ^= self->random >> 7;
    self->random ^= self->random << 17;
    left = (int64_t)(-log((double)((self->random >> 11) + 1) / 9007199254740993.0) * MEAN_BYTES);
    if (self->at > self->end)
        flush(self);
    int n = walk(self, frame, callers);
    put(self, mt_counter());
    put(self, (uintptr_t)block);
    put(self, size);
    for (int i = 0; i < n; i++)
        put(self, callers[i]);
    if (*place_of(block) < UINT8_MAX)
        __atomic_fetch_add(place_of(block), 1, __ATOMIC_RELAXED);
    busy = 0;
}

__attribute__((noinline)) static void sample_ends(void *block)
{
    if (busy || !state)
        return;
    busy = 1;
    if (state->at > state->end)
        flush(state);
    put(state, mt_counter());
    put(state, (uintptr_t)block);
    __atomic_fetch_sub(place_of(block), 1, __ATOMIC_RELAXED);
    busy = 0;
}

static inline __attribute__((always_inline)) void on_alloc(void *block, size_t size)
{
    if (__builtin_expect((left -= (int64_t)size) < 0 || size >= 1u << 20, 0))
        sample(block, size, __builtin_frame_address(0));
}

static inline void on_free(void *block)
{
    if (__builtin_expect(*place_of(block), 0))
        sample_ends(block);
}

#elif defined(PEER_FULL)

static inline __attribute__((always_inline)) uint32_t number_of(struct state *self,
                                                                const uintptr_t *frame)
{
    uintptr_t callers[MOST_FRAMES];
    int n = walk(self, frame, callers);
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < n; i++) {
        hash = (hash ^ callers[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    uint32_t at = (uint32_t)hash % STACKS;
    while (self->hash[at] && self->hash[at] != hash)
        at = (at + 1) % STACKS;
    if (!self->hash[at]) {
        self->hash[at] = hash;
        self->number[at] = ++self->n_stacks;
        for (int i = 0; i < n; i++)
            self->at = mt_varint_put(self->at, callers[i]);
    }
    return self->number[at];
}

static inline __attribute__((always_inline)) void note(int op, const void *block, size_t size)
{
    uint32_t stack = 0;
    if (busy)
        return;
    busy = 1;
    struct state *self = state ? state : (state = begin());
    if (self->at > self->end)
        flush(self);
    if (op == 1)
        stack = number_of(self, __builtin_frame_address(0));
    uint64_t ticks = mt_counter() >> 8;
    uint64_t unit = (uintptr_t)block >> 4;
    uint8_t *at = self->at;
    *at++ = (uint8_t)op;
    at = mt_varint_put(at, ticks - self->last_ticks);
    at = mt_varint_put(at, mt_zigzag((int64_t)(unit - self->last_unit)));
    if (op == 1) {
        at = mt_varint_put(at, size);
        at = mt_varint_put(at, stack);
    }
    self->last_ticks = ticks;
    self->last_unit = unit;
    self->at = at;
    busy = 0;
}

static inline __attribute__((always_inline)) void on_alloc(void *block, size_t size)
{
    note(1, block, size);
}

static inline __attribute__((always_inline)) void on_free(void *block)
{
    note(2, block, 0);
}

#else

static __thread uint64_t stamp __attribute__((tls_model("initial-exec")));

static inline void on_event(const void *block)
{
#if defined(PEER_STAMP)
    stamp = mt_counter() ^ (uintptr_t)block;
#else
    (void)block;
    (void)stamp;
#endif
}

#define on_alloc(block, size) on_event(block)
#define on_free(block)        on_event(block)

#endif

void *malloc(size_t size)
{
    void *block = __libc_malloc(size);
    if (block)
        on_alloc(block, size);
    return block;
}

void *calloc(size_t n, size_t size)
{
    void *block = __libc_calloc(n, size);
    if (block)
        on_alloc(block, n * size);
    return block;
}

void *realloc(void *block, size_t size)
{
    if (block)
        on_free(block);
    void *moved = __libc_realloc(block, size);
    if (moved)
        on_alloc(moved, size);
    return moved;
}

void free(void *block)
{
    if (block)
        on_free(block);
    __libc_free(block);
}

__attribute__((destructor)) static void end(void)
{
    busy = 1;
#if defined(PEER_SAMPLED) || defined(PEER_FULL)
    if (state)
        flush(state);
#endif
    (void)state;
}
