/* SPDX-License-Identifier: MIT */
/* The user who has nothing, whom root becomes in some tests. */
#ifndef MT_TESTS_NOBODY_H
#define MT_TESTS_NOBODY_H

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

/* Whether that user can reach what is run here: a build below /root he cannot. Root alone may ask.
 */
static inline int is_for_everybody(const char *path)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(setgid(NOBODY) < 0 || setuid(NOBODY) < 0 || access(path, R_OK | X_OK) < 0);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

#endif
