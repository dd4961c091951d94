/* SPDX-License-Identifier: MIT */
/* Writing a file beside its place and moving it there. Knows nothing of what it holds. */
#include "model/out_file.h"

#include "base/error.h"
#include "base/fail_errno.h"
#include "base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MOST_NAMES 100

static int real_open(const char *path, int flags, mode_t mode)
{
    return open(path, flags, mode);
}

static uint64_t real_free_bytes(int fd)
{
    struct statvfs status;
    uint64_t bytes;
    if (fstatvfs(fd, &status) != 0 || status.f_blocks == 0 ||
        __builtin_mul_overflow((uint64_t)status.f_bavail, (uint64_t)status.f_frsize, &bytes))
        return UINT64_MAX;
    return bytes;
}

const struct mt_out_file_os mt_out_file_os = {
    .open = real_open,
    .stat = stat,
    .write = write,
    .truncate = ftruncate,
    .free_bytes = real_free_bytes,
    .close = close,
    .rename = rename,
    .unlink = unlink,
};

static int check_target(const struct mt_out_file_os *os, const char *path, struct mt_error *error)
{
    struct stat status;
    if (os->stat(path, &status) == 0 && !S_ISREG(status.st_mode))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "%s is there and is not a regular file", path);
    return 0;
}

/* NULL where there is no memory; the caller frees it. */
static char *part_name(const char *path, int n)
{
    struct mt_strbuf name;
    mt_strbuf_init(&name);
    mt_strbuf_printf(&name, "%s.part-%ld-%d", path, (long)getpid(), n);
    return mt_strbuf_take(&name);
}

/* Opens the first free name; returns 0 or an errno. */
static int open_part(struct mt_out_file *file)
{
    for (int n = 0; n < MOST_NAMES; n++) {
        char *name = part_name(file->path, n);
        if (!name)
            return ENOMEM;
        file->fd = file->os->open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->fd >= 0) {
            file->part_path = name;
            return 0;
        }
        int failure = errno;
        free(name);
        if (failure != EEXIST)
            return failure;
    }
    return EEXIST;
}

int mt_out_file_begin(struct mt_out_file *file, const struct mt_out_file_os *os, const char *path,
                      struct mt_error *error)
{
    int code = check_target(os, path, error);
    if (code)
        return code;
    *file = (struct mt_out_file){.os = os, .path = path, .fd = -1};
    int failure = open_part(file);
    return failure ? mt_fail_errno(error, failure, "cannot write %s", path) : 0;
}

int mt_out_file_check_room(const struct mt_out_file *file, uint64_t bytes, struct mt_error *error)
{
    uint64_t room = file->os->free_bytes(file->fd);
    if (bytes <= room)
        return 0;
    char needed[MT_SIZE_TEXT], left[MT_SIZE_TEXT];
    return mt_fail(error, MT_EIO, MT_NO_OFFSET,
                   "%s needs %s, its file system has %s left; choose another place, or write a "
                   "sparse file",
                   file->path, mt_format_size(bytes, needed), mt_format_size(room, left));
}

int mt_out_file_write(struct mt_out_file *file, const void *bytes, size_t length,
                      struct mt_error *error)
{
    const char *at = bytes;
    while (length > 0) {
        ssize_t written = file->os->write(file->fd, at, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return mt_fail_errno(error, written < 0 ? errno : EIO, "cannot write %s", file->path);
        at += written;
        length -= (size_t)written;
    }
    return 0;
}

int mt_out_file_extend(struct mt_out_file *file, uint64_t length, struct mt_error *error)
{
    if (length <= INT64_MAX && file->os->truncate(file->fd, (off_t)length) == 0)
        return 0;
    char text[MT_SIZE_TEXT];
    return mt_fail(error, MT_EIO, MT_NO_OFFSET, "%s cannot be %s long on its file system: %s",
                   file->path, mt_format_size(length, text),
                   strerror(length <= INT64_MAX ? errno : EFBIG));
}

int mt_out_file_commit(struct mt_out_file *file, struct mt_error *error)
{
    int fd = file->fd;
    file->fd = -1;
    if (file->os->close(fd) != 0 || file->os->rename(file->part_path, file->path) != 0) {
        int failure = errno;
        mt_out_file_discard(file);
        return mt_fail_errno(error, failure, "cannot write %s", file->path);
    }
    free(file->part_path);
    file->part_path = NULL;
    return 0;
}

void mt_out_file_discard(struct mt_out_file *file)
{
    if (file->fd >= 0)
        file->os->close(file->fd);
    file->fd = -1;
    if (file->part_path)
        file->os->unlink(file->part_path);
    free(file->part_path);
    file->part_path = NULL;
}
