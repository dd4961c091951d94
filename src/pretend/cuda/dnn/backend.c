/* SPDX-License-Identifier: MIT */
/* Descriptors of cuDNN's graph interface: making, setting, reading them. */
#include "backend.h"

#include <stdlib.h>
#include <string.h>

#include "pretend/cuda/call.h"

typedef struct pretend_backend backend;
typedef struct pretend_backend_attribute attribute;

size_t pretend_backend_bytes(int type)
{
    static const unsigned char bytes[VALUE_TYPES] = {
        8, 4, 1, 8, 4, 8, 8, 4, 4, 4,  4, 4, 4, 4, 4, 8, 4,
        4, 4, 4, 4, 4, 4, 4, 1, 4, 16, 4, 4, 4, 4, 4, 4,
    };
    return type >= 0 && type < VALUE_TYPES ? bytes[type] : 0;
}

backend *pretend_backend_make(int type)
{
    backend *made = calloc(1, sizeof *made);
    if (made) {
        made->type = type;
        made->n_references = 1;
    }
    return made;
}

static void free_attribute(attribute *a)
{
    int64_t i;
    for (i = 0; a->type == VALUE_DESCRIPTOR && i < a->count; i++)
        pretend_backend_drop(((backend **)a->values)[i]);
    free(a->values);
    free(a);
}

static void free_attributes(backend *of)
{
    attribute *a;
    while ((a = of->attributes) != NULL) {
        of->attributes = a->next;
        free_attribute(a);
    }
}

void pretend_backend_drop(backend *of)
{
    if (!of || __atomic_sub_fetch(&of->n_references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    free_attributes(of);
    free(of);
}

const attribute *pretend_backend_find(const backend *of, int name)
{
    const attribute *a;
    for (a = of->attributes; a && a->name != name; a = a->next) {
    }
    return a;
}

backend *pretend_backend_child(const backend *of, int name)
{
    const attribute *a = pretend_backend_find(of, name);
    return a && a->type == VALUE_DESCRIPTOR && a->count > 0 ? *(backend **)a->values : NULL;
}

static void remove_attribute(backend *from, int name)
{
    attribute **at = &from->attributes;
    attribute *gone;
    while (*at && (*at)->name != name)
        at = &(*at)->next;
    gone = *at;
    if (gone) {
        *at = gone->next;
        free_attribute(gone);
    }
}

int pretend_backend_put(backend *into, int name, int type, int64_t count, const void *values)
{
    size_t bytes = (size_t)count * pretend_backend_bytes(type);
    attribute *a = calloc(1, sizeof *a);
    int64_t i;
    if (!a || (bytes > 0 && (a->values = malloc(bytes)) == NULL)) {
        free(a);
        return DNN_HOST_ALLOCATION_FAILED;
    }
    if (bytes > 0)
        memcpy(a->values, values, bytes);
    for (i = 0; type == VALUE_DESCRIPTOR && i < count; i++) {
        backend *child = ((backend **)a->values)[i];
        if (child)
            __atomic_add_fetch(&child->n_references, 1, __ATOMIC_RELAXED);
    }
    a->name = name;
    a->type = type;
    a->count = count;
    remove_attribute(into, name);
    a->next = into->attributes;
    into->attributes = a;
    return DNN_SUCCESS;
}

/* Makes `into`, which the caller made, what `from` is. */
static int assign(backend *into, const backend *from)
{
    const attribute *a;
    int status = DNN_SUCCESS;
    if (into == from)
        return DNN_SUCCESS;
    free_attributes(into);
    for (a = from->attributes; a && status == DNN_SUCCESS; a = a->next)
        status = pretend_backend_put(into, a->name, a->type, a->count, a->values);
    into->is_final = from->is_final;
    return status;
}

CALL(cudnnBackendCreateDescriptor, (int type, backend **made), {
    if (!made)
        return DNN_NULL_POINTER;
    if (type < 0 || type >= BACKEND_TYPES_MAX)
        return DNN_NOT_SUPPORTED;
    *made = pretend_backend_make(type);
    return *made ? DNN_SUCCESS : DNN_HOST_ALLOCATION_FAILED;
})

CALL(cudnnBackendInitialize, (backend * of), {
    if (!of)
        return DNN_BAD_PARAM;
    free_attributes(of);
    of->is_final = 0;
    return DNN_SUCCESS;
})

CALL(cudnnBackendDestroyDescriptor, (backend * of), {
    pretend_backend_drop(of);
    return DNN_SUCCESS;
})

CALL(cudnnBackendFinalize, (backend * of), {
    int status;
    if (!of)
        return DNN_NULL_POINTER;
    status = pretend_backend_finish(of);
    of->is_final = status == DNN_SUCCESS;
    return status;
})

CALL(cudnnBackendSetAttribute,
     (backend * into, int name, int type, int64_t count, const void *values), {
         if (!into)
             return DNN_NULL_POINTER;
         if (into->is_final)
             return DNN_NOT_INITIALIZED;
         if (pretend_backend_bytes(type) == 0)
             return DNN_ATTRIBUTE_TYPE;
         if (count < 0 || count > INT32_MAX || (count > 0 && !values))
             return DNN_BAD_PARAM;
         return pretend_backend_put(into, name, type, count, values);
     })

/* Elements go into descriptors that the caller made, other values into the caller's array. */
static int give(const attribute *a, int64_t wanted, void *values)
{
    int64_t n = wanted < a->count ? wanted : a->count;
    int status = DNN_SUCCESS;
    int64_t i;
    if (a->type != VALUE_DESCRIPTOR) {
        memcpy(values, a->values, (size_t)n * pretend_backend_bytes(a->type));
        return DNN_SUCCESS;
    }
    for (i = 0; i < n && status == DNN_SUCCESS; i++) {
        backend *into = ((backend **)values)[i];
        const backend *from = ((backend **)a->values)[i];
        status = into && from && into->type == from->type ? assign(into, from) : DNN_BAD_PARAM;
    }
    return status;
}

CALL(cudnnBackendGetAttribute,
     (backend * of, int name, int type, int64_t wanted, int64_t *count, void *values), {
         const attribute *a;
         if (!of)
             return DNN_NULL_POINTER;
         if (!of->is_final)
             return DNN_NOT_FINALIZED;
         a = pretend_backend_find(of, name);
         if (a && a->type != type)
             return DNN_ATTRIBUTE_TYPE;
         if (count)
             *count = a ? a->count : 0;
         if (!a || a->count == 0 || wanted <= 0 || !values)
             return DNN_SUCCESS;
         return give(a, wanted, values);
     })

static int is_ready(const backend *plan, const backend *pack)
{
    return plan && pack && plan->type == BACKEND_EXECUTION_PLAN &&
           pack->type == BACKEND_VARIANT_PACK && plan->is_final && pack->is_final;
}

/* A plan computes, and so does nothing. */
CALL(cudnnBackendExecute, (void *handle, backend *plan, backend *pack),
     return handle && is_ready(plan, pack) ? DNN_SUCCESS : DNN_BAD_PARAM;)
CALL(cudnnBackendPopulateCudaGraph, (void *handle, backend *plan, backend *pack, void *graph),
     return handle && graph && is_ready(plan, pack) ? DNN_NOT_SUPPORTED : DNN_BAD_PARAM;)
CALL(cudnnBackendUpdateCudaGraph, (void *handle, backend *plan, backend *pack, void *graph),
     return handle && graph && is_ready(plan, pack) ? DNN_NOT_SUPPORTED : DNN_BAD_PARAM;)
