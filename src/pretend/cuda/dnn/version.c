/* SPDX-License-Identifier: MIT */
/* Which cuDNN this one passes for. Programs compare the version that they were built with and the
 * one that they find; PyTorch refuses an older one, and knows the bugs of each. */
#include "version.h"

#include <dirent.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define USUAL 91002

/* A library of a package that says which cuDNN it wants: in the folder of packages, and the
 * beginning of the package's own. */
static const struct asker {
    const char *library;
    const char *package;
} askers[] = {
    {"/torch/lib/libtorch_cuda.so", "torch-"},
    {"/jax_plugins/xla_cuda12/xla_cuda_plugin.so", "jax_cuda12_plugin-"},
    {"/jax_plugins/xla_cuda13/xla_cuda_plugin.so", "jax_cuda13_plugin-"},
};
#define N_ASKERS (sizeof askers / sizeof *askers)

/* Where one was found. */
struct place {
    char folder[PATH_MAX];
    const struct asker *asker;
};

size_t pretend_dnn_version_in(const char *line)
{
    static const char wanted[] = "Requires-Dist: nvidia-cudnn-cu";
    unsigned major, minor, patch;
    if (strncmp(line, wanted, sizeof wanted - 1) != 0)
        return 0;
    size_t length = strcspn(line, ";");
    const char *least = memmem(line, length, "==", 2);
    if (!least)
        least = memmem(line, length, ">=", 2);
    if (!least || sscanf(least + 2, "%2u.%2u.%2u", &major, &minor, &patch) != 3)
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

/* Looks at the packages of the folder that the asker lies in. */
static size_t in_packages(const struct place *place)
{
    DIR *packages = opendir(place->folder);
    char path[PATH_MAX];
    struct dirent *entry;
    size_t version = 0;
    if (!packages)
        return 0;
    while (version == 0 && (entry = readdir(packages)) != NULL)
        if (strncmp(entry->d_name, place->asker->package, strlen(place->asker->package)) == 0 &&
            (size_t)snprintf(path, sizeof path, "%s/%s/METADATA", place->folder, entry->d_name) <
                sizeof path)
            version = in_metadata(path);
    closedir(packages);
    return version;
}

static int find_asker(struct dl_phdr_info *object, size_t size, void *found)
{
    size_t length = object->dlpi_name ? strlen(object->dlpi_name) : 0;
    struct place *place = found;
    (void)size;
    for (size_t i = 0; i < N_ASKERS; i++) {
        size_t tail = strlen(askers[i].library);
        if (length <= tail || length >= PATH_MAX ||
            strcmp(object->dlpi_name + length - tail, askers[i].library) != 0)
            continue;
        memcpy(place->folder, object->dlpi_name, length - tail);
        place->folder[length - tail] = '\0';
        place->asker = &askers[i];
        return 1;
    }
    return 0;
}

size_t pretend_dnn_version(void)
{
    static _Atomic size_t known;
    struct place place;
    size_t version = known;
    if (version != 0)
        return version;
    if (dl_iterate_phdr(find_asker, &place) == 0)
        return USUAL; /* it may come yet */
    version = in_packages(&place);
    known = version != 0 ? version : USUAL;
    return known;
}
