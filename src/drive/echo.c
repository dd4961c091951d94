/* SPDX-License-Identifier: MIT */
/* Passing on what a rehearsed program writes, while it runs. */
#include "echo.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void mt_drive_echo_open(struct mt_drive_echo *echo, const char *folder)
{
    static const char *const names[] = {"output", "errors"};
    *echo = (struct mt_drive_echo){0};
    for (int i = 0; i < 2; i++) {
        char path[PATH_MAX];
        int length = snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        echo->fd[i] = length < (int)sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    }
}

/* Where we read a file on. We give back the middle of a large one; the program may begin it anew.
 */
static off_t next_of(int fd, off_t at)
{
    struct stat status;
    if (fstat(fd, &status) < 0)
        return at;
    off_t data = lseek(fd, at < status.st_size ? at : 0, SEEK_DATA);
    return at > status.st_size ? 0 : data > at ? data : at;
}

static void show(struct mt_drive_echo *echo, int which, const struct mt_drive_listener *listener)
{
    char text[8192];
    ssize_t n;
    int fd = echo->fd[which];
    if (fd < 0)
        return;
    echo->at[which] = next_of(fd, echo->at[which]);
    while ((n = pread(fd, text, sizeof text, echo->at[which])) > 0) {
        mt_drive_pass_on(listener, text, (size_t)n);
        echo->at[which] += n;
    }
}

void mt_drive_echo_show(struct mt_drive_echo *echo, const struct mt_drive_listener *listener)
{
    for (int i = 0; i < 2; i++)
        show(echo, i, listener);
}

void mt_drive_echo_close(struct mt_drive_echo *echo)
{
    for (int i = 0; i < 2; i++)
        if (echo->fd[i] >= 0)
            close(echo->fd[i]);
    *echo = (struct mt_drive_echo){.fd = {-1, -1}};
}
