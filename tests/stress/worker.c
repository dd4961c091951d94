/* SPDX-License-Identifier: MIT */
/* A program whose output and status are always the same: it allocates, maps, forks and has a
 * thread. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long sum_of_blocks(void)
{
    unsigned char *blocks[50];
    unsigned long sum = 0;
    for (size_t i = 0; i < 50; i++) {
        blocks[i] = malloc(1000 + i * 4000);
        if (!blocks[i])
            _exit(9);
        memset(blocks[i], (int)i, 1000);
    }
    for (size_t i = 0; i < 50; i++) {
        sum += blocks[i][999];
        free(blocks[i]);
    }
    return sum;
}

static void *work(void *argument)
{
    *(unsigned long *)argument = sum_of_blocks();
    return NULL;
}

int main(void)
{
    pthread_t thread;
    unsigned long sum = 0;
    int status;
    printf("blocks %lu\n", sum_of_blocks());
    if (pthread_create(&thread, NULL, work, &sum) != 0 || pthread_join(thread, NULL) != 0)
        return 8;
    printf("thread %lu\n", sum);
    unsigned char *map =
        mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return 8;
    memset(map, 1, 1 << 20);
    munmap(map, 1 << 20);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit((int)(sum_of_blocks() % 100));
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 8;
    printf("child %d\n", WEXITSTATUS(status));
    return 7;
}
