/* SPDX-License-Identifier: MIT */
/* A first look at the model file. */
#include "model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <memtally/model_file.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fail_errno.h"

static int check_magic(int fd, const char *path, struct mt_error *error)
{
    char magic[512] = "";
    struct stat status;
    if (fstat(fd, &status) != 0)
        return mt_fail_errno(error, errno, "%s", path);
    if (S_ISDIR(status.st_mode))
        return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET,
                       "%s is a folder; give the model file, which ends in .gguf, or choose "
                       "--engine transformers, vllm or sglang",
                       path);
    if (!S_ISREG(status.st_mode))
        return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET, "%s is not a regular file", path);
    ssize_t got = read(fd, magic, sizeof magic);
    if (got < 0)
        return mt_fail_errno(error, errno, "%s", path);
    if (got >= 4 && memcmp(magic, "GGUF", 4) == 0)
        return MT_OK;
    const struct mt_file_kind *kind = mt_file_kind_of(magic, (size_t)got);
    if (kind)
        return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET,
                       "%s is %s, and the engines read GGUF files%s%s", path, kind->what,
                       kind->advice ? "; " : "", kind->advice ? kind->advice : "");
    return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET,
                   "%s is not a GGUF file, which is what the engines read; convert the model, "
                   "or make one to try with 'memtally sample-model'",
                   path);
}

int mt_profile_model_file(const char *path, char absolute[PATH_MAX], struct mt_error *error)
{
    char resolved[PATH_MAX];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "there is no model file %s; make one to try with 'memtally sample-model'",
                       path);
    if (fd < 0)
        return mt_fail_errno(error, errno, "%s", path);
    int code = check_magic(fd, path, error);
    close(fd);
    if (code == MT_OK && !realpath(path, resolved))
        code = mt_fail_errno(error, errno, "%s", path);
    if (code == MT_OK)
        memcpy(absolute, resolved, sizeof resolved);
    return code;
}

int mt_profile_model_folder(const char *path, const char *engine, char absolute[PATH_MAX],
                            struct mt_error *error)
{
    char resolved[PATH_MAX];
    char config[PATH_MAX + 16];
    struct stat status;
    if (stat(path, &status) != 0 || !realpath(path, resolved))
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET, "there is no model folder %s", path);
    snprintf(config, sizeof config, "%s/config.json", resolved);
    if (!S_ISDIR(status.st_mode) || access(config, R_OK) != 0)
        return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET,
                       "%s is no folder with a config.json, which is what %s reads", path, engine);
    memcpy(absolute, resolved, sizeof resolved);
    return MT_OK;
}
