/* SPDX-License-Identifier: MIT */
/* Measuring a device through the loader, with a look-alike of the driver's library on its path. */
#include "tests/support/unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <memtally/measure.h>
#include <memtally/units.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "device/nvml.h"
#include "measure/call.h"

#define GIB (UINT64_C(1) << 30)

struct driver {
    unsigned long long *used_bytes;
    unsigned *n_reads;
    int *n_open;
};

static struct driver driver_of(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    assert_non_null(library);
    struct driver driver = {dlsym(library, "fake_nvml_used_bytes"),
                            dlsym(library, "fake_nvml_n_reads"),
                            dlsym(library, "fake_nvml_n_open")};
    assert_non_null(driver.used_bytes); /* else a real driver stands before the look-alike */
    return driver;
}

static int measure(int device_index, void *(*function)(void *), void *argument,
                   struct mt_measure_result *result, struct mt_error *error)
{
    struct mt_measure_options options = MT_MEASURE_OPTIONS_INIT;
    options.device_index = device_index;
    options.interval_ns = 200000;
    return mt_measure_call(function, argument, &options, result, error);
}

static void await_reads(const struct driver *driver)
{
    unsigned wanted = __atomic_load_n(driver->n_reads, __ATOMIC_RELAXED) + 2;
    while (__atomic_load_n(driver->n_reads, __ATOMIC_RELAXED) < wanted)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* Takes 3 GiB until they were seen and keeps 1 GiB. */
static void *take_3_keep_1(void *argument)
{
    struct driver *driver = argument;
    __atomic_fetch_add(driver->used_bytes, 3 * GIB, __ATOMIC_RELAXED);
    await_reads(driver);
    __atomic_fetch_sub(driver->used_bytes, 2 * GIB, __ATOMIC_RELAXED);
    return driver;
}

static void test_a_device_is_measured_beside_the_host(void **state)
{
    (void)state;
    struct driver driver = driver_of();
    struct mt_measure_result result;
    assert_int_equal(measure(1, take_3_keep_1, &driver, &result, NULL), MT_OK);
    assert_ptr_equal(result.value, &driver);
    assert_int_equal(result.device_index, 1);
    assert_int_equal(result.device_capacity_bytes, 24 * GIB);
    assert_int_equal(result.device_baseline_bytes, 7 * GIB);
    assert_int_equal(result.device_peak_bytes, 10 * GIB);
    assert_int_equal(result.device_growth_bytes, 3 * GIB);
    assert_int_equal(result.device_after_bytes, 8 * GIB);
    assert_true(result.n_samples >= 1);
    assert_int_not_equal(result.peak_bytes, MT_UNKNOWN);
    assert_int_equal(*driver.n_open, 0);
}

static void *must_not_run(void *argument)
{
    (void)argument;
    fail_msg("the function has run");
    return NULL;
}

static void expect_not_run(int device_index, int code, const char *says)
{
    struct driver driver = driver_of();
    struct mt_measure_result result = {.value = &driver};
    struct mt_error error;
    assert_int_equal(measure(device_index, must_not_run, NULL, &result, &error), code);
    assert_non_null(strstr(error.text, says));
    assert_ptr_equal(result.value, &driver);
    assert_int_equal(*driver.n_open, 0);
}

static void test_a_device_past_the_last_is_not_found(void **state)
{
    (void)state;
    expect_not_run(2, MT_ENOTFOUND, "no NVIDIA device 2: this machine has 2");
}

static void test_a_device_that_does_not_answer_is_an_error(void **state)
{
    (void)state;
    expect_not_run(0, MT_EIO, "NVML result 15");
}

static int no_library(void *context, struct mt_nvml *nvml, struct mt_error *error)
{
    (void)context;
    (void)nvml;
    return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET, "no driver");
}

static int start_refused(void)
{
    return 4; /* NVML_ERROR_NO_PERMISSION */
}

static int refusing_library(void *context, struct mt_nvml *nvml, struct mt_error *error)
{
    (void)context;
    (void)error;
    *nvml = (struct mt_nvml){.init = start_refused};
    return MT_OK;
}

static int no_thread(void *context, pthread_t *thread, void *(*run)(void *), void *argument)
{
    (void)context;
    (void)thread;
    (void)run;
    (void)argument;
    return -EAGAIN;
}

static int measure_device_1_in(const struct mt_measure_os *os)
{
    struct mt_measure_options options = MT_MEASURE_OPTIONS_INIT;
    struct mt_measure_result result;
    options.device_index = 1;
    return mt_measure_call_in(os, mt_measure_process_registry(), must_not_run, NULL, &options,
                              &result, NULL);
}

static void test_a_driver_that_is_missing_or_refuses_is_told_apart(void **state)
{
    (void)state;
    struct mt_measure_os os = mt_measure_os_real;
    os.open_nvml = no_library;
    assert_int_equal(measure_device_1_in(&os), MT_ENOTFOUND);
    os.open_nvml = refusing_library;
    assert_int_equal(measure_device_1_in(&os), MT_EPERM);
}

static void test_a_device_without_a_sampling_thread_is_an_error(void **state)
{
    (void)state;
    struct driver driver = driver_of();
    struct mt_measure_os os = mt_measure_os_real;
    os.start_thread = no_thread;
    assert_int_equal(measure_device_1_in(&os), MT_ENOMEM);
    assert_int_equal(*driver.n_open, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_device_is_measured_beside_the_host),
        cmocka_unit_test(test_a_device_past_the_last_is_not_found),
        cmocka_unit_test(test_a_device_that_does_not_answer_is_an_error),
        cmocka_unit_test(test_a_driver_that_is_missing_or_refuses_is_told_apart),
        cmocka_unit_test(test_a_device_without_a_sampling_thread_is_an_error),
    };
    return RUN_TESTS(tests);
}
