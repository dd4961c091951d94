/* SPDX-License-Identifier: MIT */
/* Finding the real functions.
 *
 * ggml's libraries are often loaded so that RTLD_NEXT cannot see them, and there may be two copies
 * of them in a process. So a real function is looked up from the caller's own module and what that
 * depends on, as the loader would have bound it; each module's functions are kept, each looked up
 * when it is first needed. */
#include "hooks.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>

#define ENGINES_MAX        64u
#define MODULE_NAMES_BYTES 262144u

struct engine {
    uintptr_t low;
    uintptr_t high;
    uint64_t unloads; /* of modules, when this one was seen */
    char path[512];   /* "" for the program itself */
    void *slot[ENGINE_FUNCTIONS];
};

static struct engine *engines[ENGINES_MAX];
static struct engine no_module;

static const struct {
    const char *name;
    int is_hook;
} functions[ENGINE_FUNCTIONS] = {
#define HOOK(result, name, parameters) {#name, 1},
#define ASK(result, name, parameters)  {#name, 0},
#include "hooks.def"
#undef HOOK
#undef ASK
};

/* Stands for a function that is nowhere, and for one that was looked for in vain. */
static void *nothing(void)
{
    return NULL;
}

static void *address_of_nothing(void)
{
    void *(*function)(void) = nothing;
    void *address;
    memcpy(&address, &function, sizeof address);
    return address;
}

struct hook_thread *hook_thread(void)
{
    static _Thread_local struct hook_thread thread __attribute__((tls_model("initial-exec")));
    return &thread;
}

struct extent {
    uintptr_t address;
    uintptr_t low;
    uintptr_t high;
    uint64_t unloads;
};

static int match_module(struct dl_phdr_info *info, size_t size, void *context)
{
    struct extent *extent = context;
    uintptr_t low = UINTPTR_MAX, high = 0;
    (void)size;
    extent->unloads = info->dlpi_subs;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type != PT_LOAD)
            continue;
        low = start < low ? start : low;
        high = start + segment->p_memsz > high ? start + segment->p_memsz : high;
    }
    if (extent->address < low || extent->address >= high)
        return 0;
    extent->low = low;
    extent->high = high;
    return 1;
}

static int count_unloads(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size;
    *(uint64_t *)context = info->dlpi_subs;
    return 1;
}

int is_own(const void *address)
{
    static struct extent own;
    if (!__atomic_load_n(&own.high, __ATOMIC_ACQUIRE)) {
        struct extent found = {.address = (uintptr_t)&own};
        dl_iterate_phdr(match_module, &found);
        __atomic_store_n(&own.low, found.low, __ATOMIC_RELAXED);
        __atomic_store_n(&own.high, found.high, __ATOMIC_RELEASE);
    }
    return (uintptr_t)address >= own.low && (uintptr_t)address < own.high;
}

const char *own_path(void)
{
    Dl_info info;
    return dladdr(address_of_nothing(), &info) && info.dli_fname ? info.dli_fname : "";
}

int is_pretended(const void *object)
{
    const void *first;
    memcpy(&first, object, sizeof first);
    return is_own(first);
}

void *next_function(void **slot, const char *name)
{
    void *found = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    if (!found) {
        found = dlsym(RTLD_NEXT, name);
        __atomic_store_n(slot, found, __ATOMIC_RELEASE);
    }
    return found;
}

static void *symbol_of(const char *library, const char *symbol)
{
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        return NULL;
    void *found = dlsym(handle, symbol);
    dlclose(handle);
    return found && is_own(found) ? NULL : found;
}

/* The names of the loaded modules, copied: the loader must not be asked for a symbol while it holds
 * the lock of its list. */
struct modules {
    size_t used;
    char names[MODULE_NAMES_BYTES - sizeof(size_t)]; /* each with its zero */
};

static int copy_name(struct dl_phdr_info *info, size_t size, void *context)
{
    struct modules *modules = context;
    size_t length = info->dlpi_name ? strlen(info->dlpi_name) : 0;
    (void)size;
    if (!length || length >= sizeof modules->names - modules->used)
        return 0;
    memcpy(modules->names + modules->used, info->dlpi_name, length + 1);
    modules->used += length + 1;
    return 0;
}

static void *find_anywhere(const char *symbol)
{
    void *found = NULL;
    struct modules *modules =
        mmap(NULL, sizeof *modules, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (modules == MAP_FAILED)
        return NULL;
    dl_iterate_phdr(copy_name, modules);
    for (size_t at = 0; !found && at < modules->used; at += strlen(modules->names + at) + 1)
        found = symbol_of(modules->names + at, symbol);
    munmap(modules, sizeof *modules);
    return found;
}

static void *look_up(const struct engine *engine, const char *symbol)
{
    void *found = engine->path[0] ? symbol_of(engine->path, symbol) : NULL;
    if (!found)
        found = dlsym(RTLD_NEXT, symbol);
    if (!found)
        found = find_anywhere(symbol);
    dlerror();
    return found;
}

void *engine_find(struct engine *engine, enum engine_function function)
{
    void *found = __atomic_load_n(&engine->slot[function], __ATOMIC_ACQUIRE);
    if (!found) {
        found = look_up(engine, functions[function].name);
        found = found ? found : address_of_nothing();
        __atomic_store_n(&engine->slot[function], found, __ATOMIC_RELEASE);
    }
    return found == address_of_nothing() && !functions[function].is_hook ? NULL : found;
}

static struct engine *make_engine(const struct extent *extent)
{
    struct engine *made =
        mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        return NULL;
    made->low = extent->low;
    made->high = extent->high;
    made->unloads = extent->unloads;
    Dl_info info;
    struct link_map *map = NULL;
    if (dladdr1((void *)extent->address, &info, (void **)&map, RTLD_DL_LINKMAP) && map &&
        map->l_name && strlen(map->l_name) < sizeof made->path)
        strcpy(made->path, map->l_name);
    return made;
}

static void keep_engine(struct engine *made)
{
    for (size_t i = 0; i < ENGINES_MAX; i++) {
        struct engine *seen = __atomic_load_n(&engines[i], __ATOMIC_ACQUIRE);
        if (seen && seen->unloads == made->unloads)
            continue;
        if (__atomic_compare_exchange_n(&engines[i], &seen, made, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return;
    }
}

/* Modules that were seen are never forgotten, only replaced once any module was unloaded: another
 * thread may still be using what it found. */
struct engine *engine_of(uintptr_t caller)
{
    struct hook_thread *thread = hook_thread();
    if (!is_own((const void *)caller))
        thread->caller = caller;
    struct extent extent = {.address = thread->caller};
    dl_iterate_phdr(count_unloads, &extent.unloads);
    for (size_t i = 0; i < ENGINES_MAX; i++) {
        struct engine *seen = __atomic_load_n(&engines[i], __ATOMIC_ACQUIRE);
        if (!seen)
            break;
        if (seen->unloads == extent.unloads && extent.address >= seen->low &&
            extent.address < seen->high)
            return seen;
    }
    dl_iterate_phdr(match_module, &extent);
    struct engine *made = extent.high ? make_engine(&extent) : NULL;
    if (made)
        keep_engine(made);
    return made ? made : &no_module;
}
