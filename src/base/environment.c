/* SPDX-License-Identifier: MIT */
/* An environment as a program hands it on. */
#include "base/environment.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *mt_environment_get(char *const *environment, const char *name)
{
    size_t length = strlen(name);
    for (; environment && *environment; environment++)
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
            return *environment + length + 1;
    return NULL;
}

const char *mt_environment_get_set(char *const *environment, const char *name)
{
    const char *value = mt_environment_get(environment, name);
    return value && *value ? value : NULL;
}

const char *mt_environment_temporary(char *const *environment)
{
    const char *folder = mt_environment_get_set(environment, "TMPDIR");
    return folder ? folder : "/tmp";
}

static int is_program(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

int mt_environment_find(char *const *environment, const char *name, char *found)
{
    const char *path = mt_environment_get_set(environment, "PATH");
    const char *at = path ? path : "/usr/local/bin:/usr/bin:/bin";
    if (strchr(name, '/')) {
        if (strlen(name) >= PATH_MAX || access(name, F_OK) < 0)
            return ENOENT;
        snprintf(found, PATH_MAX, "%s", name);
        return is_program(found) ? 0 : EACCES;
    }
    int result = ENOENT;
    while (*name && *at) {
        size_t length = strcspn(at, ":");
        int n =
            snprintf(found, PATH_MAX, "%.*s/%s", length ? (int)length : 1, length ? at : ".", name);
        int is_whole = length < PATH_MAX && n < PATH_MAX;
        if (is_whole && is_program(found))
            return 0;
        if (is_whole && access(found, F_OK) == 0)
            result = EACCES;
        at += length + (at[length] == ':');
    }
    return result;
}
