/* SPDX-License-Identifier: MIT */
/* dlopen and dlsym. Both are entered by the assembly of tailjump.S, which asks here what to do and
 * then jumps to the real function with the caller's own return address on the stack: for the real
 * dlopen and dlsym the caller decides what RTLD_NEXT, $ORIGIN and RUNPATH mean. */
#include "recorder/recorder.h"

#include <dlfcn.h>
#include <string.h>

#include "recorder/blas.h"
#include "recorder/cuda.h"
#include "recorder/ggml.h"
#include "recorder/modules.h"
#include "recorder/real.h"

/* In two registers: where to jump, with `value` for a second argument unless it is NULL; or NULL
 * and the value to return. */
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

/* Nothing is done before a library is loaded; whoever needs to know notices that it was. */
struct decision memtally_decide_dlopen(const char *path, int flags)
{
    struct decision decision = {NULL, NULL};
    (void)path;
    (void)flags;
    real_look_up_loader();
    if (memtally_real.dlopen)
        memcpy(&decision.jump, &memtally_real.dlopen, sizeof decision.jump);
    return decision;
}

/* Where a library provides a name that the recorder stands before, NULL where none does. */
static void *find_behind(const char *name)
{
    loader_errors_aside();
    void *found = find_anywhere(name);
    loader_errors_back();
    return found;
}

/* The driver's own function is asked for first. That the recorder exports its name must not make a
 * program believe that there is a driver: then the real dlsym() fails, by a name found nowhere. */
static struct decision decide_cuda(void *handle, const char *name, struct decision decision)
{
    const char *unfindable = NULL;
    void *hook = cuda_hook_by_name(name, &unfindable);
    if (!hook)
        return decision;
    void *real = memtally_real.dlsym(handle, name);
    if (real == hook) {
        real = find_behind(name);
        decision.value = (void *)(uintptr_t)unfindable;
    }
    if (!real)
        return decision;
    decision.value = cuda_in_place_of(real);
    decision.jump = NULL;
    return decision;
}

/* The adapters of ggml and of cuBLAS stand before some names. If a library provides such a name,
 * the answer is the adapter. If none does, the search fails, so that the recorder's own export does
 * not make a program believe that ggml is there. The real function fails then, with its own words
 * for dlerror(): it searches a name that reads the same and is found nowhere. The adapter stands
 * only for the copy of the library that it finds itself; another copy is left alone. */
struct decision memtally_decide_dlsym(void *handle, const char *name)
{
    struct decision decision = {NULL, NULL};
    real_look_up_loader();
    decision.jump = address_of_real(&memtally_real.dlsym);
    if (handle == RTLD_NEXT || !name)
        return decision;
    if (cuda_may_have(name) && real_ready())
        return decide_cuda(handle, name, decision);
    const char *unfindable = NULL;
    void *hook = NULL;
    if (strncmp(name, "ggml_backend_", 13) == 0)
        hook = ggml_hook_by_name(name, &unfindable);
    else if (strncmp(name, "cublasSet", 9) == 0)
        hook = blas_hook_by_name(name, &unfindable);
    if (!hook)
        return decision;
    void *found = find_behind(name);
    void *real = memtally_real.dlsym(handle, name);
    if (real != hook && (!real || real != found))
        return decision;
    if (found)
        decision.jump = NULL;
    decision.value = found ? hook : (void *)(uintptr_t)unfindable;
    return decision;
}
