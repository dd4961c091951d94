/* SPDX-License-Identifier: MIT */
/* The list of commands. */
#include "cli/command.h"

#include <string.h>

#define X(name) extern const struct cmd_entry cmd_##name;
#include "cli/commands.def"
#undef X

static const struct cmd_entry *const all_commands[] = {
#define X(name) &cmd_##name,
#include "cli/commands.def"
#undef X
    NULL,
};

const struct cmd_entry *const *cli_commands(void)
{
    return all_commands;
}

const struct cmd_entry *cli_command_by_name(const char *name)
{
    for (const struct cmd_entry *const *entry = all_commands; *entry; entry++)
        if (strcmp((*entry)->name, name) == 0)
            return *entry;
    return NULL;
}

static const struct cli_option common_options[] = {
    {.name = "help", .letter = 'h', .kind = CLI_FLAG, .help = "show this help and exit"},
    {0},
};

const struct cli_option *cli_common_options(void)
{
    return common_options;
}
