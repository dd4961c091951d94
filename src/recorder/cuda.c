/* SPDX-License-Identifier: MIT */
/* Finding CUDA's driver and standing before its functions. Knows no event. */
#include "recorder/cuda.h"

#include <dlfcn.h>
#include <string.h>

#include "recorder/modules.h"
#include "recorder/real.h"

struct entry {
    const char *name;
    const char *unfindable;
    size_t offset;
};

static const struct entry entries[] = {
#define CUDA(name, parameters, arguments) {#name, #name " ", offsetof(struct cuda, name)},
#define CUDA_ASK(name, parameters)
#include "recorder/cuda.def"
#undef CUDA
#undef CUDA_ASK
};

static const struct entry questions[] = {
#define CUDA(name, parameters, arguments)
#define CUDA_ASK(name, parameters) {#name, NULL, offsetof(struct cuda, name)},
#include "recorder/cuda.def"
#undef CUDA
#undef CUDA_ASK
};

#define N_ENTRIES (sizeof entries / sizeof *entries)

/* ISO C has no cast from a function to an object pointer. */
static void *hook_at(size_t index)
{
    void *address = NULL;
    switch (index) {
#define CUDA(name, parameters, arguments)                                                          \
    case offsetof(struct cuda, name) / sizeof(void *): {                                           \
        int(*function) parameters = name;                                                          \
        memcpy(&address, &function, sizeof address);                                               \
        break;                                                                                     \
    }
#define CUDA_ASK(name, parameters)
#include "recorder/cuda.def"
#undef CUDA
#undef CUDA_ASK
    default:
        break;
    }
    return address;
}

static void *hook_of(const struct entry *entry)
{
    return hook_at(entry->offset / sizeof(void *));
}

static void *real_of(const struct entry *entry)
{
    void *real;
    memcpy(&real, (const char *)&memtally_real.cuda + entry->offset, sizeof real);
    return real;
}

void *cuda_hook_by_name(const char *name, const char **unfindable)
{
    for (size_t i = 0; i < N_ENTRIES; i++)
        if (strcmp(name, entries[i].name) == 0) {
            if (unfindable)
                *unfindable = entries[i].unfindable;
            return hook_of(&entries[i]);
        }
    return NULL;
}

/* Whether a library's file is the driver's own: libcuda.so, libcuda.so.1, libcuda.so.580.65.06. */
static int is_driver_file(const char *path)
{
    static const char name[] = "libcuda.so";
    const char *last = strrchr(path, '/');
    const char *file = last ? last + 1 : path;
    return strncmp(file, name, sizeof name - 1) == 0 &&
           (file[sizeof name - 1] == '\0' || file[sizeof name - 1] == '.');
}

static void fill(void *library, const struct entry *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        void *real = memtally_real.dlsym(library, list[i].name);
        if (is_own(real))
            real = NULL;
        memcpy((char *)&memtally_real.cuda + list[i].offset, &real, sizeof real);
    }
}

/* Takes the library that `real` lies in for the driver. It stays open, since what is bound to it
 * here is called later. */
static int take_driver(const void *real)
{
    Dl_info info;
    uint32_t unknown = UNKNOWN;
    if (!real || !dladdr(real, &info) || !info.dli_fname || !is_driver_file(info.dli_fname))
        return 0;
    void *library = memtally_real.dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        return 0;
    if (!__atomic_compare_exchange_n(&memtally_real.cuda_state, &unknown, LOOKED_UP, 0,
                                     __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
        dlclose(library);
        return unknown == KNOWN;
    }
    fill(library, entries, N_ENTRIES);
    fill(library, questions, sizeof questions / sizeof *questions);
    __atomic_store_n(&memtally_real.cuda_state, KNOWN, __ATOMIC_RELEASE);
    return 1;
}

int cuda_ready(void)
{
    if (LIKELY(__atomic_load_n(&memtally_real.cuda_state, __ATOMIC_ACQUIRE) == KNOWN))
        return 1;
    loader_errors_aside();
    int found = take_driver(find_anywhere("cuMemAlloc_v2"));
    loader_errors_back();
    return found;
}

/* By address where the driver hands out what it exports; else by the name that the loader has for
 * it. The name that was asked for says little: cuMemAlloc means cuMemAlloc_v2. */
static const struct entry *entry_of(const void *real)
{
    Dl_info info;
    for (size_t i = 0; i < N_ENTRIES; i++)
        if (real_of(&entries[i]) == real)
            return &entries[i];
    if (!dladdr(real, &info) || info.dli_saddr != real || !info.dli_sname || !info.dli_fname ||
        !is_driver_file(info.dli_fname))
        return NULL;
    for (size_t i = 0; i < N_ENTRIES; i++)
        if (real_of(&entries[i]) && strcmp(entries[i].name, info.dli_sname) == 0)
            return &entries[i];
    return NULL;
}

void *cuda_in_place_of(void *real)
{
    if (!real || is_own(real))
        return real;
    if (__atomic_load_n(&memtally_real.cuda_state, __ATOMIC_ACQUIRE) != KNOWN && !take_driver(real))
        return real;
    const struct entry *entry = entry_of(real);
    return entry ? hook_of(entry) : real;
}
