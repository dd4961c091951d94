/* SPDX-License-Identifier: MIT */
/* This machine behind struct mt_group_os. */
#include "device/group.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int machine_make_folder(void *context, const char *path)
{
    (void)context;
    return mkdir(path, 0755) == 0 ? 0 : -errno;
}

static int machine_remove_folder(void *context, const char *path)
{
    (void)context;
    return rmdir(path) == 0 ? 0 : -errno;
}

static int machine_write_file(void *context, const char *path, const char *text)
{
    (void)context;
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    ssize_t n = write(fd, text, strlen(text));
    int reason = n < 0 ? errno : 0;
    close(fd);
    return -reason;
}

static int machine_signal(void *context, int pid, int number)
{
    (void)context;
    return kill(pid, number) == 0 ? 0 : -errno;
}

void mt_group_os_init(struct mt_group_os *os)
{
    mt_host_os_init(&os->host);
    os->context = NULL;
    os->pid = (int)getpid();
    os->make_folder = machine_make_folder;
    os->remove_folder = machine_remove_folder;
    os->write_file = machine_write_file;
    os->signal = machine_signal;
}
