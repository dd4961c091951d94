/* SPDX-License-Identifier: MIT */
/* A folder beside the recording's. A program that root starts may become another user, who cannot
 * write where root does, nor even reach it. What such a user's processes record is written into a
 * folder of the system's for temporary files, where all may make files and none can list or read
 * those of others, and is taken in at the end. What lies there may be anybody's: nothing of it is
 * believed but what the reader of recordings checks. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/error.h"
#include "recording/reader.h"
#include "watch/watch.h"

#define MOST_NUMBERS 100000

/* Whether another user can read a file and go all the way to it. Paths are absolute. */
static int is_for_all(const char *path)
{
    char folder[PATH_MAX];
    struct stat status;
    if (stat(path, &status) < 0 || !(status.st_mode & S_IROTH) || !realpath(path, folder))
        return 0;
    for (char *end = strrchr(folder, '/'); end > folder; end = strrchr(folder, '/')) {
        *end = '\0';
        if (stat(folder, &status) < 0 || !(status.st_mode & S_IXOTH))
            return 0;
    }
    return 1;
}

static int copy_file(const char *from, const char *to)
{
    struct stat status;
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int is_copied = out >= 0 && fstat(in, &status) == 0;
    for (off_t left = is_copied ? status.st_size : 0; left > 0 && is_copied;) {
        ssize_t n = sendfile(out, in, NULL, (size_t)left);
        is_copied = n > 0;
        left -= n > 0 ? n : 0;
    }
    is_copied = is_copied && fchmod(out, 0444) == 0;
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return is_copied;
}

/* The loader complains in a program of a user who cannot reach the recorder, and goes on without:
 * such users get a copy. A file system whose files nobody may run would not do. */
static void copy_recorder(struct mt_run *run, const char *recorder)
{
    char copy[PATH_MAX];
    struct statvfs system;
    if (is_for_all(recorder) || statvfs(run->side, &system) < 0 || system.f_flag & ST_NOEXEC)
        return;
    snprintf(copy, sizeof copy, "%s/libmemtally-record.so", run->side);
    if (copy_file(recorder, copy))
        run->copied_recorder = strdup(copy);
    if (!run->copied_recorder)
        unlink(copy);
}

void mt_side_leave(const struct mt_run *run)
{
    if (run->copied_recorder)
        unlink(run->copied_recorder);
    if (run->side)
        rmdir(run->side);
}

void mt_side_make(struct mt_run *run, const char *recorder)
{
    char path[] = "/tmp/memtally-XXXXXX";
    if (geteuid() != 0 || !run->has_recorder || !mkdtemp(path))
        return;
    if (chmod(path, 01733) == 0)
        run->side = strdup(path);
    if (run->side)
        copy_recorder(run, recorder);
    else
        rmdir(path);
}

static int is_raw(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 4 && strcmp(entry->d_name + length - 4, ".mtr") == 0;
}

/* The first name of the process that is free: it may have written into both folders. */
static int choose_name(const struct mt_run *run, long pid, char packed[PATH_MAX])
{
    for (int number = 0; number < MOST_NUMBERS; number++) {
        snprintf(packed, PATH_MAX, "%s/%ld-%d.mtr", run->directory, pid, number);
        if (access(packed, F_OK) == 0)
            continue;
        packed[strlen(packed) - 1] = 'z';
        if (access(packed, F_OK) < 0)
            return 1;
    }
    return 0;
}

static int take_in(const struct mt_run *run, const char *name, struct mt_error *error)
{
    char raw[PATH_MAX];
    char packed[PATH_MAX];
    struct stat status;
    snprintf(raw, sizeof raw, "%s/%s", run->side, name);
    if (lstat(raw, &status) < 0 || !S_ISREG(status.st_mode) || status.st_nlink != 1)
        return 0; /* not the recorder's */
    if (!choose_name(run, strtol(name, NULL, 10), packed))
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "%s: too many files", run->directory);
    return mt_record_file_pack_as(raw, packed, error);
}

int mt_side_take_in(const struct mt_run *run, int (*is_busy)(const struct mt_run *run, long pid),
                    struct mt_error *error)
{
    struct dirent **entries;
    int result = 0;
    int n = run->side ? scandir(run->side, &entries, is_raw, alphasort) : -1;
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        int taken = is_busy(run, strtol(name, NULL, 10))
                        ? 0
                        : take_in(run, name, result == 0 ? error : NULL);
        if (result == 0)
            result = taken;
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    if (!run->copied_recorder || !run->n_processes) /* what goes on starts others with it */
        mt_side_leave(run);
    return result;
}
