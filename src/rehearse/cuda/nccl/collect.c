/* SPDX-License-Identifier: MIT */
/* What the ranks of the pretended NCCL do together: arguments are checked as NCCL checks them, and
 * the call takes a place in its stream. Of what is moved and computed, only small integers are. */
#include <stdlib.h>

#include "rehearse/cuda/nccl/nccl.h"

#define PENDING_MOST 256

static _Thread_local int depth;
static _Thread_local int n_pending;
static _Thread_local struct nccl_pending pending_splits[PENDING_MOST];

int nccl_is_grouped(void)
{
    return depth > 0;
}

int nccl_put_off(const struct nccl_pending *pending)
{
    if (n_pending == PENDING_MOST)
        return NCCL_INTERNAL_ERROR;
    pending_splits[n_pending++] = *pending;
    return NCCL_SUCCESS;
}

int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclGroupSimulateEnd(void *info);

PRETEND_CALL int ncclGroupStart(void)
{
    depth++;
    return NCCL_SUCCESS;
}
NCCL_PROFILED(ncclGroupStart);

PRETEND_CALL int ncclGroupEnd(void)
{
    int result = NCCL_SUCCESS;
    if (depth == 0)
        return NCCL_INVALID_USAGE;
    if (--depth > 0)
        return NCCL_SUCCESS;
    for (int i = 0; i < n_pending; i++) {
        int finished = nccl_finish_split(&pending_splits[i]);
        result = result == NCCL_SUCCESS ? finished : result;
    }
    n_pending = 0;
    return result;
}
NCCL_PROFILED(ncclGroupEnd);

/* ncclSimInfo_t: what a group would take, in microseconds. Nothing is known of it. */
PRETEND_CALL int ncclGroupSimulateEnd(void *info)
{
    struct {
        size_t size;
        unsigned magic, version;
        float microseconds;
    } *answer = info;
    if (depth == 0)
        return NCCL_INVALID_USAGE;
    if (answer && answer->size >= sizeof *answer)
        answer->microseconds = -1.0f;
    return ncclGroupEnd();
}
NCCL_PROFILED(ncclGroupSimulateEnd);

/* `root` is a rank, or -1 where there is none; so is `operation`. */
static int collect(const struct nccl_comm *comm, int type, int operation, int root, CUstream stream)
{
    if (!nccl_is_comm(comm) || type < 0 || type >= NCCL_TYPES)
        return NCCL_INVALID_ARGUMENT;
    if (operation >= NCCL_OPERATIONS &&
        (operation < NCCL_OWN_OPERATIONS || operation >= NCCL_OWN_OPERATIONS + comm->n_operations))
        return NCCL_INVALID_ARGUMENT;
    if (operation < -1 || root < -1 || root >= comm->n_ranks)
        return NCCL_INVALID_ARGUMENT;
    return pretend_cuda_work(stream) == CUDA_SUCCESS ? NCCL_SUCCESS : NCCL_CUDA_ERROR;
}

/* What programs read back of a collective: integers, and the single value of a barrier. */
static size_t small_bytes(size_t count, int type)
{
    static const size_t sizes[NCCL_TYPES] = {1, 1, 4, 4, 8, 8};
    if (count > NCCL_EXCHANGE_BYTES)
        return 0;
    return sizes[type] * count;
}

static int none(int number) /* what is no rank or operation stays none */
{
    return number < 0 ? -2 : number;
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation,
                  struct nccl_comm *comm, CUstream stream);
int ncclReduceScatter(const void *from, void *to, size_t count, int type, int operation,
                      struct nccl_comm *comm, CUstream stream);
int ncclReduce(const void *from, void *to, size_t count, int type, int operation, int root,
               struct nccl_comm *comm, CUstream stream);
int ncclBcast(void *buffer, size_t count, int type, int root, struct nccl_comm *comm,
              CUstream stream);
int ncclSend(const void *from, size_t count, int type, int peer, struct nccl_comm *comm,
             CUstream stream);
int ncclRecv(void *to, size_t count, int type, int peer, struct nccl_comm *comm, CUstream stream);
int ncclRedOpCreatePreMulSum(int *operation, void *scalar, int type, int residence,
                             struct nccl_comm *comm);
int ncclRedOpDestroy(int operation, struct nccl_comm *comm);

#define REDUCING(name)                                                                             \
    PRETEND_CALL int name(const void *from, void *to, size_t count, int type, int operation,       \
                          struct nccl_comm *comm, CUstream stream)                                 \
    {                                                                                              \
        (void)from, (void)to, (void)count;                                                         \
        return collect(comm, type, none(operation), -1, stream);                                   \
    }                                                                                              \
    NCCL_PROFILED(name);
REDUCING(ncclReduceScatter)

PRETEND_CALL int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation,
                               struct nccl_comm *comm, CUstream stream)
{
    int result = collect(comm, type, none(operation), -1, stream);
    size_t bytes = result == NCCL_SUCCESS ? small_bytes(count, type) : 0;
    if (result == NCCL_SUCCESS && (bytes || count == 1) && nccl_may_exchange(comm, bytes, stream))
        nccl_exchange_sum(comm, from, to, bytes ? count : 0, bytes ? (int)(bytes / count) : 0,
                          operation, stream);
    return result;
}
NCCL_PROFILED(ncclAllReduce);

PRETEND_CALL int ncclReduce(const void *from, void *to, size_t count, int type, int operation,
                            int root, struct nccl_comm *comm, CUstream stream)
{
    (void)from, (void)to, (void)count;
    return collect(comm, type, none(operation), none(root), stream);
}
NCCL_PROFILED(ncclReduce);

#define GATHERING(name)                                                                            \
    int name(const void *from, void *to, size_t count, int type, struct nccl_comm *comm,           \
             CUstream stream);                                                                     \
    PRETEND_CALL int name(const void *from, void *to, size_t count, int type,                      \
                          struct nccl_comm *comm, CUstream stream)                                 \
    {                                                                                              \
        (void)from, (void)to, (void)count;                                                         \
        return collect(comm, type, -1, -1, stream);                                                \
    }                                                                                              \
    NCCL_PROFILED(name);
GATHERING(ncclAlltoAll)

int ncclAllGather(const void *from, void *to, size_t count, int type, struct nccl_comm *comm,
                  CUstream stream);
PRETEND_CALL int ncclAllGather(const void *from, void *to, size_t count, int type,
                               struct nccl_comm *comm, CUstream stream)
{
    int result = collect(comm, type, -1, -1, stream);
    size_t bytes = result == NCCL_SUCCESS ? small_bytes(count, type) : 0;
    if (bytes && nccl_may_exchange(comm, bytes, stream))
        nccl_exchange_all(comm, from, to, bytes, stream);
    return result;
}
NCCL_PROFILED(ncclAllGather);

#define ROOTED(name)                                                                               \
    int name(const void *from, void *to, size_t count, int type, int root, struct nccl_comm *comm, \
             CUstream stream);                                                                     \
    PRETEND_CALL int name(const void *from, void *to, size_t count, int type, int root,            \
                          struct nccl_comm *comm, CUstream stream)                                 \
    {                                                                                              \
        (void)from, (void)to, (void)count;                                                         \
        return collect(comm, type, -1, none(root), stream);                                        \
    }                                                                                              \
    NCCL_PROFILED(name);
ROOTED(ncclGather)
ROOTED(ncclScatter)

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root,
                  struct nccl_comm *comm, CUstream stream);
PRETEND_CALL int ncclBroadcast(const void *from, void *to, size_t count, int type, int root,
                               struct nccl_comm *comm, CUstream stream)
{
    int result = collect(comm, type, -1, none(root), stream);
    size_t bytes = result == NCCL_SUCCESS ? small_bytes(count, type) : 0;
    if (bytes && nccl_may_exchange(comm, bytes, stream))
        nccl_exchange_one(comm, from, to, bytes, root, stream);
    return result;
}
NCCL_PROFILED(ncclBroadcast);

PRETEND_CALL int ncclBcast(void *buffer, size_t count, int type, int root, struct nccl_comm *comm,
                           CUstream stream)
{
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
NCCL_PROFILED(ncclBcast);

PRETEND_CALL int ncclSend(const void *from, size_t count, int type, int peer,
                          struct nccl_comm *comm, CUstream stream)
{
    (void)from, (void)count;
    return collect(comm, type, -1, none(peer), stream);
}
NCCL_PROFILED(ncclSend);

PRETEND_CALL int ncclRecv(void *to, size_t count, int type, int peer, struct nccl_comm *comm,
                          CUstream stream)
{
    (void)to, (void)count;
    return collect(comm, type, -1, none(peer), stream);
}
NCCL_PROFILED(ncclRecv);

PRETEND_CALL int ncclRedOpCreatePreMulSum(int *operation, void *scalar, int type, int residence,
                                          struct nccl_comm *comm)
{
    if (!nccl_is_comm(comm) || !operation || !scalar || type < 0 || type >= NCCL_TYPES ||
        (residence != 0 && residence != 1))
        return NCCL_INVALID_ARGUMENT;
    *operation = NCCL_OWN_OPERATIONS + comm->n_operations++;
    return NCCL_SUCCESS;
}
NCCL_PROFILED(ncclRedOpCreatePreMulSum);

PRETEND_CALL int ncclRedOpDestroy(int operation, struct nccl_comm *comm)
{
    if (!nccl_is_comm(comm) || operation < NCCL_OWN_OPERATIONS ||
        operation >= NCCL_OWN_OPERATIONS + comm->n_operations)
        return NCCL_INVALID_ARGUMENT;
    return NCCL_SUCCESS;
}
NCCL_PROFILED(ncclRedOpDestroy);
