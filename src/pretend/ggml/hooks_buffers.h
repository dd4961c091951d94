/* SPDX-License-Identifier: MIT */
/* What the tensors of a context are for. */
#ifndef MT_REHEARSAL_GGML_HOOKS_BUFFERS_H
#define MT_REHEARSAL_GGML_HOOKS_BUFFERS_H

#include "hooks.h"
#include "purpose.h"

/* Begins the purpose that a context's tensors say by their names. */
void tensors_purpose(struct engine *engine, void *context, struct purpose *purpose);

#endif
