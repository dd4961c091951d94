/* SPDX-License-Identifier: MIT */
/* From a command line to a running command. */
#ifndef CLI_DISPATCH_H
#define CLI_DISPATCH_H

#include "cli/command.h"

/* Parses the words after the command's name and runs it, or shows its help. Returns the exit
 * code. */
int cli_dispatch(const struct cmd_entry *entry, int argc, char **argv);

/* Complains about a command that is not there, with the nearest name. Returns CLI_EXIT_USAGE. */
int cli_complain_unknown_command(const char *name);

#endif
