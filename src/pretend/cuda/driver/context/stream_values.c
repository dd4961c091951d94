/* SPDX-License-Identifier: MIT */
/* Streams that write values, and wait for them. Whatever a stream waits for counts as come: who
 * would write it may be a kernel, which does nothing here. */
#include <string.h>

#include "pretend/cuda/abi/driver_calls.h"
#include "pretend/cuda/driver/work.h"

#define BATCH_WAIT_32  1
#define BATCH_WRITE_32 2
#define BATCH_WAIT_64  4
#define BATCH_WRITE_64 5

/* One of a batch; the members past `flags` differ by operation. */
struct operation {
    int what;
    CUdeviceptr address;
    uint64_t value;
    unsigned flags;
    uint64_t rest[2];
};

static CUresult write_value(CUstream handle, CUdeviceptr address, uint64_t value, size_t bytes)
{
    struct pretend_graph_node *node = NULL;
    struct pretend_stream *stream;
    if (!address || address % bytes)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    CUresult result = pretend_stream_for_work(handle, &stream);
    if (result == CUDA_SUCCESS && stream->capture) {
        node = pretend_capture_node(stream, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
        result = node ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    pretend_unlock();
    if (result == CUDA_SUCCESS && !node)
        memcpy((void *)(uintptr_t)address, &value, bytes);
    return result;
}

static CUresult wait_value(CUstream handle, CUdeviceptr address, size_t bytes)
{
    struct pretend_stream *stream;
    if (!address || address % bytes)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    CUresult result = pretend_stream_for_work(handle, &stream);
    if (result == CUDA_SUCCESS && stream->capture &&
        !pretend_capture_node(stream, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    pretend_unlock();
    return result;
}

/* Both forms of the interface are alike. */
#define WRITE(name, type)                                                                          \
    PRETEND_CALL CUresult name(CUstream stream, CUdeviceptr address, type value, unsigned flags)   \
    {                                                                                              \
        (void)flags;                                                                               \
        return write_value(stream, address, value, sizeof value);                                  \
    }
#define WAIT(name, type)                                                                           \
    PRETEND_CALL CUresult name(CUstream stream, CUdeviceptr address, type value, unsigned flags)   \
    {                                                                                              \
        (void)flags;                                                                               \
        return wait_value(stream, address, sizeof value);                                          \
    }
WRITE(cuStreamWriteValue32, uint32_t)
WRITE(cuStreamWriteValue32_v2, uint32_t)
WRITE(cuStreamWriteValue64, uint64_t)
WRITE(cuStreamWriteValue64_v2, uint64_t)
WAIT(cuStreamWaitValue32, uint32_t)
WAIT(cuStreamWaitValue32_v2, uint32_t)
WAIT(cuStreamWaitValue64, uint64_t)
WAIT(cuStreamWaitValue64_v2, uint64_t)

PRETEND_CALL CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned n, const void *operations,
                                            unsigned flags)
{
    const struct operation *operation = operations;
    CUresult result = CUDA_SUCCESS;
    if (!n || n > 256 || !operation || flags)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++) {
        switch (operation[i].what) {
        case BATCH_WRITE_32:
            result = write_value(stream, operation[i].address, operation[i].value, 4);
            break;
        case BATCH_WRITE_64:
            result = write_value(stream, operation[i].address, operation[i].value, 8);
            break;
        case BATCH_WAIT_32:
            result = wait_value(stream, operation[i].address, 4);
            break;
        case BATCH_WAIT_64:
            result = wait_value(stream, operation[i].address, 8);
            break;
        default:
            break; /* barriers and flushes */
        }
    }
    return result;
}

PRETEND_CALL CUresult cuStreamBatchMemOp(CUstream stream, unsigned n, const void *operations,
                                         unsigned flags)
{
    return cuStreamBatchMemOp_v2(stream, n, operations, flags);
}
