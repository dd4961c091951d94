/* SPDX-License-Identifier: MIT */
/* What a program asks of a capture that is going on, and what it changes there. */
#include "pretend/cuda/driver/work.h"

#include <stdlib.h>

#include "pretend/cuda/abi/driver_calls.h"

#define SET_DEPENDENCIES 1u /* of cuStreamUpdateCaptureDependencies: in place of adding them */

static CUstreamCaptureStatus status_of(const struct pretend_stream *stream)
{
    if (!stream->capture || stream->capture->is_over)
        return CU_STREAM_CAPTURE_STATUS_NONE;
    return stream->capture->is_spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static CUresult status(CUstream handle, struct pretend_stream **stream,
                       CUstreamCaptureStatus *answer)
{
    CUresult result = pretend_stream_of(handle, stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!answer)
        return CUDA_ERROR_INVALID_VALUE;
    *answer = status_of(*stream);
    if ((*stream)->is_legacy && pretend_capture_touches_legacy((*stream)->context))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *answer)
{
    struct pretend_stream *stream;
    pretend_lock();
    CUresult result = status(handle, &stream, answer);
    pretend_unlock();
    return result;
}

/* Fills what is given away and stays good until the next call with the stream. */
static int tell_last(struct pretend_stream *stream)
{
    size_t n = stream->last.n ? stream->last.n : 1;
    CUgraphNode *nodes = realloc(stream->told, n * sizeof *nodes);
    if (nodes)
        stream->told = nodes;
    CUgraphEdgeData *edges = realloc(stream->told_edges, n * sizeof *edges);
    if (edges)
        stream->told_edges = edges;
    if (!nodes || !edges)
        return -1;
    for (size_t i = 0; i < stream->last.n; i++) {
        nodes[i] = (void *)stream->last.at[i].node;
        edges[i] = stream->last.at[i].data;
    }
    return 0;
}

static CUresult tell(struct pretend_stream *stream, uint64_t *id, CUgraph *graph,
                     const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *n)
{
    if (tell_last(stream))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (id)
        *id = stream->capture->id;
    if (graph)
        *graph = (void *)stream->capture->graph;
    if (nodes)
        *nodes = stream->told;
    if (edges)
        *edges = stream->told_edges;
    if (n)
        *n = stream->last.n;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *answer,
                                                uint64_t *id, CUgraph *graph,
                                                const CUgraphNode **nodes,
                                                const CUgraphEdgeData **edges, size_t *n)
{
    struct pretend_stream *stream;
    pretend_lock();
    CUresult result = status(handle, &stream, answer);
    if (result == CUDA_SUCCESS && *answer == CU_STREAM_CAPTURE_STATUS_ACTIVE)
        result = tell(stream, id, graph, nodes, edges, n);
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *answer,
                                                uint64_t *id, CUgraph *graph,
                                                const CUgraphNode **nodes, size_t *n)
{
    return cuStreamGetCaptureInfo_v3(handle, answer, id, graph, nodes, NULL, n);
}

PRETEND_CALL CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus *answer,
                                             uint64_t *id)
{
    return cuStreamGetCaptureInfo_v3(handle, answer, id, NULL, NULL, NULL, NULL);
}

static CUresult update(struct pretend_stream *stream, const CUgraphNode *nodes,
                       const CUgraphEdgeData *edges, size_t n, unsigned flags)
{
    if (status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE)
        return CUDA_ERROR_ILLEGAL_STATE;
    for (size_t i = 0; i < n; i++)
        if (!pretend_node_of(nodes[i]) ||
            pretend_node_of(nodes[i])->graph != stream->capture->graph)
            return CUDA_ERROR_INVALID_VALUE;
    if (flags & SET_DEPENDENCIES)
        pretend_edges_clear(&stream->last);
    for (size_t i = 0; i < n; i++)
        if (pretend_edges_add(&stream->last, (void *)nodes[i], edges ? &edges[i] : NULL))
            return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuStreamUpdateCaptureDependencies_v2(CUstream handle,
                                                           const CUgraphNode *nodes,
                                                           const CUgraphEdgeData *edges, size_t n,
                                                           unsigned flags)
{
    struct pretend_stream *stream;
    if ((n && !nodes) || flags & ~SET_DEPENDENCIES)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    CUresult result = pretend_stream_of(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = update(stream, nodes, edges, n, flags);
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult cuStreamUpdateCaptureDependencies(CUstream handle, const CUgraphNode *nodes,
                                                        size_t n, unsigned flags)
{
    return cuStreamUpdateCaptureDependencies_v2(handle, nodes, NULL, n, flags);
}
