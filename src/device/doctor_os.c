/* SPDX-License-Identifier: MIT */
/* This machine behind struct mt_doctor_os. */
#include "device/doctor.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* struct pm_scan_arg of Linux 6.7 and later, which older headers do not have. */
struct pagemap_scan {
    uint64_t size;
    uint64_t flags;
    uint64_t start;
    uint64_t end;
    uint64_t walk_end;
    uint64_t regions;
    uint64_t regions_length;
    uint64_t pages_max;
    uint64_t category_inverted;
    uint64_t category_mask;
    uint64_t category_anyof_mask;
    uint64_t return_mask;
};

struct page_region {
    uint64_t start;
    uint64_t end;
    uint64_t categories;
};

#define PAGEMAP_SCAN_CALL _IOWR('f', 16, struct pagemap_scan)
#define PAGE_IS_PRESENT   ((uint64_t)1 << 3)

/* The page that holds a variable of ours, which is certainly present. */
static uint64_t page_of(const volatile char *variable, uint64_t page_bytes)
{
    return (uint64_t)(uintptr_t)variable / page_bytes * page_bytes;
}

static int machine_try_pagemap_scan(void *context)
{
    (void)context;
    volatile char here = 1;
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t start = page_of(&here, page_bytes);
    struct page_region region = {0};
    struct pagemap_scan scan = {
        .size = sizeof scan,
        .start = start,
        .end = start + page_bytes,
        .regions = (uint64_t)(uintptr_t)&region,
        .regions_length = 1,
        .category_mask = PAGE_IS_PRESENT,
        .return_mask = PAGE_IS_PRESENT,
    };
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int n = ioctl(fd, PAGEMAP_SCAN_CALL, &scan);
    int reason = errno;
    close(fd);
    if (n < 0)
        return -reason;
    return n == 1 && region.start == start ? 0 : -EIO;
}

static int machine_try_pagemap_read(void *context)
{
    (void)context;
    volatile char here = 1;
    uint64_t entry = 0;
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t page = page_of(&here, page_bytes) / page_bytes;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = pread(fd, &entry, sizeof entry, (off_t)(page * sizeof entry));
    int reason = n < 0 ? errno : EIO;
    close(fd);
    return n == (ssize_t)sizeof entry && entry >> 63 ? 0 : -reason;
}

/* Opening tells more than permission bits do: a read-only mount refuses root, too. Folders can only
 * be asked. */
static int machine_can_write(void *context, const char *path)
{
    (void)context;
    struct stat status;
    if (stat(path, &status) != 0)
        return -errno;
    if (S_ISDIR(status.st_mode))
        return access(path, W_OK | X_OK) == 0 ? 0 : -errno;
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    close(fd);
    return 0;
}

static int machine_is_program(void *context, const char *path)
{
    (void)context;
    struct stat status;
    if (stat(path, &status) != 0)
        return -errno;
    if (!S_ISREG(status.st_mode))
        return -EACCES;
    return access(path, X_OK) == 0 ? 0 : -errno;
}

static int machine_has_library(void *context, const char *name)
{
    (void)context;
    void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (!library)
        return -ENOENT;
    dlclose(library);
    return 0;
}

static int machine_free_bytes(void *context, const char *directory, uint64_t *bytes)
{
    (void)context;
    struct statvfs status;
    if (statvfs(directory, &status) != 0)
        return -errno;
    uint64_t free_bytes;
    if (__builtin_mul_overflow((uint64_t)status.f_bavail, (uint64_t)status.f_frsize, &free_bytes))
        return -EOVERFLOW;
    *bytes = free_bytes;
    return 0;
}

void mt_doctor_os_init(struct mt_doctor_os *os)
{
    memset(os, 0, sizeof *os);
    struct mt_processor_os processor;
    mt_processor_os_init(&processor);
    os->host = processor.host;
    os->grants_tiles = processor.grants_tiles;
    os->try_pagemap_scan = machine_try_pagemap_scan;
    os->try_pagemap_read = machine_try_pagemap_read;
    os->can_write = machine_can_write;
    os->is_program = machine_is_program;
    os->has_library = machine_has_library;
    os->free_bytes = machine_free_bytes;
}
