/* SPDX-License-Identifier: MIT */
/* A folder beside the recording's. A program that root starts may become another user, who cannot
 * write where root does, nor even reach it. What such a user's processes record is written into a
 * folder of the system's for temporary files, where all may make files and none can list or read
 * those of others, and is taken in at the end. What lies there may be anybody's: nothing of it is
 * believed but what the reader of recordings checks. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "recording/reader.h"
#include "watch/watch.h"

#define MOST_NUMBERS 100000

void mt_side_make(struct mt_run *run)
{
    char path[] = "/tmp/memtally-XXXXXX";
    if (geteuid() != 0 || !run->has_recorder || !mkdtemp(path))
        return;
    if (chmod(path, 01733) == 0)
        run->side = strdup(path);
    if (!run->side)
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
    if (run->side)
        rmdir(run->side);
    return result;
}
