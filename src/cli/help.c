/* SPDX-License-Identifier: MIT */
/* Help texts from the table, wrapped to the terminal. */
#include "cli/help.h"

#include <string.h>

#include "emit/text.h"

#define OPTION_COLUMN 4
#define HELP_COLUMN   8

static void heading(struct mt_strbuf *out, const struct cli_terminal *terminal, const char *text)
{
    mt_strbuf_printf(out, "\n%s%s%s\n", cli_bold(terminal), text, cli_plain(terminal));
}

/* The choices, on more lines than one where they are many. */
static void option_choices(struct mt_strbuf *out, const struct cli_option *option, size_t columns)
{
    size_t used = OPTION_COLUMN + strlen("--") + strlen(option->name) + 1;
    for (size_t i = 0; option->choices[i]; i++) {
        size_t length = strlen(option->choices[i]) + 1;
        mt_strbuf_puts(out, i ? "|" : "");
        if (i && used + length > columns) {
            mt_strbuf_printf(out, "\n%*s", 2 * HELP_COLUMN, "");
            used = 2 * HELP_COLUMN;
        }
        mt_strbuf_puts(out, option->choices[i]);
        used += length;
    }
}

static void option_value(struct mt_strbuf *out, const struct cli_option *option, size_t columns)
{
    if (option->kind == CLI_CHOICE)
        option_choices(out, option, columns);
    else
        mt_strbuf_puts(out, option->argument);
}

static void help_option(struct mt_strbuf *out, const struct cli_terminal *terminal,
                        const struct cli_option *option)
{
    mt_strbuf_printf(out, "%*s%s", OPTION_COLUMN, "", cli_bold(terminal));
    if (option->letter)
        mt_strbuf_printf(out, "-%c, ", option->letter);
    mt_strbuf_printf(out, "--%s%s", option->name, cli_plain(terminal));
    if (option->kind != CLI_FLAG) {
        mt_strbuf_puts(out, " ");
        option_value(out, option, (size_t)cli_text_columns(terminal));
    }
    mt_strbuf_puts(out, "\n");
    struct mt_strbuf text = {0};
    mt_strbuf_puts(&text, option->help);
    if (option->fallback)
        mt_strbuf_printf(&text, " (default: %s)", option->fallback);
    mt_text_wrap(out, mt_strbuf_text(&text), HELP_COLUMN, cli_text_columns(terminal));
    mt_strbuf_finish(&text);
}

static void help_options(struct mt_strbuf *out, const struct cli_terminal *terminal,
                         const struct cmd_entry *entry)
{
    heading(out, terminal, "Options");
    for (const struct cli_option *o = entry->options; o && o->name; o++)
        help_option(out, terminal, o);
    for (const struct cli_option *o = cli_common_options(); o->name; o++)
        help_option(out, terminal, o);
}

static const struct cli_status common_statuses[] = {
    {"0", "success"},
    {"1", "the answer is no, or the work failed"},
    {"2", "wrong usage or bad input"},
    {"3", "this machine cannot: no permission, no kernel support, no memory"},
    {0},
};

const struct cli_status *cli_statuses_of(const struct cmd_entry *entry)
{
    return entry->statuses ? entry->statuses : common_statuses;
}

static void help_statuses(struct mt_strbuf *out, const struct cli_terminal *terminal,
                          const struct cmd_entry *entry)
{
    heading(out, terminal, "Exit status");
    for (const struct cli_status *status = cli_statuses_of(entry); status->code; status++) {
        struct mt_strbuf text = {0};
        mt_strbuf_printf(&text, "%s  %s", status->code, status->means);
        mt_text_wrap(out, mt_strbuf_text(&text), OPTION_COLUMN, cli_text_columns(terminal));
        mt_strbuf_finish(&text);
    }
}

static void help_examples(struct mt_strbuf *out, const struct cli_terminal *terminal,
                          const struct cmd_entry *entry)
{
    if (!entry->examples)
        return;
    heading(out, terminal, "Examples");
    for (const struct cli_example *example = entry->examples; example->command; example++) {
        mt_strbuf_printf(out, "%*s%s\n", OPTION_COLUMN, "", example->command);
        mt_text_wrap(out, example->says, HELP_COLUMN, cli_text_columns(terminal));
    }
}

void cli_help_command(struct mt_strbuf *out, const struct cli_terminal *terminal,
                      const struct cmd_entry *entry)
{
    mt_strbuf_printf(out, "%smemtally %s%s %s\n\n", cli_bold(terminal), entry->name,
                     cli_plain(terminal), entry->synopsis);
    for (const char *const *paragraph = entry->description; paragraph && *paragraph; paragraph++) {
        if (paragraph != entry->description)
            mt_strbuf_puts(out, "\n");
        mt_text_wrap(out, *paragraph, 0, cli_text_columns(terminal));
    }
    help_options(out, terminal, entry);
    help_examples(out, terminal, entry);
    help_statuses(out, terminal, entry);
}

void cli_help_overview(struct mt_strbuf *out, const struct cli_terminal *terminal)
{
    mt_strbuf_printf(out, "%smemtally%s %s\n\n", cli_bold(terminal), cli_plain(terminal),
                     cmd_memtally.synopsis);
    for (const char *const *paragraph = cmd_memtally.description; *paragraph; paragraph++)
        mt_text_wrap(out, *paragraph, 0, cli_text_columns(terminal));
    heading(out, terminal, "Commands");
    for (const struct cmd_entry *const *entry = cli_commands(); *entry; entry++)
        mt_strbuf_printf(out, "%*s%s%-14s%s%s\n", OPTION_COLUMN, "", cli_bold(terminal),
                         (*entry)->name, cli_plain(terminal), (*entry)->summary);
    help_options(out, terminal, &cmd_memtally);
    mt_strbuf_puts(out, "\n'memtally help COMMAND' tells more about a command.\n");
}
