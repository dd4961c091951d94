/* SPDX-License-Identifier: MIT */
/* What grew in a recording, kind "growth". */
#include "cli/document/grown.h"

#include <inttypes.h>
#include <memtally/growth.h>
#include <memtally/recording.h>
#include <memtally/units.h>

#include "internal.h"

#define ROWS_SHOWN   3u
#define FRAMES_SHOWN 8u

static const char *name_of(const struct mt_grown_row *row)
{
    return row->category == MT_CATEGORY_NONE ? "unattributed" : mt_category_name(row->category);
}

static void put_row(struct mt_strbuf *out, const struct mt_grown_row *row)
{
    char more[MT_SIZE_TEXT];
    char after[MT_SIZE_TEXT];
    mt_format_size(row->after_bytes - row->before_bytes, more);
    mt_strbuf_printf(out, "  %-12s  %s more, now %s, of %s\n", name_of(row), more,
                     mt_format_size(row->after_bytes, after), row->place);
}

static void put_stack(struct mt_strbuf *out, const struct mt_stack_entry *entry)
{
    char more[MT_SIZE_TEXT];
    mt_strbuf_printf(out, "  %s more in %" PRIu64 " block%s%s%s by\n",
                     mt_format_size(entry->bytes, more), entry->count, entry->count == 1 ? "" : "s",
                     entry->place ? " of " : "", entry->place ? entry->place : "");
    for (size_t i = 0; i < entry->n_frames && i < FRAMES_SHOWN; i++)
        mt_strbuf_printf(out, "    %s\n", entry->frames[i]);
    if (entry->n_frames > FRAMES_SHOWN)
        mt_strbuf_printf(out, "    and %zu more\n", entry->n_frames - FRAMES_SHOWN);
}

void cli_document_grown(const struct mt_recording_growth *growth, struct mt_strbuf *out)
{
    char time[CLI_TIME_TEXT];
    mt_strbuf_printf(out, "grew most in %s, by the recording:\n",
                     cli_format_time(growth->until_ns - growth->from_ns, time));
    for (size_t i = 0; i < growth->n_rows && i < ROWS_SHOWN; i++)
        put_row(out, &growth->rows[i]);
    for (size_t i = 0; i < growth->stacks->n_entries; i++)
        put_stack(out, &growth->stacks->entries[i]);
    if (!growth->n_rows)
        mt_strbuf_puts(out, "  nothing grew\n");
}

static void put_json_rows(struct mt_json *json, const struct mt_recording_growth *growth)
{
    mt_json_begin_array(json, "categories");
    for (size_t i = 0; i < growth->n_rows; i++) {
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "place", growth->rows[i].place);
        mt_json_text(json, "category", name_of(&growth->rows[i]));
        mt_json_count(json, "before_bytes", growth->rows[i].before_bytes);
        mt_json_count(json, "after_bytes", growth->rows[i].after_bytes);
        mt_json_end(json);
    }
    mt_json_end(json);
}

void cli_document_grown_json(const struct mt_recording_growth *growth, const char *watched,
                             struct mt_strbuf *out)
{
    struct mt_json json = {0};
    mt_json_begin_object(&json, NULL);
    mt_json_text(&json, "schema", "memtally/1");
    mt_json_text(&json, "kind", "growth");
    mt_json_text(&json, "place", watched);
    mt_json_real(&json, "from_s", (double)growth->from_ns / 1e9);
    mt_json_real(&json, "until_s", (double)growth->until_ns / 1e9);
    put_json_rows(&json, growth);
    mt_json_begin_array(&json, "stacks");
    for (size_t i = 0; i < growth->stacks->n_entries; i++)
        cli_json_stack(&growth->stacks->entries[i], &json);
    mt_json_end(&json);
    mt_json_end(&json);
    mt_json_finish_line(&json, out);
}
