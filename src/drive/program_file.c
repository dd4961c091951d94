/* SPDX-License-Identifier: MIT */
/* What a program's file tells of the libraries in it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/environment.h"
#include "program_file.h"

int mt_drive_find_in_path(const char *name, char *const *environment, char path[PATH_MAX])
{
    const char *at = mt_environment_get(environment, "PATH");
    if (strchr(name, '/'))
        return snprintf(path, PATH_MAX, "%s", name) < PATH_MAX;
    while (at && *at) {
        size_t length = strcspn(at, ":");
        if (length < PATH_MAX &&
            snprintf(path, PATH_MAX, "%.*s/%s", (int)length, at, name) < PATH_MAX &&
            access(path, X_OK) == 0)
            return 1;
        at += length + (at[length] == ':');
    }
    return 0;
}

int mt_drive_has_ggml(const char *path)
{
    static const char word[] = "ggml_backend";
    struct stat status;
    int found = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
        void *bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes != MAP_FAILED) {
            found = memmem(bytes, (size_t)status.st_size, word, sizeof word - 1) != NULL;
            munmap(bytes, (size_t)status.st_size);
        }
    }
    close(fd);
    return found;
}
