/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include <memtally/units.h>

#include "tests/support/replay.h"

#include <stdio.h>
#include <string.h>

/* What a machine says about one of its processes. */
static struct mt_host_sample look(const char *machine, int pid, char directory[PATH_MAX])
{
    struct mt_host_os os;
    struct mt_cgroup cgroup;
    struct mt_host_sample sample;
    struct replay *replay = replay_open(machine, &os);
    mt_cgroup_find(&os, pid, &cgroup);
    assert_int_equal(mt_host_read(&os, &cgroup, &sample, NULL), 0);
    strcpy(directory, cgroup.directory);
    replay_close(replay);
    return sample;
}

static void assert_nothing_known(const struct mt_host_sample *sample)
{
    assert_int_equal(sample->cgroup_limit_bytes, MT_UNKNOWN);
    assert_int_equal(sample->cgroup_high_bytes, MT_UNKNOWN);
    assert_int_equal(sample->cgroup_usage_bytes, MT_UNKNOWN);
    assert_int_equal(sample->cgroup_peak_bytes, MT_UNKNOWN);
    assert_int_equal(sample->cgroup_working_set_bytes, MT_UNKNOWN);
    assert_int_equal(sample->cgroup_oom_kills, MT_UNKNOWN);
}

static void test_version_1_without_a_limit(void **state)
{
    (void)state;
    char directory[PATH_MAX];
    struct mt_host_sample sample = look("debian-12-cgroup-v1", 0, directory);
    assert_string_equal(directory, "/sys/fs/cgroup/memory/jobs/4f2a");
    assert_int_equal(sample.cgroup_version, 1);
    assert_int_equal(sample.cgroup_limit_bytes, MT_UNKNOWN);
    assert_int_equal(sample.cgroup_usage_bytes, 6516736);
    assert_int_equal(sample.cgroup_peak_bytes, 40079360);
    assert_int_equal(sample.cgroup_working_set_bytes, 6516736 - 196608);
    assert_int_equal(sample.cgroup_oom_kills, 0);
    sample = look("debian-12-cgroup-v1", 418, directory);
    assert_int_equal(sample.cgroup_usage_bytes, 6516736);
}

static void test_version_1_in_a_container_takes_the_smaller_limit_of_the_host(void **state)
{
    (void)state;
    char directory[PATH_MAX];
    struct mt_host_sample sample = look("container-cgroup-v1", 0, directory);
    assert_string_equal(directory, "/sys/fs/cgroup/memory");
    assert_int_equal(sample.cgroup_version, 1);
    assert_int_equal(sample.cgroup_limit_bytes, 268435456);
    assert_int_equal(sample.cgroup_usage_bytes, 400000000);
    assert_int_equal(sample.cgroup_working_set_bytes, 300000000);
    assert_int_equal(sample.cgroup_oom_kills, 2);
}

static void test_version_1_below_a_container_finds_the_limit_upwards(void **state)
{
    (void)state;
    char directory[PATH_MAX];
    struct mt_host_sample sample = look("container-cgroup-v1", 31, directory);
    assert_string_equal(directory, "/sys/fs/cgroup/memory/inner");
    assert_int_equal(sample.cgroup_limit_bytes, 536870912);
    assert_int_equal(sample.cgroup_peak_bytes, 60000000);
    assert_int_equal(sample.cgroup_working_set_bytes, 0); /* more is inactive than is used */
}

static void test_a_cgroup_that_the_mount_does_not_show_is_unknown(void **state)
{
    (void)state;
    static const struct {
        const char *machine;
        int pid;
    } hidden[] = {
        {"container-cgroup-v1", 32}, /* a name that only begins like ours */
        {"container-cgroup-v1", 33},
        {"container-cgroup-v2", 9},
        {"container-cgroup-v2", 4711}, /* no such process */
        {"hidepid", 0},
    };
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++) {
        char directory[PATH_MAX];
        struct mt_host_sample sample = look(hidden[i].machine, hidden[i].pid, directory);
        assert_int_equal(sample.cgroup_version, 0);
        assert_string_equal(directory, "");
        assert_nothing_known(&sample);
    }
}

#define APP "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/app-term.scope"

static void test_version_2_takes_the_smallest_limit_on_the_way_to_the_root(void **state)
{
    (void)state;
    char directory[PATH_MAX];
    struct mt_host_sample sample = look("desktop-cgroup-v2", 0, directory);
    assert_string_equal(directory, APP);
    assert_int_equal(sample.cgroup_version, 2);
    assert_int_equal(sample.cgroup_limit_bytes, 25769803776);
    assert_int_equal(sample.cgroup_high_bytes, 21474836480);
    assert_int_equal(sample.cgroup_usage_bytes, 1109000000);
    assert_int_equal(sample.cgroup_peak_bytes, 1500000000);
    assert_int_equal(sample.cgroup_working_set_bytes, 509000000);
    assert_int_equal(sample.cgroup_oom_kills, 1);
}

static void test_version_2_without_any_limit(void **state)
{
    (void)state;
    char directory[PATH_MAX];
    struct mt_host_sample sample = look("desktop-cgroup-v2", 1, directory);
    assert_string_equal(directory, "/sys/fs/cgroup/init.scope");
    assert_int_equal(sample.cgroup_limit_bytes, MT_UNKNOWN);
    assert_int_equal(sample.cgroup_high_bytes, MT_UNKNOWN);
    assert_int_equal(sample.cgroup_usage_bytes, 12000000);
}

static void test_the_root_of_version_2_is_there_but_has_no_figures(void **state)
{
    (void)state;
    char directory[PATH_MAX];
    struct mt_host_sample sample = look("desktop-cgroup-v2", 2, directory);
    assert_string_equal(directory, "/sys/fs/cgroup");
    assert_int_equal(sample.cgroup_version, 2);
    assert_nothing_known(&sample);
}

static void test_a_cgroup_without_the_controller_is_counted_by_the_one_above(void **state)
{
    (void)state;
    char directory[PATH_MAX];
    struct mt_host_sample sample = look("desktop-cgroup-v2", 77, directory);
    assert_string_equal(directory, APP);
    assert_int_equal(sample.cgroup_usage_bytes, 1109000000);
}

static void test_of_both_versions_the_one_with_the_memory_controller_is_taken(void **state)
{
    (void)state;
    char directory[PATH_MAX];
    struct mt_host_sample sample = look("hybrid-memory-on-v2", 0, directory);
    assert_string_equal(directory, "/sys/fs/cgroup/unified/user.slice");
    assert_int_equal(sample.cgroup_version, 2);
    assert_int_equal(sample.cgroup_limit_bytes, 4294967296);
    assert_int_equal(sample.cgroup_usage_bytes, 900000000);
}

static void test_version_2_in_a_container_on_an_older_kernel(void **state)
{
    (void)state;
    char directory[PATH_MAX];
    struct mt_host_sample sample = look("container-cgroup-v2", 0, directory);
    assert_string_equal(directory, "/sys/fs/cgroup");
    assert_int_equal(sample.cgroup_limit_bytes, 2147483648);
    assert_int_equal(sample.cgroup_usage_bytes, 700000000);
    assert_int_equal(sample.cgroup_peak_bytes, MT_UNKNOWN);
    assert_int_equal(sample.cgroup_working_set_bytes, 50000000);
}

static void test_mounts_with_escapes_and_broken_lines(void **state)
{
    (void)state;
    struct mt_host_os os;
    struct mt_cgroup cgroup;
    struct replay *replay = replay_text("=== /proc/self/cgroup\n"
                                        "broken\n5:cpu\n0::/a:b\n"
                                        "=== /proc/self/mountinfo\n"
                                        "\n1 2\n3 4 0:1 / /cut rw,relatime\n"
                                        "5 4 0:29 /a:b /part rw - cgroup2 none rw\n"
                                        "6 4 0:29 / /my\\040cgroups rw shared:2 - cgroup2 none rw\n"
                                        "=== /my cgroups/a:b/memory.current\n5\n"
                                        "=== /part/memory.current\n5\n",
                                        &os);
    mt_cgroup_find(&os, 0, &cgroup);
    assert_int_equal(cgroup.version, 2);
    assert_string_equal(cgroup.directory, "/my cgroups/a:b");
    assert_int_equal(cgroup.mount_length, strlen("/my cgroups"));
    replay_close(replay);
}

/* As large as the machine's own tables can get: 3000 mounts before the one that counts. */
static void test_a_long_mount_table_is_read_to_its_end(void **state)
{
    (void)state;
    struct mt_host_os os;
    struct mt_cgroup cgroup;
    static char text[256 * 1024] = "=== /sys/fs/cgroup/memory.current\n5\n"
                                   "=== /proc/self/cgroup\n0::/\n=== /proc/self/mountinfo\n";
    char *at = text + strlen(text);
    for (int i = 0; i < 3000; i++)
        at += sprintf(at, "%d 1 0:%d / /var/lib/layers/%d rw - overlay overlay rw\n", i, i, i);
    strcpy(at, "9999 1 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    struct replay *replay = replay_text(text, &os);
    mt_cgroup_find(&os, 0, &cgroup);
    assert_int_equal(cgroup.version, 2);
    assert_string_equal(cgroup.directory, "/sys/fs/cgroup");
    replay_close(replay);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version_1_without_a_limit),
        cmocka_unit_test(test_version_1_in_a_container_takes_the_smaller_limit_of_the_host),
        cmocka_unit_test(test_version_1_below_a_container_finds_the_limit_upwards),
        cmocka_unit_test(test_a_cgroup_that_the_mount_does_not_show_is_unknown),
        cmocka_unit_test(test_version_2_takes_the_smallest_limit_on_the_way_to_the_root),
        cmocka_unit_test(test_version_2_without_any_limit),
        cmocka_unit_test(test_the_root_of_version_2_is_there_but_has_no_figures),
        cmocka_unit_test(test_a_cgroup_without_the_controller_is_counted_by_the_one_above),
        cmocka_unit_test(test_of_both_versions_the_one_with_the_memory_controller_is_taken),
        cmocka_unit_test(test_version_2_in_a_container_on_an_older_kernel),
        cmocka_unit_test(test_mounts_with_escapes_and_broken_lines),
        cmocka_unit_test(test_a_long_mount_table_is_read_to_its_end),
    };
    return RUN_TESTS(tests);
}
