/* SPDX-License-Identifier: MIT */
#include "container/removal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH 2

static void remove_in(int at, const char *name, int depth)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(fd, entry->d_name, 0) < 0 && errno == EISDIR && depth)
            remove_in(fd, entry->d_name, depth - 1);
    }
    if (folder)
        closedir(folder);
    unlinkat(at, name, AT_REMOVEDIR);
}

int mt_container_remove(int above, const char *name, const struct timespec times[2])
{
    struct stat status;
    if (fstatat(above, name, &status, AT_SYMLINK_NOFOLLOW) == 0) {
        remove_in(above, name, DEPTH);
        futimens(above, times);
    }
    return fstatat(above, name, &status, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}
