/* SPDX-License-Identifier: MIT */
/* What the files of the pretended NCCL share. Types and values are those of NCCL's documentation,
 * versions 2.18 to 2.30. */
#ifndef MT_CUDA_NCCL_NCCL_H
#define MT_CUDA_NCCL_NCCL_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "pretend/cuda/pretend_cuda.h"

#define NCCL_VERSION        22705 /* where the program does not say */
#define NCCL_ID_BYTES       128
#define NCCL_UNDEFINED      INT_MIN
#define NCCL_NO_COLOR       (-1)
#define NCCL_TYPES          12
#define NCCL_OPERATIONS     5
#define NCCL_OWN_OPERATIONS 1024 /* the first of those that a program makes */

enum nccl_result {
    NCCL_SUCCESS,
    NCCL_CUDA_ERROR,
    NCCL_SYSTEM_ERROR,
    NCCL_INTERNAL_ERROR,
    NCCL_INVALID_ARGUMENT,
    NCCL_INVALID_USAGE,
    NCCL_REMOTE_ERROR,
    NCCL_IN_PROGRESS,
    NCCL_TIMEOUT
};

/* ncclUniqueId. */
struct nccl_id {
    char bytes[NCCL_ID_BYTES];
};

/* ncclConfig_t: `size` says how many of these a program's version has. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster, ctas_least, ctas_most;
    const char *net_name;
    int split_share; /* from 2.18 on */
    int traffic_class;
    const char *comm_name;
    int collnet, cta_policy;
    int shrink_share; /* from 2.27 on */
};

/* ncclComm_t. */
struct nccl_comm {
    uint32_t magic;
    int n_ranks, rank;
    CUdevice device;
    CUdeviceptr memory; /* 0: none of its own */
    uint64_t id;        /* the same for all its ranks */
    uint32_t n_splits;  /* made of it so far */
    int n_operations;   /* that the program made */
    int is_local;       /* one thread has several ranks, so that none can wait for another */
    void *exchange;     /* mapped, NULL before the first */
    uint64_t round;     /* of exchanges so far */
    uint64_t *n_sent;   /* to each rank; after them, received of each; NULL before the first */
};

#define NCCL_MAGIC 0x6e63636cu

static inline int nccl_is_comm(const struct nccl_comm *comm)
{
    return comm && comm->magic == NCCL_MAGIC;
}

/* The device of the thread's context; a thread without one gets that of the first device, as from
 * CUDA's runtime. */
CUdevice nccl_current_device(void);

/* What a communicator takes of its device, if it got it. */
uint64_t nccl_memory_bytes(const struct nccl_comm *comm);

/* What a rank says when communicators are made of one: its color and key. All ranks of the
 * communicator come to the `turn`th meeting, and each learns its place among those of its color.
 * Waits for the others for a while; errors: NCCL_REMOTE_ERROR. */
struct nccl_group {
    int n_ranks, rank;
};
int nccl_bring(const struct nccl_comm *comm, uint32_t turn, int color, int key);
int nccl_meet(const struct nccl_comm *comm, uint32_t turn, int color, int key,
              struct nccl_group *group);

/* Whether the calling thread is between ncclGroupStart and ncclGroupEnd; then `work` waits until
 * the end. */
struct nccl_pending {
    struct nccl_comm *parent;
    struct nccl_comm **made;
    uint32_t turn;
    int color, key, is_shared;
};
int nccl_is_grouped(void);
int nccl_put_off(const struct nccl_pending *pending);
int nccl_finish_split(const struct nccl_pending *pending);

/* Integers that ranks really exchange. Whether `bytes` of each rank may be; all ranks come to the
 * same answer. Then all of them call the same of these (exchange.c). */
#define NCCL_EXCHANGE_BYTES ((size_t)16 << 20)
int nccl_may_exchange(const struct nccl_comm *comm, size_t bytes, CUstream stream);
void nccl_exchange_all(struct nccl_comm *comm, const void *from, void *to, size_t bytes,
                       CUstream stream);
void nccl_exchange_one(struct nccl_comm *comm, const void *from, void *to, size_t bytes, int root,
                       CUstream stream);

/* Integers of all ranks are put together by an operation of NCCL's; a rank with no `to` has no
 * use for them. Only integers are computed; for other types the ranks only wait for each other. */
struct nccl_sum {
    size_t count;
    int type, operation;
};
size_t nccl_integer_bytes(int type); /* 0: no integer */
void nccl_exchange_sum(struct nccl_comm *comm, const struct nccl_sum *sum, const void *from,
                       void *to, CUstream stream);

/* From one rank to another (mail.c): sending never waits; in a group, receiving waits until its
 * end, when nccl_receive_pending() does it. */
void nccl_send(struct nccl_comm *comm, const void *from, size_t bytes, int peer, CUstream stream);
void nccl_receive(struct nccl_comm *comm, void *to, size_t bytes, int peer, CUstream stream);
void nccl_receive_pending(void);
int nccl_is_pending(void);

/* A path of a file beside the account that this communicator's ranks share: `what` and the numbers
 * say which. Returns 0 where there is none. */
struct nccl_path {
    char text[4096];
};
int nccl_path(const struct nccl_comm *comm, const char *what, uint64_t a, uint64_t b, uint64_t c,
              struct nccl_path *path);

/* How long another rank is waited for: a pause, and whether there is time for more of them. */
uint64_t nccl_deadline(void);
int nccl_pause(uint64_t deadline);

/* A rank did not come: from here on nothing is exchanged over this communicator. */
void nccl_give_up(struct nccl_comm *comm);

/* How far integers are to be trusted goes with them, as the helper in Python counts it. */
uint32_t nccl_doubt(void);
void nccl_doubted(uint32_t doubt);

void nccl_close_exchange(struct nccl_comm *comm);

/* Every name of NCCL has a second one for profilers. After the function itself. */
#define NCCL_PROFILED(name) __asm__(".globl p" #name "\n.set p" #name ", " #name)

/* What ncclGetVersion() answers (version.c). */
int nccl_version(void);

#endif
