/* SPDX-License-Identifier: MIT */
/* How long a monitor of a made place of 100 GiB may wait. */
#include "tests/support/unit.h"

#include <memtally/monitor.h>
#include <memtally/units.h>

#define GIB ((uint64_t)1 << 30)
#define MS  ((uint64_t)1000000)

static uint64_t used_gib;

static int read_place(void *context, struct mt_monitor_figures *figures, struct mt_error *error)
{
    (void)context;
    (void)error;
    *figures = (struct mt_monitor_figures){100 * GIB, (100 - used_gib) * GIB, MT_UNKNOWN};
    return 0;
}

static uint64_t wait_at(struct mt_monitor *monitor, uint64_t gib, uint64_t most_ms)
{
    used_gib = gib;
    assert_int_equal(mt_monitor_record(monitor, NULL, NULL), 0);
    return mt_monitor_wait_ns(monitor, 10 * MS, most_ms * MS) / MS;
}

static void test_the_wait_is_as_long_as_the_next_level_is_away(void **state)
{
    const struct mt_monitor_source source = {"made", NULL, read_place, NULL, NULL};
    struct mt_monitor *monitor;
    (void)state;
    assert_int_equal(mt_monitor_create(&source, NULL, &monitor, NULL), 0);
    assert_int_equal(mt_monitor_wait_ns(monitor, 10 * MS, 9000 * MS), 10 * MS); /* nothing seen */
    assert_int_equal(wait_at(monitor, 44, 9000), 2147); /* 16 GiB below 60 % at 8 GB a second */
    assert_int_equal(wait_at(monitor, 44, 1000), 1000);
    assert_int_equal(wait_at(monitor, 72, 9000), 1073); /* 8 GiB below 80 % */
    assert_int_equal(wait_at(monitor, 79, 9000), 134);
    assert_int_equal(wait_at(monitor, 95, 9000), 10); /* there is no next level */
    assert_int_equal(wait_at(monitor, 89, 9000), 10); /* it goes on until 88 % */
    mt_monitor_destroy(monitor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_wait_is_as_long_as_the_next_level_is_away),
    };
    return RUN_TESTS(tests);
}
