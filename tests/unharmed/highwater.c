/* SPDX-License-Identifier: MIT */
/* Runs a command and says of each process below it what the kernel calls its highest resident size,
 * VmHWM, as it stands at its end: lines "PID BYTES PAGES" into a file.
 *
 * usage: highwater [--count] FILE COMMAND [ARGUMENT...]
 *
 * By ptrace() with nothing but the events of births and ends, so that the processes run as they do
 * without it; PAGES is 0 then. What a process was before exec() does not count: that memory is
 * another.
 *
 * VmHWM comes from counters of which each processor keeps a part to itself, so that it may be wrong
 * by some hundred KiB. With --count each process is stopped as well before each call in which
 * resident memory falls, and PAGES is the largest number of bytes that the kernel then counted page
 * by page (Rss of smaps_rollup). That is right to the page, but the program runs slower.
 *
 * While one thread is stopped the others would run on, and what they touch and take would come on
 * top of what the stopped one is about to give back: a height that no undisturbed run has. So
 * with --count all run on one processor, on which this program goes before them: it reads the pages
 * before any of them runs again. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_PROCESSES 65536
#define MOST_LAG       (2u << 20) /* more than a size by counters is wrong by */

struct seen {
    long pid;
    unsigned long long bytes;
    unsigned long long counted;
};

static struct seen seen[MOST_PROCESSES];
static size_t n_seen;
static int counts;

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

/* A figure of a file in /proc: the first number after `name`, or the second of all without one. */
static unsigned long long read_figure(long thread, const char *file, const char *name)
{
    char path[64], text[4096];
    unsigned long long figure = 0;
    snprintf(path, sizeof path, "/proc/%ld/%s", thread, file);
    FILE *in = fopen(path, "re");
    if (!in)
        return 0;
    size_t n = fread(text, 1, sizeof text - 1, in);
    fclose(in);
    text[n] = '\0';
    const char *at = name ? strstr(text, name) : strchr(text, ' ');
    return at && sscanf(at + (name ? strlen(name) : 0), "%llu", &figure) == 1 ? figure : 0;
}

/* Pages are gone through only where there may be more of them than before. */
static void count_pages(long thread)
{
    struct seen *process = of_process((long)read_figure(thread, "status", "\nTgid:"));
    unsigned long long about =
        read_figure(thread, "statm", NULL) * (unsigned long long)sysconf(_SC_PAGESIZE);
    if (!process || about + MOST_LAG < process->counted)
        return;
    unsigned long long counted = read_figure(thread, "smaps_rollup", "\nRss:") * 1024;
    if (counted > process->counted)
        process->counted = counted;
}

static void at_end(long thread)
{
    long pid;
    unsigned long long bytes;
    struct seen *process = read_status(thread, &pid, &bytes) ? of_process(pid) : NULL;
    if (process && bytes > process->bytes)
        process->bytes = bytes;
    if (process && counts)
        count_pages(thread);
}

static void at_exec(long thread)
{
    struct seen *process = of_process(thread);
    if (process)
        *process = (struct seen){.pid = thread};
}

static int may_shrink(unsigned long long call)
{
    return call == SYS_munmap || call == SYS_brk || call == SYS_madvise || call == SYS_mremap ||
           call == SYS_mmap || call == SYS_shmdt || call == SYS_ftruncate ||
           call == SYS_fallocate || call == SYS_process_madvise || call == SYS_exit_group;
}

static void at_call(pid_t thread)
{
    struct __ptrace_syscall_info info = {0};
    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) > 0 &&
        info.op == PTRACE_SYSCALL_INFO_ENTRY && may_shrink(info.entry.nr))
        count_pages(thread);
}

/* Lets a stopped thread go on, with the signal that it stopped for if that is the program's. */
static void go_on(pid_t thread, int status)
{
    int event = status >> 16;
    int signal = WSTOPSIG(status);
    int is_call = signal == (SIGTRAP | 0x80);
    if (is_call)
        at_call(thread);
    else if (event == PTRACE_EVENT_EXIT)
        at_end(thread);
    else if (event == PTRACE_EVENT_EXEC)
        at_exec(thread);
    if (event == PTRACE_EVENT_STOP && signal != SIGTRAP)
        ptrace(PTRACE_LISTEN, thread, 0, 0);
    else
        ptrace(counts ? PTRACE_SYSCALL : PTRACE_CONT, thread, 0, event || is_call ? 0 : signal);
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

/* The processor is for the command, too; what goes first is for this program alone. */
static void share_one_processor(void)
{
    cpu_set_t one;
    int processor = sched_getcpu();
    CPU_ZERO(&one);
    CPU_SET(processor < 0 ? 0 : (size_t)processor, &one);
    if (sched_setaffinity(0, sizeof one, &one) < 0)
        perror("highwater: threads run on while another is stopped");
}

static void go_first(void)
{
    const struct sched_param least = {.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &least) < 0)
        perror("highwater: others may run before their pages are read");
}

static pid_t start(char **command)
{
    const long options = PTRACE_O_TRACEEXIT | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEFORK |
                         PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACESYSGOOD;
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
    counts = n > 1 && strcmp(words[1], "--count") == 0;
    n -= counts;
    words += counts;
    FILE *out = n < 3 ? NULL : fopen(words[1], "we");
    if (counts)
        share_one_processor();
    pid_t pid = out ? start(words + 2) : -1;
    if (pid < 0) {
        fputs("usage: highwater [--count] FILE COMMAND [ARGUMENT...], where ptrace() is allowed\n",
              stderr);
        return 125;
    }
    if (counts)
        go_first();
    int status = follow(pid);
    for (size_t i = 0; i < n_seen; i++)
        fprintf(out, "%ld %llu %llu\n", seen[i].pid, seen[i].bytes, seen[i].counted);
    return fclose(out) == 0 ? status : 125;
}
