/* SPDX-License-Identifier: MIT */
/* The driver's functions that the runtime calls by hand; those of forward.def are declared by it.
 */
#ifndef MT_CUDA_RUNTIME_DRIVER_CALLS_H
#define MT_CUDA_RUNTIME_DRIVER_CALLS_H

#include "pretend/cuda/abi/driver_memory.h"
#include "pretend/cuda/abi/driver_work.h"

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuDeviceGetCount(int *count);
int cuDeviceGetName(char *name, int length, CUdevice device);
int cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device);
int cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
int cuDeviceGetAttribute(int *value, int attribute, CUdevice device);
int cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
int cuDevicePrimaryCtxRelease_v2(CUdevice device);
int cuDevicePrimaryCtxReset_v2(CUdevice device);
int cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags);
int cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);
int cuCtxGetCurrent(CUcontext *context);
int cuCtxSetCurrent(CUcontext context);
int cuCtxGetDevice(CUdevice *device);

int cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
int cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                       unsigned element_bytes);
int cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags);
int cuMemFree_v2(CUdeviceptr pointer);
int cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags);
int cuMemFreeHost(void *pointer);
int cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes);
int cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
int cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy);
int cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream);
int cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy);
int cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream);
int cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count);
int cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream);
int cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height);
int cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                      size_t height, CUstream stream);
int cuPointerGetAttributes(unsigned count, int *attributes, void **values, CUdeviceptr pointer);

int cuLibraryLoadData(CUlibrary *library, const void *code, void *jit, void **jit_values,
                      unsigned n_jit, void *options, void **values, unsigned n_options);
int cuLibraryUnload(CUlibrary library);
int cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name);
int cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name);
int cuLibraryEnumerateKernels(CUkernel *kernels, unsigned most, CUlibrary library);
int cuKernelGetFunction(CUfunction *function, CUkernel kernel);
int cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice device);
int cuFuncGetAttribute(int *value, int attribute, CUfunction function);
int cuFuncSetAttribute(CUfunction function, int attribute, int value);
int cuFuncSetCacheConfig(CUfunction function, int preference);
int cuFuncGetName(const char **name, CUfunction function);
int cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes);
int cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                   CUstream stream, void **parameters, void **extra);
int cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                              unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                              unsigned shared, CUstream stream, void **parameters);
int cuLaunchKernelEx(const CUlaunchConfig *launch, CUfunction function, void **parameters,
                     void **extra);
int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function,
                                                         int threads, size_t shared,
                                                         unsigned flags);
int cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks,
                                            int threads);
int cuOccupancyMaxPotentialClusterSize(int *size, CUfunction function,
                                       const CUlaunchConfig *launch);
int cuOccupancyMaxActiveClusters(int *clusters, CUfunction function, const CUlaunchConfig *launch);
int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                        int *status);

int cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                            size_t n_after, const CUDA_KERNEL_NODE_PARAMS *parameters);
int cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *parameters);
int cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *parameters);
int cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                      const CUDA_KERNEL_NODE_PARAMS *parameters);

#endif
