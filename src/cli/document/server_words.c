/* SPDX-License-Identifier: MIT */
/* From a running server's words to a document. */
#include "cli/document/server_words.h"

#include <inttypes.h>
#include <memtally/units.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/hub_cache.h"

static const char *or_null(const char *text)
{
    return *text ? text : NULL;
}

static void add_note(struct cli_server_words *said, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add_note(struct cli_server_words *said, const char *format, ...)
{
    va_list arguments;
    if (said->n_notes == CLI_SERVER_NOTES)
        return;
    va_start(arguments, format);
    vsnprintf(said->texts[said->n_notes], sizeof said->texts[0], format, arguments);
    va_end(arguments);
    said->notes[said->n_notes] = said->texts[said->n_notes];
    said->n_notes++;
}

static void note_settings(struct cli_server_words *said)
{
    const struct mt_drive_running *running = &said->running;
    char settings[96] = "nothing of its settings";
    char room[64] = "";
    if (running->context_tokens && running->sequences)
        snprintf(settings, sizeof settings,
                 "%" PRIu64 " tokens of context for each of %" PRIu64 " sequence%s",
                 running->context_tokens, running->sequences, running->sequences == 1 ? "" : "s");
    else if (running->context_tokens)
        snprintf(settings, sizeof settings, "%" PRIu64 " tokens of context",
                 running->context_tokens);
    if (running->cache_tokens && !running->is_logged)
        snprintf(room, sizeof room, ", room for %" PRIu64 " tokens in its cache",
                 running->cache_tokens);
    add_note(said, "at port %d%s %s says: %s%s", running->port,
             running->is_elsewhere ? " of its own network" : "", running->engine, settings, room);
}

static void note_loaded(struct cli_server_words *said)
{
    char all[MT_SIZE_TEXT];
    char device[MT_SIZE_TEXT];
    if (said->running.is_told_loaded)
        add_note(said, "by its own word %s has loaded %s, of which %s on devices",
                 said->running.engine, mt_format_size(said->running.loaded_bytes, all),
                 mt_format_size(said->running.loaded_device_bytes, device));
}

/* The file or folder that the server's word for its model means; 0 where there is none. */
static int find_model(const struct mt_drive_running *running,
                      const struct mt_drive_running_files *opened, char path[PATH_MAX])
{
    const struct mt_model_files *files = &opened->files;
    return (*running->model && mt_drive_running_path(opened, running->model, path) &&
            cli_files_have(files, path)) ||
           cli_hub_cache_find(files, running->model, running->variables, path, PATH_MAX);
}

void cli_server_words_look(struct cli_server_words *said, int pid, uint64_t timeout_ms)
{
    struct mt_drive_running_files opened;
    char path[PATH_MAX];
    mt_drive_running_look("/proc", pid, timeout_ms, &said->running);
    if (!*said->running.engine)
        return;
    mt_drive_running_files_open("/proc", &said->running, &opened);
    if (find_model(&said->running, &opened, path))
        mt_drive_running_header_open(&opened.files, path, &said->header);
    mt_drive_running_files_close(&opened);
}

void cli_server_words_finish(struct cli_server_words *said)
{
    mt_drive_running_header_close(&said->header);
}

/* A server that does not say which model it has may have mapped one. */
static void read_mapped_model(struct cli_server_words *said, const char *mapped)
{
    struct mt_drive_running_files opened;
    char path[PATH_MAX];
    mt_drive_running_files_open("/proc", &said->running, &opened);
    if (mt_drive_running_path(&opened, mapped, path) && cli_files_have(&opened.files, path) &&
        mt_drive_running_lives("/proc", &said->running))
        mt_drive_running_header_open(&opened.files, path, &said->header);
    mt_drive_running_files_close(&opened);
}

static int tell(struct cli_server_words *said, struct mt_tally *tally, struct mt_error *error)
{
    if (!said->header.model && !*said->header.why && *said->running.engine && tally->model_path)
        read_mapped_model(said, tally->model_path);
    mt_drive_running_words(&said->running, &said->header, tally, &said->words);
    for (size_t i = 0; i < said->words.n; i++) {
        int result = mt_tally_tell(tally, &said->words.items[i], error);
        if (result < 0)
            return result;
    }
    return 0;
}

static void describe(struct cli_server_words *said, const struct mt_tally *tally)
{
    const struct mt_drive_running *running = &said->running;
    said->engine = (struct cli_document_engine){
        .name = running->engine, .version = or_null(running->version), .path = NULL};
    said->model = (struct cli_document_model){
        .path = tally->model_path ? tally->model_path : running->shown_model,
        .parameters = MT_UNKNOWN,
        .weight_bytes = MT_UNKNOWN,
        .layers = MT_UNKNOWN,
        .trained_context_tokens = MT_UNKNOWN,
    };
    said->settings = (struct cli_document_settings)CLI_SETTINGS_UNKNOWN;
    if (running->context_tokens)
        said->settings.context_tokens = running->context_tokens;
    if (running->sequences)
        said->settings.sequences = running->sequences;
}

static void note(struct cli_server_words *said)
{
    const struct mt_drive_running *running = &said->running;
    if (running->port)
        note_settings(said);
    else if (*running->problem)
        add_note(said, "%s", running->problem);
    if (running->is_logged)
        add_note(said, "its log says: room for %" PRIu64 " tokens in its cache",
                 running->cache_tokens);
    note_loaded(said);
    if (*said->words.why)
        add_note(said, "not all of its memory is told apart: %s", said->words.why);
}

int cli_server_words_put(struct cli_server_words *said, struct mt_tally *tally,
                         struct cli_document *document, struct mt_error *error)
{
    const struct mt_drive_running *running = &said->running;
    int result = tell(said, tally, error);
    if (result < 0)
        return result;
    describe(said, tally);
    note(said);
    if (*running->engine)
        document->engine = &said->engine;
    if (*running->model)
        document->model = &said->model;
    if (running->context_tokens || running->sequences)
        document->settings = &said->settings;
    document->notes = said->notes;
    document->n_notes = said->n_notes;
    return 0;
}
