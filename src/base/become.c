/* SPDX-License-Identifier: MIT */
/* The two processes share a pipe that exec closes: what comes through it is why exec failed. */
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/become.h"

/* In the child: never returns. */
static void become_or_say(mt_become_fn *become, void *context, int report)
{
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
    if (pipe2(report, O_CLOEXEC) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0)
        become_or_say(become, context, report[1]);
    int failed = pid < 0 ? errno : 0;
    close(report[1]);
    if (!failed)
        failed = reason_of(report[0]);
    close(report[0]);
    if (failed && pid > 0)
        TEMP_FAILURE_RETRY(waitpid(pid, NULL, 0));
    return failed ? -failed : pid;
}
