/* SPDX-License-Identifier: MIT */
/* The recorder's outside world, by system calls alone. */
#include "recorder/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "recorder/sys.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static int os_open(const char *path, int flags, int mode)
{
    return (int)MT_SYS4(SYS_openat, AT_FDCWD, path, flags, mode);
}

static int os_close(int fd)
{
    return (int)MT_SYS1(SYS_close, fd);
}

static long os_read(int fd, void *bytes, size_t length)
{
    return MT_SYS3(SYS_read, fd, bytes, length);
}

static long os_pread(int fd, void *bytes, size_t length, uint64_t offset)
{
    return MT_SYS4(SYS_pread64, fd, bytes, length, offset);
}

/* File systems without fallocate get zeros written: a hole would turn a full disk into SIGBUS. */
static int os_extend(int fd, uint64_t offset, uint64_t length)
{
    static const char zeros[4096];
    long result = MT_SYS4(SYS_fallocate, fd, 0, offset, length);
    if (result == -EOPNOTSUPP || result == -ENOSYS) {
        result = (long)sizeof zeros;
        for (uint64_t done = 0; done < length && result == (long)sizeof zeros; done += sizeof zeros)
            result = MT_SYS4(SYS_pwrite64, fd, zeros, sizeof zeros, offset + done);
        result = result == (long)sizeof zeros ? 0 : result < 0 ? result : -ENOSPC;
    }
    if (result == -ENOSPC || result == -EFBIG)
        say_once("no space left for the recording; what follows is not recorded");
    return (int)result;
}

static void *map(int fd, uint64_t offset, size_t length, int flags)
{
    long result = MT_SYS6(SYS_mmap, 0, length, PROT_READ | PROT_WRITE, flags, fd, offset);
    return result < 0 && result > -4096 ? NULL : (void *)result;
}

static void *os_map(int fd, uint64_t offset, size_t length)
{
    return map(fd, offset, length, MAP_SHARED);
}

static void os_unmap(void *address, size_t length)
{
    MT_SYS2(SYS_munmap, address, length);
}

static long os_ioctl(int fd, unsigned long request, void *argument)
{
    return MT_SYS3(SYS_ioctl, fd, request, argument);
}

void *mt_sys_map(size_t length)
{
    return map(-1, 0, length, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
}

const struct mt_record_os memtally_record_os = {
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
