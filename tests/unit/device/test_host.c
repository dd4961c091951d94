/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include <memtally/units.h>

#include "tests/support/replay.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define KIB 1024ull

static struct mt_host_sample sample_of(const char *machine)
{
    struct mt_host_os os;
    struct mt_host_sample sample;
    struct replay *replay = replay_open(machine, &os);
    assert_int_equal(mt_host_read(&os, NULL, &sample, NULL), 0);
    replay_close(replay);
    return sample;
}

static void test_the_captured_machine_gives_the_sizes_of_its_meminfo(void **state)
{
    (void)state;
    struct mt_host_sample sample = sample_of("debian-12-cgroup-v1");
    assert_int_equal(sample.time_ns, 1000000000);
    assert_int_equal(sample.memory_total_bytes, 24684084 * KIB);
    assert_int_equal(sample.memory_free_bytes, 23949932 * KIB);
    assert_int_equal(sample.memory_available_bytes, 24188648 * KIB);
    assert_int_equal(sample.page_cache_bytes, (4248 + 403160) * KIB);
    assert_int_equal(sample.shared_memory_bytes, 8872 * KIB);
    assert_int_equal(sample.slab_reclaimable_bytes, 106060 * KIB);
    assert_int_equal(sample.processes_resident_bytes, (108220 + 24304) * KIB);
    assert_int_equal(sample.swap_total_bytes, 0);
    assert_int_equal(sample.swap_used_bytes, 0);
    assert_int_equal(sample.hugepages_total_bytes, 0);
}

static void test_swap_huge_pages_and_pressure_of_a_busy_desktop(void **state)
{
    (void)state;
    struct mt_host_sample sample = sample_of("desktop-cgroup-v2");
    assert_int_equal(sample.swap_used_bytes, (8388604 - 8000000) * KIB);
    assert_int_equal(sample.hugepages_total_bytes, 64 * 2048 * KIB);
    assert_int_equal(sample.hugepages_free_bytes, 60 * 2048 * KIB);
    assert_float_equal(sample.pressure_some_avg10_percent, 1.25, 1e-9);
    assert_float_equal(sample.pressure_full_avg10_percent, 0.75, 1e-9);
    assert_int_equal(sample.pressure_some_ns, 812345000);
    assert_int_equal(sample.pressure_full_ns, 600001000);
}

static void test_without_pressure_figures_they_are_unknown_and_not_zero(void **state)
{
    (void)state;
    static const char *const machines[] = {"hidepid", "container-cgroup-v1"};
    for (size_t i = 0; i < 2; i++) {
        struct mt_host_sample sample = sample_of(machines[i]);
        assert_true(sample.pressure_some_avg10_percent < 0);
        assert_true(sample.pressure_full_avg10_percent < 0);
        assert_int_equal(sample.pressure_some_ns, MT_UNKNOWN);
        assert_int_equal(sample.memory_free_bytes, 23949932 * KIB);
    }
}

static void test_a_field_that_is_missing_makes_what_is_computed_from_it_unknown(void **state)
{
    (void)state;
    struct mt_host_os os;
    struct mt_host_sample sample;
    struct replay *replay = replay_text("=== /proc/meminfo\n"
                                        "MemTotal: 100 kB\nBuffers: 1 kB\nMapped: 5 kB\n"
                                        "SwapTotal: 4 kB\nSwapFree: 9 kB\nHugePages_Total: 3\n"
                                        "=== /proc/pressure/memory\n"
                                        "some avg10=nan total=x\nfull\n\nfull avg10=101.0\n",
                                        &os);
    assert_int_equal(mt_host_read(&os, NULL, &sample, NULL), 0);
    assert_int_equal(sample.memory_total_bytes, 100 * KIB);
    assert_int_equal(sample.memory_free_bytes, MT_UNKNOWN);
    assert_int_equal(sample.page_cache_bytes, MT_UNKNOWN);
    assert_int_equal(sample.processes_resident_bytes, MT_UNKNOWN);
    assert_int_equal(sample.swap_used_bytes, MT_UNKNOWN);
    assert_int_equal(sample.hugepages_total_bytes, MT_UNKNOWN);
    assert_true(sample.pressure_some_avg10_percent < 0);
    assert_true(sample.pressure_full_avg10_percent < 0);
    assert_int_equal(sample.pressure_some_ns, MT_UNKNOWN);
    assert_int_equal(sample.cgroup_version, 0);
    assert_int_equal(sample.cgroup_limit_bytes, MT_UNKNOWN);
    replay_close(replay);
}

static void test_a_machine_without_proc_is_an_error_that_says_what_to_do(void **state)
{
    (void)state;
    struct mt_host_os os;
    struct mt_error error;
    struct mt_host_sample sample = {.time_ns = 7};
    struct replay *replay = replay_text("=== /etc/hostname\nbare\n", &os);
    assert_int_equal(mt_host_read(&os, NULL, &sample, &error), MT_EUNSUPPORTED);
    assert_non_null(strstr(error.text, "mount -t proc proc /proc"));
    assert_int_equal(sample.time_ns, 7);
    replay_close(replay);
}

static void test_other_processes_are_all_without_the_tree(void **state)
{
    (void)state;
    struct mt_host_sample sample = {.processes_resident_bytes = 1000};
    assert_int_equal(mt_host_other_resident_bytes(&sample, 300), 700);
    assert_int_equal(mt_host_other_resident_bytes(&sample, 1001), 0);
    assert_int_equal(mt_host_other_resident_bytes(&sample, MT_UNKNOWN), MT_UNKNOWN);
    sample.processes_resident_bytes = MT_UNKNOWN;
    assert_int_equal(mt_host_other_resident_bytes(&sample, 300), MT_UNKNOWN);
}

/* How much more all processes hold once this one has touched `length` bytes. */
static int64_t growth_by_touching(size_t length)
{
    struct mt_host_sample before;
    struct mt_host_sample after;
    char *block = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(block, MAP_FAILED);
    assert_int_equal(mt_host_sample_take(0, &before, NULL), 0);
    memset(block, 1, length);
    assert_int_equal(mt_host_sample_take(getpid(), &after, NULL), 0);
    munmap(block, length);
    assert_true(after.time_ns > before.time_ns);
    assert_int_equal(after.memory_total_bytes, before.memory_total_bytes);
    return (int64_t)(after.processes_resident_bytes - before.processes_resident_bytes);
}

/* The real kernel: memory that we touch appears in the figure for all processes. Other programs
 * come and go meanwhile, so the bound is wide and the block large; one may give as much back in the
 * same moment, but not each time. */
static void test_memory_that_is_touched_shows_in_the_resident_bytes_of_all_processes(void **state)
{
    (void)state;
    enum { BLOCK = 256 << 20 };
    int seen = 0;
    for (int attempt = 0; attempt < 20 && !seen; attempt++)
        seen = growth_by_touching(BLOCK) > BLOCK / 2;
    assert_true(seen);
}

static void test_a_process_that_cannot_be_is_refused(void **state)
{
    (void)state;
    struct mt_host_sample sample;
    assert_int_equal(mt_host_sample_take(-1, &sample, NULL), MT_EARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_captured_machine_gives_the_sizes_of_its_meminfo),
        cmocka_unit_test(test_swap_huge_pages_and_pressure_of_a_busy_desktop),
        cmocka_unit_test(test_without_pressure_figures_they_are_unknown_and_not_zero),
        cmocka_unit_test(test_a_field_that_is_missing_makes_what_is_computed_from_it_unknown),
        cmocka_unit_test(test_a_machine_without_proc_is_an_error_that_says_what_to_do),
        cmocka_unit_test(test_other_processes_are_all_without_the_tree),
        cmocka_unit_test(test_memory_that_is_touched_shows_in_the_resident_bytes_of_all_processes),
        cmocka_unit_test(test_a_process_that_cannot_be_is_refused),
    };
    return RUN_TESTS(tests);
}
