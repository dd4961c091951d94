/* SPDX-License-Identifier: MIT */
/* Events. What was recorded is done at once, at the host's time. */
#include "pretend/cuda/driver/work.h"

#include <string.h>
#include <time.h>

#include "pretend/cuda/abi/driver_calls.h"

#define EVENT_EXTERNAL 1u /* of recording and waiting */
#define LEAST_NS       500u

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

PRETEND_CALL CUresult cuEventCreate(CUevent *handle, unsigned flags)
{
    struct pretend_context *context;
    struct pretend_event *event;
    CUresult result = pretend_context_of(NULL, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!handle || flags & ~(PRETEND_EVENT_BLOCKING | PRETEND_EVENT_DISABLE_TIMING |
                             PRETEND_EVENT_INTERPROCESS))
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & PRETEND_EVENT_INTERPROCESS && !(flags & PRETEND_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    event = pretend_new(PRETEND_A_EVENT, sizeof *event);
    if (event) {
        event->context = context;
        event->flags = flags;
        *handle = (void *)event;
    }
    pretend_unlock();
    return event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void forget(struct pretend_event *event)
{
    pretend_capture_drop(&event->capture);
    pretend_edges_clear(&event->last);
}

PRETEND_CALL CUresult cuEventDestroy_v2(CUevent handle)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    if (pretend_is(PRETEND_A_EVENT, handle)) {
        forget((void *)handle);
        pretend_delete(PRETEND_A_EVENT, handle);
    } else {
        result = CUDA_ERROR_INVALID_HANDLE;
    }
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult cuEventDestroy(CUevent handle)
{
    return cuEventDestroy_v2(handle);
}

void pretend_event_record(CUevent handle)
{
    struct pretend_event *event = (void *)handle;
    if (!pretend_is(PRETEND_A_EVENT, handle))
        return;
    forget(event);
    event->is_recorded = 1;
    event->time_ns = now_ns();
}

static CUresult record_in_capture(struct pretend_event *event, struct pretend_stream *stream,
                                  int is_external)
{
    if (is_external) {
        struct pretend_graph_node *node =
            pretend_capture_node(stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
        if (!node)
            return CUDA_ERROR_OUT_OF_MEMORY;
        node->params.event = (void *)event;
        return CUDA_SUCCESS;
    }
    if (pretend_edges_copy(&event->last, &stream->last))
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->capture = stream->capture;
    event->capture->references++;
    event->is_recorded = 1;
    return CUDA_SUCCESS;
}

static CUresult record(struct pretend_event *event, struct pretend_stream *stream, int is_external)
{
    if (event->context->device != stream->context->device)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!stream->capture && is_external)
        return CUDA_ERROR_INVALID_VALUE;
    if (!stream->capture || !is_external)
        forget(event);
    if (stream->capture)
        return record_in_capture(event, stream, is_external);
    event->is_recorded = 1;
    event->time_ns = now_ns();
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream_handle, unsigned flags)
{
    struct pretend_stream *stream;
    if (flags & ~EVENT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    CUresult result = pretend_stream_for_work(stream_handle, &stream);
    if (result == CUDA_SUCCESS && !pretend_is(PRETEND_A_EVENT, handle))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = record((void *)handle, stream, flags != 0);
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult cuEventRecord(CUevent handle, CUstream stream)
{
    return cuEventRecordWithFlags(handle, stream, 0);
}

/* An event that was recorded in a capture stands for no moment. */
static CUresult wait_for(CUevent handle)
{
    struct pretend_event *event = (void *)handle;
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    if (!pretend_is(PRETEND_A_EVENT, handle)) {
        result = CUDA_ERROR_INVALID_HANDLE;
    } else if (event->capture) {
        if (!event->capture->is_over)
            pretend_capture_spoil(event->capture);
        result = CUDA_ERROR_CAPTURED_EVENT;
    }
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult cuEventQuery(CUevent event)
{
    CUresult result = pretend_unsafe_in_capture();
    return result == CUDA_SUCCESS ? wait_for(event) : result;
}

PRETEND_CALL CUresult cuEventSynchronize(CUevent event)
{
    CUresult result = wait_for(event);
    if (result == CUDA_SUCCESS)
        pretend_pools_settle();
    return result;
}

static CUresult elapsed(float *milliseconds, const struct pretend_event *start,
                        const struct pretend_event *end)
{
    if (start->capture || end->capture)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (!start->is_recorded || !end->is_recorded)
        return CUDA_ERROR_INVALID_HANDLE;
    if ((start->flags | end->flags) & PRETEND_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_HANDLE;
    if (start->context->device != end->context->device)
        return CUDA_ERROR_INVALID_HANDLE;
    uint64_t ns = end->time_ns > start->time_ns ? end->time_ns - start->time_ns : 0;
    *milliseconds = (float)(ns > LEAST_NS ? ns : LEAST_NS) / 1e6f;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!milliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    if (pretend_is(PRETEND_A_EVENT, start) && pretend_is(PRETEND_A_EVENT, end))
        result = elapsed(milliseconds, (void *)start, (void *)end);
    else
        result = CUDA_ERROR_INVALID_HANDLE;
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    return cuEventElapsedTime_v2(milliseconds, start, end);
}

static CUresult wait_in_stream(struct pretend_stream *stream, struct pretend_event *event,
                               int is_external)
{
    if (is_external && stream->capture) {
        struct pretend_graph_node *node =
            pretend_capture_node(stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
        if (!node)
            return CUDA_ERROR_OUT_OF_MEMORY;
        node->params.event = (void *)event;
        return CUDA_SUCCESS;
    }
    return event->is_recorded ? pretend_capture_join(stream, event) : CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags)
{
    struct pretend_stream *stream;
    if (flags & ~EVENT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    CUresult result = pretend_stream_for_work(handle, &stream);
    if (result == CUDA_SUCCESS && !pretend_is(PRETEND_A_EVENT, event))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = wait_in_stream(stream, (void *)event, flags != 0);
    pretend_unlock();
    return result;
}
