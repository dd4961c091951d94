/* SPDX-License-Identifier: MIT */
/* The options of a command as a document, for programs that call memtally: what each takes, from
 * the table that the parser reads. */
#include "cli/help.h"
#include "emit/json.h"

/* By enum cli_option_kind. */
static const char *const takes[] = {
    [CLI_FLAG] = "nothing", [CLI_TEXT] = "text",           [CLI_TEXTS] = "texts",
    [CLI_FILE] = "file",    [CLI_DIRECTORY] = "directory", [CLI_SIZE] = "size",
    [CLI_COUNT] = "count",  [CLI_REAL] = "real",           [CLI_CHOICE] = "choice",
};

static void put_choices(struct mt_json *json, const struct cli_option *option)
{
    if (option->kind != CLI_CHOICE) {
        mt_json_null(json, "choices");
        return;
    }
    mt_json_begin_array(json, "choices");
    for (size_t i = 0; option->choices[i]; i++)
        mt_json_text(json, NULL, option->choices[i]);
    mt_json_end(json);
}

static void put_option(struct mt_json *json, const struct cli_option *option)
{
    char letter[] = {option->letter, '\0'};
    mt_json_begin_object(json, NULL);
    mt_json_text(json, "name", option->name);
    mt_json_text(json, "letter", option->letter ? letter : NULL);
    mt_json_text(json, "takes", takes[option->kind]);
    put_choices(json, option);
    mt_json_text(json, "default", option->fallback);
    mt_json_text(json, "help", option->help);
    mt_json_end(json);
}

void cli_help_json(struct mt_strbuf *out, const struct cmd_entry *entry)
{
    struct mt_json json = {0};
    mt_json_begin_object(&json, NULL);
    mt_json_text(&json, "schema", "memtally/1");
    mt_json_text(&json, "kind", "options");
    mt_json_text(&json, "command", entry->name);
    mt_json_text(&json, "summary", entry->summary);
    mt_json_begin_array(&json, "options");
    for (const struct cli_option *o = entry->options; o && o->name; o++)
        put_option(&json, o);
    for (const struct cli_option *o = cli_common_options(); o->name; o++)
        put_option(&json, o);
    mt_json_end(&json);
    mt_json_end(&json);
    mt_json_finish(&json, out);
}
