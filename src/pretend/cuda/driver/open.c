/* SPDX-License-Identifier: MIT */
/* Programs that load a CUDA library by its path get the look-alike of that name, as they would by
 * its name alone. Where it is of a version that was not preloaded, all look-alikes of that version
 * come first, and so they do before what names one of them as needed: its own search path could
 * lead to NVIDIA's. Everything else goes to the real dlopen. */
#include <dlfcn.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pretend/cuda/driver/needed.h"
#include "rehearse/account_write.h"

/* In two registers: where to jump, or NULL and the value to return. */
struct decision {
    void *jump;
    void *value;
};
struct decision pretend_decide_dlopen(const char *path, int flags);

/* Names that links beside a library have, and sonames. */
static const struct library {
    const char *name, *soname;
    int major;
} libraries[] = {
    {"libcuda.so", "libcuda.so.1", 0},
    {"libnvidia-ml.so", "libnvidia-ml.so.1", 0},
#define LIBRARY(file, soname, major) {soname, soname, major},
#include "rehearse/cuda_libraries.def"
#undef LIBRARY
};
#define N_LIBRARIES (sizeof libraries / sizeof *libraries)

static void *(*real)(const char *, int);

static const struct library *library_of(const char *name)
{
    for (size_t i = 0; i < N_LIBRARIES; i++)
        if (strcmp(libraries[i].name, name) == 0)
            return &libraries[i];
    return NULL;
}

/* Those of a version that lie beside this object under their sonames. */
static void load_version(int major)
{
    Dl_info self;
    const char *slash = dladdr((const void *)&real, &self) ? strrchr(self.dli_fname, '/') : NULL;
    for (size_t i = 0; slash && i < N_LIBRARIES; i++) {
        char path[PATH_MAX];
        int length = (int)(slash - self.dli_fname);
        if (libraries[i].major == major &&
            snprintf(path, sizeof path, "%.*s/%s", length, self.dli_fname, libraries[i].soname) <
                PATH_MAX &&
            access(path, R_OK) == 0)
            real(path, RTLD_NOW | RTLD_GLOBAL);
    }
}

static int is_loaded(const struct library *library)
{
    void *handle = real(library->soname, RTLD_LAZY | RTLD_NOLOAD);
    if (handle)
        dlclose(handle);
    return handle != NULL;
}

static int load_for(const char *needed)
{
    const struct library *library = library_of(needed);
    if (library && library->major && !is_loaded(library))
        load_version(library->major);
    return 0;
}

/* The look-alike that a path or a name leads to, NULL where that is none. */
static void *look_alike_of(const char *path, int flags)
{
    const char *slash = strrchr(path, '/');
    const struct library *library = library_of(slash ? slash + 1 : path);
    if (library && library->major && !is_loaded(library))
        load_version(library->major);
    if (library)
        return real(library->soname, flags | RTLD_NOLOAD);
    if (slash)
        pretend_needed(path, load_for);
    return NULL;
}

struct decision pretend_decide_dlopen(const char *path, int flags)
{
    struct decision decision = {NULL, NULL};
    void *found = (void *)__atomic_load_n((void **)(void *)&real, __ATOMIC_RELAXED);
    if (!found) {
        found = dlsym(RTLD_NEXT, "dlopen");
        __atomic_store_n((void **)(void *)&real, found, __ATOMIC_RELAXED);
    }
    if (!found)
        return decision;
    if (path && pretend_account())
        decision.value = look_alike_of(path, flags);
    if (!decision.value)
        decision.jump = found;
    return decision;
}
