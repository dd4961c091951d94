/* SPDX-License-Identifier: MIT */
/* The look-alikes of CUDA's libraries as a program finds them: copies under their sonames, because
 * programs look for those in their own maps and on paths. Knows files, no process. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <memtally/rehearsal.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "base/out_of_memory.h"
#include "base/strbuf.h"
#include "rehearse/program.h"

#define LIBRARY(file, soname, major) {"libmemtally-pretend-cuda-" file ".so", soname, 1, major},
#define FALLBACK(file, soname)       {"libmemtally-pretend-cuda-" file ".so", soname, 0, 0},
static const struct {
    const char *file;
    const char *soname;
    int is_preloaded; /* else it serves where the program brings none */
    int major;        /* of CUDA, 0: any */
} libraries[] = {
#include "rehearse/cuda_libraries.def"
};

/* Names without a version, by which some programs ask and linkers look. */
static const struct {
    const char *name;
    const char *soname;
    int major;
} links[] = {{"libcuda.so", "libcuda.so.1", 0},
             {"libnvidia-ml.so", "libnvidia-ml.so.1", 0},
             {"libcudart.so", "libcudart.so.12", 12},
             {"libcudart.so", "libcudart.so.13", 13}};

/* Programs that are run to learn of devices, under the names by which they are. */
static const char *const programs[][2] = {{"memtally-pretend-nvidia-smi", "nvidia-smi"}};

static int is_there(const char *directory, const char *below, const char *file, char path[PATH_MAX])
{
    return snprintf(path, PATH_MAX, "%s/%s%s%s", directory, below, *below ? "/" : "", file) <
               PATH_MAX &&
           access(path, R_OK) == 0;
}

/* Beside the others, or, as they are built, in a folder of its own below. */
static int find(const char *directory, const char *file, char path[PATH_MAX],
                struct mt_error *error)
{
    int found = is_there(directory, "", file, path);
    DIR *folder = found ? NULL : opendir(directory);
    for (struct dirent *entry; folder && !found && (entry = readdir(folder)) != NULL;)
        found = entry->d_name[0] != '.' && is_there(directory, entry->d_name, file, path);
    if (folder)
        closedir(folder);
    return found
               ? 0
               : mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET, "%s is not in %.300s", file, directory);
}

static int copy(const char *from, const char *to, struct mt_error *error)
{
    struct stat status;
    int failed = 0;
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    if (out < 0 || fstat(in, &status) < 0)
        failed = errno;
    for (off_t done = 0; !failed && done < status.st_size;) {
        ssize_t n = sendfile(out, in, &done, (size_t)(status.st_size - done));
        if (n <= 0)
            failed = n < 0 ? errno : EIO;
    }
    if (in >= 0)
        close(in);
    if (out >= 0 && close(out) < 0 && !failed)
        failed = errno;
    return failed ? mt_fail_errno(error, failed, "cannot copy %.300s to %.300s", from, to) : 0;
}

/* The loader parts what it preloads at spaces and colons, and maps it to be executed. */
static int check_folder(const char *directory, struct mt_error *error)
{
    struct statvfs disk;
    if (strpbrk(directory, " :\t\n"))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%.300s: libraries are preloaded from here, so the path may have no space "
                       "and no colon in it; name another folder",
                       directory);
    if (statvfs(directory, &disk) == 0 && disk.f_flag & ST_NOEXEC)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%.300s: libraries are preloaded from here, and its file system runs no "
                       "program (noexec); name another folder",
                       directory);
    return 0;
}

/* Programs look through their own maps for a runtime, and take the first. */
static int is_wanted(size_t i, int major)
{
    return libraries[i].is_preloaded &&
           (!major || !libraries[i].major || libraries[i].major == major);
}

static int copy_all(const char *from, int major, struct mt_cuda_stage *stage,
                    struct mt_error *error)
{
    struct mt_strbuf preload = {0};
    int result = 0;
    for (size_t i = 0; result == 0 && i < sizeof libraries / sizeof *libraries; i++) {
        char path[PATH_MAX];
        char to[PATH_MAX];
        if (snprintf(to, sizeof to, "%s/%s", stage->directory, libraries[i].soname) >= PATH_MAX)
            result = mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "the folder's path is too long");
        if (result == 0)
            result = find(from, libraries[i].file, path, error);
        if (result == 0)
            result = copy(path, to, error);
        if (is_wanted(i, major))
            mt_strbuf_printf(&preload, "%s%s", i ? ":" : "", to);
    }
    stage->preload = mt_strbuf_take(&preload);
    return result == 0 && !stage->preload ? mt_out_of_memory(error) : result;
}

static int make_links(const char *directory, int major, struct mt_error *error)
{
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        char path[PATH_MAX];
        if (links[i].major && links[i].major != major)
            continue;
        if (snprintf(path, sizeof path, "%s/%s", directory, links[i].name) >= PATH_MAX)
            return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "the folder's path is too long");
        if (symlink(links[i].soname, path) < 0)
            return mt_fail_errno(error, errno, "cannot make %.300s", path);
    }
    return 0;
}

static int make_folder(const char *directory, const char *name, char **made, struct mt_error *error)
{
    if (asprintf(made, "%s/%s", directory, name) < 0) {
        *made = NULL;
        return mt_out_of_memory(error);
    }
    if (mkdir(*made, 0777) < 0 && errno != EEXIST)
        return mt_fail_errno(error, errno, "cannot make the folder %.300s", *made);
    return 0;
}

static int copy_programs(const char *from, const char *directory, struct mt_error *error)
{
    int result = 0;
    for (size_t i = 0; result == 0 && i < sizeof programs / sizeof *programs; i++) {
        char path[PATH_MAX];
        char to[PATH_MAX];
        if (snprintf(to, sizeof to, "%s/%s", directory, programs[i][1]) >= PATH_MAX)
            result = mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "the folder's path is too long");
        if (result == 0)
            result = find(from, programs[i][0], path, error);
        if (result == 0)
            result = copy(path, to, error);
    }
    return result;
}

int mt_cuda_stage(const struct mt_rehearsal_options *options, const char *directory, int major,
                  struct mt_cuda_stage *stage, struct mt_error *error)
{
    *stage = (struct mt_cuda_stage){0};
    int result = check_folder(directory, error);
    if (result == 0)
        result = make_folder(directory, "cuda", &stage->directory, error);
    if (result == 0)
        result = make_folder(directory, "caches", &stage->caches, error);
    if (result == 0)
        result = make_folder(directory, "tmp", &stage->temporary, error);
    if (result == 0)
        result = copy_all(options->cuda_directory, major, stage, error);
    if (result == 0)
        result = make_links(stage->directory, major, error);
    if (result == 0)
        result = make_folder(stage->directory, "bin", &stage->programs, error);
    if (result == 0)
        result = copy_programs(options->cuda_directory, stage->programs, error);
    if (result == 0 && options->helper_directory) {
        stage->helper = strdup(options->helper_directory);
        if (!stage->helper)
            result = mt_out_of_memory(error);
    }
    if (result < 0)
        mt_cuda_stage_finish(stage);
    return result;
}

void mt_cuda_stage_finish(struct mt_cuda_stage *stage)
{
    free(stage->directory);
    free(stage->preload);
    free(stage->helper);
    free(stage->caches);
    free(stage->temporary);
    free(stage->programs);
    *stage = (struct mt_cuda_stage){0};
}
