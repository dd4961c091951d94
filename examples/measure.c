/* SPDX-License-Identifier: MIT */
/* How much memory does loading take at its peak, and how much of it stays?
 *
 *     cc measure.c $(pkg-config --cflags --libs memtally) && ./a.out */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/memtally.h>

#define MIB ((size_t)1 << 20)

/* Reads a model's weights through a staging buffer, as loaders do. */
static void *load(void *argument)
{
    size_t size = *(const size_t *)argument;
    char *staging = malloc(size);
    char *weights = malloc(size);
    if (staging && weights) {
        memset(staging, 1, size);
        memcpy(weights, staging, size);
    }
    free(staging);
    return weights;
}

static void print_size(const char *what, uint64_t bytes)
{
    char text[MT_SIZE_TEXT];
    printf("%-10s %s\n", what, mt_format_size(bytes, text));
}

int main(void)
{
    size_t size = 48 * MIB;
    struct mt_measure_result result;
    struct mt_error error;
    if (mt_measure_call(load, &size, NULL, &result, &error) != MT_OK) {
        fprintf(stderr, "measure: %s\n", error.text);
        return 1;
    }
    if (result.problem.code != MT_OK)
        fprintf(stderr, "measure: %s\n", result.problem.text);
    printf("%-10s %s\n", "method", mt_measure_method_name(result.method));
    print_size("baseline", result.baseline_bytes);
    print_size("peak", result.peak_bytes);
    print_size("growth", result.growth_bytes);
    print_size("after", result.after_bytes);
    printf("%-10s %.1f ms\n", "latency", (double)result.latency_ns / 1e6);
    free(result.value);
    return 0;
}
