/* SPDX-License-Identifier: MIT */
/* Files behind URLs as the model readers want them. The token is shown to the endpoint's own host
 * and appears in no message. */
#include "cli/remote_files.h"

#include "base/error.h"

#include "base/out_of_memory.h"
#include "net/http_range.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENDPOINT   "https://huggingface.co"
#define STEP_BYTES (512 * 1024)

struct remote_source {
    struct mt_http_file *file;
    struct cli_remote *remote;
    uint64_t counted;
};

static const char *endpoint_of(const struct cli_remote *remote)
{
    return remote->endpoint && *remote->endpoint ? remote->endpoint : ENDPOINT;
}

static int is_url(const char *name)
{
    return strncmp(name, "https://", 8) == 0 || strncmp(name, "http://", 7) == 0;
}

/* Letters, digits, "-", "_" and "."; no part begins with a dot. */
static int is_part(const char *text, size_t length)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-_.";
    return length > 0 && length < 128 && text[0] != '.' && strspn(text, allowed) >= length;
}

int cli_hub_name_split(const char *name, struct cli_hub_name *split)
{
    const char *at = strchr(name, '@');
    size_t length = at ? (size_t)(at - name) : strlen(name);
    const char *slash = memchr(name, '/', length);
    *split = (struct cli_hub_name){.revision = at ? at + 1 : "main"};
    if (!slash || !is_part(name, (size_t)(slash - name)))
        return 0;
    const char *model = slash + 1;
    const char *second = memchr(model, '/', length - (size_t)(model - name));
    size_t model_length = second ? (size_t)(second - model) : length - (size_t)(model - name);
    split->repository = (size_t)(model - name) + model_length;
    split->file = second ? second + 1 : "";
    split->file_length = second ? length - (size_t)(split->file - name) : 0;
    for (const char *part = split->file; second && part < split->file + split->file_length;) {
        size_t left = split->file_length - (size_t)(part - split->file);
        const char *stop = memchr(part, '/', left);
        size_t part_length = stop ? (size_t)(stop - part) : left;
        if (!is_part(part, part_length))
            return 0;
        part += part_length + 1;
    }
    return is_part(model, model_length) && is_part(split->revision, strlen(split->revision));
}

int cli_remote_is_name(const char *name)
{
    struct cli_hub_name split;
    return is_url(name) || (cli_hub_name_split(name, &split) && access(name, F_OK) != 0);
}

int cli_remote_path(const struct cli_remote *remote, const char *name, char *path, size_t size,
                    struct mt_error *error)
{
    struct cli_hub_name split;
    int n;
    if (is_url(name)) {
        n = snprintf(path, size, "%s", name);
    } else if (cli_hub_name_split(name, &split)) {
        n = snprintf(path, size, "%s/%.*s/resolve/%s/%.*s", endpoint_of(remote),
                     (int)split.repository, name, split.revision, (int)split.file_length,
                     split.file);
    } else {
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%s: expected a URL, or a name like org/model, org/model/file.gguf or "
                       "org/model@revision",
                       name);
    }
    if (n < 0 || (size_t)n >= size)
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "%.60s...: a name that is too long", name);
    return 0;
}

/* The token is for URLs below the endpoint, whose host ends where the next slash begins. */
static const char *token_for(const struct cli_remote *remote, const char *url)
{
    const char *endpoint = endpoint_of(remote);
    size_t length = strlen(endpoint);
    while (length && endpoint[length - 1] == '/')
        length--;
    if (!remote->token || !*remote->token || strncmp(url, endpoint, length) != 0)
        return NULL;
    return url[length] == '/' ? remote->token : NULL;
}

static void count(struct remote_source *source)
{
    uint64_t received = mt_http_file_received(source->file);
    source->remote->received_bytes += received - source->counted;
    source->counted = received;
}

static int read_remote(void *argument, uint64_t offset, void *to, size_t length,
                       struct mt_error *error)
{
    struct remote_source *source = argument;
    int code = mt_http_file_read(source->file, offset, to, length, error);
    count(source);
    return code;
}

static void close_remote(void *argument)
{
    struct remote_source *source = argument;
    mt_http_file_close(source->file);
    free(source);
}

static int open_remote(void *argument, const char *path, struct mt_model_source *opened,
                       struct mt_error *error)
{
    struct cli_remote *remote = argument;
    struct mt_http_file_options options = {.token = token_for(remote, path)};
    struct remote_source *source = calloc(1, sizeof *source);
    if (!source)
        return mt_out_of_memory_for(error, path);
    remote->requests++;
    int code = mt_http_file_open(path, &options, &source->file, error);
    if (code) {
        free(source);
        return code;
    }
    source->remote = remote;
    count(source);
    *opened = (struct mt_model_source){.argument = source,
                                       .size_bytes = mt_http_file_size(source->file),
                                       .step_bytes = STEP_BYTES,
                                       .read = read_remote,
                                       .close = close_remote};
    return 0;
}

static int is_folder(void *argument, const char *path)
{
    size_t length = strlen(path);
    (void)argument;
    return length > 0 && path[length - 1] == '/';
}

struct mt_model_files cli_remote_files(struct cli_remote *remote)
{
    return (struct mt_model_files){.argument = remote, .open = open_remote, .is_folder = is_folder};
}
