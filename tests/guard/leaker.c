/* SPDX-License-Identifier: MIT */
/* Keeps what it should not: leaker MIB_PER_S [MIB], which ends it. It has 4 MiB from the start, and
 * takes and gives back as much as it leaks, so that only what stays is the leak. What it leaks it
 * calls a cache. It marks its beginning, and when it has leaked half of MIB. */
#include <memtally/scope.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB        ((size_t)1 << 20)
#define PIECE      (MIB / 4)
#define MOST       8192 /* pieces: 2 GiB */
#define PAUSE_NS   5000000
#define NS_PER_S   1e9
#define BASE_BYTES (4 * MIB)

static char *kept[MOST];

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / NS_PER_S;
}

static __attribute__((noinline)) char *forget_to_give_back(void)
{
    mt_scope_begin(MT_CATEGORY_KV_CACHE, "answers");
    char *piece = malloc(PIECE);
    mt_scope_end();
    return piece ? memset(piece, 1, PIECE) : NULL;
}

static __attribute__((noinline)) void come_and_go(void)
{
    char *piece = malloc(PIECE);
    if (piece)
        memset(piece, 2, PIECE);
    free(piece);
}

int main(int argc, char **argv)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    double per_s = argc > 1 ? atof(argv[1]) * (double)(MIB / PIECE) : 0;
    size_t most = argc > 2 ? (size_t)atoi(argv[2]) * (MIB / PIECE) : MOST;
    mt_mark("begin");
    char *base = malloc(BASE_BYTES);
    double begin = now_s();
    size_t n = 0;
    if (!base)
        return 2;
    memset(base, 3, BASE_BYTES);
    printf("%d\n", (int)getpid());
    fflush(stdout);
    while (n < most) {
        while (n < most && (double)n < (now_s() - begin) * per_s) {
            kept[n++] = forget_to_give_back();
            if (n == most / 2)
                mt_mark("half");
        }
        come_and_go();
        nanosleep(&pause, NULL);
    }
    return base[n % BASE_BYTES] != 3;
}
