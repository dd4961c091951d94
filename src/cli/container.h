/* SPDX-License-Identifier: MIT */
/* The option --container, of commands that look into one. */
#ifndef CLI_CONTAINER_H
#define CLI_CONTAINER_H

#include "container/container.h"

/* Finds the container that the user named, by the sockets that the environment tells of. Returns
 * CLI_EXIT_OK, or complains. mt_http_start() was called before. */
int cli_open_container(const char *name, struct mt_container **container);

#endif
