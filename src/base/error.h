/* SPDX-License-Identifier: MIT */
/* Filling in a struct mt_error. For use inside the library. */
#ifndef MT_BASE_ERROR_H
#define MT_BASE_ERROR_H

#include <memtally/error_code.h>

struct mt_error; /* <memtally/error.h> */

/* Sets *error (when not NULL) and returns `code`, so that a failing path is one line:
 * `return mt_fail(error, MT_EFORMAT, offset, "%s: …", path);` */
int mt_fail(struct mt_error *error, int code, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
