/* SPDX-License-Identifier: MIT */
/* What an engine says of a container. */
#include <limits.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "container/internal.h"

#define LIST_MAX 1024

static const json_t *at(const json_t *object, const char *section, const char *key)
{
    return json_object_get(json_object_get(object, section), key);
}

/* What comes from outside may have any bytes in it. */
static void replace_controls(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 127)
            *text = '?';
}

void mt_container_copy_text(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from ? from : "");
    replace_controls(to);
}

static void take_text(char *to, size_t size, const json_t *text)
{
    mt_container_copy_text(to, size, json_string_value(text));
}

static int add_text(char ***list, size_t *n, const char *text, size_t length)
{
    char *copy = strndup(text, length);
    if (!copy)
        return MT_ENOMEM;
    replace_controls(copy);
    (*list)[(*n)++] = copy;
    return MT_OK;
}

static size_t length_of(const json_t *array)
{
    size_t n = json_array_size(array);
    return n < LIST_MAX ? n : LIST_MAX;
}

/* Takes the name of "NAME=VALUE"; nobody looks at the value. */
static int take_variables(struct mt_container *container, const json_t *variables)
{
    size_t n = length_of(variables);
    int result = MT_OK;
    container->variables = calloc(n + 1, sizeof *container->variables);
    if (!container->variables)
        return MT_ENOMEM;
    for (size_t i = 0; i < n && result == MT_OK; i++) {
        const char *variable = json_string_value(json_array_get(variables, i));
        if (variable && strchr(variable, '='))
            result = add_text(&container->variables, &container->n_variables, variable,
                              strcspn(variable, "="));
    }
    return result;
}

static int take_mounts(struct mt_container *container, const json_t *mounts)
{
    size_t n = length_of(mounts);
    int result = MT_OK;
    container->mounts = calloc(n + 1, sizeof *container->mounts);
    if (!container->mounts)
        return MT_ENOMEM;
    for (size_t i = 0; i < n && result == MT_OK; i++) {
        const json_t *mount = json_array_get(mounts, i);
        const char *folder = json_string_value(json_object_get(mount, "Destination"));
        if (folder)
            result = add_text(&container->mounts, &container->n_mounts, folder, strlen(folder));
    }
    return result;
}

static int is_id(const char *id)
{
    return id && strlen(id) == MT_CONTAINER_ID - 1 &&
           strspn(id, "0123456789abcdef") == MT_CONTAINER_ID - 1;
}

/* An engine that answers with something else than a container's document is none. */
static int take_state(struct mt_container *container, const json_t *said, struct mt_error *error)
{
    const char *id = json_string_value(json_object_get(said, "Id"));
    const json_t *pid = at(said, "State", "Pid");
    const char *status = json_string_value(at(said, "State", "Status"));
    char state[32];
    if (!is_id(id) || !json_is_integer(pid) || !json_is_boolean(at(said, "State", "Running")))
        return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET,
                       "its answer is not what Docker or Podman say of a container");
    mt_container_copy_text(state, sizeof state, status);
    if (!json_is_true(at(said, "State", "Running")) || json_integer_value(pid) <= 0 ||
        json_integer_value(pid) > INT_MAX)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "the container does not run (it is %s); start it first",
                       *state ? state : "stopped");
    snprintf(container->id, sizeof container->id, "%s", id);
    container->pid = (int)json_integer_value(pid);
    return MT_OK;
}

int mt_container_read(struct mt_container *container, const json_t *said, struct mt_error *error)
{
    int result = take_state(container, said, error);
    if (result != MT_OK)
        return result;
    const char *name = json_string_value(json_object_get(said, "Name"));
    json_int_t limit = json_integer_value(at(said, "HostConfig", "Memory"));
    mt_container_copy_text(container->name, sizeof container->name,
                           name && *name == '/' ? name + 1 : name);
    take_text(container->image, sizeof container->image, at(said, "Config", "Image"));
    take_text(container->folder, sizeof container->folder, at(said, "Config", "WorkingDir"));
    container->limit_bytes = limit > 0 ? (uint64_t)limit : MT_UNKNOWN;
    container->is_read_only = json_is_true(at(said, "HostConfig", "ReadonlyRootfs"));
    const char *network = json_string_value(at(said, "HostConfig", "NetworkMode"));
    container->has_host_network = network && strcmp(network, "host") == 0;
    result = take_variables(container, at(said, "Config", "Env"));
    if (result == MT_OK)
        result = take_mounts(container, json_object_get(said, "Mounts"));
    return result == MT_OK ? MT_OK : mt_out_of_memory(error);
}
