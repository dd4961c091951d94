/* SPDX-License-Identifier: MIT */
/* The pieces that text for people is made of: headings, tables, facts with a label, verdicts. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cli/document/verdict.h"
#include "emit/text.h"
#include "emit/text_table.h"
#include "internal.h"

#define LABEL_COLUMNS 13

void cli_table_heading(const struct cli_terminal *terminal, const char *text, struct mt_strbuf *out)
{
    mt_strbuf_printf(out, "\n%s%s%s\n", cli_bold(terminal), text, cli_plain(terminal));
}

void cli_table_draw(struct mt_text_table *table, const struct cli_terminal *terminal,
                    struct mt_strbuf *out)
{
    const struct mt_text_table_look look = {(size_t)terminal->columns, cli_bold(terminal),
                                            cli_faint(terminal), cli_plain(terminal)};
    mt_strbuf_puts(out, "\n");
    mt_text_table_draw(table, &look, out);
    mt_text_table_finish(table);
}

/* A label in a style, and a text that may hold anything. */
static void put_fact(const struct cli_terminal *terminal, struct mt_strbuf *out, const char *style,
                     const char *label, const char *text)
{
    struct mt_strbuf escaped = {0};
    struct mt_strbuf wrapped = {0};
    mt_text_escape(&escaped, text, terminal->utf8);
    mt_text_wrap(&wrapped, mt_strbuf_text(&escaped), LABEL_COLUMNS, cli_text_columns(terminal));
    int used = (int)strlen(label);
    mt_strbuf_printf(out, "%s%s%s%*s", style, label, *style ? cli_plain(terminal) : "",
                     used < LABEL_COLUMNS ? LABEL_COLUMNS - used : 0, "");
    /* The first line's indent is where the label stands. */
    if (wrapped.length > LABEL_COLUMNS)
        mt_strbuf_puts(out, mt_strbuf_text(&wrapped) + LABEL_COLUMNS);
    else
        mt_strbuf_puts(out, "\n");
    mt_strbuf_finish_part(&escaped, out);
    mt_strbuf_finish_part(&wrapped, out);
}

void cli_table_fact(const struct cli_terminal *terminal, struct mt_strbuf *out, const char *label,
                    const char *format, ...)
{
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    put_fact(terminal, out, "", label, text);
}

const char *cli_verdict_style(const struct cli_terminal *terminal, enum mt_verdict verdict)
{
    switch (verdict) {
    case MT_VERDICT_FITS:
        return cli_tone(terminal, CLI_TONE_GOOD);
    case MT_VERDICT_TIGHT:
    case MT_VERDICT_SPILLS:
    case MT_VERDICT_PAGES:
        return cli_tone(terminal, CLI_TONE_DOUBTFUL);
    case MT_VERDICT_CANNOT:
    case MT_VERDICT_EXCEEDS:
        return cli_tone(terminal, CLI_TONE_BAD);
    case MT_VERDICT_UNKNOWN:
    case MT_VERDICT_COUNT:
        break;
    }
    return "";
}

void cli_table_verdict(const struct cli_terminal *terminal, struct mt_strbuf *out,
                       enum mt_verdict verdict, const char *reason)
{
    put_fact(terminal, out, cli_verdict_style(terminal, verdict), mt_verdict_name(verdict), reason);
}
