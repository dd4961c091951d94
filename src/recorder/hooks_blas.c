/* SPDX-License-Identifier: MIT */
/* Where a program tells cuBLAS what memory to work in: PyTorch gives it a block of its own, which
 * looks like any other tensor. The real function is the one that the caller is bound to, since
 * there may be two copies of the library. */
#include <dlfcn.h>
#include <string.h>

#include <memtally/category.h>

#include "recorder/blas.h"
#include "recorder/modules.h"
#include "recorder/real.h"

#define CALLER           ((uintptr_t)__builtin_return_address(0))
#define NOT_INITIALIZED  1       /* CUBLAS_STATUS_NOT_INITIALIZED */
#define TOLD_FREELY      8192u   /* times; from then on the same place once in a while */
#define TOLD_EVERY_TICKS 4000000 /* about a millisecond: PyTorch tells it before each product */

EXPORTED int cublasSetWorkspace_v2(void *handle, void *workspace, size_t bytes);

static blas_set_workspace known(const struct blas_caller *entry, uintptr_t caller,
                                uint64_t generation)
{
    uint32_t sequence = __atomic_load_n(&entry->sequence, __ATOMIC_ACQUIRE);
    struct blas_caller copy = *entry;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (sequence & 1 || __atomic_load_n(&entry->sequence, __ATOMIC_RELAXED) != sequence ||
        copy.generation != generation || caller < copy.low || caller >= copy.high)
        return NULL;
    return copy.real;
}

static void keep(struct blas_caller *entry, const struct blas_caller *made)
{
    if (!entry_claim(&entry->sequence))
        return;
    entry->generation = made->generation;
    entry->low = made->low;
    entry->high = made->high;
    entry->real = made->real;
    entry_release(&entry->sequence);
}

static blas_set_workspace real_for(uintptr_t caller)
{
    struct blas_caller made = {.generation = loader_generation()};
    for (size_t i = 0; i < BLAS_CALLERS; i++) {
        blas_set_workspace found = known(&memtally_real.blas.callers[i], caller, made.generation);
        if (found)
            return found;
    }
    void *real = find_bound("cublasSetWorkspace_v2", caller, &made.low, &made.high);
    memcpy(&made.real, &real, sizeof made.real);
    if (real && made.high > made.low)
        keep(&memtally_real.blas.callers[(made.low >> 12) % BLAS_CALLERS], &made);
    return made.real;
}

/* That a place is told again says something where its memory was another's meanwhile. */
static int is_news(const void *workspace)
{
    uint64_t now = now_ticks();
    if (__atomic_fetch_add(&memtally_real.blas.n_told, 1, __ATOMIC_RELAXED) < TOLD_FREELY)
        return 1;
    uint64_t place = (uint64_t)(uintptr_t)workspace;
    if (__atomic_load_n(&memtally_real.blas.last_told, __ATOMIC_RELAXED) == place &&
        now - __atomic_load_n(&memtally_real.blas.last_told_ticks, __ATOMIC_RELAXED) <
            TOLD_EVERY_TICKS)
        return 0;
    __atomic_store_n(&memtally_real.blas.last_told, place, __ATOMIC_RELAXED);
    __atomic_store_n(&memtally_real.blas.last_told_ticks, now, __ATOMIC_RELAXED);
    return 1;
}

int cublasSetWorkspace_v2(void *handle, void *workspace, size_t bytes)
{
    blas_set_workspace real = real_ready() ? real_for(CALLER) : NULL;
    int result = real ? real(handle, workspace, bytes) : NOT_INITIALIZED;
    struct thread *thread =
        result == 0 && workspace && bytes && is_news(workspace) ? enter() : NULL;
    if (!thread)
        return result;
    uint64_t fields[] = {(uint64_t)(uintptr_t)workspace, bytes, MT_CATEGORY_WORKSPACE,
                         thread_name(thread, "cuBLAS workspace")};
    mt_write_event(&thread->writer, MT_EVENT_LABEL, now_ticks(), fields, 4);
    leave();
    return result;
}

void *blas_hook_by_name(const char *name, const char **unfindable)
{
    void *address;
    int (*function)(void *, void *, size_t) = cublasSetWorkspace_v2;
    if (strcmp(name, "cublasSetWorkspace_v2") != 0)
        return NULL;
    *unfindable = "cublasSetWorkspace_v2 ";
    memcpy(&address, &function, sizeof address);
    return address;
}
