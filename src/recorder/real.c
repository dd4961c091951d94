/* SPDX-License-Identifier: MIT */
/* Looking up the real functions, and the static memory that serves the loader meanwhile: dlsym may
 * itself call calloc. */
#include "recorder/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>

#include "recorder/present.h"

struct real memtally_real;

struct early memtally_early;

void *early_alloc(size_t alignment, size_t size)
{
    if (alignment < 16)
        alignment = 16;
    if (size > EARLY_BYTES || alignment > EARLY_BYTES) {
        errno = ENOMEM;
        return NULL;
    }
    size_t old = __atomic_load_n(&memtally_early.used, __ATOMIC_RELAXED);
    size_t start;
    do {
        start = (size_t) - (uintptr_t)(memtally_early.bytes + old) & (alignment - 1);
        start += old;
        if (start + size > EARLY_BYTES) {
            errno = ENOMEM;
            return NULL;
        }
    } while (!__atomic_compare_exchange_n(&memtally_early.used, &old, start + size, 1,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return memtally_early.bytes + start;
}

size_t early_room(const void *address)
{
    return (size_t)(memtally_early.bytes + EARLY_BYTES - (const char *)address);
}

static int word_tells(const void *block, size_t usable)
{
#if defined(__x86_64__)
    enum { MAPPED = 2, FLAGS = 7 };
    size_t word = ((const size_t *)block)[-1];
    return word & MAPPED || (word & ~(size_t)FLAGS) - sizeof word == usable;
#else
    (void)block;
    (void)usable;
    return 0;
#endif
}

/* Tries are counted without care for other threads: a few more or less do not matter, and what is
 * not trusted once is not again. */
size_t real_usable_size(const void *block)
{
    if (!memtally_real.malloc_usable_size)
        return 0;
    size_t usable = memtally_real.malloc_usable_size((void *)(uintptr_t)block);
    uint32_t tries = __atomic_load_n(&memtally_real.tries_of_words, __ATOMIC_RELAXED);
    if (tries >= TRUSTED)
        return usable;
    tries = word_tells(block, usable) ? tries + 1 : UNTRUSTED;
    __atomic_store_n(&memtally_real.tries_of_words, tries, __ATOMIC_RELAXED);
    return usable;
}

/* dlsym is ours by name, so the real one is asked for by its version. */
static void *versioned(const char *name)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        void *found = dlvsym(RTLD_NEXT, name, versions[i]);
        if (found)
            return found;
    }
    return NULL;
}

/* Function pointers are stored through their bytes: ISO C has no cast for them. */
static void store(void *slot, void *function)
{
    __builtin_memcpy(slot, &function, sizeof function);
}

/* glibc 2.35 and later tell without a search of their names, which takes tens of us. */
static int find_by_loader(const void *place, uintptr_t *low, uintptr_t *high)
{
#ifdef DLFO_STRUCT_HAS_EH_DBASE
    struct dl_find_object found;
    int (*find)(void *place, struct dl_find_object *found);
    store(&find, memtally_real.find_object);
    if (!find || find((void *)(uintptr_t)place, &found) != 0)
        return 0;
    *low = (uintptr_t)found.dlfo_map_start;
    *high = (uintptr_t)found.dlfo_map_end;
    return 1;
#else
    (void)place;
    (void)low;
    (void)high;
    return 0;
#endif
}

/* By its header, which the first segment begins with: dl_iterate_phdr() may be that of a
 * sanitizer's runtime, which is not ready for calls that come from within the loader. */
void find_module(const void *place, uintptr_t *low, uintptr_t *high)
{
    Dl_info info;
    if (find_by_loader(place, low, high) || !dladdr(place, &info) || !info.dli_fbase)
        return;
    const char *base = info.dli_fbase;
    const ElfW(Ehdr) *header = info.dli_fbase;
    const ElfW(Phdr) *segments = (const ElfW(Phdr) *)(const void *)(base + header->e_phoff);
    uintptr_t first = UINTPTR_MAX;
    uintptr_t end = 0;
    if (__builtin_memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
        return;
    for (unsigned i = 0; i < header->e_phnum; i++) {
        if (segments[i].p_type != PT_LOAD)
            continue;
        if (segments[i].p_vaddr < first)
            first = segments[i].p_vaddr;
        if (segments[i].p_vaddr + segments[i].p_memsz > end)
            end = segments[i].p_vaddr + segments[i].p_memsz;
    }
    *low = (uintptr_t)base;
    *high = (uintptr_t)base + (end - first);
}

static void *address_of(const void *slot)
{
    void *function;
    __builtin_memcpy(&function, slot, sizeof function);
    return function;
}

static void exchange_loader_errors(void)
{
    char *own = (char *)&memtally_tls;
    void **place = (void **)(void *)(own + memtally_real.loader_errors);
    void *theirs = *place;
    *place = memtally_tls.loader_errors;
    memtally_tls.loader_errors = theirs;
}

void loader_errors_aside(void)
{
    if (memtally_real.loader_errors)
        exchange_loader_errors();
}

void loader_errors_back(void)
{
    if (memtally_real.loader_errors)
        exchange_loader_errors();
    else
        dlerror();
}

/* Since 2.34 glibc has a pointer for it among each thread's data, as far from ours in each. A
 * loader of another version than libc's may answer with something else. */
static void find_loader_errors(void)
{
    const uintptr_t far = (uintptr_t)1 << 20;
    uintptr_t own = (uintptr_t)&memtally_tls;
    static const char name[] = "__libc_dlerror_result";
    uintptr_t place = 0;
    if (is_defined(name, 0))
        place = (uintptr_t)dlvsym(RTLD_DEFAULT, name, "GLIBC_PRIVATE");
    if (place && place % sizeof(void *) == 0 && place - own + far < 2 * far)
        memtally_real.loader_errors = (ptrdiff_t)(place - own);
}

void real_look_up_loader(void)
{
    if (__atomic_load_n(&memtally_real.dlsym, __ATOMIC_ACQUIRE))
        return;
    store(&memtally_real.dlopen, versioned("dlopen"));
    void *found = versioned("dlsym");
    if (!found)
        __builtin_trap();
    store(&memtally_real.dlsym, found);
}

static int has_sanitizer(void)
{
    static const char *const runtimes[] = {"__asan_init", "__tsan_init", "__msan_init",
                                           "__hwasan_init"};
    int found = 0;
    for (size_t i = 0; i < sizeof runtimes / sizeof *runtimes; i++)
        found |= is_defined(runtimes[i], 0);
    return found;
}

/* No name is asked for that is not there. */
static void *look_up(void *from, const char *name)
{
    return is_defined(name, from == RTLD_NEXT) ? memtally_real.dlsym(from, name) : NULL;
}

/* Whatever the loader says nevertheless for dlerror() is not the program's to read. */
int real_look_up(void)
{
    uint32_t unknown = UNKNOWN;
    if (!__atomic_compare_exchange_n(&memtally_real.state, &unknown, LOOKED_UP, 0, __ATOMIC_ACQUIRE,
                                     __ATOMIC_ACQUIRE))
        return unknown == KNOWN;
    real_look_up_loader();
    store(&memtally_real.syscall, look_up(RTLD_NEXT, "syscall"));
    void *usable_size = look_up(RTLD_NEXT, "malloc_usable_size");
#define HOOK(result, name, parameters) store(&memtally_real.name, look_up(RTLD_NEXT, #name));
#define HOOK_GGML(result, name, parameters)
#define HOOK_JUMP(name)
#define HOOK_OWN(result, name, parameters)
#include "recorder/hooks.def"
    memtally_real.find_object = look_up(RTLD_DEFAULT, "_dl_find_object");
    find_module(address_of(&memtally_real.malloc), &memtally_real.allocator_low,
                &memtally_real.allocator_high);
    /* No sanitizer's runtime stands before this one. */
    void *of_libc = look_up(RTLD_DEFAULT, "gnu_get_libc_version");
    find_module(of_libc ? of_libc : address_of(&memtally_real._exit), &memtally_real.libc_low,
                &memtally_real.libc_high);
    find_module(&memtally_real, &memtally_real.own_low, &memtally_real.own_high);
    if (in_allocator((uintptr_t)usable_size))
        store(&memtally_real.malloc_usable_size, usable_size);
    if (memtally_real.allocator_low != memtally_real.libc_low)
        memtally_real.tries_of_words = UNTRUSTED;
    const uintptr_t *stack_end = look_up(RTLD_DEFAULT, "__libc_stack_end");
    memtally_real.heap_end = look_up(RTLD_DEFAULT, "__curbrk");
    memtally_real.is_libc_heap = memtally_real.allocator_low == memtally_real.libc_low;
    memtally_real.stack_end = stack_end ? *stack_end : 0;
    memtally_real.has_sanitizer = has_sanitizer();
    if (!memtally_real.has_sanitizer) /* its __tls_get_addr() is not ready either */
        find_loader_errors();
    dlerror();
    __atomic_store_n(&memtally_real.state, KNOWN, __ATOMIC_RELEASE);
    return 1;
}
