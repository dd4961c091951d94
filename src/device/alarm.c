/* SPDX-License-Identifier: MIT */
/* What the kernel tells without being asked. A stall is a trigger written into a file of pressure
 * stall information, which is then polled. A group of version 2 has memory.events, which polls as
 * changed until it is read from its begin. A group of version 1 writes into an event descriptor
 * that was registered with it: at a mark of its use, and where it is out of memory. */
#include "device/alarm.h"

#include <memtally/units.h>

#include "base/error.h"
#include "device/cgroup.h"
#include "device/span.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STALL_NS     150000000u
#define WINDOW_NS    2000000000u /* and what other windows are multiples of */
#define LEAST_WINDOW 500000000u
#define MOST_WINDOW  10000000000u
#define NEAR_RATIO   0.85
#define NS_PER_US    1000u
#define SOURCES      4

enum how { TRIGGER, EVENTS, MARK, OUT_OF_MEMORY };

struct source {
    enum how how;
    enum mt_alarm_kind kind;
    int fd;
};

struct events {
    uint64_t high;
    uint64_t max;
    uint64_t oom;
    uint64_t oom_kill;
};

struct mt_alarm {
    struct mt_alarm_os os;
    struct mt_cgroup cgroup;
    struct mt_alarm_options options;
    size_t n_sources;
    struct source sources[SOURCES];
    uint64_t mark_bytes;
    struct events seen;
    struct mt_alarm_counts counts;
};

const char *mt_alarm_kind_name(enum mt_alarm_kind kind)
{
    static const char *const names[MT_N_ALARMS] = {"stall", "group_stall", "near", "oom"};
    return kind < MT_N_ALARMS ? names[kind] : "?";
}

static int open_in_group(const struct mt_alarm *alarm, const char *name, int flags)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", alarm->cgroup.directory, name);
    return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG
                                  : alarm->os.open_file(alarm->os.context, path, flags);
}

static void close_file(const struct mt_alarm *alarm, int fd)
{
    if (fd >= 0)
        alarm->os.close_file(alarm->os.context, fd);
}

static void add_source(struct mt_alarm *alarm, enum how how, enum mt_alarm_kind kind, int fd)
{
    alarm->sources[alarm->n_sources++] = (struct source){how, kind, fd};
    alarm->counts.is_waited_for[kind] = 1;
    if (how == EVENTS)
        alarm->counts.is_waited_for[MT_ALARM_OOM] = 1;
}

/* ---- stalls ---- */

static int write_trigger(const struct mt_alarm *alarm, int fd, uint64_t stall_ns,
                         uint64_t window_ns)
{
    char text[64];
    int n = snprintf(text, sizeof text, "some %" PRIu64 " %" PRIu64, stall_ns / NS_PER_US,
                     window_ns / NS_PER_US);
    /* The kernel takes the last byte for the end. */
    return (int)alarm->os.write_file(alarm->os.context, fd, text, (size_t)n + 1);
}

static void add_trigger(struct mt_alarm *alarm, enum mt_alarm_kind kind, int fd)
{
    const struct mt_alarm_options *options = &alarm->options;
    if (fd < 0)
        return;
    uint64_t window_ns = options->window_ns;
    int written = write_trigger(alarm, fd, options->stall_ns, window_ns);
    if (written < 0 && window_ns % WINDOW_NS) {
        window_ns += WINDOW_NS - window_ns % WINDOW_NS;
        written = write_trigger(
            alarm, fd,
            (uint64_t)((double)options->stall_ns * (double)window_ns / (double)options->window_ns),
            window_ns);
    }
    if (written < 0) {
        close_file(alarm, fd);
        return;
    }
    alarm->counts.window_ns = window_ns;
    add_source(alarm, TRIGGER, kind, fd);
}

/* ---- groups of version 2 ---- */

static int read_events(const struct mt_alarm *alarm, int fd, struct events *events)
{
    static const struct mt_field fields[] = {{"high", offsetof(struct events, high)},
                                             {"max", offsetof(struct events, max)},
                                             {"oom", offsetof(struct events, oom)},
                                             {"oom_kill", offsetof(struct events, oom_kill)}};
    char bytes[512];
    long n = alarm->os.read_begin(alarm->os.context, fd, bytes, sizeof bytes);
    if (n < 0)
        return (int)n;
    *events = alarm->seen;
    mt_span_fields((struct mt_span){bytes, bytes + n}, fields, 4, events);
    return 0;
}

/* Reading it once is what makes it wait. */
static void add_events(struct mt_alarm *alarm)
{
    int fd = open_in_group(alarm, "memory.events", O_RDONLY);
    if (fd < 0)
        return;
    if (read_events(alarm, fd, &alarm->seen) < 0)
        close_file(alarm, fd);
    else
        add_source(alarm, EVENTS, MT_ALARM_NEAR, fd);
}

static uint64_t grown(uint64_t before, uint64_t now)
{
    return now > before ? now - before : 0;
}

static int take_events(struct mt_alarm *alarm, const struct source *source)
{
    struct events now;
    int failed = read_events(alarm, source->fd, &now);
    if (failed)
        return failed;
    alarm->counts.n[MT_ALARM_NEAR] +=
        grown(alarm->seen.high, now.high) + grown(alarm->seen.max, now.max);
    /* A group that kills as a whole counts each process that it kills, but one shortage. */
    uint64_t kills = grown(alarm->seen.oom_kill, now.oom_kill);
    uint64_t shortages = grown(alarm->seen.oom, now.oom);
    alarm->counts.n[MT_ALARM_OOM] += shortages ? shortages : kills;
    alarm->seen = now;
    return 0;
}

/* ---- groups of version 1 ---- */

/* Has the group write into a counter: "COUNTER FILE ARGUMENT" into its control file. */
static int register_counter(const struct mt_alarm *alarm, const char *name, uint64_t mark_bytes)
{
    char text[80];
    int control = open_in_group(alarm, "cgroup.event_control", O_WRONLY);
    int file = open_in_group(alarm, name, O_RDONLY);
    int counter = alarm->os.make_counter(alarm->os.context);
    int n = snprintf(text, sizeof text, "%d %d %" PRIu64, counter, file, mark_bytes);
    int is_registered = control >= 0 && file >= 0 && counter >= 0 &&
                        alarm->os.write_file(alarm->os.context, control, text, (size_t)n) >= 0;
    close_file(alarm, control);
    close_file(alarm, file);
    if (is_registered)
        return counter;
    close_file(alarm, counter);
    return -ENOTSUP;
}

static void add_counters(struct mt_alarm *alarm)
{
    struct mt_host_sample sample;
    int fd = register_counter(alarm, "memory.oom_control", 0);
    if (fd >= 0)
        add_source(alarm, OUT_OF_MEMORY, MT_ALARM_OOM, fd);
    if (mt_host_read(&alarm->os.host, &alarm->cgroup, &sample, NULL) != 0 ||
        sample.cgroup_limit_bytes == MT_UNKNOWN)
        return;
    alarm->mark_bytes = (uint64_t)((double)sample.cgroup_limit_bytes * alarm->options.near_ratio);
    fd = register_counter(alarm, "memory.usage_in_bytes", alarm->mark_bytes);
    if (fd >= 0)
        add_source(alarm, MARK, MT_ALARM_NEAR, fd);
}

/* A group that is removed wakes everyone, and so does a mark that is passed downwards. */
static int take_counter(struct mt_alarm *alarm, const struct source *source)
{
    struct mt_host_sample sample;
    uint64_t count = 0;
    long failed = alarm->os.take_count(alarm->os.context, source->fd, &count);
    if (failed < 0)
        return failed == -EAGAIN ? 0 : (int)failed;
    if (mt_host_read(&alarm->os.host, &alarm->cgroup, &sample, NULL) != 0 ||
        sample.cgroup_usage_bytes == MT_UNKNOWN)
        return -ENODEV;
    if (source->how == OUT_OF_MEMORY)
        alarm->counts.n[MT_ALARM_OOM] += count;
    else if (sample.cgroup_usage_bytes >= alarm->mark_bytes)
        alarm->counts.n[MT_ALARM_NEAR]++;
    return 0;
}

/* ---- opening and closing ---- */

static int check_options(const struct mt_alarm_options *options, struct mt_error *error)
{
    int is_right = options->stall_ns <= options->window_ns && options->window_ns >= LEAST_WINDOW &&
                   options->window_ns <= MOST_WINDOW && options->near_ratio >= 0 &&
                   options->near_ratio <= 1;
    return is_right
               ? 0
               : mt_fail(error, MT_EARG, MT_NO_OFFSET,
                         "an alarm's window is 0.5 to 10 s, its stall no longer than that, and "
                         "its ratio between 0 and 1");
}

int mt_alarm_open_with(const struct mt_alarm_os *os, int pid,
                       const struct mt_alarm_options *options, struct mt_alarm **alarm,
                       struct mt_error *error)
{
    struct mt_alarm_options chosen = options ? *options : (struct mt_alarm_options){0};
    chosen.stall_ns = chosen.stall_ns ? chosen.stall_ns : STALL_NS;
    chosen.window_ns = chosen.window_ns ? chosen.window_ns : WINDOW_NS;
    chosen.near_ratio = chosen.near_ratio == 0 ? NEAR_RATIO : chosen.near_ratio;
    int status = check_options(&chosen, error);
    struct mt_alarm *made = status ? NULL : calloc(1, sizeof *made);
    if (status)
        return status;
    if (!made)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory for an alarm");
    made->os = *os;
    made->options = chosen;
    mt_cgroup_find(&os->host, pid, &made->cgroup);
    add_trigger(made, MT_ALARM_STALL, os->open_file(os->context, "/proc/pressure/memory", O_RDWR));
    if (made->cgroup.version == 2) {
        add_trigger(made, MT_ALARM_GROUP_STALL, open_in_group(made, "memory.pressure", O_RDWR));
        add_events(made);
    } else if (made->cgroup.version == 1) {
        add_counters(made);
    }
    if (made->n_sources == 0) {
        free(made);
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "this kernel tells nobody that memory is short; look from time to time");
    }
    *alarm = made;
    return 0;
}

int mt_alarm_open(int pid, const struct mt_alarm_options *options, struct mt_alarm **alarm,
                  struct mt_error *error)
{
    struct mt_alarm_os os;
    mt_alarm_os_init(&os);
    return mt_alarm_open_with(&os, pid, options, alarm, error);
}

void mt_alarm_read(const struct mt_alarm *alarm, struct mt_alarm_counts *counts)
{
    *counts = alarm->counts;
}

void mt_alarm_close(struct mt_alarm *alarm)
{
    if (!alarm)
        return;
    for (size_t i = 0; i < alarm->n_sources; i++)
        close_file(alarm, alarm->sources[i].fd);
    free(alarm);
}

/* ---- waiting ---- */

static int take(struct mt_alarm *alarm, const struct source *source, short events)
{
    if (source->how == EVENTS)
        return take_events(alarm, source);
    if (source->how != TRIGGER)
        return take_counter(alarm, source);
    if (events & POLLPRI)
        alarm->counts.n[source->kind]++;
    return events & POLLERR ? -ENODEV : 0;
}

/* Who waits for a source that is gone would be woken at once for ever. */
static void drop(struct mt_alarm *alarm, size_t at)
{
    close_file(alarm, alarm->sources[at].fd);
    alarm->counts.is_waited_for[alarm->sources[at].kind] = 0;
    if (alarm->sources[at].how == EVENTS)
        alarm->counts.is_waited_for[MT_ALARM_OOM] = 0;
    alarm->n_sources--;
    memmove(alarm->sources + at, alarm->sources + at + 1,
            (alarm->n_sources - at) * sizeof *alarm->sources);
}

/* Returns how many happened, among them that `fd` can be read; -1 is none. */
static int wait_for(struct mt_alarm *alarm, int fd, uint64_t timeout_ns)
{
    struct pollfd polled[SOURCES + 1];
    size_t n = alarm->n_sources;
    for (size_t i = 0; i < n; i++) {
        int is_counter = alarm->sources[i].how == MARK || alarm->sources[i].how == OUT_OF_MEMORY;
        polled[i] = (struct pollfd){alarm->sources[i].fd, is_counter ? POLLIN : POLLPRI, 0};
    }
    polled[n] = (struct pollfd){fd, POLLIN, 0};
    int ready = alarm->os.wait(alarm->os.context, polled, n + (fd >= 0), timeout_ns);
    for (size_t i = n; ready > 0 && i > 0; i--)
        if (polled[i - 1].revents && take(alarm, &alarm->sources[i - 1], polled[i - 1].revents) < 0)
            drop(alarm, i - 1);
    return ready;
}

int mt_alarm_wait(struct mt_alarm *alarm, uint64_t timeout_ns, struct mt_alarm_counts *counts,
                  struct mt_error *error)
{
    if (alarm->n_sources == 0)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET, "nothing is left to wait for");
    int ready = wait_for(alarm, -1, timeout_ns);
    if (counts)
        *counts = alarm->counts;
    return ready == 0 ? mt_fail(error, MT_ETIMEOUT, MT_NO_OFFSET, "memory is not short") : 0;
}

int mt_alarm_wait_beside(struct mt_alarm *alarm, int fd, uint64_t timeout_ns)
{
    return wait_for(alarm, fd, timeout_ns) == 0 ? MT_ETIMEOUT : 0;
}
