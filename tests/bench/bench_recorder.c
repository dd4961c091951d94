/* SPDX-License-Identifier: MIT */
/* What the recorder costs a program, an event (one malloc or one free) at a time: processor time,
 * beside the objects of peer.c and, where it is installed, the preloaded part of heaptrack.
 *
 *     bench_recorder RECORDER PASS STAMP SAMPLED FULL    runs itself in turn in each of several
 * ways bench_recorder work THREADS    the workload alone: blocks of 16 bytes to 64 KiB, sizes
 * spread evenly over their logarithm, 4096 alive in each thread, each allocated below ten frames;
 * prints nanoseconds of processor time per event */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <time.h>

#define N_EVENTS  3000000u /* of each thread */
#define N_SLOTS   4096u
#define N_FRAMES  10
#define N_ROUNDS  7
#define N_THREADS 2

#define NOINLINE __attribute__((noinline))

struct work {
    uint64_t random;
    unsigned char *slot[N_SLOTS];
};

static pthread_barrier_t barrier;
static uint64_t began_ns, ended_ns;

/* Of all threads. */
static uint64_t processor_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

NOINLINE static void replace(struct work *work)
{
    work->random ^= work->random << 13;
    work->random ^= work->random >> 7;
    work->random ^= work->random << 17;
    uint64_t bits = work->random;
    unsigned char **slot = &work->slot[bits % N_SLOTS];
    size_t octave = (size_t)16 << (bits >> 40) % 12;
    free(*slot);
    *slot = malloc(octave + (bits >> 16) % octave);
    if (!*slot)
        abort();
    **slot = 1;
}

NOINLINE static void odd(struct work *work, uint64_t path, int left);

NOINLINE static void even(struct work *work, uint64_t path, int left)
{
    if (!left)
        replace(work);
    else if (path & 1)
        odd(work, path >> 1, left - 1);
    else
        even(work, path >> 1, left - 1);
    __asm__ volatile("");
}

NOINLINE static void odd(struct work *work, uint64_t path, int left)
{
    if (!left)
        replace(work);
    else if (path & 1)
        odd(work, path >> 1, left - 1);
    else
        even(work, path >> 1, left - 1);
    __asm__ volatile("nop");
}

static void *thread_work(void *argument)
{
    uint64_t number = (uint64_t)(uintptr_t)argument;
    struct work *work = calloc(1, sizeof *work);
    if (!work)
        abort();
    work->random = 0x9e3779b97f4a7c15u * (number + 1);
    for (unsigned i = 0; i < 2 * N_SLOTS; i++)
        replace(work);
    pthread_barrier_wait(&barrier);
    if (!number)
        began_ns = processor_ns();
    for (unsigned i = 0; i < N_EVENTS / 2; i++)
        even(work, work->random >> 58, N_FRAMES - 2); /* 64 different stacks */
    pthread_barrier_wait(&barrier);
    if (!number)
        ended_ns = processor_ns();
    for (unsigned i = 0; i < N_SLOTS; i++)
        free(work->slot[i]);
    free(work);
    return NULL;
}

static int work(unsigned n_threads)
{
    pthread_t threads[N_THREADS];
    if (n_threads < 1 || n_threads > N_THREADS)
        return 2;
    pthread_barrier_init(&barrier, NULL, n_threads);
    for (uintptr_t i = 1; i < n_threads; i++)
        if (pthread_create(&threads[i], NULL, thread_work, (void *)i) != 0)
            return 1;
    thread_work(NULL);
    for (unsigned i = 1; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    printf("%.3f\n", (double)(ended_ns - began_ns) / N_EVENTS / n_threads);
    return 0;
}

enum object { NONE, RECORDER, PASS, STAMP, SAMPLED, FULL, HEAPTRACK, N_OBJECTS };

#define HEAPTRACK_PATH "/usr/lib/heaptrack/libheaptrack_preload.so"

static const struct way {
    const char *name;
    enum object object;
    const char *depth;
    const char *stacks;
} ways[] = {
    {"nothing preloaded", NONE, "", ""},
    {"hooks that do nothing", PASS, "", ""},
    {"a time stamp", STAMP, "", ""},
    {"sampled peer", SAMPLED, "", ""},
    {"default depth", RECORDER, "0", "0"},
    {"full peer", FULL, "", ""},
    {"full depth, no stacks", RECORDER, "1", "2"},
    {"full depth, frame pointers", RECORDER, "1", "0"},
    {"full depth, libunwind", RECORDER, "1", "1"},
    {"heaptrack, preloaded part", HEAPTRACK, "", ""},
};

#define N_WAYS (sizeof ways / sizeof *ways)

/* Runs the workload in one way and returns what it prints, or a negative number. */
static double run(const struct way *way, const char *object, const char *folder,
                  const char *threads)
{
    char command[2048];
    double result = -1;
    snprintf(command, sizeof command,
             "MEMTALLY_RECORD_DIR=%s MEMTALLY_RECORD_DEPTH=%s MEMTALLY_RECORD_STACKS=%s "
             "REC_OUT=%s/peer DUMP_HEAPTRACK_OUTPUT=%s/heaptrack LD_PRELOAD=%s "
             "exec /proc/%d/exe work %s",
             folder, way->depth, way->stacks, folder, folder, object, (int)getpid(), threads);
    FILE *pipe = popen(command, "r");
    if (!pipe || fscanf(pipe, "%lf", &result) != 1)
        result = -1;
    if (pipe && pclose(pipe) != 0)
        result = -1;
    return result;
}

/* The bytes of the files in the folder, which it empties. */
static double take_bytes(const char *folder)
{
    char command[600];
    double bytes = 0;
    snprintf(command, sizeof command, "du -cB1 %s 2>/dev/null | tail -n1; rm -f %s/*", folder,
             folder);
    FILE *pipe = popen(command, "r");
    if (pipe && fscanf(pipe, "%lf", &bytes) != 1)
        bytes = 0;
    if (pipe)
        pclose(pipe);
    return bytes;
}

static int by_size(const void *a, const void *b)
{
    const double *x = a;
    const double *y = b;
    return (*x > *y) - (*x < *y);
}

static double median(double values[N_ROUNDS])
{
    qsort(values, N_ROUNDS, sizeof *values, by_size);
    return values[N_ROUNDS / 2];
}

/* The difference to nothing is taken turn by turn: a machine that others use changes meanwhile. */
static int compare(const char *const objects[N_OBJECTS], const char *folder, unsigned n_threads)
{
    double ns[N_WAYS][N_ROUNDS], more[N_WAYS][N_ROUNDS], bytes[N_WAYS];
    char threads[4];
    snprintf(threads, sizeof threads, "%u", n_threads);
    for (unsigned round = 0; round < N_ROUNDS; round++)
        for (size_t i = 0; i < N_WAYS; i++) {
            const char *object = objects[ways[i].object];
            ns[i][round] = object ? run(&ways[i], object, folder, threads) : 0;
            bytes[i] = take_bytes(folder) / N_EVENTS / n_threads;
            if (ns[i][round] < 0)
                return 1;
            more[i][round] = ns[i][round] - ns[0][round];
        }
    printf("%u thread%s, nanoseconds of processor time per malloc or free, medians of %d turns:\n",
           n_threads, n_threads == 1 ? "" : "s", N_ROUNDS);
    for (size_t i = 0; i < N_WAYS; i++) {
        if (objects[ways[i].object])
            printf("  %-27s %7.1f  %+6.1f  %5.2f bytes\n", ways[i].name, median(ns[i]),
                   median(more[i]), bytes[i]);
    }
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv)
{
    char folder[] = "/dev/shm/memtally-bench-XXXXXX";
    int result = 0;
    if (argc == 3 && strcmp(argv[1], "work") == 0)
        return work((unsigned)atoi(argv[2]));
    if (argc != 6 || !mkdtemp(folder))
        return 2;
    const char *const objects[N_OBJECTS] = {
        "",
        argv[1],
        argv[2],
        argv[3],
        argv[4],
        argv[5],
        access(HEAPTRACK_PATH, R_OK) == 0 ? HEAPTRACK_PATH : NULL,
    };
    for (unsigned n_threads = 1; n_threads <= N_THREADS && !result; n_threads++)
        result = compare(objects, folder, n_threads);
    rmdir(folder);
    return result;
}
