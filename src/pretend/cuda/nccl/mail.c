/* SPDX-License-Identifier: MIT */
/* What one rank sends another. Each message is a file beside the rehearsal's account, numbered for
 * its sender and receiver, that is there once it is whole and is gone once it was read. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nccl.h"

#define PIECE_BYTES  65536u /* what the driver copies at once */
#define PENDING_MOST 4096

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);

struct message {
    uint32_t doubt;
    char bytes[];
};

/* Receiving that waits for the end of a group. */
static _Thread_local int n_pending;
static _Thread_local struct pending {
    struct nccl_comm *comm;
    void *to;
    size_t bytes;
    int peer;
    CUstream stream;
} * pending;

/* Counts of what was sent to each rank; with `of_received`, of what was received. */
static uint64_t *counts_of(struct nccl_comm *comm, int of_received)
{
    if (!comm->n_sent)
        comm->n_sent = calloc((size_t)comm->n_ranks * 2, sizeof *comm->n_sent);
    return !comm->n_sent ? NULL : of_received ? comm->n_sent + comm->n_ranks : comm->n_sent;
}

static struct message *map_message(int fd, size_t bytes, int is_new)
{
    size_t whole = sizeof(struct message) + bytes;
    struct stat status;
    void *at = MAP_FAILED;
    if (is_new ? ftruncate(fd, (off_t)whole) == 0
               : fstat(fd, &status) == 0 && (uint64_t)status.st_size >= whole)
        at = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

static void fill(struct message *message, const void *from, size_t bytes, CUstream stream)
{
    message->doubt = nccl_doubt();
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        size_t n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        if (cuMemcpyDtoHAsync_v2(message->bytes + at, (CUdeviceptr)(uintptr_t)from + at, n, stream))
            memset(message->bytes + at, 0, n);
    }
}

void nccl_send(struct nccl_comm *comm, const void *from, size_t bytes, int peer, CUstream stream)
{
    struct nccl_path path, unfinished;
    uint64_t *n_sent = counts_of(comm, 0);
    struct message *message = NULL;
    uint64_t number;
    if (!n_sent)
        return;
    number = n_sent[peer]++;
    if (!nccl_path(comm, "-part", (uint64_t)comm->rank, (uint64_t)peer, number, &unfinished) ||
        !nccl_path(comm, "-mail", (uint64_t)comm->rank, (uint64_t)peer, number, &path))
        return;
    int fd = open(unfinished.text, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0)
        message = map_message(fd, bytes, 1);
    if (!message)
        return;
    fill(message, from, bytes, stream);
    munmap(message, sizeof *message + bytes);
    rename(unfinished.text, path.text);
    nccl_doubted(nccl_doubt());
}

static int wait_for(const char *path)
{
    const uint64_t deadline = nccl_deadline();
    do {
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0)
            return fd;
    } while (nccl_pause(deadline));
    return -1;
}

static void receive(const struct pending *wanted)
{
    struct nccl_comm *comm = wanted->comm;
    uint64_t *n_received = counts_of(comm, 1);
    struct nccl_path path;
    struct message *message;
    int fd;
    if (comm->is_local || !n_received ||
        !nccl_path(comm, "-mail", (uint64_t)wanted->peer, (uint64_t)comm->rank,
                   n_received[wanted->peer]++, &path))
        return;
    fd = wait_for(path.text);
    if (fd < 0) {
        nccl_give_up(comm);
        return;
    }
    unlink(path.text);
    message = map_message(fd, wanted->bytes, 0);
    if (!message)
        return;
    for (size_t at = 0; at < wanted->bytes; at += PIECE_BYTES) {
        size_t n = wanted->bytes - at < PIECE_BYTES ? wanted->bytes - at : PIECE_BYTES;
        cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)wanted->to + at, message->bytes + at, n,
                             wanted->stream);
    }
    nccl_doubted(message->doubt);
    munmap(message, sizeof *message + wanted->bytes);
}

void nccl_receive(struct nccl_comm *comm, void *to, size_t bytes, int peer, CUstream stream)
{
    const struct pending wanted = {comm, to, bytes, peer, stream};
    if (!nccl_is_grouped()) {
        receive(&wanted);
        return;
    }
    if (!pending)
        pending = malloc(PENDING_MOST * sizeof *pending);
    if (pending && n_pending < PENDING_MOST)
        pending[n_pending++] = wanted;
    else
        nccl_give_up(comm);
}

int nccl_is_pending(void)
{
    return n_pending > 0;
}

void nccl_receive_pending(void)
{
    int n = n_pending;
    n_pending = 0;
    for (int i = 0; i < n; i++)
        receive(&pending[i]);
}
