/* SPDX-License-Identifier: MIT */
/* What a fork and an exec cost: bench_spawn ROUNDS PROGRAM starts PROGRAM so many times and prints
 * the least and the middle of the milliseconds of processor time that one took, the child's and its
 * own; PROGRAM "-": a fork alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static double milliseconds(int who)
{
    struct rusage usage;
    getrusage(who, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e3;
}

static double spawn(const char *program)
{
    double before = milliseconds(RUSAGE_SELF) + milliseconds(RUSAGE_CHILDREN);
    int status;
    pid_t child = fork();
    if (child == 0 && strcmp(program, "-") != 0)
        execl(program, program, (char *)NULL);
    if (child == 0)
        _exit(strcmp(program, "-") != 0);
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        exit(1);
    return milliseconds(RUSAGE_SELF) + milliseconds(RUSAGE_CHILDREN) - before;
}

static int by_size(const void *a, const void *b)
{
    const double *x = a;
    const double *y = b;
    return (*x > *y) - (*x < *y);
}

int main(int argc, char **argv)
{
    long rounds = argc == 3 ? strtol(argv[1], NULL, 10) : 0;
    double *took = rounds > 0 ? calloc((size_t)rounds, sizeof *took) : NULL;
    if (!took)
        return 2;
    for (long i = 0; i < rounds; i++)
        took[i] = spawn(argv[2]);
    qsort(took, (size_t)rounds, sizeof *took, by_size);
    printf("%.3f %.3f\n", took[0], took[rounds / 2]);
    free(took);
    return 0;
}
