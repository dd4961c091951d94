/* SPDX-License-Identifier: MIT */
/* Starting a job's program under its cap. */
#include "budget/job.h"

#include "base/become.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/fail_errno.h"
#include "base/preload.h"
#include "base/strbuf.h"

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

/* Variables of the job's own; NULL where it has none of that name. */
enum own { MARK, CAPS, PRELOAD, N_OWN };
static const char *const own_names[N_OWN] = {"MEMTALLY_JOB=", MT_CAPS_VARIABLE "=", "LD_PRELOAD="};

static int is_own(const char *variable, char *const owned[N_OWN])
{
    for (int i = 0; i < N_OWN; i++)
        if (owned[i] && strncmp(variable, own_names[i], strlen(own_names[i])) == 0)
            return 1;
    return 0;
}

/* The program's environment with the job's own variables in it. Texts are borrowed. */
static char **with_own(char *const *environment, char *const owned[N_OWN])
{
    size_t n = 0;
    while (environment[n])
        n++;
    char **made = calloc(n + N_OWN + 1, sizeof *made);
    size_t kept = 0;
    for (size_t i = 0; made && i < n; i++)
        if (!is_own(environment[i], owned))
            made[kept++] = environment[i];
    for (int i = 0; made && i < N_OWN; i++)
        if (owned[i])
            made[kept++] = owned[i];
    return made;
}

/* The two by which the recorder enters the job's processes and knows their caps. */
static void own_of_recorder(const struct mt_job *job, const struct mt_job_options *options,
                            char *owned[N_OWN])
{
    struct mt_strbuf caps = {0};
    struct mt_strbuf preload = {0};
    int is_rehearsed = mt_environment_get(options->environment, MT_REHEARSAL_VARIABLE) != NULL;
    mt_strbuf_printf(&caps, "%s%s", own_names[CAPS], job->caps_path);
    mt_strbuf_puts(&preload, own_names[PRELOAD]);
    mt_preload_put(&preload, options->recorder_path,
                   mt_environment_get(options->environment, "LD_PRELOAD"), is_rehearsed);
    owned[CAPS] = mt_strbuf_take(&caps);
    owned[PRELOAD] = mt_strbuf_take(&preload);
}

/* What the recorder cannot enter it cannot hold. */
static int check_bar(const char *program, struct mt_error *error)
{
    static const char *const why[] = {
        [MT_PRELOAD_STATIC] = "is linked statically",
        [MT_PRELOAD_SETUID] = "runs with rights of its own",
        [MT_PRELOAD_SANITIZED] = "is built with a sanitizer",
    };
    enum mt_preload_bar bar = mt_preload_bar_of(program);
    return bar == MT_PRELOAD_FREE
               ? 0
               : mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                         "%s %s, so that nothing can hold it to a part of a device", program,
                         why[bar]);
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
    char *owned[N_OWN] = {[MARK] = job->mark};
    if (status == 0 && job->caps)
        status = check_bar(plan->program, error);
    if (job->caps)
        own_of_recorder(job, options, owned);
    if (!job->caps || (owned[CAPS] && owned[PRELOAD]))
        plan->environment = with_own(options->environment, owned);
    if (status == 0 && !plan->environment)
        status = mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory to start a program");
    if (status == 0)
        status = run_plan(job, plan, error);
    free(owned[CAPS]);
    free(owned[PRELOAD]);
    free(plan->environment);
    free(plan);
    return status;
}
