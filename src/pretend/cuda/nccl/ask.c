/* SPDX-License-Identifier: MIT */
/* What a program asks of a communicator of the pretended NCCL, and registers with it. */
#include <stdlib.h>

#include "nccl.h"
#include "pretend/cuda/library_take.h"

#define GRANULE                                                                                    \
    (UINT64_C(2) << 20) /* ncclMemAlloc gives memory out in these, as cuMemCreate does */

static const char *const words[] = {
    "no error",
    "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
    "unhandled system error (run with NCCL_DEBUG=INFO for details)",
    "internal error - please report this issue to the NCCL developers",
    "invalid argument (run with NCCL_DEBUG=WARN for details)",
    "invalid usage (run with NCCL_DEBUG=WARN for details)",
    "remote process exited or there was a network error",
    "NCCL operation in progress",
    "NCCL operation timed out",
};

/* ncclCommProperties_t of 2.28 and later; `size` says how many of these a program's version has. */
struct properties {
    size_t size;
    unsigned magic, version;
    int rank, n_ranks, device, nvml_device;
    _Bool has_device_calls, has_multimem;
    int gin_type, n_lsa_teams;
};

/* ncclTeam_t: ranks of a communicator, each `stride` apart. */
struct team {
    int n_ranks, rank, stride;
};

/* A buffer that is registered with a communicator: ncclWindow_t, or the handle of a buffer. */
struct window {
    const struct nccl_comm *comm;
    void *buffer;
    size_t bytes;
};

const char *ncclGetErrorString(int result);
const char *ncclGetLastError(const struct nccl_comm *comm);
void ncclResetDebugInit(void);
int ncclCommGetAsyncError(const struct nccl_comm *comm, int *result);
int ncclCommCount(const struct nccl_comm *comm, int *count);
int ncclCommCuDevice(const struct nccl_comm *comm, int *device);
int ncclCommUserRank(const struct nccl_comm *comm, int *rank);
int ncclCommQueryProperties(const struct nccl_comm *comm, struct properties *properties);
int ncclCommMemStats(const struct nccl_comm *comm, int stat, uint64_t *value);
int ncclCommRegister(const struct nccl_comm *comm, void *buffer, size_t bytes, void **handle);
int ncclCommDeregister(const struct nccl_comm *comm, void *handle);
int ncclCommWindowRegister(const struct nccl_comm *comm, void *buffer, size_t bytes,
                           struct window **window, int flags);
int ncclCommWindowDeregister(const struct nccl_comm *comm, struct window *window);
int ncclWinGetUserPtr(const struct nccl_comm *comm, const struct window *window, void **buffer);
int ncclMemAlloc(void **pointer, size_t bytes);
int ncclMemFree(void *pointer);
struct team ncclTeamWorld(const struct nccl_comm *comm);
struct team ncclTeamLsa(const struct nccl_comm *comm);
struct team ncclTeamRail(const struct nccl_comm *comm);
int ncclTeamRankToWorld(const struct nccl_comm *comm, struct team team, int rank);
int ncclTeamRankToLsa(const struct nccl_comm *comm, struct team team, int rank);

PRETEND_CALL const char *ncclGetErrorString(int result)
{
    return result >= 0 && (size_t)result < sizeof words / sizeof *words ? words[result]
                                                                        : "unknown result code";
}
NCCL_PROFILED(ncclGetErrorString);

PRETEND_CALL const char *ncclGetLastError(const struct nccl_comm *comm)
{
    (void)comm;
    return "";
}
NCCL_PROFILED(ncclGetLastError);

PRETEND_CALL void ncclResetDebugInit(void)
{
}
NCCL_PROFILED(ncclResetDebugInit);

static int answer(const struct nccl_comm *comm, int *value, int known)
{
    if (!nccl_is_comm(comm) || !value)
        return NCCL_INVALID_ARGUMENT;
    *value = known;
    return NCCL_SUCCESS;
}

PRETEND_CALL int ncclCommGetAsyncError(const struct nccl_comm *comm, int *result)
{
    return answer(comm, result, NCCL_SUCCESS);
}
NCCL_PROFILED(ncclCommGetAsyncError);

PRETEND_CALL int ncclCommCount(const struct nccl_comm *comm, int *count)
{
    return answer(comm, count, nccl_is_comm(comm) ? comm->n_ranks : 0);
}
NCCL_PROFILED(ncclCommCount);

PRETEND_CALL int ncclCommCuDevice(const struct nccl_comm *comm, int *device)
{
    return answer(comm, device, nccl_is_comm(comm) ? comm->device : 0);
}
NCCL_PROFILED(ncclCommCuDevice);

PRETEND_CALL int ncclCommUserRank(const struct nccl_comm *comm, int *rank)
{
    return answer(comm, rank, nccl_is_comm(comm) ? comm->rank : 0);
}
NCCL_PROFILED(ncclCommUserRank);

/* Kernels of a program cannot speak over a pretended communicator, so nothing of that is there. */
PRETEND_CALL int ncclCommQueryProperties(const struct nccl_comm *comm,
                                         struct properties *properties)
{
    if (!nccl_is_comm(comm) || !properties || properties->size < sizeof *properties)
        return NCCL_INVALID_ARGUMENT;
    properties->rank = comm->rank;
    properties->n_ranks = comm->n_ranks;
    properties->device = properties->nvml_device = comm->device;
    properties->has_device_calls = properties->has_multimem = 0;
    properties->gin_type = 0;
    properties->n_lsa_teams = 1;
    return NCCL_SUCCESS;
}
NCCL_PROFILED(ncclCommQueryProperties);

PRETEND_CALL int ncclCommMemStats(const struct nccl_comm *comm, int stat, uint64_t *value)
{
    enum { SUSPENDABLE, IS_SUSPENDED, PERSISTENT, TOTAL };
    if (!nccl_is_comm(comm) || !value || stat < SUSPENDABLE || stat > TOTAL)
        return NCCL_INVALID_ARGUMENT;
    *value = comm->memory && stat >= PERSISTENT ? nccl_memory_bytes(comm) : 0;
    return NCCL_SUCCESS;
}
NCCL_PROFILED(ncclCommMemStats);

PRETEND_CALL int ncclCommWindowRegister(const struct nccl_comm *comm, void *buffer, size_t bytes,
                                        struct window **window, int flags)
{
    struct window *made;
    (void)flags;
    if (!nccl_is_comm(comm) || !window)
        return NCCL_INVALID_ARGUMENT;
    made = malloc(sizeof *made);
    if (!made)
        return NCCL_SYSTEM_ERROR;
    *made = (struct window){comm, buffer, bytes};
    *window = made;
    return NCCL_SUCCESS;
}
NCCL_PROFILED(ncclCommWindowRegister);

PRETEND_CALL int ncclCommWindowDeregister(const struct nccl_comm *comm, struct window *window)
{
    if (!nccl_is_comm(comm))
        return NCCL_INVALID_ARGUMENT;
    free(window);
    return NCCL_SUCCESS;
}
NCCL_PROFILED(ncclCommWindowDeregister);

PRETEND_CALL int ncclWinGetUserPtr(const struct nccl_comm *comm, const struct window *window,
                                   void **buffer)
{
    if (!nccl_is_comm(comm) || !buffer)
        return NCCL_INVALID_ARGUMENT;
    *buffer = window ? window->buffer : NULL;
    return NCCL_SUCCESS;
}
NCCL_PROFILED(ncclWinGetUserPtr);

PRETEND_CALL int ncclCommRegister(const struct nccl_comm *comm, void *buffer, size_t bytes,
                                  void **handle)
{
    struct window *window = NULL;
    int result =
        handle ? ncclCommWindowRegister(comm, buffer, bytes, &window, 0) : NCCL_INVALID_ARGUMENT;
    if (result == NCCL_SUCCESS)
        *handle = window;
    return result;
}
NCCL_PROFILED(ncclCommRegister);

PRETEND_CALL int ncclCommDeregister(const struct nccl_comm *comm, void *handle)
{
    return ncclCommWindowDeregister(comm, handle);
}
NCCL_PROFILED(ncclCommDeregister);

PRETEND_CALL int ncclMemAlloc(void **pointer, size_t bytes)
{
    CUdeviceptr taken;
    if (!pointer || !bytes || bytes > UINT64_MAX - GRANULE)
        return NCCL_INVALID_ARGUMENT;
    if (pretend_library_take(nccl_current_device(), (bytes + GRANULE - 1) / GRANULE * GRANULE,
                             MT_CATEGORY_COMMUNICATION, "ncclMemAlloc", &taken) != CUDA_SUCCESS)
        return NCCL_CUDA_ERROR;
    *pointer = (void *)(uintptr_t)taken;
    return NCCL_SUCCESS;
}
NCCL_PROFILED(ncclMemAlloc);

PRETEND_CALL int ncclMemFree(void *pointer)
{
    if (pointer)
        pretend_library_give((CUdeviceptr)(uintptr_t)pointer);
    return NCCL_SUCCESS;
}
NCCL_PROFILED(ncclMemFree);

PRETEND_CALL struct team ncclTeamWorld(const struct nccl_comm *comm)
{
    return nccl_is_comm(comm) ? (struct team){comm->n_ranks, comm->rank, 1} : (struct team){0};
}
NCCL_PROFILED(ncclTeamWorld);

/* All devices are in one machine. */
PRETEND_CALL struct team ncclTeamLsa(const struct nccl_comm *comm)
{
    return ncclTeamWorld(comm);
}
NCCL_PROFILED(ncclTeamLsa);

PRETEND_CALL struct team ncclTeamRail(const struct nccl_comm *comm)
{
    return nccl_is_comm(comm) ? (struct team){1, 0, comm->n_ranks} : (struct team){0};
}
NCCL_PROFILED(ncclTeamRail);

PRETEND_CALL int ncclTeamRankToWorld(const struct nccl_comm *comm, struct team team, int rank)
{
    return nccl_is_comm(comm) ? comm->rank + (rank - team.rank) * team.stride : 0;
}
NCCL_PROFILED(ncclTeamRankToWorld);

PRETEND_CALL int ncclTeamRankToLsa(const struct nccl_comm *comm, struct team team, int rank)
{
    return ncclTeamRankToWorld(comm, team, rank);
}
NCCL_PROFILED(ncclTeamRankToLsa);
