/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "device/doctor.h"
#include "tests/support/replay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Answers of machines that we do not have. */
static int yes(void *context)
{
    (void)context;
    return 0;
}

static int no_such_call(void *context)
{
    (void)context;
    return -ENOTTY;
}

static int forbidden(void *context)
{
    (void)context;
    return -EACCES;
}

static int writable(void *context, const char *path)
{
    (void)context;
    (void)path;
    return 0;
}

static int read_only(void *context, const char *path)
{
    (void)context;
    (void)path;
    return -EROFS;
}

static int only_llama_bench(void *context, const char *path)
{
    (void)context;
    return strcmp(path, "/opt/llama/llama-bench") == 0 ? 0 : -ENOENT;
}

static int every_library(void *context, const char *name)
{
    (void)context;
    (void)name;
    return 0;
}

static int no_library(void *context, const char *name)
{
    (void)context;
    (void)name;
    return -ENOENT;
}

static int much_room(void *context, const char *directory, uint64_t *bytes)
{
    (void)context;
    (void)directory;
    *bytes = 5ull << 30;
    return 0;
}

static int little_room(void *context, const char *directory, uint64_t *bytes)
{
    (void)context;
    (void)directory;
    *bytes = 5ull << 20;
    return 0;
}

static int yes_tiles(void *context)
{
    (void)context;
    return 1;
}

static int no_tiles(void *context)
{
    (void)context;
    return 0;
}

static const char good_files[] =
    "=== /proc/sys/kernel/osrelease\n6.12.41-amd64\n"
    "=== /proc/meminfo\nMemTotal: 100 kB\nSwapTotal: 2048 kB\nSwapFree: 1024 kB\n"
    "=== /proc/1/stat\n1 (systemd) S 0\n"
    "=== /proc/self/smaps_rollup\nRss: 4 kB\n"
    "=== /proc/self/status\nName:\tx\nCapEff:\t0000000000000000\n"
    "=== /proc/pressure/memory\nsome avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    "=== /proc/self/cgroup\n0::/\n"
    "=== /proc/self/mountinfo\n5 4 0:29 / /sys/fs/cgroup rw - cgroup2 none rw\n"
    "=== /sys/fs/cgroup/memory.current\n1048576\n=== /sys/fs/cgroup/memory.max\n2147483648\n"
    "=== /proc/sys/vm/overcommit_memory\n0\n"
    "=== /sys/kernel/mm/transparent_hugepage/enabled\nalways [madvise] never\n"
    "=== /sys/devices/system/clocksource/clocksource0/current_clocksource\ntsc\n"
    "=== /proc/cpuinfo\nflags\t\t: fpu constant_tsc rep_good nopl nonstop_tsc avx2 avx512f "
    "avx512_vnni amx_int8\n"
    "=== /proc/driver/nvidia/version\nNVRM version: 550.54\n"
    "=== /sys/class/drm/card0/device/driver -> ../../../../bus/pci/drivers/nvidia\n"
    "=== /sys/class/drm/card0-HDMI-A-1/status\nconnected\n"
    "=== /sys/class/drm/card1/device/driver -> ../../../../bus/pci/drivers/ast\n";

static const struct mt_doctor_options options = {.search_path = "/usr/bin::/opt/llama"};

struct visit {
    struct replay *replay;
    struct mt_doctor_os os;
    struct mt_check *checks;
    size_t n;
};

static struct visit machine_with(const char *files)
{
    struct visit visit = {0};
    visit.replay = replay_text(files, &visit.os.host);
    visit.os.try_pagemap_scan = yes;
    visit.os.try_pagemap_read = yes;
    visit.os.can_write = writable;
    visit.os.is_program = only_llama_bench;
    visit.os.has_library = every_library;
    visit.os.free_bytes = much_room;
    visit.os.grants_tiles = yes_tiles;
    return visit;
}

static void look(struct visit *visit)
{
    assert_int_equal(mt_doctor_look(&visit->os, &options, &visit->checks, &visit->n, NULL), 0);
}

static void finish(struct visit *visit)
{
    free(visit->checks);
    replay_close(visit->replay);
}

static const struct mt_check *check_of(const struct visit *visit, const char *name)
{
    for (size_t i = 0; i < visit->n; i++) {
        if (strcmp(visit->checks[i].name, name) == 0)
            return &visit->checks[i];
    }
    fail_msg("no check is called %s", name);
    return NULL;
}

static void assert_finds(const struct visit *visit, const char *name, enum mt_check_state expected,
                         const char *finding)
{
    const struct mt_check *check = check_of(visit, name);
    assert_string_equal(check->finding, finding);
    assert_int_equal(check->state, expected);
}

static void test_a_machine_with_everything_needs_no_advice(void **state)
{
    (void)state;
    struct visit visit = machine_with(good_files);
    look(&visit);
    for (size_t i = 0; i < visit.n; i++) {
        assert_int_equal(visit.checks[i].state, MT_CHECK_OK);
        assert_string_equal(visit.checks[i].advice, "");
        assert_string_not_equal(visit.checks[i].finding, "");
    }
    assert_finds(&visit, "kernel", MT_CHECK_OK, "Linux 6.12.41-amd64");
    assert_finds(&visit, "processor", MT_CHECK_OK,
                 "amx: x86-64 with AMX, for which engines keep weights in a layout of its own");
    assert_finds(&visit, "cgroup", MT_CHECK_OK,
                 "version 2, 2.00 GiB, 1.00 MiB used, groups can be made in it");
    assert_finds(&visit, "swap", MT_CHECK_OK, "2.00 MiB, 1.00 MiB used");
    assert_finds(&visit, "huge_pages", MT_CHECK_OK, "transparent huge pages: madvise");
    assert_finds(&visit, "nvidia", MT_CHECK_OK, "NVRM version: 550.54");
    assert_finds(&visit, "drm", MT_CHECK_OK, "nvidia (card0), ast (card1)");
    assert_finds(&visit, "engines", MT_CHECK_OK, "llama-bench");
    assert_finds(&visit, "disk", MT_CHECK_OK, "5.00 GiB free");
    finish(&visit);
}

static void test_devices_of_amd_and_intel_are_there_and_unseen(void **state)
{
    (void)state;
    static const char *const drivers[] = {"amdgpu", "radeon", "i915", "xe"};
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++) {
        char machine[256];
        char finding[128];
        snprintf(machine, sizeof machine,
                 "=== /sys/class/drm/card0/device/driver -> ../bus/pci/drivers/ast\n"
                 "=== /sys/class/drm/card1/device/driver -> ../bus/pci/drivers/%s\n",
                 drivers[i]);
        snprintf(
            finding, sizeof finding,
            "ast (card0), %s (card1); memtally does not record memory of AMD's and Intel's devices",
            drivers[i]);
        struct visit visit = machine_with(machine);
        look(&visit);
        assert_finds(&visit, "drm", MT_CHECK_LIMITED, finding);
        assert_string_not_equal(check_of(&visit, "drm")->advice, "");
        finish(&visit);
    }
}

static void test_without_proc_the_essentials_are_missing_and_the_rest_is_still_told(void **state)
{
    (void)state;
    struct visit visit = machine_with("=== /etc/hostname\nbare\n");
    visit.os.try_pagemap_scan = forbidden;
    visit.os.try_pagemap_read = forbidden;
    visit.os.can_write = read_only;
    visit.os.has_library = no_library;
    visit.os.free_bytes = little_room;
    look(&visit);
    const struct mt_check *proc = check_of(&visit, "proc");
    assert_true(proc->essential);
    assert_int_equal(proc->state, MT_CHECK_MISSING);
    assert_string_equal(proc->advice, "mount it with: mount -t proc proc /proc");
    assert_true(check_of(&visit, "pictures")->essential);
    assert_finds(&visit, "pictures", MT_CHECK_MISSING,
                 "/proc/self/pagemap cannot be read: Permission denied");
    assert_finds(&visit, "peak_reset", MT_CHECK_LIMITED,
                 "clear_refs cannot be written: Read-only file system");
    assert_finds(&visit, "cgroup", MT_CHECK_LIMITED, "no control group accounts for memory");
    assert_finds(&visit, "nvidia", MT_CHECK_MISSING, "no NVIDIA driver");
    assert_finds(&visit, "drm", MT_CHECK_MISSING, "no graphics device of AMD or Intel");
    assert_string_equal(check_of(&visit, "nvidia")->advice, "nothing to do without such a device");
    assert_string_equal(check_of(&visit, "drm")->advice, "nothing to do without such a device");
    assert_finds(&visit, "disk", MT_CHECK_LIMITED, ". cannot be written: Read-only file system");
    assert_finds(&visit, "swap", MT_CHECK_LIMITED, "not known");
    finish(&visit);
}

static void test_an_older_kernel_takes_pictures_the_slower_way(void **state)
{
    (void)state;
    struct visit visit = machine_with("=== /proc/sys/kernel/osrelease\n4.9.0-13-amd64\n");
    visit.os.try_pagemap_scan = no_such_call;
    look(&visit);
    assert_finds(&visit, "kernel", MT_CHECK_LIMITED, "Linux 4.9.0-13-amd64");
    assert_int_equal(check_of(&visit, "pictures")->state, MT_CHECK_LIMITED);
    assert_non_null(strstr(check_of(&visit, "pictures")->advice, "Linux 6.7"));
    finish(&visit);
}

/* Looks at a machine on which `files` stand before the good ones and so hide them. */
static struct visit machine_spoilt_by(const char *files)
{
    char text[8192];
    strcpy(text, files);
    strcat(text, good_files);
    struct visit visit = machine_with(text);
    look(&visit);
    return visit;
}

static void test_each_limitation_has_its_finding_and_its_advice(void **state)
{
    (void)state;
    static const struct {
        const char *files;
        const char *name;
        enum mt_check_state state;
        const char *advice;
    } cases[] = {
        {"=== /proc/pressure/memory ! EOPNOTSUPP\n", "pressure", MT_CHECK_MISSING, "psi=1"},
        {"=== /proc/pressure/memory ! ENOENT\n", "pressure", MT_CHECK_MISSING, "CONFIG_PSI"},
        {"=== /proc/1/stat ! ENOENT\n", "proc", MT_CHECK_LIMITED, "hidepid"},
        {"=== /proc/self/smaps_rollup ! EACCES\n", "rollup", MT_CHECK_LIMITED, "left out"},
        {"=== /proc/sys/vm/overcommit_memory\n2\n", "overcommit", MT_CHECK_LIMITED, "sysctl"},
        {"=== /proc/sys/kernel/yama/ptrace_scope\n1\n", "attach", MT_CHECK_LIMITED, "root"},
        {"=== /sys/devices/system/clocksource/clocksource0/current_clocksource\nhpet\n", "clock",
         MT_CHECK_LIMITED, "clocksource=tsc"},
        {"=== /proc/cpuinfo\nflags: not_constant_tsc nonstop_tsc\n", "clock", MT_CHECK_LIMITED,
         "totals"},
        {"=== /proc/cpuinfo ! ENOENT\n", "clock", MT_CHECK_LIMITED, ""},
        {"=== /proc/meminfo\nSwapTotal: 100 kB\nSwapFree: 10 kB\n", "swap", MT_CHECK_LIMITED,
         "not resident"},
        {"=== /proc/driver/nvidia/version ! ENOENT\n", "nvidia", MT_CHECK_LIMITED, "nvidia-smi"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct visit visit = machine_spoilt_by(cases[i].files);
        const struct mt_check *check = check_of(&visit, cases[i].name);
        assert_int_equal(check->state, cases[i].state);
        if (!strstr(check->advice, cases[i].advice))
            fail_msg("%s advises: %s", cases[i].name, check->advice);
        finish(&visit);
    }
}

static void test_tiles_that_the_kernel_keeps_back_are_told(void **state)
{
    (void)state;
    struct visit visit = machine_with(good_files);
    visit.os.grants_tiles = no_tiles;
    look(&visit);
    assert_finds(&visit, "processor", MT_CHECK_LIMITED,
                 "avx512: x86-64 with AVX-512; it has AMX, which the kernel does not let programs "
                 "use");
    assert_string_not_equal(check_of(&visit, "processor")->advice, "");
    finish(&visit);
}

static void test_the_right_to_trace_makes_the_scope_irrelevant(void **state)
{
    (void)state;
    struct visit visit =
        machine_spoilt_by("=== /proc/sys/kernel/yama/ptrace_scope\n3\n"
                          "=== /proc/self/status\nName:\tx\nCapEff:\t0000000000080000\n");
    assert_finds(&visit, "attach", MT_CHECK_OK, "any process can be watched from outside");
    finish(&visit);
}

/* The real machine: the tests run on Linux with /proc, and every finding says something. */
static void test_this_machine_can_be_looked_at(void **state)
{
    (void)state;
    struct mt_check *checks = NULL;
    size_t n = 0;
    struct mt_doctor_options here = {.search_path = "/usr/bin:/bin", .directory = "/tmp"};
    assert_int_equal(mt_doctor_run(&here, &checks, &n, NULL), 0);
    assert_true(n >= 15);
    for (size_t i = 0; i < n; i++) {
        assert_string_not_equal(checks[i].finding, "");
        assert_string_not_equal(mt_check_state_name(checks[i].state), "?");
        if (strcmp(checks[i].name, "pictures") == 0)
            assert_int_not_equal(checks[i].state, MT_CHECK_MISSING);
    }
    mt_checks_destroy(checks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_machine_with_everything_needs_no_advice),
        cmocka_unit_test(test_devices_of_amd_and_intel_are_there_and_unseen),
        cmocka_unit_test(test_without_proc_the_essentials_are_missing_and_the_rest_is_still_told),
        cmocka_unit_test(test_an_older_kernel_takes_pictures_the_slower_way),
        cmocka_unit_test(test_each_limitation_has_its_finding_and_its_advice),
        cmocka_unit_test(test_tiles_that_the_kernel_keeps_back_are_told),
        cmocka_unit_test(test_the_right_to_trace_makes_the_scope_irrelevant),
        cmocka_unit_test(test_this_machine_can_be_looked_at),
    };
    return RUN_TESTS(tests);
}
