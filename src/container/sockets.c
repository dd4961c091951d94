/* SPDX-License-Identifier: MIT */
/* Where engines of containers listen, and one question to one of them. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "container/internal.h"

#define ANSWER_MAX ((size_t)4 << 20)

static void add(char sockets[MT_CONTAINER_SOCKETS][MT_CONTAINER_SOCKET], size_t *n,
                const char *path)
{
    if (strlen(path) >= MT_CONTAINER_SOCKET)
        return;
    for (size_t i = 0; i < *n; i++)
        if (strcmp(sockets[i], path) == 0)
            return;
    snprintf(sockets[(*n)++], MT_CONTAINER_SOCKET, "%s", path);
}

size_t mt_container_sockets(const struct mt_container_places *places,
                            char sockets[MT_CONTAINER_SOCKETS][MT_CONTAINER_SOCKET],
                            const char **refused)
{
    char path[MT_CONTAINER_SOCKET + 32];
    const char *host = places->docker_host;
    size_t n = 0;
    *refused = NULL;
    if (host && strncmp(host, "unix://", 7) == 0)
        add(sockets, &n, host + 7);
    else if (host && *host)
        *refused = "DOCKER_HOST names no socket of this machine (unix://PATH), and memtally reads "
                   "no other machine's memory";
    add(sockets, &n, "/var/run/docker.sock");
    add(sockets, &n, "/run/podman/podman.sock");
    if (places->runtime && *places->runtime &&
        snprintf(path, sizeof path, "%s/podman/podman.sock", places->runtime) < (int)sizeof path)
        add(sockets, &n, path);
    return n;
}

/* Paths have no version: each engine then takes its newest, and all have what is asked here. */
int mt_container_ask(const char *socket, const struct mt_http_request *request,
                     struct mt_http_response *response, struct mt_error *error)
{
    char url[1024];
    struct mt_http_request asked = *request;
    if (snprintf(url, sizeof url, "http://localhost%s", request->url) >= (int)sizeof url)
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "the question is too long");
    asked.url = url;
    asked.unix_socket = socket;
    if (!asked.timeout_ms)
        asked.timeout_ms = MT_CONTAINER_ASK_MS;
    if (!asked.max_body_bytes)
        asked.max_body_bytes = ANSWER_MAX;
    return mt_http_fetch(&asked, response, error);
}

int mt_container_ask_json(const char *socket, const struct mt_http_request *request, int *status,
                          json_t **answer, struct mt_error *error)
{
    struct mt_http_response response;
    int code = mt_container_ask(socket, request, &response, error);
    if (code != MT_OK)
        return code;
    json_t *json = json_loadb(response.body, response.length, 0, NULL);
    *status = response.status;
    mt_http_response_finish(&response);
    if (!json)
        return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET, "its answer is no JSON");
    *answer = json;
    return MT_OK;
}
