/* SPDX-License-Identifier: MIT */
/* Integers really go from rank to rank: sizes and objects that programs send each other, and
 * barriers. They go through a file beside the rehearsal's account that all ranks of a communicator
 * map, a piece at a time. A rank writes its part of a round and waits for the parts of the others,
 * so that two places for each suffice: who has written round s+1 has read round s-1. Where one does
 * not come for long, nothing is exchanged any more, and a note says so. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "nccl.h"
#include "rehearse/account.h"

#define WAIT_SECONDS 60

/* In place of a doubt: nothing came, or it will at the end of the group. */
#define DOUBT_NOTHING (-1)
#define DOUBT_LATER   (-2)
#define PIECE_BYTES   65536u /* what the driver copies at once */

struct part {
    uint64_t round; /* that the bytes are of; written last */
    uint32_t doubt;
    char bytes[PIECE_BYTES];
};

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
CUresult cuStreamIsCapturing(CUstream stream, int *status);

void pretend_nccl_doubt(uint32_t own);
int pretend_nccl_doubted(void);

static _Thread_local uint32_t doubt_of_own;
static _Thread_local int doubt_of_all = DOUBT_NOTHING;

int nccl_path(const struct nccl_comm *comm, const char *what, uint64_t a, uint64_t b, uint64_t c,
              struct nccl_path *path)
{
    const char *account = getenv(MT_ACCOUNT_VARIABLE);
    int length = account
                     ? snprintf(path->text, sizeof path->text, "%s.nccl-%016llx%s-%llu-%llu-%llu",
                                account, (unsigned long long)comm->id, what, (unsigned long long)a,
                                (unsigned long long)b, (unsigned long long)c)
                     : -1;
    return length > 0 && (size_t)length < sizeof path->text;
}

void nccl_give_up(struct nccl_comm *comm)
{
    comm->is_local = 1;
    pretend_cuda_note("A rank of an NCCL communicator did not come to a call; what the ranks of it "
                      "compute is not exchanged any more.");
}

PRETEND_CALL void pretend_nccl_doubt(uint32_t own)
{
    doubt_of_own = own;
    doubt_of_all = DOUBT_NOTHING;
}

PRETEND_CALL int pretend_nccl_doubted(void)
{
    return nccl_is_pending() ? DOUBT_LATER : doubt_of_all;
}

uint32_t nccl_doubt(void)
{
    return doubt_of_own;
}

void nccl_doubted(uint32_t doubt)
{
    if ((int)doubt > doubt_of_all)
        doubt_of_all = (int)doubt;
}

static struct part *part_of(const struct nccl_comm *comm, int rank)
{
    struct part *parts = comm->exchange;
    return &parts[(size_t)rank * 2 + comm->round % 2];
}

static int open_exchange(struct nccl_comm *comm)
{
    struct nccl_path path;
    size_t bytes = (size_t)comm->n_ranks * 2 * sizeof(struct part);
    void *at = MAP_FAILED;
    int fd;
    if (comm->exchange)
        return 1;
    fd = nccl_path(comm, "-all", 0, 0, 0, &path)
             ? open(path.text, O_RDWR | O_CREAT | O_CLOEXEC, 0600)
             : -1;
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
    free(comm->n_sent);
    comm->n_sent = NULL;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t nccl_deadline(void)
{
    return now_ns() + UINT64_C(1000000000) * WAIT_SECONDS;
}

int nccl_pause(uint64_t deadline)
{
    const struct timespec pause = {.tv_nsec = 200000};
    nanosleep(&pause, NULL);
    return now_ns() < deadline;
}

static int wait_for(const struct nccl_comm *comm, int rank)
{
    const uint64_t deadline = nccl_deadline();
    do {
        if (__atomic_load_n(&part_of(comm, rank)->round, __ATOMIC_ACQUIRE) >= comm->round)
            return 1;
    } while (nccl_pause(deadline));
    return 0;
}

int nccl_may_exchange(const struct nccl_comm *comm, size_t bytes, CUstream stream)
{
    int capturing = 0;
    return !comm->is_local && bytes <= NCCL_EXCHANGE_BYTES &&
           cuStreamIsCapturing(stream, &capturing) == CUDA_SUCCESS && !capturing;
}

/* The next round: what this rank brings is there, and so is what the others bring. */
static int meet(struct nccl_comm *comm, const void *from, size_t bytes, CUstream stream)
{
    struct part *own;
    if (comm->is_local || !open_exchange(comm))
        return 0;
    comm->round++;
    own = part_of(comm, comm->rank);
    if (bytes && cuMemcpyDtoHAsync_v2(own->bytes, (CUdeviceptr)(uintptr_t)from, bytes, stream))
        memset(own->bytes, 0, bytes);
    own->doubt = nccl_doubt();
    __atomic_store_n(&own->round, comm->round, __ATOMIC_RELEASE);
    for (int i = 0; i < comm->n_ranks; i++) {
        if (wait_for(comm, i))
            continue;
        nccl_give_up(comm);
        return 0;
    }
    return 1;
}

static void take(const struct nccl_comm *comm, int rank, void *to, size_t bytes, CUstream stream)
{
    cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)to, part_of(comm, rank)->bytes, bytes, stream);
    nccl_doubted(part_of(comm, rank)->doubt);
}

static size_t piece_of(size_t bytes, size_t at)
{
    return bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
}

void nccl_exchange_all(struct nccl_comm *comm, const void *from, void *to, size_t bytes,
                       CUstream stream)
{
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        size_t n = piece_of(bytes, at);
        if (!meet(comm, (const char *)from + at, n, stream))
            return;
        for (int i = 0; i < comm->n_ranks; i++)
            take(comm, i, (char *)to + (size_t)i * bytes + at, n, stream);
    }
}

void nccl_exchange_one(struct nccl_comm *comm, const void *from, void *to, size_t bytes, int root,
                       CUstream stream)
{
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        size_t n = piece_of(bytes, at);
        const char *own = comm->rank == root ? (const char *)from + at : NULL;
        if (!meet(comm, own, own ? n : 0, stream))
            return;
        take(comm, root, (char *)to + at, n, stream);
    }
}

enum type { INT8, UINT8, INT32, UINT32, INT64, UINT64 };

size_t nccl_integer_bytes(int type)
{
    static const size_t sizes[NCCL_TYPES] = {1, 1, 4, 4, 8, 8};
    return sizes[type];
}

/* An integer of any type; the bits of the unsigned of 8 bytes are kept. */
static int64_t load(const char *at, int type)
{
    union {
        int8_t i8;
        uint8_t u8;
        int32_t i32;
        uint32_t u32;
        int64_t i64;
    } value = {0};
    memcpy(&value, at, nccl_integer_bytes(type));
    switch ((enum type)type) {
    case INT8:
        return value.i8;
    case UINT8:
        return value.u8;
    case INT32:
        return value.i32;
    case UINT32:
        return value.u32;
    case INT64:
    case UINT64:
        break;
    }
    return value.i64;
}

static int is_less(int64_t a, int64_t b, int type)
{
    return type == UINT64 ? (uint64_t)a < (uint64_t)b : a < b;
}

enum operation { SUM, PRODUCT, MOST, LEAST, AVERAGE };

static int64_t reduce(int64_t a, int64_t b, const struct nccl_sum *sum)
{
    switch ((enum operation)sum->operation) {
    case SUM:
    case AVERAGE:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case PRODUCT:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case MOST:
        return is_less(a, b, sum->type) ? b : a;
    case LEAST:
        return is_less(b, a, sum->type) ? b : a;
    }
    return a;
}

/* Reduces `n` elements of all ranks in a round. The low bytes of a number come first. */
static void put_together(const struct nccl_comm *comm, const struct nccl_sum *sum, char *result,
                         size_t n)
{
    size_t size = nccl_integer_bytes(sum->type);
    for (size_t i = 0; i < n * size; i += size) {
        int64_t value = load(part_of(comm, 0)->bytes + i, sum->type);
        for (int rank = 1; rank < comm->n_ranks; rank++)
            value = reduce(value, load(part_of(comm, rank)->bytes + i, sum->type), sum);
        memcpy(result + i, &value, size);
        if (sum->operation == AVERAGE) { /* of what the sum is in its own width */
            value = load(result + i, sum->type);
            value = sum->type == UINT64 ? (int64_t)((uint64_t)value / (uint64_t)comm->n_ranks)
                                        : value / comm->n_ranks;
            memcpy(result + i, &value, size);
        }
    }
}

void nccl_exchange_sum(struct nccl_comm *comm, const struct nccl_sum *sum, const void *from,
                       void *to, CUstream stream)
{
    static _Thread_local char result[PIECE_BYTES];
    size_t size = nccl_integer_bytes(sum->type);
    size_t bytes = sum->count * size;
    if (!size) {
        meet(comm, NULL, 0, stream);
        return;
    }
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        size_t n = piece_of(bytes, at);
        if (!meet(comm, (const char *)from + at, n, stream))
            return;
        if (!to) {
            nccl_doubted(nccl_doubt());
            continue;
        }
        put_together(comm, sum, result, n / size);
        cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)to + at, result, n, stream);
        for (int i = 0; i < comm->n_ranks; i++)
            nccl_doubted(part_of(comm, i)->doubt);
    }
}
