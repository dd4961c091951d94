/* SPDX-License-Identifier: MIT */
/* What one look of a monitor costs: processor time of a recording, and the share of a core that 100
 * of them a second take. bench_monitor [PLACE…], else host and cgroup. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <memtally/monitor.h>

#define RECORDS 20000

static double processor_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void measure(const char *place)
{
    struct mt_monitor_source source;
    struct mt_monitor *monitor;
    struct mt_error error;
    if (mt_monitor_open_source(place, &source, &error) < 0 ||
        mt_monitor_create(&source, NULL, &monitor, &error) < 0) {
        printf("%-8s %s\n", place, error.text);
        return;
    }
    double before = processor_ns();
    for (int i = 0; i < RECORDS; i++)
        mt_monitor_record(monitor, NULL, NULL);
    double each = (processor_ns() - before) / RECORDS;
    printf("%-8s %6.2f us a record, %.3f %% of a core at 100 a second\n", place, each / 1e3,
           each * 100 / 1e9 * 100);
    mt_monitor_destroy(monitor);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        measure(argv[i]);
    if (argc == 1) {
        measure("host");
        measure("cgroup");
    }
    return 0;
}
