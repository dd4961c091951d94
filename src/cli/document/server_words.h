/* SPDX-License-Identifier: MIT */
/* What the server of a known engine says beside what the kernel says, in a document. */
#ifndef CLI_SERVER_WORDS_H
#define CLI_SERVER_WORDS_H

#include "cli/document/document.h"
#include "drive/running.h"

#define CLI_SERVER_NOTES 4

/* Start with {0}; a document borrows from it. */
struct cli_server_words {
    struct mt_drive_running running;
    struct mt_drive_running_header header;
    struct mt_drive_words words;
    struct cli_document_engine engine;
    struct cli_document_model model;
    struct cli_document_settings settings;
    char texts[CLI_SERVER_NOTES][320];
    const char *notes[CLI_SERVER_NOTES];
    size_t n_notes;
};

/* Looks which engine `pid` and its descendants are, asks it for at most `timeout_ms`, and reads the
 * header of its model while it is there. */
void cli_server_words_look(struct cli_server_words *said, int pid, uint64_t timeout_ms);

void cli_server_words_finish(struct cli_server_words *said);

/* Tells the tally what the server's words make of it, and sets the document's engine, model,
 * settings and notes. Returns 0 or the error of the library. */
int cli_server_words_put(struct cli_server_words *said, struct mt_tally *tally,
                         struct cli_document *document, struct mt_error *error);

#endif
