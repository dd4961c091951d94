/* SPDX-License-Identifier: MIT */
/* The texts are as the drivers write them: amdgpu's and nouveau's as in Linux 6.1 and 6.12, i915's
 * and xe's as in the kernel's Documentation/gpu/drm-usage-stats.rst and the drivers' own examples
 * there. */
#include "tests/support/unit.h"

#include <memtally/units.h>

#include "device/drm.h"
#include "tests/support/replay.h"

#include <stdio.h>
#include <string.h>

#define KIB 1024ull
#define MIB (1024 * KIB)

static struct mt_drm_use use_of(const char *text, int n_processes)
{
    struct mt_host_os os;
    struct mt_drm_use use = {0};
    struct replay *replay = replay_text(text, &os);
    for (int pid = 7; pid < 7 + n_processes; pid++)
        assert_int_equal(mt_drm_add(&os, pid, &use, NULL), 0);
    replay_close(replay);
    return use;
}

static void test_amdgpu_of_linux_6_1(void **state)
{
    (void)state;
    struct mt_drm_use use = use_of("=== /proc/7/fd/0 -> /dev/null\n"
                                   "=== /proc/7/fd/5 -> /dev/dri/renderD128\n"
                                   "=== /proc/7/fdinfo/5\n"
                                   "pos:\t0\nflags:\t02100002\nmnt_id:\t25\nino:\t442\n"
                                   "pasid:\t32771\ndrm-driver:\tamdgpu\ndrm-pdev:\t0000:0b:00.0\n"
                                   "drm-client-id:\t14\ndrm-memory-vram:\t1052672 KiB\n"
                                   "drm-memory-gtt: \t6144 KiB\ndrm-memory-cpu: \t0 KiB\n"
                                   "drm-engine-gfx:\t43281213 ns\n",
                                   1);
    assert_int_equal(use.n_devices, 1);
    assert_string_equal(use.devices[0].driver, "amdgpu");
    assert_string_equal(use.devices[0].pci, "0000:0b:00.0");
    assert_int_equal(use.devices[0].device_bytes, 1052672 * KIB);
    assert_int_equal(use.devices[0].host_bytes, 6144 * KIB);
}

/* What is resident is the better word of the two; what was only asked for does not count. */
static void test_resident_goes_before_memory_and_total(void **state)
{
    (void)state;
    struct mt_drm_use use =
        use_of("=== /proc/7/fd/5 -> /dev/dri/renderD128\n"
               "=== /proc/7/fdinfo/5\n"
               "drm-driver:\tamdgpu\ndrm-client-id:\t14\ndrm-pdev:\t0000:0b:00.0\n"
               "drm-total-vram:\t3 MiB\ndrm-shared-vram:\t0\n"
               "drm-resident-vram:\t2 MiB\ndrm-purgeable-vram:\t0\n"
               "drm-total-gtt:\t9 MiB\ndrm-resident-gtt:\t1 MiB\n"
               "drm-resident-gds:\t5 MiB\n"
               "drm-memory-vram:\t7 MiB\ndrm-memory-gtt: \t7 MiB\n",
               1);
    assert_int_equal(use.devices[0].device_bytes, 2 * MIB);
    assert_int_equal(use.devices[0].host_bytes, 1 * MIB);
    use = use_of("=== /proc/7/fd/5 -> /dev/dri/renderD128\n=== /proc/7/fdinfo/5\n"
                 "drm-driver:\tnouveau\ndrm-client-id:\t3\ndrm-pdev:\t0000:01:00.0\n"
                 "drm-total-vram:\t3 MiB\ndrm-total-gart:\t5 MiB\n",
                 1);
    assert_int_equal(use.devices[0].device_bytes, 3 * MIB);
    assert_int_equal(use.devices[0].host_bytes, 5 * MIB);
}

static void test_i915_and_xe_in_one_process_are_two_devices(void **state)
{
    (void)state;
    struct mt_drm_use use = use_of("=== /proc/7/fd/8 -> /dev/dri/renderD128\n"
                                   "=== /proc/7/fdinfo/8\n"
                                   "drm-driver:\ti915\ndrm-client-id:\t7\ndrm-pdev:\t0000:00:02.0\n"
                                   "drm-total-system0:\t129 MiB\ndrm-resident-system0:\t128 MiB\n"
                                   "drm-total-stolen-system0:\t0\ndrm-resident-stolen-system0:\t0\n"
                                   "=== /proc/7/fd/9 -> /dev/dri/renderD129\n"
                                   "=== /proc/7/fdinfo/9\n"
                                   "drm-driver:\txe\ndrm-client-id:\t7\ndrm-pdev:\t0000:03:00.0\n"
                                   "drm-resident-system:\t0\ndrm-resident-gtt:\t192 KiB\n"
                                   "drm-resident-vram0:\t22992 KiB\ndrm-resident-stolen:\t0\n",
                                   1);
    assert_int_equal(use.n_devices, 2);
    assert_int_equal(use.devices[0].device_bytes, 0);
    assert_int_equal(use.devices[0].host_bytes, 128 * MIB);
    assert_int_equal(use.devices[1].device_bytes, 22992 * KIB);
    assert_int_equal(use.devices[1].host_bytes, 192 * KIB);
}

/* A descriptor that was duplicated, or inherited by a fork, is the same client. */
static void test_a_client_counts_once(void **state)
{
    static const char said[] = "drm-driver:\tamdgpu\ndrm-client-id:\t%d\ndrm-pdev:\t0000:0b:00.0\n"
                               "drm-memory-vram:\t10 MiB\n";
    char text[2048] = "";
    const int clients[][3] = {{7, 5, 1}, {7, 6, 1}, {8, 5, 1}, {8, 9, 2}};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n,
                 "=== /proc/%d/fd/%d -> /dev/dri/renderD128\n=== /proc/%d/fdinfo/%d\n",
                 clients[i][0], clients[i][1], clients[i][0], clients[i][1]);
        n = strlen(text);
        snprintf(text + n, sizeof text - n, said, clients[i][2]);
    }
    struct mt_drm_use use = use_of(text, 2);
    assert_int_equal(use.n_devices, 1);
    assert_int_equal(use.devices[0].device_bytes, 20 * MIB);
}

static void test_what_says_nothing_is_unknown_and_nonsense_is_left_out(void **state)
{
    (void)state;
    struct mt_drm_use use =
        use_of("=== /proc/7/fd/5 -> /dev/dri/renderD128\n"
               "=== /proc/7/fdinfo/5\n"
               "drm-driver:\tnvidia-drm\ndrm-client-id:\t1\n"
               "drm-pdev:\t0000:01:00.0\n"
               "=== /proc/7/fd/6 -> /dev/dri/renderD129\n"
               "=== /proc/7/fdinfo/6\n"
               "drm-driver:\txe\ndrm-client-id:\tmany\n"
               "drm-resident-vram0:\t1 MiB\n"
               "=== /proc/7/fd/7 -> /tmp/dri/renderD128\n"
               "=== /proc/7/fdinfo/7\n"
               "drm-driver:\txe\ndrm-client-id:\t4\ndrm-resident-vram0:\t1 MiB\n"
               "=== /proc/7/fd/8 -> /dev/dri/renderD130\n"
               "=== /proc/7/fdinfo/8\n"
               "drm-driver:\txe\ndrm-client-id:\t5\ndrm-pdev:\t\n"
               "drm-resident-vram0:\t18446744073709551615 KiB\n"
               "drm-resident-vram1:\t-5 KiB\ndrm-resident-vram2:\tx\n"
               "drm-resident-vram3:\t2 KiB\n=== /proc/7/fd/9 ! EACCES\n",
               1);
    assert_int_equal(use.n_devices, 2);
    assert_true(use.devices[0].device_bytes == MT_UNKNOWN);
    assert_true(use.devices[0].host_bytes == MT_UNKNOWN);
    assert_int_equal(use.devices[1].device_bytes, 2 * KIB);
}

static void test_files_that_may_not_be_seen_are_said(void **state)
{
    (void)state;
    struct mt_host_os os;
    struct mt_drm_use use = {0};
    struct mt_error error;
    struct replay *replay = replay_text("=== /proc/version\nLinux\n", &os);
    assert_true(mt_drm_add(&os, 7, &use, &error) < 0);
    assert_int_equal(use.n_devices, 0);
    replay_close(replay);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_amdgpu_of_linux_6_1),
        cmocka_unit_test(test_resident_goes_before_memory_and_total),
        cmocka_unit_test(test_i915_and_xe_in_one_process_are_two_devices),
        cmocka_unit_test(test_a_client_counts_once),
        cmocka_unit_test(test_what_says_nothing_is_unknown_and_nonsense_is_left_out),
        cmocka_unit_test(test_files_that_may_not_be_seen_are_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
