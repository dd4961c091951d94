/* SPDX-License-Identifier: MIT */
/* Few figures, often: the same as those of a whole sample, from few reads, by files that stay open.
 */
#include "tests/support/unit.h"

#include <memtally/host.h>
#include <memtally/units.h>

#include "device/level.h"
#include "tests/support/replay.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define MS  ((uint64_t)1000000)

static void test_the_figures_are_those_of_a_whole_sample(void **state)
{
    static const char *const machines[] = {"debian-12-cgroup-v1", "container-cgroup-v1",
                                           "container-cgroup-v2", "desktop-cgroup-v2",
                                           "hybrid-memory-on-v2"};
    (void)state;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        struct mt_host_os os;
        struct mt_cgroup cgroup;
        struct mt_host_sample whole;
        struct mt_host_sample few;
        struct mt_level level;
        struct replay *replay = replay_open(machines[i], &os);
        mt_cgroup_find(&os, 0, &cgroup);
        mt_level_init(&level, &os, &cgroup);
        assert_int_equal(mt_host_read(&os, &cgroup, &whole, NULL), 0);
        assert_int_equal(mt_level_read_host(&level, &few, NULL), 0);
        mt_level_read_group(&level, &few);
        assert_int_equal(few.memory_total_bytes, whole.memory_total_bytes);
        assert_int_equal(few.memory_available_bytes, whole.memory_available_bytes);
        assert_int_equal(few.cgroup_version, whole.cgroup_version);
        assert_int_equal(few.cgroup_limit_bytes, whole.cgroup_limit_bytes);
        assert_int_equal(few.cgroup_high_bytes, whole.cgroup_high_bytes);
        assert_int_equal(few.cgroup_usage_bytes, whole.cgroup_usage_bytes);
        assert_int_equal(few.cgroup_working_set_bytes, whole.cgroup_working_set_bytes);
        mt_level_finish(&level);
        replay_close(replay);
    }
}

/* ---- a made machine ---- */

#define FOREIGN 99 /* a descriptor that is somebody else's by now */

struct file {
    const char *path;
    char text[128];
    int n_reads;
};

static struct file files[] = {
    {.path = "/proc/meminfo"},      {.path = "/group/memory.current"},
    {.path = "/group/memory.stat"}, {.path = "/group/memory.max"},
    {.path = "/group/memory.high"},
};
enum { MEMINFO, CURRENT, STAT, MAX, HIGH, N_FILES };
static uint64_t clock_ns;
static int n_opened;
static int n_closed;
static int are_foreign;

static long give(int file, char *bytes, size_t capacity)
{
    size_t n = strlen(files[file].text);
    n = n < capacity ? n : capacity;
    memcpy(bytes, files[file].text, n);
    files[file].n_reads++;
    return n ? (long)n : -ENODEV;
}

static int file_of(const char *path)
{
    for (int i = 0; i < N_FILES; i++)
        if (strcmp(files[i].path, path) == 0)
            return i;
    return -ENOENT;
}

static long made_read_file(void *context, const char *path, char *bytes, size_t capacity)
{
    int file = file_of(path);
    (void)context;
    return file < 0 ? file : give(file, bytes, capacity);
}

static int made_open(void *context, const char *path)
{
    (void)context;
    n_opened++;
    return file_of(path);
}

static long made_read_open(void *context, int fd, char *bytes, size_t capacity)
{
    (void)context;
    if (!are_foreign)
        return give(fd, bytes, capacity);
    memcpy(bytes, "#!/bin/sh\n", 10);
    return 10;
}

static void made_close(void *context, int fd)
{
    (void)context;
    (void)fd;
    n_closed++;
    are_foreign = 0; /* who opens again has the file again */
}

static uint64_t made_now(void *context)
{
    (void)context;
    return clock_ns;
}

#define HOST_BYTES (1024 * MIB)

static uint64_t unused_bytes; /* of the host */

static int made_read_free(void *context, uint64_t *free_bytes, uint64_t *total_bytes)
{
    (void)context;
    *free_bytes = unused_bytes;
    *total_bytes = HOST_BYTES;
    return 0;
}

static const struct mt_host_os made = {.read_file = made_read_file,
                                       .open_file = made_open,
                                       .read_open = made_read_open,
                                       .close_file = made_close,
                                       .read_free = made_read_free,
                                       .now_ns = made_now};
static const struct mt_cgroup group = {2, 6, "/group"};

static void write_number(int file, uint64_t value)
{
    snprintf(files[file].text, sizeof files[file].text, "%llu\n", (unsigned long long)value);
}

static void write_cache(uint64_t value)
{
    snprintf(files[STAT].text, sizeof files[STAT].text, "file 9\ninactive_file %llu\n",
             (unsigned long long)value);
}

static void write_available(uint64_t mib)
{
    snprintf(files[MEMINFO].text, sizeof files[MEMINFO].text,
             "MemTotal: %llu kB\nMemFree: 9 kB\nMemAvailable: %llu kB\n",
             (unsigned long long)HOST_BYTES / 1024, (unsigned long long)mib * 1024);
}

static void set_up(struct mt_level *level)
{
    write_available(512);
    write_number(CURRENT, 500 * MIB);
    write_number(MAX, 1024 * MIB);
    strcpy(files[HIGH].text, "max\n");
    write_cache(100 * MIB);
    for (int i = 0; i < N_FILES; i++)
        files[i].n_reads = 0;
    n_opened = n_closed = are_foreign = 0;
    clock_ns = 5000 * MS;
    unused_bytes = 300 * MIB;
    mt_level_init(level, &made, &group);
}

static struct mt_host_sample look(struct mt_level *level)
{
    struct mt_host_sample sample;
    assert_int_equal(mt_level_read_host(level, &sample, NULL), 0);
    mt_level_read_group(level, &sample);
    return sample;
}

static void test_a_hundred_looks_open_each_file_once(void **state)
{
    struct mt_level level;
    (void)state;
    set_up(&level);
    for (int i = 0; i < 100; i++, clock_ns += 10 * MS)
        assert_int_equal(look(&level).cgroup_working_set_bytes, 400 * MIB);
    assert_int_equal(n_opened, 3);
    assert_int_equal(files[CURRENT].n_reads, 100);
    assert_int_equal(files[MEMINFO].n_reads, 100);
    assert_int_equal(files[STAT].n_reads, 10);
    assert_int_equal(files[MAX].n_reads, 1);
    mt_level_finish(&level);
    assert_int_equal(n_closed, 3);
}

static void test_what_a_group_uses_is_never_old(void **state)
{
    struct mt_level level;
    (void)state;
    set_up(&level);
    look(&level);
    write_number(CURRENT, 503 * MIB); /* less than a 256th of the limit */
    write_cache(50 * MIB);
    assert_int_equal(look(&level).cgroup_working_set_bytes, 403 * MIB);
    clock_ns += 100 * MS;
    assert_int_equal(look(&level).cgroup_working_set_bytes, 453 * MIB);
    mt_level_finish(&level);
}

static void test_a_use_that_moved_makes_the_cache_new(void **state)
{
    struct mt_level level;
    (void)state;
    set_up(&level);
    look(&level);
    write_number(CURRENT, 900 * MIB); /* a file was read */
    write_cache(500 * MIB);
    assert_int_equal(look(&level).cgroup_working_set_bytes, 400 * MIB);
    write_number(CURRENT, 450 * MIB); /* and dropped */
    write_cache(50 * MIB);
    assert_int_equal(look(&level).cgroup_working_set_bytes, 400 * MIB);
    mt_level_finish(&level);
}

static void test_a_limit_is_new_after_a_second_and_when_the_clock_jumps(void **state)
{
    struct mt_level level;
    (void)state;
    set_up(&level);
    look(&level);
    write_number(MAX, 600 * MIB);
    clock_ns += 999 * MS;
    assert_int_equal(look(&level).cgroup_limit_bytes, 1024 * MIB);
    clock_ns += MS;
    assert_int_equal(look(&level).cgroup_limit_bytes, 600 * MIB);
    write_number(MAX, 700 * MIB);
    clock_ns -= 3000 * MS;
    assert_int_equal(look(&level).cgroup_limit_bytes, 700 * MIB);
    mt_level_finish(&level);
}

static void test_a_descriptor_that_became_another_file_is_opened_again(void **state)
{
    struct mt_level level;
    (void)state;
    set_up(&level);
    look(&level);
    are_foreign = 1;
    assert_int_equal(look(&level).memory_available_bytes, 512 * MIB);
    are_foreign = 1;
    struct mt_host_sample sample;
    mt_level_read_group(&level, &sample);
    assert_int_equal(sample.cgroup_usage_bytes, 500 * MIB);
    clock_ns += 100 * MS;
    assert_int_equal(look(&level).cgroup_working_set_bytes, 400 * MIB);
    mt_level_finish(&level);
    assert_int_equal(n_opened, n_closed);
}

static void test_a_group_that_is_gone_is_unknown(void **state)
{
    struct mt_level level;
    (void)state;
    set_up(&level);
    look(&level);
    files[CURRENT].text[0] = files[STAT].text[0] = files[MAX].text[0] = '\0';
    clock_ns += 1000 * MS;
    assert_int_equal(look(&level).cgroup_working_set_bytes, MT_UNKNOWN);
    assert_int_equal(look(&level).cgroup_limit_bytes, MT_UNKNOWN);
    mt_level_finish(&level);
    assert_int_equal(n_opened, n_closed);
}

/* ---- glances ---- */

static struct mt_host_sample glance(struct mt_level *level)
{
    struct mt_host_sample sample;
    mt_level_glance(level);
    assert_int_equal(mt_level_glance_host(level, &sample, NULL), 0);
    mt_level_glance_group(level, &sample);
    return sample;
}

static void test_glances_read_four_times_a_second_where_nothing_moves(void **state)
{
    struct mt_level level;
    (void)state;
    set_up(&level);
    for (int i = 0; i < 100; i++, clock_ns += 10 * MS) {
        struct mt_host_sample seen = glance(&level);
        assert_int_equal(seen.memory_total_bytes, HOST_BYTES);
        assert_int_equal(seen.memory_available_bytes, 512 * MIB);
        assert_int_equal(seen.cgroup_working_set_bytes, 400 * MIB);
        assert_int_equal(seen.cgroup_limit_bytes, 1024 * MIB);
    }
    assert_int_equal(files[MEMINFO].n_reads, 4);
    assert_int_equal(files[CURRENT].n_reads, 4);
    assert_int_equal(files[STAT].n_reads, 2);
    mt_level_finish(&level);
}

static void test_a_glance_takes_off_what_is_no_longer_free(void **state)
{
    struct mt_level level;
    (void)state;
    set_up(&level);
    glance(&level);
    unused_bytes -= 3 * MIB; /* less than a 256th of the host */
    assert_int_equal(glance(&level).memory_available_bytes, 509 * MIB);
    unused_bytes += 6 * MIB; /* cache may have been dropped: no more is available */
    assert_int_equal(glance(&level).memory_available_bytes, 512 * MIB);
    assert_int_equal(files[MEMINFO].n_reads, 1);
    mt_level_finish(&level);
}

static void test_free_memory_that_moved_makes_a_glance_a_look(void **state)
{
    struct mt_level level;
    (void)state;
    set_up(&level);
    glance(&level);
    unused_bytes -= 5 * MIB;
    write_available(400);
    write_number(CURRENT, 600 * MIB);
    struct mt_host_sample seen = glance(&level);
    assert_int_equal(seen.memory_available_bytes, 400 * MIB);
    assert_int_equal(seen.cgroup_usage_bytes, 600 * MIB);
    unused_bytes += 5 * MIB;
    write_available(450);
    write_number(CURRENT, 550 * MIB);
    seen = glance(&level);
    assert_int_equal(seen.memory_available_bytes, 450 * MIB);
    assert_int_equal(seen.cgroup_usage_bytes, 550 * MIB);
    mt_level_finish(&level);
}

/* What the kernel's files say by now is in the next glance. */
static void assert_read_anew(struct mt_level *level)
{
    write_available(300);
    write_number(CURRENT, 700 * MIB);
    struct mt_host_sample seen = glance(level);
    assert_int_equal(seen.memory_available_bytes, 300 * MIB);
    assert_int_equal(seen.cgroup_usage_bytes, 700 * MIB);
}

static void test_a_glance_looks_where_the_kernel_may_reclaim(void **state)
{
    struct mt_level level;
    (void)state;
    set_up(&level);
    unused_bytes = 32 * MIB; /* what is dropped and what is taken may be equal */
    glance(&level);
    assert_read_anew(&level);
    mt_level_finish(&level);
}

static void test_a_glance_looks_where_nothing_says_what_is_free(void **state)
{
    struct mt_host_os without = made;
    struct mt_level level;
    (void)state;
    set_up(&level);
    without.read_free = NULL;
    mt_level_init(&level, &without, &group);
    glance(&level);
    assert_read_anew(&level);
    mt_level_finish(&level);
}

static void test_a_clock_that_jumps_makes_a_glance_a_look(void **state)
{
    struct mt_level level;
    (void)state;
    set_up(&level);
    glance(&level);
    clock_ns -= 3000 * MS;
    assert_read_anew(&level);
    mt_level_finish(&level);
}

static void test_what_could_not_be_read_does_not_stand(void **state)
{
    struct mt_level level;
    (void)state;
    set_up(&level);
    files[CURRENT].text[0] = '\0';
    assert_int_equal(glance(&level).cgroup_usage_bytes, MT_UNKNOWN);
    write_number(CURRENT, 500 * MIB);
    assert_int_equal(glance(&level).cgroup_usage_bytes, 500 * MIB);
    mt_level_finish(&level);
}

static void test_a_look_after_a_glance_is_of_the_moment(void **state)
{
    struct mt_level level;
    (void)state;
    set_up(&level);
    glance(&level);
    write_available(300);
    write_number(CURRENT, 700 * MIB);
    struct mt_host_sample seen = look(&level);
    assert_int_equal(seen.memory_available_bytes, 300 * MIB);
    assert_int_equal(seen.cgroup_usage_bytes, 700 * MIB);
    mt_level_finish(&level);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_figures_are_those_of_a_whole_sample),
        cmocka_unit_test(test_a_hundred_looks_open_each_file_once),
        cmocka_unit_test(test_what_a_group_uses_is_never_old),
        cmocka_unit_test(test_a_use_that_moved_makes_the_cache_new),
        cmocka_unit_test(test_a_limit_is_new_after_a_second_and_when_the_clock_jumps),
        cmocka_unit_test(test_a_descriptor_that_became_another_file_is_opened_again),
        cmocka_unit_test(test_a_group_that_is_gone_is_unknown),
        cmocka_unit_test(test_glances_read_four_times_a_second_where_nothing_moves),
        cmocka_unit_test(test_a_glance_takes_off_what_is_no_longer_free),
        cmocka_unit_test(test_free_memory_that_moved_makes_a_glance_a_look),
        cmocka_unit_test(test_a_glance_looks_where_the_kernel_may_reclaim),
        cmocka_unit_test(test_a_glance_looks_where_nothing_says_what_is_free),
        cmocka_unit_test(test_a_clock_that_jumps_makes_a_glance_a_look),
        cmocka_unit_test(test_what_could_not_be_read_does_not_stand),
        cmocka_unit_test(test_a_look_after_a_glance_is_of_the_moment),
    };
    return RUN_TESTS(tests);
}
