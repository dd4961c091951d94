/* SPDX-License-Identifier: MIT */
/* Buffers of the host that take address space and no memory. */
#ifndef MT_REHEARSAL_GGML_HOOKS_HOST_H
#define MT_REHEARSAL_GGML_HOOKS_HOST_H

#include "hooks.h"

/* A buffer as the engine's own type makes it. A large one is emptied while nothing is computed: its
 * memory is address space only, and what is large and written to it is dropped. */
void *host_buffer(struct engine *engine, void *type, size_t size);

/* Whether a buffer was emptied so. */
int is_emptied(void *buffer);

/* Counts bytes of the host that nothing can refuse. */
void host_take_unlimited(uint64_t bytes);

#endif
