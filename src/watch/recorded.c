/* SPDX-License-Identifier: MIT */
/* Where a process that runs is recorded: the recorder in it has its file mapped. */
#include <errno.h>
#include <memtally/recording.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/host.h"

/* The path of a line of maps where it is a recording's file that can be written; else NULL. */
static char *recording_of_line(char *line)
{
    static const char suffix[] = ".mtr";
    char *path = strchr(line, '/');
    size_t length = strcspn(line, "\n");
    line[length] = '\0';
    if (!path || !strstr(line, " rw-s ") || strstr(line, " rw-s ") > path)
        return NULL;
    length = strlen(path);
    return length > sizeof suffix && strcmp(path + length - sizeof suffix + 1, suffix) == 0 ? path
                                                                                            : NULL;
}

/* Returns 0 or a negative errno. */
static int find_in(int pid, char *directory, size_t capacity)
{
    char name[32];
    char *line = NULL;
    char *path = NULL;
    size_t room = 0;
    snprintf(name, sizeof name, "/proc/%d/maps", pid);
    FILE *maps = fopen(name, "re");
    if (!maps)
        return -errno;
    while (!path && getline(&line, &room, maps) > 0)
        path = recording_of_line(line);
    fclose(maps);
    int result = path ? 0 : -ENOENT;
    if (path) {
        size_t length = (size_t)(strrchr(path, '/') - path);
        if (length < capacity) {
            memcpy(directory, path, length);
            directory[length] = '\0';
        } else {
            result = -ENAMETOOLONG;
        }
    }
    free(line);
    return result;
}

int mt_recording_of_process(int pid, char *directory, size_t capacity, struct mt_error *error)
{
    struct mt_host_os os;
    struct mt_process_list tree = {0};
    int found = -ENOENT;
    mt_host_os_init(&os);
    int result = mt_process_tree(&os, pid, &tree, error);
    if (result < 0)
        return result;
    for (size_t i = 0; i < tree.n && found != 0; i++)
        found = find_in(tree.items[i].pid, directory, capacity);
    mt_process_list_finish(&tree);
    if (found == 0)
        return 0;
    if (found == -ENAMETOOLONG)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "the path of the recording is too long");
    return mt_fail(error, found == -EACCES || found == -EPERM ? MT_EPERM : MT_ENOTFOUND,
                   MT_NO_OFFSET, "process %d is not recorded", pid);
}
