/* SPDX-License-Identifier: MIT */
/* Capturing what streams are given into graphs, with the rules and errors of "Stream Management"
 * and "Graph Management" in the CUDA driver API reference. */
#include "pretend/cuda/driver/work.h"

#include <stdlib.h>
#include <string.h>

#include "pretend/cuda/abi/driver_calls.h"

static struct pretend_capture *captures; /* that are going on */
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void pretend_capture_drop(struct pretend_capture **capture)
{
    struct pretend_capture *dropped = *capture;
    *capture = NULL;
    if (dropped && --dropped->references == 0)
        free(dropped);
}

void pretend_capture_spoil(struct pretend_capture *capture)
{
    capture->is_spoilt = 1;
}

static int is_mine(const struct pretend_capture *capture)
{
    return pthread_equal(capture->thread, pthread_self());
}

/* By the documentation of cuThreadExchangeStreamCaptureMode. */
static int forbids_unsafe_calls(const struct pretend_capture *capture)
{
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return 0;
    if (is_mine(capture))
        return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult pretend_unsafe_in_capture(void)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS || !__atomic_load_n(&captures, __ATOMIC_ACQUIRE))
        return result;
    pretend_lock();
    for (struct pretend_capture *capture = captures; capture; capture = capture->next) {
        if (forbids_unsafe_calls(capture)) {
            pretend_capture_spoil(capture);
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    pretend_unlock();
    return result;
}

CUresult pretend_forbidden_in_capture(struct pretend_context *context)
{
    CUresult result = CUDA_SUCCESS;
    if (!__atomic_load_n(&captures, __ATOMIC_ACQUIRE))
        return result;
    pretend_lock();
    for (struct pretend_stream *stream = pretend_streams(); stream; stream = stream->next) {
        if (stream->capture && !stream->capture->is_over &&
            (!context || stream->context == context)) {
            pretend_capture_spoil(stream->capture);
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    pretend_unlock();
    return result;
}

/* Work on the default stream waits for all streams of its context but non-blocking ones. */
int pretend_capture_touches_legacy(const struct pretend_context *context)
{
    int touches = 0;
    for (struct pretend_stream *stream = captures ? pretend_streams() : NULL; stream;
         stream = stream->next) {
        if (stream->context == context && !(stream->flags & STREAM_NON_BLOCKING) &&
            stream->capture && !stream->capture->is_over) {
            pretend_capture_spoil(stream->capture);
            touches = 1;
        }
    }
    return touches;
}

struct pretend_graph_node *pretend_capture_node(struct pretend_stream *stream, CUgraphNodeType type)
{
    struct pretend_graph_node *node;
    if (!stream->capture)
        return NULL;
    node = pretend_graph_add(stream->capture->graph, type);
    if (!node)
        return NULL;
    node->before = stream->last;
    stream->last = (struct pretend_edges){0};
    if (pretend_edges_add(&stream->last, node, NULL))
        pretend_capture_spoil(stream->capture);
    return node;
}

static const CUgraphNodeType types[] = {
    [PRETEND_NODE_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
    [PRETEND_NODE_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
    [PRETEND_NODE_SET] = CU_GRAPH_NODE_TYPE_MEMSET,
    [PRETEND_NODE_ALLOC] = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
    [PRETEND_NODE_FREE] = CU_GRAPH_NODE_TYPE_MEM_FREE,
    [PRETEND_NODE_HOST] = CU_GRAPH_NODE_TYPE_HOST,
    [PRETEND_NODE_EMPTY] = CU_GRAPH_NODE_TYPE_EMPTY,
};

CUresult pretend_capture_work(CUstream handle, enum pretend_node kind,
                              struct pretend_graph_node **node)
{
    struct pretend_stream *stream;
    pretend_lock();
    CUresult result = pretend_stream_for_work(handle, &stream);
    *node = NULL;
    if (result == CUDA_SUCCESS && stream->capture) {
        *node = pretend_capture_node(stream, types[kind]);
        result = *node ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    pretend_unlock();
    return result;
}

struct pretend_graph_node *pretend_captured(CUstream handle, enum pretend_node kind)
{
    struct pretend_graph_node *node;
    pretend_capture_work(handle, kind, &node);
    return node;
}

void pretend_node_run(struct pretend_graph_node *node, void (*run)(const void *what),
                      const void *what, size_t bytes)
{
    void *kept = malloc(bytes ? bytes : 1);
    if (!kept)
        return;
    memcpy(kept, what, bytes);
    pretend_lock();
    node->run = run;
    node->what = kept;
    node->what_bytes = bytes;
    pretend_unlock();
}

CUresult pretend_capture_join(struct pretend_stream *stream, const struct pretend_event *event)
{
    struct pretend_capture *capture = event->capture;
    if (!capture && !stream->capture)
        return CUDA_SUCCESS;
    if (!capture) {
        pretend_capture_spoil(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (capture->is_over)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (capture->is_spoilt)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->is_legacy) {
        pretend_capture_spoil(capture);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (stream->capture && stream->capture != capture) {
        pretend_capture_spoil(capture);
        pretend_capture_spoil(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (!stream->capture) {
        stream->capture = capture;
        capture->references++;
        pretend_edges_clear(&stream->last);
    }
    for (size_t i = 0; i < event->last.n; i++)
        if (pretend_edges_add(&stream->last, event->last.at[i].node, &event->last.at[i].data))
            return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

/* Beginning. */

static CUresult begin(struct pretend_stream *stream, struct pretend_graph *graph,
                      CUstreamCaptureMode mode)
{
    struct pretend_capture *capture = calloc(1, sizeof *capture);
    if (!capture)
        return CUDA_ERROR_OUT_OF_MEMORY;
    capture->owns_graph = !graph;
    capture->graph = graph ? graph : pretend_graph_new();
    if (!capture->graph) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture->origin = stream;
    capture->thread = pthread_self();
    capture->mode = mode;
    capture->id = pretend_next_id();
    capture->references = 2; /* the stream's, and that it is going on */
    capture->next = captures;
    __atomic_store_n(&captures, capture, __ATOMIC_RELEASE);
    stream->capture = capture;
    pretend_edges_clear(&stream->last);
    return CUDA_SUCCESS;
}

/* With the lock held. */
static CUresult check_begin(CUstream handle, unsigned mode, struct pretend_stream **stream)
{
    CUresult result = pretend_stream_of(handle, stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if ((*stream)->is_legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if ((*stream)->capture && !(*stream)->capture->is_over)
        return CUDA_ERROR_ILLEGAL_STATE;
    pretend_capture_drop(&(*stream)->capture);
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuStreamBeginCapture_v2(CUstream handle, unsigned mode)
{
    struct pretend_stream *stream;
    pretend_lock();
    CUresult result = check_begin(handle, mode, &stream);
    if (result == CUDA_SUCCESS)
        result = begin(stream, NULL, (CUstreamCaptureMode)mode);
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult cuStreamBeginCapture(CUstream handle)
{
    return cuStreamBeginCapture_v2(handle, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

PRETEND_CALL CUresult cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph_handle,
                                                  const CUgraphNode *before,
                                                  const CUgraphEdgeData *data, size_t n,
                                                  unsigned mode)
{
    struct pretend_stream *stream;
    struct pretend_graph *graph = pretend_graph_of(graph_handle);
    if (!graph || (n && !before))
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    CUresult result = check_begin(handle, mode, &stream);
    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++)
        if (!pretend_node_of(before[i]) || pretend_node_of(before[i])->graph != graph)
            result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = begin(stream, graph, (CUstreamCaptureMode)mode);
    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++)
        if (pretend_edges_add(&stream->last, (void *)before[i], data ? &data[i] : NULL))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    pretend_unlock();
    return result;
}

/* Ending. */

/* Marks the nodes that must be done before `node`, and it. The nodes of a capture stand in the
 * order in which they were made, so one pass from the last to the first is enough. */
static int all_is_joined(const struct pretend_capture *capture)
{
    struct pretend_graph *graph = capture->graph;
    for (size_t i = 0; i < graph->n; i++)
        graph->node[i]->mark = 0;
    for (size_t i = 0; i < capture->origin->last.n; i++)
        capture->origin->last.at[i].node->mark = 1;
    for (size_t i = graph->n; i-- > 0;)
        for (size_t j = 0; graph->node[i]->mark && j < graph->node[i]->before.n; j++)
            graph->node[i]->before.at[j].node->mark = 1;
    for (struct pretend_stream *stream = pretend_streams(); stream; stream = stream->next)
        for (size_t i = 0; stream->capture == capture && i < stream->last.n; i++)
            if (!stream->last.at[i].node->mark)
                return 0;
    return 1;
}

static void finish(struct pretend_capture *capture)
{
    struct pretend_capture **link = &captures;
    while (*link && *link != capture)
        link = &(*link)->next;
    if (*link)
        __atomic_store_n(link, capture->next, __ATOMIC_RELEASE);
    capture->is_over = 1;
    for (struct pretend_stream *stream = pretend_streams(); stream; stream = stream->next) {
        if (stream->capture == capture) {
            pretend_edges_clear(&stream->last);
            pretend_capture_drop(&stream->capture);
        }
    }
    pretend_capture_drop(&capture);
}

void pretend_capture_abandon(struct pretend_capture *capture)
{
    if (capture->owns_graph)
        pretend_graph_delete(capture->graph);
    finish(capture);
}

static CUresult end(struct pretend_stream *stream, CUgraph *graph)
{
    struct pretend_capture *capture = stream->capture;
    CUresult result = CUDA_SUCCESS;
    if (!capture || capture->is_over)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream)
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (!is_mine(capture) && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (capture->is_spoilt)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!all_is_joined(capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    *graph = result == CUDA_SUCCESS ? (void *)capture->graph : NULL;
    if (result != CUDA_SUCCESS && capture->owns_graph)
        pretend_graph_delete(capture->graph);
    finish(capture);
    return result;
}

PRETEND_CALL CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    struct pretend_stream *stream;
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    CUresult result = pretend_stream_of(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = end(stream, graph);
    pretend_unlock();
    pretend_user_objects_call();
    return result;
}

PRETEND_CALL CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before = thread_mode;
    if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
