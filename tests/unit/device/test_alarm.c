/* SPDX-License-Identifier: MIT */
/* Alarms on made machines of both versions, and on this one's kernel where it lets groups be made.
 */
#include <memtally/units.h>

#include "tests/support/group_join.h"
#include "tests/support/unit.h"

#include "device/alarm.h"
#include "device/group.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB      (1ull << 20)
#define SECOND   1000000000ull
#define MOST_FDS 16

/* ---- a made machine ---- */

static struct {
    int version;
    int is_privileged; /* may have windows of any length */
    int is_gone;       /* the group */
    uint64_t usage_bytes;
    const char *events;
    char paths[MOST_FDS][64];
    int is_open[MOST_FDS];
    char written[MOST_FDS][96];
    uint64_t counters[MOST_FDS];
    short revents[MOST_FDS];
    unsigned n_calls, failing_call; /* the n-th call fails; 0: none */
} made;

static int fails(void)
{
    return ++made.n_calls == made.failing_call;
}

static int new_file(const char *path)
{
    for (int fd = 0; fd < MOST_FDS; fd++)
        if (!made.is_open[fd]) {
            made.is_open[fd] = 1;
            made.counters[fd] = 0;
            made.revents[fd] = 0;
            snprintf(made.paths[fd], sizeof made.paths[fd], "%s", path);
            return fd;
        }
    return -EMFILE;
}

static long made_read_file(void *context, const char *path, char *bytes, size_t capacity)
{
    const char *one = made.version == 1 ? "4:memory:/a\n" : "0::/a\n";
    const char *mounts = made.version == 1 ? "1 1 0:1 / /cg rw - cgroup cgroup rw,memory\n"
                                           : "1 1 0:1 / /cg rw - cgroup2 cgroup2 rw\n";
    char text[256] = "";
    (void)context;
    if (strcmp(path, "/proc/self/cgroup") == 0)
        snprintf(text, sizeof text, "%s", one);
    else if (strcmp(path, "/proc/self/mountinfo") == 0)
        snprintf(text, sizeof text, "%s", mounts);
    else if (strcmp(path, "/proc/meminfo") == 0)
        snprintf(text, sizeof text, "MemTotal: 4194304 kB\nMemAvailable: 2097152 kB\n");
    else if (!made.is_gone && strstr(path, "/cg/a/memory.usage_in_bytes"))
        snprintf(text, sizeof text, "%" PRIu64 "\n", made.usage_bytes);
    else if (!made.is_gone && strstr(path, "/cg/a/memory.limit_in_bytes"))
        snprintf(text, sizeof text, "%llu\n", 100 * MIB);
    else if (!made.is_gone && strstr(path, "/cg/a/memory.current"))
        snprintf(text, sizeof text, "%" PRIu64 "\n", made.usage_bytes);
    if (!*text)
        return -ENOENT;
    size_t n = strlen(text) < capacity ? strlen(text) : capacity;
    memcpy(bytes, text, n);
    return (long)n;
}

static int made_open_file(void *context, const char *path, int flags)
{
    (void)context;
    (void)flags;
    return fails() ? -EACCES : new_file(path);
}

static long made_write_file(void *context, int fd, const char *bytes, size_t n)
{
    uint64_t stall, window;
    (void)context;
    if (fails())
        return -EPERM;
    memcpy(made.written[fd], bytes, n);
    made.written[fd][n] = '\0';
    if (sscanf(bytes, "some %" SCNu64 " %" SCNu64, &stall, &window) == 2 && !made.is_privileged &&
        window % 2000000)
        return -EINVAL;
    return (long)n;
}

static long made_read_begin(void *context, int fd, char *bytes, size_t n)
{
    (void)context;
    if (fails() || made.is_gone)
        return -ENODEV;
    assert_true(made.is_open[fd]);
    return snprintf(bytes, n, "%s", made.events);
}

static int made_make_counter(void *context)
{
    (void)context;
    return fails() ? -EMFILE : new_file("counter");
}

static long made_take_count(void *context, int fd, uint64_t *count)
{
    (void)context;
    *count = made.counters[fd];
    made.counters[fd] = 0;
    return *count ? 8 : -EAGAIN;
}

static int made_wait(void *context, struct pollfd *polled, size_t n, uint64_t timeout_ns)
{
    int ready = 0;
    (void)context;
    (void)timeout_ns;
    for (size_t i = 0; i < n; i++) {
        polled[i].revents =
            (short)(made.revents[polled[i].fd] & (polled[i].events | POLLERR | POLLHUP));
        ready += polled[i].revents != 0;
    }
    return ready;
}

static void made_close_file(void *context, int fd)
{
    (void)context;
    assert_true(made.is_open[fd]);
    made.is_open[fd] = 0;
}

static struct mt_alarm_os make_machine(int version)
{
    struct mt_alarm_os os;
    memset(&made, 0, sizeof made);
    made.version = version;
    made.events = "low 0\nhigh 5\nmax 7\noom 1\noom_kill 1\n";
    mt_alarm_os_init(&os);
    os.host.read_file = made_read_file;
    os.open_file = made_open_file;
    os.write_file = made_write_file;
    os.read_begin = made_read_begin;
    os.make_counter = made_make_counter;
    os.take_count = made_take_count;
    os.wait = made_wait;
    os.close_file = made_close_file;
    return os;
}

static int file_of(const char *path)
{
    for (int fd = 0; fd < MOST_FDS; fd++)
        if (made.is_open[fd] && strcmp(made.paths[fd], path) == 0)
            return fd;
    return -1;
}

static int n_open(void)
{
    int n = 0;
    for (int fd = 0; fd < MOST_FDS; fd++)
        n += made.is_open[fd];
    return n;
}

/* ---- tests ---- */

static void test_a_window_that_only_the_privileged_get_is_rounded_up_with_its_stall(void **state)
{
    struct mt_alarm_os os = make_machine(2);
    struct mt_alarm_options options = {.stall_ns = SECOND / 10, .window_ns = SECOND};
    struct mt_alarm *alarm;
    struct mt_alarm_counts counts;
    (void)state;
    assert_int_equal(mt_alarm_open_with(&os, 0, &options, &alarm, NULL), 0);
    mt_alarm_read(alarm, &counts);
    assert_int_equal(counts.window_ns, 2 * SECOND);
    assert_string_equal(made.written[file_of("/proc/pressure/memory")], "some 200000 2000000");
    assert_string_equal(made.written[file_of("/cg/a/memory.pressure")], "some 200000 2000000");
    mt_alarm_close(alarm);
    assert_int_equal(n_open(), 0);

    os = make_machine(2);
    made.is_privileged = 1;
    assert_int_equal(mt_alarm_open_with(&os, 0, &options, &alarm, NULL), 0);
    mt_alarm_read(alarm, &counts);
    assert_int_equal(counts.window_ns, SECOND);
    assert_string_equal(made.written[file_of("/proc/pressure/memory")], "some 100000 1000000");
    mt_alarm_close(alarm);
}

static void test_events_of_version_2_are_counted_from_the_opening_on(void **state)
{
    struct mt_alarm_os os = make_machine(2);
    struct mt_alarm *alarm;
    struct mt_alarm_counts counts;
    (void)state;
    assert_int_equal(mt_alarm_open_with(&os, 0, NULL, &alarm, NULL), 0);
    assert_int_equal(mt_alarm_wait(alarm, SECOND, &counts, NULL), MT_ETIMEOUT);
    made.revents[file_of("/cg/a/memory.events")] = POLLPRI | POLLERR;
    made.events = "low 0\nhigh 8\nmax 9\noom 2\noom_kill 4\noom_group_kill 1\n";
    made.revents[file_of("/cg/a/memory.pressure")] = POLLPRI;
    assert_int_equal(mt_alarm_wait(alarm, SECOND, &counts, NULL), 0);
    assert_int_equal(counts.n[MT_ALARM_NEAR], 3 + 2);
    assert_int_equal(counts.n[MT_ALARM_OOM], 1);
    assert_int_equal(counts.n[MT_ALARM_GROUP_STALL], 1);
    assert_int_equal(counts.n[MT_ALARM_STALL], 0);
    /* Someone above is short, and the kernel kills here. */
    made.events = "low 0\nhigh 8\nmax 9\noom 2\noom_kill 6\n";
    assert_int_equal(mt_alarm_wait(alarm, SECOND, &counts, NULL), 0);
    assert_int_equal(counts.n[MT_ALARM_OOM], 3);
    mt_alarm_close(alarm);
    assert_int_equal(n_open(), 0);
}

static void test_a_group_of_version_1_tells_by_counters(void **state)
{
    struct mt_alarm_os os = make_machine(1);
    struct mt_alarm *alarm;
    struct mt_alarm_counts counts;
    char expected[96];
    (void)state;
    assert_int_equal(mt_alarm_open_with(&os, 0, NULL, &alarm, NULL), 0);
    int oom = 1; /* files are numbered from 0, the first is that of stalls */
    while (strcmp(made.paths[oom], "counter") != 0 || !made.is_open[oom])
        oom++;
    int mark = oom + 1;
    while (strcmp(made.paths[mark], "counter") != 0 || !made.is_open[mark])
        mark++;
    made.revents[mark] = POLLIN;
    made.counters[mark] = 1;
    made.usage_bytes = 85 * MIB;
    assert_int_equal(mt_alarm_wait(alarm, SECOND, &counts, NULL), 0);
    assert_int_equal(counts.n[MT_ALARM_NEAR], 1);
    made.counters[mark] = 1;
    made.usage_bytes = 80 * MIB; /* passed downwards */
    assert_int_equal(mt_alarm_wait(alarm, SECOND, &counts, NULL), 0);
    assert_int_equal(counts.n[MT_ALARM_NEAR], 1);
    made.revents[oom] = POLLIN;
    made.counters[oom] = 2;
    assert_int_equal(mt_alarm_wait(alarm, SECOND, &counts, NULL), 0);
    assert_int_equal(counts.n[MT_ALARM_OOM], 2);
    assert_int_equal(counts.is_waited_for[MT_ALARM_GROUP_STALL], 0);
    snprintf(expected, sizeof expected, " %llu", 85 * MIB);
    int is_written = 0;
    for (int fd = 0; fd < MOST_FDS; fd++)
        is_written |= strstr(made.written[fd], expected) != NULL;
    assert_true(is_written);
    mt_alarm_close(alarm);
    assert_int_equal(n_open(), 0);
}

static void test_a_group_that_is_gone_is_waited_for_no_more(void **state)
{
    (void)state;
    for (int version = 1; version <= 2; version++) {
        struct mt_alarm_os os = make_machine(version);
        struct mt_alarm *alarm;
        struct mt_alarm_counts counts;
        assert_int_equal(mt_alarm_open_with(&os, 0, NULL, &alarm, NULL), 0);
        made.is_gone = 1;
        for (int fd = 0; fd < MOST_FDS; fd++) {
            made.revents[fd] = version == 1 ? POLLIN : POLLPRI | POLLERR;
            made.counters[fd] = 1;
        }
        made.revents[file_of("/proc/pressure/memory")] = 0;
        assert_int_equal(mt_alarm_wait(alarm, SECOND, &counts, NULL), 0);
        assert_int_equal(counts.n[MT_ALARM_NEAR] + counts.n[MT_ALARM_OOM], 0);
        assert_int_equal(counts.is_waited_for[MT_ALARM_STALL], 1);
        assert_int_equal(counts.is_waited_for[MT_ALARM_NEAR], 0);
        assert_int_equal(counts.is_waited_for[MT_ALARM_OOM], 0);
        assert_int_equal(n_open(), 1);
        made.revents[file_of("/proc/pressure/memory")] = POLLERR;
        assert_int_equal(mt_alarm_wait(alarm, SECOND, &counts, NULL), 0);
        assert_int_equal(counts.n[MT_ALARM_STALL], 0);
        assert_int_equal(mt_alarm_wait(alarm, SECOND, &counts, NULL), MT_EUNSUPPORTED);
        mt_alarm_close(alarm);
        assert_int_equal(n_open(), 0);
    }
}

/* Whatever fails is left out, and nothing stays open. */
static void test_each_call_may_fail(void **state)
{
    (void)state;
    for (int version = 0; version <= 2; version++) {
        unsigned n = 1;
        for (int is_failing = 1; is_failing; n++) {
            struct mt_alarm_os os = make_machine(version);
            struct mt_alarm *alarm = NULL;
            made.failing_call = n;
            int status = mt_alarm_open_with(&os, 0, NULL, &alarm, NULL);
            assert_true(status == 0 || status == MT_EUNSUPPORTED);
            assert_true((status == 0) == (alarm != NULL));
            is_failing = made.n_calls >= n;
            mt_alarm_close(alarm);
            assert_int_equal(n_open(), 0);
        }
        assert_true(n > (version ? 6 : 2));
    }
}

static void test_what_is_no_window_is_refused(void **state)
{
    static const struct mt_alarm_options bad[] = {
        {.stall_ns = 3 * SECOND}, {.window_ns = SECOND / 4}, {.window_ns = 11 * SECOND},
        {.near_ratio = 1.5},      {.near_ratio = -1},
    };
    struct mt_alarm_os os = make_machine(2);
    struct mt_alarm *alarm;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(mt_alarm_open_with(&os, 0, &bad[i], &alarm, NULL), MT_EARG);
    assert_int_equal(n_open(), 0);
}

/* ---- this kernel ---- */

static void take_memory(size_t mib)
{
    char *bytes = malloc(mib << 20);
    for (size_t i = 0; bytes && i < mib << 20; i += 4096)
        ((volatile char *)bytes)[i] = 1;
}

static void test_the_kernel_tells_of_a_group_that_is_full(void **state)
{
    struct mt_group_os os;
    struct mt_group group;
    struct mt_alarm *alarm;
    struct mt_alarm_counts counts = {0};
    int begin[2];
    int how;
    char byte = 0;
    (void)state;
    mt_group_os_init(&os);
    if (mt_group_make(&os, 7, &group, NULL) < 0) {
        print_message("# not run: no control group can be made here\n");
        return;
    }
    assert_int_equal(mt_group_limit(&os, &group, 32 * MIB, NULL), 0);
    assert_int_equal(pipe(begin), 0);
    pid_t child = fork();
    if (child == 0) {
        if (read(begin[0], &byte, 1) != 1)
            _exit(1);
        take_memory(128);
        _exit(2);
    }
    assert_int_equal(group_join(&group, (int)child), 0);
    assert_int_equal(mt_alarm_open((int)child, NULL, &alarm, NULL), 0);
    mt_alarm_read(alarm, &counts);
    assert_true(counts.is_waited_for[MT_ALARM_NEAR] && counts.is_waited_for[MT_ALARM_OOM]);
    assert_int_equal(counts.n[MT_ALARM_NEAR] + counts.n[MT_ALARM_OOM], 0);
    assert_int_equal(write(begin[1], &byte, 1), 1);
    while (!counts.n[MT_ALARM_NEAR] || !counts.n[MT_ALARM_OOM])
        assert_int_equal(mt_alarm_wait(alarm, MT_UNKNOWN, &counts, NULL), 0);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    assert_int_equal(counts.n[MT_ALARM_OOM], 1);
    assert_int_equal(mt_group_remove(&os, &group), 0);
    /* Who waits for a group that is gone is woken, and then waits for the machine alone. */
    while (counts.is_waited_for[MT_ALARM_NEAR] || counts.is_waited_for[MT_ALARM_OOM])
        assert_true(mt_alarm_wait(alarm, MT_UNKNOWN, &counts, NULL) != MT_ETIMEOUT);
    mt_alarm_close(alarm);
    close(begin[0]);
    close(begin[1]);
}

/* Past the high mark of version 2 the kernel makes tasks wait, which is a stall of the group. */
static void test_the_kernel_tells_of_a_stall(void **state)
{
    struct mt_group_os os;
    struct mt_group group;
    struct mt_alarm_options options = {.stall_ns = 2000000};
    struct mt_alarm_counts counts = {0};
    struct mt_alarm *alarm;
    int how;
    (void)state;
    mt_group_os_init(&os);
    if (mt_group_make(&os, 8, &group, NULL) < 0) {
        print_message("# not run: no control group can be made here\n");
        return;
    }
    if (group.version != 2) {
        mt_group_remove(&os, &group);
        print_message(
            "# not run: control groups are of version 1 here; make group-vm has version 2\n");
        return;
    }
    assert_int_equal(mt_group_wait_at(&os, &group, 16 * MIB, NULL), 0);
    pid_t child = fork();
    if (child == 0) {
        take_memory(256);
        pause();
        _exit(2);
    }
    assert_int_equal(group_join(&group, (int)child), 0);
    assert_int_equal(mt_alarm_open((int)child, &options, &alarm, NULL), 0);
    mt_alarm_read(alarm, &counts);
    assert_true(counts.is_waited_for[MT_ALARM_GROUP_STALL]);
    assert_int_equal(counts.window_ns, 2 * SECOND);
    while (!counts.n[MT_ALARM_GROUP_STALL])
        assert_int_equal(mt_alarm_wait(alarm, MT_UNKNOWN, &counts, NULL), 0);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &how, 0), child);
    mt_alarm_close(alarm);
    mt_group_remove(&os, &group);
}

static void test_who_waits_beside_a_descriptor_is_told_of_it_and_of_nothing(void **state)
{
    struct mt_alarm_os os = make_machine(2);
    struct mt_alarm *alarm;
    struct mt_alarm_counts counts;
    (void)state;
    assert_int_equal(mt_alarm_open_with(&os, 0, NULL, &alarm, NULL), 0);
    int fd = new_file("end of a program");
    assert_int_equal(mt_alarm_wait_beside(alarm, fd, SECOND), MT_ETIMEOUT);
    made.revents[fd] = POLLIN;
    assert_int_equal(mt_alarm_wait_beside(alarm, fd, SECOND), 0);
    mt_alarm_read(alarm, &counts);
    for (int kind = 0; kind < MT_N_ALARMS; kind++)
        assert_int_equal(counts.n[kind], 0);
    mt_alarm_close(alarm);
    assert_true(made.is_open[fd]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_window_that_only_the_privileged_get_is_rounded_up_with_its_stall),
        cmocka_unit_test(test_events_of_version_2_are_counted_from_the_opening_on),
        cmocka_unit_test(test_a_group_of_version_1_tells_by_counters),
        cmocka_unit_test(test_a_group_that_is_gone_is_waited_for_no_more),
        cmocka_unit_test(test_each_call_may_fail),
        cmocka_unit_test(test_what_is_no_window_is_refused),
        cmocka_unit_test(test_the_kernel_tells_of_a_group_that_is_full),
        cmocka_unit_test(test_the_kernel_tells_of_a_stall),
        cmocka_unit_test(test_who_waits_beside_a_descriptor_is_told_of_it_and_of_nothing),
    };
    return RUN_TESTS(tests);
}
