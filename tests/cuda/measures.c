/* SPDX-License-Identifier: MIT */
/* A program that measures what it takes of a device.
 *
 *   measures nvml|cuda INDEX [beside]
 *   measures uuid UUID [beside]
 *
 * It takes memory of the device that CUDA calls 0: 300 MiB, gives them back, and then 50 MiB. With
 * "beside" another process holds 64 MiB there meanwhile. It prints what was measured. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memtally/error.h>
#include <memtally/measure.h>
#include <memtally/units.h>

#include "check.h"

#define MIB      ((size_t)1 << 20)
#define ONE_HOUR UINT64_C(3600000000000)

static struct {
    int (*start)(unsigned);
    int (*retain)(void **, int);
    int (*set_current)(void *);
    int (*take)(uint64_t *, size_t);
    int (*give)(uint64_t);
} driver;

static void find(const char *name, void *function)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, name) : NULL;
    CHECK(found);
    memcpy(function, &found, sizeof found);
}

static void start(void)
{
    void *context;
    find("cuInit", &driver.start);
    find("cuDevicePrimaryCtxRetain", &driver.retain);
    find("cuCtxSetCurrent", &driver.set_current);
    find("cuMemAlloc_v2", &driver.take);
    find("cuMemFree_v2", &driver.give);
    CHECK(driver.start(0) == 0 && driver.retain(&context, 0) == 0);
    CHECK(driver.set_current(context) == 0);
}

static uint64_t take(size_t bytes)
{
    uint64_t address = 0;
    CHECK(driver.take(&address, bytes) == 0);
    return address;
}

static void *take_300_keep_50(void *argument)
{
    CHECK(driver.give(take(300 * MIB)) == 0);
    take(50 * MIB);
    return argument;
}

/* Holds 64 MiB until `line` is closed. */
static void hold_beside(const int line[2], int told)
{
    char byte = 1;
    close(line[1]);
    start();
    take(64 * MIB);
    CHECK(write(told, &byte, 1) == 1);
    CHECK(read(line[0], &byte, 1) == 0);
    exit(0);
}

static void start_beside(int line[2])
{
    int told[2];
    char byte;
    CHECK(pipe(line) == 0 && pipe(told) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        hold_beside(line, told[1]);
    CHECK(read(told[0], &byte, 1) == 1);
}

static void put(const char *name, uint64_t bytes)
{
    printf("%s %" PRId64 "\n", name, bytes == MT_UNKNOWN ? -1 : (int64_t)bytes);
}

static void print(const struct mt_measure_result *result)
{
    printf("method %s\nuuid %s\n", mt_measure_method_name(result->device_method),
           result->device_uuid);
    put("capacity", result->device_capacity_bytes);
    put("baseline", result->device_baseline_bytes);
    put("peak", result->device_peak_bytes);
    put("after", result->device_after_bytes);
    put("own_baseline", result->device_own_baseline_bytes);
    put("own_peak", result->device_own_peak_bytes);
    put("own_growth", result->device_own_growth_bytes);
    put("own_after", result->device_own_after_bytes);
}

int main(int argc, char **argv)
{
    struct mt_measure_options options = MT_MEASURE_OPTIONS_INIT;
    struct mt_measure_result result;
    struct mt_error error = {0};
    int line[2];
    CHECK(argc > 2);
    int is_beside = argc > 3 && strcmp(argv[3], "beside") == 0;
    options.interval_ns = ONE_HOUR; /* what is seen is not seen by sampling */
    if (strcmp(argv[1], "uuid") == 0)
        options.device_uuid = argv[2];
    else
        options.device_index = atoi(argv[2]);
    if (strcmp(argv[1], "cuda") == 0)
        options.device_count = MT_MEASURE_AS_CUDA;
    if (is_beside)
        start_beside(line);
    start();
    if (mt_measure_call(take_300_keep_50, NULL, &options, &result, &error) != MT_OK) {
        printf("error %s\n", error.text);
        return 0;
    }
    print(&result);
    if (is_beside)
        close(line[1]);
    while (wait(NULL) > 0) {
    }
    return 0;
}
