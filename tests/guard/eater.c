/* SPDX-License-Identifier: MIT */
/* A program that takes memory until it is asked to stop.
 *
 *     eater KIND MIB FILE
 *
 * KIND: gives   gives all back on SIGUSR1 and ends with 0
 *       ends    does not hear SIGUSR1; on SIGTERM ends with 7
 *       deaf    hears neither
 *       forks   as ends, and a child of its own takes the memory
 * Whatever is written to FILE is promised: each MiB that was taken, and at an orderly end all of
 * them in one line, which has to agree. It takes MIB at most and then waits. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static volatile sig_atomic_t n_taken;
static volatile char *memory;
static size_t n_most;
static int file;
static pid_t child;

/* Whether the line was written. In a full control group of version 1 a system call that needs
 * memory fails, where a page that is touched waits. */
static int try_line(char letter, int number)
{
    char line[16] = "";
    int n = 0;
    line[n++] = letter;
    for (int unit = 100000; unit > 0; unit /= 10)
        line[n++] = (char)('0' + number / unit % 10);
    line[n++] = '\n';
    ssize_t written = write(file, line, (size_t)n);
    if (written != n && errno != ENOMEM)
        _exit(99);
    return written == n;
}

static void wait_a_moment(void)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    nanosleep(&moment, NULL);
}

/* Ends in order: gives its memory back, so that there is some to write with. */
static void finish(char letter, int status)
{
    munmap((void *)memory, n_most * MIB);
    while (!try_line(letter, n_taken))
        wait_a_moment();
    _exit(status);
}

static void give_back(int signal)
{
    (void)signal;
    finish('g', 0);
}

static void end(int signal)
{
    (void)signal;
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    finish('e', 7);
}

/* Writes the promise and counts it, without a signal between the two. */
static int promise(int number)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    int is_written = try_line('t', number);
    if (is_written)
        n_taken = (sig_atomic_t)number;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return is_written;
}

static void take(void)
{
    for (size_t i = 0; i < n_most; i++) {
        memset((char *)memory + i * MIB, (int)i + 1, MIB);
        while (!promise((int)i + 1))
            wait_a_moment();
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    n_most = strtoul(argv[2], NULL, 10);
    file = open(argv[3], O_WRONLY | O_CREAT | O_APPEND, 0600);
    memory = mmap(NULL, n_most * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (file < 0 || memory == MAP_FAILED)
        return 2;
    int gives = strcmp(argv[1], "gives") == 0;
    int is_deaf = strcmp(argv[1], "deaf") == 0;
    signal(SIGUSR1, gives ? give_back : SIG_IGN);
    signal(SIGTERM, is_deaf ? SIG_IGN : end);
    if (strcmp(argv[1], "forks") == 0 && (child = fork()) == 0)
        signal(SIGTERM, SIG_IGN);
    if (child == 0)
        take();
    for (;;)
        pause();
}
