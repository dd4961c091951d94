/* SPDX-License-Identifier: MIT */
/* Which method is taken and what it reports, on a kernel that the test commands. */
#include "tests/support/unit.h"

#include <errno.h>
#include <string.h>

#include <memtally/units.h>

#include "fake_kernel.h"
#include "measure/call.h"

#define MIB (UINT64_C(1) << 20)
#define MS  (UINT64_C(1000000))

static struct mt_measure_options options_of(enum mt_measure_method method)
{
    struct mt_measure_options options = MT_MEASURE_OPTIONS_INIT;
    options.method = method;
    options.interval_ns = 200000;
    return options;
}

static int measure(struct fake_kernel *kernel, enum mt_measure_method method,
                   void *(*function)(void *), struct mt_measure_result *result,
                   struct mt_error *error)
{
    struct mt_measure_options options = options_of(method);
    return mt_measure_call_in(&kernel->os, &kernel->registry, function, kernel, &options, result,
                              error);
}

/* Takes 64 MiB for 5 ms and gives back all but 3 MiB. */
static void *take_64_keep_3(void *argument)
{
    struct fake_kernel *kernel = argument;
    fake_take(kernel, 64 * MIB);
    fake_pass(kernel, 5 * MS);
    fake_give(kernel, 61 * MIB);
    errno = EDOM;
    return (char *)kernel + 1;
}

static void *hold_64_until_seen(void *argument)
{
    struct fake_kernel *kernel = argument;
    fake_take(kernel, 64 * MIB);
    fake_await_look(kernel);
    fake_give(kernel, 64 * MIB);
    return kernel;
}

static void *must_not_run(void *argument)
{
    (void)argument;
    fail_msg("the function has run");
    return NULL;
}

static void test_the_mark_gives_the_exact_peak_of_the_call(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    struct mt_measure_result result;
    fake_kernel_init(&kernel);
    assert_int_equal(measure(&kernel, MT_MEASURE_AUTO, take_64_keep_3, &result, NULL), MT_OK);
    assert_int_equal(errno, EDOM);
    assert_ptr_equal(result.value, (char *)&kernel + 1);
    assert_int_equal(result.method, MT_MEASURE_EXACT);
    assert_int_equal(result.baseline_bytes, 100 * MIB);
    assert_int_equal(result.peak_bytes, 164 * MIB);
    assert_int_equal(result.growth_bytes, 64 * MIB);
    assert_int_equal(result.after_bytes, 103 * MIB);
    assert_int_equal(result.overlapped, 0);
    assert_int_equal(result.n_samples, 0);
    assert_int_equal(result.problem.code, MT_OK);
    assert_int_equal(result.device_peak_bytes, MT_UNKNOWN);
    assert_null(kernel.registry.first);
}

static void test_latency_is_the_functions_own(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    struct mt_measure_result result;
    fake_kernel_init(&kernel);
    measure(&kernel, MT_MEASURE_AUTO, take_64_keep_3, &result, NULL);
    assert_int_equal(result.latency_ns, 5 * MS);
}

struct nest {
    struct fake_kernel *kernel;
    struct mt_measure_result inner;
};

static void *take_32(void *argument)
{
    struct fake_kernel *kernel = argument;
    fake_take(kernel, 32 * MIB);
    fake_pass(kernel, 2 * MS);
    fake_give(kernel, 32 * MIB);
    return kernel;
}

/* Reaches +64 MiB before the inner call resets the mark. */
static void *peak_then_measure_inner(void *argument)
{
    struct nest *nest = argument;
    fake_take(nest->kernel, 64 * MIB);
    fake_give(nest->kernel, 64 * MIB);
    fake_pass(nest->kernel, 1 * MS);
    measure(nest->kernel, MT_MEASURE_EXACT, take_32, &nest->inner, NULL);
    return nest;
}

static void *measure_inner_within_64(void *argument)
{
    struct nest *nest = argument;
    fake_take(nest->kernel, 64 * MIB);
    measure(nest->kernel, MT_MEASURE_EXACT, take_32, &nest->inner, NULL);
    fake_give(nest->kernel, 64 * MIB);
    return nest;
}

static struct mt_measure_result measure_nest(struct nest *nest, void *(*function)(void *))
{
    struct mt_measure_result outer;
    int result = mt_measure_call_in(&nest->kernel->os, &nest->kernel->registry, function, nest,
                                    NULL, &outer, NULL);
    assert_int_equal(result, MT_OK);
    assert_int_equal(outer.method, MT_MEASURE_EXACT);
    assert_int_equal(outer.overlapped, 1);
    assert_int_equal(nest->inner.overlapped, 1);
    return outer;
}

static void test_an_inner_reset_does_not_take_the_outer_peak_away(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    fake_kernel_init(&kernel);
    struct nest nest = {.kernel = &kernel};
    struct mt_measure_result outer = measure_nest(&nest, peak_then_measure_inner);
    assert_int_equal(outer.growth_bytes, 64 * MIB);
    assert_int_equal(nest.inner.growth_bytes, 32 * MIB);
    assert_int_equal(nest.inner.baseline_bytes, 100 * MIB);
}

static void test_an_inner_peak_is_in_the_outer_one(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    fake_kernel_init(&kernel);
    struct nest nest = {.kernel = &kernel};
    struct mt_measure_result outer = measure_nest(&nest, measure_inner_within_64);
    assert_int_equal(outer.growth_bytes, 96 * MIB);
    assert_int_equal(nest.inner.baseline_bytes, 164 * MIB);
    assert_int_equal(nest.inner.growth_bytes, 32 * MIB);
}

static void test_outer_latency_leaves_out_the_inner_measuring(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    fake_kernel_init(&kernel);
    struct nest nest = {.kernel = &kernel};
    struct mt_measure_result outer = measure_nest(&nest, peak_then_measure_inner);
    assert_int_equal(nest.inner.latency_ns, 2 * MS);
    assert_int_equal(outer.latency_ns, 3 * MS);
}

static void test_a_mark_that_cannot_be_reset_leads_to_sampling(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    struct mt_measure_result result;
    struct mt_error error = {.code = 1};
    fake_kernel_init(&kernel);
    kernel.clear_refs_errno = EACCES;
    assert_int_equal(measure(&kernel, MT_MEASURE_AUTO, hold_64_until_seen, &result, &error), MT_OK);
    assert_int_equal(error.code, 1);
    assert_int_equal(result.method, MT_MEASURE_SAMPLED);
    assert_int_equal(result.growth_bytes, 64 * MIB);
    assert_int_equal(result.after_bytes, 100 * MIB);
    assert_true(result.n_samples >= 1);
    assert_int_equal(result.problem.code, MT_OK);
}

static void test_a_kernel_without_the_mark_leads_to_sampling(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    struct mt_measure_result result;
    fake_kernel_init(&kernel);
    kernel.hides_mark = 1;
    assert_int_equal(measure(&kernel, MT_MEASURE_AUTO, hold_64_until_seen, &result, NULL), MT_OK);
    assert_int_equal(result.method, MT_MEASURE_SAMPLED);
    assert_int_equal(result.growth_bytes, 64 * MIB);
    assert_int_equal(kernel.n_resets, 0);
}

static void test_sampling_as_asked_never_resets_the_mark(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    struct mt_measure_result result;
    fake_kernel_init(&kernel);
    assert_int_equal(measure(&kernel, MT_MEASURE_SAMPLED, hold_64_until_seen, &result, NULL),
                     MT_OK);
    assert_int_equal(result.method, MT_MEASURE_SAMPLED);
    assert_int_equal(result.growth_bytes, 64 * MIB);
    assert_int_equal(kernel.n_resets, 0);
    assert_int_equal(kernel.mark_bytes, 900 * MIB);
}

/* Runs must_not_run and expects the code, with the result as it was. */
static void expect_not_run(struct fake_kernel *kernel, enum mt_measure_method method, int code)
{
    struct mt_measure_result result, before;
    memset(&result, 0x5a, sizeof result);
    memcpy(&before, &result, sizeof before);
    struct mt_error error = {0};
    assert_int_equal(measure(kernel, method, must_not_run, &result, &error), code);
    assert_int_equal(error.code, code);
    assert_memory_equal(&result, &before, sizeof result);
    assert_null(kernel->registry.first);
}

static void test_the_exact_method_as_asked_fails_where_it_is_refused(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    fake_kernel_init(&kernel);
    kernel.clear_refs_errno = EACCES;
    expect_not_run(&kernel, MT_MEASURE_EXACT, MT_EPERM);
    kernel.clear_refs_errno = EINVAL; /* Linux before 4.0 */
    expect_not_run(&kernel, MT_MEASURE_EXACT, MT_EUNSUPPORTED);
    kernel.clear_refs_errno = 0;
    kernel.hides_mark = 1;
    expect_not_run(&kernel, MT_MEASURE_EXACT, MT_EUNSUPPORTED);
}

static void test_without_proc_the_function_does_not_run(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    fake_kernel_init(&kernel);
    kernel.status_errno = kernel.statm_errno = kernel.clear_refs_errno = ENOENT;
    expect_not_run(&kernel, MT_MEASURE_AUTO, MT_EUNSUPPORTED);
    expect_not_run(&kernel, MT_MEASURE_SAMPLED, MT_EUNSUPPORTED);
}

static void test_without_a_thread_there_is_no_sampling(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    struct mt_measure_result result;
    fake_kernel_init(&kernel);
    kernel.thread_errno = EAGAIN;
    expect_not_run(&kernel, MT_MEASURE_SAMPLED, MT_ENOMEM);
    assert_int_equal(measure(&kernel, MT_MEASURE_EXACT, take_64_keep_3, &result, NULL), MT_OK);
}

static void *lose_status(void *argument)
{
    struct fake_kernel *kernel = argument;
    kernel->status_errno = EMFILE;
    return take_64_keep_3(argument);
}

static void test_a_figure_lost_after_the_call_is_unknown_and_the_value_is_kept(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    struct mt_measure_result result;
    fake_kernel_init(&kernel);
    assert_int_equal(measure(&kernel, MT_MEASURE_AUTO, lose_status, &result, NULL), MT_OK);
    assert_ptr_equal(result.value, (char *)&kernel + 1);
    assert_int_equal(errno, EDOM);
    assert_int_equal(result.latency_ns, 5 * MS);
    assert_int_equal(result.baseline_bytes, 100 * MIB);
    assert_int_equal(result.peak_bytes, MT_UNKNOWN);
    assert_int_equal(result.growth_bytes, MT_UNKNOWN);
    assert_int_equal(result.after_bytes, MT_UNKNOWN);
    assert_int_equal(result.problem.code, MT_EIO);
    assert_non_null(strstr(result.problem.text, "/proc/self/status"));
    assert_null(kernel.registry.first);
}

static void *lose_a_look(void *argument)
{
    struct fake_kernel *kernel = argument;
    fake_take(kernel, 64 * MIB);
    fake_await_look(kernel);
    fake_give(kernel, 64 * MIB);
    pthread_mutex_lock(&kernel->lock);
    kernel->statm_errno = EMFILE;
    pthread_mutex_unlock(&kernel->lock);
    fake_await_look(kernel);
    pthread_mutex_lock(&kernel->lock);
    kernel->statm_errno = 0;
    pthread_mutex_unlock(&kernel->lock);
    return kernel;
}

static void test_a_look_that_failed_is_told_beside_what_was_seen(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    struct mt_measure_result result;
    fake_kernel_init(&kernel);
    assert_int_equal(measure(&kernel, MT_MEASURE_SAMPLED, lose_a_look, &result, NULL), MT_OK);
    assert_int_equal(result.growth_bytes, 64 * MIB);
    assert_int_equal(result.problem.code, MT_EIO);
}

static int measure_with(struct fake_kernel *kernel, struct mt_measure_options options)
{
    struct mt_measure_result result;
    return mt_measure_call_in(&kernel->os, &kernel->registry, must_not_run, kernel, &options,
                              &result, NULL);
}

static void test_options_out_of_range_are_refused(void **state)
{
    (void)state;
    struct fake_kernel kernel;
    fake_kernel_init(&kernel);
    struct mt_measure_options wrong = MT_MEASURE_OPTIONS_INIT;
    wrong.interval_ns = 99999;
    assert_int_equal(measure_with(&kernel, wrong), MT_EARG);
    wrong.interval_ns = UINT64_MAX;
    assert_int_equal(measure_with(&kernel, wrong), MT_EARG);
    wrong.interval_ns = 0;
    wrong.device_index = -2;
    assert_int_equal(measure_with(&kernel, wrong), MT_EARG);
    wrong.device_index = MT_MEASURE_HOST_ONLY;
    wrong.method = MT_MEASURE_CAUGHT; /* which nobody can ask for */
    assert_int_equal(measure_with(&kernel, wrong), MT_EARG);
    wrong.method = (enum mt_measure_method)4;
    assert_int_equal(measure_with(&kernel, wrong), MT_EARG);
    wrong.method = MT_MEASURE_AUTO;
    wrong.device_count = (enum mt_measure_count)2;
    assert_int_equal(measure_with(&kernel, wrong), MT_EARG);
    struct mt_measure_result result;
    assert_int_equal(mt_measure_call(NULL, NULL, NULL, &result, NULL), MT_EARG);
    assert_int_equal(mt_measure_call(must_not_run, NULL, NULL, NULL, NULL), MT_EARG);
}

static void test_methods_have_names(void **state)
{
    (void)state;
    assert_string_equal(mt_measure_method_name(MT_MEASURE_EXACT), "exact");
    assert_string_equal(mt_measure_method_name(MT_MEASURE_SAMPLED), "sampled");
    assert_string_equal(mt_measure_method_name(MT_MEASURE_CAUGHT), "caught");
    assert_string_equal(mt_measure_method_name((enum mt_measure_method)4), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_mark_gives_the_exact_peak_of_the_call),
        cmocka_unit_test(test_latency_is_the_functions_own),
        cmocka_unit_test(test_an_inner_reset_does_not_take_the_outer_peak_away),
        cmocka_unit_test(test_an_inner_peak_is_in_the_outer_one),
        cmocka_unit_test(test_outer_latency_leaves_out_the_inner_measuring),
        cmocka_unit_test(test_a_mark_that_cannot_be_reset_leads_to_sampling),
        cmocka_unit_test(test_a_kernel_without_the_mark_leads_to_sampling),
        cmocka_unit_test(test_sampling_as_asked_never_resets_the_mark),
        cmocka_unit_test(test_the_exact_method_as_asked_fails_where_it_is_refused),
        cmocka_unit_test(test_without_proc_the_function_does_not_run),
        cmocka_unit_test(test_without_a_thread_there_is_no_sampling),
        cmocka_unit_test(test_a_figure_lost_after_the_call_is_unknown_and_the_value_is_kept),
        cmocka_unit_test(test_a_look_that_failed_is_told_beside_what_was_seen),
        cmocka_unit_test(test_options_out_of_range_are_refused),
        cmocka_unit_test(test_methods_have_names),
    };
    return RUN_TESTS(tests);
}
