/* SPDX-License-Identifier: MIT */
/* The two processes share a pipe that exec closes: what comes through it is why exec failed.
 *
 * They share memory too until then, since a copy of a large process takes long. No signal handler
 * of the parent's may run in the child. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/become.h"

/* Signals that are ignored stay so, as over exec. */
static void leave_handlers(void)
{
    const struct sigaction plain = {.sa_handler = SIG_DFL};
    struct sigaction action;
    for (int signal = 1; signal <= SIGRTMAX; signal++)
        if (sigaction(signal, NULL, &action) == 0 && action.sa_handler != SIG_IGN &&
            action.sa_handler != SIG_DFL)
            sigaction(signal, &plain, NULL);
}

/* In the child: never returns. */
static void become_or_say(mt_become_fn *become, void *context, int report, const sigset_t *signals)
{
    leave_handlers();
    sigprocmask(SIG_SETMASK, signals, NULL);
    int failed = become(context);
    ssize_t written = write(report, &failed, sizeof failed);
    _exit(written == sizeof failed ? 127 : 126);
}

/* Why the child failed, 0 where it became the program. */
static int reason_of(int report)
{
    int failed = 0;
    ssize_t got = TEMP_FAILURE_RETRY(read(report, &failed, sizeof failed));
    return got == sizeof failed ? failed : 0;
}

pid_t mt_become(mt_become_fn *become, void *context)
{
    int report[2];
    sigset_t all;
    sigset_t signals;
    if (pipe2(report, O_CLOEXEC) < 0)
        return -errno;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &signals);
    pid_t pid = vfork(); /* NOLINT: what the child may do is said in the header */
    if (pid == 0)
        become_or_say(become, context, report[1], &signals);
    int failed = pid < 0 ? errno : 0;
    pthread_sigmask(SIG_SETMASK, &signals, NULL);
    close(report[1]);
    if (!failed)
        failed = reason_of(report[0]);
    close(report[0]);
    if (failed && pid > 0)
        TEMP_FAILURE_RETRY(waitpid(pid, NULL, 0));
    return failed ? -failed : pid;
}
