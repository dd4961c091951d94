/* SPDX-License-Identifier: MIT */
/* What the recorder costs a program, an event (one malloc or one free) at a time.
 *
 *     bench_recorder RECORDER.so     runs itself in turn without the recorder and with it in
 * several ways, and compares what is least of each bench_recorder work THREADS    the workload
 * alone: blocks of 16 bytes to 64 KiB, sizes spread evenly over their logarithm, 4096 alive in each
 * thread, each allocated below ten frames; prints nanoseconds per event */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/ticks.h"

#define N_EVENTS  2000000u /* of each thread */
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
        began_ns = mt_monotonic_ns();
    for (unsigned i = 0; i < N_EVENTS / 2; i++)
        even(work, work->random >> 58, N_FRAMES - 2); /* 64 different stacks */
    pthread_barrier_wait(&barrier);
    if (!number)
        ended_ns = mt_monotonic_ns();
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
    printf("%.3f\n", (double)(ended_ns - began_ns) / N_EVENTS);
    return 0;
}

static const struct way {
    const char *name;
    const char *depth; /* NULL: without the recorder */
    const char *stacks;
} ways[] = {
    {"without the recorder", NULL, NULL}, {"default depth", "0", "0"},
    {"full depth, no stacks", "1", "2"},  {"full depth, frame pointers", "1", "0"},
    {"full depth, libunwind", "1", "1"},
};

#define N_WAYS (sizeof ways / sizeof *ways)

/* Runs the workload in one way and returns what it prints, or a negative number. */
static double run(const struct way *way, const char *recorder, const char *folder,
                  const char *threads)
{
    char command[2048];
    double result = -1;
    if (way->depth)
        snprintf(command, sizeof command,
                 "MEMTALLY_RECORD_DIR=%s MEMTALLY_RECORD_DEPTH=%s MEMTALLY_RECORD_STACKS=%s "
                 "LD_PRELOAD=%s exec /proc/%d/exe work %s",
                 folder, way->depth, way->stacks, recorder, (int)getpid(), threads);
    else
        snprintf(command, sizeof command, "exec /proc/%d/exe work %s", (int)getpid(), threads);
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
    snprintf(command, sizeof command, "cat %s/* 2>/dev/null | wc -c; rm -f %s/*", folder, folder);
    FILE *pipe = popen(command, "r");
    if (pipe && fscanf(pipe, "%lf", &bytes) != 1)
        bytes = 0;
    if (pipe)
        pclose(pipe);
    return bytes;
}

static int compare(const char *recorder, const char *folder, unsigned n_threads)
{
    double least[N_WAYS], bytes[N_WAYS];
    char threads[4];
    snprintf(threads, sizeof threads, "%u", n_threads);
    for (unsigned round = 0; round < N_ROUNDS; round++)
        for (size_t i = 0; i < N_WAYS; i++) {
            double ns = run(&ways[i], recorder, folder, threads);
            bytes[i] = take_bytes(folder) / N_EVENTS / n_threads;
            if (ns < 0)
                return 1;
            least[i] = round && least[i] < ns ? least[i] : ns;
        }
    printf("%u thread%s, nanoseconds per malloc or free, least of %d runs:\n", n_threads,
           n_threads == 1 ? "" : "s", N_ROUNDS);
    for (size_t i = 0; i < N_WAYS; i++)
        printf("  %-27s %7.1f  %+6.1f  x%.2f  %5.2f bytes\n", ways[i].name, least[i],
               least[i] - least[0], least[i] / least[0], bytes[i]);
    return 0;
}

int main(int argc, char **argv)
{
    char folder[] = "/dev/shm/memtally-bench-XXXXXX";
    int result = 0;
    if (argc == 3 && strcmp(argv[1], "work") == 0)
        return work((unsigned)atoi(argv[2]));
    if (argc != 2 || !mkdtemp(folder))
        return 2;
    for (unsigned n_threads = 1; n_threads <= N_THREADS && !result; n_threads++)
        result = compare(argv[1], folder, n_threads);
    rmdir(folder);
    return result;
}
