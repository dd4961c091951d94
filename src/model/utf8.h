/* SPDX-License-Identifier: MIT */
/* Whether bytes are text. */
#ifndef MT_MODEL_UTF8_H
#define MT_MODEL_UTF8_H

#include <stddef.h>

/* Whether `length` bytes are valid UTF-8 without control characters. */
int mt_is_text(const char *bytes, size_t length);

#endif
