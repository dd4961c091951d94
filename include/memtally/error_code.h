/* SPDX-License-Identifier: MIT */
/* The codes of errors. A function that can fail returns 0 or one of them; <memtally/error.h> has
 * the struct that says more. */
#ifndef MEMTALLY_ERROR_CODE_H
#define MEMTALLY_ERROR_CODE_H

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

#ifdef __cplusplus
}
#endif
#endif
