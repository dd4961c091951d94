/* SPDX-License-Identifier: MIT */
/* A document in each of its formats. */
#include "document.h"

#include <inttypes.h>
#include <memtally/history.h>
#include <memtally/provenance.h>
#include <memtally/recording.h>
#include <memtally/tally.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/units.h>

#include "base/error.h"
#include "emit/folded.h"
#include "internal.h"

const char *const cli_format_names[] = {
    [CLI_FORMAT_TABLE] = "table",
    [CLI_FORMAT_JSON] = "json",
    [CLI_FORMAT_CSV] = "csv",
    [CLI_FORMAT_FOLDED] = "folded",
    [CLI_FORMAT_SPEEDSCOPE] = "speedscope",
    [CLI_FORMAT_PERFETTO] = "perfetto",
    [CLI_FORMAT_MEMORY_VIZ] = "memory-viz",
    [CLI_FORMAT_MEMORY_VIZ + 1] = NULL,
};

void cli_document_folded(const struct cli_document *document, struct mt_strbuf *out)
{
    for (size_t i = 0; i < document->stacks->n_entries; i++) {
        const struct mt_stack_entry *entry = &document->stacks->entries[i];
        int complete = entry->complete || cli_is_no_stack(entry);
        mt_folded_stack(out, entry->place, entry->frames, entry->n_frames, complete, entry->bytes);
    }
}

int cli_document_render(const struct cli_document *document, enum cli_format format,
                        const struct cli_terminal *terminal, struct mt_strbuf *out,
                        struct mt_error *error)
{
    int is_of_stacks = format == CLI_FORMAT_FOLDED || format == CLI_FORMAT_SPEEDSCOPE;
    int is_binary = format == CLI_FORMAT_PERFETTO || format == CLI_FORMAT_MEMORY_VIZ;
    if (is_binary && terminal->is_terminal)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "--format %s writes no text; write it to a file with --output FILE",
                       cli_format_names[format]);
    if (format == CLI_FORMAT_MEMORY_VIZ && (!document->histories || !document->histories->n))
        return mt_fail(
            error, MT_ENOTFOUND, MT_NO_OFFSET,
            "the recording has no memory of a device, which is all that memory-viz shows; choose "
            "--format perfetto or speedscope");
    if (is_of_stacks && (!document->stacks || cli_has_no_stacks(document->stacks)))
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "the recording has no call stacks; record with --stacks fp");
    switch (format) {
    case CLI_FORMAT_TABLE:
        cli_document_table(document, terminal, out);
        break;
    case CLI_FORMAT_JSON:
        cli_document_json(document, out);
        break;
    case CLI_FORMAT_CSV:
        cli_document_csv(document, out);
        break;
    case CLI_FORMAT_FOLDED:
        cli_document_folded(document, out);
        break;
    case CLI_FORMAT_SPEEDSCOPE:
        cli_document_speedscope(document, out);
        break;
    case CLI_FORMAT_MEMORY_VIZ:
        cli_document_memory_viz(document, out);
        break;
    case CLI_FORMAT_PERFETTO:
        cli_document_perfetto(document, out);
        break;
    }
    if (mt_strbuf_failed(out))
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory while writing the report");
    return 0;
}
