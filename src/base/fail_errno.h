/* SPDX-License-Identifier: MIT */
/* Failing by what errno says. */
#ifndef MT_BASE_FAIL_ERRNO_H
#define MT_BASE_FAIL_ERRNO_H

struct mt_error; /* <memtally/error.h> */

/* The MT_E code that an errno value stands for. */
int mt_code_of_errno(int errno_value);

/* Like mt_fail() with the code and the words of `errno_value` appended after ": ". */
int mt_fail_errno(struct mt_error *error, int errno_value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
