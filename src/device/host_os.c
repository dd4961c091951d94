/* SPDX-License-Identifier: MIT */
/* This machine behind struct mt_host_os. The only file of the host part that makes system calls. */
#include "device/host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

static int machine_open_file(void *context, const char *path)
{
    (void)context;
    /* Without O_NONBLOCK, a FIFO in the place of a file would hold us up. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

/* Files of the kernel give all that they have, as far as it fits, in one call. */
static long machine_read_open(void *context, int fd, char *bytes, size_t capacity)
{
    (void)context;
    ssize_t n = pread(fd, bytes, capacity, 0);
    return n < 0 ? -errno : n;
}

static void machine_close_file(void *context, int fd)
{
    (void)context;
    close(fd);
}

static long machine_read_file(void *context, const char *path, char *bytes, size_t capacity)
{
    int fd = machine_open_file(context, path);
    if (fd < 0)
        return fd;
    size_t used = 0;
    while (used < capacity) {
        ssize_t n = read(fd, bytes + used, capacity - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int reason = errno;
            close(fd);
            return -reason;
        }
        if (n == 0)
            break;
        used += (size_t)n;
    }
    close(fd);
    return (long)used;
}

static long machine_read_link(void *context, const char *path, char *bytes, size_t capacity)
{
    (void)context;
    ssize_t n = readlink(path, bytes, capacity);
    return n < 0 ? -errno : n;
}

static int machine_list(void *context, const char *path,
                        int (*each)(void *each_context, const char *name), void *each_context)
{
    (void)context;
    DIR *directory = opendir(path);
    if (!directory)
        return -errno;
    struct dirent *entry;
    while ((entry = readdir(directory)) != NULL) {
        if (each(each_context, entry->d_name))
            break;
    }
    closedir(directory);
    return 0;
}

static int machine_read_free(void *context, uint64_t *free_bytes, uint64_t *total_bytes)
{
    struct sysinfo info;
    (void)context;
    if (sysinfo(&info) < 0)
        return -errno;
    *free_bytes = (uint64_t)info.freeram * info.mem_unit;
    *total_bytes = (uint64_t)info.totalram * info.mem_unit;
    return 0;
}

static uint64_t machine_now_ns(void *context)
{
    (void)context;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t positive_or(long value, uint64_t otherwise)
{
    return value > 0 ? (uint64_t)value : otherwise;
}

void mt_host_os_init(struct mt_host_os *os)
{
    *os = (struct mt_host_os){
        .read_file = machine_read_file,
        .read_link = machine_read_link,
        .list = machine_list,
        .open_file = machine_open_file,
        .read_open = machine_read_open,
        .close_file = machine_close_file,
        .read_free = machine_read_free,
        .now_ns = machine_now_ns,
        .page_bytes = positive_or(sysconf(_SC_PAGESIZE), 4096),
        .ticks_per_s = positive_or(sysconf(_SC_CLK_TCK), 100),
    };
}
