/* SPDX-License-Identifier: MIT */
/* Words as a shell takes them, and the command line with which an engine is started as it was
 * estimated. */
#ifndef CLI_SHELL_H
#define CLI_SHELL_H

#include "base/strbuf.h"

/* Appends a word, in quotes where it needs them. */
void cli_put_shell_word(struct mt_strbuf *out, const char *word);

struct cli_document;

/* Appends the whole command line of an estimate's engine: its program, the model and the flags. Of
 * engines that are called from a language it is a line of that. Nothing where the estimate has no
 * flags. */
void cli_put_engine_command(struct mt_strbuf *out, const struct cli_document *document);

/* What ends a line of it that goes on: " \\" for a shell and for Python, nothing for JavaScript. */
const char *cli_engine_command_goes_on(const struct cli_document *document);

#endif
