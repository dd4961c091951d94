/* SPDX-License-Identifier: MIT */
/* What the recorder costs a program, an event (one malloc or one free) at a time: processor time,
 * beside the objects of peer.c and, where it is installed, the preloaded part of heaptrack.
 *
 *     bench_recorder RECORDER PASS STAMP SAMPLED FULL    runs itself in turn in each of several
 * ways bench_recorder work THREADS    the workload alone: blocks of 16 bytes to 64 KiB, sizes
 * spread evenly over their logarithm, 4096 alive in each thread, each allocated below ten frames;
 * prints nanoseconds of processor time per event: of the whole, and of the lower quartile of slices
 * of 40,000 events, which other work on the machine and pictures change little */
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
#define N_SLICES  75u
#define N_THREADS 2

#define NOINLINE __attribute__((noinline))

struct work {
    uint64_t random;
    unsigned char *slot[N_SLOTS];
};

static pthread_barrier_t barrier;
static uint64_t began_ns, ended_ns;
static uint64_t slice_ns[N_THREADS][N_SLICES];

static uint64_t nanoseconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
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
        began_ns = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
    for (unsigned slice = 0; slice < N_SLICES; slice++) {
        uint64_t before = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
        for (unsigned i = 0; i < N_EVENTS / 2 / N_SLICES; i++)
            even(work, work->random >> 58, N_FRAMES - 2); /* 64 different stacks */
        slice_ns[number][slice] = nanoseconds(CLOCK_THREAD_CPUTIME_ID) - before;
    }
    pthread_barrier_wait(&barrier);
    if (!number)
        ended_ns = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
    for (unsigned i = 0; i < N_SLOTS; i++)
        free(work->slot[i]);
    free(work);
    return NULL;
}

static int by_length(const void *a, const void *b)
{
    const uint64_t *x = a;
    const uint64_t *y = b;
    return (*x > *y) - (*x < *y);
}

/* The time of an event in the lower quartile of the slices, the mean over the threads. */
static double steady_ns(unsigned n_threads)
{
    double sum = 0;
    for (unsigned i = 0; i < n_threads; i++) {
        qsort(slice_ns[i], N_SLICES, sizeof slice_ns[i][0], by_length);
        sum += (double)slice_ns[i][N_SLICES / 4] * N_SLICES / N_EVENTS;
    }
    return sum / n_threads;
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
    printf("%.3f %.3f\n", (double)(ended_ns - began_ns) / N_EVENTS / n_threads,
           steady_ns(n_threads));
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

enum { WHOLE, STEADY, N_FIGURES };

/* Runs the workload in one way, for what it prints. Returns 0 where it failed. */
static int run(const struct way *way, const char *object, const char *folder, const char *threads,
               double figures[N_FIGURES])
{
    char command[2048];
    snprintf(command, sizeof command,
             "MEMTALLY_RECORD_DIR=%s MEMTALLY_RECORD_DEPTH=%s MEMTALLY_RECORD_STACKS=%s "
             "REC_OUT=%s/peer DUMP_HEAPTRACK_OUTPUT=%s/heaptrack LD_PRELOAD=%s "
             "exec /proc/%d/exe work %s",
             folder, way->depth, way->stacks, folder, folder, object, (int)getpid(), threads);
    FILE *pipe = popen(command, "r");
    if (!pipe)
        return 0;
    int n = fscanf(pipe, "%lf %lf", &figures[WHOLE], &figures[STEADY]);
    return pclose(pipe) == 0 && n == N_FIGURES;
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

static double least(const double values[N_ROUNDS])
{
    double found = values[0];
    for (unsigned i = 1; i < N_ROUNDS; i++)
        found = values[i] < found ? values[i] : found;
    return found;
}

struct measured {
    double ns[N_FIGURES][N_ROUNDS];
    double more[N_FIGURES][N_ROUNDS]; /* than nothing in the same turn */
    double bytes;
};

static void print(unsigned n_threads, const char *const objects[N_OBJECTS],
                  struct measured measured[N_WAYS])
{
    printf("%u thread%s, nanoseconds of processor time per malloc or free, %d turns: the whole and "
           "over nothing (medians), steady and over nothing (least, median)\n",
           n_threads, n_threads == 1 ? "" : "s", N_ROUNDS);
    for (size_t i = 0; i < N_WAYS; i++) {
        struct measured *way = &measured[i];
        if (objects[ways[i].object])
            printf("  %-27s %7.1f %+6.1f   %7.1f %+6.1f %+6.1f  %5.2f bytes\n", ways[i].name,
                   median(way->ns[WHOLE]), median(way->more[WHOLE]), least(way->ns[STEADY]),
                   least(way->ns[STEADY]) - least(measured[0].ns[STEADY]),
                   median(way->more[STEADY]), way->bytes);
    }
    fflush(stdout);
}

/* The difference to nothing is taken turn by turn: a machine that others use changes meanwhile. */
static int compare(const char *const objects[N_OBJECTS], const char *folder, unsigned n_threads)
{
    static struct measured measured[N_WAYS];
    char threads[4];
    snprintf(threads, sizeof threads, "%u", n_threads);
    for (unsigned round = 0; round < N_ROUNDS; round++)
        for (size_t i = 0; i < N_WAYS; i++) {
            const char *object = objects[ways[i].object];
            double figures[N_FIGURES] = {0};
            if (object && !run(&ways[i], object, folder, threads, figures))
                return 1;
            measured[i].bytes = take_bytes(folder) / N_EVENTS / n_threads;
            for (size_t k = 0; k < N_FIGURES; k++) {
                measured[i].ns[k][round] = figures[k];
                measured[i].more[k][round] = figures[k] - measured[0].ns[k][round];
            }
        }
    print(n_threads, objects, measured);
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
