/* SPDX-License-Identifier: MIT */
/* What the files of this room share. */
#ifndef CONTAINER_INTERNAL_H
#define CONTAINER_INTERNAL_H

#include <jansson.h>

#include "container/container.h"
#include "net/http_client.h"

#define MT_CONTAINER_SOCKETS 4

/* Lists the sockets that there may be, each once. Returns their number; *refused is set to a
 * sentence where DOCKER_HOST names none of this machine. */
size_t mt_container_sockets(const struct mt_container_places *places,
                            char sockets[MT_CONTAINER_SOCKETS][MT_CONTAINER_SOCKET],
                            const char **refused);

/* Asks the engine at a socket. `request` lacks what every question has; its `url` is a path.
 * Errors: as mt_http_fetch(). */
int mt_container_ask(const char *socket, const struct mt_http_request *request,
                     struct mt_http_response *response, struct mt_error *error);

/* The same for a document: *answer is owned by the caller. Errors: also MT_EFORMAT (no JSON). */
int mt_container_ask_json(const char *socket, const struct mt_http_request *request, int *status,
                          json_t **answer, struct mt_error *error);

/* Copies a text that came from outside, with '?' for control characters. */
void mt_container_copy_text(char *to, size_t size, const char *from);

/* Sets the error to what the engine says of a question that it refused. Returns MT_EIO. */
int mt_container_complain(const struct mt_http_response *response, const char *what,
                          struct mt_error *error);

/* Fills in what an engine says of a container. Returns MT_ENOTFOUND where it does not run,
 * MT_EFORMAT where that is not what an engine says. */
int mt_container_read(struct mt_container *container, const json_t *said, struct mt_error *error);

/* Finds a container by its control group. Returns 1 or 0. */
int mt_container_find_group(const char *name, struct mt_container *container);

#endif
