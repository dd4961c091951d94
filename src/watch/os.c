/* SPDX-License-Identifier: MIT */
/* The recording's outside world for the watching process: libc, with errno turned into results. */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/ticks.h"
#include "watch/watch.h"

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

static int os_extend(int fd, uint64_t offset, uint64_t length)
{
    return -posix_fallocate(fd, (off_t)offset, (off_t)length);
}

static void *os_map(int fd, uint64_t offset, size_t length)
{
    void *mapped = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    return mapped == MAP_FAILED ? NULL : mapped;
}

static void os_unmap(void *address, size_t length)
{
    munmap(address, length);
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
    .extend = os_extend,
    .map = os_map,
    .unmap = os_unmap,
    .ioctl = os_ioctl,
    .monotonic_ns = mt_monotonic_ns,
};
