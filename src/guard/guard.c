/* SPDX-License-Identifier: MIT */
/* A guarded program: what it uses, and the steps done to it. When which is due is the ladder's.
 *
 * In a group the kernel has to let the program wait where it would go past. Of version 2 that is
 * the high mark, which slows down and never kills; of version 1 the limit with the group's OOM
 * killer off. A program that waits so handles a signal once it has more room, so that it first
 * waits somewhat below its limit, and has the rest with the signal, and more to end in. */
#include <errno.h>
#include <inttypes.h>
#include <memtally/error.h>
#include <memtally/host.h>
#include <memtally/monitor.h>
#include <memtally/units.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "budget/job.h"
#include "device/alarm.h"
#include "device/level.h"
#include "guard/growth.h"
#include "guard/ladder.h"

#define ACT_RATIO      0.85
#define CALM_SHARES    20u /* of the limit: steps begin anew one of them below where they begin */
#define GRACE_NS       2000000000u
#define END_NS         10000000000u
#define NO_LIMIT_BYTES ((uint64_t)1 << 50)
#define HOLD_RATIO     0.6 /* of the way from where steps begin to the limit */
#define MORE_SHARES    8u
#define MORE_LEAST     ((uint64_t)16 << 20)
#define MOST_WAIT_MS   100u
#define MOST_TOLD_MS   1000u /* where the kernel tells that steps begin */
#define LEAST_WAIT_MS  2u
#define BYTES_PER_MS   ((uint64_t)2 << 20) /* that one processor takes at most */
#define KILLED_NS      1000000000u

/* What a thread of its own asks. */
struct question {
    pthread_t thread;
    atomic_int is_answered;
    void (*ask)(void *context, uint64_t used_bytes);
    void *context;
    uint64_t used_bytes;
};

struct mt_guard {
    struct mt_guard_options options;
    struct mt_ladder ladder;
    struct mt_job_device devices[MT_JOB_DEVICES];
    struct mt_ladder device_ladders[MT_JOB_DEVICES];
    uint64_t device_bytes[MT_JOB_DEVICES]; /* that are used; MT_UNKNOWN: nobody says */
    struct mt_job *job;                    /* NULL for a pid */
    struct mt_group_os os;
    struct mt_level level;  /* of the job's group */
    struct mt_alarm *alarm; /* NULL: the kernel tells nothing */
    int is_told_near;
    int end_fd; /* can be read once the program has ended; -1: unknown */
    size_t n_looks;
    size_t n_alarms;
    struct mt_process found; /* that has the pid */
    struct mt_process_list tree;
    struct question *question; /* the last one, which may be under way; NULL: none */
    int has_more_room;
    int others_stand; /* but the program, which ends */
    uint64_t start_ns;
    uint64_t used_bytes;
    uint64_t peak_bytes;
    struct mt_growth_bins bins;
    struct mt_monitor_growth growth;
    size_t n_leaks;
    size_t n_acts;
    struct mt_guard_act acts[MT_GUARD_ACTS]; /* a ring */
};

static uint64_t now_ns(const struct mt_guard *guard)
{
    return guard->os.host.now_ns(guard->os.host.context);
}

/* ---- the group ---- */

static int write_group(struct mt_guard *guard, const char *name, const char *text)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", guard->job->group.directory, name);
    return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG
                                  : guard->os.write_file(guard->os.context, path, text);
}

/* The limit of memory and swap together is never below that of memory, so that the order is
 * another one upwards. */
static int limit_group(struct mt_guard *guard, uint64_t bytes, int is_raised)
{
    static const char memory[] = "memory.limit_in_bytes";
    static const char both[] = "memory.memsw.limit_in_bytes";
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, bytes);
    if (guard->job->group.version == 2)
        return write_group(guard, "memory.high", text);
    if (is_raised)
        write_group(guard, both, text);
    int failed = write_group(guard, memory, text);
    if (!is_raised && !failed)
        write_group(guard, both, text);
    return failed;
}

static uint64_t hold_bytes(const struct mt_guard *guard)
{
    uint64_t way = guard->ladder.limit_bytes - guard->ladder.act_bytes;
    return guard->ladder.act_bytes + (uint64_t)((double)way * HOLD_RATIO);
}

static void give_room(struct mt_guard *guard, uint64_t more_bytes)
{
    if (!guard->ladder.is_held)
        return;
    limit_group(guard, guard->options.limit_bytes + more_bytes, 1);
    guard->has_more_room = 1;
}

/* Once the program uses little again, it has the reserve no more. */
static void take_room_back(struct mt_guard *guard)
{
    if (guard->has_more_room && !guard->ladder.is_acting)
        guard->has_more_room = limit_group(guard, hold_bytes(guard), 0) != 0;
}

static uint64_t more_to_end(const struct mt_guard *guard)
{
    uint64_t more = guard->options.limit_bytes / MORE_SHARES;
    return more > MORE_LEAST ? more : MORE_LEAST;
}

static void watch_group(struct mt_guard *guard)
{
    struct mt_cgroup cgroup = {.version = guard->job->group.version};
    memcpy(cgroup.directory, guard->job->group.directory, sizeof cgroup.directory);
    cgroup.mount_length = strlen(cgroup.directory);
    mt_level_init(&guard->level, &guard->os.host, &cgroup);
}

static uint64_t used_by_group(struct mt_guard *guard)
{
    struct mt_host_sample sample;
    mt_host_sample_unknown(&sample);
    mt_level_read_group(&guard->level, &sample);
    return sample.cgroup_working_set_bytes;
}

/* ---- start ---- */

static int check(const struct mt_guard_options *options, struct mt_error *error)
{
    if (!options->argv == !options->pid)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "guard a program that is started or one that runs");
    if ((!options->limit_bytes && !options->n_devices) || options->limit_bytes >= NO_LIMIT_BYTES)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "a guard needs a limit, below 1 PiB");
    if (options->n_devices > MT_JOB_DEVICES || (options->n_devices && options->pid))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "limits of devices, %d at most, are for a program that is started",
                       MT_JOB_DEVICES);
    if (!(options->act_ratio >= 0 && options->act_ratio <= 1))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "steps begin between 0 and 1 of the limit");
    return 0;
}

static uint64_t else_ns(uint64_t given, uint64_t otherwise)
{
    return given ? given : otherwise;
}

static void set_ladder(const struct mt_guard_options *options, uint64_t limit_bytes,
                       struct mt_ladder *ladder)
{
    double ratio = options->act_ratio > 0 ? options->act_ratio : ACT_RATIO;
    uint64_t below = limit_bytes / CALM_SHARES;
    ladder->limit_bytes = limit_bytes;
    ladder->act_bytes = (uint64_t)((double)limit_bytes * ratio);
    ladder->calm_bytes = ladder->act_bytes > below ? ladder->act_bytes - below : 0;
    ladder->last_bytes = limit_bytes; /* nobody knows yet how it grows */
    ladder->time_ns[MT_GUARD_CALL] = else_ns(options->grace_ns, GRACE_NS);
    ladder->time_ns[MT_GUARD_SIGNAL] = else_ns(options->grace_ns, GRACE_NS);
    ladder->time_ns[MT_GUARD_ASK] = else_ns(options->grace_ns, GRACE_NS);
    ladder->time_ns[MT_GUARD_FREEZE] = options->freeze_ns;
    ladder->time_ns[MT_GUARD_END] = else_ns(options->end_ns, END_NS);
    ladder->time_ns[MT_GUARD_KILL] = KILLED_NS;
    ladder->steps = 1u << MT_GUARD_END | 1u << MT_GUARD_KILL;
    ladder->steps |= options->call ? 1u << MT_GUARD_CALL : 0;
    ladder->steps |= options->signal ? 1u << MT_GUARD_SIGNAL : 0;
    ladder->steps |= options->ask ? 1u << MT_GUARD_ASK : 0;
    ladder->steps |= options->freeze_ns ? 1u << MT_GUARD_FREEZE : 0;
}

static void set_ladders(struct mt_guard *guard)
{
    const struct mt_guard_options *options = &guard->options;
    set_ladder(options, options->limit_bytes ? options->limit_bytes : NO_LIMIT_BYTES,
               &guard->ladder);
    for (size_t i = 0; i < options->n_devices; i++) {
        guard->devices[i] = options->devices[i];
        guard->device_bytes[i] = MT_UNKNOWN;
        set_ladder(options, options->devices[i].bytes, &guard->device_ladders[i]);
    }
    guard->options.devices = guard->devices;
}

/* Whether the driver tells what there is of each device, before anything is started. That there is
 * none is not that there is no such program. */
static int check_devices(const struct mt_guard_options *options, struct mt_error *error)
{
    for (size_t i = 0; i < options->n_devices; i++) {
        char place[24];
        struct mt_monitor_source source;
        struct mt_error found;
        snprintf(place, sizeof place, "gpu%u", options->devices[i].index);
        if (mt_monitor_open_source(place, &source, &found) < 0)
            return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET, "%s", found.text);
        source.close(source.context);
    }
    return 0;
}

/* It is held from its first instruction on, or not at all. */
static int start_job(struct mt_guard *guard, struct mt_error *error)
{
    struct mt_job_options job = {.argv = guard->options.argv,
                                 .devices = guard->options.devices,
                                 .n_devices = guard->options.n_devices,
                                 .environment = guard->options.environment,
                                 .cap = MT_JOB_CAP_GROUP,
                                 .host_bytes = hold_bytes(guard),
                                 .waits_at_cap = 1,
                                 .stdout_fd = -1,
                                 .stderr_fd = -1};
    guard->ladder.is_held =
        guard->options.limit_bytes && mt_job_start(&job, &guard->job, NULL) == 0;
    if (guard->ladder.is_held)
        return 0;
    job.cap = MT_JOB_CAP_NONE;
    return mt_job_start(&job, &guard->job, error);
}

/* The kernel tells when the use of a group of version 1 passes a share of its limit: where steps
 * begin. */
static void open_alarm(struct mt_guard *guard)
{
    double ratio = (double)guard->ladder.act_bytes / (double)hold_bytes(guard);
    struct mt_alarm_options options = {.near_ratio = guard->ladder.is_held ? ratio : 0};
    struct mt_alarm_counts counts = {0};
    guard->end_fd = (int)syscall(SYS_pidfd_open, mt_guard_pid(guard), 0);
    if (guard->end_fd < 0 || mt_alarm_open(mt_guard_pid(guard), &options, &guard->alarm, NULL) < 0)
        return;
    mt_alarm_read(guard->alarm, &counts);
    guard->is_told_near = guard->ladder.is_held && counts.is_waited_for[MT_ALARM_NEAR];
}

int mt_guard_start(const struct mt_guard_options *options, struct mt_guard **guard,
                   struct mt_error *error)
{
    int status = check(options, error);
    status = status ? status : check_devices(options, error);
    struct mt_guard *made = status ? NULL : calloc(1, sizeof *made);
    if (status == 0 && !made)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory for a guard");
    if (status)
        return status;
    made->options = *options;
    mt_group_os_init(&made->os);
    made->start_ns = now_ns(made);
    made->growth.full_ns = made->growth.full_low_ns = MT_UNKNOWN;
    set_ladders(made);
    status = options->argv ? start_job(made, error)
                           : mt_process_read(&made->os.host, options->pid, &made->found, error);
    if (status) {
        free(made);
        return status;
    }
    if (made->job)
        watch_group(made);
    open_alarm(made);
    *guard = made;
    return 0;
}

int mt_guard_pid(const struct mt_guard *guard)
{
    return guard->job ? (int)guard->job->pid : guard->options.pid;
}

struct mt_job *mt_guard_job(const struct mt_guard *guard)
{
    return guard->job;
}

/* ---- steps ---- */

/* Calls each(pid) for the processes of the program. */
static void signal_all(struct mt_guard *guard, int number)
{
    if (guard->job) {
        mt_job_find_processes(guard->job);
        for (size_t i = 0; i < guard->job->n_pids; i++)
            guard->os.signal(guard->os.context, guard->job->pids[i], number);
        return;
    }
    /* Leaves nobody out. Where there is no memory for it, the program itself has the signal. */
    if (mt_process_tree(&guard->os.host, guard->options.pid, &guard->tree, NULL) < 0)
        guard->os.signal(guard->os.context, guard->options.pid, number);
    for (size_t i = 0; i < guard->tree.n; i++)
        if (guard->tree.items[i].pid != guard->os.pid)
            guard->os.signal(guard->os.context, guard->tree.items[i].pid, number);
}

static void freeze(struct mt_guard *guard, int is_frozen)
{
    if (guard->job && guard->job->group.version == 2 &&
        mt_group_freeze(&guard->os, &guard->job->group, is_frozen, NULL) == 0)
        return;
    signal_all(guard, is_frozen ? SIGSTOP : SIGCONT);
}

static void kill_all(struct mt_guard *guard)
{
    if (guard->job && guard->job->group.version)
        mt_group_kill(&guard->os, &guard->job->group);
    else
        signal_all(guard, SIGKILL);
}

static void signal_program(struct mt_guard *guard, int number)
{
    guard->os.signal(guard->os.context, mt_guard_pid(guard), number);
}

static void *ask_it(void *context)
{
    struct question *question = context;
    question->ask(question->context, question->used_bytes);
    atomic_store(&question->is_answered, 1);
    return NULL;
}

static void end_question(struct mt_guard *guard)
{
    if (guard->question)
        pthread_join(guard->question->thread, NULL);
    free(guard->question);
    guard->question = NULL;
}

/* Where the last question is still under way, or there is no thread for it, nothing is asked. */
static void ask(struct mt_guard *guard, uint64_t used_bytes)
{
    sigset_t all;
    sigset_t before;
    if (guard->question && !atomic_load(&guard->question->is_answered))
        return;
    end_question(guard);
    struct question *question = calloc(1, sizeof *question);
    if (!question)
        return;
    question->ask = guard->options.ask;
    question->context = guard->options.context;
    question->used_bytes = used_bytes;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&question->thread, NULL, ask_it, question);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        free(question);
    else
        guard->question = question;
}

static void do_step(struct mt_guard *guard, enum mt_guard_step step, uint64_t used_bytes)
{
    switch (step) {
    case MT_GUARD_CALL:
        guard->options.call(guard->options.context, used_bytes);
        break;
    case MT_GUARD_SIGNAL:
        signal_program(guard, guard->options.signal);
        give_room(guard, 0);
        break;
    case MT_GUARD_ASK:
        give_room(guard, 0); /* a server answers with some */
        ask(guard, used_bytes);
        break;
    case MT_GUARD_FREEZE:
        freeze(guard, 1);
        break;
    case MT_GUARD_END:
        signal_program(guard, SIGTERM);
        give_room(guard, more_to_end(guard));
        break;
    default:
        kill_all(guard);
        break;
    }
}

/* A program that stood still has its signal before it goes on. */
static void do_due(struct mt_guard *guard, unsigned due, const struct mt_guard_act *place)
{
    for (unsigned step = 0; step < MT_N_GUARD_STEPS; step++) {
        if (!(due & 1u << step))
            continue;
        struct mt_guard_act *act = &guard->acts[guard->n_acts++ % MT_GUARD_ACTS];
        *act = *place;
        act->step = (enum mt_guard_step)step;
        act->elapsed_ns = now_ns(guard) - guard->start_ns;
        do_step(guard, act->step, place->used_bytes);
    }
    if (due & MT_LADDER_THAW)
        freeze(guard, 0);
}

/* Takes what was seen of a place into the last step that was taken for it, and takes the next. */
static void look_at_place(struct mt_guard *guard, struct mt_ladder *ladder, int device,
                          uint64_t used_bytes)
{
    struct mt_guard_act place = {.device = device,
                                 .limit_bytes = ladder->limit_bytes,
                                 .used_bytes = used_bytes,
                                 .least_bytes = used_bytes};
    struct mt_guard_act *last =
        guard->n_acts ? &guard->acts[(guard->n_acts - 1) % MT_GUARD_ACTS] : NULL;
    if (last && last->device == device && used_bytes < last->least_bytes)
        last->least_bytes = used_bytes;
    do_due(guard, mt_ladder_look(ladder, now_ns(guard), used_bytes), &place);
}

/* What else the program started may take the room that the program has to end in. It stands still
 * then, and the program has as much again. */
static void keep_room(struct mt_guard *guard)
{
    uint64_t more = more_to_end(guard);
    uint64_t room = guard->options.limit_bytes + more;
    if (guard->ladder.next <= MT_GUARD_END || !guard->ladder.is_held || guard->others_stand ||
        guard->used_bytes < room - more / 2)
        return;
    mt_job_find_processes(guard->job);
    for (size_t i = 0; i < guard->job->n_pids; i++)
        if (guard->job->pids[i] != (int)guard->job->pid)
            guard->os.signal(guard->os.context, guard->job->pids[i], SIGSTOP);
    guard->others_stand = 1;
    give_room(guard, 2 * more);
}

/* ---- looking ---- */

static unsigned wait_ms(const struct mt_guard *guard)
{
    int is_told = guard->is_told_near && !guard->ladder.is_acting && !guard->options.n_devices;
    unsigned most = is_told ? MOST_TOLD_MS : MOST_WAIT_MS;
    uint64_t limit = guard->ladder.limit_bytes;
    uint64_t left = guard->used_bytes < limit ? limit - guard->used_bytes : 0;
    uint64_t ms = left / BYTES_PER_MS;
    return (unsigned)(ms < LEAST_WAIT_MS ? LEAST_WAIT_MS : ms > most ? most : ms);
}

/* Whether the pid is still that program, and what it and its descendants hold. */
static int look_at_pid(struct mt_guard *guard)
{
    struct mt_process now;
    const struct mt_host_os *host = &guard->os.host;
    if (mt_process_read(host, guard->options.pid, &now, NULL) != 0 ||
        now.start_ticks != guard->found.start_ticks || now.state == 'Z' || now.state == 'X')
        return 0;
    mt_process_descendants(host, guard->options.pid, &guard->tree, NULL);
    guard->used_bytes = 0;
    for (size_t i = 0; i < guard->tree.n; i++) {
        uint64_t bytes = mt_process_resident_bytes(host, guard->tree.items[i].pid);
        guard->used_bytes += bytes == MT_UNKNOWN ? 0 : bytes;
    }
    return 1;
}

static int look_at_job(struct mt_guard *guard, unsigned timeout_ms)
{
    struct mt_job_status status;
    mt_job_wait(guard->job, (int)timeout_ms, &status);
    uint64_t used = guard->job->group.version ? used_by_group(guard) : MT_UNKNOWN;
    if (status.running)
        guard->used_bytes = used == MT_UNKNOWN ? status.host_bytes : used;
    memcpy(guard->device_bytes, status.device_bytes, sizeof guard->device_bytes);
    return status.running;
}

static void sleep_ms(unsigned ms)
{
    const struct timespec moment = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&moment, NULL);
}

static uint64_t n_told(const struct mt_guard *guard)
{
    struct mt_alarm_counts counts;
    uint64_t n = 0;
    mt_alarm_read(guard->alarm, &counts);
    for (int kind = 0; kind < MT_N_ALARMS; kind++)
        n += counts.n[kind];
    return n;
}

/* A kernel that tells again and again makes no look sooner than the shortest wait. */
static void wait_for_alarm(struct mt_guard *guard, unsigned ms)
{
    uint64_t before = n_told(guard);
    mt_alarm_wait_beside(guard->alarm, guard->end_fd, (uint64_t)ms * 1000000);
    if (n_told(guard) == before)
        return;
    guard->n_alarms++;
    sleep_ms(LEAST_WAIT_MS);
}

static int wait_and_look(struct mt_guard *guard)
{
    unsigned ms = guard->n_looks++ ? wait_ms(guard) : 0;
    if (guard->alarm)
        wait_for_alarm(guard, ms);
    if (guard->job)
        return look_at_job(guard, guard->alarm ? 0 : ms);
    if (!guard->alarm)
        sleep_ms(ms);
    return look_at_pid(guard);
}

static void follow_growth(struct mt_guard *guard)
{
    uint64_t limit = guard->ladder.limit_bytes;
    enum mt_leak before = guard->growth.leak;
    if (!mt_growth_add(&guard->bins, now_ns(guard), guard->used_bytes))
        return;
    mt_growth_of(&guard->bins, limit > guard->used_bytes ? limit - guard->used_bytes : 0,
                 &guard->growth);
    guard->n_leaks += before == MT_LEAK_NONE && guard->growth.leak != MT_LEAK_NONE;
}

void mt_guard_wait(struct mt_guard *guard, struct mt_guard_status *status)
{
    int running = wait_and_look(guard);
    if (running) {
        if (guard->used_bytes > guard->peak_bytes)
            guard->peak_bytes = guard->used_bytes;
        follow_growth(guard);
        look_at_place(guard, &guard->ladder, MT_GUARD_HOST, guard->used_bytes);
        for (size_t i = 0; i < guard->options.n_devices; i++)
            if (guard->device_bytes[i] != MT_UNKNOWN)
                look_at_place(guard, &guard->device_ladders[i], (int)guard->devices[i].index,
                              guard->device_bytes[i]);
        take_room_back(guard);
        keep_room(guard);
    }
    *status = (struct mt_guard_status){running, guard->used_bytes, guard->n_acts, guard->n_leaks,
                                       guard->growth};
}

size_t mt_guard_acts(const struct mt_guard *guard, struct mt_guard_act *acts, size_t capacity)
{
    size_t kept = guard->n_acts < MT_GUARD_ACTS ? guard->n_acts : MT_GUARD_ACTS;
    size_t n = kept < capacity ? kept : capacity;
    for (size_t i = 0; i < n; i++)
        acts[i] = guard->acts[(guard->n_acts - n + i) % MT_GUARD_ACTS];
    return n;
}

void mt_guard_finish(struct mt_guard *guard, struct mt_guard_result *result)
{
    struct mt_guard_result found = {.is_held = guard->ladder.is_held,
                                    .peak_bytes = guard->peak_bytes,
                                    .n_acts = guard->n_acts,
                                    .n_looks = guard->n_looks,
                                    .n_alarms = guard->n_alarms};
    mt_guard_acts(guard, found.acts, MT_GUARD_ACTS);
    int is_frozen = guard->ladder.is_frozen;
    for (size_t i = 0; i < guard->options.n_devices; i++)
        is_frozen |= guard->device_ladders[i].is_frozen;
    if (is_frozen)
        freeze(guard, 0);
    mt_level_finish(&guard->level);
    mt_alarm_close(guard->alarm);
    if (guard->end_fd >= 0)
        close(guard->end_fd);
    end_question(guard);
    if (guard->job) {
        if (guard->ladder.is_held)
            limit_group(guard, NO_LIMIT_BYTES, 1);
        mt_job_finish(guard->job, &found.job);
    }
    mt_process_list_finish(&guard->tree);
    free(guard);
    *result = found;
}
