/* SPDX-License-Identifier: MIT */
/* Pools of stream-ordered memory, lock held. */
#ifndef MT_CUDA_DRIVER_POOLS_H
#define MT_CUDA_DRIVER_POOLS_H

#include "memory.h"

/* The pool of a handle, NULL where it is none. The handle of a device's own is made when it is
 * first asked for. */
struct CUmemPoolHandle_st *pretend_pool_of(CUmemoryPool handle);
struct CUmemPoolHandle_st *pretend_pool_default(int device);
struct CUmemPoolHandle_st *pretend_pool_current(int device);
CUresult pretend_pool_set_current(int device, struct CUmemPoolHandle_st *pool);
CUresult pretend_pool_make(int device, uint64_t bytes_max, struct CUmemPoolHandle_st **made);
/* What is still in use of it stays until it is freed. */
void pretend_pool_drop(struct CUmemPoolHandle_st *pool);
int pretend_pool_device(const struct CUmemPoolHandle_st *pool);

CUresult pretend_pool_take(struct CUmemPoolHandle_st *pool, uint64_t bytes, CUdeviceptr *pointer);
/* Gives back what is unused until at most `keep` bytes are reserved. */
void pretend_pool_trim(struct CUmemPoolHandle_st *pool, uint64_t keep);

CUresult pretend_pool_get(struct CUmemPoolHandle_st *pool, CUmemPool_attribute attribute,
                          void *value);
CUresult pretend_pool_set(struct CUmemPoolHandle_st *pool, CUmemPool_attribute attribute,
                          const void *value);

#endif
