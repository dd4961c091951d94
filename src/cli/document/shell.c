/* SPDX-License-Identifier: MIT */
/* Quoting, and how each engine is started. */
#include "cli/document/shell.h"

#include <string.h>

#include <memtally/predict.h>

#include "cli/document/document.h"
#include "drive/engines.h"

void cli_put_shell_word(struct mt_strbuf *out, const char *word)
{
    size_t plain = strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "%+,-./:=@_");
    if (*word && !word[plain]) {
        mt_strbuf_puts(out, word);
        return;
    }
    mt_strbuf_puts(out, "'");
    for (; *word; word++) {
        if (*word == '\'')
            mt_strbuf_puts(out, "'\\''");
        else
            mt_strbuf_append(out, word, 1);
    }
    mt_strbuf_puts(out, "'");
}

/* How the engine is started, as its table says it. */
static const char *start_of(const struct mt_estimate *estimate, char text[MT_DRIVE_ENGINE_TEXT])
{
    const char *engine = estimate->tally.engine_name;
    if (estimate->settings.program == MT_PROGRAM_NODE &&
        *mt_drive_engine_text(engine, "start.node", text))
        return text;
    if (!*mt_drive_engine_text(engine, "start", text))
        strcpy(text, "%f");
    return text;
}

static int ends(const char *text, const char *ending)
{
    size_t length = strlen(text);
    size_t end = strlen(ending);
    return length >= end && strcmp(text + length - end, ending) == 0;
}

static const char *program_of(const struct cli_document *document)
{
    static const char *const names[] = {[MT_PROGRAM_SERVER] = "llama-server",
                                        [MT_PROGRAM_BENCH] = "llama-bench",
                                        [MT_PROGRAM_FIT_PARAMS] = "llama-fit-params",
                                        [MT_PROGRAM_NODE] = "node"};
    if (document->engine && document->engine->path)
        return document->engine->path;
    return names[document->estimate->settings.program];
}

/* The file that llama.cpp loads; what is in another format has to be made one first. */
static const char *file_of(const struct cli_document *document, const char *path)
{
    return document->model && document->model->is_converted ? "MODEL.gguf" : path;
}

/* The first `length` bytes of a path as a folder, "." for none. */
static void put_folder(struct mt_strbuf *out, const char *path, size_t length)
{
    struct mt_strbuf folder = {0};
    mt_strbuf_append(&folder, length ? path : ".", length ? length : 1);
    cli_put_shell_word(out, mt_strbuf_text(&folder));
    mt_strbuf_finish_part(&folder, out);
}

/* How many bytes of a path its folder takes: all of them where no file of a model is named. */
static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!ends(path, ".json") && !ends(path, ".safetensors") && !ends(path, ".gguf"))
        return strlen(path);
    return slash ? (size_t)(slash - path) : 0;
}

static size_t parent_length(const char *path, size_t length)
{
    while (length && path[length - 1] != '/')
        length--;
    return length > 1 ? length - 1 : length;
}

/* In double quotes, as languages have them. */
static void put_quoted(struct mt_strbuf *out, const char *text, size_t length)
{
    mt_strbuf_puts(out, "\"");
    for (size_t i = 0; i < length; i++) {
        if (strchr("\"\\", text[i]))
            mt_strbuf_puts(out, "\\");
        mt_strbuf_append(out, text + i, 1);
    }
    mt_strbuf_puts(out, "\"");
}

static void put_arguments(struct mt_strbuf *out, const char *flags)
{
    for (; *flags; flags++)
        mt_strbuf_puts(out, *flags == ' ' ? ", " : (const char[]){*flags, '\0'});
}

static void put_part(struct mt_strbuf *out, const struct cli_document *document, char part)
{
    const char *path = document->model && document->model->path ? document->model->path : "MODEL";
    size_t folder = folder_length(path);
    size_t parent = parent_length(path, folder);
    switch (part) {
    case 'p':
        cli_put_shell_word(out, program_of(document));
        return;
    case 'm':
        cli_put_shell_word(out, file_of(document, path));
        return;
    case 'M':
        put_quoted(out, file_of(document, path), strlen(file_of(document, path)));
        return;
    case 'd':
        put_folder(out, path, folder);
        return;
    case 'D':
        put_quoted(out, folder ? path : ".", folder ? folder : 1);
        return;
    case 'u':
        put_folder(out, path, parent);
        return;
    case 'n':
        put_folder(out, path + parent + (path[parent] == '/'),
                   folder - parent - (folder > parent && path[parent] == '/'));
        return;
    case 'a':
        put_arguments(out, document->estimate->flags);
        return;
    default:
        mt_strbuf_puts(out, document->estimate->flags);
    }
}

void cli_put_engine_command(struct mt_strbuf *out, const struct cli_document *document)
{
    const struct mt_estimate *estimate = document->estimate;
    if (!estimate->flags || !*estimate->flags)
        return;
    char start[MT_DRIVE_ENGINE_TEXT];
    for (const char *at = start_of(estimate, start); *at; at++) {
        if (*at == '%')
            put_part(out, document, *++at);
        else
            mt_strbuf_append(out, at, 1);
    }
}

const char *cli_engine_command_goes_on(const struct cli_document *document)
{
    char start[MT_DRIVE_ENGINE_TEXT];
    const struct mt_estimate *estimate = document->estimate;
    int is_node = estimate->settings.program == MT_PROGRAM_NODE &&
                  *mt_drive_engine_text(estimate->tally.engine_name, "start.node", start);
    return is_node ? "" : " \\";
}
