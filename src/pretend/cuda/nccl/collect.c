/* SPDX-License-Identifier: MIT */
/* What the ranks of the pretended NCCL do together: arguments are checked as NCCL checks them, and
 * the call takes a place in its stream. Only integers are moved and computed, up to
 * NCCL_EXCHANGE_BYTES. */
#include <stdlib.h>

#include "nccl.h"

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
    nccl_receive_pending();
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
static size_t integer_bytes(size_t count, int type)
{
    return count > NCCL_EXCHANGE_BYTES ? 0 : nccl_integer_bytes(type) * count;
}

/* Whether ranks put their numbers together: integers, and a barrier's value, whatever it is. */
static int is_summed(const struct nccl_comm *comm, const struct nccl_sum *sum, size_t n_parts,
                     CUstream stream)
{
    size_t bytes = integer_bytes(sum->count, sum->type);
    return sum->operation < NCCL_OPERATIONS && (bytes || sum->count == 1) &&
           nccl_may_exchange(comm, bytes * n_parts, stream);
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

PRETEND_CALL int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation,
                               struct nccl_comm *comm, CUstream stream)
{
    const struct nccl_sum sum = {count, type, operation};
    int result = collect(comm, type, none(operation), -1, stream);
    if (result == NCCL_SUCCESS && is_summed(comm, &sum, 1, stream))
        nccl_exchange_sum(comm, &sum, from, to, stream);
    return result;
}
NCCL_PROFILED(ncclAllReduce);

PRETEND_CALL int ncclReduce(const void *from, void *to, size_t count, int type, int operation,
                            int root, struct nccl_comm *comm, CUstream stream)
{
    const struct nccl_sum sum = {count, type, operation};
    int result = collect(comm, type, none(operation), none(root), stream);
    if (result == NCCL_SUCCESS && is_summed(comm, &sum, 1, stream))
        nccl_exchange_sum(comm, &sum, from, comm->rank == root ? to : NULL, stream);
    return result;
}
NCCL_PROFILED(ncclReduce);

/* A rank's part is stored when its turn comes: it may lie in the place that it came from. */
PRETEND_CALL int ncclReduceScatter(const void *from, void *to, size_t count, int type,
                                   int operation, struct nccl_comm *comm, CUstream stream)
{
    const struct nccl_sum sum = {count, type, operation};
    int result = collect(comm, type, none(operation), -1, stream);
    if (result != NCCL_SUCCESS || !is_summed(comm, &sum, (size_t)comm->n_ranks, stream))
        return result;
    for (int i = 0; i < comm->n_ranks; i++)
        nccl_exchange_sum(comm, &sum, (const char *)from + (size_t)i * integer_bytes(count, type),
                          comm->rank == i ? to : NULL, stream);
    return result;
}
NCCL_PROFILED(ncclReduceScatter);

int ncclAllGather(const void *from, void *to, size_t count, int type, struct nccl_comm *comm,
                  CUstream stream);
PRETEND_CALL int ncclAllGather(const void *from, void *to, size_t count, int type,
                               struct nccl_comm *comm, CUstream stream)
{
    int result = collect(comm, type, -1, -1, stream);
    size_t bytes = result == NCCL_SUCCESS ? integer_bytes(count, type) : 0;
    if (bytes && nccl_may_exchange(comm, bytes * (size_t)comm->n_ranks, stream))
        nccl_exchange_all(comm, from, to, bytes, stream);
    return result;
}
NCCL_PROFILED(ncclAllGather);

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root,
                  struct nccl_comm *comm, CUstream stream);
PRETEND_CALL int ncclBroadcast(const void *from, void *to, size_t count, int type, int root,
                               struct nccl_comm *comm, CUstream stream)
{
    int result = collect(comm, type, -1, none(root), stream);
    size_t bytes = result == NCCL_SUCCESS ? integer_bytes(count, type) : 0;
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
    int result = collect(comm, type, -1, none(peer), stream);
    size_t bytes = result == NCCL_SUCCESS ? integer_bytes(count, type) : 0;
    if (bytes && nccl_may_exchange(comm, bytes, stream))
        nccl_send(comm, from, bytes, peer, stream);
    return result;
}
NCCL_PROFILED(ncclSend);

PRETEND_CALL int ncclRecv(void *to, size_t count, int type, int peer, struct nccl_comm *comm,
                          CUstream stream)
{
    int result = collect(comm, type, -1, none(peer), stream);
    size_t bytes = result == NCCL_SUCCESS ? integer_bytes(count, type) : 0;
    if (bytes && nccl_may_exchange(comm, bytes, stream))
        nccl_receive(comm, to, bytes, peer, stream);
    return result;
}
NCCL_PROFILED(ncclRecv);

/* Part i of what is sent goes to rank i. */
static void send_parts(struct nccl_comm *comm, const void *from, size_t bytes, CUstream stream)
{
    for (int i = 0; i < comm->n_ranks; i++)
        nccl_send(comm, (const char *)from + (size_t)i * bytes, bytes, i, stream);
}

static void receive_parts(struct nccl_comm *comm, void *to, size_t bytes, CUstream stream)
{
    for (int i = 0; i < comm->n_ranks; i++)
        nccl_receive(comm, (char *)to + (size_t)i * bytes, bytes, i, stream);
}

static size_t parts_bytes(struct nccl_comm *comm, size_t count, int type, CUstream stream)
{
    size_t bytes = integer_bytes(count, type);
    return nccl_may_exchange(comm, bytes * (size_t)comm->n_ranks, stream) ? bytes : 0;
}

int ncclAlltoAll(const void *from, void *to, size_t count, int type, struct nccl_comm *comm,
                 CUstream stream);
PRETEND_CALL int ncclAlltoAll(const void *from, void *to, size_t count, int type,
                              struct nccl_comm *comm, CUstream stream)
{
    int result = collect(comm, type, -1, -1, stream);
    size_t bytes = result == NCCL_SUCCESS ? parts_bytes(comm, count, type, stream) : 0;
    if (bytes) {
        send_parts(comm, from, bytes, stream);
        receive_parts(comm, to, bytes, stream);
    }
    return result;
}
NCCL_PROFILED(ncclAlltoAll);

int ncclGather(const void *from, void *to, size_t count, int type, int root, struct nccl_comm *comm,
               CUstream stream);
PRETEND_CALL int ncclGather(const void *from, void *to, size_t count, int type, int root,
                            struct nccl_comm *comm, CUstream stream)
{
    int result = collect(comm, type, -1, none(root), stream);
    size_t bytes = result == NCCL_SUCCESS ? parts_bytes(comm, count, type, stream) : 0;
    if (bytes)
        nccl_send(comm, from, bytes, root, stream);
    if (bytes && comm->rank == root)
        receive_parts(comm, to, bytes, stream);
    return result;
}
NCCL_PROFILED(ncclGather);

int ncclScatter(const void *from, void *to, size_t count, int type, int root,
                struct nccl_comm *comm, CUstream stream);
PRETEND_CALL int ncclScatter(const void *from, void *to, size_t count, int type, int root,
                             struct nccl_comm *comm, CUstream stream)
{
    int result = collect(comm, type, -1, none(root), stream);
    size_t bytes = result == NCCL_SUCCESS ? parts_bytes(comm, count, type, stream) : 0;
    if (bytes && comm->rank == root)
        send_parts(comm, from, bytes, stream);
    if (bytes)
        nccl_receive(comm, to, bytes, root, stream);
    return result;
}
NCCL_PROFILED(ncclScatter);

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
