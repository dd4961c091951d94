/* SPDX-License-Identifier: MIT */
/* Looking at a process tree from outside: sizes often, the tree and the machine less often,
 * pictures within a quarter of the pictures' share, or all of it where the recorder is not in a
 * process. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memtally/host.h>
#include <memtally/units.h>

#include "base/ticks.h"
#include "device/cards.h"
#include "watch/watch.h"

#define SAMPLE_EVERY_NS    20000000u
#define SAMPLE_SELDOM_NS   100000000u /* of an attached tree that does not change */
#define TREE_EVERY_NS      100000000u
#define MACHINE_EVERY_NS   100000000u
#define MACHINE_APART_NS   10000000000u /* of a run that takes hours */
#define MACHINE_FRESH_NS   5000000u
#define JUDGE_AFTER_NS     50000000u
#define SAMPLE_AT_LEAST_NS 1000000000u
#define PICTURE_APART_NS   250000000u
#define OUTSIDE_APART_NS   30000000u
#define UNCHANGED_APART_NS 10000000000u
#define FREE_PICTURE_NS    20000000u
#define FIRST_NS_PER_MIB   30000u
#define PICTURE_BASE_NS    300000u
#define TEXT_BYTES         8192
#define PART               64u         /* of a large tree, that a look at sizes looks at */
#define LARGE_REST_NS      1000000000u /* after a look at the whole of a tree */
#define ROLLUP_MOST_BYTES  ((uint64_t)128 << 20) /* which take Linux 2 ms */

static void write_sample(struct mt_run *run, struct watched *process, uint64_t now_ns)
{
    struct mt_process_memory memory;
    if (mt_process_memory_read(&run->host, process->reader, &memory, NULL) == 0 &&
        memory.resident_peak_bytes != MT_UNKNOWN)
        process->high_water_bytes = memory.resident_peak_bytes;
    uint64_t fields[] = {(uint64_t)process->seen.pid, process->resident_bytes,
                         process->high_water_bytes};
    mt_watch_write(run, MT_EVENT_PROCESS_SAMPLE, fields, 3);
    process->sampled_bytes = process->resident_bytes;
    process->sampled_ns = now_ns;
}

static uint64_t apart(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

static uint64_t at_least(uint64_t least, uint64_t value)
{
    return value > least ? value : least;
}

static uint64_t at_most(uint64_t most, uint64_t value)
{
    return value < most ? value : most;
}

uint64_t mt_watch_apart_ns(uint64_t every_ns, uint64_t cost_ns, uint64_t times)
{
    uint64_t rest_ns;
    return __builtin_mul_overflow(cost_ns, times, &rest_ns) ? UINT64_MAX / 2
                                                            : at_least(every_ns, rest_ns);
}

/* What has not changed is looked at ever less often: the kernel keeps the highest that was. */
static uint64_t sample_apart_ns(struct mt_run *run, uint64_t cost_ns)
{
    if (!run->is_attached)
        return SAMPLE_EVERY_NS;
    run->sample_apart_ns = run->has_changed
                               ? SAMPLE_EVERY_NS
                               : at_most(SAMPLE_SELDOM_NS, run->sample_apart_ns * 3 / 2);
    return mt_watch_apart_ns(at_least(SAMPLE_EVERY_NS, run->sample_apart_ns), cost_ns,
                             MT_WATCH_SAMPLE_REST_TIMES);
}

static int within_budget(const struct mt_run *run, const struct watched *process, uint64_t now_ns)
{
    uint64_t rate = run->ns_per_mib ? run->ns_per_mib : FIRST_NS_PER_MIB;
    uint64_t cost = PICTURE_BASE_NS + (process->resident_bytes >> 20) * rate;
    double share = run->share * (process->recorded ? 0.25 : 1.0);
    uint64_t allowed = (uint64_t)((double)(now_ns - run->start_ns) * share);
    if (allowed < FREE_PICTURE_NS)
        allowed = FREE_PICTURE_NS;
    return run->picture_spent_ns + cost <= allowed;
}

/* A process that does not change is pictured now and then, ever less often. */
static int is_due(const struct mt_run *run, const struct watched *process, uint64_t now_ns)
{
    uint64_t unchanged_apart = at_least(UNCHANGED_APART_NS, (now_ns - run->start_ns) / 50);
    if (!process->judged || !process->resident_bytes)
        return 0;
    if (!process->pictured_ns)
        return 1;
    uint64_t least = process->recorded ? PICTURE_APART_NS : OUTSIDE_APART_NS;
    uint64_t step = process->pictured_bytes / 128 + (1u << 20);
    return now_ns - process->pictured_ns >= least &&
           (apart(process->resident_bytes, process->pictured_bytes) > step ||
            now_ns - process->pictured_ns >= unchanged_apart);
}

/* Where the kernel began the process's stack: by chance for each exec, and the same for forks. 0
 * where it may not be seen. */
static uint64_t stack_of(const struct mt_run *run, const struct watched *process)
{
    enum { STATE = 3, START_STACK = 28 };
    char path[32];
    char text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process->reader);
    long n = run->host.read_file(run->host.context, path, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    char *at = strrchr(text, ')');
    for (int field = STATE; at && field <= START_STACK; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

/* Whether another process of the tree may share memory with it by a fork. Only then smaps_rollup is
 * worth its price: the kernel holds the lock of the mappings for as long as it looks through the
 * largest of them. The others' stacks are those of the last look at the tree. */
static int has_fork(const struct mt_run *run, const struct watched *process)
{
    uint64_t stack = run->n_processes > 1 ? stack_of(run, process) : 1;
    for (size_t i = 0; stack && i < run->n_processes; i++) {
        const struct watched *other = &run->processes[i];
        uint64_t theirs =
            other->reader == other->seen.pid ? other->seen.stack_start : stack_of(run, other);
        if (other != process && theirs == stack)
            return 1;
    }
    return stack == 0;
}

static void rest(void)
{
    const struct timespec time = {.tv_nsec = 100000};
    nanosleep(&time, NULL);
}

static void take_picture(struct mt_run *run, struct watched *process)
{
    char directory[32];
    struct mt_process seen;
    struct mt_picture_result result;
    uint64_t begun_ns = mt_thread_cpu_ns(); /* who has forked is asked of all processes */
    if (mt_process_read(&run->host, process->seen.pid, &seen, NULL) < 0 ||
        seen.start_ticks != process->seen.start_ticks)
        return; /* it has ended, and another may have its number; its end is taken soon */
    snprintf(directory, sizeof directory, "/proc/%d", (int)process->reader);
    const struct mt_picture_request request = {
        .process_directory = directory,
        .pid = (uint64_t)process->seen.pid,
        .reason = MT_PICTURE_OUTSIDE,
        .resident_bytes = process->resident_bytes,
        .shares_nothing = run->is_attached && !has_fork(run, process),
        .counts_shared = run->is_attached && process->resident_bytes > ROLLUP_MOST_BYTES,
        .rest = rest,
        .scratch = run->scratch,
    };
    uint64_t cost_ns = mt_thread_cpu_ns();
    mt_picture_take(&run->writer, &request, &result);
    uint64_t ended_ns = mt_thread_cpu_ns();
    cost_ns = ended_ns - cost_ns;
    run->picture_spent_ns += ended_ns - begun_ns;
    /* A small picture's cost is not in its pages. */
    uint64_t mib = process->resident_bytes >> 20;
    if (mib >= 64 && cost_ns > PICTURE_BASE_NS)
        run->ns_per_mib = (cost_ns - PICTURE_BASE_NS) / mib + 1;
    run->file.header->picture_ns += ended_ns - begun_ns;
    run->file.header->pictures_taken += (uint64_t)result.complete;
    process->pictured_bytes = process->resident_bytes;
    process->pictured_ns = mt_monotonic_ns();
}

static void look_at_process(struct mt_run *run, struct watched *process, uint64_t now_ns)
{
    uint64_t resident = mt_process_resident_bytes(&run->host, process->reader);
    if (!resident || resident == MT_UNKNOWN) {
        process->reader = mt_watch_living_thread(run, process->seen.pid);
        resident = mt_process_resident_bytes(&run->host, process->reader);
    }
    process->resident_bytes = resident == MT_UNKNOWN ? 0 : resident;
    process->looked_ns = now_ns;
    process->changed = 0;
    if (!process->resident_bytes)
        return;
    if (!process->judged && (run->is_attached || now_ns - process->since_ns >= JUDGE_AFTER_NS))
        mt_watch_judge(run, process, now_ns);
    process->changed = apart(resident, process->sampled_bytes) > resident / 256;
    run->has_changed |= process->changed;
    if (process->changed || now_ns - process->sampled_ns >= SAMPLE_AT_LEAST_NS)
        write_sample(run, process, now_ns);
    if (is_due(run, process, now_ns) && within_budget(run, process, now_ns))
        take_picture(run, process);
}

void mt_watch_picture_the_rest(struct mt_run *run)
{
    for (size_t i = 0; i < run->n_processes; i++)
        if (run->processes[i].resident_bytes && !run->processes[i].pictured_ns)
            take_picture(run, &run->processes[i]);
}

/* The first whose number comes after that of the last one whose turn it was. */
static size_t next_in_turn(const struct mt_run *run)
{
    size_t i = 0;
    while (i < run->n_processes && run->processes[i].seen.pid <= run->turn)
        i++;
    return i < run->n_processes ? i : 0;
}

/* Looks at those of a large tree that changed when they were last looked at or have just come, as
 * far as they are no more than a part, and at a part of all, in turn. So a process that grows is
 * looked at in each look, and none is forgotten. */
static void look_at_part(struct mt_run *run, uint64_t now_ns)
{
    size_t n = run->n_processes;
    size_t first = next_in_turn(run);
    size_t looked = 0;
    for (size_t i = 0; i < n && looked < PART; i++) {
        struct watched *process = &run->processes[(first + i) % n];
        if (!process->changed && process->judged)
            continue;
        look_at_process(run, process, now_ns);
        looked++;
    }
    for (size_t i = 0; i < PART; i++) {
        struct watched *process = &run->processes[(first + i) % n];
        mt_watch_note_exec(run, process, now_ns);
        if (process->looked_ns != now_ns)
            look_at_process(run, process, now_ns);
        run->turn = process->seen.pid;
    }
}

static void look_at_all(struct mt_run *run, uint64_t now_ns)
{
    for (size_t i = 0; i < run->n_processes; i++)
        look_at_process(run, &run->processes[i], now_ns);
}

static void look_at_processes(struct mt_run *run, uint64_t now_ns,
                              void (*look)(struct mt_run *run, uint64_t now_ns))
{
    uint64_t sum = 0;
    run->has_changed = 0;
    look(run, now_ns);
    for (size_t i = 0; i < run->n_processes; i++)
        sum += run->processes[i].resident_bytes;
    if (sum > run->peak_resident_bytes)
        run->peak_resident_bytes = sum;
}

/* A last look may be long ago, and the kernel tells then what the highest was since. */
void mt_watch_last_sizes(struct mt_run *run)
{
    uint64_t now_ns = mt_monotonic_ns();
    for (size_t i = 0; i < run->n_processes; i++)
        if (now_ns - run->processes[i].sampled_ns >= SAMPLE_EVERY_NS)
            run->processes[i].sampled_ns = 0;
    look_at_processes(run, now_ns, look_at_all);
}

static void write_file(struct mt_run *run, enum mt_machine_text kind, const char *path)
{
    char text[TEXT_BYTES];
    long got = run->host.read_file(run->host.context, path, text, sizeof text);
    if (got > 0)
        mt_write_bytes(&run->writer, MT_EVENT_MACHINE, mt_monotonic_ns(), kind, text, (size_t)got);
}

static void write_text(struct mt_run *run, enum mt_machine_text kind, const char *text)
{
    mt_write_bytes(&run->writer, MT_EVENT_MACHINE, mt_monotonic_ns(), kind, text, strlen(text));
}

static void put_line(char *text, size_t capacity, const char *name, uint64_t value)
{
    size_t length = strlen(text);
    if (value == MT_UNKNOWN)
        snprintf(text + length, capacity - length, "%s -1\n", name);
    else
        snprintf(text + length, capacity - length, "%s %llu\n", name, (unsigned long long)value);
}

void mt_watch_unrecorded_devices(struct mt_run *run)
{
    struct mt_cards cards;
    if (mt_cards_read(&run->host, &cards) == 0 && *cards.unseen)
        write_text(run, MT_MACHINE_UNSEEN, cards.unseen);
}

void mt_watch_machine_at_end(struct mt_run *run)
{
    if (mt_monotonic_ns() - run->machine_ns >= MACHINE_FRESH_NS)
        mt_watch_machine(run);
}

void mt_watch_machine(struct mt_run *run)
{
    struct mt_host_sample sample;
    char text[512] = "";
    uint64_t tree = 0;
    run->machine_ns = mt_monotonic_ns();
    write_file(run, MT_MACHINE_MEMINFO, "/proc/meminfo");
    write_file(run, MT_MACHINE_PRESSURE, "/proc/pressure/memory");
    if (mt_host_read(&run->host, &run->cgroup, &sample, NULL) < 0)
        return;
    put_line(text, sizeof text, "version", (uint64_t)sample.cgroup_version);
    put_line(text, sizeof text, "limit_bytes", sample.cgroup_limit_bytes);
    put_line(text, sizeof text, "usage_bytes", sample.cgroup_usage_bytes);
    put_line(text, sizeof text, "peak_bytes", sample.cgroup_peak_bytes);
    write_text(run, MT_MACHINE_CGROUP, text);
    for (size_t i = 0; i < run->n_processes; i++)
        tree += run->processes[i].resident_bytes;
    text[0] = '\0';
    put_line(text, sizeof text, "resident_bytes", mt_host_other_resident_bytes(&sample, tree));
    write_text(run, MT_MACHINE_OTHERS, text);
}

static void look_at_arrivals(struct mt_run *run, uint64_t now_ns)
{
    uint64_t cpu_ns = mt_thread_cpu_ns();
    mt_watch_arrivals(run, now_ns);
    cpu_ns = mt_thread_cpu_ns() - cpu_ns;
    run->next_arrivals_ns =
        now_ns + mt_watch_apart_ns(TREE_EVERY_NS, cpu_ns, MT_WATCH_TREE_REST_TIMES);
}

static void look_at_attached_tree(struct mt_run *run, uint64_t now_ns)
{
    int was_large = run->next_arrivals_ns != UINT64_MAX;
    if (was_large) /* also at the first look: who comes during the look is not to be missed */
        look_at_arrivals(run, now_ns);
    uint64_t cpu_ns = mt_thread_cpu_ns();
    mt_watch_tree(run, now_ns);
    cpu_ns = mt_thread_cpu_ns() - cpu_ns;
    uint64_t rest_ns = mt_watch_apart_ns(TREE_EVERY_NS, cpu_ns, MT_WATCH_TREE_REST_TIMES);
    int is_large = rest_ns > LARGE_REST_NS;
    if (!is_large || !was_large) {
        run->numbers.n = 0; /* they are noted anew */
        run->next_arrivals_ns = is_large ? now_ns : UINT64_MAX;
    }
    /* If it has just become large, who came between this look and the first numbers shows at the
     * next look at the whole alone. */
    if (is_large && was_large)
        rest_ns = mt_watch_apart_ns(TREE_EVERY_NS, cpu_ns, MT_WATCH_WHOLE_REST_TIMES);
    run->next_tree_ns = now_ns + rest_ns;
}

static void look_at_tree(struct mt_run *run, uint64_t now_ns)
{
    if (run->is_attached) {
        look_at_attached_tree(run, now_ns);
        return;
    }
    mt_watch_tree(run, now_ns);
    run->next_tree_ns = now_ns + mt_watch_apart_ns(TREE_EVERY_NS, mt_monotonic_ns() - now_ns, 50);
}

static void look_at_sizes(struct mt_run *run, uint64_t now_ns)
{
    uint64_t pictures_ns = run->picture_spent_ns;
    uint64_t cpu_ns = mt_thread_cpu_ns();
    int is_large = run->is_attached && run->n_processes > PART;
    int is_first = !run->next_sample_ns;
    look_at_processes(run, now_ns, is_large && !is_first ? look_at_part : look_at_all);
    cpu_ns = mt_thread_cpu_ns() - cpu_ns;
    pictures_ns = run->picture_spent_ns - pictures_ns; /* have a share of their own */
    cpu_ns = cpu_ns > pictures_ns ? cpu_ns - pictures_ns : 0;
    if (is_large && is_first) /* which comes once */
        cpu_ns = cpu_ns / run->n_processes * PART;
    run->next_sample_ns = now_ns + sample_apart_ns(run, cpu_ns);
}

static void look_at_machine(struct mt_run *run, uint64_t now_ns)
{
    uint64_t cpu_ns = mt_thread_cpu_ns();
    mt_watch_machine(run);
    cpu_ns = mt_thread_cpu_ns() - cpu_ns;
    uint64_t every_ns = at_least(MACHINE_EVERY_NS, (now_ns - run->start_ns) / 1000);
    every_ns = at_most(MACHINE_APART_NS, every_ns);
    run->next_machine_ns =
        now_ns + (run->is_attached
                      ? mt_watch_apart_ns(every_ns, cpu_ns, MT_WATCH_MACHINE_REST_TIMES)
                      : every_ns);
}

void mt_watch_look(struct mt_run *run, uint64_t now_ns)
{
    if (now_ns >= run->next_tree_ns)
        look_at_tree(run, now_ns);
    else if (run->is_attached && now_ns >= run->next_arrivals_ns)
        look_at_arrivals(run, now_ns);
    if (now_ns >= run->next_sample_ns)
        look_at_sizes(run, now_ns);
    if (now_ns >= run->gpus.next_ns)
        mt_watch_gpus(run, now_ns);
    if (now_ns >= run->next_machine_ns)
        look_at_machine(run, now_ns);
}

uint64_t mt_watch_next_ns(const struct mt_run *run)
{
    uint64_t next_ns = at_most(run->next_tree_ns, run->next_sample_ns);
    if (run->is_attached)
        next_ns = at_most(next_ns, run->next_arrivals_ns);
    return at_most(next_ns, at_most(run->gpus.next_ns, run->next_machine_ns));
}
