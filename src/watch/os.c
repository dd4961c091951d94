/* SPDX-License-Identifier: MIT */
/* The recording's outside world for the watching process: libc, with errno turned into results. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/ticks.h"
#include "watch/watch.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static int os_open(const char *path, int flags, int mode)
{
    int fd = open(path, flags, mode);
    return fd < 0 ? -errno : fd;
}

static int os_close(int fd)
{
    return close(fd) < 0 ? -errno : 0;
}

static long os_read(int fd, void *bytes, size_t length)
{
    ssize_t got = read(fd, bytes, length);
    return got < 0 ? -errno : got;
}

static long os_pread(int fd, void *bytes, size_t length, uint64_t offset)
{
    ssize_t got = pread(fd, bytes, length, (off_t)offset);
    return got < 0 ? -errno : got;
}

static int os_resize(int fd, uint64_t bytes)
{
    return ftruncate(fd, (off_t)bytes) < 0 ? -errno : 0;
}

static void *os_map(int fd, size_t length)
{
    void *mapped = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

static void *os_map_on(void *page, size_t length)
{
    void *mapped = mremap(page, 0, length, MREMAP_MAYMOVE);
    return mapped == MAP_FAILED ? NULL : mapped;
}

static void os_keep_from_children(void *address, size_t length)
{
    madvise(address, length, MADV_DONTFORK);
}

/* A page that cannot be had is an error of a system call, where storing to it would be SIGBUS.
 * Before Linux 5.14, which populates, the kernel is made to store something in each. */
static int os_back(void *address, size_t length)
{
    if (madvise(address, length, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (errno != EINVAL)
        return -ENOSPC;
    for (char *page = address; page < (char *)address + length; page += MT_HEADER_BYTES) {
        if (syscall(SYS_clock_gettime, CLOCK_MONOTONIC, page) < 0)
            return -ENOSPC;
        memset(page, 0, sizeof(struct timespec));
    }
    return 0;
}

static void os_unmap(void *address, size_t length)
{
    munmap(address, length);
}

/* One thread writes what the watching process records: nobody waits long. */
static int os_lock(uint32_t *word, uint64_t *signals)
{
    (void)signals;
    while (__atomic_exchange_n(word, 1, __ATOMIC_ACQUIRE))
        sched_yield();
    return 1;
}

static void os_unlock(uint32_t *word, const uint64_t *signals)
{
    (void)signals;
    __atomic_store_n(word, 0, __ATOMIC_RELEASE);
}

static long os_ioctl(int fd, unsigned long request, void *argument)
{
    int result = ioctl(fd, request, argument);
    return result < 0 ? -errno : result;
}

const struct mt_record_os mt_watch_os = {
    .open = os_open,
    .close = os_close,
    .read = os_read,
    .pread = os_pread,
    .resize = os_resize,
    .map = os_map,
    .map_on = os_map_on,
    .keep_from_children = os_keep_from_children,
    .back = os_back,
    .unmap = os_unmap,
    .lock = os_lock,
    .unlock = os_unlock,
    .ioctl = os_ioctl,
    .monotonic_ns = mt_monotonic_ns,
};
