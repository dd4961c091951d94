/* SPDX-License-Identifier: MIT */
/* Runs a command and has its n-th system call fail, as a busy or full machine would have it:
 *
 * fail_call N recorder|command COUNT-FILE CMD ARGUMENT...
 *
 * "recorder" counts the calls of the preloaded recorder in all processes, "command" those of the
 * first process behind the loader's. COUNT-FILE gets how many there were, and which failed. The
 * status is the command's. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/ptrace.h>

#define MOST_TASKS 4096

struct task {
    pid_t pid;
    int is_failing;
    unsigned long low; /* of the code that is asked about; 0: not known */
    unsigned long high;
};

static struct task tasks[MOST_TASKS];
static unsigned long n_calls, failing_call;
static long failed_number = -1;
static const char *code_name;
static int counts_outside; /* what is not in that code */
static pid_t first;
static int has_begun; /* the command, and not what starts it */

static struct task *task_of(pid_t pid)
{
    struct task *free_task = NULL;
    for (size_t i = 0; i < MOST_TASKS; i++) {
        if (tasks[i].pid == pid)
            return &tasks[i];
        if (!tasks[i].pid && !free_task)
            free_task = &tasks[i];
    }
    if (!free_task) {
        fprintf(stderr, "fail_call: too many tasks\n");
        exit(2);
    }
    *free_task = (struct task){.pid = pid};
    return free_task;
}

/* Where the code lies in the task. */
static void find_code(struct task *task)
{
    char path[64], line[4352], flags[8];
    unsigned long low, high;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)task->pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%lx-%lx %7s", &low, &high, flags) == 3 && flags[2] == 'x' &&
            strstr(line, code_name)) {
            task->low = low;
            task->high = high;
        }
    if (file)
        fclose(file);
}

/* Calls that do not fail on any machine, have to be what ends a process, or say otherwise than by a
 * number that they failed (brk). */
static int never_fails(long number)
{
    static const long numbers[] = {SYS_exit,
                                   SYS_exit_group,
                                   SYS_rt_sigreturn,
                                   SYS_getpid,
                                   SYS_gettid,
                                   SYS_getppid,
                                   SYS_getuid,
                                   SYS_geteuid,
                                   SYS_getgid,
                                   SYS_getegid,
                                   SYS_rt_sigprocmask,
                                   SYS_rt_sigaction,
                                   SYS_futex,
                                   SYS_clock_gettime,
                                   SYS_set_tid_address,
                                   SYS_arch_prctl,
                                   SYS_munmap,
                                   SYS_wait4,
                                   SYS_restart_syscall,
                                   SYS_clock_nanosleep,
                                   SYS_sigaltstack,
                                   SYS_brk};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i] == number)
            return 1;
    return 0;
}

static int error_of(long number)
{
    switch (number) {
    case SYS_mmap:
    case SYS_mremap:
    case SYS_mprotect:
    case SYS_madvise:
        return ENOMEM;
    case SYS_open:
    case SYS_openat:
    case SYS_memfd_create:
    case SYS_dup:
    case SYS_pipe2:
        return EMFILE;
    case SYS_write:
    case SYS_pwrite64:
    case SYS_ftruncate:
    case SYS_fallocate:
        return ENOSPC;
    case SYS_read:
    case SYS_pread64:
        return EIO;
    case SYS_fork:
    case SYS_vfork:
    case SYS_clone:
    case SYS_clone3:
        return EAGAIN;
    default:
        return EPERM;
    }
}

static int is_counted(struct task *task, unsigned long at, long number)
{
    if (!has_begun || never_fails(number) || (counts_outside && task->pid != first))
        return 0;
    if (!task->low)
        find_code(task);
    int is_inside = task->low && at >= task->low && at < task->high;
    /* Behind the loader: as long as it is not known where it lies, nothing counts. */
    return counts_outside ? task->low && !is_inside : is_inside;
}

static void at_call(struct task *task)
{
    struct ptrace_syscall_info info;
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, task->pid, (void *)sizeof info, &info) <= 0)
        return;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        long number = (long)info.entry.nr;
        task->is_failing =
            is_counted(task, info.instruction_pointer, number) && ++n_calls == failing_call;
        if (!task->is_failing)
            return;
        failed_number = number;
        if (number == SYS_close) /* closes whatever it says */
            return;
        ptrace(PTRACE_GETREGS, task->pid, NULL, &registers);
        registers.orig_rax = (unsigned long long)-1;
        ptrace(PTRACE_SETREGS, task->pid, NULL, &registers);
    } else if (info.op == PTRACE_SYSCALL_INFO_EXIT && task->is_failing) {
        task->is_failing = 0;
        ptrace(PTRACE_GETREGS, task->pid, NULL, &registers);
        registers.rax = (unsigned long long)-error_of(failed_number);
        ptrace(PTRACE_SETREGS, task->pid, NULL, &registers);
    }
}

/* What a stopped task goes on with: its signal, if that is what it was stopped for. */
static int take_stop(struct task *task, int status)
{
    int signal = WSTOPSIG(status);
    if (signal == (SIGTRAP | 0x80)) {
        at_call(task);
        return 0;
    }
    if (status >> 16) {
        if (status >> 16 == PTRACE_EVENT_EXEC) {
            task->low = task->high = 0;
            has_begun = 1;
        }
        return 0;
    }
    return signal == SIGSTOP ? 0 : signal;
}

static int follow(void)
{
    int result = 0;
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid < 0)
            return result;
        struct task *task = task_of(pid);
        if (!WIFSTOPPED(status)) {
            if (pid == first)
                result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            *task = (struct task){0};
            continue;
        }
        ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(long)take_stop(task, status));
    }
}

static pid_t start(char **words)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        execvp(words[0], words);
        _exit(127);
    }
    const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                         PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFSTOPPED(status) ||
        ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)options) < 0) {
        fprintf(stderr, "fail_call: processes cannot be traced here\n");
        exit(77);
    }
    ptrace(PTRACE_SYSCALL, child, NULL, NULL);
    return child;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: fail_call N recorder|command COUNT-FILE CMD ARGUMENT...\n");
        return 2;
    }
    failing_call = strtoul(argv[1], NULL, 10);
    counts_outside = strcmp(argv[2], "command") == 0;
    code_name = counts_outside ? "/ld-linux" : "libmemtally-record.so";
    first = start(argv + 4);
    int result = follow();
    FILE *file = fopen(argv[3], "w");
    if (file) {
        fprintf(file, "%lu %ld\n", n_calls, failed_number);
        fclose(file);
    }
    return result;
}
