/* SPDX-License-Identifier: MIT */
/* The functions that give functions and tables. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "pretend/cuda/abi/driver_calls.h"
#include "world.h"

PRETEND_CALL CUresult cuGetProcAddress(const char *name, void **function, int version,
                                       uint64_t flags)
{
    return pretend_find(name, function, version, flags, NULL);
}

PRETEND_CALL CUresult cuGetProcAddress_v2(const char *name, void **function, int version,
                                          uint64_t flags, int *query)
{
    return pretend_find(name, function, version, flags, query);
}

/* The library that code lies in, as a user knows it: by its path in the folder of Python's
 * packages, else by its name. */
static const char *library_of(void *code)
{
    static const char packages[] = "/site-packages/";
    Dl_info info;
    if (!dladdr(code, &info) || !info.dli_fname)
        return "the program";
    const char *inside = strstr(info.dli_fname, packages);
    const char *slash = strrchr(info.dli_fname, '/');
    if (!inside)
        return slash ? slash + 1 : info.dli_fname;
    const char *aside = strstr(inside, "/../"); /* ctranslate2/../ctranslate2.libs */
    return aside ? aside + 4 : inside + sizeof packages - 1;
}

/* Once for each of the first few. */
static void tell_private(const char *library)
{
    static char told[8][80];
    char text[MT_ACCOUNT_NOTE_BYTES + 1];
    size_t i = 0;
    pretend_lock();
    while (i < 8 && *told[i] && strncmp(told[i], library, sizeof *told - 1) != 0)
        i++;
    int is_new = i < 8 && !*told[i];
    if (is_new)
        snprintf(told[i], sizeof *told, "%s", library);
    pretend_unlock();
    if (!is_new)
        return;
    snprintf(text, sizeof text, "%.79s" MT_ACCOUNT_PRIVATE ".", library);
    pretend_cuda_note(text);
}

/* Private tables are how NVIDIA's own libraries talk to their driver. None is answered. */
PRETEND_CALL CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    struct mt_account_cuda *cuda = pretend_cuda_account();
    if (!table || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    if (cuda)
        __atomic_fetch_add(&cuda->n_private, 1, __ATOMIC_RELAXED);
    tell_private(library_of(__builtin_return_address(0)));
    return CUDA_ERROR_NOT_FOUND;
}
