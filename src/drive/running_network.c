/* SPDX-License-Identifier: MIT */
/* A server in a network of its own, as most containers have: a child of ours enters that and asks
 * there, so that no thread of this process is ever elsewhere. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drive/running_internal.h"

#define MORE_MS 500 /* than the asking may take, until the child is ended */

static int enter_namespace(const char *proc, pid_t pid, const char *name, int kind)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%ld/ns/%s", proc, (long)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int entered = fd >= 0 && setns(fd, kind) == 0;
    if (fd >= 0)
        close(fd);
    return entered;
}

/* Who is not root here may be so among the users of a container of its own. */
static int enter_network(const char *proc, pid_t pid)
{
    return enter_namespace(proc, pid, "net", CLONE_NEWNET) ||
           (enter_namespace(proc, pid, "user", CLONE_NEWUSER) &&
            enter_namespace(proc, pid, "net", CLONE_NEWNET));
}

/* The pipe ends with the child. One that takes too long is killed. */
static int wait_for(pid_t child, int pipe_fd, uint64_t timeout_ms)
{
    struct pollfd end = {.fd = pipe_fd, .events = POLLIN};
    int status = -1;
    while (poll(&end, 1, (int)timeout_ms) < 0 && errno == EINTR)
        continue;
    if (!end.revents)
        kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) == 0 : -1;
}

/* Both ends are closed on exec only; the child has the writing one until its end. */
static int ask_in_child(const char *proc, const struct mt_drive_elsewhere *elsewhere,
                        struct mt_drive_running *shared)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return 0;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (!enter_network(proc, elsewhere->running->pid))
            _exit(1);
        elsewhere->ask(elsewhere->context);
        *shared = *elsewhere->running;
        _exit(0);
    }
    close(ends[1]);
    int asked = child > 0 ? wait_for(child, ends[0], elsewhere->timeout_ms + MORE_MS) : 0;
    close(ends[0]);
    return asked;
}

int mt_drive_running_ask_elsewhere(const char *proc, const struct mt_drive_elsewhere *elsewhere)
{
    struct mt_drive_running *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 0;
    int asked = ask_in_child(proc, elsewhere, shared);
    if (asked > 0) /* what points into it does so at the same address */
        *elsewhere->running = *shared;
    munmap(shared, sizeof *shared);
    return asked;
}
