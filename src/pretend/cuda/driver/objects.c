/* SPDX-License-Identifier: MIT */
/* What handles point to. Each kind has a list of its own of objects that are gone; memory never
 * changes its kind and never goes back, so a handle can be looked at whatever became of it. */
#include <stdlib.h>
#include <string.h>

#include "world.h"

#define CHUNK_BYTES 16384u

static struct pretend_object *gone[PRETEND_KINDS];

static int make_more(enum pretend_kind kind, size_t bytes)
{
    size_t n = bytes < CHUNK_BYTES ? CHUNK_BYTES / bytes : 1;
    char *chunk = calloc(n, bytes);
    for (size_t i = 0; chunk && i < n; i++) {
        struct pretend_object *object = (void *)(chunk + i * bytes);
        object->next_free = gone[kind];
        gone[kind] = object;
    }
    return chunk != NULL;
}

void *pretend_new(enum pretend_kind kind, size_t bytes)
{
    struct pretend_object *object;
    if (!gone[kind] && !make_more(kind, bytes))
        return NULL;
    object = gone[kind];
    gone[kind] = object->next_free;
    memset(object, 0, bytes);
    object->kind = kind;
    return object;
}

void pretend_delete(enum pretend_kind kind, void *handle)
{
    struct pretend_object *object = handle;
    object->kind = PRETEND_NOTHING;
    object->next_free = gone[kind];
    gone[kind] = object;
}

int pretend_is(enum pretend_kind kind, const void *handle)
{
    const struct pretend_object *object = handle;
    return (uintptr_t)handle > 4096 && ((uintptr_t)handle & 7) == 0 && object->kind == kind;
}

uint64_t pretend_next_id(void)
{
    static uint64_t last;
    return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}
