/* SPDX-License-Identifier: MIT */
/* Small integers really go from rank to rank: sizes and objects that programs send each other, and
 * barriers. They go through a file beside the rehearsal's account that all ranks of a communicator
 * map. A rank writes its part of a round and waits for the parts of the others, so that two places
 * for each suffice: who has written round s+1 has read round s-1. Where one does not come for long,
 * nothing is exchanged any more, and a note says so. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "rehearse/cuda/nccl/nccl.h"

#define WAIT_SECONDS 60

struct part {
    uint64_t round; /* that the bytes are of; written last */
    char bytes[NCCL_EXCHANGE_BYTES];
};

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
CUresult cuStreamIsCapturing(CUstream stream, int *status);

static struct part *part_of(const struct nccl_comm *comm, int rank)
{
    struct part *parts = comm->exchange;
    return &parts[(size_t)rank * 2 + comm->round % 2];
}

static int open_exchange(struct nccl_comm *comm)
{
    char path[4096];
    const char *account = getenv(MT_ACCOUNT_VARIABLE);
    size_t bytes = (size_t)comm->n_ranks * 2 * sizeof(struct part);
    void *at = MAP_FAILED;
    int fd, length;
    if (comm->exchange)
        return 1;
    length = account ? snprintf(path, sizeof path, "%s.nccl-%016llx", account,
                                (unsigned long long)comm->id)
                     : -1;
    if (length < 0 || (size_t)length >= sizeof path)
        return 0;
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return 0;
    if (ftruncate(fd, (off_t)bytes) == 0)
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    comm->exchange = at == MAP_FAILED ? NULL : at;
    return comm->exchange != NULL;
}

void nccl_close_exchange(struct nccl_comm *comm)
{
    if (comm->exchange)
        munmap(comm->exchange, (size_t)comm->n_ranks * 2 * sizeof(struct part));
    comm->exchange = NULL;
}

static int wait_for(const struct nccl_comm *comm, int rank)
{
    const struct timespec pause = {.tv_nsec = 200000};
    for (int i = 0; i < WAIT_SECONDS * 5000; i++) {
        if (__atomic_load_n(&part_of(comm, rank)->round, __ATOMIC_ACQUIRE) >= comm->round)
            return 1;
        nanosleep(&pause, NULL);
    }
    return 0;
}

int nccl_may_exchange(struct nccl_comm *comm, size_t bytes, CUstream stream)
{
    int capturing = 0;
    if (comm->is_local || bytes > NCCL_EXCHANGE_BYTES ||
        cuStreamIsCapturing(stream, &capturing) != CUDA_SUCCESS || capturing)
        return 0;
    return open_exchange(comm);
}

/* The next round: what this rank brings is there, and so is what the others bring. */
static int meet(struct nccl_comm *comm, const void *from, size_t bytes, CUstream stream)
{
    struct part *own;
    comm->round++;
    own = part_of(comm, comm->rank);
    if (bytes && cuMemcpyDtoHAsync_v2(own->bytes, (CUdeviceptr)(uintptr_t)from, bytes, stream))
        memset(own->bytes, 0, bytes);
    __atomic_store_n(&own->round, comm->round, __ATOMIC_RELEASE);
    for (int i = 0; i < comm->n_ranks; i++) {
        if (wait_for(comm, i))
            continue;
        comm->is_local = 1;
        pretend_cuda_note("A rank of an NCCL communicator did not come to a collective call; "
                          "what it computes is not exchanged any more.");
        return 0;
    }
    return 1;
}

static void take(const struct nccl_comm *comm, int rank, void *to, size_t bytes, CUstream stream)
{
    if (bytes)
        cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)to, part_of(comm, rank)->bytes, bytes, stream);
}

void nccl_exchange_all(struct nccl_comm *comm, const void *from, void *to, size_t bytes,
                       CUstream stream)
{
    if (!meet(comm, from, bytes, stream))
        return;
    for (int i = 0; i < comm->n_ranks; i++)
        take(comm, i, (char *)to + (size_t)i * bytes, bytes, stream);
}

void nccl_exchange_one(struct nccl_comm *comm, const void *from, void *to, size_t bytes, int root,
                       CUstream stream)
{
    if (meet(comm, from, comm->rank == root ? bytes : 0, stream))
        take(comm, root, to, bytes, stream);
}

static int64_t reduce(int64_t a, int64_t b, int operation)
{
    enum { SUM, PRODUCT, MOST, LEAST };
    switch (operation) {
    case SUM:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case PRODUCT:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case MOST:
        return a > b ? a : b;
    case LEAST:
        return a < b ? a : b;
    default:
        return a;
    }
}

void nccl_exchange_sum(struct nccl_comm *comm, const void *from, void *to, size_t count, int size,
                       int operation, CUstream stream)
{
    static _Thread_local char result[NCCL_EXCHANGE_BYTES];
    size_t bytes = count * (size_t)size;
    if (!meet(comm, from, bytes, stream) || size < 4)
        return;
    for (size_t i = 0; i < bytes; i += (size_t)size)
        for (int rank = 0; rank < comm->n_ranks; rank++) {
            int64_t value = 0, sum = 0;
            int32_t narrow;
            memcpy(&narrow, part_of(comm, rank)->bytes + i, sizeof narrow);
            if (size == 8)
                memcpy(&value, part_of(comm, rank)->bytes + i, sizeof value);
            else
                value = narrow;
            memcpy(&sum, result + i, (size_t)size);
            if (size == 4) {
                memcpy(&narrow, result + i, sizeof narrow);
                sum = narrow;
            }
            value = rank ? reduce(sum, value, operation) : value;
            memcpy(result + i, &value, (size_t)size); /* the low bytes come first */
        }
    cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)to, result, bytes, stream);
}
