/* SPDX-License-Identifier: MIT */
/* Opens a model a number of times; prints the median milliseconds of an opening, the tensors, and
 * how much the first one raised the peak of resident memory. Driven by bench_model.py. */
#include <memtally/error.h>
#include <memtally/model_file.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* What this program alone has: what getrusage() says begins with what stood here before exec. */
static long peak_kib(void)
{
    long kib = -1;
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && kib < 0 && fgets(line, sizeof line, status))
        sscanf(line, "VmHWM: %ld", &kib);
    if (status)
        fclose(status);
    return kib;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    enum { MOST = 1000 };
    static double times[MOST];
    int n = argc > 2 ? atoi(argv[2]) : 1;
    if (argc < 2 || n < 1 || n > MOST) {
        fprintf(stderr, "usage: bench_model FILE [REPEATS]\n");
        return 2;
    }
    long before_kib = peak_kib();
    long grown_kib = 0;
    uint64_t tensors = 0;
    for (int i = 0; i < n; i++) {
        struct mt_model *model;
        struct mt_error error;
        double start = now_ms();
        if (mt_model_open(argv[1], NULL, &model, &error) < 0) {
            fprintf(stderr, "bench_model: %s\n", error.text);
            return 2;
        }
        times[i] = now_ms() - start;
        tensors = mt_model_describe(model)->n_tensors;
        mt_model_close(model);
        if (i == 0)
            grown_kib = peak_kib() - before_kib;
    }
    qsort(times, (size_t)n, sizeof *times, by_value);
    printf("%.3f %llu %ld\n", times[n / 2], (unsigned long long)tensors, grown_kib);
    return 0;
}
