/* SPDX-License-Identifier: MIT */
/* Which library asks the driver for memory: the first that called and is neither the driver nor the
 * runtime. Many libraries have the runtime in themselves, so that the caller's address says it.
 * Past a runtime of its own file the calls are unwound, since those libraries have no frame
 * pointers: with the compiler's unwinder, where the program has it anyway. These functions are
 * called by a program and never from inside an allocator, so that asking the loader is safe here.
 */
#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "recorder/cuda.h"
#include "recorder/real.h"

#define FRAMES_MOST      48u
#define CODE_END_OF_LIST 5 /* _URC_END_OF_STACK */

/* struct dl_find_object of glibc 2.35 and later. */
struct found_object {
    unsigned long long flags;
    void *low, *high;
    const struct link_map *map;
    void *unwind_data;
    unsigned long long reserved[7];
};

typedef int (*find_object)(void *address, struct found_object *found);
typedef int (*unwind_step)(void *context, void *argument);
typedef int (*unwind)(unwind_step step, void *argument);
typedef uintptr_t (*get_address)(void *context);

struct walk {
    get_address address_of;
    uintptr_t from; /* where the hook returns to */
    int is_past;    /* of the recorder's own frames */
    unsigned n;
    const char *file;
};

static void *symbol(void *library, const char *name)
{
    return memtally_real.dlsym(library, name);
}

/* The name of the file that code lies in, without folders; NULL where none is known. */
static const char *file_of(uintptr_t address)
{
    struct found_object found = {0};
    find_object find = NULL;
    void *function = symbol(RTLD_DEFAULT, "_dl_find_object");
    const char *path = NULL;
    Dl_info info;
    memcpy(&find, &function, sizeof find);
    if (find && find((void *)address, &found) == 0 && found.map)
        path = found.map->l_name;
    else if (!find && dladdr((void *)address, &info))
        path = info.dli_fname;
    const char *last = path ? strrchr(path, '/') : NULL;
    return last ? last + 1 : path;
}

static int begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* What stands between a caller and the driver. */
static int is_between(const char *file)
{
    return begins(file, "libcuda.so") || begins(file, "libcudart.so") ||
           begins(file, "libmemtally-record.so");
}

static int step(void *context, void *argument)
{
    struct walk *walk = argument;
    uintptr_t address = walk->address_of(context);
    walk->is_past |= address == walk->from;
    if (!address || walk->n++ == FRAMES_MOST)
        return CODE_END_OF_LIST;
    const char *file = walk->is_past ? file_of(address - 1) : NULL;
    if (!walk->is_past || (file && is_between(file)))
        return 0;
    walk->file = file;
    return CODE_END_OF_LIST;
}

/* By the compiler's unwinder, which a program of C++ has loaded. */
static int walk_unwinder(struct walk *walk)
{
    unwind unwinder;
    void *library = memtally_real.dlopen("libgcc_s.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *function = library ? symbol(library, "_Unwind_Backtrace") : NULL;
    void *question = library ? symbol(library, "_Unwind_GetIP") : NULL;
    if (function && question) {
        memcpy(&unwinder, &function, sizeof unwinder);
        memcpy(&walk->address_of, &question, sizeof walk->address_of);
        unwinder(step, walk);
    }
    if (library)
        dlclose(library);
    return function && question;
}

/* By frame pointers, within the thread's own stack. */
static const char *walk_frames(const uintptr_t *frame)
{
    const struct tls *tls = &memtally_tls;
    for (unsigned n = 0; n < FRAMES_MOST; n++) {
        uintptr_t at = (uintptr_t)frame;
        const char *file = frame[1] < 4096 ? NULL : file_of(frame[1] - 1);
        if (!file || !is_between(file))
            return file;
        frame = (const uintptr_t *)frame[0];
        if ((uintptr_t)frame <= at || (uintptr_t)frame % sizeof at || at < tls->stack_low ||
            (uintptr_t)(frame + 2) > tls->stack_high)
            return NULL;
    }
    return NULL;
}

const char *cuda_caller(const void *frame)
{
    const uintptr_t *hook = frame;
    struct walk walk = {.from = hook[1]};
    const char *file = file_of(hook[1] - 1);
    if (file && !is_between(file))
        return file;
    loader_errors_aside();
    int is_unwound = walk_unwinder(&walk);
    loader_errors_back();
    return is_unwound ? walk.file : walk_frames(hook);
}
