/* SPDX-License-Identifier: MIT */
/* Errors of the memtally library.
 *
 * A function that can fail returns an int: 0 or a negative MT_E code. Where more can be said, the
 * last parameter is an optional `struct mt_error *`; pass NULL if only the code matters. The object
 * is of fixed size and holds nothing to free. On failure every other output is left untouched.
 *
 * Other headers only declare the struct. Include this one, or <memtally/memtally.h>, to make an
 * error or to read its code. */
#ifndef MEMTALLY_ERROR_H
#define MEMTALLY_ERROR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, value, sentence). Values are part of the ABI and never reused. */
#define MT_ERROR_LIST(X)                                                                           \
    X(MT_EARG, -1, "an argument is not valid")                                                     \
    X(MT_ENOMEM, -2, "out of memory")                                                              \
    X(MT_EIO, -3, "input or output failed")                                                        \
    X(MT_ENOTFOUND, -4, "not found")                                                               \
    X(MT_EPERM, -5, "not permitted")                                                               \
    X(MT_EFORMAT, -6, "the data are not in the expected format")                                   \
    X(MT_ETRUNCATED, -7, "the data end too early")                                                 \
    X(MT_EVERSION, -8, "the data are of a version that this build does not know")                  \
    X(MT_ECORRUPT, -9, "the data fail their checksum")                                             \
    X(MT_EUNSUPPORTED, -10, "not supported on this machine")                                       \
    X(MT_EBUSY, -11, "already in use")                                                             \
    X(MT_ETIMEOUT, -12, "timed out")                                                               \
    X(MT_ECHILD, -13, "a child process failed")                                                    \
    X(MT_ELIMIT, -14, "a limit was exceeded")                                                      \
    X(MT_ECANCELLED, -15, "cancelled by the caller")

enum mt_error_code {
    MT_OK = 0,
#define MT_ERROR_ENUM(name, value, sentence) name = value,
    MT_ERROR_LIST(MT_ERROR_ENUM)
#undef MT_ERROR_ENUM
};

/* `offset` of an error that has no byte position. */
#define MT_NO_OFFSET UINT64_MAX

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
