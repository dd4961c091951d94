/* SPDX-License-Identifier: MIT */
/* Finding a container by its name. */
#include "container/container.h"

#include <errno.h>
#include <memtally/error.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "base/strbuf.h"
#include "container/internal.h"

/* The names that engines take; nothing in them needs quoting in a path of a question. */
static int is_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    size_t length = strlen(name);
    return length > 0 && length < 200 && strchr(letters, *name) &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") ==
               length;
}

/* Both answer Docker's questions; Podman has some of its own. */
static void name_engine(struct mt_container *container)
{
    const struct mt_http_request request = {.url = "/libpod/_ping"};
    struct mt_http_response response = {0};
    int is_podman = mt_container_ask(container->socket, &request, &response, NULL) == MT_OK &&
                    response.status == 200;
    mt_http_response_finish(&response);
    snprintf(container->engine, sizeof container->engine, is_podman ? "Podman" : "Docker");
}

/* Asks at one socket. Returns 1, 0 where that engine has no such container, or an error. */
static int ask_socket(struct mt_container *container, const char *name, struct mt_error *error)
{
    char path[256];
    const struct mt_http_request request = {.url = path};
    json_t *said = NULL;
    int status = 0;
    snprintf(path, sizeof path, "/containers/%s/json", name);
    int code = mt_container_ask_json(container->socket, &request, &status, &said, error);
    if (code != MT_OK)
        return code;
    if (status == 404)
        code = 0;
    else if (status != 200)
        code = mt_fail(error, MT_EIO, MT_NO_OFFSET, "it answered with status %d", status);
    else
        code = mt_container_read(container, said, error) == MT_OK ? 1 : error->code;
    json_decref(said);
    if (code == 1)
        name_engine(container);
    return code;
}

/* Whether there is a socket that this user may open. Returns 1, 0 for none, or an error. */
static int can_ask(const char *socket, struct mt_error *error)
{
    if (access(socket, W_OK) == 0)
        return 1;
    if (errno == EACCES)
        return mt_fail(error, MT_EPERM, MT_NO_OFFSET,
                       "this user may not open it; be root or a member of its group");
    return 0;
}

/* What a part of the answer left behind. */
static void forget(struct mt_container *container)
{
    for (size_t i = 0; i < container->n_variables; i++)
        free(container->variables[i]);
    for (size_t i = 0; i < container->n_mounts; i++)
        free(container->mounts[i]);
    free(container->variables);
    free(container->mounts);
    *container = (struct mt_container){.limit_bytes = MT_UNKNOWN};
}

/* Asks at each socket until one has it. Writes what was wrong with others to `problems`. */
static int ask_all(const struct mt_container_places *places, const char *name,
                   struct mt_container *container, struct mt_strbuf *problems)
{
    char sockets[MT_CONTAINER_SOCKETS][MT_CONTAINER_SOCKET];
    const char *refused;
    size_t n = mt_container_sockets(places, sockets, &refused);
    size_t n_asked = 0;
    int found = 0;
    if (refused)
        mt_strbuf_printf(problems, "; %s", refused);
    for (size_t i = 0; i < n && found != 1; i++) {
        struct mt_error error = {0};
        forget(container);
        memcpy(container->socket, sockets[i], MT_CONTAINER_SOCKET);
        found = can_ask(sockets[i], &error);
        n_asked += found != 0;
        if (found == 1)
            found = ask_socket(container, name, &error);
        if (found < 0)
            mt_strbuf_printf(problems, "; %s: %s", sockets[i], error.text);
    }
    if (found != 1)
        forget(container);
    if (!n_asked && !refused)
        mt_strbuf_puts(problems, "; no socket of Docker or Podman is there to ask ('podman system "
                                 "service' opens one, DOCKER_HOST=unix://PATH names one)");
    return found == 1;
}

static int find(const struct mt_container_places *places, const char *name,
                struct mt_container *container, struct mt_error *error)
{
    struct mt_strbuf problems = {0};
    int found = ask_all(places, name, container, &problems);
    if (!found)
        found = mt_container_find_group(name, container);
    if (found && !*container->name)
        snprintf(container->name, sizeof container->name, "%.12s", container->id);
    int code = MT_OK;
    if (!found)
        code = mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET, "no running container '%s' was found%s",
                       name, mt_strbuf_text(&problems));
    mt_strbuf_finish(&problems);
    return code;
}

int mt_container_open(const struct mt_container_places *places, const char *name,
                      struct mt_container **container, struct mt_error *error)
{
    if (!is_name(name))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "'%s' is no name of a container; 'podman ps' or 'docker ps' lists them",
                       name);
    struct mt_container *made = calloc(1, sizeof *made);
    if (!made)
        return mt_out_of_memory(error);
    int code = find(places, name, made, error);
    if (code != MT_OK) {
        mt_container_close(made);
        return code;
    }
    *container = made;
    return MT_OK;
}

void mt_container_close(struct mt_container *container)
{
    if (!container)
        return;
    forget(container);
    free(container);
}
