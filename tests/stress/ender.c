/* SPDX-License-Identifier: MIT */
/* Allocates and frees in two threads, counting before and after each call, and ends after so many
 * microseconds: ender COUNTS-FILE kill|segv|abort|exit MICROSECONDS */
#include "ender.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define N_PLACES 64

static struct ender_counts *counts;

static void count(uint64_t *n)
{
    __atomic_fetch_add(n, 1, __ATOMIC_SEQ_CST);
}

static void *work(void *argument)
{
    const size_t thread = (size_t)(uintptr_t)argument;
    void *places[N_PLACES] = {NULL};
    for (uint64_t i = 0;; i++) {
        void **place = &places[i * 7 % N_PLACES];
        if (*place) {
            count(&counts->thread[thread].freeing);
            free(*place);
            count(&counts->thread[thread].freed);
        }
        count(&counts->thread[thread].allocating);
        *place = malloc(ENDER_BLOCK_BYTES);
        count(&counts->thread[thread].allocated);
        if (*place)
            *(volatile char *)*place = 1;
        free(malloc(40)); /* an event in the full depth, a sample now and then in the other */
    }
    return NULL;
}

static void end(const char *how)
{
    if (strcmp(how, "kill") == 0)
        kill(getpid(), SIGKILL);
    else if (strcmp(how, "segv") == 0)
        raise(SIGSEGV);
    else if (strcmp(how, "abort") == 0)
        abort();
    _exit(3);
}

int main(int argc, char **argv)
{
    pthread_t threads[ENDER_THREADS];
    int fd = argc == 4 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return 2;
    counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (counts == MAP_FAILED)
        return 2;
    const long us = atol(argv[3]);
    const struct timespec pause = {us / 1000000, us % 1000000 * 1000};
    for (uintptr_t i = 0; i < ENDER_THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0)
            return 2;
    nanosleep(&pause, NULL);
    end(argv[2]);
}
