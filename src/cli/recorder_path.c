/* SPDX-License-Identifier: MIT */
/* Looking for the recorder library. */
#include "cli/recorder_path.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <version.h>

#include "base/error.h"

#define RECORDER "libmemtally-record.so"

/* The folder of this executable, or "" where it cannot be told. */
static void own_folder(char folder[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    folder[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
}

/* Takes `directory`/`below`/RECORDER where it can be read. The path is made absolute and plain,
 * because the program that is given it may stand elsewhere. */
static int try_in(const char *directory, const char *below, char found[PATH_MAX])
{
    char candidate[PATH_MAX];
    int length = snprintf(candidate, sizeof candidate, "%s%s/" RECORDER, directory, below);
    return length < PATH_MAX && access(candidate, R_OK) == 0 && realpath(candidate, found);
}

/* Where libraries are below the prefix: "/lib/x86_64-linux-gnu/memtally". */
static const char *library_part(void)
{
    const char *part = strstr(MT_RECORDER_DIR, "/lib");
    return part ? part : "/lib/memtally";
}

static int find_beside(char found[PATH_MAX])
{
    char folder[PATH_MAX];
    char above[PATH_MAX + 4];
    own_folder(folder);
    if (!*folder)
        return 0;
    snprintf(above, sizeof above, "%s/..", folder);
    return try_in(above, "/recorder", found) || try_in(above, library_part(), found) ||
           try_in(above, "/lib/memtally", found);
}

static int copy(const char *found, char *path, size_t size, struct mt_error *error)
{
    if (snprintf(path, size, "%s", found) >= (int)size)
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "the path of the recorder is too long: %s",
                       found);
    return 0;
}

int cli_find_recorder(char *path, size_t size, struct mt_error *error)
{
    char found[PATH_MAX];
    const char *named = getenv("MEMTALLY_RECORDER");
    if (named && *named) {
        if (access(named, R_OK) == 0 && realpath(named, found))
            return copy(found, path, size, error);
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "MEMTALLY_RECORDER names %s, which cannot be read; correct or unset it",
                       named);
    }
    if (find_beside(found) || try_in(MT_RECORDER_DIR, "", found))
        return copy(found, path, size, error);
    if (access("/proc/self/exe", F_OK) < 0)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "/proc is not there, and nothing can be measured without it; mount it "
                       "(mount -t proc proc /proc)");
    return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                   "the recorder " RECORDER
                   " is neither beside this program nor in " MT_RECORDER_DIR
                   "; name it in the environment variable MEMTALLY_RECORDER");
}
