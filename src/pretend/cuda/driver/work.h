/* SPDX-License-Identifier: MIT */
/* Streams, events, captures and graphs of the pretended driver. Work is done, or left out, when a
 * program asks for it: a stream is always idle. While a stream is captured its work becomes nodes
 * of a graph. All of this is behind the world's lock unless a function says otherwise. */
#ifndef MT_CUDA_DRIVER_WORK_H
#define MT_CUDA_DRIVER_WORK_H

#include "pretend/cuda/abi/driver_work.h"
#include "world.h"

#define STREAM_NON_BLOCKING 1u
#define GRAPH_PARAMS_BYTES  232

/* Flags of cuEventCreate. */
#define PRETEND_EVENT_BLOCKING       1u
#define PRETEND_EVENT_DISABLE_TIMING 2u
#define PRETEND_EVENT_INTERPROCESS   4u

struct pretend_edge {
    struct pretend_graph_node *node; /* that must be done before */
    CUgraphEdgeData data;
};
struct pretend_edges {
    struct pretend_edge *at;
    size_t n, room;
};

/* The memory of an allocation node, which its copies in other graphs share. */
struct pretend_node_memory {
    CUdeviceptr pointer;
    int references;
};

struct pretend_graph_node {
    struct pretend_object object;
    CUgraphNodeType type;
    struct pretend_graph *graph;
    struct pretend_edges before;
    uint64_t id;     /* the same in a clone of the graph */
    int is_disabled; /* in an executable graph */
    int mark;        /* for walks over the graph */
    size_t index;    /* in its graph */
    int priority, is_cooperative;
    union {
        unsigned char bytes[GRAPH_PARAMS_BYTES];
        CUDA_KERNEL_NODE_PARAMS kernel;
        CUDA_HOST_NODE_PARAMS host;
        CUDA_MEMSET_NODE_PARAMS memset;
        CUDA_MEM_ALLOC_NODE_PARAMS alloc;
        CUdeviceptr free;
        struct pretend_graph *child;
        CUevent event;
    } params;
    struct pretend_node_memory *memory;
    void (*run)(const void *what); /* what a launch of the graph does, beside host functions */
    void *what;
    size_t what_bytes;
};

struct pretend_graph_use { /* of a user object by a graph */
    struct pretend_user_object *object;
    unsigned count;
};

struct pretend_graph {
    struct pretend_object object;
    struct pretend_graph_node **node;
    size_t n, room;
    struct pretend_graph_use *use;
    size_t n_uses;
    uint64_t id;
    int is_part; /* of a node or of an executable graph: the program cannot destroy it */
};

struct pretend_graph_exec {
    struct pretend_object object;
    struct pretend_graph *graph; /* a copy of its own */
    uint64_t flags;
    uint64_t id;
    struct pretend_context *context; /* whose memory its nodes are in, NULL where they take none */
    uint64_t node_bytes;             /* that they take there, by the GPU table */
};

struct pretend_user_object {
    struct pretend_object object;
    CUhostFn destroy;
    void *data;
    unsigned references;
};

struct pretend_capture {
    struct pretend_graph *graph;
    struct pretend_stream *origin;
    struct pretend_capture *next; /* of those that are going on */
    pthread_t thread;
    uint64_t id;
    int references; /* by streams and events, and one while it goes on */
    CUstreamCaptureMode mode;
    int is_over;
    int is_spoilt;
    int owns_graph; /* the program did not give it */
};

struct pretend_stream {
    struct pretend_object object;
    struct pretend_context *context;
    struct pretend_stream *next; /* of all streams */
    unsigned flags;
    int priority;
    int is_legacy;
    uint64_t id;
    struct pretend_capture *capture;
    struct pretend_edges last; /* what its next node waits for */
    CUgraphNode *told;         /* what cuStreamGetCaptureInfo gave away */
    CUgraphEdgeData *told_edges;
    uint64_t attribute[18][8];
};

struct pretend_event {
    struct pretend_object object;
    struct pretend_context *context;
    unsigned flags;
    int is_recorded;
    uint64_t time_ns;
    struct pretend_capture *capture; /* it was last recorded in */
    struct pretend_edges last;
};

/* The stream that a handle means: NULL and CU_STREAM_LEGACY are the current context's. Errors:
 * CUDA_ERROR_NOT_INITIALIZED, …INVALID_CONTEXT, …INVALID_HANDLE. */
CUresult pretend_stream_of(CUstream handle, struct pretend_stream **stream);
/* The same where work is about to be put there. Further errors: that its capture is spoilt, or
 * that work on the default stream would wait for streams that are captured. */
CUresult pretend_stream_for_work(CUstream handle, struct pretend_stream **stream);
/* A node for the work of a stream that is captured; NULL where none is, or there is no memory. */
struct pretend_graph_node *pretend_capture_node(struct pretend_stream *stream,
                                                CUgraphNodeType type);
struct pretend_stream *pretend_streams(void);

/* Captures. */
void pretend_capture_drop(struct pretend_capture **capture);
void pretend_capture_spoil(struct pretend_capture *capture);
/* Ends one whose stream goes away. */
void pretend_capture_abandon(struct pretend_capture *capture);
/* A stream follows what an event stands for, and takes part in the event's capture. */
CUresult pretend_capture_join(struct pretend_stream *stream, const struct pretend_event *event);
int pretend_capture_touches_legacy(const struct pretend_context *context);

/* What a graph's node does with an event, if there still is one. */
void pretend_event_record(CUevent handle);

/* Lists of what must be done before. 0, or -1 without memory. */
int pretend_edges_add(struct pretend_edges *edges, struct pretend_graph_node *node,
                      const CUgraphEdgeData *data);
int pretend_edges_copy(struct pretend_edges *edges, const struct pretend_edges *from);
void pretend_edges_clear(struct pretend_edges *edges);

/* Graphs. */
struct pretend_graph *pretend_graph_new(void);
struct pretend_graph *pretend_graph_copy(const struct pretend_graph *graph);
/* Gives back what it held; destroyed user objects are called for by pretend_user_objects_call(),
 * once the lock is not held any more. */
void pretend_graph_delete(struct pretend_graph *graph);
struct pretend_graph_node *pretend_graph_add(struct pretend_graph *graph, CUgraphNodeType type);
/* Memory whose node is gone, to be dropped by pretend_user_objects_call(). */
void pretend_node_memory_release(struct pretend_node_memory *memory);
void pretend_user_object_release(struct pretend_user_object *object, unsigned count);
void pretend_user_objects_call(void);
/* All that must be done before others comes before them; the n-th in order[n]; -1: a circle. */
int pretend_graph_order(struct pretend_graph *graph, struct pretend_graph_node **order);
/* Where a node is added, as cuGraphAddNode has it. */
struct pretend_place_in_graph {
    CUgraphNode *node;
    CUgraph graph;
    const CUgraphNode *before;
    const CUgraphEdgeData *edges;
    size_t n;
};
/* Nodes of memory (graph/memory_nodes.c). Lock not held. */
CUresult pretend_add_alloc_node(const struct pretend_place_in_graph *place,
                                CUDA_MEM_ALLOC_NODE_PARAMS *params);
CUresult pretend_add_free_node(const struct pretend_place_in_graph *place, CUdeviceptr pointer);
struct pretend_graph *pretend_graph_of(CUgraph handle);
struct pretend_graph_node *pretend_node_of(CUgraphNode handle);

#endif
