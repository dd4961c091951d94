/* SPDX-License-Identifier: MIT */
/* This machine behind struct mt_alarm_os. */
#include "device/alarm.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <memtally/units.h>

#define NS_PER_S 1000000000u

static int machine_open_file(void *context, const char *path, int flags)
{
    (void)context;
    int fd = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

static long machine_write_file(void *context, int fd, const char *bytes, size_t n)
{
    (void)context;
    ssize_t written = write(fd, bytes, n);
    return written < 0 ? -errno : written;
}

static long machine_read_begin(void *context, int fd, char *bytes, size_t n)
{
    (void)context;
    ssize_t got = pread(fd, bytes, n, 0);
    return got < 0 ? -errno : got;
}

static int machine_make_counter(void *context)
{
    (void)context;
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

static long machine_take_count(void *context, int fd, uint64_t *count)
{
    (void)context;
    ssize_t got = read(fd, count, sizeof *count);
    return got < 0 ? -errno : got;
}

static int machine_wait(void *context, struct pollfd *polled, size_t n, uint64_t timeout_ns)
{
    struct timespec time = {.tv_sec = (time_t)(timeout_ns / NS_PER_S),
                            .tv_nsec = (long)(timeout_ns % NS_PER_S)};
    (void)context;
    int ready = ppoll(polled, (nfds_t)n, timeout_ns == MT_UNKNOWN ? NULL : &time, NULL);
    return ready < 0 ? -errno : ready;
}

static void machine_close_file(void *context, int fd)
{
    (void)context;
    close(fd);
}

void mt_alarm_os_init(struct mt_alarm_os *os)
{
    mt_host_os_init(&os->host);
    os->context = NULL;
    os->open_file = machine_open_file;
    os->write_file = machine_write_file;
    os->read_begin = machine_read_begin;
    os->make_counter = machine_make_counter;
    os->take_count = machine_take_count;
    os->wait = machine_wait;
    os->close_file = machine_close_file;
}
