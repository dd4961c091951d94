/* SPDX-License-Identifier: MIT */
/* The real functions behind the hooks, and what answers before they are known. */
#ifndef MT_RECORDER_REAL_H
#define MT_RECORDER_REAL_H

#include "recorder/blas.h"
#include "recorder/cuda.h"
#include "recorder/cuda_cap.h"
#include "recorder/recorder.h"

/* Whether real functions are known yet. */
enum lookup { UNKNOWN, LOOKED_UP, KNOWN };

/* One member for each hooked libc function; NULL where libc has none of that name. */
struct real {
    uint32_t state;          /* enum lookup */
    uintptr_t allocator_low; /* the module that provides malloc */
    uintptr_t allocator_high;
    uintptr_t libc_low;
    uintptr_t libc_high;
    uintptr_t own_low; /* the recorder */
    uintptr_t own_high;
    uintptr_t unwinder_low; /* libunwind, where it is used */
    uintptr_t unwinder_high;
    int has_sanitizer;       /* its runtime is in the program */
    ptrdiff_t loader_errors; /* where libc keeps what dlerror() says, from our own data of a thread
                                on; 0: not known */
    uintptr_t stack_end;     /* where the main thread began, as the loader knows it; 0: unknown */
    int is_libc_heap;        /* malloc is libc's */
    const uintptr_t *heap_end; /* where libc keeps the end of its heap; NULL: not known */
    size_t (*malloc_usable_size)(void *address); /* NULL where malloc's module has none */
    uint32_t cuda_state;                         /* enum lookup */
    struct cuda cuda;                            /* once it is known */
    struct cuda_cap cap;
    struct blas blas;
    struct cuda_unwinder unwinder;
    uintptr_t launched[CUDA_LAUNCHED];
    uint32_t tries_of_words; /* how often the word before a block told its size; see TRUSTED */
    void *find_object;       /* the loader's function; NULL where it has none */
    void *(*dlsym)(void *handle, const char *name);
    void *(*dlopen)(const char *path, int flags);
    long (*syscall)(long number, ...);
#define HOOK(result, name, parameters) result(*name) parameters;
#define HOOK_GGML(result, name, parameters)
#define HOOK_JUMP(name)
#define HOOK_OWN(result, name, parameters)
#include "recorder/hooks.def"
#undef HOOK
#undef HOOK_GGML
#undef HOOK_JUMP
#undef HOOK_OWN
};

extern HIDDEN struct real memtally_real;

/* Values of tries_of_words. */
#define TRUSTED   100u
#define UNTRUSTED 101u

/* The extent of the module that `place` is in; left alone where it is in none. */
HIDDEN void find_module(const void *place, uintptr_t *low, uintptr_t *high);

/* What dlerror() has to say to the program stays as it is between these two, whatever the recorder
 * asks of the loader. A libc that does not say where it keeps that forgets it. */
HIDDEN void loader_errors_aside(void);
HIDDEN void loader_errors_back(void);

/* Looks the real functions up. Returns 0 while that is going on (a call from within). */
HIDDEN int real_look_up(void);

/* Looks up dlopen() and dlsym() alone, which a library may call before libc's functions can be
 * asked for: a sanitizer's runtime does so to find those that it stands before. */
HIDDEN void real_look_up_loader(void);

static inline int real_ready(void)
{
    return LIKELY(__atomic_load_n(&memtally_real.state, __ATOMIC_ACQUIRE) == 2) || real_look_up();
}

/* Whether the code at `address` belongs to the module that provides malloc. A program may come with
 * an allocator that lacks some functions; libc's then serve other blocks than the rest. */
static inline int in_allocator(uintptr_t address)
{
    return address >= memtally_real.allocator_low && address < memtally_real.allocator_high;
}

/* Asks the allocator. */
HIDDEN size_t real_usable_size(const void *block);

/* What the allocator holds for a block, 0 where it does not say. glibc's answer is the word before
 * the block, less the word itself; it is read there once it has been seen to be. */
static inline size_t usable_size(const void *block)
{
    enum { IN_USE = 1, MAPPED = 2, FLAGS = 7 };
    if (LIKELY(memtally_real.tries_of_words == TRUSTED)) {
        size_t word = ((const size_t *)block)[-1];
        if (LIKELY(!(word & MAPPED)))
            return (word & ~(size_t)FLAGS) - sizeof word;
    }
    return real_usable_size(block);
}

#define EARLY_BYTES 65536u

struct early {
    size_t used;
    _Alignas(64) char bytes[EARLY_BYTES];
};

extern HIDDEN struct early memtally_early;

static inline int early_owns(const void *address)
{
    return (uintptr_t)address - (uintptr_t)memtally_early.bytes < EARLY_BYTES;
}

/* Memory for calls that come before the real functions are known; never given back. Zeroed. */
HIDDEN void *early_alloc(size_t alignment, size_t size);
/* How much of the early memory lies from `address` on: an upper bound of a block's size. */
HIDDEN size_t early_room(const void *address);

#endif
