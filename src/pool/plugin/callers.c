/* SPDX-License-Identifier: MIT */
/* The calls of PyTorch's, CuPy's and RMM's plug-in interfaces, each in the form that it wants. */
#include "pool/plugin/plugin.h"

#include <dlfcn.h>
#include <string.h>

#include <memtally/error_code.h>

/* The default stream has a number of its own: what is given back on it is not free for others at
 * once. */
static uint64_t number_of(const void *stream)
{
    return stream ? (uint64_t)(uintptr_t)stream : 1;
}

void *memtally_pool_try_malloc(size_t bytes, int device, void *stream)
{
    struct mt_pool *pool = bytes ? memtally_pool_of_device(device) : NULL;
    uint64_t address;
    if (!pool || mt_pool_allocate(pool, bytes, number_of(stream), &address) != MT_OK)
        return NULL;
    mt_pool_note('a', device, address, bytes);
    return (void *)(uintptr_t)address;
}

/* As operator new of C++ does; of a caller without C++ there is nothing to throw with, and it gets
 * NULL. */
static void throw_shortage(void)
{
    void *library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_NOLOAD);
    void *found = library ? dlsym(library, "_ZSt17__throw_bad_allocv") : NULL;
    void (*throw_it)(void);
    memcpy(&throw_it, &found, sizeof throw_it);
    if (throw_it)
        throw_it();
}

void *memtally_pool_malloc(size_t bytes, int device, void *stream)
{
    void *block = memtally_pool_try_malloc(bytes, device, stream);
    if (!block && bytes)
        throw_shortage();
    return block;
}

void memtally_pool_free(void *block, size_t bytes, int device, void *stream)
{
    struct mt_pool *pool = block ? memtally_pool_of_device(device) : NULL;
    (void)bytes;
    (void)stream;
    if (!pool)
        return;
    mt_pool_note('f', device, (uint64_t)(uintptr_t)block, 0);
    mt_pool_free(pool, (uint64_t)(uintptr_t)block);
}

void *memtally_pool_cupy_malloc(void *param, size_t bytes, int device)
{
    return memtally_pool_malloc(bytes, device, param);
}

void memtally_pool_cupy_free(void *param, void *block, int device)
{
    memtally_pool_free(block, 0, device, param);
}

void *memtally_pool_rmm_allocate(size_t bytes, void *stream, void *arg)
{
    return memtally_pool_malloc(bytes, (int)(intptr_t)arg, stream);
}

void memtally_pool_rmm_deallocate(void *block, size_t bytes, void *stream, void *arg)
{
    memtally_pool_free(block, bytes, (int)(intptr_t)arg, stream);
}
