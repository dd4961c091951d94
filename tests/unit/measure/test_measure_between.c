/* SPDX-License-Identifier: MIT */
/* Measurements from one moment to another, on a kernel that the test commands. */
#include "tests/support/unit.h"

#include <errno.h>
#include <string.h>

#include <memtally/units.h>

#include "fake_kernel.h"
#include "measure/call.h"

#define MIB (UINT64_C(1) << 20)
#define MS  (UINT64_C(1000000))

static struct mt_measure *begin(struct fake_kernel *kernel)
{
    struct mt_measure *measure = NULL;
    assert_int_equal(mt_measure_begin_in(&kernel->os, &kernel->registry, NULL, &measure, NULL),
                     MT_OK);
    assert_non_null(measure);
    return measure;
}

static void take_for_a_while(struct fake_kernel *kernel, uint64_t bytes)
{
    fake_take(kernel, bytes);
    fake_pass(kernel, 5 * MS);
    fake_give(kernel, bytes);
}

static void test_what_happens_between_begin_and_end_is_measured(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    struct mt_measure_result result;
    fake_kernel_init(&kernel);
    struct mt_measure *measure = begin(&kernel);
    take_for_a_while(&kernel, 64 * MIB);
    errno = EDOM;
    mt_measure_end(measure, &result);
    assert_int_equal(errno, EDOM);
    assert_null(result.value);
    assert_int_equal(result.method, MT_MEASURE_EXACT);
    assert_int_equal(result.baseline_bytes, 100 * MIB);
    assert_int_equal(result.peak_bytes, 164 * MIB);
    assert_int_equal(result.growth_bytes, 64 * MIB);
    assert_int_equal(result.after_bytes, 100 * MIB);
    assert_int_equal(result.latency_ns, 5 * MS);
    assert_int_equal(result.overlapped, 0);
    assert_null(kernel.registry.first);
}

/* The first has +64 at its peak, before the second begins; the second +32, while the first is under
 * way; and +16 when it is not any more. */
static void test_the_one_that_began_first_may_end_first(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    struct mt_measure_result first, second;
    fake_kernel_init(&kernel);
    struct mt_measure *a = begin(&kernel);
    take_for_a_while(&kernel, 64 * MIB);
    struct mt_measure *b = begin(&kernel);
    take_for_a_while(&kernel, 32 * MIB);
    mt_measure_end(a, &first);
    take_for_a_while(&kernel, 16 * MIB);
    mt_measure_end(b, &second);
    assert_int_equal(first.growth_bytes, 64 * MIB);
    assert_int_equal(second.growth_bytes, 32 * MIB);
    assert_int_equal(first.overlapped, 1);
    assert_int_equal(second.overlapped, 1);
    assert_null(kernel.registry.first);
}

static void test_a_measurement_can_be_put_away(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    fake_kernel_init(&kernel);
    kernel.clear_refs_errno = EACCES; /* a thread samples */
    mt_measure_end(begin(&kernel), NULL);
    assert_null(kernel.registry.first);
    struct mt_measure_result result, before;
    memset(&result, 0x5a, sizeof result);
    memcpy(&before, &result, sizeof before);
    mt_measure_end(NULL, &result);
    assert_memory_equal(&result, &before, sizeof result);
}

static void test_a_forked_child_ends_it_without_figures(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    struct mt_measure_result result;
    fake_kernel_init(&kernel);
    struct mt_measure *measure = begin(&kernel);
    kernel.registry.generation++; /* as after a fork */
    kernel.registry.first = NULL;
    take_for_a_while(&kernel, 64 * MIB);
    mt_measure_end(measure, &result);
    assert_int_equal(result.baseline_bytes, MT_UNKNOWN);
    assert_int_equal(result.peak_bytes, MT_UNKNOWN);
    assert_int_equal(result.problem.code, MT_EUNSUPPORTED);
    assert_int_equal(result.latency_ns, 5 * MS);
}

static void test_what_cannot_begin_leaves_nothing(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    struct mt_error error = {0};
    fake_kernel_init(&kernel);
    kernel.status_errno = kernel.statm_errno = kernel.clear_refs_errno = ENOENT;
    struct mt_measure *measure = (struct mt_measure *)&kernel;
    int result = mt_measure_begin_in(&kernel.os, &kernel.registry, NULL, &measure, &error);
    assert_int_equal(result, MT_EUNSUPPORTED);
    assert_int_equal(error.code, MT_EUNSUPPORTED);
    assert_ptr_equal(measure, (struct mt_measure *)&kernel);
    assert_null(kernel.registry.first);
    struct mt_measure_options options = MT_MEASURE_OPTIONS_INIT;
    options.device_index = -2;
    assert_int_equal(mt_measure_begin(&options, &measure, NULL), MT_EARG);
    assert_int_equal(mt_measure_begin(NULL, NULL, NULL), MT_EARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_happens_between_begin_and_end_is_measured),
        cmocka_unit_test(test_the_one_that_began_first_may_end_first),
        cmocka_unit_test(test_a_measurement_can_be_put_away),
        cmocka_unit_test(test_a_forked_child_ends_it_without_figures),
        cmocka_unit_test(test_what_cannot_begin_leaves_nothing),
    };
    return RUN_TESTS(tests);
}
