/* SPDX-License-Identifier: MIT */
/* memtally help: what is generated from the table of commands. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memtally/error.h>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/dispatch.h"
#include "cli/help.h"

struct help_options {
    int completion;
    const char *man;
    int json;
};

enum { COMPLETION_NONE, COMPLETION_BASH, COMPLETION_ZSH };
static const char *const shells[] = {"none", "bash", "zsh", NULL};

#define AT(member) offsetof(struct help_options, member)

static const struct cli_option help_options[] = {
    {.name = "completion",
     .kind = CLI_CHOICE,
     .argument = "SHELL",
     .choices = shells,
     .offset = AT(completion),
     .help = "print the completion script for a shell"},
    {.name = "man",
     .kind = CLI_FILE,
     .argument = "FILE",
     .offset = AT(man),
     .help = "print FILE, a man page in scdoc's language, with its places filled in from the "
             "tables of options"},
    {.name = "json",
     .kind = CLI_FLAG,
     .offset = AT(json),
     .help = "print the options of COMMAND and what each takes, as JSON"},
    {0},
};

static int read_file(const char *path, struct mt_strbuf *text)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return errno;
    char bytes[4096];
    size_t length;
    while ((length = fread(bytes, 1, sizeof bytes, file)) > 0)
        mt_strbuf_append(text, bytes, length);
    int failed = ferror(file) ? EIO : 0;
    fclose(file);
    return failed;
}

static int man_page(struct mt_strbuf *out, const struct cmd_entry *entry, const char *path)
{
    struct mt_strbuf prose = {0};
    int failed = read_file(path, &prose);
    if (failed) {
        cli_complain("help: cannot read %s: %s", path, strerror(failed));
        mt_strbuf_finish(&prose);
        return CLI_EXIT_USAGE;
    }
    struct mt_error error;
    int result = cli_man_source(out, entry, mt_strbuf_text(&prose), &error);
    mt_strbuf_finish(&prose);
    return result ? cli_fail(&error) : CLI_EXIT_OK;
}

static int fill(struct mt_strbuf *out, const struct help_options *options,
                const struct cmd_entry *entry)
{
    struct cli_terminal terminal = cli_terminal_of(STDOUT_FILENO);
    if (options->man)
        return man_page(out, entry, options->man);
    if (options->completion == COMPLETION_BASH)
        cli_completion_bash(out);
    else if (options->completion == COMPLETION_ZSH)
        cli_completion_zsh(out);
    else if (options->json)
        cli_help_json(out, entry);
    else if (entry == &cmd_memtally)
        cli_help_overview(out, &terminal);
    else
        cli_help_command(out, &terminal, entry);
    return CLI_EXIT_OK;
}

static int run_help(const struct cli_call *call)
{
    const struct cmd_entry *entry = &cmd_memtally;
    if (call->n_operands && strcmp(call->operands[0], "memtally") != 0)
        entry = cli_command_by_name(call->operands[0]);
    if (!entry)
        return cli_complain_unknown_command(call->operands[0]);
    struct mt_strbuf out = {0};
    int code = fill(&out, call->options, entry);
    if (code == CLI_EXIT_OK)
        code = cli_print(&out);
    mt_strbuf_finish(&out);
    return code;
}

static const char *const description[] = {
    "Lists the commands, or shows the help of one. Completion scripts and man pages come from the "
    "same table as the help.",
    NULL,
};

static const struct cli_example examples[] = {
    {"memtally help run", "How to record a program."},
    {"memtally help --json estimate", "What each option of 'estimate' takes, for a program."},
    {"source <(memtally help --completion bash)", "Completes memtally in this shell."},
    {0},
};

const struct cmd_entry cmd_help = {
    .name = "help",
    .synopsis = "[options] [COMMAND]",
    .summary = "list the commands, or show the help of one",
    .description = description,
    .examples = examples,
    .options = help_options,
    .options_size = sizeof(struct help_options),
    .operands = CLI_OPERANDS_COMMANDS,
    .most_operands = 1,
    .run = run_help,
};
