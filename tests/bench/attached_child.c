/* SPDX-License-Identifier: MIT */
#include "tests/bench/attached_child.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/ticks.h"

#define STALL_NS    1000000u
#define CACHED      ((size_t)4 << 20) /* what others displace costs it most */
#define PIECE_BYTES ((size_t)64 << 10)
#define RING_BYTES  ((size_t)256 << 10)

struct child_shared *child_shared;

static unsigned char *held;
static size_t held_bytes;

static void *map(size_t bytes)
{
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        _exit(1);
    return made;
}

/* ---- stalls ---- */

/* How often this thread has given its processor up by itself. */
static long sleeps(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

/* The second number of schedstat. */
static uint64_t delayed_ns(int schedstat)
{
    char text[80] = "";
    char *second;
    if (schedstat < 0 || pread(schedstat, text, sizeof text - 1, 0) <= 0)
        return 0;
    strtoull(text, &second, 10);
    return strtoull(second, NULL, 10);
}

static void note_stall(const struct child_stall *stall)
{
    unsigned n = child_shared->n_stalls;
    if (n == STALLS_MAX)
        return;
    child_shared->stalls[n] = *stall;
    child_shared->n_stalls = n + 1;
}

static void *map_in_a_loop(void *unused)
{
    int schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    (void)unused;
    child_shared->has_delays = delayed_ns(schedstat) > 0;
    for (;;) {
        int notes = child_shared->notes;
        long slept = sleeps();
        uint64_t delayed = delayed_ns(schedstat);
        struct child_stall stall = {.begin_ns = mt_monotonic_ns()};
        munmap(map(4096), 4096);
        stall.end_ns = mt_monotonic_ns();
        if (!notes)
            continue;
        child_shared->n_mapped++;
        if (stall.end_ns - stall.begin_ns < STALL_NS)
            continue;
        stall.asleep = sleeps() > slept;
        stall.delayed_ns = delayed_ns(schedstat) - delayed;
        note_stall(&stall);
    }
    return NULL;
}

/* ---- work ---- */

static void read_at_random(const unsigned char *bytes, size_t n, int times)
{
    static uint64_t at = 88172645463325252ull;
    static volatile unsigned sum;
    for (int i = 0; i < times; i++) {
        at ^= at << 13;
        at ^= at >> 7;
        at ^= at << 17;
        sum += bytes[at % n];
    }
}

static void fault(unsigned char *ring)
{
    for (size_t at = 0; at < RING_BYTES; at += 4096)
        ring[at] = 1;
    madvise(ring, RING_BYTES, MADV_DONTNEED);
}

static void map_and_unmap(void)
{
    for (int i = 0; i < 4; i++) {
        unsigned char *piece = map(PIECE_BYTES);
        piece[0] = 1;
        munmap(piece, PIECE_BYTES);
    }
}

static void work_without_end(enum child_work work)
{
    unsigned char *ring = map(RING_BYTES);
    madvise(ring, RING_BYTES, MADV_NOHUGEPAGE);
    for (;; child_shared->steps++) {
        if (work == CHILD_COMPUTES)
            read_at_random(held, CACHED, 2000);
        else if (work == CHILD_READS)
            read_at_random(held, held_bytes, 300);
        else if (work == CHILD_FAULTS)
            fault(ring);
        else
            map_and_unmap();
    }
}

/* ---- the process ---- */

static void hold(enum child_pages pages)
{
    volatile unsigned sum = 0;
    held = map(held_bytes);
    madvise(held, held_bytes, pages == CHILD_HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    for (size_t i = 0; i < held_bytes; i += 4096)
        if (pages == CHILD_ZEROS)
            sum += held[i];
        else
            held[i] = 1;
}

static void fork_and_wait(void)
{
    if (fork() != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    child_shared->ready = 1;
    for (;;)
        pause();
}

static void be_child(enum child_pages pages, enum child_work work, int has_fork)
{
    pthread_t thread;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    hold(pages);
    if (has_fork)
        fork_and_wait();
    if (work == CHILD_STALLS && pthread_create(&thread, NULL, map_in_a_loop, NULL) != 0)
        _exit(1);
    child_shared->ready |= !has_fork;
    if (work != CHILD_STALLS)
        work_without_end(work);
    for (;;)
        pause();
}

int child_prepare(void)
{
    child_shared =
        mmap(NULL, sizeof *child_shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return child_shared != MAP_FAILED;
}

pid_t child_start(size_t bytes, enum child_pages pages, enum child_work work, int has_fork)
{
    held_bytes = bytes;
    memset(child_shared, 0, sizeof *child_shared);
    pid_t child = fork();
    if (child == 0)
        be_child(pages, work, has_fork);
    while (!child_shared->ready && waitpid(child, NULL, WNOHANG) == 0)
        usleep(10000);
    return child;
}

void child_end(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}
