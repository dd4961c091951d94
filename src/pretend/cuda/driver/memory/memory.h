/* SPDX-License-Identifier: MIT */
/* What the files of the pretended driver's memory share: the ranges of addresses that were given
 * out, and the bytes that they take of a device.
 *
 * An address is a range's or is not of a device. A range is one of the program's allocations, or
 * what several of them lie in: a slab of small ones, a chunk of a pool, a reservation of addresses.
 * Everything here is called with the lock held unless it says otherwise. */
#ifndef MT_CUDA_DRIVER_MEMORY_H
#define MT_CUDA_DRIVER_MEMORY_H

#include <sys/types.h>

#include <memtally/category.h>

#include "pretend/cuda/abi/driver_memory.h"
#include "pretend/cuda/driver/world.h"

enum pretend_range_kind {
    PRETEND_LINEAR,      /* cuMemAlloc */
    PRETEND_SMALL,       /* the same, in a slab */
    PRETEND_SLAB,        /* a page of small ones; `inside` is a struct of slabs.c */
    PRETEND_MANAGED,     /* cuMemAllocManaged: the program itself may read and write it */
    PRETEND_CHUNK,       /* of a pool; `inside` is a struct of pools.c */
    PRETEND_POOLED,      /* cuMemAllocAsync, in a chunk */
    PRETEND_NODES,       /* of an allocation node of a graph */
    PRETEND_RESERVATION, /* cuMemAddressReserve; begins a page before the addresses */
    PRETEND_MAP,         /* cuMemMap, in a reservation */
    PRETEND_OPENED,      /* another process's memory, by a handle */
    PRETEND_PINNED,      /* cuMemHostAlloc */
    PRETEND_REGISTERED   /* cuMemHostRegister */
};

struct pretend_range {
    CUdeviceptr base;
    uint64_t bytes; /* that were asked for */
    uint64_t span;  /* of addresses, whole pages where it is one of a device's own */
    uint64_t held;  /* that it takes of the device itself; 0 for what lies in another range */
    uint64_t id;
    uint64_t taken_ns;   /* of what is in a pool */
    CUdeviceptr told;    /* where the account was told what it is for; 0: nowhere */
    void *inside;        /* of its kind */
    const void *context; /* that it goes with, NULL where it goes with none */
    int device;          /* as the program counts */
    uint8_t kind;        /* enum pretend_range_kind */
    uint8_t category;
    uint8_t is_shared; /* others write there, too: nothing is known of its pages */
    uint8_t access;    /* CU_MEM_ACCESS_FLAGS_… of a map */
    unsigned flags;    /* that the program gave */
};

/* The system's calls, so that tests can refuse them. */
struct pretend_system {
    void *(*map)(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
    int (*protect)(void *at, size_t bytes, int protection);
};
extern struct pretend_system pretend_system;

/* Ranges (space.c). */

/* A range of nothing yet, or NULL where memory ran out. */
struct pretend_range *pretend_range_make(enum pretend_range_kind kind, int device, uint64_t bytes);
void pretend_range_drop(struct pretend_range *range);

/* Finds addresses for range->span bytes and puts the range there. `wanted` is taken where it is
 * free, 0 is any. */
CUresult pretend_range_place(struct pretend_range *range, uint64_t alignment, CUdeviceptr wanted);
/* Puts a range at the given address inside another. */
void pretend_range_put(struct pretend_range *range);
/* Forgets the range and what was written there; the range itself stays the caller's. */
void pretend_range_remove(struct pretend_range *range);

/* The first range of a device's addresses that begins at `from` or behind; NULL past the last. */
struct pretend_range *pretend_range_next(int device, CUdeviceptr from);

/* The outermost allocated thing at an address (a slab, a chunk, a map), NULL where there is none;
 * and the innermost, which also may be host memory that the driver knows. */
struct pretend_range *pretend_range_around(CUdeviceptr pointer);
struct pretend_range *pretend_range_find(CUdeviceptr pointer);

/* The reservation that an address lies in, and whether any range begins from `pointer` up to its
 * end; both of a device's addresses. */
struct pretend_range *pretend_reservation_at(CUdeviceptr pointer);
int pretend_range_begins_in(CUdeviceptr pointer, uint64_t bytes);

/* Whose addresses these are, -1 where they are no device's. */
int pretend_space_at(CUdeviceptr pointer);
/* Whether memory stands behind a device's addresses, so that small copies can be done. */
int pretend_space_is_backed(CUdeviceptr pointer);
/* Makes addresses readable and writable; 0 where they cannot be. */
int pretend_space_open(CUdeviceptr pointer, uint64_t bytes);
/* Puts a file's memory behind addresses, and takes it away again. Returns 0 where it cannot be. */
int pretend_space_share(CUdeviceptr pointer, uint64_t bytes, int fd, uint64_t offset);
void pretend_space_unshare(CUdeviceptr pointer, uint64_t bytes);

/* What was written of a device's memory. Makes [pointer, pointer + bytes) writable and notes that
 * it was written; 0 where it cannot be. */
int pretend_written_add(CUdeviceptr pointer, uint64_t bytes);
int pretend_written_has(CUdeviceptr pointer, uint64_t bytes);
/* All of it reads as zeros again. */
void pretend_written_clear(CUdeviceptr pointer, uint64_t bytes);

/* Bytes of devices (charge.c). */

/* Takes `range->held` of its device and tells the account; `asked` is what the program said. */
CUresult pretend_charge(const struct pretend_range *range, uint64_t asked, const char *name);
/* The same, without an event if it does not fit. */
CUresult pretend_charge_quietly(const struct pretend_range *range, const char *name);
/* Tells the account what was refused, also where no addresses are left. CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult pretend_refuse_addresses(int device, enum mt_category category, uint64_t asked,
                                  const char *name);
/* Gives it back. */
void pretend_discharge(const struct pretend_range *range);
/* The account's number of a device. */
uint32_t pretend_place(int device);

/* Small allocations (slabs.c). */
#define PRETEND_SMALL_BELOW (UINT64_C(1) << 20)
#define PRETEND_UNIT        512u

CUresult pretend_slab_take(int device, uint64_t bytes, enum mt_category category, const char *name,
                           CUdeviceptr *pointer);
void pretend_slab_give(struct pretend_range *small);
/* The first of a slab's range from `from` on, NULL past the last; the one that has `pointer`. */
struct pretend_range *pretend_slab_next(const struct pretend_range *range, CUdeviceptr from);
struct pretend_range *pretend_slab_find(const struct pretend_range *range, CUdeviceptr pointer);

/* Pools (pools.c). What of a device they reserve and do not use goes back; 0 where nothing did. */
int pretend_pools_release(int device);
struct pretend_range *pretend_chunk_find(const struct pretend_range *range, CUdeviceptr pointer);
CUmemoryPool pretend_pool_handle(const struct pretend_range *pooled);
void pretend_pool_give(struct pretend_range *pooled);

/* What other processes see (share.c, ipc.c). Moves what lies at addresses into a file and puts the
 * file behind them; returns its descriptor or -1. */
int pretend_share_pages(CUdeviceptr pointer, uint64_t bytes, uint64_t file_bytes);
/* A range that was exported is gone. */
void pretend_export_ended(const struct pretend_range *range);

/* Memory of graphs (graph/memory.c). */
void pretend_graph_memory_give(struct pretend_range *range);

static inline uint64_t pretend_round_up(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

/* Linear memory (memory.c). Takes memory of a device as cuMemAlloc does. Lock not held. */
CUresult pretend_memory_take(CUdevice device, uint64_t bytes, enum mt_category category,
                             const char *name, CUdeviceptr *pointer);
CUresult pretend_memory_give(CUdeviceptr pointer);

/* The same, lock held. */
CUresult pretend_linear_take(int device, uint64_t bytes, enum mt_category category,
                             const char *name, CUdeviceptr *pointer);

/* What the account was told of a part of a pool is over. */
void pretend_usage_ended(struct pretend_range *pooled);

/* Host memory that the driver knows (host.c): the range that holds an address, or NULL. */
struct pretend_range *pretend_host_find(CUdeviceptr pointer);

#endif
