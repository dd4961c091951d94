/* SPDX-License-Identifier: MIT */
/* The CSV writer. */
#include "emit/csv.h"

#include <inttypes.h>
#include <string.h>

#include "emit/text.h"

static void separate(struct mt_csv *csv)
{
    if (csv->within_line)
        mt_strbuf_puts(csv->out, ",");
    csv->within_line = 1;
}

static void put_quoted(struct mt_strbuf *out, const char *text)
{
    mt_strbuf_puts(out, "\"");
    while (*text) {
        size_t length = strcspn(text, "\"");
        mt_strbuf_append(out, text, length);
        text += length;
        if (*text) {
            mt_strbuf_puts(out, "\"\"");
            text++;
        }
    }
    mt_strbuf_puts(out, "\"");
}

void mt_csv_text(struct mt_csv *csv, const char *text)
{
    separate(csv);
    if (!text)
        return;
    struct mt_strbuf escaped = {0};
    mt_text_escape(&escaped, text, 1);
    if (strpbrk(mt_strbuf_text(&escaped), ",\""))
        put_quoted(csv->out, mt_strbuf_text(&escaped));
    else
        mt_strbuf_puts(csv->out, mt_strbuf_text(&escaped));
    mt_strbuf_finish_part(&escaped, csv->out);
}

void mt_csv_count(struct mt_csv *csv, uint64_t count)
{
    separate(csv);
    if (count != UINT64_MAX)
        mt_strbuf_printf(csv->out, "%" PRIu64, count);
}

void mt_csv_real(struct mt_csv *csv, double real)
{
    separate(csv);
    if (real >= 0)
        mt_strbuf_printf(csv->out, "%.3f", real);
}

void mt_csv_end_line(struct mt_csv *csv)
{
    mt_strbuf_puts(csv->out, "\n");
    csv->within_line = 0;
}

void mt_csv_headings(struct mt_csv *csv, const char *headings)
{
    mt_strbuf_puts(csv->out, headings);
    mt_csv_end_line(csv);
}
