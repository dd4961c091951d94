/* SPDX-License-Identifier: MIT */
/* The program by itself: its version, and the way to its commands. */
#include <jansson.h>
#include <stdio.h>
#include <unistd.h>
#include <version.h>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/dispatch.h"
#include "cli/help.h"
#include "cli/suggest.h"
#include "emit/json.h"

struct memtally_options {
    int version;
    int json;
};

#define AT(member) offsetof(struct memtally_options, member)

static const struct cli_option memtally_options[] = {
    {.name = "version",
     .kind = CLI_FLAG,
     .offset = AT(version),
     .help = "print the version and exit"},
    {.name = "json",
     .kind = CLI_FLAG,
     .offset = AT(json),
     .help = "with --version: print facts of the build as JSON"},
    {0},
};

static void version_json(struct mt_strbuf *out)
{
    struct mt_json json = {0};
    mt_json_begin_object(&json, NULL);
    mt_json_text(&json, "name", "memtally");
    mt_json_text(&json, "version", MT_VERSION);
    mt_json_text(&json, "schema", "memtally/1");
    mt_json_text(&json, "compiler", __VERSION__);
    mt_json_text(&json, "jansson", JANSSON_VERSION);
    mt_json_text(&json, "recorder_dir", MT_RECORDER_DIR);
    mt_json_end(&json);
    mt_json_finish(&json, out);
}

static int print_version(int json)
{
    struct mt_strbuf out = {0};
    if (json)
        version_json(&out);
    else
        mt_strbuf_puts(&out, "memtally " MT_VERSION "\n");
    int code = cli_print(&out);
    mt_strbuf_finish(&out);
    return code;
}

static int complain_no_command(void)
{
    struct cli_terminal terminal = cli_terminal_of(STDERR_FILENO);
    struct mt_strbuf out = {0};
    cli_help_overview(&out, &terminal);
    fputs(mt_strbuf_text(&out), stderr);
    mt_strbuf_finish(&out);
    return CLI_EXIT_USAGE;
}

int cli_complain_unknown_command(const char *name)
{
    struct cli_suggestion suggestion = {.wanted = name};
    for (const struct cmd_entry *const *entry = cli_commands(); *entry; entry++)
        cli_suggestion_offer(&suggestion, (*entry)->name);
    if (suggestion.best)
        cli_complain("unknown command '%.80s' (did you mean '%s'?); see 'memtally help'", name,
                     suggestion.best);
    else
        cli_complain("unknown command '%.80s'; see 'memtally help'", name);
    return CLI_EXIT_USAGE;
}

static int run_memtally(const struct cli_call *call)
{
    const struct memtally_options *options = call->options;
    if (options->version)
        return print_version(options->json);
    if (call->n_operands == 0)
        return complain_no_command();
    const struct cmd_entry *entry = cli_command_by_name(call->operands[0]);
    if (!entry)
        return cli_complain_unknown_command(call->operands[0]);
    return cli_dispatch(entry, (int)call->n_operands - 1, call->operands + 1);
}

static const char *const description[] = {
    "Says where the memory of a large language model goes: by category, on any engine, adding up "
    "to what the kernel says.",
    NULL,
};

const struct cmd_entry cmd_memtally = {
    .name = "memtally",
    .synopsis = "[--version] [--help] COMMAND [options]",
    .summary = "accounts for the memory of large language models",
    .description = description,
    .options = memtally_options,
    .options_size = sizeof(struct memtally_options),
    .operands = CLI_OPERANDS_PROGRAM,
    .run = run_memtally,
};
