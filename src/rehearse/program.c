/* SPDX-License-Identifier: MIT */
/* The rehearsed program as processes: finding it, starting it, telling when one is gone, ending
 * what it left. Knows nothing of the account but its path. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <memtally/rehearsal.h>

#include "base/become.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/fail_errno.h"
#include "base/preload.h"
#include "base/ticks.h"
#include "rehearse/account.h"
#include "rehearse/program.h"

#define ENVIRON_BYTES (1 << 18)
#define CLEANING_NS   (UINT64_C(2000) * 1000 * 1000) /* that cleaning up may take */
#define LOOK_NS       (2 * 1000 * 1000)

int mt_program_find(const char *name, char *const *environment, char *found, struct mt_error *error)
{
    switch (mt_environment_find(environment, name, found)) {
    case 0:
        return 0;
    case EACCES:
        return mt_fail(error, MT_EPERM, MT_NO_OFFSET,
                       "%.300s cannot be run: it is not an executable file", name);
    default:
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET, "%.300s: no such program", name);
    }
}

static int check_preload(const char *program, struct mt_error *error)
{
    switch (mt_preload_bar_of(program)) {
    case MT_PRELOAD_STATIC:
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "%.200s is linked statically, so that no device can be preloaded into it; "
                       "rehearse a build with shared libraries (-DBUILD_SHARED_LIBS=ON)",
                       program);
    case MT_PRELOAD_SETUID:
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "%.200s runs with rights of its own, and the loader preloads nothing into "
                       "such a program; rehearse a plain copy of it",
                       program);
    case MT_PRELOAD_SANITIZED:
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "%.200s is built with a sanitizer, before which nothing may be preloaded; "
                       "rehearse a build without one",
                       program);
    case MT_PRELOAD_FREE:
        break;
    }
    return 0;
}

struct start {
    const char *program;
    char *const *argv;
    char **environment;
    const int *output_fd; /* two: standard output and error */
};

/* The program ends with the thread that started it, if that should be killed. */
static int become(void *context)
{
    const struct start *start = context;
    const struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    sigaction(SIGCHLD, &plain, NULL);
    sigaction(SIGPIPE, &plain, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, STDIN_FILENO);
    dup2(start->output_fd[0], STDOUT_FILENO);
    dup2(start->output_fd[1], STDERR_FILENO);
    if (nothing > STDERR_FILENO)
        close(nothing);
    execvpe(start->program, start->argv, start->environment);
    return errno;
}

int mt_program_start(const struct mt_rehearsal_options *options, char **environment,
                     const int output_fd[2], struct mt_error *error)
{
    char program[PATH_MAX];
    int result = mt_program_find(options->argv[0], environment, program, error);
    if (result == 0)
        result = check_preload(program, error);
    if (result < 0)
        return result;
    struct start start = {.program = program,
                          .argv = options->argv,
                          .environment = environment,
                          .output_fd = output_fd};
    pid_t pid = mt_become(become, &start);
    if (pid < 0)
        return mt_fail_errno(error, -pid, "cannot run %.300s", options->argv[0]);
    return pid;
}

static ssize_t read_whole(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    ssize_t got = 1;
    if (fd < 0)
        return -1;
    while (length < size - 1 &&
           (got = TEMP_FAILURE_RETRY(read(fd, text + length, size - 1 - length))) > 0)
        length += (size_t)got;
    close(fd);
    text[length] = '\0';
    return got < 0 ? -1 : (ssize_t)length;
}

/* What is looked for among all processes. */
struct rest {
    const char *variable; /* in their environment */
    size_t length;
    pid_t group; /* or of this group; 0: none */
    char *text;  /* ENVIRON_BYTES to read into */
};

static int is_of_group(const char *pid, const struct rest *rest)
{
    char path[64];
    long group = 0;
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    if (!rest->group || read_whole(path, rest->text, ENVIRON_BYTES) <= 0)
        return 0;
    const char *name_end = strrchr(rest->text, ')');
    return name_end && sscanf(name_end + 1, " %*c %*d %ld", &group) == 1 && group == rest->group;
}

static int is_of_rest(const char *pid, const struct rest *rest)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%.20s/environ", pid);
    ssize_t got = read_whole(path, rest->text, ENVIRON_BYTES);
    if (got <= 0) /* also one that has ended and was not waited for */
        return 0;
    return memmem(rest->text, (size_t)got, rest->variable, rest->length) != NULL ||
           is_of_group(pid, rest);
}

static uint64_t signals_of(const char *status, const char *line)
{
    const char *at = strstr(status, line);
    return at ? strtoull(at + strlen(line), NULL, 16) : 0;
}

/* A process that heeds neither SIGTERM nor SIGINT outlives the others and cleans up after them, as
 * Python's tracker of semaphores and shared memory does. */
static int cleans_up(const char *pid, const struct rest *rest)
{
    static const uint64_t both = UINT64_C(1) << (SIGTERM - 1) | UINT64_C(1) << (SIGINT - 1);
    char path[64];
    snprintf(path, sizeof path, "/proc/%.20s/status", pid);
    if (read_whole(path, rest->text, ENVIRON_BYTES) <= 0)
        return 0;
    uint64_t unheeded = signals_of(rest->text, "\nSigIgn:") | signals_of(rest->text, "\nSigBlk:");
    return (unheeded & both) == both;
}

/* Kills the rest, or all of it but what cleans up. Returns how many are left. */
static int kill_all(const struct rest *rest, int also_cleaners)
{
    int n = 0;
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes)) != NULL;) {
        if (!strspn(entry->d_name, "0123456789") || !is_of_rest(entry->d_name, rest))
            continue;
        n++;
        if (also_cleaners || !cleans_up(entry->d_name, rest))
            kill((pid_t)strtol(entry->d_name, NULL, 10), SIGKILL);
    }
    if (processes)
        closedir(processes);
    return n;
}

void mt_program_kill_rest(const char *account_path, pid_t group)
{
    char wanted[PATH_MAX + 32];
    int n = snprintf(wanted, sizeof wanted, "%s=%s", MT_ACCOUNT_VARIABLE, account_path);
    const struct rest rest = {wanted, (size_t)n + 1, group, malloc(ENVIRON_BYTES)};
    const uint64_t until_ns = mt_monotonic_ns() + CLEANING_NS;
    int left = rest.text != NULL;
    while (left && (left = kill_all(&rest, 0)) > 0 && mt_monotonic_ns() < until_ns)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    /* A process may start another while they are ended. */
    for (int round = 0; left && round < 10; round++)
        left = kill_all(&rest, 1);
    free(rest.text);
}

int mt_program_is_gone(uint32_t pid)
{
    char path[64];
    char text[512];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    if (read_whole(path, text, sizeof text) <= 0)
        return kill((pid_t)pid, 0) < 0 && errno == ESRCH;
    const char *name_end = strrchr(text, ')');
    return name_end && (name_end[1] == ' ') && (name_end[2] == 'Z' || name_end[2] == 'X');
}
