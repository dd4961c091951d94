/* SPDX-License-Identifier: MIT */
/* What a document of a rehearsal refers to. */
#ifndef CLI_REHEARSE_TOLD_H
#define CLI_REHEARSE_TOLD_H

#include "cli/rehearse/rehearse.h"
#include "cli/rehearse/suggest.h"

struct rehearse_told {
    struct rehearse_result result; /* filled in by the caller, owned */
    struct rehearse_changes changes;
    struct mt_rehearsed_change document_changes[REHEARSE_CHANGES_MAX];
    char options[REHEARSE_CHANGES_MAX][200]; /* the flags of each change as memtally's own */
    struct mt_rehearsed_late *late;
    struct mt_rehearse_phase *phases;
    struct mt_rehearse_figure *figures;
    struct mt_rehearse_allocator *allocators;
    struct mt_rehearsed rehearsal;
    char note[1200]; /* on what is suggested, or why nothing is; "" */
};

/* Adds a sentence to the note. */
void rehearse_told_note(struct rehearse_told *told, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Warns of a program that was ended while it worked on. */
void rehearse_note_runs_on(struct rehearse_told *told);

/* Notes that no change of flags that was tried fits, and how many there were, where that is so. */
void rehearse_told_count(struct rehearse_told *told);

/* Looks for flags that fit. What keeps it from looking is no failure of the rehearsal: a note. */
void rehearse_told_find_changes(const struct rehearse_job *job, struct rehearse_told *told);

/* Fills in told->rehearsal, which refers to the job's command line and to the rest. Changes are
 * told in memtally's own options too where `with_options`. */
void rehearse_tell(const struct rehearse_job *job, int with_options, struct rehearse_told *told);

void rehearse_told_finish(struct rehearse_told *told);

#endif
