/* SPDX-License-Identifier: MIT */
/* Which CUDA the PyTorch was built with that lies beside a program. */
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rehearse/program.h"

#define MAJOR_LEAST 12
#define MAJOR_MOST  13

/* CUDA's major version by torch/version.py's line "cuda: Optional[str] = '12.8'"; 0: it is of none
 * that is known. */
static int major_of(const char *path)
{
    char line[256];
    int major = 0;
    FILE *file = fopen(path, "re");
    while (file && !major && fgets(line, sizeof line, file)) {
        const char *quote = strncmp(line, "cuda", 4) == 0 ? strchr(line, '\'') : NULL;
        if (quote && (line[4] == ':' || line[4] == ' ' || line[4] == '='))
            major = (int)strtol(quote + 1, NULL, 10);
    }
    if (file)
        fclose(file);
    return major >= MAJOR_LEAST && major <= MAJOR_MOST ? major : 0;
}

/* Python's own folders belong to the interpreter that is called, not to what its link leads to. */
int mt_cuda_major_beside(const char *program)
{
    char pattern[PATH_MAX];
    glob_t found = {0};
    int major = -1;
    const char *slash = strrchr(program, '/');
    if (!slash ||
        snprintf(pattern, sizeof pattern, "%.*s/../lib*/python3*/*-packages/torch/version.py",
                 (int)(slash - program), program) >= PATH_MAX)
        return 0;
    if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0)
        return 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        int here = major_of(found.gl_pathv[i]);
        major = major < 0 || major == here ? here : 0;
    }
    globfree(&found);
    return major < 0 ? 0 : major;
}
