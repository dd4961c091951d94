/* SPDX-License-Identifier: MIT */
/* What an attached process notices of it: how long the lock of its mappings is held at a time, and
 * how much slower it works. bench_attach MEMTALLY [MIB [PAIRS [SLICE_MS]]]
 *
 * Lock: a child holds MIB. A picture of it is taken here, and the processor time of each call is
 * read: a call that walks the pages holds the lock no longer than that, where no other program
 * takes the processor away. Then a thread of the child maps and unmaps a page in a loop, alone and
 * while memtally takes one picture after the other, in turns. It counts its waits beyond 5 ms, and
 * those of them in which it slept: for a lock it sleeps, and a processor that is taken from it does
 * not make it sleep.
 *
 * Speed: a child on one processor works without end and counts its steps, and memtally, on another
 * processor or on the same, is stopped and continued. Each pair is two slices of the same time one
 * after the other, with and without it, by chance which first. memtally counts time in which it is
 * stopped as time that it watched, so that it gets half of its usual share for pictures, and its
 * other looks come up to twice as often as they would. Given is the median of all pairs, with 95 %
 * of the medians of as many pairs drawn again from them. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
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

#define TURN_NS     2000000000ull
#define TURNS       5
#define PAIRS_MAX   2000
#define DRAWN       2000
#define RING_BYTES  ((size_t)512 << 20)
#define PIECE_BYTES ((size_t)64 << 10)
#define HALF_SHARE  "0.2" /* of pictures, in percent */

enum pages { SMALL, HUGE, ZEROS };
enum work { NONE, WAITS, COMPUTES, FAULTS, MAPS };

extern char **environ;

/* Figures of the waits in one kind of turn, alone or attached. */
struct waits {
    _Atomic uint64_t n, longest_ns, longest_asleep_ns;
    _Atomic uint64_t beyond_5_ms, beyond_5_ms_asleep;
};

/* Shared by the child and its parent. */
static struct shared {
    _Atomic int turn; /* of which the child counts waits; -1: of none */
    _Atomic int ready;
    struct waits waits[2];
    _Atomic uint64_t steps;
} * shared;

static unsigned char *held;
static size_t held_bytes;

static void raise_to(_Atomic uint64_t *most, uint64_t value)
{
    if (value > *most)
        *most = value;
}

/* How often this thread has given its processor up by itself. */
static long sleeps(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

static void *map_in_a_loop(void *unused)
{
    (void)unused;
    for (;;) {
        int turn = shared->turn;
        long slept = sleeps();
        uint64_t before = mt_monotonic_ns();
        void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page != MAP_FAILED)
            munmap(page, 4096);
        uint64_t waited = mt_monotonic_ns() - before;
        int asleep = sleeps() > slept;
        if (turn < 0)
            continue;
        struct waits *waits = &shared->waits[turn];
        waits->n++;
        raise_to(&waits->longest_ns, waited);
        waits->beyond_5_ms += waited > 5000000;
        if (asleep) {
            raise_to(&waits->longest_asleep_ns, waited);
            waits->beyond_5_ms_asleep += waited > 5000000;
        }
    }
    return NULL;
}

/* ---- what the child does: steps of some 10 to 50 us ---- */

static void compute(void)
{
    static uint64_t at = 88172645463325252ull;
    static volatile unsigned sum;
    for (int i = 0; i < 300; i++) {
        at ^= at << 13;
        at ^= at >> 7;
        at ^= at << 17;
        sum += held[at % held_bytes];
    }
}

/* The resident size goes up and down by RING_BYTES. */
static void fault(unsigned char *ring)
{
    static size_t at;
    for (size_t i = 0; i < PIECE_BYTES; i += 4096)
        ring[at + i] = 1;
    at += PIECE_BYTES;
    if (at == RING_BYTES)
        madvise(ring, RING_BYTES, MADV_DONTNEED);
    at %= RING_BYTES;
}

static void map_and_unmap(void)
{
    for (int i = 0; i < 4; i++) {
        unsigned char *piece =
            mmap(NULL, PIECE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (piece == MAP_FAILED)
            _exit(1);
        piece[0] = 1;
        munmap(piece, PIECE_BYTES);
    }
}

static void work_without_end(enum work work)
{
    unsigned char *ring =
        mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ring == MAP_FAILED)
        _exit(1);
    madvise(ring, RING_BYTES, MADV_NOHUGEPAGE);
    for (;; shared->steps++) {
        if (work == COMPUTES)
            compute();
        else if (work == FAULTS)
            fault(ring);
        else
            map_and_unmap();
    }
}

static void hold(enum pages pages)
{
    volatile unsigned sum = 0;
    held = mmap(NULL, held_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (held == MAP_FAILED)
        _exit(1);
    madvise(held, held_bytes, pages == HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    for (size_t i = 0; i < held_bytes; i += 4096)
        if (pages == ZEROS)
            sum += held[i];
        else
            held[i] = 1;
}

static pid_t start_child(enum pages pages, enum work work, int has_fork)
{
    memset(shared, 0, sizeof *shared);
    shared->turn = -1;
    pid_t child = fork();
    if (child != 0) {
        while (!shared->ready && waitpid(child, NULL, WNOHANG) == 0)
            usleep(10000);
        return child;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    hold(pages);
    if (has_fork && fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        shared->ready = 1;
        for (;;)
            pause();
    }
    pthread_t thread;
    if (work == WAITS && pthread_create(&thread, NULL, map_in_a_loop, NULL) != 0)
        _exit(1);
    shared->ready |= !has_fork;
    if (work > WAITS)
        work_without_end(work);
    for (;;)
        pause();
}

static void end_child(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
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

static void picture(pid_t pid, int shares_nothing, const char *of)
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
    printf("a picture of %s%s: %d scans, the longest %.2f ms of a processor; the longest read %.2f "
           "ms\n",
           of, shares_nothing ? "" : " with a fork", n_scans, (double)longest_scan_ns / 1e6,
           (double)longest_read_ns / 1e6);
    fflush(stdout);
}

/* ---- waits for the lock ---- */

static pid_t start_memtally(const char *memtally, pid_t pid, const char *lasts, const char *share)
{
    char words[6][24] = {"memtally", "attach", "--json", "--for", "--picture-share"};
    char time[16];
    char percent[16];
    char *argv[] = {words[0], words[1], words[2], words[3], time,
                    words[4], percent,  words[5], NULL};
    posix_spawn_file_actions_t actions;
    pid_t looking = -1;
    snprintf(words[5], sizeof words[5], "%d", (int)pid);
    snprintf(time, sizeof time, "%s", lasts);
    snprintf(percent, sizeof percent, "%s", share);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&looking, memtally, &actions, NULL, argv, environ) != 0)
        exit(1);
    posix_spawn_file_actions_destroy(&actions);
    return looking;
}

static void sleep_ns(uint64_t ns)
{
    const struct timespec time = {.tv_sec = (time_t)(ns / 1000000000u),
                                  .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&time, NULL);
}

static void take_turn(const char *memtally, pid_t child)
{
    uint64_t end = mt_monotonic_ns() + TURN_NS;
    shared->turn = memtally != NULL;
    if (!memtally)
        sleep_ns(TURN_NS);
    while (memtally && mt_monotonic_ns() < end)
        waitpid(start_memtally(memtally, child, "0", "100"), NULL, 0);
    shared->turn = -1;
}

static void print_waits(const struct waits *waits, const char *of, const char *when)
{
    printf("waits for a mapping of %s, %s: %llu, the longest %.2f ms (asleep %.2f); beyond 5 ms "
           "%llu (asleep %llu)\n",
           of, when, (unsigned long long)waits->n, (double)waits->longest_ns / 1e6,
           (double)waits->longest_asleep_ns / 1e6, (unsigned long long)waits->beyond_5_ms,
           (unsigned long long)waits->beyond_5_ms_asleep);
}

static void measure_lock(const char *memtally, enum pages pages, int has_fork, const char *of)
{
    pid_t child = start_child(pages, WAITS, has_fork);
    picture(child, !has_fork, of);
    for (int i = 0; i < 2 * TURNS; i++)
        take_turn((i ^ i / 2) % 2 ? memtally : NULL, child);
    print_waits(&shared->waits[0], of, "alone");
    print_waits(&shared->waits[1], of, "while pictures are taken");
    fflush(stdout);
    end_child(child);
}

/* ---- slices ---- */

struct seen {
    uint64_t steps, cpu_ns, wall_ns, memtally_ns;
};

/* Slower by so much with memtally than without, in percent, pair for pair. */
struct result {
    double by_clock[PAIRS_MAX];
    double by_cpu[PAIRS_MAX];
    int n;
    double memtally_ns, watched_ns;
};

static uint64_t random_number(void)
{
    static uint64_t state = 0x9e3779b97f4a7c15u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint64_t cpu_of(pid_t pid)
{
    struct timespec time = {0};
    clockid_t clock;
    if (clock_getcpuclockid(pid, &clock) == 0)
        clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static struct seen look(pid_t child, pid_t memtally)
{
    return (struct seen){shared->steps, cpu_of(child), mt_monotonic_ns(), cpu_of(memtally)};
}

static struct seen take_slice(pid_t child, pid_t memtally, int is_watched, uint64_t slice_ns)
{
    kill(memtally, is_watched ? SIGCONT : SIGSTOP);
    struct seen before = look(child, memtally);
    sleep_ns(slice_ns);
    struct seen after = look(child, memtally);
    return (struct seen){after.steps - before.steps, after.cpu_ns - before.cpu_ns,
                         after.wall_ns - before.wall_ns, after.memtally_ns - before.memtally_ns};
}

static double slower(uint64_t ns, uint64_t steps, uint64_t alone_ns, uint64_t alone_steps)
{
    return 100 * (((double)ns / (double)steps) / ((double)alone_ns / (double)alone_steps) - 1);
}

static void take_pair(struct result *result, pid_t child, pid_t memtally, uint64_t slice_ns)
{
    struct seen seen[2];
    int first = (int)(random_number() >> 40) & 1;
    seen[first] = take_slice(child, memtally, first, slice_ns);
    seen[!first] = take_slice(child, memtally, !first, slice_ns);
    const struct seen *alone = &seen[0];
    const struct seen *watched = &seen[1];
    if (!alone->steps || !watched->steps)
        return; /* another program had the processor */
    int i = result->n++;
    result->by_clock[i] = slower(watched->wall_ns, watched->steps, alone->wall_ns, alone->steps);
    result->by_cpu[i] = slower(watched->cpu_ns, watched->steps, alone->cpu_ns, alone->steps);
    result->memtally_ns += (double)watched->memtally_ns;
    result->watched_ns += (double)watched->wall_ns;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_size);
    return (values[n / 2] + values[(n - 1) / 2]) / 2;
}

static void print_slower(const double *pairs, int n, const char *by)
{
    static double drawn[PAIRS_MAX];
    static double medians[DRAWN];
    for (int i = 0; i < DRAWN; i++) {
        for (int j = 0; j < n; j++)
            drawn[j] = pairs[(random_number() >> 20) % (uint64_t)n];
        medians[i] = median(drawn, n);
    }
    memcpy(drawn, pairs, (size_t)n * sizeof *drawn);
    double middle = median(drawn, n);
    qsort(medians, DRAWN, sizeof *medians, by_size);
    printf("  slower by %s: %.2f %% (95 %%: %.2f to %.2f)\n", by, middle, medians[DRAWN / 40],
           medians[DRAWN - 1 - DRAWN / 40]);
}

static void stay_on(pid_t pid, int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)processor, &set);
    sched_setaffinity(pid, sizeof set, &set);
}

static void measure_speed(const char *memtally, pid_t child, int processor, int pairs,
                          uint64_t slice_ns, const char *of)
{
    static struct result result;
    memset(&result, 0, sizeof result);
    pid_t looking = start_memtally(memtally, child, "1h", HALF_SHARE);
    stay_on(looking, processor);
    sleep_ns(TURN_NS); /* its start is no slice */
    for (int i = 0; i < pairs; i++)
        take_pair(&result, child, looking, slice_ns);
    kill(looking, SIGINT); /* it removes what it wrote */
    kill(looking, SIGCONT);
    waitpid(looking, NULL, 0);
    printf("%s, memtally on %s processor, %d pairs of %llu ms; memtally takes %.2f %% of a core\n",
           of, processor ? "the same" : "another", result.n, (unsigned long long)slice_ns / 1000000,
           100 * result.memtally_ns / result.watched_ns);
    if (result.n) {
        print_slower(result.by_clock, result.n, "the clock");
        print_slower(result.by_cpu, result.n, "its processor time");
    }
    fflush(stdout);
}

static void measure_work(const char *memtally, enum work work, int pairs, uint64_t slice_ns,
                         const char *of)
{
    pid_t child = start_child(SMALL, work, 0);
    stay_on(child, 1);
    for (int processor = 0; processor < 2; processor++)
        measure_speed(memtally, child, processor, pairs, slice_ns, of);
    end_child(child);
}

int main(int argc, char **argv)
{
    int pairs = argc > 3 ? atoi(argv[3]) : 150;
    int slice_ms = argc > 4 ? atoi(argv[4]) : 100;
    if (argc < 2 || pairs < 1 || pairs > PAIRS_MAX || slice_ms < 1)
        return 2;
    held_bytes = (argc > 2 ? strtoul(argv[2], NULL, 10) : 8192) << 20;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || held_bytes == 0)
        return 1;
    uint64_t slice_ns = (uint64_t)slice_ms * 1000000u;
    measure_lock(argv[1], SMALL, 0, "small pages");
    measure_lock(argv[1], SMALL, 1, "small pages");
    measure_lock(argv[1], HUGE, 0, "huge pages");
    measure_lock(argv[1], ZEROS, 0, "pages of zeros");
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
        printf("one processor only: speed is not measured\n");
        return 0;
    }
    stay_on(0, 0);
    measure_work(argv[1], COMPUTES, pairs, slice_ns, "computing over memory");
    measure_work(argv[1], FAULTS, pairs, slice_ns, "page faults");
    measure_work(argv[1], MAPS, pairs, slice_ns, "mapping and unmapping");
    return 0;
}
