/* SPDX-License-Identifier: MIT */
/* This machine behind struct mt_budget_os. */
#include "budget/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int machine_open(void *context, const char *path)
{
    struct stat is;
    (void)context;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &is) == 0 && S_ISREG(is.st_mode) && is.st_uid == geteuid() &&
        !(is.st_mode & (S_IWGRP | S_IWOTH)))
        return fd;
    close(fd);
    return -EPERM;
}

static int machine_lock(void *context, int fd)
{
    (void)context;
    while (flock(fd, LOCK_EX) < 0)
        if (errno != EINTR)
            return -errno;
    return 0;
}

static long machine_read(void *context, int fd, void *bytes, size_t n, uint64_t offset)
{
    (void)context;
    ssize_t got = pread(fd, bytes, n, (off_t)offset);
    return got < 0 ? -errno : got;
}

static long machine_write(void *context, int fd, const void *bytes, size_t n, uint64_t offset)
{
    (void)context;
    ssize_t done = pwrite(fd, bytes, n, (off_t)offset);
    return done < 0 ? -errno : done;
}

static void machine_close(void *context, int fd)
{
    (void)context;
    flock(fd, LOCK_UN); /* a child that was forked meanwhile shares the lock */
    close(fd);
}

void mt_budget_os_init(struct mt_budget_os *os)
{
    mt_host_os_init(&os->host);
    os->context = NULL;
    os->pid = (int)getpid();
    os->open = machine_open;
    os->lock = machine_lock;
    os->read = machine_read;
    os->write = machine_write;
    os->close = machine_close;
}
