/* SPDX-License-Identifier: MIT */
/* dlopen and dlsym. Both are entered by the assembly of tailjump.S, which asks here what to do and
 * then jumps to the real function with the caller's own return address on the stack: for the real
 * dlopen and dlsym the caller decides what RTLD_NEXT, $ORIGIN and RUNPATH mean. */
#include "recorder/recorder.h"

#include <dlfcn.h>
#include <string.h>

#include "recorder/ggml.h"
#include "recorder/real.h"

/* In two registers: where to jump, or NULL and the value to return. */
struct decision {
    void *jump;
    void *value;
};

HIDDEN struct decision memtally_decide_dlopen(const char *path, int flags);
HIDDEN struct decision memtally_decide_dlsym(void *handle, const char *name);

static void *address_of_real(void *(*const *slot)(void *, const char *))
{
    void *address;
    memcpy(&address, slot, sizeof address);
    return address;
}

struct decision memtally_decide_dlopen(const char *path, int flags)
{
    struct decision decision = {NULL, NULL};
    (void)path;
    (void)flags;
    if (!real_ready())
        return decision;
    __atomic_fetch_add(&memtally_recorder.generation, 1, __ATOMIC_RELAXED);
    memcpy(&decision.jump, &memtally_real.dlopen, sizeof decision.jump);
    return decision;
}

/* A name that the ggml adapter stands before is answered with the adapter where a library provides
 * it, and with NULL where none does: that the recorder exports the name must not make a program
 * believe that ggml is there. */
struct decision memtally_decide_dlsym(void *handle, const char *name)
{
    struct decision decision = {NULL, NULL};
    if (!real_ready())
        return decision;
    decision.jump = address_of_real(&memtally_real.dlsym);
    if (handle == RTLD_NEXT || !name || strncmp(name, "ggml_backend_", 13) != 0)
        return decision;
    void *hook = ggml_hook_by_name(name);
    if (!hook)
        return decision;
    void *real =
        handle == RTLD_DEFAULT ? ggml_find_anywhere(name) : memtally_real.dlsym(handle, name);
    if (real == hook)
        real = ggml_find_anywhere(name);
    decision.jump = NULL;
    decision.value = real ? hook : NULL;
    return decision;
}
