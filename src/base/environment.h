/* SPDX-License-Identifier: MIT */
/* An environment as a program hands it on. The library has none of its own: it is given one. */
#ifndef BASE_ENVIRONMENT_H
#define BASE_ENVIRONMENT_H

/* The value of `name` ("PATH") in an environment that ends with NULL, or NULL. Borrowed. */
const char *mt_environment_get(char *const *environment, const char *name);

/* The same, or NULL where it is empty. */
const char *mt_environment_get_set(char *const *environment, const char *name);

/* The folder for temporary files: TMPDIR, else "/tmp". Borrowed. */
const char *mt_environment_temporary(char *const *environment);

/* Writes the path of the program `name`, looked up in PATH of the environment (where it has none,
 * in the usual folders), or `name` itself where there is a slash in it, into `found`, which has
 * room for PATH_MAX bytes. Returns 0, ENOENT (no such program) or EACCES (it is there, and not
 * executable). */
int mt_environment_find(char *const *environment, const char *name, char *found);

#endif
