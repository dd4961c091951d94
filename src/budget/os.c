/* SPDX-License-Identifier: MIT */
/* This machine behind struct mt_budget_os. */
#include "budget/file.h"

#include <errno.h>
#include <fcntl.h>
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

static struct flock byte_at(short type, uint64_t offset)
{
    return (struct flock){
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = 1};
}

static int machine_lock(void *context, int fd)
{
    struct flock first = byte_at(F_WRLCK, 0);
    (void)context;
    while (fcntl(fd, F_OFD_SETLKW, &first) < 0)
        if (errno != EINTR)
            return -errno;
    return 0;
}

static int machine_hold(void *context, int fd, uint64_t offset)
{
    struct flock byte = byte_at(F_WRLCK, offset);
    (void)context;
    return fcntl(fd, F_OFD_SETLK, &byte) < 0 ? -errno : 0;
}

static int machine_is_held(void *context, int fd, uint64_t offset)
{
    struct flock byte = byte_at(F_WRLCK, offset);
    (void)context;
    return fcntl(fd, F_OFD_GETLK, &byte) < 0 ? -errno : byte.l_type != F_UNLCK;
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
    struct flock first = byte_at(F_UNLCK, 0); /* a child that was forked meanwhile shares it */
    fcntl(fd, F_OFD_SETLK, &first);
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
    os->hold = machine_hold;
    os->is_held = machine_is_held;
}
