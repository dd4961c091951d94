/* SPDX-License-Identifier: MIT */
/* Looking for the libraries that are preloaded. */
#include "objects.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <version.h>

#include "base/environment.h"
#include "base/error.h"

/* The folder of this executable, or "" where it cannot be told. */
static void own_folder(char folder[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    folder[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
}

/* Takes `directory`/`below`/`name` where it can be read. The path is made absolute and plain,
 * because the program that is given it may stand elsewhere. */
static int try_in(const char *directory, const char *below, const char *name, char found[PATH_MAX])
{
    char candidate[PATH_MAX];
    int length = snprintf(candidate, sizeof candidate, "%s%s/%s", directory, below, name);
    return length < PATH_MAX && access(candidate, R_OK) == 0 && realpath(candidate, found);
}

/* Where libraries are below the prefix: "/lib/x86_64-linux-gnu/memtally". */
static const char *library_part(void)
{
    const char *part = strstr(MT_RECORDER_DIR, "/lib");
    return part ? part : "/lib/memtally";
}

static int find_beside(const struct mt_drive_object *object, char found[PATH_MAX])
{
    char folder[PATH_MAX];
    char above[PATH_MAX + 4];
    own_folder(folder);
    if (!*folder)
        return 0;
    snprintf(above, sizeof above, "%s/..", folder);
    return try_in(above, object->built_in, object->name, found) ||
           try_in(above, library_part(), object->name, found) ||
           try_in(above, "/lib/memtally", object->name, found);
}

static int copy(const char *found, char *path, size_t size, struct mt_error *error)
{
    if (snprintf(path, size, "%s", found) >= (int)size)
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "the path is too long: %s", found);
    return 0;
}

int mt_drive_find_object(const struct mt_drive_object *object, char *const *environment, char *path,
                         size_t size, struct mt_error *error)
{
    char found[PATH_MAX];
    const char *named = mt_environment_get(environment, object->variable);
    if (named && *named) {
        if (access(named, R_OK) == 0 && realpath(named, found))
            return copy(found, path, size, error);
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "%s names %s, which cannot be read; correct or unset it", object->variable,
                       named);
    }
    if (find_beside(object, found) || try_in(MT_RECORDER_DIR, "", object->name, found))
        return copy(found, path, size, error);
    if (access("/proc/self/exe", F_OK) < 0)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "/proc is not there, and nothing can be measured without it; mount it "
                       "(mount -t proc proc /proc)");
    return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                   "%s %s is neither beside this program nor in " MT_RECORDER_DIR
                   "; name it in the environment variable %s",
                   object->what, object->name, object->variable);
}

int mt_drive_find_recorder(char *const *environment, char *path, size_t size,
                           struct mt_error *error)
{
    static const struct mt_drive_object recorder = {"the recorder", "libmemtally-record.so",
                                                    "MEMTALLY_RECORDER", "/recorder"};
    return mt_drive_find_object(&recorder, environment, path, size, error);
}
