/* SPDX-License-Identifier: MIT */
/* The malloc family. Each hook calls the real function and notes what it did; until the real
 * functions are known, static memory answers. */
#include "recorder/recorder.h"

#include <errno.h>
#include <string.h>

#include "recorder/heap.h"

#define FRAME __builtin_frame_address(0)

#define HOOK(result, name, parameters) EXPORTED result name parameters;
#define HOOK_GGML(result, name, parameters)
#define HOOK_JUMP(name)
#define HOOK_OWN(result, name, parameters) EXPORTED result name parameters;
#include "recorder/hooks.def"

static inline void *allocated(void *address, size_t size, const void *frame)
{
    if (LIKELY(address != NULL) && UNLIKELY(!count_alloc(address)))
        note_allocated(address, size, frame);
    return address;
}

/* For the functions that an allocator may lack: a block of libc's is then left alone. */
#define ALLOCATED(name, address, size)                                                             \
    (LIKELY(in_allocator((uintptr_t)memtally_real.name)) ? allocated(address, size, FRAME)         \
                                                         : (address))

static inline void freed(void *address)
{
    if (UNLIKELY(!count_free(address)))
        note_freed(address);
}

void *malloc(size_t size)
{
    if (UNLIKELY(!real_ready()))
        return early_alloc(16, size);
    return allocated(memtally_real.malloc(size), size, FRAME);
}

void *calloc(size_t count, size_t size)
{
    size_t bytes;
    if (UNLIKELY(!real_ready()))
        return __builtin_mul_overflow(count, size, &bytes) ? NULL : early_alloc(16, bytes);
    return allocated(memtally_real.calloc(count, size), count * size, FRAME);
}

void free(void *address)
{
    if (UNLIKELY(!address) || UNLIKELY(early_owns(address)))
        return;
    if (UNLIKELY(!real_ready()))
        return;
    freed(address);
    memtally_real.free(address);
}

static void *move_early(void *address, size_t size)
{
    void *moved = size ? malloc(size) : NULL;
    size_t room = early_room(address);
    if (moved) /* it may lie in what `room` takes for the old block */
        memmove(moved, address, size < room ? size : room);
    return moved;
}

/* The old block ends before the call and the new one begins after it, since another thread may be
 * given the old address in between. A failed call begins the old one again. */
static void *reallocate(void *address, size_t size, const void *frame)
{
    size_t old_size = usable_size(address);
    freed(address);
    void *result = memtally_real.realloc(address, size);
    if (result)
        return allocated(result, size, frame);
    if (size) {
        int saved_errno = errno;
        allocated(address, old_size, frame);
        errno = saved_errno;
    }
    return NULL;
}

void *realloc(void *address, size_t size)
{
    if (UNLIKELY(early_owns(address)))
        return move_early(address, size);
    if (UNLIKELY(!real_ready()))
        return early_alloc(16, size);
    if (!address)
        return allocated(memtally_real.realloc(NULL, size), size, FRAME);
    return reallocate(address, size, FRAME);
}

void *reallocarray(void *address, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    if (UNLIKELY(early_owns(address)))
        return move_early(address, bytes);
    if (UNLIKELY(!real_ready()))
        return early_alloc(16, bytes);
    if (!address)
        return allocated(memtally_real.realloc(NULL, bytes), bytes, FRAME);
    return reallocate(address, bytes, FRAME);
}

void *memalign(size_t alignment, size_t size)
{
    if (UNLIKELY(!real_ready()))
        return early_alloc(alignment, size);
    void *address = memtally_real.memalign(alignment, size);
    return ALLOCATED(memalign, address, size);
}

/* PyTorch takes all tensors of the host so, and nothing else of its own. Where the name is empty
 * they are counted only. */
static void label_aligned(const void *address, size_t size)
{
    struct tls *tls = &memtally_tls;
    if (LIKELY(!tls->aligned_name))
        return;
    if (*tls->aligned_name)
        memtally_hook_label_block(address, size, tls->aligned_category, tls->aligned_name);
    tls->n_aligned++;
}

int posix_memalign(void **result, size_t alignment, size_t size)
{
    if (UNLIKELY(!real_ready())) {
        void *early = early_alloc(alignment, size);
        if (!early)
            return ENOMEM;
        *result = early;
        return 0;
    }
    int code = memtally_real.posix_memalign(result, alignment, size);
    if (code == 0) {
        ALLOCATED(posix_memalign, *result, size);
        label_aligned(*result, size);
    }
    return code;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    if (UNLIKELY(!real_ready()))
        return early_alloc(alignment, size);
    void *address = memtally_real.aligned_alloc(alignment, size);
    return ALLOCATED(aligned_alloc, address, size);
}

void *valloc(size_t size)
{
    if (UNLIKELY(!real_ready()))
        return early_alloc(4096, size);
    void *address = memtally_real.valloc(size);
    return ALLOCATED(valloc, address, size);
}

void *pvalloc(size_t size)
{
    if (UNLIKELY(!real_ready()))
        return early_alloc(4096, (size + 4095) & ~(size_t)4095);
    void *address = memtally_real.pvalloc(size);
    return ALLOCATED(pvalloc, address, size);
}

/* C23. A libc without them gets what they are defined to mean. */
void free_sized(void *address, size_t size)
{
    if (!address || early_owns(address) || !real_ready())
        return;
    freed(address);
    if (memtally_real.free_sized)
        memtally_real.free_sized(address, size);
    else
        memtally_real.free(address);
}

void free_aligned_sized(void *address, size_t alignment, size_t size)
{
    if (!address || early_owns(address) || !real_ready())
        return;
    freed(address);
    if (memtally_real.free_aligned_sized)
        memtally_real.free_aligned_sized(address, alignment, size);
    else
        memtally_real.free(address);
}

int malloc_trim(size_t pad)
{
    if (UNLIKELY(!real_ready()))
        return 0;
    struct thread *thread = enter();
    if (thread) {
        look_before_fall(thread, UINT64_MAX);
        leave();
    }
    return memtally_real.malloc_trim ? memtally_real.malloc_trim(pad) : 0;
}
