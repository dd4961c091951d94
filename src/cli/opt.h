/* SPDX-License-Identifier: MIT */
/* Parsing a command line by an option table. */
#ifndef CLI_OPT_H
#define CLI_OPT_H

#include "cli/command.h"

struct mt_error; /* <memtally/error.h> */

enum cli_parsed { CLI_PARSED = 0, CLI_PARSED_HELP = 1 };

/* Parses `argv` (which ends with NULL) by the table of `entry` into the options struct `options`,
 * which is `entry->options_size` zero bytes before. Operands are gathered at the front of argv;
 * `call` is filled in. Options may stand after operands, up to `--`, except where operands are a
 * program's command line: there the first operand ends the options. Long options take `--x=v` and
 * `--x v`, short ones `-xv` and `-x v`; names are not abbreviated.
 * Returns CLI_PARSED, CLI_PARSED_HELP when --help was met (the rest is then not looked at), or
 * MT_EARG with error->text saying which option, what is valid, and what was probably meant. */
int cli_parse(const struct cmd_entry *entry, int argc, char **argv, void *options,
              struct cli_call *call, struct mt_error *error);

#endif
