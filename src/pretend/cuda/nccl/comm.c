/* SPDX-License-Identifier: MIT */
/* Communicators of the pretended NCCL. No process waits for another when one is made: each knows
 * its rank and how many there are, and nothing is ever sent. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "nccl.h"
#include "pretend/cuda/library_take.h"
#include "rehearse/account.h"

CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);

int ncclGetVersion(int *version);
int ncclGetUniqueId(struct nccl_id *id);
int ncclCommInitRank(struct nccl_comm **comm, int n_ranks, struct nccl_id id, int rank);
int ncclCommInitRankConfig(struct nccl_comm **comm, int n_ranks, struct nccl_id id, int rank,
                           const struct nccl_config *config);
int ncclCommInitRankScalable(struct nccl_comm **comm, int n_ranks, int rank, int n_ids,
                             const struct nccl_id *ids, const struct nccl_config *config);
int ncclCommInitAll(struct nccl_comm **comms, int n_devices, const int *devices);
int ncclCommSplit(struct nccl_comm *comm, int color, int key, struct nccl_comm **made,
                  const struct nccl_config *config);
int ncclCommShrink(struct nccl_comm *comm, const int *excluded, int n_excluded,
                   struct nccl_comm **made, const struct nccl_config *config, int flags);
int ncclCommFinalize(struct nccl_comm *comm);
int ncclCommDestroy(struct nccl_comm *comm);
int ncclCommAbort(struct nccl_comm *comm);
int ncclCommRevoke(struct nccl_comm *comm, int flags);

static uint64_t digest(const void *bytes, size_t n, uint64_t seed)
{
    const unsigned char *byte = bytes;
    uint64_t value = 14695981039346656037u ^ seed;
    for (size_t i = 0; i < n; i++)
        value = (value ^ byte[i]) * 1099511628211u;
    return value;
}

CUdevice nccl_current_device(void)
{
    CUcontext context;
    CUdevice device;
    if (cuCtxGetDevice(&device) == CUDA_SUCCESS)
        return device;
    if (cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS)
        cuCtxSetCurrent(context);
    return 0;
}

/* What a communicator takes of its device, by the table of GPUs: nothing for one alone. */
uint64_t nccl_memory_bytes(const struct nccl_comm *comm)
{
    const struct mt_gpu_spec *gpu = pretend_cuda_gpu(comm->device);
    if (comm->n_ranks < 2 || !gpu)
        return 0;
    return comm->n_ranks > 2 ? gpu->communication_many_bytes : gpu->communication_bytes;
}

static int take_memory(struct nccl_comm *comm)
{
    uint64_t bytes = nccl_memory_bytes(comm);
    if (!bytes)
        return NCCL_SUCCESS;
    return pretend_library_take(comm->device, bytes, MT_CATEGORY_COMMUNICATION, "NCCL communicator",
                                &comm->memory) == CUDA_SUCCESS
               ? NCCL_SUCCESS
               : NCCL_CUDA_ERROR;
}

static void drop(struct nccl_comm *comm)
{
    nccl_close_exchange(comm);
    if (comm->memory)
        pretend_library_give(comm->memory);
    comm->magic = 0;
    free(comm);
}

static int make(struct nccl_comm **made, int n_ranks, int rank, CUdevice device, uint64_t id,
                int is_shared)
{
    struct nccl_comm *comm;
    int result;
    if (!made || n_ranks < 1 || rank < 0 || rank >= n_ranks)
        return NCCL_INVALID_ARGUMENT;
    comm = calloc(1, sizeof *comm);
    if (!comm)
        return NCCL_SYSTEM_ERROR;
    *comm = (struct nccl_comm){.magic = NCCL_MAGIC,
                               .n_ranks = n_ranks,
                               .rank = rank,
                               .device = device,
                               .id = id,
                               .is_local = nccl_is_grouped()};
    result = is_shared ? NCCL_SUCCESS : take_memory(comm);
    if (result != NCCL_SUCCESS) {
        drop(comm);
        return result;
    }
    *made = comm;
    return NCCL_SUCCESS;
}

PRETEND_CALL int ncclGetVersion(int *version)
{
    if (!version)
        return NCCL_INVALID_ARGUMENT;
    *version = nccl_version();
    return NCCL_SUCCESS;
}
NCCL_PROFILED(ncclGetVersion);

PRETEND_CALL int ncclGetUniqueId(struct nccl_id *id)
{
    if (!id)
        return NCCL_INVALID_ARGUMENT;
    memset(id, 0, sizeof *id);
    return getrandom(id->bytes, 32, 0) == 32 ? NCCL_SUCCESS : NCCL_SYSTEM_ERROR;
}
NCCL_PROFILED(ncclGetUniqueId);

PRETEND_CALL int ncclCommInitRankConfig(struct nccl_comm **comm, int n_ranks, struct nccl_id id,
                                        int rank, const struct nccl_config *config)
{
    (void)config;
    return make(comm, n_ranks, rank, nccl_current_device(), digest(&id, sizeof id, 0), 0);
}
NCCL_PROFILED(ncclCommInitRankConfig);

PRETEND_CALL int ncclCommInitRank(struct nccl_comm **comm, int n_ranks, struct nccl_id id, int rank)
{
    return ncclCommInitRankConfig(comm, n_ranks, id, rank, NULL);
}
NCCL_PROFILED(ncclCommInitRank);

PRETEND_CALL int ncclCommInitRankScalable(struct nccl_comm **comm, int n_ranks, int rank, int n_ids,
                                          const struct nccl_id *ids,
                                          const struct nccl_config *config)
{
    if (n_ids < 1 || !ids)
        return NCCL_INVALID_ARGUMENT;
    return ncclCommInitRankConfig(comm, n_ranks, ids[0], rank, config);
}
NCCL_PROFILED(ncclCommInitRankScalable);

PRETEND_CALL int ncclCommInitAll(struct nccl_comm **comms, int n_devices, const int *devices)
{
    struct nccl_id id;
    int result = comms && n_devices > 0 ? ncclGetUniqueId(&id) : NCCL_INVALID_ARGUMENT;
    if (result != NCCL_SUCCESS)
        return result;
    nccl_current_device();
    for (int i = 0; i < n_devices; i++) {
        CUdevice device = devices ? devices[i] : i;
        result = pretend_cuda_gpu(device)
                     ? make(&comms[i], n_devices, i, device, digest(&id, sizeof id, 0), 0)
                     : NCCL_INVALID_USAGE;
        if (result == NCCL_SUCCESS) {
            comms[i]->is_local = 1;
            continue;
        }
        while (i > 0)
            drop(comms[--i]);
        return result;
    }
    return NCCL_SUCCESS;
}
NCCL_PROFILED(ncclCommInitAll);

int nccl_finish_split(const struct nccl_pending *pending)
{
    const struct nccl_comm *parent = pending->parent;
    struct nccl_group group;
    const int64_t name[] = {(int64_t)parent->id, pending->turn, pending->color};
    int result = nccl_meet(parent, pending->turn, pending->color, pending->key, &group);
    if (result != NCCL_SUCCESS || pending->color == NCCL_NO_COLOR)
        return result;
    return make(pending->made, group.n_ranks, group.rank, parent->device,
                digest(name, sizeof name, 1), pending->is_shared);
}

static int split(struct nccl_comm *comm, int color, int key, struct nccl_comm **made, int is_shared)
{
    struct nccl_pending pending = {
        .parent = comm, .made = made, .color = color, .key = key, .is_shared = is_shared};
    int result;
    if (!nccl_is_comm(comm) || !made)
        return NCCL_INVALID_ARGUMENT;
    *made = NULL;
    pending.turn = comm->n_splits++;
    result = nccl_bring(comm, pending.turn, color, key);
    if (result != NCCL_SUCCESS)
        return result;
    return nccl_is_grouped() ? nccl_put_off(&pending) : nccl_finish_split(&pending);
}

PRETEND_CALL int ncclCommSplit(struct nccl_comm *comm, int color, int key, struct nccl_comm **made,
                               const struct nccl_config *config)
{
    int is_shared = config && config->size >= offsetof(struct nccl_config, traffic_class) &&
                    config->split_share == 1;
    if (color < NCCL_NO_COLOR)
        return NCCL_INVALID_ARGUMENT;
    return split(comm, color, key, made, is_shared);
}
NCCL_PROFILED(ncclCommSplit);

/* The list says which ranks stay, so nobody need meet. */
PRETEND_CALL int ncclCommShrink(struct nccl_comm *comm, const int *excluded, int n_excluded,
                                struct nccl_comm **made, const struct nccl_config *config,
                                int flags)
{
    int n_lower = 0;
    int64_t name[2];
    (void)flags;
    if (!nccl_is_comm(comm) || !made || !excluded || n_excluded < 1 || n_excluded >= comm->n_ranks)
        return NCCL_INVALID_ARGUMENT;
    for (int i = 0; i < n_excluded; i++) {
        if (excluded[i] < 0 || excluded[i] >= comm->n_ranks || excluded[i] == comm->rank)
            return NCCL_INVALID_ARGUMENT;
        n_lower += excluded[i] < comm->rank;
    }
    name[0] = (int64_t)comm->id;
    name[1] = comm->n_splits++;
    return make(made, comm->n_ranks - n_excluded, comm->rank - n_lower, comm->device,
                digest(name, sizeof name, digest(excluded, sizeof(int) * (size_t)n_excluded, 2)),
                config && config->size >= sizeof *config && config->shrink_share == 1);
}
NCCL_PROFILED(ncclCommShrink);

PRETEND_CALL int ncclCommFinalize(struct nccl_comm *comm)
{
    return nccl_is_comm(comm) ? NCCL_SUCCESS : NCCL_INVALID_ARGUMENT;
}
NCCL_PROFILED(ncclCommFinalize);

/* NULL is nothing to destroy, and no error. */
PRETEND_CALL int ncclCommDestroy(struct nccl_comm *comm)
{
    if (!comm)
        return NCCL_SUCCESS;
    if (!nccl_is_comm(comm))
        return NCCL_INVALID_ARGUMENT;
    drop(comm);
    return NCCL_SUCCESS;
}
NCCL_PROFILED(ncclCommDestroy);

PRETEND_CALL int ncclCommAbort(struct nccl_comm *comm)
{
    return ncclCommDestroy(comm);
}
NCCL_PROFILED(ncclCommAbort);

PRETEND_CALL int ncclCommRevoke(struct nccl_comm *comm, int flags)
{
    return nccl_is_comm(comm) && flags == 0 ? NCCL_SUCCESS : NCCL_INVALID_ARGUMENT;
}
NCCL_PROFILED(ncclCommRevoke);
