/* SPDX-License-Identifier: MIT */
/* A rehearsal as text for people: the command line, how it went, what would fit, what came late. */
#include <inttypes.h>
#include <memtally/units.h>
#include <stdio.h>
#include <string.h>

#include "cli/document_parts.h"
#include "emit/text.h"

#define LATE_SHOWN  20
#define WORDS_SHOWN 12

/* The command line as a shell would take it. */
static void put_command(const struct cli_document_rehearsal *rehearsal,
                        const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    struct mt_strbuf text = {0};
    for (char *const *word = rehearsal->argv; *word; word++) {
        int is_plain = **word && !strpbrk(*word, " \t\n'\"\\$`*?[]{}()<>|&;!#~");
        mt_strbuf_printf(&text, is_plain ? "%s%s" : "%s'%s'", word == rehearsal->argv ? "" : " ",
                         *word);
    }
    cli_table_fact(terminal, out, "command", "%s", mt_strbuf_text(&text));
    mt_strbuf_finish(&text);
}

static void put_requests(const struct cli_document_rehearsal *rehearsal,
                         const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    struct mt_strbuf text = {0};
    if (!rehearsal->is_ready)
        return;
    mt_strbuf_printf(&text, "ready; %" PRIu64 " request%s", rehearsal->n_requests,
                     rehearsal->n_requests == 1 ? "" : "s");
    if (rehearsal->prompt_tokens)
        mt_strbuf_printf(&text, ", the longest prompt of %" PRIu64 " tokens",
                         rehearsal->prompt_tokens);
    if (rehearsal->n_requests_refused)
        mt_strbuf_printf(&text, "; %" PRIu64 " answered with an error: %s",
                         rehearsal->n_requests_refused, rehearsal->complaint);
    cli_table_fact(terminal, out, "served", "%s", mt_strbuf_text(&text));
    mt_strbuf_finish(&text);
}

static void put_end(const struct cli_document_rehearsal *rehearsal,
                    const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    char time[CLI_TIME_TEXT];
    cli_format_time(rehearsal->elapsed_ns, time);
    if (rehearsal->signal)
        cli_table_fact(terminal, out, "program", "killed by signal %d (%s) after %s",
                       rehearsal->signal, strsignal(rehearsal->signal), time);
    else if (rehearsal->exit_code < 0)
        cli_table_fact(terminal, out, "program", "ended by memtally after %s", time);
    else
        cli_table_fact(terminal, out, "program", "exited with status %d after %s",
                       rehearsal->exit_code, time);
}

/* An engine that was refused memory and went on with less. */
static void put_coped(const struct cli_document_rehearsal *rehearsal,
                      const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    const struct mt_rehearse_event *refusal = rehearsal->refusal;
    char size[MT_SIZE_TEXT];
    if (!rehearsal->ran || !refusal)
        return;
    cli_table_fact(terminal, out, "coped",
                   "%" PRIu64 " allocation%s did not fit, the last of %s at %s (%s), and the "
                   "program went on without",
                   rehearsal->n_refusals, rehearsal->n_refusals == 1 ? "" : "s",
                   mt_format_size(refusal->bytes, size), refusal->place, refusal->name);
}

static void put_changes(const struct cli_document_rehearsal *rehearsal,
                        const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    for (size_t i = 0; i < rehearsal->n_changes; i++) {
        const struct cli_document_change *change = &rehearsal->changes[i];
        cli_table_fact(terminal, out, i ? "" : "would fit", "%s%s%s%s%s", change->flags,
                       *change->instead_of ? " instead of " : "", change->instead_of,
                       change->costs ? ": " : "", change->costs ? change->costs : "");
    }
}

/* The last of the last words. */
static const char *tail_of(const char *words)
{
    const char *at = words + strlen(words);
    for (int n = 0; at > words; at--)
        if (at[-1] == '\n' && ++n == WORDS_SHOWN)
            break;
    return at;
}

static void put_words(const struct cli_document_rehearsal *rehearsal,
                      const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    if (rehearsal->ran || !*rehearsal->words)
        return;
    cli_table_heading(terminal, "The program's last words", out);
    for (const char *line = tail_of(rehearsal->words); *line;) {
        size_t length = strcspn(line, "\n");
        struct mt_strbuf raw = {0};
        struct mt_strbuf escaped = {0};
        mt_strbuf_append(&raw, line, length);
        mt_text_escape(&escaped, mt_strbuf_text(&raw), terminal->utf8);
        mt_text_wrap(out, mt_strbuf_text(&escaped), 0, (size_t)terminal->columns);
        mt_strbuf_finish(&raw);
        mt_strbuf_finish(&escaped);
        line += length + (line[length] == '\n');
    }
}

void cli_table_rehearsal(const struct cli_document *document, const struct cli_terminal *terminal,
                         struct mt_strbuf *out)
{
    const struct cli_document_rehearsal *rehearsal = document->rehearsal;
    put_command(rehearsal, terminal, out);
    put_requests(rehearsal, terminal, out);
    put_end(rehearsal, terminal, out);
    put_coped(rehearsal, terminal, out);
    put_changes(rehearsal, terminal, out);
    put_words(rehearsal, terminal, out);
}

static void add_late(struct mt_text_table *table, const struct cli_document_late *late)
{
    char time[CLI_TIME_TEXT];
    char growth[MT_SIZE_TEXT + 16];
    char size[MT_SIZE_TEXT];
    char what[160];
    snprintf(what, sizeof what, "%s %s%s%s",
             late->category ? mt_category_name(late->category) : "memory", late->name,
             *late->detail ? ": " : "", late->detail);
    uint64_t more =
        late->bytes > late->before_bytes ? late->bytes - late->before_bytes : late->bytes;
    mt_format_size(late->bytes < late->before_bytes ? late->before_bytes - late->bytes : more,
                   size);
    snprintf(growth, sizeof growth, "%s%s",
             late->was_refused                  ? "refused "
             : late->bytes < late->before_bytes ? "-"
                                                : "+",
             size);
    const char *step = strstr(late->step, ": ");
    const struct mt_cell cells[] = {{.text = what},
                                    {.text = late->place},
                                    {.text = growth},
                                    {.text = cli_format_time(late->time_ns, time)},
                                    {.text = step ? step + 2 : late->step}};
    mt_text_table_add(table, 0, late->was_refused ? MT_ROW_BOLD : MT_ROW_PLAIN, cells);
}

void cli_table_rehearsal_late(const struct cli_document *document,
                              const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    static const struct mt_text_table_column columns[] = {
        {"taken late", MT_CELL_TEXT, 0},  {"place", MT_CELL_TEXT, 0},
        {"bytes", MT_CELL_TEXT_RIGHT, 0}, {"after", MT_CELL_TEXT_RIGHT, 0},
        {"step", MT_CELL_TEXT, 1},
    };
    const struct cli_document_rehearsal *rehearsal = document->rehearsal;
    struct mt_text_table table;
    size_t shown = rehearsal->n_late;
    if (!shown)
        return;
    if (shown > LATE_SHOWN + 1)
        shown = LATE_SHOWN;
    mt_text_table_init(&table, columns, 5, terminal->utf8);
    for (size_t i = 0; i < shown; i++)
        add_late(&table, &rehearsal->late[i]);
    cli_table_draw(&table, terminal, out);
    if (shown < rehearsal->n_late)
        cli_table_fact(terminal, out, "", "and %zu more; --json has them all",
                       rehearsal->n_late - shown);
}
