/* SPDX-License-Identifier: MIT */
/* Everything that is generated from the table of commands: help, man source, completions. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "base/strbuf.h"
#include "cli/command.h"
#include "cli/console.h"

struct mt_error; /* <memtally/error.h> */

/* The list of commands. */
void cli_help_overview(struct mt_strbuf *out, const struct cli_terminal *terminal);

/* The help of one command. */
void cli_help_command(struct mt_strbuf *out, const struct cli_terminal *terminal,
                      const struct cmd_entry *entry);

/* Its options as JSON, of kind "options". */
void cli_help_json(struct mt_strbuf *out, const struct cmd_entry *entry);

/* The exit statuses of a command, ended by a row of NULLs. */
const struct cli_status *cli_statuses_of(const struct cmd_entry *entry);

/* A man page in scdoc's language: `prose` with the places @SUMMARY@, @SYNOPSIS@, @DESCRIPTION@,
 * @OPTIONS@, @EXAMPLES@, @EXIT@ and @COMMANDS@ filled in. Returns 0, or MT_EFORMAT where the prose
 * has a place of another name. */
int cli_man_source(struct mt_strbuf *out, const struct cmd_entry *entry, const char *prose,
                   struct mt_error *error);

/* Completion scripts. */
void cli_completion_bash(struct mt_strbuf *out);
void cli_completion_zsh(struct mt_strbuf *out);

#endif
