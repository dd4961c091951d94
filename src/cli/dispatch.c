/* SPDX-License-Identifier: MIT */
/* Runs one command: options parsed, help shown where asked for. */
#include "cli/dispatch.h"

#include <stdlib.h>
#include <string.h>

#include <memtally/error.h>

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

/* Whether this row of an option table was set so that JSON is written. */
static int says_json(const struct cli_option *option, const char *options)
{
    int value = 0;
    if (option->kind == CLI_FLAG || option->kind == CLI_CHOICE)
        memcpy(&value, options + option->offset, sizeof value);
    if (option->kind == CLI_FLAG && strcmp(option->name, "json") == 0)
        return value == (option->value ? option->value : 1);
    return option->kind == CLI_CHOICE && strcmp(option->name, "format") == 0 &&
           strcmp(option->choices[value], "json") == 0;
}

/* We search words that could not be parsed to their end; also those of a command that
 * has no such option, since whoever gave it reads the refusal by program. */
static int wants_json(const struct cmd_entry *entry, const void *options, char *const *words,
                      int is_parsed)
{
    int may_follow = !is_parsed;
    for (const struct cli_option *option = entry->options; option && option->name; option++) {
        may_follow |= strcmp(option->name, "json") == 0;
        if (says_json(option, options))
            return 1;
    }
    for (; may_follow && *words && strcmp(*words, "--") != 0; words++)
        if (strcmp(*words, "--json") == 0)
            return 1;
    return 0;
}

int cli_dispatch(const struct cmd_entry *entry, int argc, char **argv)
{
    void *options = calloc(1, entry->options_size ? entry->options_size : 1);
    if (!options) {
        cli_complain("out of memory");
        return CLI_EXIT_CANNOT;
    }
    struct cli_call call;
    struct mt_strbuf out = {0};
    struct mt_error error;
    int code;
    int parsed = cli_parse(entry, argc, argv, options, &call, &error);
    if (parsed == CLI_PARSED_HELP)
        code = show_help(entry);
    else if (parsed < 0)
        code = cli_fail(&error);
    else
        code = entry->run(&call);
    int is_due = !cli_has_printed() && wants_json(entry, options, argv, parsed >= 0);
    if (cli_conclude(entry->name, is_due, code, &out))
        cli_print(&out);
    mt_strbuf_finish(&out);
    free(options);
    return code;
}
