/* SPDX-License-Identifier: MIT */
/* What a reader must know beside the figures: damage of a recording, then notes. */
#include <inttypes.h>
#include <memtally/recording.h>
#include <memtally/tally.h>
#include <string.h>

#include "internal.h"

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static int all_ended_themselves(const struct mt_tally_process *processes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strncmp(processes[i].end, "exited", 6) != 0 &&
            strcmp(processes[i].end, "replaced by exec") != 0)
            return 0;
    return 1;
}

/* A thread that lives when its process exits or calls exec leaves its block open, and nothing is
 * missing. */
static int was_cut_short(const struct mt_tally *tally)
{
    return !all_ended_themselves(tally->processes, tally->n_processes) ||
           !all_ended_themselves(tally->other_processes, tally->n_other_processes);
}

static void put_damage(const struct cli_document *document, const struct cli_terminal *terminal,
                       struct mt_strbuf *out)
{
    const struct mt_recording_damage *damage = document->damage;
    if (!damage)
        return;
    if (damage->files_unreadable)
        cli_table_fact(terminal, out, "damaged", "%" PRIu64 " file%s could not be read",
                       damage->files_unreadable, plural(damage->files_unreadable));
    if (damage->blocks_bad)
        cli_table_fact(terminal, out, "damaged", "%" PRIu64 " block%s could not be read",
                       damage->blocks_bad, plural(damage->blocks_bad));
    if (damage->first[0])
        cli_table_fact(terminal, out, "", "first: %s", damage->first);
    if (damage->blocks_open && was_cut_short(document->tally))
        cli_table_fact(terminal, out, "unfinished",
                       "%" PRIu64 " block%s read as far as written when the process ended",
                       damage->blocks_open, plural(damage->blocks_open));
    if (damage->events_lost)
        cli_table_fact(terminal, out, "lost", "%" PRIu64 " event%s that the recorder had to drop",
                       damage->events_lost, plural(damage->events_lost));
}

void cli_table_notes(const struct cli_document *document, const struct cli_terminal *terminal,
                     struct mt_strbuf *out)
{
    struct mt_strbuf notes = {0};
    put_damage(document, terminal, &notes);
    for (size_t i = 0; i < document->tally->n_notes; i++)
        cli_table_fact(terminal, &notes, "note", "%s", document->tally->notes[i]);
    for (size_t i = 0; i < document->n_notes; i++)
        cli_table_fact(terminal, &notes, "note", "%s", document->notes[i]);
    if (notes.length) {
        mt_strbuf_puts(out, "\n");
        mt_strbuf_puts(out, mt_strbuf_text(&notes));
    }
    mt_strbuf_finish_part(&notes, out);
}
