/* SPDX-License-Identifier: MIT */
/* Finding a program, and a folder named after it. */
#include "cli/program.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "cli/command.h"
#include "cli/console.h"

#define NAME_COLUMNS 40
#define MOST_FOLDERS 1000

/* 0 where `path` can be run, else an errno value. */
static int why_not_runnable(const char *path)
{
    struct stat status;
    if (stat(path, &status))
        return errno;
    if (S_ISDIR(status.st_mode))
        return EISDIR;
    return access(path, X_OK) ? errno : 0;
}

/* Looks `name` up in the folders of PATH. A file that may not be run is remembered and the search
 * goes on, as execvp(3) does. */
static int why_not_in_path(const char *name)
{
    const char *folders = getenv("PATH");
    int reason = ENOENT;
    if (!folders)
        folders = "/bin:/usr/bin";
    for (;;) {
        char candidate[PATH_MAX];
        size_t length = strcspn(folders, ":");
        int written = snprintf(candidate, sizeof candidate, "%.*s%s%s", (int)length, folders,
                               length ? "/" : "./", name);
        int why = written < PATH_MAX ? why_not_runnable(candidate) : ENAMETOOLONG;
        if (!why)
            return 0;
        if (why == EACCES)
            reason = why;
        if (!folders[length])
            return reason;
        folders += length + 1;
    }
}

int cli_check_program(const char *name)
{
    int why = strchr(name, '/') ? why_not_runnable(name) : *name ? why_not_in_path(name) : ENOENT;
    if (!why)
        return CLI_EXIT_OK;
    if (why == ENOENT || why == ENOTDIR) {
        cli_complain("run: cannot find the program '%s'%s", name,
                     strchr(name, '/') ? "" : " in PATH");
        return CLI_EXIT_NOT_FOUND;
    }
    cli_complain("run: cannot run '%s': %s", name, strerror(why));
    return CLI_EXIT_NOT_EXECUTABLE;
}

/* The program's base name, with what does not belong in a file name replaced. */
static void plain_name(const char *program, char name[NAME_COLUMNS + 1])
{
    const char *slash = strrchr(program, '/');
    const char *base = slash && slash[1] ? slash + 1 : program;
    size_t length = 0;
    for (; *base && length < NAME_COLUMNS; base++) {
        int plain = isascii((unsigned char)*base) &&
                    (isalnum((unsigned char)*base) || strchr("._-+", *base));
        name[length++] = plain ? *base : '_';
    }
    name[length] = '\0';
}

int cli_choose_folder(const char *named, const char *purpose, char folder[PATH_MAX],
                      struct mt_error *error)
{
    const char *base = getenv("TMPDIR");
    const int most = PATH_MAX - 32;
    if (named && snprintf(folder, PATH_MAX, "%s", named) >= most)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "--output: the path is too long");
    if (named)
        return MT_OK;
    if (snprintf(folder, PATH_MAX, "%s/memtally-%s.XXXXXX", base && *base ? base : "/tmp",
                 purpose) >= most)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "TMPDIR is too long");
    if (!mkdtemp(folder))
        return mt_fail_errno(error, errno, "%s (TMPDIR says where temporary files go)", folder);
    return MT_OK;
}

int cli_make_recording_folder(const char *program, char *path, size_t size)
{
    char name[NAME_COLUMNS + 1];
    char stamp[32];
    time_t now = time(NULL);
    struct tm local;
    plain_name(program, name);
    if (!localtime_r(&now, &local) || !strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local))
        return EOVERFLOW;
    for (int number = 1; number < MOST_FOLDERS; number++) {
        char suffix[16] = "";
        if (number > 1)
            snprintf(suffix, sizeof suffix, "-%d", number);
        snprintf(path, size, "memtally-%s-%s%s", name, stamp, suffix);
        if (mkdir(path, 0777) == 0)
            return 0;
        if (errno != EEXIST)
            return errno;
    }
    return EEXIST;
}
