/* SPDX-License-Identifier: MIT */
/* The recorder's outside world, by system calls alone. */
#include "recorder/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "recorder/sys.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

#define SIGNAL_SET_BYTES 8
#define BIT(signal)      ((uint64_t)1 << ((signal)-1))

/* Signals are held back while the recorder writes to the outside: none interrupts it, and the one
 * that its own write raises is taken away again before the program could be killed by it. */
struct hush {
    uint64_t own;  /* the signal that the write may raise */
    uint64_t mask; /* of the program */
    int expected;  /* the program itself had that signal waiting */
};

static void hush_begin(struct hush *hush, int own)
{
    uint64_t all = ~(uint64_t)0;
    uint64_t waiting = 0;
    hush->own = BIT(own);
    hush->mask = 0;
    MT_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &hush->mask, SIGNAL_SET_BYTES);
    if (hush->mask & hush->own)
        MT_SYS2(SYS_rt_sigpending, &waiting, SIGNAL_SET_BYTES);
    hush->expected = (waiting & hush->own) != 0;
}

static void hush_end(struct hush *hush, int raised)
{
    const struct timespec no_time = {0, 0};
    if (raised && !hush->expected)
        MT_SYS4(SYS_rt_sigtimedwait, &hush->own, NULL, &no_time, SIGNAL_SET_BYTES);
    MT_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &hush->mask, NULL, SIGNAL_SET_BYTES);
}

void remember_stderr(void)
{
    struct stat status;
    if (MT_SYS2(SYS_fstat, 2, &status) < 0)
        return;
    memtally_recorder.stderr_device = status.st_dev;
    memtally_recorder.stderr_inode = status.st_ino;
}

static int stderr_is_there(void)
{
    struct timespec no_time = {0, 0};
    struct pollfd poll = {.fd = 2, .events = POLLOUT};
    struct stat status;
    if (MT_SYS2(SYS_fstat, 2, &status) < 0 || status.st_dev != memtally_recorder.stderr_device ||
        status.st_ino != memtally_recorder.stderr_inode)
        return 0;
    return MT_SYS6(SYS_ppoll, &poll, 1, &no_time, NULL, SIGNAL_SET_BYTES, 0) == 1 &&
           poll.revents == POLLOUT;
}

void say_once(const char *text)
{
    static const char before[] = "memtally: ";
    char line[256];
    struct hush hush;
    if (__atomic_exchange_n(&memtally_recorder.said, 1, __ATOMIC_RELAXED))
        return;
    size_t length = strnlen(text, sizeof line - sizeof before - 1);
    memcpy(line, before, sizeof before - 1);
    memcpy(line + sizeof before - 1, text, length);
    line[sizeof before - 1 + length] = '\n';
    hush_begin(&hush, SIGPIPE);
    long result = 0;
    if (stderr_is_there())
        result = MT_SYS3(SYS_write, 2, line, sizeof before + length);
    hush_end(&hush, result == -EPIPE);
}

/* Only the recording is opened for writing. That a descriptor or memory is short may pass. */
static int os_open(const char *path, int flags, int mode)
{
    int fd = (int)MT_SYS4(SYS_openat, AT_FDCWD, path, flags, mode);
    if (fd < 0 && (flags & (O_ACCMODE | O_CREAT)) == O_RDWR && fd != -EMFILE && fd != -ENFILE &&
        fd != -ENOMEM)
        say_once("the recording can no longer be written; what follows is not recorded");
    return fd;
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

static long write_zeros(int fd, uint64_t offset, uint64_t length)
{
    static const char zeros[4096];
    for (uint64_t done = 0; done < length;) {
        uint64_t want = length - done < sizeof zeros ? length - done : sizeof zeros;
        long got = MT_SYS4(SYS_pwrite64, fd, zeros, want, offset + done);
        if (got == -EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? got : -ENOSPC;
        done += (uint64_t)got;
    }
    return 0;
}

/* File systems without fallocate get zeros written: a hole would turn a full disk into SIGBUS. */
static int os_extend(int fd, uint64_t offset, uint64_t length)
{
    struct hush hush;
    long result;
    hush_begin(&hush, SIGXFSZ);
    do
        result = MT_SYS4(SYS_fallocate, fd, 0, offset, length);
    while (result == -EINTR);
    if (result == -EOPNOTSUPP || result == -ENOSYS)
        result = write_zeros(fd, offset, length);
    hush_end(&hush, result == -EFBIG);
    if (result < 0 && memtally_recorder.process && memtally_recorder.process->alive == 2)
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
