/* SPDX-License-Identifier: MIT */
/* The container that what was measured runs in. */
#include <memtally/units.h>

#include "cli/document/internal.h"
#include "emit/json.h"

static void put_names(struct mt_json *json, const char *key, char *const *names, size_t n)
{
    mt_json_begin_array(json, key);
    for (size_t i = 0; i < n; i++)
        mt_json_text(json, NULL, names[i]);
    mt_json_end(json);
}

static const char *or_null(const char *text)
{
    return *text ? text : NULL;
}

void cli_json_container(const struct cli_document *document, struct mt_json *json)
{
    const struct mt_container *container = document->container;
    if (!container)
        return;
    mt_json_begin_object(json, "container");
    mt_json_text(json, "name", container->name);
    mt_json_text(json, "id", container->id);
    mt_json_text(json, "image", or_null(container->image));
    mt_json_text(json, "container_engine", or_null(container->engine));
    mt_json_count(json, "memory_limit_bytes", container->limit_bytes);
    put_names(json, "mounts", container->mounts, container->n_mounts);
    put_names(json, "environment_names", container->variables, container->n_variables);
    mt_json_end(json);
}

void cli_table_container(const struct cli_document *document, const struct cli_terminal *terminal,
                         struct mt_strbuf *out)
{
    const struct mt_container *container = document->container;
    char limit[MT_SIZE_TEXT];
    if (!container)
        return;
    cli_table_fact(terminal, out, "container", "%s%s%s%s%s%s", container->name,
                   *container->image ? " of image " : "", container->image,
                   *container->engine ? ", by " : "", container->engine,
                   container->limit_bytes == MT_UNKNOWN ? "" : ", limited");
    if (container->limit_bytes != MT_UNKNOWN)
        cli_table_fact(terminal, out, "", "its memory is limited to %s",
                       mt_format_size(container->limit_bytes, limit));
}
