/* SPDX-License-Identifier: MIT */
/* Programs and engines by path: in a folder, in PATH, in the cache of engines. */
#include <dirent.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "find_internal.h"

int mt_profile_is_program(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

int mt_profile_join(char path[PATH_MAX], const char *folder, const char *name)
{
    int length = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return length > 0 && length < PATH_MAX;
}

int mt_profile_has(const char *folder, const char *name)
{
    char path[PATH_MAX];
    return mt_profile_join(path, folder, name) && access(path, R_OK) == 0;
}

int mt_profile_program_in(const char *folder, const char *name, char program[PATH_MAX])
{
    char path[PATH_MAX];
    if (!mt_profile_join(path, folder, name) || !mt_profile_is_program(path))
        return 0;
    memcpy(program, path, PATH_MAX);
    return 1;
}

int mt_profile_program_in_path(const char *search, const char *name, char program[PATH_MAX])
{
    while (search && *search) {
        size_t length = strcspn(search, ":");
        char folder[PATH_MAX];
        if (length > 0 && length < sizeof folder) {
            memcpy(folder, search, length);
            folder[length] = '\0';
            if (mt_profile_program_in(folder, name, program))
                return 1;
        }
        search += length + (search[length] == ':');
    }
    return 0;
}

/* The entry of `folder` with the highest version that matches `pattern` and holds `inside`; writes
 * its path. */
static int newest_in(const char *folder, const char *pattern, const char *inside,
                     char found[PATH_MAX])
{
    char best[NAME_MAX + 1] = "";
    DIR *entries = folder && *folder ? opendir(folder) : NULL;
    if (!entries)
        return 0;
    for (struct dirent *entry; (entry = readdir(entries));) {
        char path[PATH_MAX];
        if (fnmatch(pattern, entry->d_name, FNM_PERIOD) == 0 &&
            mt_profile_join(path, folder, entry->d_name) && mt_profile_has(path, inside) &&
            strverscmp(entry->d_name, best) > 0)
            snprintf(best, sizeof best, "%s", entry->d_name);
    }
    closedir(entries);
    return *best && mt_profile_join(found, folder, best);
}

int mt_profile_newest_engine(const struct mt_profile_places *places, const char *name,
                             const char *rest, const char *inside, char found[PATH_MAX])
{
    struct utsname machine;
    char pattern[256];
    if (uname(&machine) != 0)
        return 0;
    snprintf(pattern, sizeof pattern, "%s-[0-9]*-%s%s", name, machine.machine, rest);
    return newest_in(places->engines, pattern, inside, found);
}
