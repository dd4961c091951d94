/* SPDX-License-Identifier: MIT */
/* Descriptors of cuDNN's graph interface: a type, attributes by name, and whether it is finished.
 * Their numbers are those of the public interface. */
#ifndef MT_CUDA_DNN_BACKEND_H
#define MT_CUDA_DNN_BACKEND_H

#include "dnn.h"

enum pretend_backend_type {
    BACKEND_ENGINE = 2,
    BACKEND_ENGINECFG = 3,
    BACKEND_ENGINEHEUR = 4,
    BACKEND_EXECUTION_PLAN = 5,
    BACKEND_OPERATIONGRAPH = 15,
    BACKEND_VARIANT_PACK = 16,
    BACKEND_TENSOR = 17,
    BACKEND_TYPES_MAX = 64
};

enum pretend_backend_name {
    ATTR_ENGINEHEUR_OPERATION_GRAPH = 201,
    ATTR_ENGINEHEUR_RESULTS = 202,
    ATTR_ENGINECFG_ENGINE = 300,
    ATTR_ENGINECFG_INTERMEDIATE_INFO = 301,
    ATTR_ENGINECFG_KNOB_CHOICES = 302,
    ATTR_ENGINECFG_WORKSPACE_SIZE = 303,
    ATTR_ENGINECFG_SHARED_MEMORY_USED = 304,
    ATTR_PLAN_HANDLE = 400,
    ATTR_PLAN_ENGINE_CONFIG = 401,
    ATTR_PLAN_WORKSPACE_SIZE = 402,
    ATTR_PLAN_JSON = 405,
    ATTR_GRAPH_HANDLE = 800,
    ATTR_GRAPH_OPS = 801,
    ATTR_GRAPH_ENGINE_COUNT = 802,
    ATTR_TENSOR_DATA_TYPE = 901,
    ATTR_TENSOR_DIMENSIONS = 902,
    ATTR_TENSOR_STRIDES = 903,
    ATTR_TENSOR_UNIQUE_ID = 906,
    ATTR_ENGINE_OPERATION_GRAPH = 1300,
    ATTR_ENGINE_GLOBAL_INDEX = 1301,
    ATTR_ENGINE_KNOB_INFO = 1302,
    ATTR_ENGINE_NUMERICAL_NOTE = 1303,
    ATTR_ENGINE_LAYOUT_INFO = 1304,
    ATTR_ENGINE_BEHAVIOR_NOTE = 1305,
    ATTR_KERNEL_CACHE_IS_CACHED = 2401,
    ATTR_KERNEL_CACHE_JSON = 2402,
    ATTR_DEVICEPROP_JSON = 2702
};

enum pretend_backend_value {
    VALUE_HANDLE = 0,
    VALUE_BOOLEAN = 2,
    VALUE_INT64 = 3,
    VALUE_VOID_PTR = 6,
    VALUE_DESCRIPTOR = 15,
    VALUE_INT32 = 23,
    VALUE_CHAR = 24,
    VALUE_TYPES = 33
};

struct pretend_backend_attribute {
    int name, type;
    int64_t count;
    void *values; /* owned; of descriptors, a reference to each */
    struct pretend_backend_attribute *next;
};

struct pretend_backend {
    int type;
    int is_final;
    int n_references; /* atomic */
    struct pretend_backend_attribute *attributes;
};

/* An attribute as it was set, NULL where it was not. */
const struct pretend_backend_attribute *pretend_backend_find(const struct pretend_backend *of,
                                                             int name);
/* A descriptor that was set as an attribute, NULL where there is none. */
struct pretend_backend *pretend_backend_child(const struct pretend_backend *of, int name);

/* Puts an attribute in, or in place of the former. */
int pretend_backend_put(struct pretend_backend *into, int name, int type, int64_t count,
                        const void *values);

struct pretend_backend *pretend_backend_make(int type);
void pretend_backend_drop(struct pretend_backend *backend);

/* Bytes of a value; 0 where the type is unknown. */
size_t pretend_backend_bytes(int type);

/* Engines (engine.c): whether a descriptor is whole, and what it knows of itself when it is. */
int pretend_backend_finish(struct pretend_backend *backend);

#endif
