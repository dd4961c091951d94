/* SPDX-License-Identifier: MIT */
/* The files of this machine. They are read with pread(), never mapped: a file that becomes shorter
 * while it is read must not end the program. Knows nothing of formats. */
#include "base/error.h"

#include <memtally/model_file.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP_BYTES (64 * 1024)

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

static int fill_source(int fd, const char *path, struct mt_model_source *source,
                       struct mt_error *error)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return mt_fail_errno(error, errno, "%s", path);
    if (!S_ISREG(status.st_mode))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "%s is %s; a file was expected", path,
                       S_ISDIR(status.st_mode) ? "a folder" : "a device, a pipe or the like");
    size_t length = strlen(path);
    struct local *local = malloc(sizeof *local + length + 1);
    if (!local)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "%s: out of memory", path);
    local->fd = fd;
    memcpy(local->path, path, length + 1);
    *source = (struct mt_model_source){.argument = local,
                                       .size_bytes = (uint64_t)status.st_size,
                                       .step_bytes = STEP_BYTES,
                                       .read = read_local,
                                       .close = close_local};
    return 0;
}

static int open_local(void *argument, const char *path, struct mt_model_source *source,
                      struct mt_error *error)
{
    (void)argument;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return mt_fail_errno(error, errno, "%s", path);
    int code = fill_source(fd, path, source, error);
    if (code)
        close(fd);
    return code;
}

static int is_folder(void *argument, const char *path)
{
    struct stat status;
    (void)argument;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static int list(void *argument, const char *path, int (*each)(void *to, const char *name), void *to,
                struct mt_error *error)
{
    (void)argument;
    DIR *folder = opendir(path);
    int code = 0;
    if (!folder)
        return mt_fail_errno(error, errno, "%s", path);
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

const struct mt_model_files *mt_model_files_local(void)
{
    static const struct mt_model_files local = {
        .open = open_local, .is_folder = is_folder, .list = list};
    return &local;
}
