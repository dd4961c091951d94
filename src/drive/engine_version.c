/* SPDX-License-Identifier: MIT */
/* Asking a program for its version. It is somebody else's program: it may hang, fail, or print
 * anything. */
#include "engine_version.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/ticks.h"

#define PATIENCE_NS ((uint64_t)5 * 1000 * 1000 * 1000)

int mt_profile_read_version(const char *text, char *version, size_t size)
{
    static const char unknown[] = " (build 0, commit unknown)";
    const char *start = strstr(text, "version: ");
    if (!start)
        return 0;
    start += strlen("version: ");
    size_t length = strcspn(start, "\r\n");
    size_t tail = sizeof unknown - 1;
    if (length > tail && strncmp(start + length - tail, unknown, tail) == 0)
        length -= tail;
    if (length == 0)
        return 0;
    snprintf(version, size, "%.*s", (int)length, start);
    return 1;
}

static int spawn(const char *program, char *const *environment, int output, pid_t *pid)
{
    char *argv[] = {(char *)program, (char *)"--version", NULL};
    char path[PATH_MAX];
    posix_spawn_file_actions_t actions;
    if (mt_environment_find(environment, program, path) ||
        posix_spawn_file_actions_init(&actions) != 0)
        return 0;
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    int code = posix_spawn(pid, path, &actions, NULL, argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    return code == 0;
}

/* Reads until the end, a full text, or the end of our patience. */
static void read_text(int fd, char *text, size_t size)
{
    uint64_t start_ns = mt_monotonic_ns();
    size_t length = 0;
    while (length < size - 1 && mt_monotonic_ns() - start_ns < PATIENCE_NS) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, 100) <= 0)
            continue;
        ssize_t got = read(fd, text + length, size - 1 - length);
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    text[length] = '\0';
}

void mt_profile_ask_version(const char *program, char *const *environment, char *version,
                            size_t size)
{
    char text[4096];
    int ends[2];
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return;
    int started = spawn(program, environment, ends[1], &pid);
    close(ends[1]);
    if (started) {
        read_text(ends[0], text, sizeof text);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        mt_profile_read_version(text, version, size);
    }
    close(ends[0]);
}
