/* SPDX-License-Identifier: MIT */
/* A stand-in for an engine with ggml in shared libraries: what it calls is what llama.cpp calls,
 * through the loader, so that a preloaded object stands before it. It has memory of the host and
 * plans; its ggml is fake_ggml.c. */
#ifndef TESTS_UNIT_REHEARSE_FAKE_ENGINE_H
#define TESTS_UNIT_REHEARSE_FAKE_ENGINE_H

#include "pretend/ggml/hooks.h"

/* hooks.h declares what is hooked; these are the others. */
#define HOOK(result, name, parameters)
#define ASK(result, name, parameters) result name parameters;
#include "pretend/ggml/hooks.def"
#undef HOOK
#undef ASK

/* Weights of a model's file begin here. */
#define FAKE_DATA_OFFSET 4096u
#define FAKE_BUILD       4242

struct fake_tensor {
    const char *name;
    size_t bytes;
    void *data;
    struct fake_tensor *next;
};

/* The tensors of one ggml context. */
struct fake_tensors {
    struct fake_tensor *first;
};

struct fake_graph {
    int n;
    struct fake_tensor *node;
};

/* `functions` is how many a buffer of this type has, as versions of ggml differ. */
struct host_type {
    const char *name;
    int functions;
    _Bool is_host;
    const int *device; /* its type; NULL: an old ggml, which does not say it */
};

enum { FAKE_CPU, FAKE_CPU_OLD, FAKE_CPU_REPACK, FAKE_ELSEWHERE, FAKE_TYPES };

struct fake_model {
    void *buffer;
    _Bool is_read_in_place;
};

struct fake_engine {
    struct host_type type[FAKE_TYPES];
    size_t model_bytes, context_bytes; /* of a model's and of a context's one tensor */
    size_t plan_bytes;                 /* of each type, as a scheduler says */
    int resets;                        /* of a scheduler, that reached the engine */
    int computed;                      /* graphs, that reached the engine */
    const int *backend;                /* a device's type, for a graph */
};

struct fake_engine *fake_engine(void);

#endif
