/* SPDX-License-Identifier: MIT */
/* Runs one command: options parsed, help shown where asked for. */
#include "cli/dispatch.h"

#include <stdlib.h>

#include "cli/console.h"
#include "cli/help.h"
#include "cli/opt.h"

static int show_help(const struct cmd_entry *entry)
{
    struct cli_terminal terminal = cli_terminal_of(1);
    struct mt_strbuf out = {0};
    if (entry == &cmd_memtally)
        cli_help_overview(&out, &terminal);
    else
        cli_help_command(&out, &terminal, entry);
    int code = cli_print(&out);
    mt_strbuf_finish(&out);
    return code;
}

int cli_dispatch(const struct cmd_entry *entry, int argc, char **argv)
{
    void *options = calloc(1, entry->options_size ? entry->options_size : 1);
    if (!options) {
        cli_complain("out of memory");
        return CLI_EXIT_CANNOT;
    }
    struct cli_call call;
    struct mt_error error;
    int code;
    int parsed = cli_parse(entry, argc, argv, options, &call, &error);
    if (parsed == CLI_PARSED_HELP)
        code = show_help(entry);
    else if (parsed < 0)
        code = cli_fail(&error);
    else
        code = entry->run(&call);
    free(options);
    return code;
}
