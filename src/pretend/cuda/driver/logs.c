/* SPDX-License-Identifier: MIT */
/* The driver's log of errors, which has no message here. */
#include <stdio.h>
#include <stdlib.h>

#include "pretend/cuda/abi/driver_calls.h"
#include "world.h"

/* Who is to be told of messages. */
struct listener {
    struct listener *next;
};
static struct listener *listeners;

PRETEND_CALL CUresult cuLogsRegisterCallback(CUlogsCallback callback, void *data, void **handle)
{
    (void)data;
    if (!callback)
        return CUDA_ERROR_INVALID_VALUE;
    struct listener *listener = malloc(sizeof *listener);
    if (!listener)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pretend_lock();
    listener->next = listeners;
    listeners = listener;
    pretend_unlock();
    if (handle)
        *handle = listener;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuLogsUnregisterCallback(void *handle)
{
    pretend_lock();
    struct listener **at = &listeners;
    while (*at && *at != handle)
        at = &(*at)->next;
    struct listener *found = *at;
    if (found)
        *at = found->next;
    pretend_unlock();
    free(found);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

PRETEND_CALL CUresult cuLogsCurrent(unsigned *iterator, unsigned flags)
{
    if (!iterator || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *iterator = 0;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuLogsDumpToFile(unsigned *iterator, const char *path, unsigned flags)
{
    (void)iterator;
    FILE *file = path && !flags ? fopen(path, "we") : NULL;
    if (!file)
        return CUDA_ERROR_INVALID_VALUE;
    return fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

PRETEND_CALL CUresult cuLogsDumpToMemory(unsigned *iterator, char *buffer, size_t *bytes,
                                         unsigned flags)
{
    (void)iterator;
    if (!buffer || !bytes || !*bytes || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *buffer = 0;
    *bytes = 0;
    return CUDA_SUCCESS;
}
