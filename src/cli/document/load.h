/* SPDX-License-Identifier: MIT */
/* What a profile left beside its recording: engine, model, settings, runs and phases, out of its
 * report.json; and the settings that any report says. The figures of the tally are never taken
 * from there. */
#ifndef CLI_DOCUMENT_LOAD_H
#define CLI_DOCUMENT_LOAD_H

#include <jansson.h>

#include "document.h"

struct cli_document_kept;
struct mt_error; /* <memtally/error.h> */

/* The settings that a document's JSON says; what is of the wrong type is unknown. The texts are
 * borrowed from `root`, which may be anything. */
struct cli_document_settings cli_document_settings_of(const json_t *root);

/* Reads `folder`/report.json, which may be missing, foreign or damaged: what is of the wrong type
 * is unknown, and a file that is no report of memtally gives a note. On success *kept is owned by
 * the caller and NULL where there is no such file. Errors: MT_ENOMEM. */
int cli_document_kept_read(const char *folder, struct cli_document_kept **kept,
                           struct mt_error *error);

/* Lets `document` borrow what was kept. Takes NULL. */
void cli_document_kept_use(struct cli_document_kept *kept, struct cli_document *document);

/* Takes NULL. */
void cli_document_kept_destroy(struct cli_document_kept *kept);

#endif
