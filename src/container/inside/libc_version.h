/* SPDX-License-Identifier: MIT */
/* Whether the C library of an image is one that the recorder can be linked to. */
#ifndef CONTAINER_INSIDE_LIBC_VERSION_H
#define CONTAINER_INSIDE_LIBC_VERSION_H

/* Why a program, a path or a name in PATH, cannot be recorded here, as words that end a sentence;
 * NULL where it can. Borrowed, static. */
const char *inside_why_not_recorded(const char *program);

/* Whether libdl and libpthread are libraries of their own here, as they were before glibc 2.34. */
int inside_has_parts(void);

#endif
