/* SPDX-License-Identifier: MIT */
/* Folded stacks, one line each: "root;caller;leaf 4096", as flame graph tools read them. */
#ifndef MT_EMIT_FOLDED_H
#define MT_EMIT_FOLDED_H

#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

/* Appends one stack, whose frames are innermost first. What would end a frame or a line within a
 * name is replaced by ':' or ' '. A stack that was cut off starts with "[truncated]"; a stack
 * without frames is "[unknown]". `place`, where it is not NULL, is a frame before all others. */
void mt_folded_stack(struct mt_strbuf *out, const char *place, const char *const *frames,
                     size_t n_frames, int complete, uint64_t weight);

#endif
