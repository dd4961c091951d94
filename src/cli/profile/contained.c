/* SPDX-License-Identifier: MIT */
#include "cli/profile/contained.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <memtally/error.h>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/container.h"
#include "drive/contained.h"
#include "drive/objects.h"

#define RESULTS "results/memory-profiles"

int profile_contained_find(const char *name, struct profile_contained *profile)
{
    struct mt_error error = {.offset = MT_NO_OFFSET};
    int code = cli_open_container(name, &profile->container);
    if (code != CLI_EXIT_OK)
        return code;
    if (!*profile->container->socket) {
        cli_complain("profile: memtally reaches no socket of the engine that runs the container "
                     "%s, and without one it cannot copy anything into it; 'memtally attach "
                     "--container %s' looks at it from outside",
                     name, name);
        return CLI_EXIT_CANNOT;
    }
    int result = mt_contained_engine_find("/proc", profile->container, &profile->found, &error);
    if (result == 0)
        result = mt_container_check_room(profile->container, profile->found.pid, &error);
    return result < 0 ? cli_fail(&error) : CLI_EXIT_OK;
}

int profile_contained_open(struct profile_contained *profile)
{
    static const struct mt_drive_object recorder = {"the recorder for containers",
                                                    "libmemtally-record-portable.so",
                                                    "MEMTALLY_RECORDER_PORTABLE", "/recorder"};
    static const struct mt_drive_object inside = {"the program for containers", "memtally-inside",
                                                  "MEMTALLY_INSIDE", "/container/inside"};
    char paths[2][PATH_MAX];
    const struct mt_contained_files files = {paths[0], paths[1]};
    struct mt_error error = {.offset = MT_NO_OFFSET};
    int result = mt_drive_find_object(&recorder, environ, paths[0], sizeof paths[0], &error);
    if (result == 0)
        result = mt_drive_find_object(&inside, environ, paths[1], sizeof paths[1], &error);
    if (result == 0)
        result = mt_contained_open(profile->container, &files, &profile->contained, &error);
    return result < 0 ? cli_fail(&error) : CLI_EXIT_OK;
}

int profile_contained_close(struct profile_contained *profile, int code)
{
    struct mt_error error = {.offset = MT_NO_OFFSET};
    int result = mt_contained_close(profile->contained, &error);
    mt_container_close(profile->container);
    if (result == 0)
        return code;
    int failed = cli_fail(&error);
    return code == CLI_EXIT_OK ? failed : code;
}

const char *profile_contained_note(struct profile_contained *profile)
{
    const char *why = profile->contained ? mt_contained_why_outside(profile->contained) : "";
    if (!*why)
        return NULL;
    snprintf(profile->note, sizeof profile->note,
             "memtally watched the program in the container from outside: %s.", why);
    return profile->note;
}

/* Makes the folders above a file that are missing. */
static int make_folders(void)
{
    if (mkdir("results", 0777) < 0 && errno != EEXIST)
        return errno;
    return mkdir(RESULTS, 0777) < 0 && errno != EEXIST ? errno : 0;
}

/* A name is an engine's word: it leads to no other folder. */
static int name_result(const char *said, char path[PATH_MAX])
{
    char stamp[32];
    char name[MT_CONTAINER_TEXT];
    struct tm local;
    time_t now = time(NULL);
    snprintf(name, sizeof name, "%s", said);
    for (char *slash; (slash = strchr(name, '/')) != NULL;)
        *slash = '_';
    return localtime_r(&now, &local) && strftime(stamp, sizeof stamp, "%Y%m%d_%H%M%S", &local) &&
           snprintf(path, PATH_MAX, RESULTS "/%s_%s.json", name, stamp) < PATH_MAX;
}

int profile_contained_keep(const struct profile_contained *profile,
                           const struct cli_document *document)
{
    char path[PATH_MAX];
    struct mt_strbuf out = {0};
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct cli_terminal terminal = cli_terminal_of(STDERR_FILENO);
    int failed = make_folders();
    if (failed || !name_result(profile->container->name, path)) {
        cli_complain("profile: cannot make the folder " RESULTS ": %s",
                     strerror(failed ? failed : EOVERFLOW));
        return CLI_EXIT_CANNOT;
    }
    int result = cli_document_render(document, CLI_FORMAT_JSON, &terminal, &out, &error);
    int code = result < 0 ? cli_fail(&error) : cli_write_output(&out, path);
    mt_strbuf_finish(&out);
    if (code == CLI_EXIT_OK)
        cli_complain("the profile is in %s", path);
    return code;
}
