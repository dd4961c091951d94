/* SPDX-License-Identifier: MIT */
/* The driver's functions of devices, contexts, streams, graphs and kernels that stand here, as its
 * documentation has them. Those of memory are in driver_memory.h. */
#ifndef MT_CUDA_ABI_DRIVER_CALLS_H
#define MT_CUDA_ABI_DRIVER_CALLS_H

#include "driver_work.h"

CUresult cuGetErrorString(CUresult code, const char **text);
CUresult cuGetErrorName(CUresult code, const char **name);

CUresult cuInit(unsigned flags);

CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags);
CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                             int *query);
CUresult cuGetExportTable(const void **table, const CUuuid *id);

CUresult cuDriverGetVersion(int *version);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetName(char *name, int length, CUdevice number);
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice number);
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice number);
CUresult cuDeviceGetLuid(char *luid, unsigned *nodes, CUdevice number);
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice number);
CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice number);
CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice number);
CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text);
CUresult cuDeviceCanAccessPeer(int *can, CUdevice number, CUdevice peer);
CUresult cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice number, CUdevice peer_number);
CUresult cuDeviceGetExecAffinitySupport(int *is_supported, int type, CUdevice number);
CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *elements, int format, unsigned channels,
                                            CUdevice number);

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice number);
CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice number);
CUresult cuDeviceGetProperties(CUdevprop *properties, CUdevice number);

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice number);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice number);
CUresult cuDevicePrimaryCtxRelease(CUdevice number);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice number);
CUresult cuDevicePrimaryCtxReset(CUdevice number);
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice number, unsigned flags);
CUresult cuDevicePrimaryCtxSetFlags(CUdevice number, unsigned flags);
CUresult cuDevicePrimaryCtxGetState(CUdevice number, unsigned *flags, int *is_active);
CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxCreate_v3(CUcontext *context, const void *affinities, int n_affinities,
                        unsigned flags, CUdevice device);
CUresult cuCtxCreate_v4(CUcontext *context, const CUctxCreateParams *params, unsigned flags,
                        CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext handle);
CUresult cuCtxDestroy(CUcontext context);
CUresult cuCtxAttach(CUcontext *context, unsigned flags);
CUresult cuCtxDetach(CUcontext context);
CUresult cuCtxPushCurrent_v2(CUcontext context);
CUresult cuCtxPushCurrent(CUcontext context);
CUresult cuCtxPopCurrent_v2(CUcontext *context);
CUresult cuCtxPopCurrent(CUcontext *context);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxGetCurrent(CUcontext *context);

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext handle);
CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuCtxGetFlags(unsigned *flags);
CUresult cuCtxSetFlags(unsigned flags);
CUresult cuCtxGetId(CUcontext handle, unsigned long long *id);
CUresult cuCtxGetApiVersion(CUcontext handle, unsigned *version);
CUresult cuCtxSynchronize_v2(CUcontext handle);
CUresult cuCtxSynchronize(void);
CUresult cuCtxSetLimit(int limit, size_t value);
CUresult cuCtxGetLimit(size_t *value, int limit);
CUresult cuCtxGetCacheConfig(int *config);
CUresult cuCtxSetCacheConfig(int config);
CUresult cuCtxGetSharedMemConfig(int *config);
CUresult cuCtxSetSharedMemConfig(int config);
CUresult cuCtxGetStreamPriorityRange(int *lowest, int *highest);
CUresult cuCtxResetPersistingL2Cache(void);
CUresult cuCtxGetExecAffinity(void *affinity, int type);
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags);
CUresult cuCtxDisablePeerAccess(CUcontext peer);

CUresult cuStreamCreateWithPriority(CUstream *handle, unsigned flags, int priority);
CUresult cuStreamCreate(CUstream *handle, unsigned flags);
CUresult cuStreamDestroy_v2(CUstream handle);
CUresult cuStreamDestroy(CUstream handle);
CUresult cuStreamQuery(CUstream stream);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamGetPriority(CUstream handle, int *priority);
CUresult cuStreamGetFlags(CUstream handle, unsigned *flags);
CUresult cuStreamGetId(CUstream handle, unsigned long long *id);
CUresult cuStreamGetCtx(CUstream handle, CUcontext *context);
CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *context, void **green);
CUresult cuStreamGetGreenCtx(CUstream handle, void **green);
CUresult cuStreamGetDevice(CUstream handle, CUdevice *device);
CUresult cuStreamGetAttribute(CUstream handle, int attribute, CUlaunchAttributeValue *value);
CUresult cuStreamSetAttribute(CUstream handle, int attribute, const CUlaunchAttributeValue *value);
CUresult cuStreamCopyAttributes(CUstream to, CUstream from);
CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data);
CUresult cuLaunchHostFunc_v2(CUstream handle, CUhostFn function, void *data, unsigned mode);
CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void *data,
                             unsigned flags);

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value,
                                 unsigned flags);
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags);
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, uint64_t value,
                                 unsigned flags);
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags);
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value,
                                unsigned flags);
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags);
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, uint64_t value,
                                unsigned flags);
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags);
CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned n, const void *operations, unsigned flags);
CUresult cuStreamBatchMemOp(CUstream stream, unsigned n, const void *operations, unsigned flags);

CUresult cuEventCreate(CUevent *handle, unsigned flags);
CUresult cuEventDestroy_v2(CUevent handle);
CUresult cuEventDestroy(CUevent handle);
CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream_handle, unsigned flags);
CUresult cuEventRecord(CUevent handle, CUstream stream);
CUresult cuEventQuery(CUevent event);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end);
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end);
CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event);
CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle);
typedef void (*CUlogsCallback)(void *data, int level, char *message, size_t length);
CUresult cuLogsRegisterCallback(CUlogsCallback callback, void *data, void **handle);
CUresult cuLogsUnregisterCallback(void *handle);
CUresult cuLogsCurrent(unsigned *iterator, unsigned flags);
CUresult cuLogsDumpToFile(unsigned *iterator, const char *path, unsigned flags);
CUresult cuLogsDumpToMemory(unsigned *iterator, char *buffer, size_t *bytes, unsigned flags);
CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags);

CUresult cuStreamBeginCapture_v2(CUstream handle, unsigned mode);
CUresult cuStreamBeginCapture(CUstream handle);
CUresult cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph_handle,
                                     const CUgraphNode *before, const CUgraphEdgeData *data,
                                     size_t n, unsigned mode);
CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph);
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode);

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *answer);
CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *answer, uint64_t *id,
                                   CUgraph *graph, const CUgraphNode **nodes,
                                   const CUgraphEdgeData **edges, size_t *n);
CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *answer, uint64_t *id,
                                   CUgraph *graph, const CUgraphNode **nodes, size_t *n);
CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus *answer, uint64_t *id);
CUresult cuStreamUpdateCaptureDependencies_v2(CUstream handle, const CUgraphNode *nodes,
                                              const CUgraphEdgeData *edges, size_t n,
                                              unsigned flags);
CUresult cuStreamUpdateCaptureDependencies(CUstream handle, const CUgraphNode *nodes, size_t n,
                                           unsigned flags);

CUresult cuGraphCreate(CUgraph *handle, unsigned flags);
CUresult cuGraphDestroy(CUgraph handle);
CUresult cuGraphClone(CUgraph *clone, CUgraph handle);
CUresult cuGraphDestroyNode(CUgraphNode handle);

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n);
CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *n);
CUresult cuGraphGetEdges_v2(CUgraph handle, CUgraphNode *from, CUgraphNode *to,
                            CUgraphEdgeData *edges, size_t *n);
CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *n);
CUresult cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode *nodes,
                                       CUgraphEdgeData *edges, size_t *n);
CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *n);
CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode handle, CUgraphNode *nodes,
                                         CUgraphEdgeData *edges, size_t *n);
CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *n);
CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edges, size_t n);
CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t n);
CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData *edges, size_t n);
CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t n);
CUresult cuGraphNodeGetType(CUgraphNode handle, int *type);
CUresult cuGraphNodeFindInClone(CUgraphNode *found, CUgraphNode original, CUgraph clone);
CUresult cuGraphDebugDotPrint(CUgraph handle, const char *path, unsigned flags);

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                 size_t n, const CUDA_KERNEL_NODE_PARAMS *params);
CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t n,
                              const void *params);
CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t n,
                              const void *copy, CUcontext context);
CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t n,
                              const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context);
CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t n,
                            const CUDA_HOST_NODE_PARAMS *params);
CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t n);
CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                   size_t n, CUevent event);
CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                 size_t n, CUevent event);
CUresult cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                  size_t n, const void *params);
CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                  size_t n, CUgraph child);
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph *graph);
CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                           const CUgraphEdgeData *edges, size_t n, CUgraphNodeParams *params);
CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t n,
                        CUgraphNodeParams *params);
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params);
CUresult cuGraphKernelNodeGetParams(CUgraphNode node, void *params);
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params);
CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const void *params);
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS *params);
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const void *params);
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, void *copy);
CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const void *copy);
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const void *copy,
                                        CUcontext context);
CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *params);
CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params);
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context);
CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *params);
CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params);
CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS *params);
CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event);
CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event);
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event);
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event);
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event);
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event);
CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params);
CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params);
CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned is_enabled);
CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned *is_enabled);
CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, int attribute,
                                       CUlaunchAttributeValue *value);
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, int attribute,
                                       const CUlaunchAttributeValue *value);
CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from);

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params);
CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                            size_t log_bytes);
CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                               size_t log_bytes);
CUresult cuGraphExecDestroy(CUgraphExec handle);
CUresult cuGraphExecGetFlags(CUgraphExec handle, uint64_t *flags);
CUresult cuGraphGetId(CUgraph handle, unsigned *id);
CUresult cuGraphExecGetId(CUgraphExec handle, unsigned *id);
CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle);
CUresult cuGraphUpload(CUgraphExec handle, CUstream stream_handle);
CUresult cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph_handle,
                              CUgraphExecUpdateResultInfo *info);
CUresult cuGraphExecUpdate(CUgraphExec handle, CUgraph graph, CUgraphNode *error_node,
                           int *update_result);
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec handle, CUgraphNode node, CUgraph child);

CUresult cuGraphAddMemAllocNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *before,
                                size_t n, CUDA_MEM_ALLOC_NODE_PARAMS *params);
CUresult cuGraphAddMemFreeNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *before,
                               size_t n, CUdeviceptr pointer);
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS *params);
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr *pointer);

CUresult cuUserObjectCreate(CUuserObject *handle, void *data, CUhostFn destroy, unsigned references,
                            unsigned flags);
CUresult cuUserObjectRetain(CUuserObject handle, unsigned count);
CUresult cuUserObjectRelease(CUuserObject handle, unsigned count);
CUresult cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count,
                                 unsigned flags);
CUresult cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count);

CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, const int *options,
                            void **values);
CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image);
CUresult cuModuleLoad(CUmodule *module, const char *path);
CUresult cuLibraryLoadData(CUlibrary *library, const void *image, const int *jit, void **jit_values,
                           unsigned n_jit, const int *options, void **values, unsigned n);
CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, const int *jit,
                               void **jit_values, unsigned n_jit, const int *options, void **values,
                               unsigned n);
CUresult cuModuleUnload(CUmodule module);
CUresult cuLibraryUnload(CUlibrary library);
CUresult cuModuleGetLoadingMode(int *mode);
CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name);
CUresult cuLibraryGetKernelCount(unsigned *n, CUlibrary library);
CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned most, CUlibrary library);
CUresult cuModuleGetFunctionCount(unsigned *n, CUmodule module);
CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned most, CUmodule module);
CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module,
                              const char *name);
CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                            const char *name);
CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                             const char *name);

CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function);
CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value);
CUresult cuKernelGetAttribute(int *value, int attribute, CUkernel kernel, CUdevice device);
CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice device);
CUresult cuFuncSetCacheConfig(CUfunction function, int config);
CUresult cuFuncSetSharedMemConfig(CUfunction function, int config);
CUresult cuKernelSetCacheConfig(CUkernel kernel, int config, CUdevice device);
CUresult cuFuncLoad(CUfunction function);
CUresult cuFuncIsLoaded(int *state, CUfunction function);
CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel);
CUresult cuFuncGetName(const char **name, CUfunction function);
CUresult cuKernelGetName(const char **name, CUkernel kernel);
CUresult cuFuncGetModule(CUmodule *module, CUfunction function);
CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel);

CUresult cuLaunchKernelEx(const CUlaunchConfig *launch, CUfunction function, void **arguments,
                          void **extra);
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void **arguments, void **extra);
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                   unsigned grid_z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared_bytes, CUstream stream,
                                   void **arguments);

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction handle,
                                                              int threads, size_t dynamic_bytes,
                                                              unsigned flags);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                     size_t dynamic_bytes);
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction handle,
                                                   CUoccupancyB2DSize dynamic_of,
                                                   size_t dynamic_bytes, int limit, unsigned flags);
CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
                                          CUoccupancyB2DSize dynamic_of, size_t dynamic_bytes,
                                          int limit);
CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction handle, int blocks,
                                                 int threads);
CUresult cuOccupancyMaxPotentialClusterSize(int *blocks, CUfunction handle,
                                            const CUlaunchConfig *launch);
CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction handle,
                                      const CUlaunchConfig *launch);

CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);
CUresult cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address,
                                const uint64_t *dimensions, const uint64_t *strides,
                                const uint32_t *box, const uint32_t *steps, int interleave,
                                int swizzle, int promotion, int fill);
CUresult cuTensorMapReplaceAddress(void *map, void *address);

#endif
