/* SPDX-License-Identifier: MIT */
/* The child takes away what a recorder needs, and works on. */
#include <memtally/scope.h>

#include <dirent.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recorder/child.h"

/* Enough events for many blocks of a recording. */
static void work(void)
{
    for (int i = 0; i < 60000; i++)
        free(keep(malloc(100000)));
}

/* descriptors: closes all of them from 3 on, again and again, between allocations. */
static int descriptors(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    for (int round = 0; round < 10; round++) {
        for (int fd = 3; fd < 64; fd++)
            close(fd);
        work();
        int fd = open("/dev/null", O_RDONLY);
        MUST(fd == 3);
    }
    say("done\n");
    return 0;
}

static int stop;

/* Starts threads, whose first event makes the recorder look at what is mapped, and fills blocks. */
static void *begin_and_end(void *argument)
{
    if (argument) {
        free(keep(malloc(100000)));
        return NULL;
    }
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        pthread_t thread;
        MUST(pthread_create(&thread, NULL, begin_and_end, &stop) == 0);
        pthread_join(thread, NULL);
    }
    return NULL;
}

/* shared N: closes all descriptors from 3 on and opens its own N times, while other threads make
 * the recorder work: each number is the lowest that is free, and stays what it is. */
static int shared(int argc, char **argv)
{
    pthread_t threads[2];
    long n = number(argc, argv, 1, 1000);
    for (int i = 0; i < 2; i++)
        MUST(pthread_create(&threads[i], NULL, begin_and_end, NULL) == 0);
    for (long i = 0; i < n; i++) {
        int ends[2];
        char byte = 'x';
        closefrom(3);
        MUST(open("/dev/null", O_RDONLY) == 3);
        MUST(pipe(ends) == 0 && ends[0] == 4 && ends[1] == 5);
        MUST(write(5, &byte, 1) == 1 && read(4, &byte, 1) == 1);
        MUST(close(5) == 0);
        MUST(read(4, &byte, 1) == 0); /* nobody else holds the other end */
        MUST(dup(3) == 5);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    say("done\n");
    return 0;
}

/* replaced PATH: descriptor 2 becomes a file of the program's. */
static int replaced(int argc, char **argv)
{
    close(2);
    MUST(open(argv[argc - 1], O_WRONLY | O_CREAT | O_TRUNC, 0600) == 2);
    work();
    say("done\n");
    return 0;
}

/* few: no descriptor is to be had for a while. */
static int few(int argc, char **argv)
{
    struct rlimit before, none;
    (void)argc;
    (void)argv;
    MUST(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = 3;
    MUST(setrlimit(RLIMIT_NOFILE, &none) == 0);
    work();
    MUST(setrlimit(RLIMIT_NOFILE, &before) == 0);
    work();
    say("done\n");
    return 0;
}

/* removes DIRECTORY: the recording's folder goes. */
static int removes(int argc, char **argv)
{
    const char *path = argv[argc - 1];
    DIR *directory = opendir(path);
    MUST(directory != NULL);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
    MUST(rmdir(path) == 0);
    work();
    say("done\n");
    return 0;
}

/* jailed DIRECTORY: another root, another user. */
static int jailed(int argc, char **argv)
{
    MUST(chroot(argv[argc - 1]) == 0 && chdir("/") == 0);
    MUST(setgid(65534) == 0 && setuid(65534) == 0);
    work();
    say("done\n");
    return 0;
}

#define ALLOW(call)                                                                                \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1),                                         \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* filtered: what the program itself does not call kills it. */
static int filtered(int argc, char **argv)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(write),
        ALLOW(exit_group),
        ALLOW(brk),
        ALLOW(mmap),
        ALLOW(munmap),
        ALLOW(fstat),
        ALLOW(newfstatat),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    const struct sock_fprog program = {sizeof code / sizeof *code, code};
    (void)argc;
    (void)argv;
    MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) == -1); /* as libraries ask */
    work();
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
    work();
    say("done\n");
    return 0;
}

/* strict: four system calls are left, and exit_group() is none of them. */
static int strict(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    work();
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) == 0);
    for (int i = 0; i < 100000; i++)
        free(keep(malloc(1000)));
    if (write(STDOUT_FILENO, "done\n", 5) == 5)
        syscall(SYS_exit, 0);
    return 1;
}

static void say_line_of(const char *path, const char *key)
{
    char line[256];
    FILE *file = fopen(path, "r");
    MUST(file != NULL);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0)
            say("%s", line);
    fclose(file);
}

/* locked: an ordinary user locks all memory, now and in future, within 8 MiB. */
static int locked(int argc, char **argv)
{
    const struct rlimit limit = {8 << 20, 8 << 20};
    (void)argc;
    (void)argv;
    keep(malloc(100));
    say_line_of("/proc/self/status", "VmSize:");
    MUST(geteuid() != 0 || setuid(65534) == 0);
    MUST(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        say("refused\n");
    say_line_of("/proc/self/status", "VmLck:");
    work();
    say("done\n");
    return 0;
}

/* counterless: reading the processor's counter is a fault. */
static int counterless(int argc, char **argv)
{
    (void)argc;
    (void)argv;
#ifdef PR_SET_TSC
    prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
#endif
    work();
    say("done\n");
    return 0;
}

/* works: nothing is taken away, by itself. */
static int works(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    work();
    say("done\n");
    return 0;
}

/* alone N: the process has one thread after each of N marks, and N children have one after their
 * first event: programs with a sandbox end themselves where they find another. */
static int alone(int argc, char **argv)
{
    long n = number(argc, argv, 1, 1000);
    struct stat tasks;
    for (long i = 0; i < n; i++) {
        mt_mark("alone");
        MUST(stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == 3);
        int status;
        pid_t child = fork();
        if (child == 0) {
            free(keep(malloc(100000)));
            MUST(stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == 3);
            _exit(0);
        }
        MUST(waitpid(child, &status, 0) == child && status == 0);
    }
    say("done\n");
    return 0;
}

const struct command limit_commands[] = {
    {"descriptors", descriptors},
    {"replaced", replaced},
    {"few", few},
    {"removes", removes},
    {"jailed", jailed},
    {"filtered", filtered},
    {"works", works},
    {"strict", strict},
    {"counterless", counterless},
    {"shared", shared},
    {"locked", locked},
    {"alone", alone},
    {NULL, NULL},
};
