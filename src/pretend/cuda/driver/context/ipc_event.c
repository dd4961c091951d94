/* SPDX-License-Identifier: MIT */
/* Events that other processes open by a handle of 64 bytes. Work is done when it is asked for, so
 * that an event of another process has always happened already: what is opened is an event of this
 * process that waits for nothing. */
#include <string.h>
#include <unistd.h>

#include "pretend/cuda/abi/driver_calls.h"
#include "pretend/cuda/abi/driver_memory.h"
#include "pretend/cuda/driver/work.h"

#define HANDLE_MAGIC UINT64_C(0x6d74657663686e64)

struct handle {
    uint64_t magic;
    uint64_t event; /* its address in its process */
    int32_t pid;
};
_Static_assert(sizeof(struct handle) <= sizeof(CUipcEventHandle), "a handle has 64 bytes");

PRETEND_CALL CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
    const unsigned needed = PRETEND_EVENT_INTERPROCESS | PRETEND_EVENT_DISABLE_TIMING;
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    int is_shared = pretend_is(PRETEND_A_EVENT, event) &&
                    (((struct pretend_event *)(void *)event)->flags & needed) == needed;
    pretend_unlock();
    if (!is_shared)
        return CUDA_ERROR_INVALID_HANDLE;
    struct handle made = {
        .magic = HANDLE_MAGIC, .event = (uint64_t)(uintptr_t)event, .pid = getpid()};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &made, sizeof made);
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle given)
{
    struct handle handle;
    if (!event)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&handle, &given, sizeof handle);
    if (handle.magic != HANDLE_MAGIC || !handle.event)
        return CUDA_ERROR_INVALID_HANDLE;
    return cuEventCreate(event, PRETEND_EVENT_INTERPROCESS | PRETEND_EVENT_DISABLE_TIMING);
}
