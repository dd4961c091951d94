/* SPDX-License-Identifier: MIT */
/* The functions that give functions and tables. */
#include "rehearse/cuda/abi/driver_calls.h"
#include "rehearse/cuda/driver/world.h"

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

/* Private tables are how NVIDIA's own libraries talk to their driver. None is answered. */
PRETEND_CALL CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    static int told;
    struct mt_account_cuda *cuda = pretend_cuda_account();
    if (!table || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    if (cuda)
        __atomic_fetch_add(&cuda->n_private, 1, __ATOMIC_RELAXED);
    if (!__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED))
        pretend_cuda_note("The program brings NVIDIA's own runtime, which talks to the driver "
                          "through private tables: it cannot be rehearsed.");
    return CUDA_ERROR_NOT_FOUND;
}
