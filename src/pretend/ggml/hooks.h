/* SPDX-License-Identifier: MIT */
/* The preload side of the pretended devices: what the hooks share.
 *
 * A hook calls the real function of the caller's own library, holds no lock while it does, and does
 * nothing at all without a rehearsal. Hooks have unwind tables, because exceptions of the engine
 * pass through them. */
#ifndef MT_REHEARSAL_GGML_HOOKS_H
#define MT_REHEARSAL_GGML_HOOKS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "rehearse/account.h"

#define EXPORTED __attribute__((visibility("default")))
#define CALLER   ((uintptr_t)__builtin_return_address(0))

/* From here on memory is the host's own page table's business, and worth an event. */
#define LARGE_BYTES (1u << 20)
#define STATES_MAX  8u

struct gguf_parameters {
    _Bool no_alloc;
    void **context;
};

struct ggml_parameters {
    size_t size;
    void *memory;
    _Bool no_alloc;
};

/* Room for any of the engine's structures of parameters. */
struct by_value {
    uint64_t word[64];
};

enum engine_function {
#define HOOK(result, name, parameters) ENGINE_##name,
#define ASK(result, name, parameters)  ENGINE_##name,
#include "hooks.def"
#undef HOOK
#undef ASK
    ENGINE_FUNCTIONS
};

/* A module that calls ggml, and the functions that the loader would bind for it. */
struct engine;

/* The module behind a call. A call from our own code counts for the module that called last. */
struct engine *engine_of(uintptr_t caller);

/* A function as the module sees it. One that is a hook is never NULL; one that is asked is, where
 * the version lacks it. */
void *engine_find(struct engine *engine, enum engine_function function);

/* real_NAME(engine) is the real function; for what is asked, see engine_find(). */
#define REAL(result, name, parameters)                                                             \
    __attribute__((unused)) static inline result(*real_##name(struct engine *engine)) parameters   \
    {                                                                                              \
        void *found = engine_find(engine, ENGINE_##name);                                          \
        result(*function) parameters;                                                              \
        __builtin_memcpy(&function, &found, sizeof function);                                      \
        return function;                                                                           \
    }
#define HOOK(result, name, parameters)                                                             \
    EXPORTED result name parameters;                                                               \
    REAL(result, name, parameters)
#define ASK(result, name, parameters) REAL(result, name, parameters)
#include "hooks.def"
#undef HOOK
#undef ASK

/* The next definition of a libc function after ours; stored in *slot once it is known. */
void *next_function(void **slot, const char *name);

/* Whether code or data at `address` is part of this object. */
int is_own(const void *address);
const char *own_path(void);

/* Whether a ggml object that begins with a function is one of the pretended devices'. */
int is_pretended(const void *object);

/* What a thread is doing. */
struct hook_thread {
    uintptr_t caller;                 /* the engine's code that called last */
    const char *type;                 /* of the buffer that is being allocated; NULL: none is */
    unsigned is_loading;              /* asking ggml for the pretended devices */
    unsigned is_uncounted;            /* blocks on the heap belong to what is counted already */
    unsigned is_roomy;                /* blocks that are not cleared are used in small part */
    unsigned keeps_reset;             /* a scheduler's placements are kept */
    unsigned is_staged;               /* the next read would be into a block of its own */
    unsigned is_in_engine;            /* inside a call that loads a model or makes a context */
    const void *scheduler;            /* that was reserved for last, outside of such a call */
    unsigned n_buffers;               /* with memory, so far */
    unsigned n_plans;                 /* of a dry run, so far */
    unsigned n_states;                /* copies of states that were asked about */
    uint64_t state_bytes[STATES_MAX]; /* that the last of these were said to need */
    char file[64];                    /* the model file that was opened last */
    char owner[64];                   /* the model whose context is at work, or "" */
};

struct hook_thread *hook_thread(void);

/* The account while hooks have something to do, else NULL. Nothing is computed then, so that
 * contents of tensors matter to no one. */
struct mt_account *rehearsal(void);

/* What a type's memory is. */
enum memory_place {
    MEMORY_PRETENDED, /* ours: notes itself */
    MEMORY_HOST,
    MEMORY_FOREIGN /* another device or another machine */
};

enum memory_place memory_of_type(struct engine *engine, void *type);

/* The place in the account: a device's number, or MT_ACCOUNT_HOST. */
uint32_t place_of_type(struct engine *engine, void *type);

/* From here on large blocks on the heap are counted. */
void hooks_heap_start(void);

/* Whose the thread's next buffer is: a model's name, or "". */
const char *current_owner(void);

/* Reads of a file's contents from `offset` on are reads of weights. */
void add_weights_file(int fd, uint64_t offset);

/* A read of weights that was skipped: notes the block that it would have gone to. */
void note_staging(void *to, size_t size);

/* Writes down what this engine is, once. */
void note_version(struct engine *engine);

/* The program takes connections from now on. */
void note_listening(void);

/* Names by address, for objects of the engine; short lists, the oldest is forgotten. */
void name_object(const void *object, const char *name);
void forget_object(const void *object);
const char *object_name(const void *object);

#endif
