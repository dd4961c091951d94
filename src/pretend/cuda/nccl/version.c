/* SPDX-License-Identifier: MIT */
/* Which version of NCCL this one says it is: the one that the program's PyTorch asks for. */
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl.h"

#define PYTORCH "/torch/lib/libtorch_cuda.so"
#define WISHES  "Requires-Dist: nvidia-nccl-cu"

/* The folder that packages are installed in, where PyTorch is loaded from there. */
static int find_packages(struct dl_phdr_info *info, size_t size, void *data)
{
    char *packages = data;
    size_t length = info->dlpi_name ? strlen(info->dlpi_name) : 0;
    size_t tail = strlen(PYTORCH);
    (void)size;
    if (length <= tail || length >= PATH_MAX || strcmp(info->dlpi_name + length - tail, PYTORCH))
        return 0;
    memcpy(packages, info->dlpi_name, length - tail);
    packages[length - tail] = 0;
    return 1;
}

/* "nvidia-nccl-cu12==2.27.5; …" as NCCL counts, 22705; 0 where a line says nothing of it. */
static int version_in(const char *line)
{
    int part[3];
    const char *version = strncmp(line, WISHES, strlen(WISHES)) == 0 ? strstr(line, "==") : NULL;
    if (!version || sscanf(version, "==%d.%d.%d", &part[0], &part[1], &part[2]) != 3)
        return 0;
    if (part[0] != 2 || part[1] < 9 || part[1] > 99 || part[2] < 0 || part[2] > 99)
        return 0;
    return part[0] * 10000 + part[1] * 100 + part[2];
}

static int read_version(const char *path)
{
    char line[512];
    int version = 0;
    FILE *file = fopen(path, "re");
    while (file && !version && fgets(line, sizeof line, file))
        version = version_in(line);
    if (file)
        fclose(file);
    return version;
}

static int look(void)
{
    char packages[PATH_MAX], pattern[PATH_MAX];
    glob_t found = {0};
    int version = 0;
    if (!dl_iterate_phdr(find_packages, packages) ||
        snprintf(pattern, sizeof pattern, "%s/torch-*.dist-info/METADATA", packages) >= PATH_MAX)
        return 0;
    if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0)
        return 0;
    for (size_t i = 0; i < found.gl_pathc && !version; i++)
        version = read_version(found.gl_pathv[i]);
    globfree(&found);
    return version;
}

int nccl_version(void)
{
    static int known;
    int version = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (version)
        return version;
    version = look();
    if (!version)
        return NCCL_VERSION; /* PyTorch may be loaded later */
    __atomic_store_n(&known, version, __ATOMIC_RELAXED);
    return version;
}
