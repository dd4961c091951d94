/* SPDX-License-Identifier: MIT */
/* The files of this machine, or of a folder that is another process's root. They are read with
 * pread(), never mapped: a file that becomes shorter while it is read must not end the program.
 * What is no regular file is not opened: some devices act on it. Knows nothing of formats. */
#include "model/files.h"

#include "base/error.h"
#include "base/fail_errno.h"
#include "base/out_of_memory.h"

#include <memtally/model_file.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STEP_BYTES (64 * 1024)

/* From include/uapi/linux/openat2.h of Linux 5.6, which older headers lack. */
struct how {
    uint64_t flags;
    uint64_t mode;
    uint64_t resolve;
};

#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#define NO_MAGIC_LINKS ((uint64_t)0x02)
#define IN_ROOT        ((uint64_t)0x10)

struct local {
    int fd;
    char path[];
};

static int read_local(void *argument, uint64_t offset, void *to, size_t length,
                      struct mt_error *error)
{
    const struct local *local = argument;
    char *at = to;
    while (length > 0) {
        ssize_t n = pread(local->fd, at, length, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return mt_fail_errno(error, errno, "%s: reading at byte %llu", local->path,
                                 (unsigned long long)offset);
        if (n == 0)
            return mt_fail(error, MT_ETRUNCATED, offset,
                           "%s: the file ends at byte %llu, it became shorter while it was read",
                           local->path, (unsigned long long)offset);
        at += n;
        offset += (uint64_t)n;
        length -= (size_t)n;
    }
    return 0;
}

static void close_local(void *argument)
{
    struct local *local = argument;
    close(local->fd);
    free(local);
}

static int check_kind(int fd, const char *path, struct stat *status, struct mt_error *error)
{
    if (fstat(fd, status) != 0)
        return mt_fail_errno(error, errno, "%s", path);
    if (S_ISREG(status->st_mode))
        return MT_OK;
    return mt_fail(error, MT_EARG, MT_NO_OFFSET, "%s is %s; a file was expected", path,
                   S_ISDIR(status->st_mode) ? "a folder" : "a device, a pipe or the like");
}

static int fill_source(int fd, const char *path, struct mt_model_source *source,
                       struct mt_error *error)
{
    struct stat status;
    int code = check_kind(fd, path, &status, error);
    if (code != MT_OK)
        return code;
    size_t length = strlen(path);
    struct local *local = malloc(sizeof *local + length + 1);
    if (!local)
        return mt_out_of_memory_for(error, path);
    local->fd = fd;
    memcpy(local->path, path, length + 1);
    *source = (struct mt_model_source){.argument = local,
                                       .size_bytes = (uint64_t)status.st_size,
                                       .step_bytes = STEP_BYTES,
                                       .read = read_local,
                                       .close = close_local};
    return 0;
}

/* `argument` is the root's descriptor, or NULL for our own. */
static int open_at(const void *argument, const char *path, int flags)
{
    const int *root = argument;
    const struct how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
                            .resolve = IN_ROOT | NO_MAGIC_LINKS};
    return root ? (int)syscall(SYS_openat2, *root, path, &how, sizeof how)
                : open(path, flags | O_CLOEXEC);
}

/* Opens what a descriptor of O_PATH stands for; without a /proc, what the path stands for now. */
static int open_found(const void *argument, int found, const char *path)
{
    const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY;
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", found);
    int fd = open(link, flags | O_CLOEXEC);
    return fd < 0 && errno == ENOENT ? open_at(argument, path, flags) : fd;
}

static int open_file(void *argument, const char *path, struct mt_model_source *source,
                     struct mt_error *error)
{
    struct stat status;
    int found = open_at(argument, path, O_PATH);
    if (found < 0)
        return mt_fail_errno(error, errno, "%s", path);
    int code = check_kind(found, path, &status, error);
    int fd = code == MT_OK ? open_found(argument, found, path) : -1;
    if (code == MT_OK && fd < 0)
        code = mt_fail_errno(error, errno, "%s", path);
    close(found);
    if (code == MT_OK)
        code = fill_source(fd, path, source, error);
    if (code != MT_OK && fd >= 0)
        close(fd);
    return code;
}

static int is_folder(void *argument, const char *path)
{
    struct stat status;
    int fd = open_at(argument, path, O_PATH);
    int is = fd >= 0 && fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
    if (fd >= 0)
        close(fd);
    return is;
}

static int list(void *argument, const char *path, int (*each)(void *to, const char *name), void *to,
                struct mt_error *error)
{
    int fd = open_at(argument, path, O_RDONLY | O_DIRECTORY);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    int code = 0;
    if (!folder) {
        code = mt_fail_errno(error, errno, "%s", path);
        if (fd >= 0)
            close(fd);
        return code;
    }
    while (!code) {
        errno = 0;
        struct dirent *entry = readdir(folder);
        if (!entry && errno != 0)
            code = mt_fail_errno(error, errno, "%s", path);
        if (!entry)
            break;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            code = each(to, entry->d_name);
    }
    closedir(folder);
    return code;
}

static const struct mt_model_files local_files = {
    .open = open_file, .is_folder = is_folder, .list = list};

const struct mt_model_files *mt_model_files_local(void)
{
    return &local_files;
}

void mt_model_files_within(const int *root, struct mt_model_files *files)
{
    *files = local_files;
    files->argument = (void *)(uintptr_t)root;
}
