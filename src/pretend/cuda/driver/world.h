/* SPDX-License-Identifier: MIT */
/* What the files of the pretended driver share: devices, contexts and the lock.
 *
 * Everything of a process lives here and behind one lock, which is never held over a call into the
 * program. Processes know of each other through the account alone. */
#ifndef MT_CUDA_DRIVER_WORLD_H
#define MT_CUDA_DRIVER_WORLD_H

#include <pthread.h>
#include <stdint.h>

#include "pretend/cuda/abi/driver_base.h"
#include "pretend/cuda/pretend_cuda.h"
#include "rehearse/account.h"

#define PRETEND_ADDRESSES (UINT64_C(1) << 43) /* of a device at most */
#define PRETEND_PAGE      (UINT64_C(2) << 20) /* the driver gives memory out in these */

/* What a handle of the program points to. Memory of a kind stays memory of that kind when its
 * object is gone, so a stale handle can be told from a good one. */
enum pretend_kind {
    PRETEND_NOTHING, /* a destroyed one */
    PRETEND_A_CONTEXT,
    PRETEND_A_STREAM,
    PRETEND_A_EVENT,
    PRETEND_A_MODULE,
    PRETEND_A_FUNCTION,
    PRETEND_A_GRAPH,
    PRETEND_A_GRAPH_NODE,
    PRETEND_A_GRAPH_EXEC,
    PRETEND_A_USER_OBJECT,
    PRETEND_KINDS
};
struct pretend_object {
    enum pretend_kind kind;
    struct pretend_object *next_free;
};

/* A zeroed object of `bytes`, the same for every one of a kind; NULL where there is no memory.
 * The lock is held by the caller. */
void *pretend_new(enum pretend_kind kind, size_t bytes);
void pretend_delete(enum pretend_kind kind, void *object);
/* Whether a handle is one of a kind that is not destroyed. */
int pretend_is(enum pretend_kind kind, const void *handle);
/* A number that no other object of the process has. */
uint64_t pretend_next_id(void);

/* The priorities of streams; a lower number goes first. */
#define PRETEND_PRIORITY_LOWEST  0
#define PRETEND_PRIORITY_HIGHEST (-5)

/* From this many different kernels on their code takes what the GPU table says. */
#define PRETEND_KERNELS_FULL 64

struct pretend_context {
    struct pretend_object object;
    int device; /* as the program counts */
    int references;
    int is_primary;
    unsigned flags;
    uint64_t id;
    CUdeviceptr memory; /* of the context, charged to the device */
    int n_kernels;      /* that ran, up to PRETEND_KERNELS_FULL; atomic */
    const void *kernel[PRETEND_KERNELS_FULL];
    CUdeviceptr kernel_memory[PRETEND_KERNELS_FULL]; /* what each took first, 0: nothing */
    unsigned version;                                /* of the interface that made it */
    int limits_set; /* a bit for each of `limits` that the program set */
    size_t limits[16];
    int cache_config, shared_config;
    uint64_t peers;                             /* a bit for each device that it has access to */
    struct pretend_stream *legacy, *per_thread; /* the default streams, made on demand */
    uint64_t graph_bytes;                       /* of nodes of instantiated graphs */
    uint64_t graph_held; /* pages that they take: those that were needed at most */
};

struct pretend_device {
    uint32_t place; /* in the account, past CUDA_VISIBLE_DEVICES */
    const struct mt_gpu_spec *gpu;
    uint64_t total_bytes;
    struct pretend_context *primary; /* NULL where there is none */
    unsigned primary_flags;
};

/* What is wrong with calling the driver now: it was not initialised, or the process is a child
 * that was forked after that (CUDA does not go through a fork); CUDA_SUCCESS. */
CUresult pretend_enter(void);

/* cuGetProcAddress (lookup.c); `query` may be NULL. */
CUresult pretend_find(const char *name, void **function, int version, uint64_t flags, int *query);

/* The devices that the program sees; `device` out of range gives NULL. */
int pretend_device_count(void);
struct pretend_device *pretend_device(CUdevice device);

/* What a call about a device begins with: the errors of pretend_enter(), then
 * CUDA_ERROR_INVALID_DEVICE. `device` may be NULL. */
CUresult pretend_enter_device(CUdevice number, struct pretend_device **device);

/* The context that a call is about: `context`, or the current one where it is NULL. Errors:
 * CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED. */
CUresult pretend_context_of(CUcontext context, struct pretend_context **found);

/* What goes with a context: its streams (stream.c) and its memory (memory.c). */
void pretend_context_ended(struct pretend_context *context);
void pretend_memory_ended(struct pretend_context *context);

int pretend_can_access_peer(CUdevice device, CUdevice peer);

/* A kernel runs in a context. The driver loads code when a kernel first runs, so what the GPU table
 * gives for it is taken step by step, the same share for each different kernel: an engine measures
 * what lies beside PyTorch's memory by a difference, from when its first kernels have run to when
 * its model has run, and with all at once it would be nothing. We do not know what one kernel
 * takes. An engine's model is past PRETEND_KERNELS_FULL, a few lines of PyTorch are not. Lock not
 * held. */
CUresult pretend_context_load(struct pretend_context *context, const void *kernel);

/* Around a fork: no lock may be held by a thread that the child does not have. */
void pretend_context_fork(int is_before);
void pretend_context_forked(void);

/* The calling thread's current context, NULL where it has none; its device, -1. */
struct pretend_context *pretend_current(void);
CUdevice pretend_current_device(void);

void pretend_lock(void);
void pretend_unlock(void);

/* What pools keep beyond their release thresholds goes back: to be called where the program waits
 * for a stream, an event or a context (pools.c). Lock not held. */
void pretend_pools_settle(void);

struct pretend_graph_node;

/* Memory of an allocation node (graph/memory.c): it has addresses from the node's making to its
 * graph's end, and takes of the device from the launch that allocates it to what frees it. Lock not
 * held. */
CUresult pretend_graph_memory_make(CUdevice device, uint64_t bytes, CUdeviceptr *pointer);
CUresult pretend_graph_memory_attach(CUdeviceptr pointer);
void pretend_graph_memory_detach(CUdeviceptr pointer);
void pretend_graph_memory_drop(CUdeviceptr pointer);
/* A node that was captured learns what it allocates or frees (graph/memory_nodes.c). */
void pretend_node_memory(struct pretend_graph_node *node, CUdevice device, CUdeviceptr pointer,
                         uint64_t bytes);

/* Whether a call that waits for a context, or is unsafe while a stream of the process is captured,
 * may be made now (capture.c): CUDA_SUCCESS; else what it answers. It spoils the captures that
 * forbid it, as the documentation of cuStreamBeginCapture says. `context` NULL: any. */
CUresult pretend_forbidden_in_capture(struct pretend_context *context);
CUresult pretend_unsafe_in_capture(void);

/* Stream capture (capture.c): whether a stream's work is being captured, so that nothing is done
 * now; it then becomes a node of the kind given. */
enum pretend_node {
    PRETEND_NODE_KERNEL,
    PRETEND_NODE_COPY,
    PRETEND_NODE_SET,
    PRETEND_NODE_ALLOC,
    PRETEND_NODE_FREE,
    PRETEND_NODE_HOST,
    PRETEND_NODE_EMPTY
};
struct pretend_graph_node *pretend_captured(CUstream stream, enum pretend_node kind);
/* The same, with the error that the call must answer: no such stream, a capture that is spoilt,
 * work on the default stream that would wait for a capture. *node is NULL where the work is done
 * now. */
CUresult pretend_capture_work(CUstream stream, enum pretend_node kind,
                              struct pretend_graph_node **node);
/* What a launch of the graph does for a node: `run` with a copy of `bytes` at `what`. */
void pretend_node_run(struct pretend_graph_node *node, void (*run)(const void *what),
                      const void *what, size_t bytes);

#endif
