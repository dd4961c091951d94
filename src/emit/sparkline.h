/* SPDX-License-Identifier: MIT */
/* A curve in one line of text. */
#ifndef MT_EMIT_SPARKLINE_H
#define MT_EMIT_SPARKLINE_H

#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

/* Appends one character for each of `n` values, higher for larger, where `top` fills the whole
 * height. UINT64_MAX is a gap. Unicode blocks, or ASCII where `utf8` is 0. */
void mt_sparkline(struct mt_strbuf *out, const uint64_t *values, size_t n, uint64_t top, int utf8);

#endif
