/* SPDX-License-Identifier: MIT */
/* Errors of the memtally library.
 *
 * A function that can fail returns an int: 0 or a negative MT_E code. Where more can be said, the
 * last parameter is an optional `struct mt_error *`; pass NULL if only the code matters. The object
 * is of fixed size and holds nothing to free. On failure every other output is left untouched.
 *
 * Other headers only declare the struct. Include this one, or <memtally/memtally.h>, to make a
 * struct or to read it; <memtally/error_code.h> suffices for the codes. */
#ifndef MEMTALLY_ERROR_H
#define MEMTALLY_ERROR_H

#include <memtally/error_code.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What went wrong. `offset` is a byte position in the input named by `text`, or MT_NO_OFFSET.
 * `text` is one line without a final newline, in English, and says what to do next where that is
 * known. */
struct mt_error {
    int code;
    uint64_t offset;
    char text[488];
};

/* The constant's name ("MT_EFORMAT"), or "MT_E?" for a code that this build does not know.
 * Borrowed, static. Any thread. */
const char *mt_error_name(int code);

/* The code's sentence ("the data end too early"). Borrowed, static. Any thread. */
const char *mt_error_sentence(int code);

#ifdef __cplusplus
}
#endif
#endif
