/* SPDX-License-Identifier: MIT */
/* What a monitor costs, in processor time: a recording in a loop, beside the bare reads of the same
 * files by the same rounds; and a service's own watching, in turn with the same wakes without it.
 * bench_monitor [PLACE…], else host and cgroup. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <memtally/error.h>
#include <memtally/monitor.h>

#include "device/cgroup.h"
#include "device/group.h"
#include "guard/source.h"
#include "tests/support/group_join.h"

#define ROUNDS          15
#define RECORDS         2000
#define WAKES           1000 /* a hundred a second */
#define TURNS           9
#define TURN_WAKES      100
#define GOAL_PERCENT    0.1
#define PLACES          8
#define MOST_PROCESSORS 64
#define LIMIT_BYTES     ((uint64_t)1 << 30)

static double processor_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* A clock by which each look is ten milliseconds after the one before: what is read seldom is then
 * read as seldom in a loop as it is at a hundred looks a second. */
static uint64_t looks_ns(void *context)
{
    static uint64_t ns;
    (void)context;
    return ns += 10000000;
}

static int open_for_loop(const char *place, struct mt_monitor_source *source,
                         struct mt_error *error)
{
    struct mt_host_os os;
    int is_group = strcmp(place, "cgroup") == 0;
    mt_host_os_init(&os);
    os.now_ns = looks_ns;
    return is_group || strcmp(place, "host") == 0
               ? mt_monitor_open_host(&os, 0, is_group, source, error)
               : mt_monitor_open_source(place, source, error);
}

static struct mt_monitor *monitor_of(const char *place, int is_loop)
{
    struct mt_monitor_source source;
    struct mt_monitor *monitor;
    struct mt_error error;
    int status = is_loop ? open_for_loop(place, &source, &error)
                         : mt_monitor_open_source(place, &source, &error);
    if (status == 0 && mt_monitor_create(&source, NULL, &monitor, &error) == 0)
        return monitor;
    printf("  %-8s not measured: %s\n", place, error.text);
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_size);
    return values[n / 2];
}

/* ---- in a loop ---- */

/* The file that a recording of the place cannot do without. */
static int open_bare(const char *place)
{
    char path[PATH_MAX + 32] = "/proc/meminfo";
    struct mt_host_os os;
    struct mt_cgroup cgroup;
    mt_host_os_init(&os);
    mt_cgroup_find(&os, 0, &cgroup);
    if (strcmp(place, "cgroup") == 0)
        snprintf(path, sizeof path, "%s/%s", cgroup.directory,
                 mt_cgroup_usage_file(cgroup.version));
    return open(path, O_RDONLY | O_CLOEXEC);
}

static double bare_ns(int file)
{
    char bytes[256];
    double before = processor_ns();
    for (int i = 0; i < RECORDS; i++)
        if (pread(file, bytes, sizeof bytes, 0) < 0)
            return 0;
    return (processor_ns() - before) / RECORDS;
}

static double record_ns(struct mt_monitor *monitor)
{
    double before = processor_ns();
    for (int i = 0; i < RECORDS; i++)
        mt_monitor_record(monitor, NULL, NULL);
    return (processor_ns() - before) / RECORDS;
}

static double measure_loop(const char *place)
{
    struct mt_monitor *monitor = monitor_of(place, 1);
    double ours[ROUNDS];
    double bare[ROUNDS];
    int file = open_bare(place);
    if (!monitor)
        return 0;
    for (int i = 0; i < ROUNDS; i++) {
        bare[i] = bare_ns(file);
        ours[i] = record_ns(monitor);
    }
    double each = median(ours, ROUNDS);
    printf("  %-8s %6.2f us a record, of which the kernel's one file %6.2f us; %.3f %% of a core "
           "at 100 a second\n",
           place, each / 1e3, median(bare, ROUNDS) / 1e3, each / 1e5);
    close(file);
    mt_monitor_destroy(monitor);
    return each;
}

/* ---- as a service does ---- */

struct watched {
    struct mt_monitor *monitor;
    int each; /* wakes */
};

/* From a wake on, so many of them. */
static double wake_ns(const struct watched *watched, size_t n, int from)
{
    struct timespec until;
    double before = processor_ns();
    clock_gettime(CLOCK_MONOTONIC, &until);
    for (int wake = from; wake < from + TURN_WAKES; wake++) {
        until.tv_nsec += 10000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        for (size_t i = 0; i < n; i++)
            if (wake % watched[i].each == 0)
                mt_monitor_record(watched[i].monitor, NULL, NULL);
    }
    return (processor_ns() - before) / TURN_WAKES;
}

/* In turn with the same wakes without it, a second each: what others do meanwhile is in both. */
static void put_service(const char *what, const struct watched *watched, size_t n)
{
    double alone[TURNS];
    double more[TURNS];
    for (int i = 0; i < TURNS; i++) {
        alone[i] = wake_ns(watched, 0, 0);
        more[i] = wake_ns(watched, n, i * TURN_WAKES) - alone[i];
    }
    double wakes = median(alone, TURNS);
    double looks = median(more, TURNS);
    printf("  %-58s %.3f %% of a core, beside %.3f %% for the wakes alone (goal below %.1f beside "
           "them)\n",
           what, looks / 1e5, wakes / 1e5, GOAL_PERCENT);
    fflush(stdout);
}

/* As mt_monitor_wait_ns() says: a hundred times a second where a place may come to its next level
 * of pressure, once a second elsewhere; wakes and all. */
static void put_adaptive(const struct watched *watched, size_t n)
{
    uint64_t slept_ns = 0;
    double before = processor_ns();
    int wakes = 0;
    for (; slept_ns < (uint64_t)10000000 * WAKES; wakes++) {
        uint64_t wait_ns = 1000000000;
        for (size_t i = 0; i < n; i++) {
            mt_monitor_record(watched[i].monitor, NULL, NULL);
            wait_ns = mt_monitor_wait_ns(watched[i].monitor, 10000000, wait_ns);
        }
        const struct timespec time = {(time_t)(wait_ns / 1000000000), (long)(wait_ns % 1000000000)};
        nanosleep(&time, NULL);
        slept_ns += wait_ns;
    }
    printf("  %-58s %.3f %% of a core, %.1f wakes a second\n",
           "all of them as pressure asks for, wakes and all",
           (processor_ns() - before) / WAKES / 1e5, wakes * 100.0 / WAKES);
}

static void measure_service(const char *what)
{
    char pid[32];
    snprintf(pid, sizeof pid, "pid:%d", (int)getpid());
    struct watched watched[PLACES] = {{monitor_of("host", 0), 1}, {monitor_of("cgroup", 0), 1}};
    size_t n = watched[1].monitor ? 2 : 1;
    if (!watched[0].monitor)
        return;
    printf("  as a service%s:\n", what);
    put_service("host and cgroup 100 times a second", watched, n);
    watched[n] = (struct watched){monitor_of("gpu0", 0), 10};
    n += watched[n].monitor != NULL;
    watched[n] = (struct watched){monitor_of(pid, 0), 100};
    n += watched[n].monitor != NULL;
    put_service("and devices 10 times, a program and its descendants once", watched, n);
    put_adaptive(watched, n);
    for (size_t i = 0; i < n; i++)
        mt_monitor_destroy(watched[i].monitor);
}

/* With a program beside it on each processor that takes what nobody else wants, so that none of
 * them sleeps. */
static void measure_busy(void)
{
    pid_t pids[MOST_PROCESSORS];
    const struct sched_param none = {0};
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    n = n < MOST_PROCESSORS ? n : MOST_PROCESSORS;
    for (long i = 0; i < n; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            sched_setscheduler(0, SCHED_IDLE, &none);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                __asm__ volatile("" ::: "memory");
        }
    }
    measure_service(" on processors that are awake");
    for (long i = 0; i < n; i++)
        if (pids[i] > 0 && kill(pids[i], SIGKILL) == 0)
            waitpid(pids[i], NULL, 0);
}

static void measure_all(void)
{
    double sum = measure_loop("host") + measure_loop("cgroup");
    printf("  both at 100 a second: %.3f %% of a core (goal below %.1f)\n", sum / 1e5,
           GOAL_PERCENT);
    measure_service("");
    measure_busy();
    fflush(stdout);
}

/* In a group with a limit, as in a container, where one can be made. */
static void measure_in_group(void)
{
    struct mt_group_os os;
    struct mt_group group = {0};
    struct mt_error error;
    mt_group_os_init(&os);
    if (mt_group_make(&os, 1, &group, &error) < 0 ||
        mt_group_limit(&os, &group, LIMIT_BYTES, &error) < 0)
        printf("  without a group of its own: %s\n", error.text);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (group.version && group_join(&group, 0) < 0)
            puts("  without a group of its own: it may not be joined");
        measure_all();
        _exit(0);
    }
    waitpid(child, NULL, 0);
    if (group.version)
        mt_group_remove(&os, &group);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        measure_loop(argv[i]);
    if (argc == 1)
        measure_in_group();
    return 0;
}
