/* SPDX-License-Identifier: MIT */
/* Which cuDNN this one passes for. Programs compare the version that they were built with and the
 * one that they find; PyTorch refuses an older one, and knows the bugs of each. */
#include "rehearse/cuda/dnn/version.h"

#include <dirent.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define USUAL 91002

size_t pretend_dnn_version_in(const char *line)
{
    static const char wanted[] = "Requires-Dist: nvidia-cudnn-cu";
    unsigned cuda, major, minor, patch;
    if (strncmp(line, wanted, sizeof wanted - 1) != 0 ||
        sscanf(line + sizeof wanted - 1, "%2u==%2u.%2u.%2u", &cuda, &major, &minor, &patch) != 4)
        return 0;
    return (size_t)major * 10000 + minor * 100 + patch;
}

static size_t in_metadata(const char *path)
{
    FILE *file = fopen(path, "re");
    char line[512];
    size_t version = 0;
    if (!file)
        return 0;
    while (version == 0 && fgets(line, sizeof line, file) != NULL)
        version = pretend_dnn_version_in(line);
    fclose(file);
    return version;
}

/* Looks at the packages of the folder that PyTorch's own lies in. */
static size_t in_packages(const char *folder)
{
    DIR *packages = opendir(folder);
    char path[PATH_MAX];
    struct dirent *entry;
    size_t version = 0;
    if (!packages)
        return 0;
    while (version == 0 && (entry = readdir(packages)) != NULL)
        if (strncmp(entry->d_name, "torch-", 6) == 0 &&
            (size_t)snprintf(path, sizeof path, "%s/%s/METADATA", folder, entry->d_name) <
                sizeof path)
            version = in_metadata(path);
    closedir(packages);
    return version;
}

/* PyTorch lies as torch/lib/libtorch_cuda.so beside torch-VERSION.dist-info. */
static int find_torch(struct dl_phdr_info *object, size_t size, void *found)
{
    static const char torch[] = "/torch/lib/libtorch_cuda.so";
    size_t length = object->dlpi_name ? strlen(object->dlpi_name) : 0;
    char *folder = found;
    (void)size;
    if (length < sizeof torch || length >= PATH_MAX ||
        strcmp(object->dlpi_name + length - (sizeof torch - 1), torch) != 0)
        return 0;
    memcpy(folder, object->dlpi_name, length - (sizeof torch - 1));
    folder[length - (sizeof torch - 1)] = '\0';
    return 1;
}

size_t pretend_dnn_version(void)
{
    static _Atomic size_t known;
    char folder[PATH_MAX];
    size_t version = known;
    if (version != 0)
        return version;
    if (dl_iterate_phdr(find_torch, folder) == 0)
        return USUAL; /* PyTorch may come yet */
    version = in_packages(folder);
    known = version != 0 ? version : USUAL;
    return known;
}
