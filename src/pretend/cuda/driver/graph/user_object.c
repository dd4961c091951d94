/* SPDX-License-Identifier: MIT */
/* User objects: data of the program that graphs keep alive. Their destructors are the program's and
 * run without the lock. */
#include "pretend/cuda/driver/work.h"

#include <stdlib.h>

#include "pretend/cuda/abi/driver_calls.h"

#define NO_DESTRUCTOR_SYNC 1u
#define GRAPH_MOVE         1u /* the caller's references become the graph's */

/* What is due once the lock is not held: a destructor, or memory of a node that is gone. */
struct due {
    CUhostFn destroy;
    void *data;
    CUdeviceptr memory;
    struct due *next;
};
static struct due *due;

static void put_off(struct due what)
{
    struct due *item = malloc(sizeof *item);
    if (!item)
        return;
    *item = what;
    item->next = due;
    due = item;
}

void pretend_node_memory_release(struct pretend_node_memory *memory)
{
    if (--memory->references)
        return;
    put_off((struct due){.memory = memory->pointer});
    free(memory);
}

void pretend_user_object_release(struct pretend_user_object *object, unsigned count)
{
    if (object->references > count) {
        object->references -= count;
        return;
    }
    put_off((struct due){.destroy = object->destroy, .data = object->data});
    pretend_delete(PRETEND_A_USER_OBJECT, object);
}

void pretend_user_objects_call(void)
{
    for (;;) {
        pretend_lock();
        struct due *item = due;
        due = item ? item->next : NULL;
        pretend_unlock();
        if (!item)
            return;
        if (item->destroy)
            item->destroy(item->data);
        else
            pretend_graph_memory_drop(item->memory);
        free(item);
    }
}

PRETEND_CALL CUresult cuUserObjectCreate(CUuserObject *handle, void *data, CUhostFn destroy,
                                         unsigned references, unsigned flags)
{
    struct pretend_user_object *object;
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!handle || !destroy || !references || flags != NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    object = pretend_new(PRETEND_A_USER_OBJECT, sizeof *object);
    if (object) {
        object->destroy = destroy;
        object->data = data;
        object->references = references;
        *handle = (void *)object;
    }
    pretend_unlock();
    return object ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

PRETEND_CALL CUresult cuUserObjectRetain(CUuserObject handle, unsigned count)
{
    struct pretend_user_object *object = (void *)handle;
    CUresult result = CUDA_SUCCESS;
    pretend_lock();
    if (pretend_is(PRETEND_A_USER_OBJECT, object) && count)
        object->references += count;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult cuUserObjectRelease(CUuserObject handle, unsigned count)
{
    CUresult result = CUDA_SUCCESS;
    pretend_lock();
    if (pretend_is(PRETEND_A_USER_OBJECT, handle) && count)
        pretend_user_object_release((void *)handle, count);
    else
        result = CUDA_ERROR_INVALID_VALUE;
    pretend_unlock();
    pretend_user_objects_call();
    return result;
}

static struct pretend_graph_use *use_of(struct pretend_graph *graph,
                                        const struct pretend_user_object *object)
{
    for (size_t i = 0; i < graph->n_uses; i++)
        if (graph->use[i].object == object)
            return &graph->use[i];
    return NULL;
}

static CUresult add_use(struct pretend_graph *graph, struct pretend_user_object *object,
                        unsigned count)
{
    struct pretend_graph_use *use = use_of(graph, object);
    if (!use) {
        struct pretend_graph_use *more =
            realloc(graph->use, (graph->n_uses + 1) * sizeof *graph->use);
        if (!more)
            return CUDA_ERROR_OUT_OF_MEMORY;
        graph->use = more;
        use = &graph->use[graph->n_uses++];
        *use = (struct pretend_graph_use){object, 0};
    }
    use->count += count;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle,
                                              unsigned count, unsigned flags)
{
    struct pretend_user_object *object = (void *)handle;
    pretend_lock();
    struct pretend_graph *graph = pretend_graph_of(graph_handle);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (graph && pretend_is(PRETEND_A_USER_OBJECT, object) && count && !(flags & ~GRAPH_MOVE))
        result = add_use(graph, object, count);
    if (result == CUDA_SUCCESS && !(flags & GRAPH_MOVE))
        object->references += count;
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle,
                                               unsigned count)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    struct pretend_graph *graph = pretend_graph_of(graph_handle);
    struct pretend_graph_use *use =
        graph && pretend_is(PRETEND_A_USER_OBJECT, handle) ? use_of(graph, (void *)handle) : NULL;
    if (use && count && use->count >= count) {
        use->count -= count;
        if (!use->count)
            *use = graph->use[--graph->n_uses];
        pretend_user_object_release((void *)handle, count);
        result = CUDA_SUCCESS;
    }
    pretend_unlock();
    pretend_user_objects_call();
    return result;
}
