/* SPDX-License-Identifier: MIT */
/* What memory is for. One list, used by tallies, scopes, labels, and every output. */
#ifndef MEMTALLY_CATEGORY_H
#define MEMTALLY_CATEGORY_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, value, "name", "what it holds"). Values are part of the recording format. */
#define MT_CATEGORY_LIST(X)                                                                        \
    X(WEIGHTS, 1, "weights", "model weights, mapped or copied")                                    \
    X(KV_CACHE, 2, "kv_cache", "keys and values of the attention layers")                          \
    X(RECURRENT_STATE, 3, "recurrent_state", "state of recurrent layers")                          \
    X(ACTIVATIONS, 4, "activations", "compute buffers, outputs, temporary tensors")                \
    X(GRAPHS, 5, "graphs", "captured device graphs")                                               \
    X(WORKSPACE, 6, "workspace", "scratch memory of math libraries")                               \
    X(COMMUNICATION, 7, "communication", "buffers between devices, replicas")                      \
    X(CONTEXT, 8, "context", "driver context, modules, device code")                               \
    X(CACHED, 9, "cached", "held free by an allocator")                                            \
    X(RUNTIME, 10, "runtime", "heap in use, program code, stacks, other mappings")                 \
    X(TRAINING, 11, "training", "gradients and the optimizer's state")

/* 0 means: not said. */
enum mt_category {
    MT_CATEGORY_NONE = 0,
#define MT_CATEGORY_ENUM(NAME, value, name, holds) MT_CATEGORY_##NAME = value,
    MT_CATEGORY_LIST(MT_CATEGORY_ENUM)
#undef MT_CATEGORY_ENUM
        MT_CATEGORY_END = 12 /* one more than the last */
};

/* The name of a category ("kv_cache"); "none" for MT_CATEGORY_NONE, "?" for a value outside the
 * list. Borrowed, static. Any thread. */
const char *mt_category_name(enum mt_category category);

/* The category called `name`, or MT_CATEGORY_NONE where none is. Any thread. */
enum mt_category mt_category_by_name(const char *name);

#ifdef __cplusplus
}
#endif
#endif
