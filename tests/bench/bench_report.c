/* SPDX-License-Identifier: MIT */
/* What a report of a large recording costs: processor time an event, and the most memory. The
 * report runs as a program of its own. With three sizes of each kind one sees whether it grows in
 * line. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recording/reader.h"
#include "tests/support/big_recording.h"

static const struct big_recording rows[] = {
    {1000000, 2, 100000, 1000},       {10000000, 2, 100000, 1000},   {100000000, 2, 100000, 1000},
    {10000000, 2, 100000, 10000},     {10000000, 2, 100000, 100000}, {10000000, 2, 100000, 1000000},
    {10000000, 16, 100000, 1000},     {10000000, 256, 100000, 1000}, {10000000, 4096, 100000, 1000},
    {100000000, 4096, 1000000, 1000}, {30000000, 2, 1000000, 1000},  {30000000, 2, 10000000, 1000},
};

/* Runs the report and says what it took. */
static void report(const char *memtally, const char *folder, const char *output,
                   const char *const more, struct rusage *usage)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        execl(memtally, memtally, "report", folder, "-o", output, more, "20", (char *)NULL);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, usage) != child || status != 0) {
        fprintf(stderr, "%s report %s: failed\n", memtally, folder);
        exit(1);
    }
}

static double seconds(const struct rusage *usage)
{
    return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) +
           (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1e6;
}

static void measure(const char *memtally, const char *folder, const struct big_recording *big)
{
    char raw[128], packed[128], output[128];
    struct rusage plain, stacks;
    struct stat status = {0};
    snprintf(raw, sizeof raw, "%s/7-0.mtr", folder);
    snprintf(packed, sizeof packed, "%s/7-0.mtz", folder);
    snprintf(output, sizeof output, "%s/report", folder);
    big_recording_write(big, raw);
    if (mt_record_file_pack(raw, NULL) < 0 || stat(packed, &status) < 0)
        exit(1);
    report(memtally, folder, output, NULL, &plain);
    report(memtally, folder, output, "--top", &stacks);
    printf("%9llu events %4u threads %8u live %7u stacks: %5.2f bytes an event, report %6.2f s "
           "%5.1f ns an event %4ld MiB, with stacks %6.2f s %4ld MiB\n",
           (unsigned long long)big->n_events, big->n_threads, big->n_live, big->n_stacks,
           (double)status.st_size / (double)big->n_events, seconds(&plain),
           seconds(&plain) * 1e9 / (double)big->n_events, plain.ru_maxrss / 1024, seconds(&stacks),
           stacks.ru_maxrss / 1024);
    fflush(stdout);
    unlink(output);
    unlink(packed);
}

/* bench_report MEMTALLY [EVENTS THREADS LIVE STACKS [RAW-FILE]] */
int main(int argc, char **argv)
{
    char folder[] = "/tmp/memtally-bench-XXXXXX";
    struct big_recording one = {0};
    if (argc >= 6)
        one = (struct big_recording){strtoull(argv[2], NULL, 10), (uint32_t)atoi(argv[3]),
                                     (uint32_t)atoi(argv[4]), (uint32_t)atoi(argv[5])};
    if (argc == 7) {
        struct big_truth truth = big_recording_write(&one, argv[6]);
        printf("%llu blocks, %llu bytes alive, %llu bytes resident\n",
               (unsigned long long)truth.live_blocks, (unsigned long long)truth.live_bytes,
               (unsigned long long)truth.resident_bytes);
        return 0;
    }
    if ((argc != 2 && argc != 6) || !mkdtemp(folder)) {
        fprintf(stderr, "usage: bench_report MEMTALLY [EVENTS THREADS LIVE STACKS [RAW-FILE]]\n");
        return 2;
    }
    if (argc == 6)
        measure(argv[1], folder, &one);
    for (size_t i = 0; argc == 2 && i < sizeof rows / sizeof *rows; i++)
        measure(argv[1], folder, &rows[i]);
    return rmdir(folder);
}
