/* SPDX-License-Identifier: MIT */
/* A program that is started in a running container, with its standard input and outputs. */
#ifndef CONTAINER_EXEC_H
#define CONTAINER_EXEC_H

#include "container/container.h"

struct mt_container_exec;

/* Starts a program. `argv` ends with NULL; `user` is as the engine takes it, NULL for the
 * container's own. On success *exec is owned by the caller; end it with mt_container_exec_close().
 * Errors: as mt_http_fetch(), and MT_EIO with what the engine says. */
int mt_container_exec_start(const struct mt_container *container, const char *const *argv,
                            const char *user, struct mt_container_exec **exec,
                            struct mt_error *error);

/* Takes what the program wrote within `timeout_ms`, calling take(context, stream, bytes, n) for
 * each piece: stream 1 is its standard output, 2 its standard error. Returns 1 as long as there may
 * be more, 0 at the end of the program, or MT_EFORMAT, MT_ETRUNCATED. */
int mt_container_exec_read(struct mt_container_exec *exec, int timeout_ms,
                           void (*take)(void *context, int stream, const char *bytes, size_t n),
                           void *context, struct mt_error *error);

/* Writes to its standard input; what cannot be written is lost. */
void mt_container_exec_write(struct mt_container_exec *exec, const void *bytes, size_t n);

/* Ends its standard input. */
void mt_container_exec_end_input(struct mt_container_exec *exec);

/* Its status once it has ended, negative where the engine does not say. */
int mt_container_exec_status(const struct mt_container_exec *exec);

/* Closes the connection, which ends its standard input too. Takes NULL. */
void mt_container_exec_close(struct mt_container_exec *exec);

#endif
