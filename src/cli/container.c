/* SPDX-License-Identifier: MIT */
#include "cli/container.h"

#include <stdlib.h>

#include <memtally/error.h>

#include "cli/command.h"
#include "cli/console.h"

int cli_open_container(const char *name, struct mt_container **container)
{
    const struct mt_container_places places = {
        .docker_host = getenv("DOCKER_HOST"),
        .runtime = getenv("XDG_RUNTIME_DIR"),
    };
    struct mt_error error = {.offset = MT_NO_OFFSET};
    int result = mt_container_open(&places, name, container, &error);
    return result < 0 ? cli_fail(&error) : CLI_EXIT_OK;
}
