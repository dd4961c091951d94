/* SPDX-License-Identifier: MIT */
/* Streams. */
#include "pretend/cuda/driver/work.h"

#include <stdlib.h>
#include <string.h>

#include "pretend/cuda/abi/driver_calls.h"

#define FLAGS_ALL          STREAM_NON_BLOCKING
#define ATTRIBUTES         18
#define ATTRIBUTE_PRIORITY 8

static struct pretend_stream *streams;

struct pretend_stream *pretend_streams(void)
{
    return streams;
}

static struct pretend_stream *new_stream(struct pretend_context *context, unsigned flags)
{
    struct pretend_stream *stream = pretend_new(PRETEND_A_STREAM, sizeof *stream);
    if (!stream)
        return NULL;
    stream->context = context;
    stream->flags = flags;
    stream->id = pretend_next_id();
    stream->next = streams;
    streams = stream;
    return stream;
}

static void delete_stream(struct pretend_stream *stream)
{
    struct pretend_stream **link = &streams;
    while (*link && *link != stream)
        link = &(*link)->next;
    if (*link)
        *link = stream->next;
    pretend_capture_drop(&stream->capture);
    pretend_edges_clear(&stream->last);
    free(stream->told);
    free(stream->told_edges);
    pretend_delete(PRETEND_A_STREAM, stream);
}

void pretend_context_ended(struct pretend_context *context)
{
    pretend_lock();
    for (struct pretend_stream *stream = streams, *next; stream; stream = next) {
        next = stream->next;
        if (stream->context != context)
            continue;
        if (stream->capture && stream->capture->origin == stream)
            pretend_capture_abandon(stream->capture);
        delete_stream(stream);
    }
    context->legacy = context->per_thread = NULL;
    pretend_unlock();
    pretend_memory_ended(context);
}

static struct pretend_stream *default_stream(struct pretend_context *context, int is_per_thread)
{
    struct pretend_stream **stream = is_per_thread ? &context->per_thread : &context->legacy;
    if (!*stream) {
        *stream = new_stream(context, 0);
        if (*stream)
            (*stream)->is_legacy = !is_per_thread;
    }
    return *stream;
}

CUresult pretend_stream_of(CUstream handle, struct pretend_stream **stream)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if ((uintptr_t)handle <= (uintptr_t)CU_STREAM_PER_THREAD) {
        struct pretend_context *context;
        result = pretend_context_of(NULL, &context);
        if (result == CUDA_SUCCESS) {
            *stream = default_stream(context, handle == CU_STREAM_PER_THREAD);
            result = *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        }
        return result;
    }
    *stream = (void *)handle;
    return pretend_is(PRETEND_A_STREAM, handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult pretend_stream_for_work(CUstream handle, struct pretend_stream **stream)
{
    CUresult result = pretend_stream_of(handle, stream);
    if (result != CUDA_SUCCESS)
        return result;
    if ((*stream)->capture && (*stream)->capture->is_over)
        pretend_capture_drop(&(*stream)->capture);
    if ((*stream)->capture && (*stream)->capture->is_spoilt)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if ((*stream)->is_legacy && pretend_capture_touches_legacy((*stream)->context))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuStreamCreateWithPriority(CUstream *handle, unsigned flags, int priority)
{
    struct pretend_context *context;
    struct pretend_stream *stream;
    CUresult result = pretend_context_of(NULL, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!handle || flags & ~FLAGS_ALL)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    stream = new_stream(context, flags);
    if (stream) {
        stream->priority = priority > PRETEND_PRIORITY_LOWEST    ? PRETEND_PRIORITY_LOWEST
                           : priority < PRETEND_PRIORITY_HIGHEST ? PRETEND_PRIORITY_HIGHEST
                                                                 : priority;
        *handle = (void *)stream;
    }
    pretend_unlock();
    return stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

PRETEND_CALL CUresult cuStreamCreate(CUstream *handle, unsigned flags)
{
    return cuStreamCreateWithPriority(handle, flags, 0);
}

PRETEND_CALL CUresult cuStreamDestroy_v2(CUstream handle)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    if (!pretend_is(PRETEND_A_STREAM, handle)) {
        result = CUDA_ERROR_INVALID_HANDLE;
    } else {
        struct pretend_stream *stream = (void *)handle;
        if (stream->capture && stream->capture->origin == stream)
            pretend_capture_abandon(stream->capture);
        else if (stream->capture)
            pretend_capture_spoil(stream->capture);
        delete_stream(stream);
    }
    pretend_unlock();
    pretend_user_objects_call();
    return result;
}

PRETEND_CALL CUresult cuStreamDestroy(CUstream handle)
{
    return cuStreamDestroy_v2(handle);
}

/* A stream that is captured can neither be waited for nor asked. */
static CUresult wait_for(CUstream handle)
{
    struct pretend_stream *stream;
    pretend_lock();
    CUresult result = pretend_stream_for_work(handle, &stream);
    if (result == CUDA_SUCCESS && stream->capture) {
        pretend_capture_spoil(stream->capture);
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult cuStreamQuery(CUstream stream)
{
    return wait_for(stream);
}

PRETEND_CALL CUresult cuStreamSynchronize(CUstream stream)
{
    CUresult result = wait_for(stream);
    if (result == CUDA_SUCCESS)
        pretend_pools_settle();
    return result;
}

/* A stream to ask something of, with the lock held where that succeeds. */
static CUresult ask(CUstream handle, const void *answer, struct pretend_stream **stream)
{
    pretend_lock();
    CUresult result = pretend_stream_of(handle, stream);
    if (result == CUDA_SUCCESS && !answer)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        pretend_unlock();
    return result;
}

/* FACT(name, type, value): a call that answers one fact of a stream. */
#define FACT(name, type, value)                                                                    \
    PRETEND_CALL CUresult name(CUstream handle, type *answer)                                      \
    {                                                                                              \
        struct pretend_stream *stream;                                                             \
        CUresult result = ask(handle, answer, &stream);                                            \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        *answer = (value);                                                                         \
        pretend_unlock();                                                                          \
        return CUDA_SUCCESS;                                                                       \
    }
FACT(cuStreamGetPriority, int, stream->priority)
FACT(cuStreamGetFlags, unsigned, stream->flags)
FACT(cuStreamGetId, unsigned long long, stream->id)
FACT(cuStreamGetCtx, CUcontext, (void *)stream->context)
FACT(cuStreamGetDevice, CUdevice, stream->context->device)
FACT(cuStreamGetGreenCtx, void *, NULL)

PRETEND_CALL CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *context, void **green)
{
    if (green)
        *green = NULL;
    return cuStreamGetCtx(handle, context);
}

/* Attributes steer how kernels run: they are kept and do nothing. */

PRETEND_CALL CUresult cuStreamGetAttribute(CUstream handle, int attribute,
                                           CUlaunchAttributeValue *value)
{
    struct pretend_stream *stream;
    CUresult result = ask(handle, value, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (attribute < 1 || attribute >= ATTRIBUTES) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        memcpy(value, stream->attribute[attribute], sizeof *value);
        if (attribute == ATTRIBUTE_PRIORITY)
            value->priority = stream->priority;
    }
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult cuStreamSetAttribute(CUstream handle, int attribute,
                                           const CUlaunchAttributeValue *value)
{
    struct pretend_stream *stream;
    CUresult result = ask(handle, value, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (attribute < 1 || attribute >= ATTRIBUTES)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        memcpy(stream->attribute[attribute], value, sizeof *value);
    if (result == CUDA_SUCCESS && attribute == ATTRIBUTE_PRIORITY)
        stream->priority = value->priority;
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult cuStreamCopyAttributes(CUstream to, CUstream from)
{
    struct pretend_stream *stream, *source;
    pretend_lock();
    CUresult result = pretend_stream_of(to, &stream);
    if (result == CUDA_SUCCESS)
        result = pretend_stream_of(from, &source);
    if (result == CUDA_SUCCESS) {
        memcpy(stream->attribute, source->attribute, sizeof stream->attribute);
        stream->priority = source->priority;
    }
    pretend_unlock();
    return result;
}

/* Functions of the program in the order of a stream. */

PRETEND_CALL CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data)
{
    struct pretend_stream *stream;
    int is_now = 0;
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    CUresult result = pretend_stream_for_work(handle, &stream);
    if (result == CUDA_SUCCESS && stream->capture) {
        struct pretend_graph_node *node = pretend_capture_node(stream, CU_GRAPH_NODE_TYPE_HOST);
        if (node)
            node->params.host = (CUDA_HOST_NODE_PARAMS){function, data};
        else
            result = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        is_now = result == CUDA_SUCCESS;
    }
    pretend_unlock();
    if (is_now)
        function(data);
    return result;
}

PRETEND_CALL CUresult cuLaunchHostFunc_v2(CUstream handle, CUhostFn function, void *data,
                                          unsigned mode)
{
    (void)mode;
    return cuLaunchHostFunc(handle, function, data);
}

PRETEND_CALL CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void *data,
                                          unsigned flags)
{
    CUresult result;
    if (!callback || flags)
        return CUDA_ERROR_INVALID_VALUE;
    result = wait_for(handle);
    if (result == CUDA_SUCCESS)
        callback(handle, CUDA_SUCCESS, data);
    return result;
}
