/* SPDX-License-Identifier: MIT */
/* The recorder's outside world, by system calls alone. */
#include "recorder/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "recorder/sys.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
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
    if (memtally_recorder.is_filtered ||
        __atomic_exchange_n(&memtally_recorder.said, 1, __ATOMIC_RELAXED))
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

/* The kernel also sends a signal if the file may not be so large. */
static int os_resize(int fd, uint64_t bytes)
{
    struct hush hush;
    hush_begin(&hush, SIGXFSZ);
    long result = MT_SYS2(SYS_ftruncate, fd, bytes);
    hush_end(&hush, result == -EFBIG);
    return (int)result;
}

static void *pointer_of(long result)
{
    return result < 0 && result > -4096 ? NULL : (void *)result;
}

static void *os_map(int fd, size_t length)
{
    return pointer_of(MT_SYS6(SYS_mmap, 0, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
}

static void os_keep_from_children(void *address, size_t length)
{
    MT_SYS3(SYS_madvise, address, length, MADV_DONTFORK);
}

static void *os_map_on(void *page, size_t length)
{
    return pointer_of(MT_SYS4(SYS_mremap, page, 0, length, MREMAP_MAYMOVE));
}

/* Before Linux 5.14, which populates, the kernel is made to store the time in each page. */
static long store_in_pages(char *address, size_t length)
{
    for (char *page = address; page < address + length; page += MT_HEADER_BYTES) {
        long result = MT_SYS2(SYS_clock_gettime, CLOCK_MONOTONIC, page);
        if (result < 0)
            return result;
        memset(page, 0, sizeof(struct timespec));
    }
    return 0;
}

/* A page that cannot be had is an error of a system call, where storing to it would be SIGBUS. */
static int os_back(void *address, size_t length)
{
    long result = MT_SYS3(SYS_madvise, address, length, MADV_POPULATE_WRITE);
    if (result == -EINVAL)
        result = store_in_pages(address, length);
    if (result == 0)
        return 0;
    if (memtally_recorder.process && memtally_recorder.process->alive == PROCESS_RECORDS)
        say_once("no space left for the recording; what follows is not recorded");
    return -ENOSPC;
}

static void os_unmap(void *address, size_t length)
{
    MT_SYS2(SYS_munmap, address, length);
}

#define LOCK_WAITED 0x80000000u /* beside the holder's thread number: others wait for it */
#define LOCK_TRIES  100u
#define LOCK_TRY_NS 10000000
#define TURN_TRIES  20u
#define TURN_TRY_NS 1000000

/* A thread in a process that shares this one's memory (a child of vfork) may be killed alone, and
 * is there until it is waited for. */
static int is_gone(uint32_t thread)
{
    siginfo_t ended = {0};
    if (MT_SYS2(SYS_tkill, thread, 0) == -ESRCH)
        return 1;
    long result =
        MT_SYS6(SYS_waitid, P_PID, thread, &ended, WEXITED | WNOHANG | WNOWAIT | __WALL, NULL, 0);
    return result == 0 && ended.si_pid == (pid_t)thread;
}

/* What this thread itself has is left from a frame that is no more: it has the guard. */
int take_turn(uint32_t *word)
{
    uint32_t held = 0;
    if (memtally_recorder.is_filtered)
        return 0;
    uint32_t own = (uint32_t)MT_SYS0(SYS_gettid);
    if (__atomic_compare_exchange_n(word, &held, own, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return 1;
    uint32_t holder = held & ~LOCK_WAITED;
    return (holder == own || is_gone(holder)) &&
           __atomic_compare_exchange_n(word, &held, own, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

int await_turn(uint32_t *word)
{
    const struct timespec most = {.tv_nsec = TURN_TRY_NS};
    for (uint32_t tries = 0; tries < TURN_TRIES; tries++) {
        if (take_turn(word))
            return 1;
        if (memtally_recorder.is_filtered)
            return 0;
        uint32_t held = __atomic_load_n(word, __ATOMIC_RELAXED);
        uint32_t waited = held | LOCK_WAITED;
        if (held &&
            (held == waited || __atomic_compare_exchange_n(word, &held, waited, 0, __ATOMIC_RELAXED,
                                                           __ATOMIC_RELAXED)))
            MT_SYS4(SYS_futex, word, FUTEX_WAIT_PRIVATE, waited, &most);
    }
    return 0;
}

void end_turn(uint32_t *word)
{
    if (__atomic_exchange_n(word, 0, __ATOMIC_RELEASE) & LOCK_WAITED &&
        !memtally_recorder.is_filtered)
        MT_SYS3(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX);
}

/* One try, or a wait for the next. */
static int try_lock(uint32_t *word, uint32_t own, uint32_t tries)
{
    const struct timespec most = {.tv_nsec = LOCK_TRY_NS};
    uint32_t held = 0;
    if (__atomic_compare_exchange_n(word, &held, own, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return 1;
    if (tries && is_gone(held & ~LOCK_WAITED))
        return __atomic_compare_exchange_n(word, &held, own, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
    uint32_t waited = held | LOCK_WAITED;
    if (held == waited ||
        __atomic_compare_exchange_n(word, &held, waited, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        MT_SYS4(SYS_futex, word, FUTEX_WAIT_PRIVATE, waited, &most);
    return 0;
}

/* Signals are held back meanwhile: a handler may wait for a thread that waits for the lock. Who has
 * waited takes it as waited for, since others may wait too. */
static int os_lock(uint32_t *word, uint64_t *signals)
{
    uint64_t all = ~(uint64_t)0;
    uint32_t own = (uint32_t)MT_SYS0(SYS_gettid);
    MT_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &all, signals, SIGNAL_SET_BYTES);
    for (uint32_t tries = 0; tries < LOCK_TRIES; tries++)
        if (try_lock(word, tries ? own | LOCK_WAITED : own, tries))
            return 1;
    MT_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, signals, NULL, SIGNAL_SET_BYTES);
    return 0;
}

static void os_unlock(uint32_t *word, const uint64_t *signals)
{
    if (__atomic_exchange_n(word, 0, __ATOMIC_RELEASE) & LOCK_WAITED)
        MT_SYS3(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX);
    MT_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, signals, NULL, SIGNAL_SET_BYTES);
}

static long os_ioctl(int fd, unsigned long request, void *argument)
{
    return MT_SYS3(SYS_ioctl, fd, request, argument);
}

void *mt_sys_map(size_t length)
{
    return pointer_of(MT_SYS6(SYS_mmap, 0, length, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}

const struct mt_record_os memtally_record_os = {
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
