/* SPDX-License-Identifier: MIT */
/* What a monitor watches: containers and programs of made machines, and a made driver's device. */
#include "tests/support/unit.h"

#include <memtally/units.h>

#include "guard/monitor.h"
#include "guard/source.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define MS  ((uint64_t)1000000)

static uint64_t now_ns;

static uint64_t made_now(void *context)
{
    (void)context;
    return now_ns;
}

/* ---- a container ---- */

static const char *group_limit;

static long container_file(void *context, const char *path, char *bytes, size_t capacity)
{
    static const char *const files[][2] = {
        {"/proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1048576 kB\nMemAvailable: 4194304 kB\n"},
        {"/proc/self/cgroup", "0::/box\n"},
        {"/proc/self/mountinfo", "1 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"},
        {"/sys/fs/cgroup/box/memory.current", "838860800\n"},
        {"/sys/fs/cgroup/box/memory.stat", "inactive_file 314572800\n"},
    };
    (void)context;
    if (strcmp(path, "/sys/fs/cgroup/box/memory.max") == 0)
        return snprintf(bytes, capacity, "%s\n", group_limit);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(path, files[i][0]) == 0)
            return snprintf(bytes, capacity, "%s", files[i][1]);
    return -ENOENT;
}

static void container_os(struct mt_host_os *host)
{
    mt_host_os_init(host);
    host->read_file = container_file;
    host->open_file = NULL;
    host->now_ns = made_now;
}

static void test_the_limit_of_a_container_counts(void **state)
{
    struct mt_host_os host;
    struct mt_monitor_source container;
    struct mt_monitor *monitor;
    struct mt_monitor_snapshot snapshot;
    (void)state;
    container_os(&host);
    group_limit = "1073741824";
    assert_int_equal(mt_monitor_open_host(&host, 0, 0, &container, NULL), 0);
    assert_int_equal(mt_monitor_create(&container, NULL, &monitor, NULL), 0);
    assert_int_equal(mt_monitor_look(monitor, &snapshot, NULL), 0);
    /* 1 GiB less the 800 MiB in use, of which 300 MiB are cache that can be dropped. */
    assert_int_equal(snapshot.total_bytes, GIB);
    assert_int_equal(snapshot.available_bytes, 524 * MIB);
    assert_true(mt_monitor_can_allocate(monitor, 400 * MIB, 0.1));
    assert_false(mt_monitor_can_allocate(monitor, 500 * MIB, 0.1));
    /* Without a limit, and with one that the machine has not: what the kernel has. */
    group_limit = "max";
    now_ns += 1000 * MS;
    assert_int_equal(mt_monitor_look(monitor, &snapshot, NULL), 0);
    assert_int_equal(snapshot.available_bytes, 4 * GIB);
    group_limit = "17179869184";
    now_ns += 1000 * MS;
    assert_int_equal(mt_monitor_look(monitor, &snapshot, NULL), 0);
    assert_int_equal(snapshot.total_bytes, 8 * GIB);
    assert_int_equal(snapshot.available_bytes, 4 * GIB);
    mt_monitor_destroy(monitor);
}

static void test_a_group_without_a_limit_is_no_place(void **state)
{
    struct mt_host_os host;
    struct mt_monitor_source group;
    (void)state;
    container_os(&host);
    group_limit = "max";
    assert_int_equal(mt_monitor_open_host(&host, 0, 1, &group, NULL), MT_EUNSUPPORTED);
    group_limit = "1073741824";
    assert_int_equal(mt_monitor_open_host(&host, 0, 1, &group, NULL), 0);
    group.close(group.context);
}

/* Takes memory, says so with a byte, and stands still. */
static void take_and_stay(size_t bytes, int ready)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* also where the test fails */
    volatile char *block = malloc(bytes);
    for (size_t i = 0; block && i < bytes; i += 4096)
        block[i] = 1;
    if (write(ready, "", 1) == 1)
        pause();
    _exit(0);
}

static uint64_t resident_of(int pid)
{
    char path[64];
    unsigned long long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*u %llu", &pages), 1);
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void test_a_program_has_what_it_and_its_descendants_have_resident(void **state)
{
    struct mt_monitor_source program;
    struct mt_monitor_figures figures;
    char name[32];
    char bytes[2];
    int ready[2];
    int named[2];
    pid_t child;
    (void)state;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(named), 0);
    pid_t parent = fork();
    if (parent == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0)
            take_and_stay(64 * MIB, ready[1]);
        int is_written = write(named[1], &grandchild, sizeof grandchild) == sizeof grandchild;
        take_and_stay(is_written ? 32 * MIB : 0, ready[1]);
    }
    assert_int_equal(read(named[0], &child, sizeof child), sizeof child);
    for (size_t i = 0; i < sizeof bytes; i++)
        assert_int_equal(read(ready[0], bytes + i, 1), 1);
    snprintf(name, sizeof name, "pid:%d", (int)parent);
    assert_int_equal(mt_monitor_open_source(name, &program, NULL), 0);
    assert_int_equal(program.read(program.context, &figures, NULL), 0);
    assert_int_equal(figures.total_bytes - figures.available_bytes,
                     resident_of((int)parent) + resident_of((int)child));
    assert_true(figures.total_bytes - figures.available_bytes >= 96 * MIB);
    kill(child, SIGKILL);
    kill(parent, SIGKILL);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    assert_int_equal(program.read(program.context, &figures, NULL), MT_ENOTFOUND);
    program.close(program.context);
    assert_int_equal(mt_monitor_open_source(name, &program, NULL), MT_ENOTFOUND);
    for (size_t i = 0; i < 2; i++) {
        close(ready[i]);
        close(named[i]);
    }
}

/* Process 7 with a child, 8, on a made machine; 9 is somebody else. */
static const char *stat_of_7;

static long program_file(void *context, const char *path, char *bytes, size_t capacity)
{
    static const char *const files[][2] = {
        {"/proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1048576 kB\nMemAvailable: 4194304 kB\n"},
        {"/proc/8/stat", "8 (b) S 7 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 600 0"},
        {"/proc/9/stat", "9 (c) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 500 0"},
        {"/proc/7/statm", "9000 1024 0 0 0 0 0"},
        {"/proc/8/statm", "9000 512 0 0 0 0 0"},
        {"/proc/9/statm", "9000 99999 0 0 0 0 0"},
    };
    (void)context;
    if (strcmp(path, "/proc/7/stat") == 0)
        return snprintf(bytes, capacity, "%s", stat_of_7);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(path, files[i][0]) == 0)
            return snprintf(bytes, capacity, "%s", files[i][1]);
    return -ENOENT;
}

static int list_program(void *context, const char *path,
                        int (*each)(void *each_context, const char *name), void *each_context)
{
    (void)context;
    (void)path;
    for (int pid = 7; pid <= 9; pid++) {
        const char name[] = {(char)('0' + pid), '\0'};
        if (each(each_context, name))
            break;
    }
    return 0;
}

static void test_a_program_is_not_who_has_its_number_later(void **state)
{
    struct mt_host_os host;
    struct mt_monitor_source program;
    struct mt_monitor_figures figures;
    (void)state;
    mt_host_os_init(&host);
    host.read_file = program_file;
    host.list = list_program;
    host.open_file = NULL;
    host.page_bytes = 4096;
    stat_of_7 = "7 (a) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 555 0";
    assert_int_equal(mt_monitor_open_program(&host, 7, &program, NULL), 0);
    assert_int_equal(program.read(program.context, &figures, NULL), 0);
    assert_int_equal(figures.total_bytes, 8 * GIB);
    assert_int_equal(figures.total_bytes - figures.available_bytes, (4 + 2) * MIB);
    assert_int_equal(figures.largest_bytes, 4 * GIB); /* others have the rest */
    stat_of_7 = "7 (x) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 777 0";
    assert_int_equal(program.read(program.context, &figures, NULL), MT_ENOTFOUND);
    stat_of_7 = "7 (a) Z 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 555 0";
    assert_int_equal(program.read(program.context, &figures, NULL), MT_ENOTFOUND);
    program.close(program.context);
}

static void test_places_have_names(void **state)
{
    struct mt_monitor_source host;
    struct mt_monitor_figures figures;
    (void)state;
    assert_int_equal(mt_monitor_open_source("hosts", &host, NULL), MT_EARG);
    assert_int_equal(mt_monitor_open_source("gpu-1", &host, NULL), MT_EARG);
    assert_int_equal(mt_monitor_open_source("host", &host, NULL), 0);
    assert_int_equal(host.read(host.context, &figures, NULL), 0);
    assert_true(figures.total_bytes > 0 && figures.available_bytes <= figures.total_bytes);
    host.close(host.context);
}

/* ---- a device ---- */

static struct mt_nvml_memory device_memory;

static int nvml_ok(void)
{
    return 0;
}
static int nvml_count(unsigned *count)
{
    *count = 2;
    return 0;
}
static int nvml_by_index(unsigned index, void **device)
{
    static int devices[2];
    *device = &devices[index];
    return 0;
}
static int nvml_memory(void *device, struct mt_nvml_memory *memory)
{
    (void)device;
    *memory = device_memory;
    return 0;
}

static int open_nvml(void *context, struct mt_nvml *nvml, struct mt_error *error)
{
    (void)context;
    (void)error;
    *nvml = (struct mt_nvml){.init = nvml_ok,
                             .shutdown = nvml_ok,
                             .device_count = nvml_count,
                             .device_by_index = nvml_by_index,
                             .memory_info = nvml_memory};
    return 0;
}

/* What the driver reserves is in neither figure: it is not available. */
static void test_a_device_has_what_its_driver_says_is_free(void **state)
{
    struct mt_monitor_source device;
    struct mt_monitor *monitor;
    (void)state;
    device_memory = (struct mt_nvml_memory){80 * GIB, 20 * GIB, 59 * GIB};
    assert_int_equal(mt_monitor_open_device(open_nvml, NULL, 2, &device, NULL), MT_ENOTFOUND);
    assert_int_equal(mt_monitor_open_device(open_nvml, NULL, 1, &device, NULL), 0);
    assert_int_equal(mt_monitor_create(&device, NULL, &monitor, NULL), 0);
    assert_true(mt_monitor_can_allocate(monitor, 18 * GIB, 0.1));
    assert_false(mt_monitor_can_allocate(monitor, 19 * GIB, 0.1));
    assert_true(mt_monitor_is_low(monitor, 0.75));
    mt_monitor_destroy(monitor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_limit_of_a_container_counts),
        cmocka_unit_test(test_a_group_without_a_limit_is_no_place),
        cmocka_unit_test(test_a_program_has_what_it_and_its_descendants_have_resident),
        cmocka_unit_test(test_a_program_is_not_who_has_its_number_later),
        cmocka_unit_test(test_places_have_names),
        cmocka_unit_test(test_a_device_has_what_its_driver_says_is_free),
    };
    return RUN_TESTS(tests);
}
