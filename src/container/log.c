/* SPDX-License-Identifier: MIT */
/* The end of what a container's programs wrote. Its frames stay in it: who looks for words finds
 * them between. */
#include <stdio.h>

#include "base/error.h"
#include "container/internal.h"

#define LINES   "10000"
#define LOG_MAX ((size_t)16 << 20)

int mt_container_log(const struct mt_container *container, struct mt_http_response *log,
                     struct mt_error *error)
{
    char path[256];
    const struct mt_http_request request = {.url = path, .max_body_bytes = LOG_MAX};
    if (!*container->socket)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET, "no socket knows the container");
    snprintf(path, sizeof path, "/containers/%s/logs?stdout=1&stderr=1&tail=" LINES, container->id);
    int code = mt_container_ask(container->socket, &request, log, error);
    if (code == MT_OK && log->status != 200) {
        code = mt_container_complain(log, "its log", error);
        mt_http_response_finish(log);
    }
    return code;
}
