/* SPDX-License-Identifier: MIT */
/* An environment as a program hands it on. */
#include "base/environment.h"

#include <stddef.h>
#include <string.h>

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
