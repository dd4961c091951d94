/* SPDX-License-Identifier: MIT */
/* Files in $XDG_STATE_HOME/memtally (else ~/.local/state/memtally). */
#ifndef CLI_STATE_FILE_H
#define CLI_STATE_FILE_H

#include <jansson.h>

#include "base/strbuf.h"

struct mt_error; /* <memtally/error.h> */

/* Appends the folder. Errors: MT_ENOTFOUND where neither XDG_STATE_HOME nor HOME is set. */
int cli_state_folder(struct mt_strbuf *path, struct mt_error *error);

/* Makes the folder and those above it; the text is changed meanwhile. */
int cli_state_make_folders(char *path, struct mt_error *error);

/* Reads the whole file. Returns 0 with text->data NULL where it is not there. */
int cli_state_read(const char *path, struct mt_strbuf *text, struct mt_error *error);

/* Replaces the file. */
int cli_state_save(const char *path, const json_t *root, struct mt_error *error);

#endif
