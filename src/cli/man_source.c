/* SPDX-License-Identifier: MIT */
/* Man pages in scdoc's language: prose with places that are filled from the table. */
#include <string.h>
#include <version.h>

#include "base/error.h"
#include "cli/help.h"

/* Text as it is, whatever scdoc would make of it. */
static void put_plain(struct mt_strbuf *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("\\*_#[]|<>~^`", *text))
            mt_strbuf_puts(out, "\\");
        mt_strbuf_append(out, text, 1);
    }
}

static void put_value(struct mt_strbuf *out, const struct cli_option *option)
{
    if (option->kind != CLI_CHOICE) {
        mt_strbuf_puts(out, "_");
        put_plain(out, option->argument);
        mt_strbuf_puts(out, "_");
        return;
    }
    for (size_t i = 0; option->choices[i]; i++) {
        mt_strbuf_puts(out, i ? "|*" : "*");
        put_plain(out, option->choices[i]);
        mt_strbuf_puts(out, "*");
    }
}

static void put_option(struct mt_strbuf *out, const struct cli_option *option)
{
    if (option->letter)
        mt_strbuf_printf(out, "*-%c*, ", option->letter);
    mt_strbuf_printf(out, "*--%s*", option->name);
    if (option->kind != CLI_FLAG) {
        mt_strbuf_puts(out, " ");
        put_value(out, option);
    }
    mt_strbuf_puts(out, "\n\t");
    put_plain(out, option->help);
    if (option->fallback) {
        mt_strbuf_puts(out, " (default: ");
        put_plain(out, option->fallback);
        mt_strbuf_puts(out, ")");
    }
    mt_strbuf_puts(out, ".\n\n");
}

static void put_options(struct mt_strbuf *out, const struct cmd_entry *entry)
{
    for (const struct cli_option *o = entry->options; o && o->name; o++)
        put_option(out, o);
    for (const struct cli_option *o = cli_common_options(); o->name; o++)
        put_option(out, o);
}

static void put_summary(struct mt_strbuf *out, const struct cmd_entry *entry)
{
    put_plain(out, entry->summary);
}

static void put_synopsis(struct mt_strbuf *out, const struct cmd_entry *entry)
{
    mt_strbuf_puts(out, "*memtally*");
    if (entry != &cmd_memtally)
        mt_strbuf_printf(out, " *%s*", entry->name);
    mt_strbuf_puts(out, " ");
    put_plain(out, entry->synopsis);
}

static void put_description(struct mt_strbuf *out, const struct cmd_entry *entry)
{
    for (const char *const *paragraph = entry->description; paragraph && *paragraph; paragraph++) {
        put_plain(out, *paragraph);
        mt_strbuf_puts(out, "\n\n");
    }
}

static void put_examples(struct mt_strbuf *out, const struct cmd_entry *entry)
{
    for (const struct cli_example *example = entry->examples; example && example->command;
         example++) {
        put_plain(out, example->says);
        mt_strbuf_printf(out, "\n\n```\n%s\n```\n\n", example->command);
    }
}

static void put_statuses(struct mt_strbuf *out, const struct cmd_entry *entry)
{
    for (const struct cli_status *status = cli_statuses_of(entry); status->code; status++) {
        mt_strbuf_puts(out, "*");
        put_plain(out, status->code);
        mt_strbuf_puts(out, "*\n\t");
        put_plain(out, status->means);
        mt_strbuf_puts(out, ".\n\n");
    }
}

static void put_commands(struct mt_strbuf *out, const struct cmd_entry *entry)
{
    (void)entry;
    for (const struct cmd_entry *const *command = cli_commands(); *command; command++) {
        mt_strbuf_printf(out, "*memtally-%s*(1)\n\t", (*command)->name);
        put_plain(out, (*command)->summary);
        mt_strbuf_puts(out, ".\n\n");
    }
}

static void put_version(struct mt_strbuf *out, const struct cmd_entry *entry)
{
    (void)entry;
    mt_strbuf_puts(out, MT_VERSION);
}

static const struct {
    const char *name;
    void (*put)(struct mt_strbuf *out, const struct cmd_entry *entry);
} places[] = {
    {"SUMMARY", put_summary},         {"SYNOPSIS", put_synopsis}, {"VERSION", put_version},
    {"DESCRIPTION", put_description}, {"OPTIONS", put_options},   {"EXAMPLES", put_examples},
    {"EXIT", put_statuses},           {"COMMANDS", put_commands},
};

/* Fills in the place called by `length` bytes at `name`. Returns 0 where there is none. */
static int fill_place(struct mt_strbuf *out, const struct cmd_entry *entry, const char *name,
                      size_t length)
{
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (strlen(places[i].name) == length && memcmp(places[i].name, name, length) == 0) {
            places[i].put(out, entry);
            return 1;
        }
    }
    return 0;
}

int cli_man_source(struct mt_strbuf *out, const struct cmd_entry *entry, const char *prose,
                   struct mt_error *error)
{
    const char *start = prose;
    while (*prose) {
        size_t plain = strcspn(prose, "@");
        mt_strbuf_append(out, prose, plain);
        prose += plain;
        if (!*prose)
            break;
        size_t length = strspn(prose + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        if (length == 0 || prose[1 + length] != '@') {
            mt_strbuf_puts(out, "@");
            prose++;
            continue;
        }
        if (!fill_place(out, entry, prose + 1, length))
            return mt_fail(error, MT_EFORMAT, (uint64_t)(prose - start),
                           "there is no place called @%.*s@", (int)length, prose + 1);
        prose += length + 2;
    }
    return 0;
}
