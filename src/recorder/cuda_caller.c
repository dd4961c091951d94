/* SPDX-License-Identifier: MIT */
/* Which library asks the driver for memory: the first caller that is neither the driver nor the
 * runtime. Many libraries have the runtime in themselves, so the caller's address says it. If the
 * runtime is a file of its own, we unwind the calls past it with the compiler's unwinder, if the
 * program has that anyway: these libraries have no frame pointers. We ask the loader for these
 * functions a few times at most. A thread that opens a library holds the loader's lock, and may
 * wait for a lock of the runtime's that the caller here has. */
#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "recorder/cuda.h"
#include "recorder/real.h"

#define FRAMES_MOST      48u
#define ASKED_MOST       8u
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

/* Threads that ask at a time find the same. */
static void ask_loader(struct cuda_unwinder *known)
{
    void *library = memtally_real.dlopen("libgcc_s.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *question = library ? symbol(library, "_Unwind_GetIP") : NULL;
    void *function = library ? symbol(library, "_Unwind_Backtrace") : NULL;
    __atomic_store_n(&known->find_object, symbol(RTLD_DEFAULT, "_dl_find_object"),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&known->get_address, question, __ATOMIC_RELAXED);
    __atomic_store_n(&known->backtrace, question ? function : NULL, __ATOMIC_RELEASE);
    __atomic_fetch_add(&known->n_asked, 1, __ATOMIC_RELEASE);
}

/* What the program has of these; the library stays open from then on. */
static void get_ready(struct cuda_unwinder *known)
{
    if (__atomic_load_n(&known->backtrace, __ATOMIC_ACQUIRE) ||
        __atomic_load_n(&known->n_asked, __ATOMIC_ACQUIRE) >= ASKED_MOST)
        return;
    loader_errors_aside();
    ask_loader(known);
    loader_errors_back();
}

/* The name of the file that code lies in, without folders; NULL where none is known. */
static const char *file_of(uintptr_t address)
{
    struct found_object found = {0};
    find_object find = NULL;
    void *function = __atomic_load_n(&memtally_real.unwinder.find_object, __ATOMIC_RELAXED);
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
    const struct cuda_unwinder *known = &memtally_real.unwinder;
    void *function = __atomic_load_n(&known->backtrace, __ATOMIC_ACQUIRE);
    void *question = __atomic_load_n(&known->get_address, __ATOMIC_RELAXED);
    if (!function)
        return 0;
    memcpy(&unwinder, &function, sizeof unwinder);
    memcpy(&walk->address_of, &question, sizeof walk->address_of);
    unwinder(step, walk);
    return 1;
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
    get_ready(&memtally_real.unwinder);
    const char *file = file_of(hook[1] - 1);
    if (file && !is_between(file))
        return file;
    return walk_unwinder(&walk) ? walk.file : walk_frames(hook);
}
