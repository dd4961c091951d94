/* SPDX-License-Identifier: MIT */
/* What an attached process notices of it: how long the lock of its mappings is held at a time, and
 * how much slower it works. bench_attach MEMTALLY [MIB [PAIRS]]
 *
 * Lock: a thread of a child that holds MIB maps and unmaps a page in a loop, in turns alone and
 * while pictures are taken of it back to back, as `memtally attach` takes them. Of each wait beyond
 * a millisecond is told what it was for: the thread itself had no processor, memtally had none in
 * the middle of a call, or the lock.
 *
 * Speed: memtally may take a share of a processor for pictures and one for its other looks
 * (watch.h). What the child loses for each nanosecond of these is measured while nothing else is
 * done, where it is 100 times as much as when memtally watches: a slice of time in which they are
 * taken back to back, and one as long without, one after the other, by chance which first. The
 * share times the loss is by how much a process becomes slower at most. Given is the median of all
 * pairs with its interval of 95 % by ranks, which holds for any distribution. A sum of two has the
 * sums of their ends, which is more than 95 %.
 *
 * Beside it stands `memtally attach` itself, which is stopped and continued. Its pictures are
 * seldom, so that slices are added up to blocks of seconds. memtally counts time in which it is
 * stopped as time that it watched, and gets half of its usual share for pictures. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <memtally/error.h>
#include <memtally/run.h>

#include "base/ticks.h"
#include "drive/stage.h"
#include "tests/bench/attached_child.h"
#include "watch/watch.h"

#define MS          1000000ull
#define TURN_NS     (1000 * MS)
#define TURNS       5
#define LONG_NS     (5 * MS) /* that a wait for the lock may take */
#define PAIRS_MAX   1000     /* two to the power of these is a double */
#define CALLS_MAX   65536u
#define AFTER_NS    (5 * MS)  /* in which a slice still notices what was in it */
#define LOOKS_NS    (20 * MS) /* of looks, a slice */
#define BETWEEN_NS  200000u
#define SLICE_NS    (100 * MS)
#define BLOCK_PAIRS 10
#define HALF_SHARE  "0.15" /* of pictures, in percent */
#define GOAL        1.0    /* percent */
#define ALONE       0.97   /* of a processor, that a child has where nothing else runs */

/* The part of a processor that looks other than pictures may take. */
#define LOOKS_SHARE                                                                                \
    (1.0 / MT_WATCH_SAMPLE_REST_TIMES + 1.0 / MT_WATCH_TREE_REST_TIMES +                           \
     1.0 / MT_WATCH_WHOLE_REST_TIMES + 1.0 / MT_WATCH_MACHINE_REST_TIMES +                         \
     1.0 / MT_WATCH_GPUS_REST_TIMES)

extern char **environ;

static void sleep_ns(uint64_t ns)
{
    const struct timespec time = {.tv_sec = (time_t)(ns / 1000000000u),
                                  .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&time, NULL);
}

static uint64_t random_number(void)
{
    static uint64_t state = 0x9e3779b97f4a7c15u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* ---- looking, and what a call takes ---- */

/* A call of memtally's on the process that took longer than half a millisecond. */
struct call {
    uint64_t begin_ns, end_ns, cpu_ns;
};

static struct call calls[CALLS_MAX];
static unsigned n_calls;
static uint64_t longest_cpu_ns; /* of all calls */

static struct call begin_call(void)
{
    return (struct call){.cpu_ns = mt_thread_cpu_ns(), .begin_ns = mt_monotonic_ns()};
}

static void end_call(struct call call)
{
    call.end_ns = mt_monotonic_ns();
    call.cpu_ns = mt_thread_cpu_ns() - call.cpu_ns;
    longest_cpu_ns = call.cpu_ns > longest_cpu_ns ? call.cpu_ns : longest_cpu_ns;
    if (call.end_ns - call.begin_ns > MS / 2 && n_calls < CALLS_MAX)
        calls[n_calls++] = call;
}

static long timed_ioctl(int fd, unsigned long request, void *argument)
{
    struct call call = begin_call();
    long result = mt_watch_os.ioctl(fd, request, argument);
    end_call(call);
    return result;
}

static long timed_read(int fd, void *bytes, size_t length)
{
    struct call call = begin_call();
    long result = mt_watch_os.read(fd, bytes, length);
    end_call(call);
    return result;
}

static long timed_pread(int fd, void *bytes, size_t length, uint64_t offset)
{
    struct call call = begin_call();
    long result = mt_watch_os.pread(fd, bytes, length, offset);
    end_call(call);
    return result;
}

struct looker {
    struct mt_run *run;
    char folder[64];
};

static void attach(pid_t pid, struct looker *looker)
{
    static struct mt_record_os timed;
    struct mt_error error;
    strcpy(looker->folder, "/tmp/bench_attach-XXXXXX");
    const struct mt_attach_options options = {
        .directory = looker->folder, .pid = pid, .picture_share = 1e-9};
    if (!mkdtemp(looker->folder) || mt_attach_start(&options, &looker->run, &error) < 0)
        exit(1);
    timed = mt_watch_os;
    timed.ioctl = timed_ioctl;
    timed.read = timed_read;
    timed.pread = timed_pread;
    looker->run->file.os = &timed;
    looker->run->share = 1;
    looker->run->ns_per_mib = 1;
}

static void detach(struct looker *looker)
{
    mt_run_abandon(looker->run);
    mt_drive_folder_remove(looker->folder);
}

static void take_picture(struct mt_run *run)
{
    run->picture_spent_ns = 0;
    run->next_sample_ns = 0;
    run->next_tree_ns = run->next_machine_ns = run->gpus.next_ns = UINT64_MAX;
    for (size_t i = 0; i < run->n_processes; i++)
        run->processes[i].pictured_ns = 0;
    mt_watch_look(run, mt_monotonic_ns());
}

static void take_looks(struct mt_run *run)
{
    uint64_t until_ns = mt_monotonic_ns() + LOOKS_NS;
    for (uint64_t now_ns; (now_ns = mt_monotonic_ns()) < until_ns;) {
        run->next_sample_ns = run->next_tree_ns = run->next_machine_ns = run->gpus.next_ns = 0;
        for (size_t i = 0; i < run->n_processes; i++)
            run->processes[i].pictured_ns = now_ns;
        mt_watch_look(run, now_ns);
        sleep_ns(BETWEEN_NS);
    }
}

/* ---- waits for the lock ---- */

enum cause { OWN, THEIRS, LOCK, CAUSES };

struct waits {
    uint64_t mapped, longest_ns, longest_lock_ns;
    unsigned n[CAUSES]; /* beyond LONG_NS */
};

/* For how long memtally had no processor in calls that went on in a stall. */
static uint64_t lost_in_calls(const struct child_stall *stall)
{
    uint64_t lost = 0;
    for (unsigned i = 0; i < n_calls; i++) {
        const struct call *call = &calls[i];
        uint64_t took = call->end_ns - call->begin_ns;
        uint64_t begin = call->begin_ns > stall->begin_ns ? call->begin_ns : stall->begin_ns;
        uint64_t end = call->end_ns < stall->end_ns ? call->end_ns : stall->end_ns;
        uint64_t idle = took > call->cpu_ns ? took - call->cpu_ns : 0;
        if (begin < end)
            lost += idle < end - begin ? idle : end - begin;
    }
    return lost;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static void tell_apart(const struct child_stall *stall, struct waits *waits)
{
    uint64_t took = stall->end_ns - stall->begin_ns;
    uint64_t asleep = stall->asleep ? less(took, stall->delayed_ns) : 0;
    uint64_t lock = less(asleep, lost_in_calls(stall));
    waits->longest_ns = took > waits->longest_ns ? took : waits->longest_ns;
    waits->longest_lock_ns = lock > waits->longest_lock_ns ? lock : waits->longest_lock_ns;
    if (took > LONG_NS)
        waits->n[lock > LONG_NS ? LOCK : asleep > LONG_NS ? THEIRS : OWN]++;
}

static void take_turn(struct mt_run *run, struct waits *waits)
{
    uint64_t end_ns = mt_monotonic_ns() + TURN_NS;
    n_calls = 0;
    child_shared->n_mapped = child_shared->n_stalls = 0;
    child_shared->notes = 1;
    if (!run)
        sleep_ns(TURN_NS);
    while (run && mt_monotonic_ns() < end_ns)
        take_picture(run);
    child_shared->notes = 0;
    sleep_ns(AFTER_NS);
    waits->mapped += child_shared->n_mapped;
    for (unsigned i = 0; i < child_shared->n_stalls; i++)
        tell_apart(&child_shared->stalls[i], waits);
}

static void print_waits(const struct waits *waits, const char *when)
{
    printf("  %s: %llu mappings, the longest %.2f ms, by the lock %.2f; beyond 5 ms %u without a "
           "processor, %u while memtally had none, %u by the lock\n",
           when, (unsigned long long)waits->mapped, (double)waits->longest_ns / 1e6,
           (double)waits->longest_lock_ns / 1e6, waits->n[OWN], waits->n[THEIRS], waits->n[LOCK]);
}

static void measure_lock(size_t bytes, enum child_pages pages, int has_fork, const char *of)
{
    struct waits waits[2] = {{0}};
    struct looker looker;
    pid_t child = child_start(bytes, pages, CHILD_STALLS, has_fork);
    attach(child, &looker);
    longest_cpu_ns = 0;
    for (int i = 0; i < 2 * TURNS; i++) {
        int is_watched = (i ^ i / 2) % 2;
        take_turn(is_watched ? looker.run : NULL, &waits[is_watched]);
    }
    detach(&looker);
    printf("%s\n", of);
    print_waits(&waits[0], "alone");
    print_waits(&waits[1], "pictures back to back");
    if (!child_shared->has_delays)
        printf("  the kernel does not tell when a thread waits for a processor: taken for the "
               "lock\n");
    int is_held = waits[1].n[LOCK] <= waits[0].n[LOCK] && longest_cpu_ns <= LONG_NS;
    printf("VERDICT lock, %s: the longest call takes %.2f ms of a processor; at most 5 ms at a "
           "time: %s\n",
           of, (double)longest_cpu_ns / 1e6,
           is_held           ? "yes"
           : waits[0].n[OWN] ? "not told, other programs had the processor"
                             : "no");
    fflush(stdout);
    child_end(child);
}

/* ---- slices ---- */

struct slice {
    uint64_t steps, cpu_ns, wall_ns, ours_ns; /* of the child, and of memtally */
};

static uint64_t cpu_of(pid_t pid)
{
    struct timespec time = {0};
    clockid_t clock;
    if (clock_getcpuclockid(pid, &clock) == 0)
        clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static struct slice look(pid_t child, pid_t memtally)
{
    return (struct slice){child_shared->steps, cpu_of(child), mt_monotonic_ns(),
                          memtally ? cpu_of(memtally) : mt_thread_cpu_ns()};
}

static struct slice since(struct slice before, pid_t child, pid_t memtally)
{
    struct slice after = look(child, memtally);
    return (struct slice){after.steps - before.steps, after.cpu_ns - before.cpu_ns,
                          after.wall_ns - before.wall_ns, after.ours_ns - before.ours_ns};
}

static struct slice slice_without(pid_t child, uint64_t ns)
{
    struct slice before = look(child, 0);
    sleep_ns(ns);
    return since(before, child, 0);
}

static struct slice slice_with(pid_t child, struct mt_run *run, void (*takes)(struct mt_run *run))
{
    struct slice before = look(child, 0);
    takes(run);
    sleep_ns(AFTER_NS);
    return since(before, child, 0);
}

/* ---- medians ---- */

struct interval {
    double low, middle, high, mean;
};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The index of the one of `n` values in order at which the interval begins: the median of what
 * they were drawn from lies below it with a chance of 2.5 % at most. */
static int rank_of(int n)
{
    double below = 0;
    double chance = 1;
    int rank = 0;
    for (int i = 0; i < n; i++)
        chance /= 2;
    while (below + chance <= 0.025) {
        below += chance;
        rank++;
        chance *= (double)(n - rank + 1) / rank;
    }
    return rank ? rank - 1 : 0;
}

static struct interval interval_of(double *values, int n)
{
    struct interval interval = {0};
    if (!n)
        return (struct interval){-1e9, 0, 1e9, 0};
    qsort(values, (size_t)n, sizeof *values, by_size);
    for (int i = 0; i < n; i++)
        interval.mean += values[i] / n;
    int rank = rank_of(n);
    interval.low = values[rank];
    interval.high = values[n - 1 - rank];
    interval.middle = (values[n / 2] + values[(n - 1) / 2]) / 2;
    return interval;
}

static struct interval sum_of(double a, struct interval x, double b, struct interval y)
{
    return (struct interval){a * x.low + b * y.low, a * x.middle + b * y.middle,
                             a * x.high + b * y.high, a * x.mean + b * y.mean};
}

static const char *verdict(struct interval slower)
{
    return slower.high <= GOAL ? "yes" : slower.low > GOAL ? "no" : "not told";
}

/* ---- what looks cost ---- */

static double lost(uint64_t ns, uint64_t steps, uint64_t ns_without, uint64_t steps_without)
{
    return (double)ns - (double)steps * (double)ns_without / (double)steps_without;
}

/* What the child loses by the clock and of its own processor time, as a part of what memtally
 * takes; and the share of a processor that it has without memtally, which is less than 1 where
 * other programs run. */
struct cost {
    struct interval clock, cpu;
    double had;
};

static struct cost measure_cost(pid_t child, struct mt_run *run, void (*takes)(struct mt_run *run),
                                int pairs)
{
    static double clock[PAIRS_MAX];
    static double cpu[PAIRS_MAX];
    static double had[PAIRS_MAX];
    uint64_t ns = slice_with(child, run, takes).wall_ns;
    int n = 0;
    for (int i = 0; i < pairs; i++) {
        int is_first = (int)(random_number() >> 40) & 1;
        struct slice without = is_first ? slice_without(child, ns) : (struct slice){0};
        struct slice with = slice_with(child, run, takes);
        ns = with.wall_ns;
        if (!is_first)
            without = slice_without(child, ns);
        if (!with.steps || !without.steps || !with.ours_ns)
            continue; /* another program had the processor */
        clock[n] =
            lost(with.wall_ns, with.steps, without.wall_ns, without.steps) / (double)with.ours_ns;
        cpu[n] =
            lost(with.cpu_ns, with.steps, without.cpu_ns, without.steps) / (double)with.ours_ns;
        had[n++] = (double)without.cpu_ns / (double)without.wall_ns;
    }
    return (struct cost){interval_of(clock, n), interval_of(cpu, n), interval_of(had, n).middle};
}

static void print_cost(const char *what, const struct cost *cost)
{
    printf("  a second of memtally's processor in %s costs %.2f s by the clock (95 %%: %.2f to "
           "%.2f; mean %.2f), %.2f s of its own processor (%.2f to %.2f)\n",
           what, cost->clock.middle, cost->clock.low, cost->clock.high, cost->clock.mean,
           cost->cpu.middle, cost->cpu.low, cost->cpu.high);
}

/* Judges its own time, and as if it waited for all that memtally takes, too. */
static void judge_own(struct interval own, const char *of, const char *where)
{
    double share = 100 * (MT_WATCH_ATTACHED_SHARE + LOOKS_SHARE);
    printf("VERDICT own time, %s, memtally %s: slower by at most %.2f %% (95 %%: %.2f to %.2f), "
           "and by %.2f %% if it waits while memtally runs; no more than 1 %% together: %s\n",
           of, where, own.middle, own.low, own.high, share,
           own.high + share <= GOAL ? "yes"
           : own.low + share > GOAL ? "no"
                                    : "not told");
}

static void judge_clock(struct interval slower, double had, const char *of, const char *where)
{
    printf("VERDICT clock, %s, memtally %s: slower by at most %.2f %% (95 %%: %.2f to %.2f; mean "
           "%.2f); no more than 1 %%: ",
           of, where, slower.middle, slower.low, slower.high, slower.mean);
    if (had < ALONE)
        printf("not told, other programs had %.0f %% of its processor\n", 100 * (1 - had));
    else
        printf("%s\n", verdict(slower));
    fflush(stdout);
}

static void measure_shares(pid_t child, int pairs, const char *of, const char *where)
{
    struct looker looker;
    attach(child, &looker);
    struct cost pictures = measure_cost(child, looker.run, take_picture, pairs);
    struct cost looks = measure_cost(child, looker.run, take_looks, 2 * pairs);
    detach(&looker);
    const double shares[] = {100 * MT_WATCH_ATTACHED_SHARE, 100 * LOOKS_SHARE};
    printf("%s, memtally %s\n", of, where);
    print_cost("pictures", &pictures);
    print_cost("other looks", &looks);
    judge_own(sum_of(shares[0], pictures.cpu, shares[1], looks.cpu), of, where);
    judge_clock(sum_of(shares[0], pictures.clock, shares[1], looks.clock),
                pictures.had < looks.had ? pictures.had : looks.had, of, where);
}

/* ---- memtally attach itself ---- */

static pid_t start_memtally(const char *memtally, pid_t pid)
{
    char words[8][24] = {"memtally", "attach",          "--json",  "--for",
                         "1h",       "--picture-share", HALF_SHARE};
    char *argv[9] = {NULL};
    posix_spawn_file_actions_t actions;
    pid_t looking = -1;
    snprintf(words[7], sizeof words[7], "%d", (int)pid);
    for (int i = 0; i < 8; i++)
        argv[i] = words[i];
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&looking, memtally, &actions, NULL, argv, environ) != 0)
        exit(1);
    posix_spawn_file_actions_destroy(&actions);
    return looking;
}

static void add_slice(struct slice sums[2], pid_t child, pid_t memtally, int is_watched)
{
    kill(memtally, is_watched ? SIGCONT : SIGSTOP);
    struct slice before = look(child, memtally);
    sleep_ns(SLICE_NS);
    struct slice slice = since(before, child, memtally);
    struct slice *sum = &sums[is_watched];
    sum->steps += slice.steps;
    sum->wall_ns += slice.wall_ns;
    sum->ours_ns += slice.ours_ns;
}

static void measure_whole(const char *memtally, pid_t child, int pairs, const char *of)
{
    static double blocks[PAIRS_MAX];
    double ours_ns = 0;
    double wall_ns = 0;
    int n = 0;
    pid_t looking = start_memtally(memtally, child);
    sleep_ns(20 * SLICE_NS); /* its start is no slice */
    for (int block = 0; block < pairs / BLOCK_PAIRS; block++) {
        struct slice sums[2] = {{0}};
        for (int i = 0; i < BLOCK_PAIRS; i++) {
            int first = (int)(random_number() >> 40) & 1;
            add_slice(sums, child, looking, first);
            add_slice(sums, child, looking, !first);
        }
        ours_ns += (double)sums[1].ours_ns;
        wall_ns += (double)sums[1].wall_ns;
        if (sums[0].steps && sums[1].steps)
            blocks[n++] = 100 *
                          lost(sums[1].wall_ns, sums[1].steps, sums[0].wall_ns, sums[0].steps) /
                          (double)sums[1].wall_ns;
    }
    kill(looking, SIGINT); /* it removes what it wrote */
    kill(looking, SIGCONT);
    waitpid(looking, NULL, 0);
    struct interval slower = interval_of(blocks, n);
    printf("%s, memtally attach where the kernel puts it: it takes %.2f %% of a core; slower by "
           "%.2f %% (95 %%: %.2f to %.2f, %d blocks of %d s)\n",
           of, 100 * ours_ns / wall_ns, slower.middle, slower.low, slower.high, n,
           (int)(2 * BLOCK_PAIRS * SLICE_NS / 1000000000u));
    fflush(stdout);
}

static void stay_on(pid_t pid, int first, int last)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = first; i <= last; i++)
        CPU_SET((size_t)i, &set);
    sched_setaffinity(pid, sizeof set, &set);
}

static void measure_work(const char *memtally, size_t bytes, enum child_work work, int pairs,
                         const char *of)
{
    pid_t child = child_start(bytes, CHILD_SMALL, work, 0);
    stay_on(child, 1, 1);
    stay_on(0, 0, 0);
    measure_shares(child, pairs, of, "on another processor");
    stay_on(0, 1, 1);
    measure_shares(child, pairs, of, "on the same processor");
    stay_on(child, 0, 1);
    stay_on(0, 0, 1);
    measure_shares(child, pairs, of, "where the kernel puts it");
    measure_whole(memtally, child, pairs, of);
    child_end(child);
}

int main(int argc, char **argv)
{
    int pairs = argc > 3 ? atoi(argv[3]) : 60;
    if (argc < 2 || pairs < BLOCK_PAIRS || pairs > PAIRS_MAX / 2)
        return 2;
    size_t bytes = (argc > 2 ? strtoul(argv[2], NULL, 10) : 8192) << 20;
    if (!child_prepare() || bytes == 0)
        return 1;
    measure_lock(bytes, CHILD_SMALL, 0, "small pages");
    measure_lock(bytes, CHILD_SMALL, 1, "small pages with a fork");
    measure_lock(bytes, CHILD_HUGE, 0, "huge pages");
    measure_lock(bytes, CHILD_ZEROS, 0, "pages of zeros");
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
        printf("one processor only: speed is not measured\n");
        return 0;
    }
    measure_work(argv[1], bytes, CHILD_COMPUTES, pairs, "computing in the caches");
    measure_work(argv[1], bytes, CHILD_READS, pairs, "reading all over memory");
    measure_work(argv[1], bytes, CHILD_FAULTS, pairs, "page faults");
    measure_work(argv[1], bytes, CHILD_MAPS, pairs, "mapping and unmapping");
    return 0;
}
