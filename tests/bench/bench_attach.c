/* SPDX-License-Identifier: MIT */
/* What an attached process notices of it: how long the lock of its mappings is held at a time, and
 * how much slower it works. bench_attach MEMTALLY [MIB [ROUNDS]]
 *
 * A child holds MIB in plain pages. First a picture of it is taken here, and the processor time of
 * each call is read: a call that walks the pages holds the lock no longer than that, where no other
 * program takes the processor away. Then a thread of the child maps and unmaps a page in a loop and
 * keeps its longest wait: by itself, and with a fork that shares all its memory. After that another
 * child reads its memory all over and counts. Rounds are pairs of the same time, alone and while
 * memtally looks, one beginning in turn; of counting there are four times as many. A busy machine
 * makes a thread wait by itself: what it waits alone is the measure of that. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/ticks.h"
#include "recording/picture.h"
#include "watch/watch.h"

#define ROUND_NS   2000000000ull
#define ROUNDS_MAX 64
#define MORE       4 /* pairs of counting for each of the others */

enum kind { MAPS, MAPS_WITH_A_FORK, COUNTS };

extern char **environ;

/* Shared by the child and its parent. */
struct shared {
    _Atomic int phase; /* of which the child counts; -1: of none */
    _Atomic int ready;
    _Atomic uint64_t longest_ns[2 * ROUNDS_MAX];
    _Atomic uint64_t beyond_5_ms[2 * ROUNDS_MAX];
    _Atomic uint64_t steps[2 * ROUNDS_MAX];
    _Atomic uint64_t cpu_ns[2 * ROUNDS_MAX]; /* that these steps took */
    _Atomic uint64_t wall_ns[2 * ROUNDS_MAX];
};

static struct shared *shared;
static unsigned char *held;
static size_t held_bytes;

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void *map_in_a_loop(void *unused)
{
    (void)unused;
    for (;;) {
        int phase = shared->phase;
        uint64_t before = now_ns();
        void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page != MAP_FAILED)
            munmap(page, 4096);
        uint64_t waited = now_ns() - before;
        if (phase < 0)
            continue;
        if (waited > shared->longest_ns[phase])
            shared->longest_ns[phase] = waited;
        shared->beyond_5_ms[phase] += waited > 5000000;
    }
    return NULL;
}

static void work_in_a_loop(void)
{
    uint64_t at = 88172645463325252ull;
    volatile unsigned sum = 0;
    uint64_t before = 0;
    uint64_t began_ns = 0;
    int last = -1;
    for (;;) {
        for (int i = 0; i < 10000; i++) {
            at ^= at << 13;
            at ^= at >> 7;
            at ^= at << 17;
            sum += held[at % held_bytes];
        }
        int phase = shared->phase;
        uint64_t cpu = mt_thread_cpu_ns();
        uint64_t time_ns = now_ns();
        if (phase >= 0 && phase == last) {
            shared->steps[phase]++;
            shared->cpu_ns[phase] += cpu - before;
            shared->wall_ns[phase] += time_ns - began_ns;
        }
        last = phase;
        before = cpu;
        began_ns = time_ns;
    }
}

static void be_a_child(enum kind kind)
{
    pthread_t thread;
    held = mmap(NULL, held_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (held == MAP_FAILED)
        _exit(1);
    madvise(held, held_bytes, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < held_bytes; i += 4096)
        held[i] = 1;
    if (kind == MAPS_WITH_A_FORK && fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
    }
    if (kind != COUNTS && pthread_create(&thread, NULL, map_in_a_loop, NULL) != 0)
        _exit(1);
    shared->ready = 1;
    for (; kind != COUNTS;)
        pause();
    work_in_a_loop();
}

/* ---- the calls of a picture ---- */

static uint64_t longest_scan_ns;
static uint64_t longest_read_ns;
static int n_scans;

static long timed_ioctl(int fd, unsigned long request, void *argument)
{
    uint64_t before = mt_thread_cpu_ns();
    long result = mt_watch_os.ioctl(fd, request, argument);
    uint64_t took = mt_thread_cpu_ns() - before;
    longest_scan_ns = took > longest_scan_ns ? took : longest_scan_ns;
    n_scans++;
    return result;
}

static long timed_read(int fd, void *bytes, size_t length)
{
    uint64_t before = mt_thread_cpu_ns();
    long result = mt_watch_os.read(fd, bytes, length);
    uint64_t took = mt_thread_cpu_ns() - before;
    longest_read_ns = took > longest_read_ns ? took : longest_read_ns;
    return result;
}

static long timed_pread(int fd, void *bytes, size_t length, uint64_t offset)
{
    uint64_t before = mt_thread_cpu_ns();
    long result = mt_watch_os.pread(fd, bytes, length, offset);
    uint64_t took = mt_thread_cpu_ns() - before;
    longest_read_ns = took > longest_read_ns ? took : longest_read_ns;
    return result;
}

static void picture(pid_t pid, int shares_nothing)
{
    struct mt_record_os os = mt_watch_os;
    struct mt_file file = {0};
    struct mt_writer writer;
    struct mt_picture_result result;
    char directory[32];
    char path[] = "/tmp/bench_attach-XXXXXX";
    static char scratch[MT_PICTURE_SCRATCH_BYTES];
    const struct mt_file_header header = {.kind = MT_FILE_WATCH, .page_bytes = 4096};
    os.ioctl = timed_ioctl;
    os.read = timed_read;
    os.pread = timed_pread;
    longest_scan_ns = longest_read_ns = 0;
    n_scans = 0;
    int fd = mkstemp(path);
    snprintf(directory, sizeof directory, "/proc/%d", (int)pid);
    if (fd < 0 || unlink(path) < 0 || mt_file_create(&file, &os, path, &header) < 0)
        exit(1);
    mt_writer_init(&writer, &file, 0, 1);
    const struct mt_picture_request request = {.process_directory = directory,
                                               .pid = (uint64_t)pid,
                                               .reason = MT_PICTURE_OUTSIDE,
                                               .resident_bytes = held_bytes,
                                               .shares_nothing = shares_nothing,
                                               .counts_shared = 1,
                                               .scratch = scratch};
    mt_picture_take(&writer, &request, &result);
    mt_writer_finish(&writer);
    mt_file_close(&file);
    unlink(path);
    close(fd);
    printf("%s: %d scans, the longest %.2f ms of a processor; the longest read %.2f ms\n",
           shares_nothing ? "a picture of one process" : "a picture of one of several", n_scans,
           (double)longest_scan_ns / 1e6, (double)longest_read_ns / 1e6);
    fflush(stdout);
}

/* Runs memtally on the child and returns the processor time that it took itself. */
static double attach(const char *memtally, pid_t pid, const char *option, const char *value)
{
    char number[16];
    char words[5][32] = {"attach", "--json"};
    char *argv[] = {words[3], words[0], words[1], words[2], words[4], number, NULL};
    posix_spawn_file_actions_t actions;
    struct rusage usage = {0};
    pid_t looking;
    snprintf(number, sizeof number, "%d", (int)pid);
    snprintf(words[2], sizeof words[2], "%s", option);
    snprintf(words[3], sizeof words[3], "memtally");
    snprintf(words[4], sizeof words[4], "%s", value);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&looking, memtally, &actions, NULL, argv, environ) == 0)
        wait4(looking, NULL, 0, &usage);
    posix_spawn_file_actions_destroy(&actions);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static double watching_s; /* processor time of memtally while it watched */
static double watched_s;

static void pass(int phase, const char *memtally, pid_t pid, enum kind kind)
{
    const struct timespec pause = {.tv_sec = 2};
    uint64_t end = now_ns() + ROUND_NS;
    shared->phase = phase;
    if (!memtally) {
        nanosleep(&pause, NULL);
    } else if (kind != COUNTS) {
        while (now_ns() < end)
            attach(memtally, pid, "--picture-share", "100");
    } else {
        watching_s += attach(memtally, pid, "--for", "2s");
        watched_s += 2;
    }
    shared->phase = -1;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* How many percent longer a step takes while memtally looks, in order of size. */
static void compare(const _Atomic uint64_t *ns, int rounds, double slower[ROUNDS_MAX])
{
    for (int i = 0; i < rounds; i++) {
        double alone = (double)ns[2 * i] / (double)shared->steps[2 * i];
        slower[i] = 100 * ((double)ns[2 * i + 1] / (double)shared->steps[2 * i + 1] / alone - 1);
    }
    qsort(slower, (size_t)rounds, sizeof *slower, by_size);
}

static void print_slower(const _Atomic uint64_t *ns, int rounds, const char *of)
{
    double slower[ROUNDS_MAX];
    compare(ns, rounds, slower);
    printf("slower while watched, by %s: median %.2f %% of %d pairs, the middle half from %.2f to "
           "%.2f %%\n",
           of, (slower[rounds / 2] + slower[(rounds - 1) / 2]) / 2, rounds, slower[rounds / 4],
           slower[rounds - 1 - rounds / 4]);
}

static void print_waits(int rounds, const char *of)
{
    uint64_t longest[2] = {0, 0};
    uint64_t beyond[2] = {0, 0};
    for (int i = 0; i < 2 * rounds; i++) {
        if (shared->longest_ns[i] > longest[i % 2])
            longest[i % 2] = shared->longest_ns[i];
        beyond[i % 2] += shared->beyond_5_ms[i];
    }
    printf("longest wait for a mapping%s: alone %.2f ms (%llu beyond 5 ms), attached %.2f ms (%llu "
           "beyond 5 ms)\n",
           of, (double)longest[0] / 1e6, (unsigned long long)beyond[0], (double)longest[1] / 1e6,
           (unsigned long long)beyond[1]);
}

static void measure(const char *memtally, int rounds, enum kind kind)
{
    memset(shared, 0, sizeof *shared);
    shared->phase = -1;
    pid_t child = fork();
    if (child == 0)
        be_a_child(kind);
    while (!shared->ready && waitpid(child, NULL, WNOHANG) == 0)
        usleep(10000);
    if (kind == MAPS)
        picture(child, 1);
    if (kind == MAPS_WITH_A_FORK)
        picture(child, 0);
    for (int i = 0; i < rounds; i++)
        for (int half = 0; half < 2; half++) {
            int attached = (i + half) % 2;
            pass(2 * i + attached, attached ? memtally : NULL, child, kind);
        }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    if (kind != COUNTS) {
        print_waits(rounds, kind == MAPS ? "" : " with a fork");
    } else {
        print_slower(shared->cpu_ns, rounds, "its processor time");
        print_slower(shared->wall_ns, rounds, "the clock");
        printf("memtally itself takes %.2f %% of a core in 2 seconds\n",
               100 * watching_s / watched_s);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int rounds = argc > 3 ? atoi(argv[3]) : 5;
    if (argc < 2 || rounds < 1 || rounds > ROUNDS_MAX / MORE)
        return 2;
    held_bytes = (argc > 2 ? strtoul(argv[2], NULL, 10) : 8192) << 20;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    measure(argv[1], rounds, MAPS);
    measure(argv[1], rounds, MAPS_WITH_A_FORK);
    measure(argv[1], rounds * MORE, COUNTS);
    return 0;
}
