/* SPDX-License-Identifier: MIT */
/* Starting a job's program under its cap. */
#include "budget/job.h"

#include "base/become.h"
#include "base/environment.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* What the child does may not allocate: all of it is found before. */
struct plan {
    const struct mt_job_options *options;
    char program[PATH_MAX];
    char procs[PATH_MAX]; /* of the group, or "" */
    char **environment;
    uint64_t limit_bytes; /* RLIMIT_DATA, 0: none */
};

static void take_limits(const struct plan *plan)
{
    if (*plan->procs) {
        int fd = open(plan->procs, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, "0", 1) != 1)
            return;
        close(fd);
    }
    struct rlimit limit = {plan->limit_bytes, plan->limit_bytes};
    errno = 0;
    if (plan->limit_bytes)
        setrlimit(RLIMIT_DATA, &limit);
}

static void take_streams(const struct mt_job_options *options)
{
    if (options->is_apart) {
        int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (nothing >= 0)
            dup2(nothing, STDIN_FILENO);
    }
    if (options->stdout_fd >= 0)
        dup2(options->stdout_fd, STDOUT_FILENO);
    if (options->stderr_fd >= 0)
        dup2(options->stderr_fd, STDERR_FILENO);
}

/* Handlers end by exec themselves; what is ignored or blocked would stay. */
static void take_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static int become(void *context)
{
    const struct plan *plan = context;
    const struct mt_job_options *options = plan->options;
    if (options->is_apart)
        setpgid(0, 0);
    errno = 0;
    take_limits(plan);
    if (errno == 0 && options->directory && chdir(options->directory) < 0)
        errno = errno ? errno : EIO;
    if (errno != 0)
        return errno;
    take_streams(options);
    take_signals();
    execve(plan->program, options->argv, plan->environment);
    return errno;
}

/* The program's environment with the job's mark in it. Texts are borrowed. */
static char **marked(char *const *environment, char *mark)
{
    size_t n = 0;
    while (environment[n])
        n++;
    char **made = calloc(n + 2, sizeof *made);
    if (!made)
        return NULL;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (strncmp(environment[i], "MEMTALLY_JOB=", strlen("MEMTALLY_JOB=")) != 0)
            made[kept++] = environment[i];
    made[kept] = mark;
    return made;
}

static int run_plan(struct mt_job *job, struct plan *plan, struct mt_error *error)
{
    pid_t pid = mt_become(become, plan);
    if (pid < 0)
        return mt_fail_errno(error, -pid, "cannot start %s", plan->program);
    job->pid = pid;
    return 0;
}

int mt_job_spawn(struct mt_job *job, const struct mt_job_options *options, struct mt_error *error)
{
    struct plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory to start a program");
    plan->options = options;
    int status = 0;
    int failed = mt_environment_find(options->environment, options->argv[0], plan->program);
    if (failed)
        status = mt_fail(error, failed == EACCES ? MT_EPERM : MT_ENOTFOUND, MT_NO_OFFSET,
                         failed == EACCES ? "cannot run %s" : "cannot find the program %s",
                         options->argv[0]);
    if (status == 0 && job->group.version)
        status = mt_group_procs_path(&job->group, plan->procs);
    if (job->cap == MT_JOB_CAP_RLIMIT)
        plan->limit_bytes = job->host_bytes;
    plan->environment = marked(options->environment, job->mark);
    if (status == 0 && !plan->environment)
        status = mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory to start a program");
    if (status == 0)
        status = run_plan(job, plan, error);
    free(plan->environment);
    free(plan);
    return status;
}
