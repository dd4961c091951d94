/* SPDX-License-Identifier: MIT */
/* Call stacks for speedscope (https://www.speedscope.app/file-format-schema.json): one sampled
 * profile whose weights are bytes. */
#ifndef MT_EMIT_SPEEDSCOPE_H
#define MT_EMIT_SPEEDSCOPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

/* Frames are innermost first; one that is "name (file:line)" is divided into its parts. */
struct mt_speedscope_stack {
    const char *place; /* a frame before all others; NULL: none */
    const char *const *frames;
    size_t n_frames;
    int complete; /* 0: cut off, which the outermost frame says */
    uint64_t bytes;
};

/* Appends the document. */
void mt_speedscope(struct mt_strbuf *out, const char *name,
                   const struct mt_speedscope_stack *stacks, size_t n);

#endif
