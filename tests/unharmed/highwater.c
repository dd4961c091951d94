/* SPDX-License-Identifier: MIT */
/* Runs a command and says of each process below it what the kernel calls its highest resident size,
 * VmHWM, as it stands at its end: lines "PID BYTES" into a file.
 *
 * usage: highwater FILE COMMAND [ARGUMENT...]
 *
 * By ptrace() with nothing but the events of births and ends, so that the processes run as they do
 * without it. What a process was before exec() does not count: that memory is another. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_PROCESSES 65536

struct seen {
    long pid;
    unsigned long long bytes;
};

static struct seen seen[MOST_PROCESSES];
static size_t n_seen;

/* The process that a thread belongs to, and its VmHWM. */
static int read_status(long thread, long *pid, unsigned long long *bytes)
{
    char path[64], line[256];
    unsigned long long kib = 0;
    *pid = 0;
    snprintf(path, sizeof path, "/proc/%ld/status", thread);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "Tgid: %ld", pid) != 1 && sscanf(line, "VmHWM: %llu", &kib) != 1)
            continue;
    }
    fclose(file);
    *bytes = kib * 1024;
    return *pid != 0 && kib != 0;
}

static struct seen *of_process(long pid)
{
    for (size_t i = n_seen; i > 0; i--)
        if (seen[i - 1].pid == pid)
            return &seen[i - 1];
    if (n_seen == MOST_PROCESSES)
        return NULL;
    seen[n_seen] = (struct seen){.pid = pid};
    return &seen[n_seen++];
}

static void at_end(long thread)
{
    long pid;
    unsigned long long bytes;
    struct seen *process = read_status(thread, &pid, &bytes) ? of_process(pid) : NULL;
    if (process && bytes > process->bytes)
        process->bytes = bytes;
}

static void at_exec(long thread)
{
    struct seen *process = of_process(thread);
    if (process)
        process->bytes = 0;
}

/* Lets a stopped thread go on, with the signal that it stopped for if that is the program's. */
static void go_on(pid_t thread, int status)
{
    int event = status >> 16;
    int signal = WSTOPSIG(status);
    if (event == PTRACE_EVENT_EXIT)
        at_end(thread);
    else if (event == PTRACE_EVENT_EXEC)
        at_exec(thread);
    if (event == PTRACE_EVENT_STOP && signal != SIGTRAP)
        ptrace(PTRACE_LISTEN, thread, 0, 0);
    else
        ptrace(PTRACE_CONT, thread, 0, event ? 0 : signal);
}

static int follow(pid_t first)
{
    int status, first_status = 0;
    pid_t thread;
    while ((thread = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR) {
        if (thread > 0 && WIFSTOPPED(status))
            go_on(thread, status);
        else if (thread == first)
            first_status = status;
    }
    return WIFEXITED(first_status) ? WEXITSTATUS(first_status) : 128 + WTERMSIG(first_status);
}

static pid_t start(char **command)
{
    const long options = PTRACE_O_TRACEEXIT | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEFORK |
                         PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE;
    int gate[2];
    char byte = 0;
    if (pipe(gate) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        close(gate[1]);
        if (read(gate[0], &byte, 1) != 1)
            _exit(126);
        close(gate[0]);
        execvp(command[0], command);
        _exit(127);
    }
    if (pid < 0 || ptrace(PTRACE_SEIZE, pid, 0, options) < 0 || write(gate[1], &byte, 1) != 1)
        return -1;
    close(gate[0]);
    close(gate[1]);
    return pid;
}

int main(int n, char **words)
{
    FILE *out = n < 3 ? NULL : fopen(words[1], "we");
    pid_t pid = out ? start(words + 2) : -1;
    if (pid < 0) {
        fputs("usage: highwater FILE COMMAND [ARGUMENT...], where ptrace() is allowed\n", stderr);
        return 125;
    }
    int status = follow(pid);
    for (size_t i = 0; i < n_seen; i++)
        fprintf(out, "%ld %llu\n", seen[i].pid, seen[i].bytes);
    return fclose(out) == 0 ? status : 125;
}
