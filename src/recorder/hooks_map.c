/* SPDX-License-Identifier: MIT */
/* Mappings, and the ends of a process that bypass its exit handlers. libc's own mappings do not
 * come through here; blocks, pictures and maps account for them. */
#include "recorder/recorder.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder/real.h"
#include "recorder/sys.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

#define FRAME  __builtin_frame_address(0)
#define CALLER ((uintptr_t)__builtin_return_address(0))

#define HOOK(result, name, parameters) EXPORTED result name parameters;
#define HOOK_GGML(result, name, parameters)
#define HOOK_JUMP(name)
#define HOOK_OWN(result, name, parameters)
#include "recorder/hooks.def"

/* Sets errno as libc's function would. */
static long result_of(long result)
{
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

struct mapping {
    void *address;
    size_t length;
    int protection;
    int flags;
    int fd;
    int64_t offset;
};

/* libunwind maps memory while the recorder is at work: between events, of which none is begun. */
static struct thread *unwinding(uintptr_t caller)
{
    const struct tls *tls = &memtally_tls;
    if (LIKELY(!tls->busy) || caller < memtally_real.unwinder_low ||
        caller >= memtally_real.unwinder_high)
        return NULL;
    return tls->borrowed & BORROWED ? memtally_recorder.process->leftover : tls->thread;
}

/* An allocator that maps memory holds its locks. An unwinder asks the loader, and whoever holds the
 * loader's may be waiting for the allocator's. */
static void note_mapping(const struct mapping *mapping, uintptr_t caller, const void *frame)
{
    struct thread *own = unwinding(caller);
    if (UNLIKELY(own != NULL) && mapping->flags & MAP_ANONYMOUS) {
        write_self(own, mapping->address, mapping->length);
        return;
    }
    struct thread *thread = enter();
    if (!thread)
        return;
    uint64_t flags = (uint32_t)mapping->flags;
    uint64_t stack = 0;
    if (in_allocator(caller))
        flags |= MT_MAP_BY_ALLOCATOR;
    if (!in_allocator(caller) || !memtally_recorder.unwind)
        stack = stack_number(thread, frame, now_ticks());
    uint64_t fields[] = {
        (uint64_t)(uintptr_t)mapping->address,
        mapping->length,
        (uint64_t)mapping->protection,
        flags,
        !(mapping->flags & MAP_ANONYMOUS),
        (uint64_t)mapping->offset,
        stack,
    };
    mt_write_event(&thread->writer, MT_EVENT_MMAP, now_ticks(), fields, 7);
    leave();
}

/* Looks before memory goes, and says when that was: the event is written only if the call succeeds,
 * with the time from before it. */
static uint64_t before_fall(const void *address, uint64_t bytes)
{
    struct thread *thread = enter();
    if (!thread)
        return 0;
    if (bytes >= SURE_FALL_FROM_BYTES)
        look_before_sure_fall(thread, address, bytes);
    leave();
    return now_ticks();
}

/* A fixed place may hold pages that the new mapping replaces. */
static void *map(const struct mapping *wanted, uintptr_t caller, const void *frame)
{
    struct mapping mapping = *wanted;
    if (UNLIKELY(!real_ready()))
        return (void *)result_of(MT_SYS6(SYS_mmap, mapping.address, mapping.length,
                                         mapping.protection, mapping.flags, mapping.fd,
                                         mapping.offset));
    if ((mapping.flags & MAP_FIXED) == MAP_FIXED)
        before_fall(mapping.address, mapping.length);
    mapping.address = memtally_real.mmap(mapping.address, mapping.length, mapping.protection,
                                         mapping.flags, mapping.fd, mapping.offset);
    if (mapping.address != MAP_FAILED)
        note_mapping(&mapping, caller, frame);
    return mapping.address;
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    const struct mapping mapping = {address, length, protection, flags, fd, offset};
    return map(&mapping, CALLER, FRAME);
}

void *mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t offset)
{
    const struct mapping mapping = {address, length, protection, flags, fd, offset};
    return map(&mapping, CALLER, FRAME);
}

static void note(enum mt_event_op op, uint64_t ticks, const uint64_t *fields, size_t n_fields)
{
    struct thread *thread = ticks ? enter() : NULL;
    if (!thread)
        return;
    mt_write_event(&thread->writer, op, ticks, fields, n_fields);
    leave();
}

int munmap(void *address, size_t length)
{
    if (UNLIKELY(!real_ready()))
        return (int)result_of(MT_SYS2(SYS_munmap, address, length));
    struct thread *own = unwinding(CALLER);
    if (UNLIKELY(own != NULL)) {
        uint64_t fields[] = {(uint64_t)(uintptr_t)address, length};
        mt_write_event(&own->writer, MT_EVENT_MUNMAP, now_ticks(), fields, 2);
        return memtally_real.munmap(address, length);
    }
    uint64_t ticks = before_fall(address, length);
    int result = memtally_real.munmap(address, length);
    uint64_t fields[] = {(uint64_t)(uintptr_t)address, length};
    if (result == 0)
        note(MT_EVENT_MUNMAP, ticks, fields, 2);
    return result;
}

/* What stays where it is and gets shorter ends before the call; what gets longer or moves begins
 * after it, and leaves its old place before it, which another thread may have by then. */
void *mremap(void *address, size_t old_length, size_t length, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    void *wanted = va_arg(arguments, void *); /* meant or not, as the kernel gets it */
    va_end(arguments);
    if (UNLIKELY(!real_ready()))
        return (void *)result_of(
            MT_SYS6(SYS_mremap, address, old_length, length, flags, wanted, 0));
    uint64_t falls = length < old_length ? old_length - length : 0;
    uint64_t ticks = flags & MREMAP_FIXED ? before_fall(wanted, length)
                                          : before_fall((char *)address + length, falls);
    void *result = memtally_real.mremap(address, old_length, length, flags, wanted);
    if (result != MAP_FAILED) {
        uint64_t kept = flags & MREMAP_DONTUNMAP ? 0 : old_length;
        int is_after = ticks && (result != address || length > old_length);
        uint64_t after = is_after ? now_ticks() : ticks;
        uint64_t fields[] = {(uint64_t)(uintptr_t)address, kept, (uint64_t)(uintptr_t)result,
                             length, after - ticks};
        note(MT_EVENT_MREMAP, after, fields, 5);
    }
    return result;
}

int madvise(void *address, size_t length, int advice)
{
    int falls = advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_PAGEOUT ||
                advice == MADV_REMOVE || advice == MADV_DONTNEED_LOCKED;
    if (UNLIKELY(!real_ready()))
        return (int)result_of(MT_SYS3(SYS_madvise, address, length, advice));
    uint64_t ticks = falls ? before_fall(address, length) : 0;
    int result = memtally_real.madvise(address, length, advice);
    uint64_t fields[] = {(uint64_t)(uintptr_t)address, length, (uint64_t)(uint32_t)advice};
    if (result == 0)
        note(MT_EVENT_MADVISE, ticks, fields, 3);
    return result;
}

/* A shared file that gets shorter takes its mapped pages with it. */
static int truncate_to(int fd, int64_t length, int (*real)(int, off64_t))
{
    struct stat status;
    uint64_t falls = 0;
    if (!memtally_recorder.is_filtered && MT_SYS2(SYS_fstat, fd, &status) >= 0 &&
        status.st_size > length)
        falls = (uint64_t)(status.st_size - length);
    uint64_t ticks = before_fall(NULL, falls);
    int result = real(fd, length);
    uint64_t fields[] = {(uint64_t)(uint32_t)fd, (uint64_t)length, 0};
    if (result == 0)
        note(MT_EVENT_FTRUNCATE, ticks, fields, 3);
    return result;
}

int ftruncate(int fd, off_t length)
{
    if (UNLIKELY(!real_ready()))
        return (int)result_of(MT_SYS2(SYS_ftruncate, fd, length));
    return truncate_to(fd, length, memtally_real.ftruncate);
}

int ftruncate64(int fd, off64_t length)
{
    if (UNLIKELY(!real_ready()))
        return (int)result_of(MT_SYS2(SYS_ftruncate, fd, length));
    return truncate_to(fd, length, memtally_real.ftruncate64);
}

int memfd_create(const char *name, unsigned flags)
{
    if (UNLIKELY(!real_ready()) || !memtally_real.memfd_create)
        return (int)result_of(MT_SYS2(SYS_memfd_create, name, flags));
    int fd = memtally_real.memfd_create(name, flags);
    struct thread *thread = fd < 0 ? NULL : enter();
    if (thread) {
        uint64_t fields[] = {(uint64_t)fd, thread_name(thread, name)};
        mt_write_event(&thread->writer, MT_EVENT_MEMFD, now_ticks(), fields, 2);
        leave();
    }
    return fd;
}

void _exit(int status)
{
    process_end(MT_END_EXIT);
    for (;;)
        MT_SYS1(SYS_exit_group, status);
}

void _Exit(int status)
{
    _exit(status);
}
